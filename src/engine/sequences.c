/* sequences.c - see sequences.h. Everything is a scan over a handful of token
 * lists: microseconds beside a decode call's milliseconds. */
#include "engine/sequences.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

cairn_status cairn__sequences_init(cairn__sequences *seqs, uint32_t n_seq, uint32_t n_ctx)
{
    memset(seqs, 0, sizeof *seqs);
    seqs->items = calloc(n_seq, sizeof *seqs->items);
    if (!seqs->items)
        return CAIRN_ENOMEM;
    seqs->n_seq = n_seq;
    seqs->n_ctx = n_ctx;
    for (uint32_t s = 0; s < n_seq; s++) {
        seqs->items[s].tokens = malloc((size_t)n_ctx * sizeof(int32_t)); /* pages that stay untouched cost nothing */
        if (!seqs->items[s].tokens) {
            cairn__sequences_done(seqs);
            return CAIRN_ENOMEM;
        }
    }
    return CAIRN_OK;
}

void cairn__sequences_done(cairn__sequences *seqs)
{
    for (uint32_t s = 0; seqs->items && s < seqs->n_seq; s++)
        free(seqs->items[s].tokens);
    free(seqs->items);
    memset(seqs, 0, sizeof *seqs);
}

static uint32_t common(const int32_t *a, uint32_t n_a, const int32_t *b, uint32_t n_b)
{
    uint32_t n = n_a < n_b ? n_a : n_b, i = 0;
    while (i < n && a[i] == b[i])
        i++;
    return i;
}

static bool same_salt(const cairn_digest *a, const cairn_digest *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

uint32_t cairn__sequences_shared(const cairn__sequences *seqs, uint32_t seq, const cairn_digest *salt,
                                 const int32_t *tokens, uint32_t n)
{
    const cairn__resident *item = &seqs->items[seq];
    return same_salt(&item->salt, salt) ? common(item->tokens, item->n, tokens, n) : 0;
}

/* Among equals the shorter one: it needs the least cutting, and a sequence that
 * ends there is taken over where a longer one would have to be forked. */
uint32_t cairn__sequences_best(const cairn__sequences *seqs, const cairn_digest *salt, const int32_t *tokens,
                               uint32_t n, uint32_t *ret_shared)
{
    uint32_t best = 0, best_shared = 0;
    for (uint32_t s = 0; s < seqs->n_seq; s++) {
        uint32_t shared = cairn__sequences_shared(seqs, s, salt, tokens, n);
        if (shared > best_shared || (shared == best_shared && shared > 0 && seqs->items[s].n < seqs->items[best].n)) {
            best = s;
            best_shared = shared;
        }
    }
    *ret_shared = best_shared;
    return best;
}

/* An empty sequence, else the one used longest ago; never `except`. */
static bool find_place(const cairn__sequences *seqs, uint32_t except, uint32_t *ret_seq)
{
    for (uint32_t s = 0; s < seqs->n_seq; s++) {
        if (s != except && seqs->items[s].n == 0) {
            *ret_seq = s;
            return true;
        }
    }
    return cairn__sequences_oldest(seqs, except, ret_seq);
}

cairn__sequence_plan cairn__sequences_plan(const cairn__sequences *seqs, const cairn_digest *salt,
                                           const int32_t *tokens, uint32_t n)
{
    cairn__sequence_plan plan = {0};
    uint32_t             shared = 0;
    uint32_t             best = cairn__sequences_best(seqs, salt, tokens, n, &shared);
    if (shared == 0) {
        find_place(seqs, UINT32_MAX, &plan.seq);
        return plan;
    }
    plan.keep = shared < n ? shared : n - 1;
    bool same_conversation = shared >= seqs->items[best].n_prompt;
    if (same_conversation || plan.keep == 0 || !find_place(seqs, best, &plan.seq)) {
        plan.seq = best;
        return plan;
    }
    plan.fork = true;
    plan.source = best;
    return plan;
}

cairn__sequence_plan cairn__sequences_plan_grid(const cairn__sequences *seqs, const cairn_digest *salt,
                                                const int32_t *tokens, uint32_t n, uint32_t grid)
{
    cairn__sequence_plan plan = {0};
    uint32_t             keep = cairn__sequences_shared(seqs, 0, salt, tokens, n);
    if (keep > seqs->items[0].n_grid)
        keep = seqs->items[0].n_grid;
    if (keep > n - 1)
        keep = n - 1;
    plan.keep = keep / grid * grid;
    return plan;
}

uint32_t cairn__sequences_cells(const cairn__sequences *seqs)
{
    uint32_t cells = 0;
    for (uint32_t s = 0; s < seqs->n_seq; s++) {
        uint32_t counted = 0;
        for (uint32_t t = 0; t < s; t++) {
            const cairn__resident *item = &seqs->items[s];
            uint32_t shared = cairn__sequences_shared(seqs, t, &item->salt, item->tokens, item->n);
            if (shared > counted)
                counted = shared;
        }
        cells += seqs->items[s].n - counted;
    }
    return cells;
}

bool cairn__sequences_oldest(const cairn__sequences *seqs, uint32_t except, uint32_t *ret_seq)
{
    bool found = false;
    for (uint32_t s = 0; s < seqs->n_seq; s++) {
        const cairn__resident *item = &seqs->items[s];
        if (s != except && item->n > 0 && (!found || item->used_at < seqs->items[*ret_seq].used_at)) {
            *ret_seq = s;
            found = true;
        }
    }
    return found;
}

static void limit(uint32_t *value, uint32_t max)
{
    if (*value > max)
        *value = max;
}

void cairn__sequences_assign(cairn__sequences *seqs, uint32_t seq, const cairn_digest *salt)
{
    cairn__resident *item = &seqs->items[seq];
    assert(item->n == 0 || same_salt(&item->salt, salt));
    item->salt = *salt;
}

void cairn__sequences_cut(cairn__sequences *seqs, uint32_t seq, uint32_t n)
{
    cairn__resident *item = &seqs->items[seq];
    limit(&item->n, n);
    limit(&item->n_prompt, n);
    limit(&item->n_grid, n);
    item->n_wanted = 0;
}

void cairn__sequences_fork(cairn__sequences *seqs, uint32_t source, uint32_t seq, uint32_t n)
{
    cairn__sequences_cut(seqs, seq, 0);
    cairn__sequences_assign(seqs, seq, &seqs->items[source].salt);
    cairn__sequences_append(seqs, seq, seqs->items[source].tokens, n);
}

void cairn__sequences_append(cairn__sequences *seqs, uint32_t seq, const int32_t *tokens, uint32_t n)
{
    cairn__resident *item = &seqs->items[seq];
    assert(n <= seqs->n_ctx - item->n);
    memcpy(item->tokens + item->n, tokens, (size_t)n * sizeof *tokens);
    item->n += n;
    item->n_wanted = 0;
}

void cairn__sequences_want(cairn__sequences *seqs, uint32_t seq, const int32_t *tokens, uint32_t n)
{
    cairn__resident *item = &seqs->items[seq];
    assert(item->n <= n && n <= seqs->n_ctx);
    memcpy(item->tokens + item->n, tokens + item->n, (size_t)(n - item->n) * sizeof *tokens);
    item->n_wanted = n;
}

void cairn__sequences_touch(cairn__sequences *seqs, uint32_t seq)
{
    seqs->items[seq].used_at = ++seqs->clock;
}

void cairn__sequences_clear(cairn__sequences *seqs)
{
    for (uint32_t s = 0; s < seqs->n_seq; s++)
        cairn__sequences_cut(seqs, s, 0);
}
