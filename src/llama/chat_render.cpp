/* chat_render.cpp - from a request to a prompt, a grammar and a parser.
 *
 * The prompt always shows the client's tools as they were sent, in their order:
 * same tools, same bytes. The grammar is made from the part of their schemas
 * that a grammar can express. Where the two differ, `common` is asked twice: once
 * for the prompt, with the choice of tools set to none (no template's text depends
 * on it), and once for the grammar and parser. When a grammar still can't be had,
 * single schemas, then the grammar, are given up: never the request. */
#include "llama/chat_internal.h"

#include "json-schema-to-grammar.h"

namespace cairn
{

static bool is_number_char(char c)
{
    return (c >= '0' && c <= '9') || c == '-' || c == '+' || c == '.' || c == 'e' || c == 'E';
}

/* Size of the quote that ends at text[end), as it is or escaped once; 0: none. */
static size_t quote_before(const std::string &text, size_t end)
{
    if (end == 0 || text[end - 1] != '"')
        return 0;
    return end > 1 && text[end - 2] == '\\' ? 2 : 1;
}

std::string take_marks_out(const std::string &mark, std::string text)
{
    std::string out;
    size_t      from = 0, at;
    while (!mark.empty() && (at = text.find(mark, from)) != std::string::npos) {
        size_t digits = at + mark.size(), end = digits;
        while (end < text.size() && is_number_char(text[end]))
            end++;
        size_t quote  = quote_before(text, at);
        bool   closed = quote && quote <= at - from && text.compare(end, quote, text, at - quote, quote) == 0;
        if (!closed)
            quote = 0;
        out.append(text, from, at - quote - from);
        out.append(text, digits, end - digits);
        from = end + quote;
    }
    return out + text.substr(from);
}

static bool wants_calls(const common_chat_templates_inputs &inputs)
{
    return !inputs.tools.empty() && inputs.tool_choice != COMMON_CHAT_TOOL_CHOICE_NONE;
}

static void read_tool_choice(chat_request &request, const common_json &body)
{
    if (!body.contains("tool_choice") || body.at("tool_choice").is_null())
        return;
    const common_json &choice = body.at("tool_choice");
    if (choice.is_string()) {
        request.inputs.tool_choice = common_chat_tool_choice_parse_oaicompat(choice.get<std::string>());
        return;
    }
    request.forced_tool = choice.at("function").at("name").get<std::string>();
    request.inputs.tool_choice = COMMON_CHAT_TOOL_CHOICE_REQUIRED;
    for (const auto &tool : request.inputs.tools)
        if (tool.name == request.forced_tool)
            return;
    throw bad_request("tool_choice: no tool has the name that it asks for");
}

static void read_response_format(chat_request &request, const common_json &body)
{
    if (!body.contains("response_format") || !body.at("response_format").is_object())
        return;
    const common_json &format = body.at("response_format");
    std::string        type   = format.value("type", "text");
    if (type == "text")
        return;
    common_json schema = common_json::object();
    if (type == "json_schema")
        schema = format.at("json_schema").at("schema");
    if (schema.empty())
        schema["type"] = "object";
    request.inputs.json_schema = take_marks_out(request.number_mark, schema.dump());
    request.has_schema         = true;
}

static void read_template_arguments(chat_request &request, const common_json &body)
{
    auto &inputs = request.inputs;
    if (body.contains("chat_template_kwargs") && body.at("chat_template_kwargs").is_object())
        for (const auto &[key, value] : body.at("chat_template_kwargs").items())
            inputs.chat_template_kwargs[key] = take_marks_out(request.number_mark, value.dump());
    auto thinking = inputs.chat_template_kwargs.find("enable_thinking");
    if (thinking != inputs.chat_template_kwargs.end())
        inputs.enable_thinking = thinking->second != "false";
    if (!body.contains("reasoning_effort") || !body.at("reasoning_effort").is_string())
        return;
    if (body.at("reasoning_effort").get<std::string>() == "none")
        inputs.enable_thinking = false;
    else
        inputs.chat_template_kwargs["reasoning_effort"] = body.at("reasoning_effort").dump();
}

chat_request chat_read_request(const cairn__chat &chat, const std::string &request_json)
{
    chat_request request;
    common_json  body   = common_json::parse(request_json);
    auto        &inputs = request.inputs;
    request.number_mark = body.value("number_mark", "");
    inputs.messages     = common_chat_msgs_parse_oaicompat(body.at("messages"));
    if (body.contains("tools"))
        inputs.tools = common_chat_tools_parse_oaicompat(body.at("tools"));
    inputs.reasoning_format    = COMMON_REASONING_FORMAT_DEEPSEEK;
    inputs.parallel_tool_calls = chat.template_has_parallel || !chat.template_has_tools;
    if (body.contains("parallel_tool_calls") && body.at("parallel_tool_calls").is_boolean())
        inputs.parallel_tool_calls = body.at("parallel_tool_calls").get<bool>();
    read_tool_choice(request, body);
    read_response_format(request, body);
    read_template_arguments(request, body);
    return request;
}

/* The tools that the grammar knows, with expressible schemas. level 1: as much of
 * them as possible; 2: schemas that don't compile alone become "any object";
 * 3: all of them do. */
static std::vector<common_chat_tool> grammar_tools(const cairn__chat &chat, const chat_request &request, int level)
{
    std::vector<common_chat_tool> tools;
    for (const auto &tool : request.inputs.tools) {
        if (!request.forced_tool.empty() && tool.name != request.forced_tool)
            continue;
        common_chat_tool copy   = tool;
        common_json      schema = schema_expressible(common_json::parse(take_marks_out(request.number_mark, tool.parameters)));
        if (level == 3 || (level == 2 && !schema_compiles(chat, schema)))
            schema = common_json{{"type", "object"}};
        copy.parameters = schema.dump();
        tools.push_back(copy);
    }
    return tools;
}

static bool same_tools(const std::vector<common_chat_tool> &a, const std::vector<common_chat_tool> &b)
{
    if (a.size() != b.size())
        return false;
    for (size_t i = 0; i < a.size(); i++)
        if (a[i].parameters != b[i].parameters)
            return false;
    return true;
}

/* The prompt text alone. Errors of the template itself surface here. */
static common_chat_params render_prompt(const cairn__chat &chat, common_chat_templates_inputs inputs)
{
    inputs.tool_choice = COMMON_CHAT_TOOL_CHOICE_NONE;
    inputs.json_schema.clear();
    if (!chat.template_has_tools)
        inputs.tools.clear();
    return common_chat_templates_apply(chat.templates.get(), inputs);
}

std::string chat_render_text(const cairn__chat &chat, chat_request request)
{
    chat_generic_rewrite(chat, request.inputs);
    return take_marks_out(request.number_mark, render_prompt(chat, request.inputs).prompt);
}

static common_chat_params render_whole(const cairn__chat &chat, const common_chat_templates_inputs &inputs)
{
    if (chat.template_has_tools || !wants_calls(inputs))
        return common_chat_templates_apply(chat.templates.get(), inputs);
    return chat_generic_format(inputs);
}

/* A grammar of `common` that holds from the start describes the answer with the
 * generation prompt before it. */
static std::string prefix_of(const common_chat_params &params)
{
    return params.grammar.empty() || params.grammar_lazy ? "" : params.generation_prompt;
}

/* Grammar and parser for one level of leniency; false when it can't be had. */
static bool try_format(const cairn__chat &chat, const chat_request &request, int level, chat_rendered &ret_rendered)
{
    try {
        common_chat_templates_inputs inputs = request.inputs;
        inputs.tools                        = grammar_tools(chat, request, level);
        ret_rendered.params                 = render_whole(chat, inputs);
        ret_rendered.grammar_prefix         = prefix_of(ret_rendered.params);
        return grammar_compiles(chat, ret_rendered.params, ret_rendered.grammar_prefix);
    } catch (const std::exception &) {
        return false;
    }
}

static chat_rendered render_with_tools(const cairn__chat &chat, const chat_request &request)
{
    chat_rendered out;
    bool same = chat.template_has_tools && same_tools(grammar_tools(chat, request, 1), request.inputs.tools);
    bool done = same && try_format(chat, request, 1, out);
    if (!done) {
        std::string prompt = render_prompt(chat, request.inputs).prompt;
        for (int level = 1; level <= 3 && !done; level++)
            done = try_format(chat, request, level, out);
        if (!done) { /* calls will be read as text: better than no answer */
            out        = chat_rendered();
            out.params = render_prompt(chat, request.inputs);
        }
        out.params.prompt = prompt;
    }
    out.needs_parser = !out.params.parser.empty();
    return out;
}

/* True when `common` has a grammar for this format with this schema. */
static bool try_schema(const cairn__chat &chat, const common_chat_templates_inputs &inputs, chat_rendered &ret_rendered)
{
    try {
        ret_rendered.params         = common_chat_templates_apply(chat.templates.get(), inputs);
        ret_rendered.grammar_prefix = prefix_of(ret_rendered.params);
        return !ret_rendered.params.grammar.empty() &&
               grammar_compiles(chat, ret_rendered.params, ret_rendered.grammar_prefix);
    } catch (const std::exception &) {
        return false;
    }
}

/* response_format without tools. The format is a promise about the answer, so
 * what can't be kept is refused, not dropped. */
static chat_rendered render_with_schema(const cairn__chat &chat, const chat_request &request)
{
    common_chat_templates_inputs inputs = request.inputs;
    chat_rendered                out;
    inputs.json_schema = schema_expressible(common_json::parse(request.inputs.json_schema)).dump();
    if (inputs.json_schema == "{}")
        inputs.json_schema = "{\"type\":\"object\"}";
    if (try_schema(chat, inputs, out)) {
        out.needs_parser = !out.params.parser.empty();
        return out;
    }
    out        = chat_rendered();
    out.params = render_prompt(chat, request.inputs);
    try {
        out.params.grammar      = json_schema_to_grammar(common_json::parse(inputs.json_schema), true);
        out.params.grammar_lazy = false;
    } catch (const std::exception &) {
        throw bad_request("response_format: this JSON schema can't be turned into a grammar");
    }
    if (!grammar_compiles(chat, out.params, ""))
        throw bad_request("response_format: this JSON schema is too complex for a grammar");
    return out;
}

static chat_rendered render_plain(const cairn__chat &chat, const chat_request &request)
{
    chat_rendered out;
    out.params = render_prompt(chat, request.inputs);
    out.params.grammar.clear();
    auto format      = out.params.format;
    bool plain       = format == COMMON_CHAT_FORMAT_CONTENT_ONLY || format == COMMON_CHAT_FORMAT_PEG_SIMPLE ||
                 format == COMMON_CHAT_FORMAT_PEG_NATIVE;
    out.needs_parser = !out.params.parser.empty() && (out.params.supports_thinking || !plain);
    return out;
}

static chat_rendered render_once(const cairn__chat &chat, chat_request request)
{
    chat_generic_rewrite(chat, request.inputs);
    if (wants_calls(request.inputs)) {
        request.inputs.json_schema.clear(); /* one grammar can't hold both promises: the calls win */
        return render_with_tools(chat, request);
    }
    return request.has_schema ? render_with_schema(chat, request) : render_plain(chat, request);
}

/* Strict templates raise an error for a system message in the middle or two user
 * messages in a row, which agents send all the time. Only then is the order
 * repaired: where the template takes it as it is, it is shown as it is. */
chat_rendered chat_render(const cairn__chat &chat, const chat_request &request)
{
    try {
        return render_once(chat, request);
    } catch (const bad_request &) {
        throw;
    } catch (const std::exception &) {
        chat_request repaired = request;
        chat_repair(repaired.inputs.messages);
        try {
            return render_once(chat, repaired);
        } catch (const std::exception &) {
        }
        throw; /* the first error: it speaks of what the client sent */
    }
}

} // namespace cairn
