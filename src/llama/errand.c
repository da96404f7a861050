/* errand.c - errand.h has the idea. */
#include "llama/adapter.h"

#include "os/clock.h"

/* 1 MiB/s: a disk that never stops but is slower than this on the whole is given up
 * as well, or a request would wait for hours. */
#define NS_PER_BYTE 954u
#define ASK_NS UINT64_C(20000000) /* between two questions whether to go on */

static uint64_t min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Whether the errand of before is out of the way. One that was not left has only
 * its end to make, which is waited for once. */
static bool make_way(cairn_llama *cache)
{
    cairn__errand *errand = cache->errand;
    if (!errand)
        return true;
    atomic_store(&errand->in_the_way, true);
    const bool     left = !cairn__errand_wanted(errand);
    const uint64_t now_ns = cairn__monotonic_ns();
    if (!errand->settle(errand, left ? now_ns : now_ns + cache->patience_ns)) {
        atomic_store(&errand->left, true);
        return false;
    }
    cache->errand = NULL;
    errand->destroy(errand);
    return true;
}

bool cairn__errand_begin(cairn_llama *cache, cairn__errand *errand)
{
    if (!make_way(cache))
        return false;
    cache->errand = errand;
    errand->began_ns = errand->seen_ns = cairn__monotonic_ns();
    return true;
}

void cairn__errand_mark(cairn__errand *errand)
{
    errand->seen_ns = cairn__monotonic_ns();
}

static void ask(cairn__errand *errand)
{
    if (errand->go_on && !errand->go_on(errand->go_on_ctx)) {
        errand->go_on = NULL;
        errand->stop(errand);
    }
}

bool cairn__errand_wait(cairn_llama *cache, cairn__pool *pool, cairn__task *task)
{
    cairn__errand *errand = cache->errand;
    for (;;) {
        const uint64_t moved = atomic_load_explicit(&errand->moved, memory_order_relaxed);
        const uint64_t now_ns = cairn__monotonic_ns();
        if (moved != errand->seen) {
            errand->seen = moved;
            errand->seen_ns = now_ns;
        }
        const uint64_t until_ns = min_u64(errand->seen_ns, errand->began_ns + moved * NS_PER_BYTE) + cache->patience_ns;
        if (cairn__pool_wait_until(pool, task, errand->go_on ? min_u64(until_ns, now_ns + ASK_NS) : until_ns))
            return true;
        ask(errand);
        if (now_ns >= until_ns) {
            atomic_store(&errand->left, true);
            return false;
        }
    }
}

void cairn__errand_end(cairn_llama *cache)
{
    cairn__errand *errand = cache->errand;
    if (!errand->settle(errand, 0))
        return;
    cache->errand = NULL;
    errand->destroy(errand);
}

void cairn__errand_finish(cairn_llama *cache)
{
    cairn__errand *errand = cache->errand;
    if (!errand)
        return;
    atomic_store(&errand->in_the_way, true);
    while (!errand->settle(errand, UINT64_MAX))
        continue;
    cache->errand = NULL;
    errand->destroy(errand);
}
