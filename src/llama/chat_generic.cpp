/* chat_generic.cpp - tools for models whose template knows none.
 *
 * Without this such a template drops the tools, the calls and what they mean in
 * silence. Instead the tools are described in the system message - before the
 * client's own system text, whose end often carries a date, so that the long
 * tool list stays a shared prefix - and calls and results become plain text:
 *
 *   <tool_call>
 *   {"name": ..., "arguments": {...}}
 *   </tool_call>
 *
 * The answer is read back by a parser for the same form, under a grammar that
 * starts to hold when the model begins a call. */
#include "llama/chat_internal.h"

#include "json-schema-to-grammar.h"

namespace cairn
{

static const char CALL_OPEN[]  = "<tool_call>";
static const char CALL_CLOSE[] = "</tool_call>";

static std::string text_of(const common_chat_msg &msg)
{
    std::string text = msg.content;
    for (const auto &part : msg.content_parts)
        text += (text.empty() ? "" : "\n") + part.text;
    return text;
}

static std::string tool_line(const common_chat_tool &tool)
{
    common_json function = common_json::object();
    function["name"]        = tool.name;
    function["description"] = tool.description;
    function["parameters"]  = common_json::parse(tool.parameters);
    return function.dump();
}

static std::string tools_text(const std::vector<common_chat_tool> &tools)
{
    std::string text = "You can call tools. Each line between <tools> and </tools> describes one as JSON, with a "
                       "JSON schema of its arguments.\n<tools>\n";
    for (const auto &tool : tools)
        text += tool_line(tool) + "\n";
    return text + "</tools>\nTo call a tool, write\n" + CALL_OPEN + "\n{\"name\": NAME, \"arguments\": {...}}\n" +
           CALL_CLOSE + "\nand nothing after it. The result comes in the next message between <tool_response> and "
                        "</tool_response>.";
}

static void rewrite_calls(common_chat_msg &msg)
{
    std::string text = text_of(msg);
    for (const auto &call : msg.tool_calls) {
        common_json name = common_json::make(call.name);
        text += (text.empty() ? "" : "\n") + std::string(CALL_OPEN) + "\n{\"name\": " + name.dump() +
                ", \"arguments\": " + (call.arguments.empty() ? "{}" : call.arguments) + "}\n" + CALL_CLOSE;
    }
    msg.content = text;
    msg.content_parts.clear();
    msg.tool_calls.clear();
}

/* Results of one turn's calls go into one user message, in their order. */
static void rewrite_result(std::vector<common_chat_msg> &out, const common_chat_msg &msg, bool after_result)
{
    std::string text = "<tool_response>\n" + text_of(msg) + "\n</tool_response>";
    if (after_result) {
        out.back().content += "\n" + text;
        return;
    }
    common_chat_msg user;
    user.role    = "user";
    user.content = text;
    out.push_back(user);
}

static void describe_tools(common_chat_templates_inputs &inputs)
{
    auto       &messages = inputs.messages;
    std::string text     = tools_text(inputs.tools);
    bool has_system = !messages.empty() && (messages[0].role == "system" || messages[0].role == "developer");
    if (!has_system) {
        common_chat_msg system;
        system.role = "system";
        messages.insert(messages.begin(), system);
    }
    std::string own = text_of(messages[0]);
    messages[0].content = own.empty() ? text : text + "\n\n" + own;
    messages[0].content_parts.clear();
}

void chat_generic_rewrite(const cairn__chat &chat, common_chat_templates_inputs &inputs)
{
    std::vector<common_chat_msg> out;
    bool                         after_result = false;
    for (auto &msg : inputs.messages) {
        bool is_result = msg.role == "tool" && !chat.template_has_calls;
        if (is_result) {
            rewrite_result(out, msg, after_result);
        } else {
            if (!msg.tool_calls.empty() && !chat.template_has_calls)
                rewrite_calls(msg);
            out.push_back(msg);
        }
        after_result = is_result;
    }
    inputs.messages = std::move(out);
    if (!inputs.tools.empty() && !chat.template_has_tools)
        describe_tools(inputs);
}

static common_peg_parser answer_parser(common_chat_peg_builder &p, const common_chat_templates_inputs &inputs,
                                       const common_json &tools)
{
    bool required = inputs.tool_choice == COMMON_CHAT_TOOL_CHOICE_REQUIRED;
    auto call     = p.standard_json_tools(CALL_OPEN, CALL_CLOSE, tools, false, true, "name", "arguments") + p.space();
    auto calls    = p.trigger_rule("tool-calls", inputs.parallel_tool_calls ? p.one_or_more(call) : call);
    if (required)
        return p.space() + calls + p.end();
    return p.optional(p.content(p.until(CALL_OPEN))) + p.optional(calls) + p.end();
}

common_chat_params chat_generic_format(const common_chat_templates_inputs &inputs)
{
    common_chat_params params;
    common_json        tools = common_chat_tools_to_json_oaicompat(inputs.tools);
    auto parser = build_chat_peg_parser([&](common_chat_peg_builder &p) { return answer_parser(p, inputs, tools); });
    params.format       = COMMON_CHAT_FORMAT_PEG_NATIVE;
    params.parser       = parser.save();
    params.grammar_lazy = inputs.tool_choice == COMMON_CHAT_TOOL_CHOICE_AUTO;
    params.grammar      = build_grammar(
        [&](const common_grammar_builder &builder) { parser.build_grammar(builder, params.grammar_lazy); });
    if (params.grammar_lazy)
        params.grammar_triggers = {{COMMON_GRAMMAR_TRIGGER_TYPE_WORD, CALL_OPEN}};
    return params;
}

} // namespace cairn
