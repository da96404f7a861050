/* leave.c - see leave.h. */
#include "server/leave.h"

#include "server/log.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

typedef struct farewell {
    uint32_t ms;
    int      exit_code;
} farewell;

static void *leave(void *ctx)
{
    const farewell  f = *(farewell *)ctx;
    struct timespec rest = {.tv_sec = f.ms / 1000, .tv_nsec = f.ms % 1000 * 1000000L};
    free(ctx);
    while (nanosleep(&rest, &rest) != 0)
        continue;
    cairn__log_line("leaving without what still waits for the disk of the cache");
    _exit(f.exit_code);
}

void cairn__leave_within(uint32_t ms, int exit_code)
{
    pthread_t thread;
    farewell *f = malloc(sizeof *f);
    if (!f)
        return;
    *f = (farewell){ms, exit_code};
    if (pthread_create(&thread, NULL, leave, f) == 0)
        pthread_detach(thread);
    else
        free(f);
}
