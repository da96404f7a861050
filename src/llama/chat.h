/* chat.h - chat templates, tool-call parsing and JSON schema grammars of
 * llama.cpp's `common`, behind extern "C": JSON text in and out. Every C++
 * exception ends at this border as a status and a text. [any thread, one at a
 * time per cairn__chat] */
#ifndef CAIRN_LLAMA_CHAT_H
#define CAIRN_LLAMA_CHAT_H

#include "llama/runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cairn__chat cairn__chat;

/* The model's own template; template_text overrides it when not NULL.
 * CAIRN_ENOTSUP: the model has none. */
CAIRN_MUST_USE cairn_status cairn__chat_create(const cairn__runtime *rt, const char *template_text,
                                               cairn__chat **ret_chat, cairn_error *error);
void cairn__chat_destroy(cairn__chat *chat);

/* A rendered prompt and what is needed to read the answer. All strings owned by
 * the struct; free with cairn__chat_prompt_done(). */
typedef struct cairn__chat_prompt {
    char       *prompt;
    char       *grammar; /* NULL: none */
    char       *grammar_prefix; /* the end of the prompt that the grammar describes too; NULL: none */
    bool        grammar_lazy;
    char      **trigger_patterns;
    uint32_t    n_trigger_patterns;
    int32_t    *trigger_tokens;
    uint32_t    n_trigger_tokens;
    char      **stops; /* additional stop strings of the format */
    uint32_t    n_stops;
    void       *parser; /* opaque, for cairn__chat_parse() */
} cairn__chat_prompt;

/* request_json: an object with `messages` and optionally `tools`,
 * `tool_choice`, `parallel_tool_calls`, `response_format`,
 * `chat_template_kwargs`, `reasoning_effort`, as in the chat completions API,
 * already checked for size and nesting. Strings that begin with its `number_mark`
 * stand for numbers: templates and the libraries behind them lose digits (2.0
 * becomes 2, 2^64-1 becomes -1), so they are shown the string, and the mark and
 * its quotes are taken out of the rendered prompt. CAIRN_EINVAL with a text for
 * the client. */
CAIRN_MUST_USE cairn_status cairn__chat_render(cairn__chat *chat, const char *request_json,
                                               cairn__chat_prompt *ret_prompt, cairn_error *error);
void cairn__chat_prompt_done(cairn__chat_prompt *prompt);

/* Offsets in a prompt, as cairn__chat_render() made it, up to which it would be the
 * same with less behind: in `fork` without the generation prompt, and with the last
 * user message as the last one; in `end` with the system prompt and tools alone, up
 * to the last user message, and with earlier user messages as the last one, the
 * latest first. 0: unknown. */
#define CAIRN__CHAT_PARTS 6u
typedef struct cairn__chat_parts {
    size_t   fork[2], end[CAIRN__CHAT_PARTS];
    uint32_t n_fork, n_end;
} cairn__chat_parts;
/* Errors: as render, of which there should be none after it succeeded. Costs a
 * rendering each. */
CAIRN_MUST_USE cairn_status cairn__chat_find_parts(cairn__chat *chat, const char *request_json, const char *prompt,
                                                   cairn__chat_parts *ret_parts, cairn_error *error);

/* The assistant message in OpenAI form, from the text generated so far:
 * {"role":"assistant","content":...,"reasoning_content":...,"tool_calls":[...]}.
 * partial: the text may end anywhere. *ret_json is malloc()ed. */
CAIRN_MUST_USE cairn_status cairn__chat_parse(const cairn__chat_prompt *prompt, const char *text, size_t text_size,
                                              bool partial, char **ret_json, cairn_error *error);

#ifdef __cplusplus
}
#endif
#endif
