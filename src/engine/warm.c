/* warm.c - a server that is started again begins with the prompts that it had.
 *
 * After each request the prompts of the resident sequences are noted beside the pages;
 * before the first request those of the note are brought back, the one used last first,
 * as far as they fit beside each other. Each is looked up, compared and verified like
 * any request's: the note decides what is brought early, never what it is.
 *
 * A request that arrives meanwhile ends it. Prompts under a salt are neither noted nor
 * brought back: their tenant's key is not known before it comes. */
#include "engine/internal.h"
#include "os/clock.h"

#include <stdlib.h>
#include <string.h>

#define MIN_TOKENS 256u /* a shorter one is computed in no time; where there are no others the note stays as it is */

static const cairn_digest NO_SALT;

/* ---- for the next process ---- */

static cairn_prompt prompt_of(const cairn__resident *item)
{
    return (cairn_prompt){item->tokens, item->n_wanted ? item->n_wanted : item->n_prompt};
}

static bool is_worth_noting(const cairn__resident *item)
{
    return item->n > 0 && prompt_of(item).n_tokens >= MIN_TOKENS && memcmp(&item->salt, &NO_SALT, sizeof NO_SALT) == 0;
}

/* The one used last before `before`; NULL: none. */
static const cairn__resident *latest_before(const cairn__sequences *seqs, uint64_t before)
{
    const cairn__resident *latest = NULL;
    for (uint32_t s = 0; s < seqs->n_seq; s++) {
        const cairn__resident *item = &seqs->items[s];
        if (is_worth_noting(item) && item->used_at < before && (!latest || item->used_at > latest->used_at))
            latest = item;
    }
    return latest;
}

void cairn__warm_note(cairn__engine *engine)
{
    uint32_t               n = 0;
    const cairn__resident *item = latest_before(&engine->seqs, UINT64_MAX);
    if (!engine->options.warm_start || !item || cairn__attach_miss(engine) != CAIRN_MISS_NONE ||
        !cairn__runtime_model_unchanged(engine->rt))
        return;
    cairn_prompt *prompts = malloc(engine->seqs.n_seq * sizeof *prompts);
    if (!prompts)
        return;
    for (; item; item = latest_before(&engine->seqs, item->used_at))
        prompts[n++] = prompt_of(item);
    cairn__runtime_note_recent(engine->rt, prompts, n);
    free(prompts);
}

/* ---- from the process before ---- */

static bool nobody_waits(void *ctx)
{
    cairn__engine *engine = ctx;
    pthread_mutex_lock(&engine->mutex);
    bool free_to_go_on = engine->last_id == 0 && !engine->stopping;
    pthread_mutex_unlock(&engine->mutex);
    return free_to_go_on;
}

/* Without pushing out what was brought before it. */
static bool fits(const cairn__engine *engine, const cairn_prompt *prompt)
{
    uint32_t shared = 0;
    uint32_t n_ctx = cairn__runtime_n_ctx(engine->rt);
    cairn__sequences_best(&engine->seqs, &NO_SALT, prompt->tokens, prompt->n_tokens, &shared);
    return prompt->n_tokens > 1 && prompt->n_tokens < n_ctx &&
           prompt->n_tokens - shared <= n_ctx - cairn__sequences_cells(&engine->seqs);
}

/* Half of it or more: less is no use of a place. */
static bool is_most_of(uint32_t n, const cairn_prompt *prompt)
{
    return n > 0 && n >= prompt->n_tokens / 2;
}

/* Returns the tokens of it that are in memory now, 0: not worth a place. What it shares
 * with one that was brought before may be that one's sequence, and stays. */
static uint32_t bring_back(cairn__engine *engine, const cairn_prompt *prompt)
{
    uint32_t         seq = 0;
    const cairn__job job = {.tokens = prompt->tokens, .n_tokens = prompt->n_tokens};
    const uint32_t   kept = cairn__resident_prepare(engine, &job, &seq);
    cairn__restored  r = cairn__seq_restore_ahead(engine->rt, seq, prompt, kept, nobody_waits, engine);
    cairn__engine_watch_disk(engine, r.miss);
    if (r.miss != CAIRN_MISS_STOPPED)
        cairn__restore_estimate_add(&engine->restore_estimate, r.from_store, r.bytes, r.elapsed_ns);
    cairn__resident_restored(engine, seq, prompt->tokens, r.n_tokens);
    const bool most = is_most_of(r.n_tokens, prompt);
    if (most || kept > 0)
        cairn__sequences_want(&engine->seqs, seq, prompt->tokens, prompt->n_tokens);
    else
        cairn__resident_remove(engine, seq);
    return most ? r.n_tokens : 0;
}

/* The prompt that was used last stays longest. */
static void touch_in_order(cairn__engine *engine, const cairn_prompt *prompts, uint32_t n)
{
    while (n-- > 0) {
        uint32_t shared = 0;
        uint32_t seq = cairn__sequences_best(&engine->seqs, &NO_SALT, prompts[n].tokens, prompts[n].n_tokens, &shared);
        if (is_most_of(shared, &prompts[n]))
            cairn__sequences_touch(&engine->seqs, seq);
    }
}

void cairn__warm_start(cairn__engine *engine)
{
    const uint64_t began_ns = cairn__monotonic_ns();
    uint32_t       n = 0, n_brought = 0, n_tokens = 0;
    if (!engine->options.warm_start || !nobody_waits(engine))
        return;
    cairn_prompt *prompts = cairn__runtime_recent(engine->rt, &n);
    for (uint32_t i = 0; i < n && n_brought < engine->seqs.n_seq && nobody_waits(engine) && !engine->disk_is_silent; i++) {
        uint32_t brought = fits(engine, &prompts[i]) ? bring_back(engine, &prompts[i]) : 0;
        n_brought += brought > 0;
        n_tokens += brought;
    }
    touch_in_order(engine, prompts, n);
    free(prompts);
    if (n_brought > 0)
        cairn__engine_log(engine, "warm start: %u %s of before, %u tokens, in memory again after %.0f ms", n_brought,
                          n_brought == 1 ? "prompt" : "prompts", n_tokens,
                          (double)(cairn__monotonic_ns() - began_ns) / 1e6);
}
