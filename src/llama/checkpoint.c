/* checkpoint.c - state at one position, to the store.
 *
 * A window and recurrent state are of the position the sequence has reached, so a
 * checkpoint is taken between two decode calls, there and then. It is set again at
 * once: that puts the window's cells in the order in which a restore will put
 * them, and without it the two runs part when the ring wraps (LLAMA_CPP.md).
 *
 *   block 0   all tokens before the position, which a hit compares
 *   block 1   the PARTIAL_ONLY blob, of sequence 0
 *
 * Its memory is asked of the writer's queue before it is allocated, and is the
 * queue's until the file is written. */
#include "llama/adapter.h"

#include <stdlib.h>
#include <string.h>

static cairn_page describe(const cairn_llama *cache, llama_seq_id seq, const llama_token *tokens, uint32_t n_tokens)
{
    const uint32_t  before = (n_tokens - 1) / cache->page_tokens; /* full pages; at least one token is the file's own */
    cairn_page      page = {.kind = CAIRN_CHECKPOINT, .start = before * cache->page_tokens, .layout = cache->partial->id};
    const cairn_key none = {{0}};
    page.parent = before > 0 ? cache->tracks[seq].keys[before - 1] : none;
    page.n_tokens = n_tokens - page.start;
    page.tokens = tokens + page.start;
    /* What it saves: the tokens since the one before it. */
    const cairn__track *track = &cache->tracks[seq];
    if (n_tokens > track->checkpoint_tokens)
        page.prefill_ns = track->ns_per_token * (n_tokens - track->checkpoint_tokens);
    page.key = cairn_checkpoint_key(&cairn__namespace_of(cache, seq)->seed, &page.parent, page.tokens, page.n_tokens);
    return page;
}

/* Takes the memory: tokens, to be filled in, and behind them the blob. */
static bool hand_over(cairn_llama *cache, llama_seq_id seq, cairn_page *page, const llama_token *tokens,
                      uint8_t *memory_take, uint64_t blob_size)
{
    const uint64_t    prefix = (uint64_t)(page->start + page->n_tokens) * sizeof *tokens;
    const cairn_block blocks[2] = {{memory_take, prefix}, {memory_take + prefix, blob_size}};
    const cairn_put   put = {.identity = cairn__namespace_of(cache, seq)->identity,
                             .pages = page,
                             .n_pages = 1,
                             .release = free,
                             .release_ctx = memory_take};
    memcpy(memory_take, tokens, prefix);
    page->blocks = blocks;
    page->n_blocks = 2;
    if (cairn_store_put(cache->store, &put) == CAIRN_OK)
        return true;
    free(memory_take);
    return false;
}

static bool store(cairn_llama *cache, llama_seq_id seq, const llama_token *tokens, uint32_t n_tokens,
                  uint8_t *memory_take, uint64_t blob_size)
{
    if (!cairn__track_follow(cache, seq, tokens, (n_tokens - 1) / cache->page_tokens)) {
        free(memory_take);
        return false;
    }
    cairn_page page = describe(cache, seq, tokens, n_tokens);
    bool       stored = false;
    if (cairn__ask_stored(cache, cairn__namespace_of(cache, seq)->identity, &page, 1, &stored) && !stored)
        return hand_over(cache, seq, &page, tokens, memory_take, blob_size);
    free(memory_take);
    return stored;
}

static bool can_take(const cairn_llama *cache, llama_seq_id seq, const llama_token *tokens, uint32_t n_tokens)
{
    return cache && cache->partial && tokens && n_tokens > 0 && seq >= 0 && (uint32_t)seq < cache->n_seq &&
           seq != cache->scratch && llama_memory_seq_pos_max(cache->memory, seq) == (llama_pos)n_tokens - 1;
}

bool cairn_llama_checkpoint(cairn_llama *cache, llama_seq_id seq, const llama_token *tokens, uint32_t n_tokens)
{
    if (!can_take(cache, seq, tokens, n_tokens))
        return true;
    const uint64_t size = cairn__partial_size(cache, seq), prefix = (uint64_t)n_tokens * sizeof *tokens;
    cache->checkpoint_bytes = size > cache->checkpoint_bytes ? size : cache->checkpoint_bytes;
    uint8_t       *memory = cairn_store_put_room(cache->store) >= prefix + size ? malloc(prefix + size) : NULL;
    bool           stored = false;
    if (memory && !cairn__take_partial(cache, seq, n_tokens, memory + prefix, size)) {
        free(memory);
        memory = NULL;
    }
    if (memory && cairn__set_partial(cache, seq, n_tokens, memory + prefix, size)) {
        free(memory);
        return false;
    }
    if (memory)
        stored = store(cache, seq, tokens, n_tokens, memory, size);
    if (stored)
        cache->tracks[seq].checkpoint_tokens = n_tokens;
    else
        cache->checkpoints_given_up++;
    return true;
}

/* As large as the biggest so far; before the first one, as what the self-test took. */
uint64_t cairn_llama_checkpoint_bytes(const cairn_llama *cache)
{
    return cache->partial ? cache->checkpoint_bytes : 0;
}

uint64_t cairn_llama_checkpoints_given_up(const cairn_llama *cache)
{
    return cache->checkpoints_given_up;
}
