/* chat_internal.h - shared by the C++ files behind chat.h: the chat object, one
 * request, and the steps of rendering. C++ exceptions may cross these functions;
 * they end in chat.cpp. */
#ifndef CAIRN_LLAMA_CHAT_INTERNAL_H
#define CAIRN_LLAMA_CHAT_INTERNAL_H

extern "C" {
#include "llama/chat.h"
}

#include "chat-peg-parser.h"
#include "chat.h"
#include "json.h"

#include <string>
#include <vector>

struct cairn__chat {
    common_chat_templates_ptr templates;
    const llama_vocab        *vocab;
    bool                      template_has_tools;    /* the template lists tools in the prompt */
    bool                      template_has_calls;    /* the template shows calls and their results */
    bool                      template_has_parallel; /* several calls in one turn */
};

namespace cairn
{

/* A request that the client can correct; the text is for the client. */
struct bad_request : std::runtime_error {
    using std::runtime_error::runtime_error;
};

/* What chat.h's request_json says, in `common`'s terms. */
struct chat_request {
    common_chat_templates_inputs inputs;
    std::string                  number_mark; /* see chat.h; "": none */
    std::string                  forced_tool; /* tool_choice names one function; "": none */
    bool                         has_schema = false;
};

/* The result of rendering, before it becomes a C struct. */
struct chat_rendered {
    common_chat_params params;
    bool               needs_parser = false;
    std::string        grammar_prefix; /* text at the prompt's end with which the grammar begins */
};

/* Text with every number mark, and the quotes around the number, taken out. */
std::string take_marks_out(const std::string &mark, std::string text);

chat_request  chat_read_request(const cairn__chat &chat, const std::string &request_json);
chat_rendered chat_render(const cairn__chat &chat, const chat_request &request);

/* The prompt's text alone, as the client's messages and tools make it. */
std::string chat_render_text(const cairn__chat &chat, chat_request request);
void        chat_find_parts(const cairn__chat &chat, const chat_request &request, const char *prompt,
                            cairn__chat_parts *ret_parts);

/* chat_generic.cpp: tools for templates that know none. Rewrites the messages
 * so that tools, calls and results become text that any template shows. */
void               chat_generic_rewrite(const cairn__chat &chat, common_chat_templates_inputs &inputs);
common_chat_params chat_generic_format(const common_chat_templates_inputs &inputs);

/* chat_repair.cpp: the same conversation in the order that strict templates want. */
void chat_repair(std::vector<common_chat_msg> &messages);

/* chat_schema.cpp: the part of a JSON schema that a grammar can express; what is
 * left out is checked by nobody, which is what most servers do for all of it. */
common_json schema_expressible(const common_json &schema);
/* True when llama.cpp accepts the grammar for this vocabulary, and the prefix under it. */
bool grammar_compiles(const cairn__chat &chat, const common_chat_params &params, const std::string &prefix);
bool schema_compiles(const cairn__chat &chat, const common_json &schema);

/* Trigger patterns and tokens as the sampler's lazy grammar takes them. */
void chat_triggers(const common_chat_params &params, std::vector<std::string> &ret_patterns,
                   std::vector<llama_token> &ret_tokens);

} // namespace cairn

#endif
