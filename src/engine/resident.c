/* resident.c - carries the plans of sequences.h out on the runtime, and keeps
 * both lists of what is resident the same.
 *
 * Whatever the runtime refuses costs a sequence, never an answer: a sequence of
 * which it is not certain what it holds is removed. */
#include "engine/internal.h"

void cairn__resident_remove(cairn__engine *engine, uint32_t seq)
{
    cairn__sequences_cut(&engine->seqs, seq, 0);
    if (!cairn__seq_cut(engine->rt, seq, 0))
        cairn__resident_clear(engine);
}

void cairn__resident_clear(cairn__engine *engine)
{
    cairn__runtime_clear(engine->rt);
    cairn__sequences_clear(&engine->seqs);
}

bool cairn__resident_evict(cairn__engine *engine, uint32_t except)
{
    uint32_t victim;
    if (!cairn__sequences_oldest(&engine->seqs, except, &victim))
        return false;
    cairn__resident_remove(engine, victim);
    return true;
}

static bool cut(cairn__engine *engine, uint32_t seq, uint32_t keep)
{
    if (keep > 0 && cairn__seq_cut(engine->rt, seq, keep)) {
        cairn__sequences_cut(&engine->seqs, seq, keep);
        return true;
    }
    cairn__resident_remove(engine, seq);
    return false;
}

static bool fork(cairn__engine *engine, uint32_t source, uint32_t seq, uint32_t keep)
{
    cairn__resident_remove(engine, seq);
    if (!cairn__seq_fork(engine->rt, source, seq, keep))
        return false;
    cairn__sequences_fork(&engine->seqs, source, seq, keep);
    cairn__sequences_touch(&engine->seqs, source); /* shared: it stays as useful as its copy */
    return true;
}

/* The cells of a reproducible request are 0..n-1, so with nothing to keep the
 * pool starts afresh, where its order can't depend on what was there before. */
static uint32_t prepare_on_grid(cairn__engine *engine, const cairn__job *job)
{
    cairn__sequence_plan plan = cairn__sequences_plan_grid(&engine->seqs, &job->salt, job->tokens, job->n_tokens,
                                                           cairn__runtime_n_batch(engine->rt));
    if (plan.keep > 0 && cut(engine, 0, plan.keep))
        return plan.keep;
    cairn__resident_clear(engine);
    return 0;
}

static uint32_t prepare_anywhere(cairn__engine *engine, const cairn__job *job, uint32_t *ret_seq)
{
    cairn__sequence_plan plan = cairn__sequences_plan(&engine->seqs, &job->salt, job->tokens, job->n_tokens);
    bool kept = plan.fork ? fork(engine, plan.source, plan.seq, plan.keep) : cut(engine, plan.seq, plan.keep);
    *ret_seq = plan.seq;
    return kept ? plan.keep : 0;
}

uint32_t cairn__resident_prepare(cairn__engine *engine, const cairn__job *job, uint32_t *ret_seq)
{
    *ret_seq = 0;
    uint32_t keep =
        engine->options.reproducible ? prepare_on_grid(engine, job) : prepare_anywhere(engine, job, ret_seq);
    cairn__sequences_assign(&engine->seqs, *ret_seq, &job->salt);
    cairn__sequences_touch(&engine->seqs, *ret_seq);
    return keep;
}

void cairn__resident_make_room(cairn__engine *engine, uint32_t seq, uint32_t n_more)
{
    uint32_t n_ctx = cairn__runtime_n_ctx(engine->rt);
    while (n_more > n_ctx - cairn__sequences_cells(&engine->seqs))
        if (!cairn__resident_evict(engine, seq))
            return;
}

void cairn__resident_restored(cairn__engine *engine, uint32_t seq, const int32_t *tokens, uint32_t n)
{
    cairn__resident *item = &engine->seqs.items[seq];
    cairn__sequences_cut(&engine->seqs, seq, n); /* an import that failed takes resident cells with it */
    cairn__sequences_append(&engine->seqs, seq, tokens + item->n, n - item->n);
    item->n_prompt = n;
    item->n_grid = engine->options.reproducible ? n : 0; /* both tiers end on the grid */
}

uint32_t cairn__resident_recordable(const cairn__engine *engine, uint32_t seq)
{
    const cairn__resident *item = &engine->seqs.items[seq];
    if (!cairn__runtime_model_unchanged(engine->rt))
        return 0;
    return engine->options.reproducible ? item->n_grid : item->n;
}

bool cairn__resident_checkpoint(cairn__engine *engine, uint32_t seq, bool store)
{
    const cairn__resident *item = &engine->seqs.items[seq];
    /* A checkpoint that finds no room is not put back: what the disk does must not
     * be seen in the bits. */
    bool ok = !engine->options.reproducible || cairn__seq_settle(engine->rt, seq);
    if (ok && store && cairn__runtime_model_unchanged(engine->rt))
        ok = cairn__seq_checkpoint(engine->rt, seq, &item->salt, item->tokens, item->n);
    if (ok)
        return true;
    cairn__resident_remove(engine, seq);
    return false;
}

void cairn__resident_record(cairn__engine *engine, uint32_t seq, bool end)
{
    const cairn__resident *item = &engine->seqs.items[seq];
    uint32_t               n = cairn__resident_recordable(engine, seq);
    if (n > 0)
        cairn__seq_record(engine->rt, seq, &item->salt, item->tokens, n, end);
}
