/* fault.c - plans: see fault.h. And what the linker wraps: memory, threads, the
 * wall clock. */
#include "fault.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

_Thread_local bool        fault_included;
static _Thread_local bool is_code_thread; /* started by the code under test: always included */

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t  disarmed = PTHREAD_COND_INITIALIZER;
static fault_plan      plan;
static bool            armed;
static uint64_t        n_seen, n_fired;
static int64_t         clock_shift_s;

const char *fault_kind_name(fault_kind kind)
{
    static const char *const names[] = {
#define X(name) #name,
        FAULT_KINDS(X)
#undef X
    };
    return names[kind];
}

void fault_arm(const fault_plan *p)
{
    pthread_mutex_lock(&mutex);
    plan = *p;
    n_seen = n_fired = 0;
    armed = true;
    pthread_mutex_unlock(&mutex);
}

uint64_t fault_disarm(void)
{
    pthread_mutex_lock(&mutex);
    armed = false;
    clock_shift_s = 0;
    uint64_t n = n_fired;
    pthread_cond_broadcast(&disarmed);
    pthread_mutex_unlock(&mutex);
    return n;
}

uint64_t fault_n_fired(void)
{
    pthread_mutex_lock(&mutex);
    uint64_t n = n_fired;
    pthread_mutex_unlock(&mutex);
    return n;
}

static bool hits_locked(fault_kind kind)
{
    if (!armed)
        return false;
    if (plan.kinds & FAULT_MASK(kind)) {
        n_seen++;
        if (n_seen == plan.n || (plan.for_good && n_seen > plan.n)) {
            n_fired++;
            return true;
        }
    }
    return n_fired > 0 && (plan.also & FAULT_MASK(kind));
}

bool fault_hits(fault_kind kind, fault_effect *ret_effect)
{
    if (!is_code_thread && !fault_included)
        return false;
    pthread_mutex_lock(&mutex);
    bool hit = hits_locked(kind);
    bool primary = (plan.kinds & FAULT_MASK(kind)) != 0;
    if (hit) {
        *ret_effect = primary ? plan.effect : FAULT_ERROR;
        errno = plan.error;
    }
    if (hit && plan.effect == FAULT_HANG) {
        while (armed)
            pthread_cond_wait(&disarmed, &mutex);
        hit = false;
    }
    pthread_mutex_unlock(&mutex);
    return hit;
}

/* ---- memory ---- */

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *old, size_t size);
void  __real_free(void *p);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *old, size_t size);
void  __wrap_free(void *p);

/* Open addressing; what was freed leaves a mark behind, and the table is cleared
 * of those when it gets full. Larger than any scenario needs. */
#define TABLE_SIZE (1u << 18)
#define REMOVED ((void *)(uintptr_t)1)
static void           *table[TABLE_SIZE];
static size_t          n_live, n_marks;
static pthread_mutex_t table_mutex = PTHREAD_MUTEX_INITIALIZER;

static size_t place_of(const void *p)
{
    return (size_t)(((uintptr_t)p >> 4) * UINT64_C(0x9E3779B97F4A7C15) >> 46);
}

static void insert_locked(void *p)
{
    size_t at = place_of(p);
    while (table[at] && table[at] != REMOVED)
        at = (at + 1) % TABLE_SIZE;
    n_marks -= table[at] == REMOVED;
    table[at] = p;
    n_live++;
}

static void clean_locked(void)
{
    static void *kept[TABLE_SIZE / 2];
    size_t       n = 0;
    for (size_t i = 0; i < TABLE_SIZE; i++)
        if (table[i] && table[i] != REMOVED && n < TABLE_SIZE / 2)
            kept[n++] = table[i];
    memset(table, 0, sizeof(table));
    n_live = n_marks = 0;
    for (size_t i = 0; i < n; i++)
        insert_locked(kept[i]);
}

static void *remember(void *p)
{
    if (!p || (!is_code_thread && !fault_included)) /* the test's own memory is its own matter */
        return p;
    pthread_mutex_lock(&table_mutex);
    if (n_live + n_marks > TABLE_SIZE / 2)
        clean_locked();
    insert_locked(p);
    pthread_mutex_unlock(&table_mutex);
    return p;
}

/* Also of memory that the code under test hands to the test, or the other way. */
static bool forget(void *p)
{
    bool found = false;
    if (!p)
        return false;
    pthread_mutex_lock(&table_mutex);
    for (size_t at = place_of(p); table[at] && !found; at = (at + 1) % TABLE_SIZE)
        if (table[at] == p) {
            table[at] = REMOVED;
            n_live--;
            n_marks++;
            found = true;
        }
    pthread_mutex_unlock(&table_mutex);
    return found;
}

size_t fault_live_allocations(void)
{
    pthread_mutex_lock(&table_mutex);
    size_t n = n_live;
    pthread_mutex_unlock(&table_mutex);
    return n;
}

static bool no_memory(void)
{
    fault_effect effect;
    if (!fault_hits(FAULT_MALLOC, &effect))
        return false;
    errno = ENOMEM;
    return true;
}

void *__wrap_malloc(size_t size)
{
    return no_memory() ? NULL : remember(__real_malloc(size));
}

void *__wrap_calloc(size_t n, size_t size)
{
    return no_memory() ? NULL : remember(__real_calloc(n, size));
}

void *__wrap_realloc(void *old, size_t size)
{
    if (no_memory())
        return NULL;
    bool  known = forget(old);
    void *p = __real_realloc(old, size);
    if (!p && known) {
        pthread_mutex_lock(&table_mutex);
        insert_locked(old);
        pthread_mutex_unlock(&table_mutex);
    }
    return remember(p);
}

void __wrap_free(void *p)
{
    (void)forget(p);
    __real_free(p);
}

/* ---- threads ---- */

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*start)(void *), void *ctx);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*start)(void *), void *ctx);

typedef struct beginning {
    void *(*start)(void *);
    void *ctx;
} beginning;

static void *begin_thread(void *ctx)
{
    beginning b = *(beginning *)ctx;
    __real_free(ctx);
    is_code_thread = true;
    return b.start(b.ctx);
}

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*start)(void *), void *ctx)
{
    fault_effect effect;
    if (fault_hits(FAULT_THREAD, &effect))
        return EAGAIN;
    beginning *b = __real_malloc(sizeof(*b));
    *b = (beginning){start, ctx};
    return __real_pthread_create(thread, attr, begin_thread, b);
}

/* ---- the wall clock; the monotonic one keeps its promise ---- */

int __real_clock_gettime(clockid_t id, struct timespec *t);
int __wrap_clock_gettime(clockid_t id, struct timespec *t);

int __wrap_clock_gettime(clockid_t id, struct timespec *t)
{
    fault_effect effect;
    if (id == CLOCK_REALTIME && fault_hits(FAULT_CLOCK, &effect)) {
        pthread_mutex_lock(&mutex);
        clock_shift_s = effect == FAULT_PAST ? -86400 : 86400;
        pthread_mutex_unlock(&mutex);
    }
    int result = __real_clock_gettime(id, t);
    if (id == CLOCK_REALTIME) {
        pthread_mutex_lock(&mutex);
        t->tv_sec += clock_shift_s;
        pthread_mutex_unlock(&mutex);
    }
    return result;
}
