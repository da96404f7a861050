/* runtime_text.c - text to tokens and back. Reads the immutable vocabulary only. */
#include "llama/runtime_internal.h"

#include <stdlib.h>

cairn_status cairn__tokenize(const cairn__runtime *rt, const char *text, size_t text_size, bool add_special,
                             bool parse_special, int32_t **ret_tokens, uint32_t *ret_n_tokens)
{
    if (!rt->vocab)
        return CAIRN_ENOTSUP;
    if (text_size > INT32_MAX / 4)
        return CAIRN_EINVAL;
    /* A token has at least one byte of text, but for BOS, EOS and the space that
     * some vocabularies put in front. */
    int32_t  n_max = (int32_t)text_size + 4;
    int32_t *tokens = malloc((size_t)n_max * sizeof *tokens);
    if (!tokens)
        return CAIRN_ENOMEM;
    int32_t n = cairn__guard_tokenize(rt->vocab, text, (int32_t)text_size, tokens, n_max, add_special, parse_special);
    if (n < 0 && n != INT32_MIN) { /* byte tokens of a replaced character can be more */
        int32_t *more = realloc(tokens, (size_t)-n * sizeof *tokens);
        if (!more) {
            free(tokens);
            return CAIRN_ENOMEM;
        }
        tokens = more;
        n = cairn__guard_tokenize(rt->vocab, text, (int32_t)text_size, tokens, -n, add_special, parse_special);
    }
    if (n < 0) {
        free(tokens);
        return CAIRN_EINVAL;
    }
    *ret_tokens = tokens;
    *ret_n_tokens = (uint32_t)n;
    return CAIRN_OK;
}

size_t cairn__token_piece(const cairn__runtime *rt, int32_t token, bool special, char *buf, size_t buf_size)
{
    if (!rt->vocab || token < 0 || (uint32_t)token >= rt->n_vocab)
        return 0;
    int32_t n = llama_token_to_piece(rt->vocab, token, buf, (int32_t)buf_size, 0, special);
    return n > 0 ? (size_t)n : 0;
}

bool cairn__token_is_eog(const cairn__runtime *rt, int32_t token)
{
    return rt->vocab && token >= 0 && (uint32_t)token < rt->n_vocab && llama_vocab_is_eog(rt->vocab, token);
}
