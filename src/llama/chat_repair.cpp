/* chat_repair.cpp - a conversation in the one order that every template knows:
 * one system message first, then user and assistant in turn, results after calls.
 *
 * Nothing is lost but empty assistant messages: a later system message is said by
 * the user, neighbours of one role become one message. */
#include "llama/chat_internal.h"

namespace cairn
{

static std::string text_of(const common_chat_msg &msg)
{
    std::string text = msg.content;
    for (const auto &part : msg.content_parts)
        text += (text.empty() ? "" : "\n") + part.text;
    return text;
}

static bool is_system(const common_chat_msg &msg)
{
    return msg.role == "system" || msg.role == "developer";
}

static bool says_nothing(const common_chat_msg &msg)
{
    return msg.role == "assistant" && msg.tool_calls.empty() && text_of(msg).empty();
}

/* True when msg was joined to the message before it. */
static bool joined(std::vector<common_chat_msg> &out, const common_chat_msg &msg)
{
    if (out.empty() || out.back().role != msg.role || msg.role == "tool")
        return false;
    common_chat_msg &last = out.back();
    if (!last.tool_calls.empty() || !msg.tool_calls.empty())
        return false;
    last.content = text_of(last) + "\n\n" + text_of(msg);
    last.content_parts.clear();
    return true;
}

void chat_repair(std::vector<common_chat_msg> &messages)
{
    std::vector<common_chat_msg> out;
    bool                         at_start = true;
    for (auto &msg : messages) {
        if (says_nothing(msg))
            continue;
        if (is_system(msg))
            msg.role = at_start ? "system" : "user";
        else
            at_start = false;
        if (!joined(out, msg))
            out.push_back(msg);
    }
    messages = std::move(out);
}

} // namespace cairn
