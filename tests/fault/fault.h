/* fault.h - the twin of src/os/posix/sys.c, of malloc, of pthread_create and of
 * the wall clock, in which calls can be made to fail.
 *
 * A plan says which kinds of calls fail, how, from the Nth on, and whether once
 * or for good. Calls are counted over all threads that are not exempt: a test's
 * own thread is exempt, except inside FAULTY(). N that rises until nothing fires
 * has failed every call of a scenario once.
 *
 * What reaches the kernel is told to a journal (journal.h) if one records, and
 * every allocation of the code under test is remembered until it is freed. */
#ifndef CAIRN_FAULT_H
#define CAIRN_FAULT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* assert() that is there in every build: for the twin's own needs. */
#define MUST(condition)                                                                                                \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                                            \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)

#define FAULT_KINDS(X)                                                                                                 \
    X(OPEN)                                                                                                            \
    X(CREATE) X(CLOSE) X(READ) X(WRITE) X(SYNC) X(SYNC_DIR) X(START_WRITE) X(READ_AHEAD) X(RENAME_NEW) X(RENAME) X(LINK) X(UNLINK)   \
        X(RMDIR) X(CHMOD) X(MKDIR) X(STAT) X(FSTAT) X(TOUCH) X(LIST) X(SPACE) X(LOCK) X(RANDOM) X(MALLOC) X(THREAD)    \
            X(CLOCK)
typedef enum fault_kind {
#define X(name) FAULT_##name,
    FAULT_KINDS(X)
#undef X
        FAULT_N_KINDS
} fault_kind;
const char *fault_kind_name(fault_kind kind);
#define FAULT_MASK(kind) (UINT64_C(1) << (kind))

typedef enum fault_effect {
    FAULT_ERROR,      /* nothing happens, `error` is reported */
    FAULT_LATE_ERROR, /* it happens, and `error` is reported all the same */
    FAULT_SHORT,      /* half of the bytes are read or written */
    FAULT_NOTHING,    /* 0 bytes: the end of the file, a write of nothing, a directory that seems to end */
    FAULT_GARBLE,     /* one bit of what was read is wrong */
    FAULT_PAST,       /* the wall clock is set back by a day, from this call on */
    FAULT_FUTURE,     /* or forward */
    FAULT_HANG,       /* it returns when the plan is disarmed, and has then happened */
} fault_effect;

typedef struct fault_plan {
    uint64_t     kinds; /* of FAULT_MASK() */
    uint64_t     n;     /* the first call that fails, from 1 on */
    bool         for_good;
    fault_effect effect;
    int          error; /* errno */
    /* Kinds that fail from the moment on at which the first did, with the same
     * errno: a device that also can't clean up. */
    uint64_t also;
} fault_plan;

void     fault_arm(const fault_plan *plan);
uint64_t fault_disarm(void);  /* how many calls failed */
uint64_t fault_n_fired(void); /* until now */

/* This thread's calls fail too while the expression runs. */
extern _Thread_local bool fault_included;
#define FAULTY(expression)                                                                                             \
    ({                                                                                                                 \
        fault_included = true;                                                                                         \
        __auto_type faulty_value_ = (expression);                                                                      \
        fault_included = false;                                                                                        \
        faulty_value_;                                                                                                 \
    })
#define FAULTY_VOID(call)                                                                                              \
    do {                                                                                                               \
        fault_included = true;                                                                                         \
        call;                                                                                                          \
        fault_included = false;                                                                                        \
    } while (0)

/* Allocations made through the wrapped functions and not freed yet. */
size_t fault_live_allocations(void);

/* A file that stands for the kernel's boot id; NULL: the kernel's. */
void fault_set_boot_id_file(const char *path);

/* Called after each write, by the thread that made it. */
void fault_watch(void (*written)(void *ctx, int fd), void *ctx);

/* ---- between the files of the twin ---- */

/* Whether this call is to fail; *ret_effect and errno then say how. */
bool fault_hits(fault_kind kind, fault_effect *ret_effect);

#endif
