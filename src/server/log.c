/* log.c - see log.h. One write() a line, so that lines of threads don't mix. */
#include "server/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static bool log_verbose;

static void write_line(const char *format, va_list args)
{
    char            line[1024];
    struct timespec now;
    struct tm       parts;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &parts);
    size_t at = strftime(line, sizeof line, "%Y-%m-%dT%H:%M:%S", &parts);
    at += (size_t)snprintf(line + at, sizeof line - at, ".%03ldZ ", now.tv_nsec / 1000000);
    int n = vsnprintf(line + at, sizeof line - at - 1, format, args);
    if (n < 0)
        return;
    at += (size_t)n < sizeof line - at - 1 ? (size_t)n : sizeof line - at - 2;
    line[at++] = '\n';
    if (write(STDERR_FILENO, line, at) < 0)
        return; /* nobody to tell */
}

void cairn__log_line(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    write_line(format, args);
    va_end(args);
}

void cairn__log_set_verbose(bool verbose)
{
    log_verbose = verbose;
}

void cairn__log_detail(const char *format, ...)
{
    va_list args;
    if (!log_verbose)
        return;
    va_start(args, format);
    write_line(format, args);
    va_end(args);
}
