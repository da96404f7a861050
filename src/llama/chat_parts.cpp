/* chat_parts.cpp - where a rendered conversation is likely to part from later ones.
 *
 * The template is asked again with messages left out at the end and without the
 * generation prompt; up to where the text stays the same is a part. What a strict
 * template refuses has no part: it is a hint, and nothing is wrong without it. */
#include "llama/chat_internal.h"

#include <algorithm>

namespace cairn
{

using messages = std::vector<common_chat_msg>;

static size_t shared(const std::string &a, const char *b)
{
    size_t n = 0;
    while (n < a.size() && b[n] && a[n] == b[n])
        n++;
    return n;
}

/* Up to where the prompt begins with these messages; 0: they can't be rendered. */
static size_t part_of(const cairn__chat &chat, const chat_request &request, messages some, const char *prompt)
{
    chat_request shorter                 = request;
    shorter.inputs.messages              = std::move(some);
    shorter.inputs.add_generation_prompt = false;
    try {
        return shared(chat_render_text(chat, shorter), prompt);
    } catch (const std::exception &) {
        return 0;
    }
}

static messages first(const messages &all, size_t n)
{
    return messages(all.begin(), all.begin() + (std::ptrdiff_t)n);
}

/* Indices of the user's messages, the last first. */
static std::vector<size_t> users(const messages &all)
{
    std::vector<size_t> found;
    for (size_t i = all.size(); i-- > 0;)
        if (all[i].role == "user")
            found.push_back(i);
    return found;
}

static messages system_and_a_word(const messages &all)
{
    messages out;
    for (const auto &message : all)
        if (message.role == "system" || message.role == "developer")
            out.push_back(message);
        else
            break;
    common_chat_msg word;
    word.role    = "user";
    word.content = "\x7f"; /* no conversation begins so */
    out.push_back(word);
    return out;
}

void chat_find_parts(const cairn__chat &chat, const chat_request &request, const char *prompt,
                     cairn__chat_parts *ret_parts)
{
    const messages           &all  = request.inputs.messages;
    const std::vector<size_t> said = users(all);
    ret_parts->fork[ret_parts->n_fork++] = part_of(chat, request, all, prompt);
    if (!said.empty())
        ret_parts->fork[ret_parts->n_fork++] = part_of(chat, request, first(all, said[0] + 1), prompt);
    ret_parts->end[ret_parts->n_end++] = part_of(chat, request, system_and_a_word(all), prompt);
    for (size_t i = 1; i < said.size() && ret_parts->n_end < CAIRN__CHAT_PARTS; i++)
        ret_parts->end[ret_parts->n_end++] = part_of(chat, request, first(all, said[i] + 1), prompt);
}

} // namespace cairn
