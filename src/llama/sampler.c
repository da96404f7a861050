/* sampler.c - chooses the next token: penalties and biases, then a chain of
 * llama.cpp's samplers, under a grammar if there is one.
 *
 * S1 The choice is a function of the logits, the parameters and the tokens
 *    chosen before; nothing else (no clock, no global random numbers).
 * S2 With a grammar, the token returned is one that the grammar allows.
 * S3 Ties go to the lower token id when greedy.
 *
 * The grammar is expensive on a whole vocabulary (tens of ms), so the chain
 * chooses first and only a refused choice is repeated under the grammar. The
 * result has the distribution of "mask, then choose": P(x) = p(x) + (1 - pA) *
 * p(x) / pA = p(x) / pA for allowed x, with pA the allowed mass.
 *
 * Penalties and biases touch the few tokens that they name; llama.cpp's own
 * penalty sampler looks every token of the vocabulary up in a hash map. */
#include "llama/sampler.h"

#include "llama/runtime_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TEMPERATURE_MIN 1e-6f /* below, logits divided by it overflow */
#define REPEAT_WINDOW 64u     /* tokens; the common default of llama.cpp and its kin */
/* While a lazy grammar waits, llama.cpp matches its regular expressions against
 * all text so far, recursing about 150 bytes of stack per character (measured:
 * libstdc++ of gcc 12). 64 KiB of text are 10 MiB of the engine's 64 MiB stack. */
#define LAZY_TEXT_MAX (64u << 10)

struct cairn__sampler {
    const struct llama_vocab *vocab;
    uint32_t                  n_vocab;
    float                     presence, frequency, repeat;
    bool                      greedy;
    cairn__logit_bias        *biases;
    uint32_t                  n_biases;
    llama_token_data         *candidates; /* [n_vocab] */
    uint32_t                 *counts;     /* [n_vocab] times generated; NULL: no such penalty */
    int32_t                  *distinct;   /* [n_vocab] tokens with a count */
    uint32_t                  n_distinct;
    int32_t                   recent[REPEAT_WINDOW]; /* ring, prompt included */
    uint32_t                  n_recent;              /* ever pushed */
    struct llama_sampler     *chain;                 /* NULL when greedy */
    struct llama_sampler     *grammar;               /* NULL: free text */
    bool                      waiting;               /* lazy, no trigger seen yet */
    int32_t                   eog;                   /* some end-of-generation token, or -1 */
    size_t                    waiting_text;
};

static bool add_to_chain(struct llama_sampler *chain, struct llama_sampler *link)
{
    if (link)
        llama_sampler_chain_add(chain, link);
    return link != NULL;
}

static bool build_chain(cairn__sampler *s, const cairn__sampling *p)
{
    /* 0xffffffff means "take a random seed" to llama.cpp; to us it is a number. */
    uint32_t                          seed = p->seed == LLAMA_DEFAULT_SEED ? 0x5eed5eedu : p->seed;
    struct llama_sampler_chain_params params = llama_sampler_chain_default_params();
    s->chain = llama_sampler_chain_init(params);
    bool ok = s->chain != NULL;
    if (ok && p->top_k > 0)
        ok = add_to_chain(s->chain, llama_sampler_init_top_k(p->top_k));
    if (ok && p->top_p < 1.0f)
        ok = add_to_chain(s->chain, llama_sampler_init_top_p(p->top_p, 1));
    if (ok && p->min_p > 0.0f)
        ok = add_to_chain(s->chain, llama_sampler_init_min_p(p->min_p, 1));
    if (ok)
        ok = add_to_chain(s->chain, llama_sampler_init_temp(p->temperature));
    return ok && add_to_chain(s->chain, llama_sampler_init_dist(seed));
}

static uint32_t count_eog(const cairn__sampler *s)
{
    uint32_t n = 0;
    for (uint32_t t = 0; s->vocab && t < s->n_vocab; t++)
        n += llama_vocab_is_eog(s->vocab, (llama_token)t);
    return n;
}

/* The caller's biases, the model's own suppressed tokens, and the banned ones. */
static bool collect_biases(cairn__sampler *s, const cairn__sampling *p)
{
    int32_t            n_suppress = 0;
    const llama_token *suppress = s->vocab ? llama_vocab_get_suppress_tokens(s->vocab, &n_suppress) : NULL;
    size_t             n_max = (size_t)p->n_logit_bias + (size_t)n_suppress + (p->ban_eog ? count_eog(s) : 0);
    if (n_max == 0)
        return true;
    s->biases = malloc(n_max * sizeof *s->biases);
    if (!s->biases)
        return false;
    for (uint32_t i = 0; i < p->n_logit_bias; i++)
        if (p->logit_bias[i].token >= 0 && (uint32_t)p->logit_bias[i].token < s->n_vocab)
            s->biases[s->n_biases++] = p->logit_bias[i];
    for (int32_t i = 0; i < n_suppress; i++)
        if (suppress[i] >= 0 && (uint32_t)suppress[i] < s->n_vocab)
            s->biases[s->n_biases++] = (cairn__logit_bias){suppress[i], -INFINITY};
    for (uint32_t t = 0; p->ban_eog && s->vocab && t < s->n_vocab; t++)
        if (llama_vocab_is_eog(s->vocab, (llama_token)t))
            s->biases[s->n_biases++] = (cairn__logit_bias){(int32_t)t, -INFINITY};
    return true;
}

static cairn_status build_grammar(cairn__sampler *s, const cairn__sampling *p)
{
    if (!p->grammar || !p->grammar[0])
        return CAIRN_OK;
    if (!s->vocab)
        return CAIRN_ENOTSUP;
    s->grammar = cairn__guard_grammar(s->vocab, p->grammar, p->grammar_lazy, (const char **)p->trigger_patterns,
                                      p->n_trigger_patterns, p->trigger_tokens, p->n_trigger_tokens);
    s->waiting = p->grammar_lazy;
    s->eog = llama_vocab_eos(s->vocab);
    return s->grammar ? CAIRN_OK : CAIRN_EINVAL;
}

static bool grammar_allows(cairn__sampler *s, int32_t token)
{
    llama_token_data       one = {token, 1.0f, 0.0f};
    llama_token_data_array array = {&one, 1, -1, false};
    return cairn__guard_apply(s->grammar, &array) && one.logit > -INFINITY;
}

/* Grammars of chat formats begin with what the template put at the prompt's end. */
static bool accept_prompt(cairn__sampler *s, const cairn__sampling *p, const int32_t *prompt, uint32_t n_prompt)
{
    if (p->grammar_lazy || p->n_grammar_prompt > n_prompt)
        return p->grammar_lazy;
    for (uint32_t i = n_prompt - p->n_grammar_prompt; i < n_prompt; i++)
        /* Asked first: an end-of-generation token in the wrong place ends the process. */
        if (!grammar_allows(s, prompt[i]) || !cairn__guard_accept(s->grammar, prompt[i]))
            return false;
    return true;
}

static void remember(cairn__sampler *s, int32_t token)
{
    s->recent[s->n_recent++ % REPEAT_WINDOW] = token;
}

cairn_status cairn__sampler_create(const cairn__runtime *rt, const cairn__sampling *params, const int32_t *prompt,
                                   uint32_t n_prompt, cairn__sampler **ret_sampler)
{
    cairn__sampler *s = calloc(1, sizeof *s);
    if (!s)
        return CAIRN_ENOMEM;
    s->vocab = rt->vocab;
    s->n_vocab = rt->n_vocab;
    s->presence = params->presence_penalty;
    s->frequency = params->frequency_penalty;
    s->repeat = params->repeat_penalty > 0.0f ? params->repeat_penalty : 1.0f;
    s->greedy = !(params->temperature >= TEMPERATURE_MIN);
    s->candidates = malloc(s->n_vocab * sizeof *s->candidates);
    bool ok = s->candidates && collect_biases(s, params);
    if (ok && (s->presence != 0.0f || s->frequency != 0.0f)) {
        s->counts = calloc(s->n_vocab, sizeof *s->counts);
        s->distinct = malloc(s->n_vocab * sizeof *s->distinct);
        ok = s->counts && s->distinct;
    }
    if (ok && !s->greedy)
        ok = build_chain(s, params);
    cairn_status status = ok ? build_grammar(s, params) : CAIRN_ENOMEM;
    if (status) {
        cairn__sampler_destroy(s);
        return status;
    }
    if (s->grammar && !accept_prompt(s, params, prompt, n_prompt)) {
        cairn__sampler_destroy(s);
        return CAIRN_EINVAL;
    }
    for (uint32_t i = n_prompt > REPEAT_WINDOW ? n_prompt - REPEAT_WINDOW : 0; i < n_prompt; i++)
        remember(s, prompt[i]);
    *ret_sampler = s;
    return CAIRN_OK;
}

void cairn__sampler_destroy(cairn__sampler *s)
{
    if (!s)
        return;
    if (s->chain)
        llama_sampler_free(s->chain);
    if (s->grammar)
        llama_sampler_free(s->grammar);
    free(s->biases);
    free(s->candidates);
    free(s->counts);
    free(s->distinct);
    free(s);
}

/* The recent tokens once each: a token that stands twice in the window is not
 * punished twice. */
static void apply_repeat(cairn__sampler *s)
{
    uint32_t n = s->n_recent < REPEAT_WINDOW ? s->n_recent : REPEAT_WINDOW;
    for (uint32_t i = 0; i < n; i++) {
        bool seen = s->recent[i] < 0 || (uint32_t)s->recent[i] >= s->n_vocab;
        for (uint32_t j = 0; j < i && !seen; j++)
            seen = s->recent[j] == s->recent[i];
        if (seen)
            continue;
        float *logit = &s->candidates[s->recent[i]].logit;
        *logit = *logit > 0.0f ? *logit / s->repeat : *logit * s->repeat;
    }
}

static void fill_candidates(cairn__sampler *s, const float *logits)
{
    for (uint32_t i = 0; i < s->n_vocab; i++)
        s->candidates[i] = (llama_token_data){(llama_token)i, logits[i], 0.0f};
    for (uint32_t i = 0; i < s->n_biases; i++)
        s->candidates[s->biases[i].token].logit += s->biases[i].bias;
    if (s->repeat != 1.0f)
        apply_repeat(s);
    for (uint32_t i = 0; i < s->n_distinct; i++) {
        int32_t token = s->distinct[i];
        s->candidates[token].logit -= (float)s->counts[token] * s->frequency + s->presence;
    }
}

static int32_t best_of(const llama_token_data *data, size_t n)
{
    size_t best = 0;
    for (size_t i = 1; i < n; i++)
        if (data[i].logit > data[best].logit)
            best = i;
    return n > 0 && data[best].logit > -INFINITY ? data[best].id : -1;
}

static int32_t choose(cairn__sampler *s)
{
    int32_t best = best_of(s->candidates, s->n_vocab);
    if (s->greedy || best < 0)
        return best;
    llama_token_data_array array = {s->candidates, s->n_vocab, -1, false};
    if (!cairn__guard_apply(s->chain, &array) || array.selected < 0 || (size_t)array.selected >= array.size)
        return -1;
    const llama_token_data *chosen = &array.data[array.selected];
    return chosen->logit > -INFINITY ? chosen->id : -1;
}

static int32_t choose_under_grammar(cairn__sampler *s, const float *logits)
{
    fill_candidates(s, logits);
    llama_token_data_array array = {s->candidates, s->n_vocab, -1, false};
    return cairn__guard_apply(s->grammar, &array) ? choose(s) : -1;
}

static void drop_grammar(cairn__sampler *s)
{
    llama_sampler_free(s->grammar);
    s->grammar = NULL;
}

/* A lazy grammar may fail to swallow the text that triggered it, and throws; the
 * answer then goes on as free text, which its reader must be ready for anyway. */
static void accept_in_grammar(cairn__sampler *s, int32_t token)
{
    char piece[256];
    if (s->waiting) {
        int32_t n = llama_token_to_piece(s->vocab, token, piece, sizeof piece, 0, true);
        s->waiting_text += n > 0 ? (size_t)n : 0;
        if (s->waiting_text > LAZY_TEXT_MAX) {
            drop_grammar(s);
            return;
        }
    }
    if (!cairn__guard_accept(s->grammar, token))
        drop_grammar(s);
    else if (s->waiting && s->eog >= 0 && !grammar_allows(s, s->eog))
        s->waiting = false; /* it refuses something, so it is awake */
}

int32_t cairn__sampler_pick(cairn__sampler *s, const float *logits)
{
    fill_candidates(s, logits);
    int32_t token = choose(s);
    if (token >= 0 && s->grammar && !grammar_allows(s, token))
        token = choose_under_grammar(s, logits);
    if (token < 0)
        return -1;
    remember(s, token);
    if (s->counts && s->counts[token]++ == 0)
        s->distinct[s->n_distinct++] = token;
    if (s->grammar)
        accept_in_grammar(s, token);
    return token;
}
