/* request_chat.c - POST /v1/chat/completions: messages and tools through the
 * model's chat template to tokens.
 *
 * Control tokens: the rendered text is tokenized whole with control tokens
 * recognised, as llama-server does, so text of a control token inside a message
 * becomes one. Keys are made from token ids, so such a prompt shares pages only
 * with prompts of the same ids. docs/operate.md says so to the operator. */
#include "server/fields.h"
#include "server/request.h"

#include <string.h>

static const json_t *chosen_tool(const json_t *choice)
{
    return json_object_get(json_object_get(choice, "function"), "name");
}

static bool has_tool(const json_t *tools, const json_t *name)
{
    size_t  i;
    json_t *tool;
    json_array_foreach((json_t *)tools, i, tool)
        if (json_equal(json_object_get(json_object_get(tool, "function"), "name"), name))
            return true;
    return false;
}

/* "auto", "none", "required", or {"type":"function","function":{"name":...}}; what
 * must be called must be there. tools: as the template sees them. */
static bool check_tool_choice(const json_t *choice, const json_t *tools, cairn__refusal *refusal)
{
    const char   *text = json_string_value(choice);
    const json_t *name = chosen_tool(choice);
    bool          required = text && !strcmp(text, "required");
    if (!choice || (text && (!strcmp(text, "auto") || !strcmp(text, "none"))))
        return true;
    if (!required && !cairn__json_is_text(name))
        return cairn__refuse(refusal, 400, "invalid_value", "tool_choice",
                             "'tool_choice' must be \"auto\", \"none\", \"required\" or "
                             "{\"type\": \"function\", \"function\": {\"name\": ...}}");
    if (json_array_size(tools) == 0)
        return cairn__refuse(refusal, 400, "invalid_value", "tool_choice",
                             "'tool_choice' asks for a call, but there is no function in 'tools'");
    return required || has_tool(tools, name) ||
           cairn__refuse(refusal, 400, "invalid_value", "tool_choice",
                         "'tool_choice' asks for the tool '%.100s', which is not in 'tools'", json_string_value(name));
}

/* Arguments for the template that would replace what the request says elsewhere,
 * or what keeps its output a prompt of this model. */
static bool check_template_arguments(const json_t *arguments, cairn__refusal *refusal)
{
    static const char *const reserved[] = {"messages", "tools", "bos_token", "eos_token", "add_generation_prompt"};
    for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++)
        if (json_object_get(arguments, reserved[i]))
            return cairn__refuse(refusal, 400, "invalid_value", "chat_template_kwargs",
                                 "'chat_template_kwargs' can't set '%s'", reserved[i]);
    return true;
}

static bool check_response_format(const json_t *body, const json_t **ret_format, cairn__refusal *refusal)
{
    const json_t *format = NULL;
    if (!cairn__field_object(body, "response_format", &format, refusal) || !format)
        return !refusal->http_status;
    const char *type = json_string_value(json_object_get(format, "type"));
    if (!type || (strcmp(type, "text") && strcmp(type, "json_object") && strcmp(type, "json_schema")))
        return cairn__refuse(refusal, 400, "invalid_value", "response_format",
                             "'response_format.type' must be \"text\", \"json_object\" or \"json_schema\"");
    const json_t *schema = json_object_get(json_object_get(format, "json_schema"), "schema");
    if (strcmp(type, "json_schema") == 0 && !json_is_object(schema))
        return cairn__refuse(refusal, 400, "invalid_type", "response_format",
                             "'response_format.json_schema.schema' must be a JSON schema (an object)");
    *ret_format = format;
    return true;
}

static bool set_copy(json_t *object, const char *key, const json_t *value)
{
    return !value || json_object_set(object, key, (json_t *)value) == 0;
}

/* What the template and the grammar depend on, and nothing else. */
static json_t *template_input(const json_t *body, cairn__api_request *request, cairn__refusal *refusal)
{
    const json_t *tools = NULL, *format = NULL, *kwargs = NULL;
    const char   *effort = NULL;
    const json_t *choice = cairn__field(body, "tool_choice");
    request->parallel_calls = true;
    if (!cairn__field_array(body, "tools", &tools, refusal) || !check_response_format(body, &format, refusal) ||
        !cairn__field_object(body, "chat_template_kwargs", &kwargs, refusal) ||
        !check_template_arguments(kwargs, refusal) ||
        !cairn__field_string(body, "reasoning_effort", &effort, refusal) ||
        !cairn__field_bool(body, "parallel_tool_calls", &request->parallel_calls, refusal))
        return NULL;
    json_t *messages = cairn__chat_messages(json_object_get(body, "messages"), refusal);
    json_t *list     = messages ? cairn__chat_tools(tools, refusal) : NULL;
    if (!list || !check_tool_choice(choice, list, refusal)) {
        json_decref(messages);
        json_decref(list);
        return NULL;
    }
    bool none      = json_is_string(choice) && strcmp(json_string_value(choice), "none") == 0;
    request->tools = json_array_size(list) > 0 && !none;
    json_t *input  = json_pack("{s:o,s:o}", "messages", messages, "tools", list);
    bool    ok     = input && set_copy(input, "tool_choice", json_array_size(list) ? choice : NULL) &&
              set_copy(input, "parallel_tool_calls", cairn__field(body, "parallel_tool_calls")) &&
              set_copy(input, "response_format", format) && set_copy(input, "chat_template_kwargs", kwargs) &&
              set_copy(input, "reasoning_effort", cairn__field(body, "reasoning_effort")) &&
              json_object_set_new(input, "number_mark", json_string(cairn__json_mark())) == 0;
    if (!ok) {
        cairn__refuse_memory(refusal);
        json_decref(input);
        return NULL;
    }
    return input;
}

static void use_prompt(cairn__api_request *request)
{
    const cairn__chat_prompt *p = &request->prompt;
    cairn__sampling          *s = &request->job.sampling;
    request->job.special_pieces = p->parser != NULL;
    s->grammar                  = p->grammar;
    s->grammar_lazy             = p->grammar_lazy;
    s->trigger_patterns         = (const char *const *)p->trigger_patterns;
    s->n_trigger_patterns       = p->n_trigger_patterns;
    s->trigger_tokens           = p->trigger_tokens;
    s->n_trigger_tokens         = p->n_trigger_tokens;
}

/* input: what the template gets, as text. */
static bool render(const cairn__api_request_env *env, const char *input, cairn__api_request *request, cairn__refusal *refusal)
{
    cairn_error  error  = {{0}};
    cairn_status status = cairn__chat_render(env->chat, input, &request->prompt, &error);
    if (status == CAIRN_ENOMEM)
        return cairn__refuse_memory(refusal);
    if (status != CAIRN_OK && strncmp(error.text, "response_format", 15) == 0)
        return cairn__refuse(refusal, 400, "invalid_value", "response_format", "%s", error.text);
    if (status != CAIRN_OK)
        return cairn__refuse(refusal, 400, "invalid_value", "messages", "the chat template refuses this conversation: %s",
                             error.text);
    use_prompt(request);
    return true;
}

static bool tokenize(const cairn__api_request_env *env, cairn__api_request *request, cairn__refusal *refusal)
{
    cairn_status status = cairn__tokenize(env->rt, request->prompt.prompt, strlen(request->prompt.prompt), true, true,
                                          &request->tokens, &request->job.n_tokens);
    if (status == CAIRN_ENOMEM)
        return cairn__refuse_memory(refusal);
    if (status != CAIRN_OK)
        return cairn__refuse(refusal, 400, "invalid_value", "messages", "the prompt can't be tokenized");
    request->job.tokens = request->tokens;
    return true;
}

/* How many of the prompt's last tokens make up the text that the grammar begins
 * with. Where the text does not end between two tokens the grammar can't be used:
 * calls are free text then, a promised format is refused. */
static bool place_grammar(const cairn__api_request_env *env, cairn__api_request *request, cairn__refusal *refusal)
{
    const char *prefix = request->prompt.grammar_prefix;
    size_t      want = prefix ? strlen(prefix) : 0, have = 0;
    uint32_t    n = 0;
    char        piece[256];
    while (have < want && n < request->job.n_tokens)
        have += cairn__token_piece(env->rt, request->tokens[request->job.n_tokens - ++n], true, piece, sizeof piece);
    request->job.sampling.n_grammar_prompt = n;
    if (have == want)
        return true;
    request->job.sampling.grammar = NULL;
    return request->tools || cairn__refuse(refusal, 400, "unsupported_format", "response_format",
                                           "'response_format' does not work with this model's template");
}

bool cairn__api_request_chat(const cairn__api_request_env *env, const json_t *body, cairn__api_request *request,
                         cairn__refusal *refusal)
{
    if (!env->chat)
        return cairn__refuse(refusal, 400, "no_chat_template", NULL, "%s; /v1/completions works without one",
                             env->chat_error);
    json_t *input = template_input(body, request, refusal);
    if (!input)
        return false;
    char *text = cairn__json_print_marked(input);
    bool  ok   = text ? render(env, text, request, refusal) && tokenize(env, request, refusal)
                      : cairn__refuse_memory(refusal);
    if (ok)
        cairn__api_request_marks(env, text, request);
    free(text);
    json_decref(input);
    return ok && place_grammar(env, request, refusal);
}
