/* runtime_log.c - llama.cpp's log: the first error line since the last reset is
 * kept for the operator's message, everything else is dropped.
 *
 * The first and not the last: it names the cause ("missing tensor ...", "invalid
 * magic"), the lines after it only say that the caller failed too. One callback
 * per process is all that llama.cpp has, so the state is global. [any thread] */
#include "llama/runtime_internal.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static pthread_mutex_t log_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t  log_once = PTHREAD_ONCE_INIT;
static char            log_line[384];
static size_t          log_size;
static bool            log_complete;

static void keep_error(enum ggml_log_level level, const char *text, void *user_data)
{
    (void)user_data;
    /* CONT continues a line of any level: only ours if we are inside one. */
    if (level != GGML_LOG_LEVEL_ERROR && level != GGML_LOG_LEVEL_CONT)
        return;
    pthread_mutex_lock(&log_mutex);
    if (!log_complete && (level == GGML_LOG_LEVEL_ERROR || log_size > 0)) {
        for (; *text && *text != '\n'; text++)
            if (log_size + 1 < sizeof log_line)
                log_line[log_size++] = (unsigned char)*text < 0x20 ? ' ' : *text;
        log_complete = *text == '\n' || level == GGML_LOG_LEVEL_ERROR;
        log_line[log_size] = 0;
    }
    pthread_mutex_unlock(&log_mutex);
}

static void install(void)
{
    llama_log_set(keep_error, NULL);
    llama_backend_init();
}

void cairn__runtime_log_install(void)
{
    pthread_once(&log_once, install);
}

void cairn__runtime_log_reset(void)
{
    pthread_mutex_lock(&log_mutex);
    log_size = 0;
    log_line[0] = 0;
    log_complete = false;
    pthread_mutex_unlock(&log_mutex);
}

void cairn__runtime_last_error(char *buf, size_t buf_size)
{
    pthread_mutex_lock(&log_mutex);
    snprintf(buf, buf_size, "%s", log_line);
    pthread_mutex_unlock(&log_mutex);
}

cairn_status cairn__runtime_fail(cairn_error *error, cairn_status status, const char *format, ...)
{
    if (error) {
        va_list args;
        va_start(args, format);
        vsnprintf(error->text, sizeof error->text, format, args);
        va_end(args);
    }
    return status;
}
