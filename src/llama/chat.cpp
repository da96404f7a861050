/* chat.cpp - the border between C and llama.cpp's `common`.
 *
 * Every function catches everything: an exception becomes a status and a text.
 * Nothing of the conversation goes to a log, so `common`'s own logger, which
 * prints answers that it could not parse, is silenced. */
#include "llama/chat_internal.h"

#include "log.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <llama.h>
#include <new>

namespace
{

struct parser_state {
    common_chat_parser_params params;
};

void set_error(cairn_error *error, const char *text)
{
    if (error)
        snprintf(error->text, sizeof error->text, "%s", text);
}

/* The template's own words out of the interpreter's report, which quotes source. */
const char *last_words(const char *what)
{
    static const char  error[] = "Error: ", jinja[] = "Jinja Exception: ";
    const char *words = what;
    for (const char *at = what; (at = strstr(at, error)); at += sizeof error - 1)
        words = at + sizeof error - 1;
    return strncmp(words, jinja, sizeof jinja - 1) == 0 ? words + sizeof jinja - 1 : words;
}

/* Runs fn; whatever it throws is a status. */
template <typename F> cairn_status guarded(cairn_error *error, cairn_status on_exception, F fn)
{
    try {
        fn();
        return CAIRN_OK;
    } catch (const cairn::bad_request &e) {
        set_error(error, e.what());
        return CAIRN_EINVAL;
    } catch (const std::bad_alloc &) {
        set_error(error, "out of memory");
        return CAIRN_ENOMEM;
    } catch (const std::exception &e) {
        set_error(error, last_words(e.what()));
        return on_exception;
    } catch (...) {
        set_error(error, "unknown error in the chat template");
        return on_exception;
    }
}

char *copy_text(const std::string &text)
{
    char *copy = (char *)malloc(text.size() + 1);
    if (!copy)
        throw std::bad_alloc();
    memcpy(copy, text.c_str(), text.size() + 1);
    return copy;
}

char **copy_list(const std::vector<std::string> &list, uint32_t *ret_n)
{
    *ret_n = 0;
    if (list.empty())
        return nullptr;
    char **copy = (char **)calloc(list.size(), sizeof *copy);
    if (!copy)
        throw std::bad_alloc();
    for (const auto &text : list) {
        copy[*ret_n] = (char *)malloc(text.size() + 1);
        if (!copy[*ret_n]) {
            while (*ret_n)
                free(copy[--*ret_n]);
            free(copy);
            throw std::bad_alloc();
        }
        memcpy(copy[(*ret_n)++], text.c_str(), text.size() + 1);
    }
    return copy;
}

/* The C side counts to the NUL; one that a client smuggled in through the
 * arguments of a call must not end the prompt early. */
std::string without_nul(std::string text)
{
    for (size_t at = 0; (at = text.find('\0', at)) != std::string::npos; at += 3)
        text.replace(at, 1, "\xEF\xBF\xBD");
    return text;
}

void copy_grammar(const cairn::chat_rendered &rendered, cairn__chat_prompt *out)
{
    const common_chat_params &params = rendered.params;
    if (params.grammar.empty())
        return;
    std::vector<std::string> patterns;
    std::vector<llama_token> tokens;
    cairn::chat_triggers(params, patterns, tokens);
    out->grammar          = copy_text(params.grammar);
    out->grammar_prefix   = rendered.grammar_prefix.empty() ? nullptr : copy_text(rendered.grammar_prefix);
    out->grammar_lazy     = params.grammar_lazy;
    out->trigger_patterns = copy_list(patterns, &out->n_trigger_patterns);
    if (tokens.empty())
        return;
    out->trigger_tokens = (int32_t *)malloc(tokens.size() * sizeof(int32_t));
    if (!out->trigger_tokens)
        throw std::bad_alloc();
    for (llama_token token : tokens)
        out->trigger_tokens[out->n_trigger_tokens++] = token;
}

void copy_parser(const common_chat_params &params, cairn__chat_prompt *out)
{
    auto *state                    = new parser_state{common_chat_parser_params(params)};
    out->parser                    = state;
    state->params.reasoning_format = COMMON_REASONING_FORMAT_DEEPSEEK;
    state->params.parser.load(params.parser);
}

} // namespace

extern "C" cairn_status cairn__chat_create(const cairn__runtime *rt, const char *template_text, cairn__chat **ret_chat,
                                           cairn_error *error)
{
    const llama_model *model = cairn__runtime_model(rt);
    common_log_set_verbosity_thold(-1);
    if (!template_text && !llama_model_chat_template(model, nullptr)) {
        set_error(error, "the model has no chat template; give one with --chat-template-file");
        return CAIRN_ENOTSUP;
    }
    return guarded(error, CAIRN_EINVAL, [&] {
        auto chat       = std::make_unique<cairn__chat>();
        chat->vocab     = llama_model_get_vocab(model);
        chat->templates = common_chat_templates_init(model, template_text ? template_text : "");
        auto caps       = common_chat_templates_get_caps(chat->templates.get());
        chat->template_has_tools    = caps["supports_tools"] && caps["supports_tool_calls"];
        chat->template_has_calls    = caps["supports_tool_calls"];
        chat->template_has_parallel = caps["supports_parallel_tool_calls"];
        *ret_chat                   = chat.release();
    });
}

extern "C" void cairn__chat_destroy(cairn__chat *chat)
{
    delete chat;
}

extern "C" cairn_status cairn__chat_render(cairn__chat *chat, const char *request_json, cairn__chat_prompt *ret_prompt,
                                           cairn_error *error)
{
    cairn__chat_prompt out    = {};
    cairn_status       status = guarded(error, CAIRN_EINVAL, [&] {
        auto request  = cairn::chat_read_request(*chat, request_json);
        auto rendered = cairn::chat_render(*chat, request);
        out.prompt = copy_text(cairn::take_marks_out(request.number_mark, without_nul(rendered.params.prompt)));
        copy_grammar(rendered, &out);
        out.stops = copy_list(rendered.params.additional_stops, &out.n_stops);
        if (rendered.needs_parser)
            copy_parser(rendered.params, &out);
    });
    if (status == CAIRN_OK)
        *ret_prompt = out;
    else
        cairn__chat_prompt_done(&out);
    return status;
}

extern "C" cairn_status cairn__chat_find_parts(cairn__chat *chat, const char *request_json, const char *prompt,
                                               cairn__chat_parts *ret_parts, cairn_error *error)
{
    *ret_parts = cairn__chat_parts{};
    return guarded(error, CAIRN_EINVAL, [&] {
        cairn::chat_find_parts(*chat, cairn::chat_read_request(*chat, request_json), prompt, ret_parts);
    });
}

extern "C" void cairn__chat_prompt_done(cairn__chat_prompt *prompt)
{
    for (uint32_t i = 0; i < prompt->n_trigger_patterns; i++)
        free(prompt->trigger_patterns[i]);
    for (uint32_t i = 0; i < prompt->n_stops; i++)
        free(prompt->stops[i]);
    free(prompt->prompt);
    free(prompt->grammar);
    free(prompt->grammar_prefix);
    free(prompt->trigger_patterns);
    free(prompt->trigger_tokens);
    free(prompt->stops);
    delete (parser_state *)prompt->parser;
    *prompt = cairn__chat_prompt{};
}

extern "C" cairn_status cairn__chat_parse(const cairn__chat_prompt *prompt, const char *text, size_t text_size,
                                          bool partial, char **ret_json, cairn_error *error)
{
    return guarded(error, CAIRN_ERUNTIME, [&] {
        common_chat_msg msg;
        msg.role = "assistant";
        if (prompt->parser)
            msg = common_chat_parse(std::string(text, text_size), partial, ((parser_state *)prompt->parser)->params);
        else
            msg.content = std::string(text, text_size);
        *ret_json = copy_text(msg.to_json_oaicompat().dump());
    });
}
