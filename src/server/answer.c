/* answer.c - see answer.h.
 *
 * Plain answers are passed on as they come. Answers that may hold reasoning or
 * tool calls are read whole again by the chat parser as they grow, and the
 * differences are sent. Such a reading costs time in proportion to the answer, so
 * it is put off until five times its last cost has passed: the loop stays free
 * for others, and short answers never notice. */
#include "server/answer.h"
#include "os/clock.h"
#include "os/file.h"

#include <stdio.h>

/* Share of the loop that one answer's parsing may take: one part in this many. */
#define PARSE_SHARE 5

static void make_id(char *out, size_t size, const char *prefix)
{
    unsigned char random[12];
    cairn__random_bytes(random, sizeof random);
    int at = snprintf(out, size, "%s-", prefix);
    for (size_t i = 0; i < sizeof random; i++)
        at += snprintf(out + at, size - (size_t)at, "%02x", random[i]);
}

bool cairn__answer_init(cairn__answer *answer, const cairn__api_request *request, const cairn__runtime *rt,
                        const char *model)
{
    *answer = (cairn__answer){.request = request, .rt = rt, .model = model, .created = cairn__wall_seconds()};
    make_id(answer->id, sizeof answer->id, request->kind == CAIRN__REQUEST_CHAT ? "chatcmpl" : "cmpl");
    if (request->job.want_logprobs)
        answer->logprobs = json_array();
    if (request->echo && request->kind == CAIRN__REQUEST_COMPLETION)
        answer->text_offset = request->echo_size;
    return !request->job.want_logprobs || answer->logprobs;
}

void cairn__answer_done(cairn__answer *answer)
{
    cairn__buf_done(&answer->text);
    json_decref(answer->logprobs);
    cairn__delta_done(&answer->deltas);
    *answer = (cairn__answer){0};
}

static bool is_chat(const cairn__answer *answer)
{
    return answer->request->kind == CAIRN__REQUEST_CHAT;
}

/* ---- streams ---- */

static const char *chunk_object(const cairn__answer *answer)
{
    return is_chat(answer) ? "chat.completion.chunk" : "text_completion";
}

/* One chunk with one choice. body: chat's delta or a completion's text. */
static json_t *chunk(cairn__answer *answer, json_t *body_take, const char *finish_reason)
{
    json_t *finish   = finish_reason ? json_string(finish_reason) : json_null();
    json_t *logprobs = json_array_size(answer->logprobs) ? cairn__answer_take_logprobs(answer) : json_null();
    json_t *choice   = json_pack("{s:i,s:o,s:o,s:o}", "index", 0, is_chat(answer) ? "delta" : "text", body_take,
                                 "logprobs", logprobs, "finish_reason", finish);
    return cairn__answer_object(answer, chunk_object(answer), json_pack("[o]", choice));
}

static void start(cairn__answer *answer, cairn__buf *out)
{
    if (answer->started)
        return;
    answer->started = true;
    if (is_chat(answer)) {
        json_t *kept     = answer->logprobs; /* the tokens belong to the chunk with their text */
        answer->logprobs = NULL;
        cairn__answer_emit(answer, chunk(answer, json_pack("{s:s,s:s}", "role", "assistant", "content", ""), NULL), out);
        answer->logprobs = kept;
    } else if (answer->request->echo) {
        json_t *kept     = answer->logprobs;
        answer->logprobs = NULL;
        cairn__answer_emit(
            answer, chunk(answer, cairn__json_string(answer->request->echo_text, answer->request->echo_size), NULL), out);
        answer->logprobs = kept;
    }
}

static void stream_plain(cairn__answer *answer, const cairn__event *event, cairn__buf *out)
{
    json_t *text = cairn__json_string(event->text, event->text_size);
    cairn__answer_emit(answer, chunk(answer, is_chat(answer) ? json_pack("{s:o}", "content", text) : text, NULL), out);
}

/* ---- reading ---- */

/* The message so far. What can't be read as the format wants is text. */
static json_t *read_message(cairn__answer *answer, bool partial)
{
    char        *text  = NULL;
    const char  *from  = answer->text.data ? answer->text.data : "";
    uint64_t     begin = cairn__monotonic_ns();
    cairn_status status =
        cairn__chat_parse(&answer->request->prompt, from, answer->text.size, partial, &text, NULL);
    if (status != CAIRN_OK && !partial)
        status = cairn__chat_parse(&answer->request->prompt, from, answer->text.size, true, &text, NULL);
    answer->parsed_at_ns  = cairn__monotonic_ns();
    answer->parse_cost_ns = answer->parsed_at_ns - begin;
    json_t *message       = status == CAIRN_OK ? json_loads(text, 0, NULL) : NULL;
    free(text);
    if (!message && !partial)
        message = json_pack("{s:o}", "content", cairn__json_string(from, answer->text.size));
    return message;
}

static void stream_deltas(cairn__answer *answer, bool final, bool cut, cairn__buf *out)
{
    json_t *message = read_message(answer, !final || cut);
    json_t *deltas  = json_array();
    if (!message && final)
        answer->failed = true;
    if (message && deltas)
        cairn__delta_update(&answer->deltas, message,
                            (cairn__delta_options){.final       = final,
                                                   .hold_blank  = answer->request->tools,
                                                   .single_call = !answer->request->parallel_calls},
                            deltas);
    for (size_t i = 0; i < json_array_size(deltas); i++)
        cairn__answer_emit(answer, chunk(answer, json_incref(json_array_get(deltas, i)), NULL), out);
    answer->failed |= answer->deltas.failed || !deltas;
    json_decref(message);
    json_decref(deltas);
}

void cairn__answer_text(cairn__answer *answer, const cairn__event *event, uint64_t now_ns, cairn__buf *out)
{
    cairn__buf_add(&answer->text, event->text, event->text_size);
    cairn__answer_add_logprobs(answer, event);
    if (!answer->request->stream)
        return;
    start(answer, out);
    if (!answer->request->prompt.parser) {
        if (event->text_size)
            stream_plain(answer, event, out);
    } else if (now_ns - answer->parsed_at_ns >= PARSE_SHARE * answer->parse_cost_ns) {
        stream_deltas(answer, false, false, out);
    }
}

/* ---- the end ---- */

static const char *finish_reason(const cairn__event *event, bool calls)
{
    if (event->finish == CAIRN__FINISH_LENGTH)
        return "length";
    return calls ? "tool_calls" : "stop";
}

static bool end_stream(cairn__answer *answer, const cairn__event *event, const cairn__answer_times *times,
                       cairn__buf *out, cairn__refusal *refusal)
{
    start(answer, out);
    if (answer->request->prompt.parser)
        stream_deltas(answer, true, event->finish == CAIRN__FINISH_LENGTH, out);
    if (answer->deltas.contradiction)
        return cairn__refuse(refusal, 500, "unreadable_answer", NULL,
                             "the model's answer turned out not to be what was sent of it; try again");
    bool    calls = answer->deltas.n_opened > 0;
    json_t *body  = is_chat(answer) ? json_object() : json_string("");
    json_t *last  = chunk(answer, body, finish_reason(event, calls));
    json_t *usage = cairn__answer_object(answer, chunk_object(answer), json_array());
    json_object_set_new(last, "timings", cairn__answer_timings(event, times));
    cairn__answer_emit(answer, last, out);
    if (answer->request->include_usage) {
        json_object_set_new(usage, "usage", cairn__answer_usage(event));
        cairn__answer_emit(answer, json_incref(usage), out);
    }
    json_decref(usage);
    cairn__buf_text(out, "data: [DONE]\n\n");
    return true;
}

static json_t *whole_chat_choice(cairn__answer *answer, const cairn__event *event)
{
    bool    cut     = event->finish == CAIRN__FINISH_LENGTH;
    json_t *read    = read_message(answer, cut);
    if (!read)
        read = json_pack("{s:o}", "content", cairn__json_string(answer->text.data, answer->text.size));
    json_t *message = cairn__delta_message(read, !answer->request->parallel_calls);
    json_decref(read);
    bool calls = json_object_get(message, "tool_calls") != NULL;
    return json_pack("{s:i,s:o,s:o,s:s}", "index", 0, "message", message, "logprobs",
                     cairn__answer_take_logprobs(answer), "finish_reason", finish_reason(event, calls));
}

static json_t *whole_completion_choice(cairn__answer *answer, const cairn__event *event)
{
    cairn__buf text = {0};
    if (answer->request->echo)
        cairn__buf_add(&text, answer->request->echo_text, answer->request->echo_size);
    cairn__buf_add(&text, answer->text.data, answer->text.size);
    json_t *choice = json_pack("{s:i,s:o,s:o,s:s}", "index", 0, "text", cairn__json_string(text.data, text.size),
                               "logprobs", cairn__answer_take_logprobs(answer), "finish_reason",
                               finish_reason(event, false));
    answer->failed |= text.failed;
    cairn__buf_done(&text);
    return choice;
}

static void end_whole(cairn__answer *answer, const cairn__event *event, const cairn__answer_times *times,
                      cairn__buf *out)
{
    json_t *choice = is_chat(answer) ? whole_chat_choice(answer, event) : whole_completion_choice(answer, event);
    json_t *object = cairn__answer_object(answer, is_chat(answer) ? "chat.completion" : "text_completion",
                                          json_pack("[o]", choice));
    json_object_set_new(object, "usage", cairn__answer_usage(event));
    json_object_set_new(object, "timings", cairn__answer_timings(event, times));
    char *text = object ? cairn__json_print_answer(object) : NULL;
    json_decref(object);
    if (text)
        cairn__buf_text(out, text);
    else
        answer->failed = true;
    free(text);
}

bool cairn__answer_end(cairn__answer *answer, const cairn__event *event, const cairn__answer_times *times,
                       cairn__buf *out, cairn__refusal *refusal)
{
    if (event->finish == CAIRN__FINISH_CANCELED)
        return cairn__refuse(refusal, 503, "shutting_down", NULL, "the server is shutting down");
    bool ok = true;
    cairn__answer_add_logprobs(answer, event);
    if (answer->request->stream)
        ok = end_stream(answer, event, times, out, refusal);
    else
        end_whole(answer, event, times, out);
    if (ok && (answer->failed || answer->text.failed || out->failed))
        return cairn__refuse_memory(refusal);
    return ok;
}
