/* stored.c - which pages need not be exported: an errand (errand.h), as every one
 * costs a stat and a short one a listing too. */
#include "llama/adapter.h"

#include <stdlib.h>
#include <string.h>

typedef struct question {
    cairn__errand   errand; /* first */
    cairn__task     task;
    cairn_llama    *cache;
    uint32_t        n;
    cairn_identity *identity; /* a copy, like all of this: the caller's may be gone before the task is */
    cairn_page     *pages;    /* [n], their tokens are below */
    bool           *stored;   /* [n] */
    int32_t        *tokens;
} question;

static void ask(cairn__task *task)
{
    question *q = (question *)(void *)((char *)task - offsetof(question, task));
    for (uint32_t i = 0; i < q->n && cairn__errand_wanted(&q->errand); i++) {
        q->stored[i] = cairn_store_has(q->cache->store, q->identity, &q->pages[i]);
        cairn__errand_moved(&q->errand, CAIRN__ERRAND_CALL_BYTES);
    }
}

static bool settle(cairn__errand *errand, uint64_t until_ns)
{
    question *q = (question *)errand;
    return cairn__pool_wait_until(q->cache->clerk, &q->task, until_ns);
}

static void destroy(cairn__errand *errand)
{
    question *q = (question *)errand;
    cairn_identity_destroy(q->identity);
    free(q->pages);
    free(q->stored);
    free(q->tokens);
    free(q);
}

static question *create(cairn_llama *cache, const cairn_identity *identity, const cairn_page *pages, uint32_t n)
{
    const uint32_t start = pages[0].start;
    const uint32_t n_tokens = pages[n - 1].start + pages[n - 1].n_tokens - start;
    question      *q = calloc(1, sizeof *q);
    if (!q)
        return NULL;
    *q = (question){.errand = {.settle = settle, .destroy = destroy},
                    .task.run = ask,
                    .cache = cache,
                    .n = n,
                    .pages = malloc(n * sizeof *pages),
                    .stored = calloc(n, sizeof *q->stored),
                    .tokens = malloc(n_tokens * sizeof *q->tokens)};
    if (!q->pages || !q->stored || !q->tokens || cairn_identity_copy(identity, &q->identity)) {
        destroy(&q->errand);
        return NULL;
    }
    memcpy(q->pages, pages, n * sizeof *pages);
    memcpy(q->tokens, pages[0].tokens, n_tokens * sizeof *q->tokens);
    for (uint32_t i = 0; i < n; i++)
        q->pages[i].tokens = q->tokens + (pages[i].start - start);
    return q;
}

bool cairn__ask_stored(cairn_llama *cache, const cairn_identity *identity, const cairn_page *pages, uint32_t n,
                       bool *ret_stored)
{
    question *q = create(cache, identity, pages, n);
    if (!q)
        return false;
    if (!cairn__errand_begin(cache, &q->errand)) {
        destroy(&q->errand);
        return false;
    }
    cairn__pool_submit(cache->clerk, &q->task);
    bool answered = cairn__errand_wait(cache, cache->clerk, &q->task);
    if (answered)
        memcpy(ret_stored, q->stored, n * sizeof *ret_stored);
    cairn__errand_end(cache);
    return answered;
}
