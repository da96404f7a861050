/* delta.c - see delta.h. */
#include "server/delta.h"
#include "os/file.h"
#include "server/json_text.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

void cairn__call_id(char out[32])
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789";
    unsigned char     random[24];
    cairn__random_bytes(random, sizeof random);
    memcpy(out, "call_", 5);
    for (size_t i = 0; i < sizeof random; i++)
        out[5 + i] = letters[random[i] % (sizeof letters - 1)];
    out[5 + sizeof random] = 0;
}

static bool is_blank(const char *text)
{
    while (isspace((unsigned char)*text))
        text++;
    return *text == 0;
}

/* The new part of `text` after what was sent, "" when there is none; NULL when
 * it contradicts what was sent. */
static const char *new_part(const char *sent, size_t sent_size, const char *text)
{
    if (strlen(text) < sent_size || (sent_size && memcmp(text, sent, sent_size) != 0))
        return NULL;
    return text + sent_size;
}

static void remember(cairn__delta_state *state, char **sent, size_t *sent_size, const char *text)
{
    char *copy = strdup(text);
    if (!copy) {
        state->failed = true;
        return;
    }
    free(*sent);
    *sent      = copy;
    *sent_size = strlen(text);
}

static void emit(cairn__delta_state *state, json_t *out, json_t *delta_take)
{
    if (!delta_take || json_array_append_new(out, delta_take) != 0)
        state->failed = true;
}

static void text_delta(cairn__delta_state *state, const char *key, char **sent, size_t *sent_size, const char *text,
                       bool final, json_t *out)
{
    const char *part = new_part(*sent, *sent_size, text);
    if (!part)
        state->contradiction |= final;
    if (!part || !*part)
        return;
    emit(state, out, json_pack("{s:o}", key, cairn__json_string(part, strlen(part))));
    remember(state, sent, sent_size, text);
}

static json_t *call_delta(unsigned index, const char *id, const json_t *name, const char *arguments)
{
    json_t *function = json_pack("{s:o}", "arguments", cairn__json_string(arguments, strlen(arguments)));
    json_t *call     = json_pack("{s:i}", "index", (int)index);
    if (id && (json_object_set_new(call, "id", json_string(id)) != 0 ||
               json_object_set_new(call, "type", json_string("function")) != 0 ||
               json_object_set(function, "name", (json_t *)name) != 0)) {
        json_decref(function);
        json_decref(call);
        return NULL;
    }
    json_object_set_new(call, "function", function);
    return json_pack("{s:[o]}", "tool_calls", call);
}

static const char *text_at(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

static void one_call(cairn__delta_state *state, unsigned index, const json_t *call, bool complete, bool final,
                     json_t *out)
{
    const json_t *function  = json_object_get(call, "function");
    const json_t *name      = json_object_get(function, "name");
    const char   *arguments = text_at(function, "arguments");
    if (!json_is_string(name) || json_string_length(name) == 0)
        return;
    /* The name is sent once, so not before it is surely whole. */
    if (!state->calls[index].opened && !complete && !*arguments)
        return;
    const char *part = new_part(state->calls[index].arguments, state->calls[index].arguments_size, arguments);
    bool        open = !state->calls[index].opened;
    if (!part)
        state->contradiction |= final;
    if (!part || (!open && !*part))
        return;
    if (open) {
        const char *id = text_at(call, "id");
        if (*id && strlen(id) < sizeof state->calls[index].id)
            strcpy(state->calls[index].id, id);
        else
            cairn__call_id(state->calls[index].id);
        state->calls[index].opened = true;
        state->n_opened++;
    }
    emit(state, out, call_delta(index, open ? state->calls[index].id : NULL, name, part));
    remember(state, &state->calls[index].arguments, &state->calls[index].arguments_size, arguments);
}

void cairn__delta_update(cairn__delta_state *state, const json_t *message, cairn__delta_options options, json_t *out)
{
    const json_t *calls   = json_object_get(message, "tool_calls");
    const char   *content = text_at(message, "content");
    size_t        n_calls = json_array_size(calls);
    text_delta(state, "reasoning_content", &state->reasoning, &state->reasoning_size,
               text_at(message, "reasoning_content"), options.final, out);
    bool hold = options.hold_blank && is_blank(content) && (!options.final || n_calls > 0);
    if (!hold)
        text_delta(state, "content", &state->content, &state->content_size, content, options.final, out);
    if (options.single_call && n_calls > 1)
        n_calls = 1;
    if (n_calls > CAIRN__MAX_CALLS)
        n_calls = CAIRN__MAX_CALLS;
    for (size_t i = 0; i < n_calls; i++)
        one_call(state, (unsigned)i, json_array_get(calls, i), options.final || i + 1 < json_array_size(calls),
                 options.final, out);
    if (options.final && state->n_opened > n_calls)
        state->contradiction = true;
}

void cairn__delta_done(cairn__delta_state *state)
{
    free(state->content);
    free(state->reasoning);
    for (unsigned i = 0; i < CAIRN__MAX_CALLS; i++)
        free(state->calls[i].arguments);
    memset(state, 0, sizeof *state);
}

static json_t *whole_calls(const json_t *calls, size_t n)
{
    json_t *list = json_array();
    for (size_t i = 0; list && i < n; i++) {
        const json_t *call     = json_array_get(calls, i);
        const json_t *function = json_object_get(call, "function");
        const char   *id       = text_at(call, "id");
        char          fresh[32];
        cairn__call_id(fresh);
        json_t *copy = json_pack("{s:s,s:s,s:{s:s,s:s}}", "id", *id ? id : fresh, "type", "function", "function", "name",
                                 text_at(function, "name"), "arguments", text_at(function, "arguments"));
        if (!copy || json_array_append_new(list, copy) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

json_t *cairn__delta_message(const json_t *message, bool single_call)
{
    const json_t *calls     = json_object_get(message, "tool_calls");
    const char   *content   = text_at(message, "content");
    const char   *reasoning = text_at(message, "reasoning_content");
    size_t        n         = json_array_size(calls);
    if (single_call && n > 1)
        n = 1;
    if (n > CAIRN__MAX_CALLS)
        n = CAIRN__MAX_CALLS;
    json_t *copy = json_pack("{s:s,s:o}", "role", "assistant", "content",
                             n > 0 && is_blank(content) ? json_null() : cairn__json_string(content, strlen(content)));
    bool    ok   = copy != NULL;
    if (ok && *reasoning)
        ok = json_object_set_new(copy, "reasoning_content", cairn__json_string(reasoning, strlen(reasoning))) == 0;
    if (ok && n > 0)
        ok = json_object_set_new(copy, "tool_calls", whole_calls(calls, n)) == 0;
    if (!ok) {
        json_decref(copy);
        return NULL;
    }
    return copy;
}
