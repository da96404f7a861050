/* generate.c - the decode loop: choose, show, decode.
 *
 * The first token is shown before the prompt's last pages are recorded: their
 * export takes milliseconds that nobody should wait for. */
#include "engine/job.h"
#include "os/clock.h"

static bool fill_info(cairn__run *run, int32_t token, cairn__token_info *info)
{
    const cairn__job *job = &run->request->job;
    const float      *logits = cairn__logits(run->engine->rt);
    uint32_t          n_vocab = cairn__runtime_n_vocab(run->engine->rt);
    if (!job->want_logprobs || !logits)
        return false;
    info->n_top = job->n_top_logprobs < 20 ? job->n_top_logprobs : 20;
    if (info->n_top > n_vocab)
        info->n_top = n_vocab;
    info->token = token;
    info->logprob = cairn__logprobs(logits, n_vocab, token, info->top, info->n_top).logprob;
    return true;
}

static cairn_status show(cairn__run *run, int32_t token)
{
    char              piece[512];
    cairn__token_info info = {0};
    bool              with_info = fill_info(run, token, &info);
    size_t size = cairn__token_piece(run->engine->rt, token, run->request->job.special_pieces, piece, sizeof piece);
    cairn_status status = cairn__text_feed(&run->text, piece, size, with_info ? &info : NULL);
    if (status)
        return status;
    run->tokens[run->n_tokens++] = token;
    run->n_generated++;
    if (run->n_generated == 1)
        run->ttft_ns = cairn__monotonic_ns() - run->request->submitted_ns;
    cairn__run_send_text(run);
    return CAIRN_OK;
}

/* Chooses and shows one token. *ret_ended: nothing follows it. */
static cairn_status step(cairn__run *run, bool *ret_ended)
{
    const cairn__job *job = &run->request->job;
    cairn__runtime   *rt = run->engine->rt;
    *ret_ended = true;
    run->finish = CAIRN__FINISH_LENGTH;
    if (run->n_generated == job->max_tokens || run->n_tokens == run->n_max)
        return CAIRN_OK;
    run->finish = CAIRN__FINISH_STOP;
    int32_t token = cairn__sampler_pick(run->sampler, cairn__logits(rt));
    if (token < 0 || (!job->ignore_eos && cairn__token_is_eog(rt, token)))
        return CAIRN_OK;
    cairn_status status = show(run, token);
    if (status || run->text.stopped)
        return status;
    run->finish = CAIRN__FINISH_LENGTH;
    *ret_ended = run->n_generated == job->max_tokens || run->n_tokens == run->n_max;
    return CAIRN_OK;
}

cairn_status cairn__run_generate(cairn__run *run)
{
    bool         ended = false;
    cairn_status status = step(run, &ended);
    if (run->n_generated == 0) /* nothing to show: the prefill was all that was wanted */
        run->ttft_ns = cairn__monotonic_ns() - run->request->submitted_ns;
    cairn__resident_record(run->engine, run->seq, true);
    uint64_t begin_ns = cairn__monotonic_ns();
    while (!status && !ended) {
        cairn__engine_service(run->engine);
        status = cairn__run_canceled(run) ? CAIRN_ECANCELED : cairn__run_decode_one(run);
        if (!status)
            status = step(run, &ended);
    }
    run->decode_ns = cairn__monotonic_ns() - begin_ns;
    /* Without an end of its own the text may still hold back half a character. */
    if (!status || status == CAIRN_ECANCELED) {
        cairn_status text_status = cairn__text_end(&run->text);
        cairn__run_send_text(run);
        status = status ? status : text_status;
    }
    return status;
}
