/* recent.c - prompts that the process before had in memory: asked for as an errand,
 * since reading the note may take as long as the disk. */
#include "llama/adapter.h"

#include <stdlib.h>

typedef struct asking {
    cairn__errand   errand; /* first */
    cairn__task     read;
    cairn_llama    *cache;
    cairn_identity *identity; /* a copy: the task may outlive the call */
    cairn_prompt   *prompts;
    uint32_t        n_prompts;
} asking;

static void read_note(cairn__task *task)
{
    asking *a = (asking *)(void *)((char *)task - offsetof(asking, read));
    (void)!cairn_store_recent(a->cache->store, a->identity, &a->prompts, &a->n_prompts);
}

static bool settle(cairn__errand *errand, uint64_t until_ns)
{
    asking *a = (asking *)errand;
    return cairn__pool_wait_until(a->cache->clerk, &a->read, until_ns);
}

static void destroy(cairn__errand *errand)
{
    asking *a = (asking *)errand;
    cairn_identity_destroy(a->identity);
    free(a->prompts);
    free(a);
}

static asking *create(cairn_llama *cache)
{
    asking *a = calloc(1, sizeof *a);
    if (!a || cairn_identity_copy(cache->space.identity, &a->identity)) {
        free(a);
        return NULL;
    }
    a->errand.settle = settle;
    a->errand.destroy = destroy;
    a->read.run = read_note;
    a->cache = cache;
    return a;
}

cairn_status cairn_llama_recent(cairn_llama *cache, cairn_prompt **ret_prompts, uint32_t *ret_n_prompts)
{
    if (!cache || !ret_prompts || !ret_n_prompts)
        return CAIRN_EINVAL;
    *ret_prompts = NULL;
    *ret_n_prompts = 0;
    if (!cairn__is_supported(cache))
        return CAIRN_OK;
    asking *a = create(cache);
    if (!a)
        return CAIRN_ENOMEM;
    if (!cairn__errand_begin(cache, &a->errand)) {
        destroy(&a->errand);
        return CAIRN_OK;
    }
    cairn__pool_submit(cache->clerk, &a->read);
    if (cairn__errand_wait(cache, cache->clerk, &a->read)) {
        *ret_prompts = a->prompts;
        *ret_n_prompts = a->n_prompts;
        a->prompts = NULL;
    }
    cairn__errand_end(cache);
    return CAIRN_OK;
}

cairn_status cairn_llama_note_recent(cairn_llama *cache, const cairn_prompt *prompts, uint32_t n_prompts)
{
    if (!cache)
        return CAIRN_EINVAL;
    if (!cairn__is_supported(cache))
        return CAIRN_OK;
    return cairn_store_note_recent(cache->store, cache->space.identity, prompts, n_prompts);
}
