/* sampler_logprobs.c - logarithms of softmax(logits), for the client. From the raw
 * logits, before any penalty or grammar; summed in double from the largest on
 * down in one fixed order, so equal logits give equal bits. */
#include "llama/sampler.h"

#include <math.h>
#include <string.h>

static double log_sum(const float *logits, uint32_t n_vocab, float largest)
{
    double sum = 0.0;
    for (uint32_t i = 0; i < n_vocab; i++)
        sum += exp((double)logits[i] - (double)largest);
    return log(sum);
}

/* Keeps top[0..n) sorted: higher logit first, lower id first among equals. The
 * ids come in rising order, so an equal one never passes an earlier one. */
static uint32_t insert(cairn__logprob *top, uint32_t n, uint32_t n_top, int32_t token, float logit)
{
    if (n == n_top && !(logit > top[n - 1].logprob))
        return n;
    uint32_t at = n < n_top ? n : n - 1;
    while (at > 0 && logit > top[at - 1].logprob) {
        top[at] = top[at - 1];
        at--;
    }
    top[at] = (cairn__logprob){token, logit};
    return n < n_top ? n + 1 : n;
}

cairn__logprob cairn__logprobs(const float *logits, uint32_t n_vocab, int32_t token, cairn__logprob *top,
                               uint32_t n_top)
{
    float largest = logits[0];
    for (uint32_t i = 1; i < n_vocab; i++)
        if (logits[i] > largest)
            largest = logits[i];
    double log_z = log_sum(logits, n_vocab, largest);
    if (n_top > n_vocab)
        n_top = n_vocab;
    uint32_t n = 0;
    for (uint32_t i = 0; n_top > 0 && i < n_vocab; i++)
        n = insert(top, n, n_top, (int32_t)i, logits[i]);
    for (uint32_t i = 0; i < n; i++) /* logits until now, to compare without rounding */
        top[i].logprob = (float)((double)top[i].logprob - (double)largest - log_z);
    return (cairn__logprob){token, (float)((double)logits[token] - (double)largest - log_z)};
}
