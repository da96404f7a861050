/* sampler.h - chooses the next token from logits; a chain of llama.cpp's samplers. */
#ifndef CAIRN_LLAMA_SAMPLER_H
#define CAIRN_LLAMA_SAMPLER_H

#include "llama/runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cairn__sampler cairn__sampler;

typedef struct cairn__logit_bias {
    int32_t token;
    float   bias;
} cairn__logit_bias;

typedef struct cairn__sampling {
    float    temperature;       /* 0: greedy */
    float    top_p;             /* 1: off */
    int32_t  top_k;             /* 0: off */
    float    min_p;             /* 0: off */
    float    presence_penalty, frequency_penalty; /* 0: off; counted over the generated tokens */
    float    repeat_penalty;                      /* 1: off; over the last 64 tokens, prompt included */
    uint32_t seed;              /* every value is a seed, 4,294,967,295 too */
    bool     ban_eog;           /* never choose an end-of-generation token */
    const cairn__logit_bias *logit_bias;
    uint32_t                 n_logit_bias;
    /* GBNF; NULL: free text. lazy: only after one of the triggers appears. */
    const char        *grammar;
    bool               grammar_lazy;
    const char *const *trigger_patterns; /* regular expressions, as llama.cpp's lazy grammar takes them */
    uint32_t           n_trigger_patterns;
    const int32_t     *trigger_tokens;
    uint32_t           n_trigger_tokens;
    uint32_t           n_grammar_prompt; /* so many last tokens of the prompt the grammar describes too; not lazy */
} cairn__sampling;

/* CAIRN_EINVAL: a grammar that does not parse. */
CAIRN_MUST_USE cairn_status cairn__sampler_create(const cairn__runtime *rt, const cairn__sampling *params,
                                                  const int32_t *prompt, uint32_t n_prompt, cairn__sampler **ret_sampler);
void    cairn__sampler_destroy(cairn__sampler *sampler);
/* Picks from logits[n_vocab] (not changed) and accepts the choice. -1: no token is allowed. */
int32_t cairn__sampler_pick(cairn__sampler *sampler, const float *logits);

/* Natural logarithms of softmax(logits): of `token` and of the n_top likeliest,
 * ties by lower token id. */
typedef struct cairn__logprob {
    int32_t token;
    float   logprob;
} cairn__logprob;
cairn__logprob cairn__logprobs(const float *logits, uint32_t n_vocab, int32_t token, cairn__logprob *top, uint32_t n_top);

#ifdef __cplusplus
}
#endif
#endif
