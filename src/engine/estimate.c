/* estimate.c - see estimate.h. */
#include "engine/estimate.h"

#include "policy/restore.h"

#define FEW_TOKENS 64u  /* below, a call's fixed cost shows (SmolLM2, 2 cores: 32 tokens at 0.7 of full speed) */
#define NEW_WEIGHT 0.25 /* guess: follows a change within a few calls, forgives one outlier */
#define RESTORE_MIN_TOKENS 256u       /* a page; below, the lookup is most of the time */
#define RESTORE_OVERHEAD_NS 1000000.0 /* lookup: some opens and a listing; guess, unmeasured */
#define SKIPS_MAX 15u                 /* guess */
#define REST_MAX 1.8e19               /* below UINT64_MAX */

void cairn__estimate_add(cairn__estimate *estimate, uint32_t n_tokens, uint64_t elapsed_ns)
{
    if (n_tokens == 0 || elapsed_ns == 0)
        return;
    double ns = (double)elapsed_ns / n_tokens;
    if (n_tokens < FEW_TOKENS) {
        if (estimate->n_measured == 0)
            estimate->ns_per_token = ns;
        return;
    }
    estimate->ns_per_token =
        estimate->n_measured++ ? estimate->ns_per_token + NEW_WEIGHT * (ns - estimate->ns_per_token) : ns;
}

uint64_t cairn__estimate_ns(const cairn__estimate *estimate, uint32_t n_tokens)
{
    return (uint64_t)(estimate->ns_per_token * n_tokens);
}

uint64_t cairn__estimate_rest_ns(uint64_t done, uint64_t total, uint64_t elapsed_ns, double guessed_ns_per_unit)
{
    if (done >= total)
        return 0;
    double per_unit = done > 0 && elapsed_ns > 0 ? (double)elapsed_ns / (double)done : guessed_ns_per_unit;
    double rest = per_unit * (double)(total - done);
    return rest < REST_MAX ? (uint64_t)rest : UINT64_MAX;
}

void cairn__restore_estimate_add(cairn__restore_estimate *estimate, uint32_t n_tokens, uint64_t bytes,
                                 uint64_t elapsed_ns)
{
    if (n_tokens < RESTORE_MIN_TOKENS || bytes == 0)
        return;
    double ns = (double)elapsed_ns / (double)bytes;
    estimate->bytes_per_token = (double)bytes / n_tokens;
    estimate->ns_per_byte =
        estimate->ns_per_byte > 0 ? estimate->ns_per_byte + NEW_WEIGHT * (ns - estimate->ns_per_byte) : ns;
}

bool cairn__restore_estimate_pays(cairn__restore_estimate *estimate, const cairn__estimate *prefill, uint32_t n_tokens)
{
    cairn__restore_case c = {.n_tokens = n_tokens,
                             .bytes = (uint64_t)(estimate->bytes_per_token * n_tokens),
                             .prefill_ns_per_token = prefill->ns_per_token,
                             .restore_ns_per_byte = estimate->ns_per_byte,
                             .overhead_ns = RESTORE_OVERHEAD_NS};
    if (cairn__restore_pays(&c) || estimate->n_skipped >= SKIPS_MAX) {
        estimate->n_skipped = 0;
        return true;
    }
    estimate->n_skipped++;
    return false;
}
