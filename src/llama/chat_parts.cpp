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

/* How many messages are the system's, in front of all others. */
static size_t n_system(const messages &all)
{
    size_t n = 0;
    while (n < all.size() && (all[n].role == "system" || all[n].role == "developer"))
        n++;
    return n;
}

static messages first_and_a_word(const messages &all, size_t n)
{
    messages        out = first(all, n);
    common_chat_msg word;
    word.role    = "user";
    word.content = "\x7f"; /* no user speaks so */
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
    ret_parts->end[ret_parts->n_end++] = part_of(chat, request, first_and_a_word(all, n_system(all)), prompt);
    if (!said.empty()) /* for another last question; with a word, or the reasoning before it is shown */
        ret_parts->end[ret_parts->n_end++] = part_of(chat, request, first_and_a_word(all, said[0]), prompt);
    for (size_t i = 1; i < said.size() && ret_parts->n_end < CAIRN__CHAT_PARTS; i++)
        ret_parts->end[ret_parts->n_end++] = part_of(chat, request, first(all, said[i] + 1), prompt);
}

} // namespace cairn
