/* request_messages.c - messages and tools as the template may see them.
 *
 * Agents send much beside the conversation: cache marks that move every turn,
 * ids, metadata, tool types of other APIs. Only what the conversation says is
 * copied, so that nothing else can change the prompt; and forms that mean the
 * same (content null, missing, "" or []) become the same, so that they share
 * their pages. What a model once said must never make the next request fail. */
#include "server/fields.h"
#include "server/request.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* "messages[3].content" */
typedef struct place {
    char text[80];
} place;

static place at_index(const char *list, size_t index, const char *field)
{
    place p;
    snprintf(p.text, sizeof p.text, "%s[%zu]%s%s", list, index, field[0] ? "." : "", field);
    return p;
}

static bool put_new(json_t *object, const char *key, json_t *value_take, cairn__refusal *refusal)
{
    if (value_take && json_object_set_new(object, key, value_take) == 0)
        return true;
    return cairn__refuse_memory(refusal);
}

/* ---- content ---- */

/* The text of one part; NULL with a refusal for images, sound, files. */
static const json_t *part_text(const json_t *part, const char *where, cairn__refusal *refusal)
{
    static const char *const text_types[] = {"text", "input_text", "output_text"};
    if (cairn__json_is_text(part))
        return part;
    const char *type = json_string_value(json_object_get(part, "type"));
    for (size_t i = 0; type && i < sizeof text_types / sizeof *text_types; i++)
        if (strcmp(type, text_types[i]) == 0 && json_is_string(json_object_get(part, "text")))
            return json_object_get(part, "text");
    if (type && strcmp(type, "refusal") == 0 && json_is_string(json_object_get(part, "refusal")))
        return json_object_get(part, "refusal");
    if (type && strcmp(type, "text") != 0)
        cairn__refuse(refusal, 400, "unsupported_content", where,
                      "'%s' has a part of type '%.40s'; this server takes text only", where, type);
    else
        cairn__refuse(refusal, 400, "invalid_type", where, "'%s' has a part that is not {\"type\": \"text\", "
                      "\"text\": ...}", where);
    return NULL;
}

static json_t *copy_parts(const json_t *parts, const char *where, cairn__refusal *refusal)
{
    json_t *list = json_array();
    for (size_t i = 0; list && i < json_array_size(parts); i++) {
        const json_t *text = part_text(json_array_get(parts, i), where, refusal);
        if (!text || json_array_append_new(list, json_pack("{s:s,s:O}", "type", "text", "text", text)) != 0) {
            if (text)
                cairn__refuse_memory(refusal);
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

static json_t *copy_content(const json_t *content, const char *where, cairn__refusal *refusal)
{
    if (!content || json_is_null(content) || (json_is_array(content) && json_array_size(content) == 0))
        return json_string("");
    if (cairn__json_is_text(content))
        return json_incref((json_t *)content);
    if (!json_is_array(content)) {
        cairn__refuse(refusal, 400, "invalid_type", where, "'%s' must be a string or an array of text parts, not %s",
                      where, cairn__json_kind(content));
        return NULL;
    }
    if (json_array_size(content) > 1)
        return copy_parts(content, where, refusal);
    const json_t *text = part_text(json_array_get(content, 0), where, refusal);
    return text ? json_incref((json_t *)text) : NULL;
}

/* ---- tool calls ---- */

/* Arguments as the text of a JSON object, to the byte as the model wrote them.
 * What it wrote wrongly is wrapped: a template that wants an object would refuse
 * the whole history for it. */
static json_t *copy_arguments(const json_t *arguments)
{
    char *text = NULL;
    if (!arguments || json_is_null(arguments) ||
        (json_is_string(arguments) && json_string_length(arguments) == 0))
        return json_string("{}");
    if (json_is_object(arguments))
        text = cairn__json_print_marked(arguments);
    else if (json_is_string(arguments))
        text = cairn__json_marked_object(json_string_value(arguments), json_string_length(arguments));
    if (!text) {
        json_t *wrapped = json_pack("{s:O}", "raw", arguments);
        text            = wrapped ? cairn__json_print_marked(wrapped) : NULL;
        json_decref(wrapped);
    }
    json_t *result = text ? cairn__json_string(text, strlen(text)) : NULL;
    free(text);
    return result;
}

static json_t *copy_call(const json_t *call, const char *where, cairn__refusal *refusal)
{
    const json_t *function  = json_object_get(call, "function");
    const json_t *custom    = json_object_get(call, "custom");
    const json_t *body      = json_is_object(function) ? function : custom;
    const json_t *name      = json_object_get(body, "name");
    const json_t *arguments = json_is_object(function) ? json_object_get(function, "arguments")
                                                       : json_object_get(custom, "input");
    if (!cairn__json_is_text(name)) {
        cairn__refuse(refusal, 400, "invalid_type", where, "'%s' has a call without a function name", where);
        return NULL;
    }
    json_t *copy = json_pack("{s:s,s:{s:O,s:o}}", "type", "function", "function", "name", name, "arguments",
                             copy_arguments(arguments));
    const json_t *id = json_object_get(call, "id");
    if (copy && json_is_string(id) && json_object_set(copy, "id", (json_t *)id) != 0) {
        json_decref(copy);
        copy = NULL;
    }
    if (!copy)
        cairn__refuse_memory(refusal);
    return copy;
}

static bool copy_calls(const json_t *message, json_t *copy, size_t index, cairn__refusal *refusal)
{
    place         where = at_index("messages", index, "tool_calls");
    const json_t *calls = cairn__field(message, "tool_calls");
    if (calls && !json_is_array(calls))
        return cairn__refuse(refusal, 400, "invalid_type", where.text, "'%s' must be an array, not %s", where.text,
                             cairn__json_kind(calls));
    if (json_array_size(calls) == 0)
        return true;
    json_t *list = json_array();
    for (size_t i = 0; list && i < json_array_size(calls); i++) {
        json_t *call = copy_call(json_array_get(calls, i), where.text, refusal);
        if (!call || json_array_append_new(list, call) != 0) {
            json_decref(list);
            return call ? cairn__refuse_memory(refusal) : false;
        }
    }
    return put_new(copy, "tool_calls", list, refusal);
}

/* ---- messages ---- */

static const char *known_role(const json_t *message)
{
    static const char *const roles[] = {"system", "developer", "user", "assistant", "tool"};
    const char              *role    = json_string_value(json_object_get(message, "role"));
    for (size_t i = 0; role && i < sizeof roles / sizeof *roles; i++)
        if (strcmp(role, roles[i]) == 0)
            return roles[i];
    return role && strcmp(role, "function") == 0 ? "tool" : NULL;
}

static bool copy_string(const json_t *message, json_t *copy, const char *key, cairn__refusal *refusal)
{
    const json_t *value = json_object_get(message, key);
    if (!json_is_string(value) || json_string_length(value) == 0)
        return true;
    return put_new(copy, key, json_incref((json_t *)value), refusal);
}

static bool copy_message(const json_t *message, size_t index, json_t *copy, cairn__refusal *refusal)
{
    const char *role = known_role(message);
    place       where = at_index("messages", index, "role");
    if (!role)
        return cairn__refuse(refusal, 400, "invalid_value", where.text,
                             "'%s' must be system, developer, user, assistant or tool", where.text);
    where           = at_index("messages", index, "content");
    json_t *content = copy_content(json_object_get(message, "content"), where.text, refusal);
    if (!content)
        return refusal->http_status ? false : cairn__refuse_memory(refusal);
    if (!put_new(copy, "role", json_string(role), refusal)) {
        json_decref(content);
        return false;
    }
    if (!put_new(copy, "content", content, refusal))
        return false;
    if (strcmp(role, "assistant") == 0)
        return copy_string(message, copy, "reasoning_content", refusal) && copy_calls(message, copy, index, refusal);
    if (strcmp(role, "tool") == 0)
        return copy_string(message, copy, "tool_call_id", refusal) && copy_string(message, copy, "name", refusal);
    return true;
}

json_t *cairn__chat_messages(const json_t *messages, cairn__refusal *refusal)
{
    if (!json_is_array(messages) || json_array_size(messages) == 0) {
        cairn__refuse(refusal, 400, "invalid_type", "messages", "'messages' must be an array of at least one message");
        return NULL;
    }
    json_t *list = json_array();
    for (size_t i = 0; list && i < json_array_size(messages); i++) {
        const json_t *message = json_array_get(messages, i);
        json_t       *copy    = json_object();
        bool          ok      = copy != NULL;
        if (!ok)
            cairn__refuse_memory(refusal);
        else if (!json_is_object(message))
            ok = cairn__refuse(refusal, 400, "invalid_type", at_index("messages", i, "").text,
                               "'messages[%zu]' must be an object, not %s", i, cairn__json_kind(message));
        else
            ok = copy_message(message, i, copy, refusal);
        if (ok && json_array_append(list, copy) != 0)
            ok = cairn__refuse_memory(refusal);
        json_decref(copy);
        if (!ok) {
            json_decref(list);
            return NULL;
        }
    }
    if (!list)
        cairn__refuse_memory(refusal);
    return list;
}

/* ---- tools ---- */

/* A function tool in the form that templates know; NULL without a refusal for
 * tools of other kinds, which only their own servers can run. */
static json_t *copy_tool(const json_t *tool, size_t index, cairn__refusal *refusal)
{
    place         where    = at_index("tools", index, "function");
    const char   *type     = json_string_value(json_object_get(tool, "type"));
    const json_t *function = json_object_get(tool, "function");
    if (!json_is_object(tool)) {
        cairn__refuse(refusal, 400, "invalid_type", at_index("tools", index, "").text,
                      "'tools[%zu]' must be an object, not %s", index, cairn__json_kind(tool));
        return NULL;
    }
    if (type && strcmp(type, "function") != 0)
        return NULL;
    if (!function && json_object_get(tool, "name"))
        function = tool;
    const json_t *name        = json_object_get(function, "name");
    const json_t *description = json_object_get(function, "description");
    const json_t *parameters  = cairn__field(function, "parameters");
    if (!cairn__json_is_text(name) || json_string_length(name) == 0 || json_string_length(name) > 256) {
        cairn__refuse(refusal, 400, "invalid_value", where.text, "'%s.name' must be a string of 1 to 256 bytes",
                      where.text);
        return NULL;
    }
    if (parameters && !json_is_object(parameters)) {
        cairn__refuse(refusal, 400, "invalid_type", where.text, "'%s.parameters' must be a JSON schema (an object)",
                      where.text);
        return NULL;
    }
    json_t *empty = parameters ? NULL : json_object();
    json_t *copy  = json_pack("{s:s,s:{s:O,s:o,s:O}}", "type", "function", "function", "name", name, "description",
                              json_is_string(description) ? json_incref((json_t *)description) : json_string(""),
                              "parameters", parameters ? parameters : empty);
    json_decref(empty);
    if (!copy)
        cairn__refuse_memory(refusal);
    return copy;
}

json_t *cairn__chat_tools(const json_t *tools, cairn__refusal *refusal)
{
    json_t *list = json_array();
    if (!list)
        cairn__refuse_memory(refusal);
    for (size_t i = 0; list && i < json_array_size(tools); i++) {
        json_t *tool = copy_tool(json_array_get(tools, i), i, refusal);
        bool    ok   = refusal->http_status == 0;
        if (ok && tool && json_array_append_new(list, tool) != 0)
            ok = cairn__refuse_memory(refusal);
        if (!ok) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}
