/* request_marks.c - where a conversation is likely to part from later ones, in
 * tokens: for models that can be restored only where a checkpoint was taken.
 *
 * The template tells offsets in the text. The text up to one is tokenized by
 * itself; as far as those are the prompt's own tokens, it is a mark. */
#include "server/request.h"

#include <stdlib.h>
#include <string.h>

static uint32_t position_of(const cairn__api_request_env *env, const cairn__api_request *request, size_t offset)
{
    int32_t *tokens = NULL;
    uint32_t n = 0, same = 0;
    if (offset == 0 ||
        cairn__tokenize(env->rt, request->prompt.prompt, offset, true, true, &tokens, &n) != CAIRN_OK)
        return 0;
    while (same < n && same < request->job.n_tokens && tokens[same] == request->tokens[same])
        same++;
    free(tokens);
    return same;
}

void cairn__api_request_marks(const cairn__api_request_env *env, const char *input, cairn__api_request *request)
{
    cairn__marks     *marks = &request->job.marks;
    cairn__chat_parts parts;
    cairn_error       error;
    if (!cairn__runtime_needs_checkpoints(env->rt) ||
        cairn__chat_find_parts(env->chat, input, request->prompt.prompt, &parts, &error) != CAIRN_OK)
        return;
    for (uint32_t i = 0; i < parts.n_fork; i++)
        marks->fork[marks->n_fork++] = position_of(env, request, parts.fork[i]);
    for (uint32_t i = 0; i < parts.n_end; i++)
        marks->end[marks->n_end++] = position_of(env, request, parts.end[i]);
}
