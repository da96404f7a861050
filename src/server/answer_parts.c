/* answer_parts.c - the pieces that all answers share: usage, timings, logprobs. */
#include "server/answer.h"

#include <math.h>
#include <string.h>

json_t *cairn__answer_usage(const cairn__event *event)
{
    return json_pack("{s:I,s:I,s:I,s:{s:I}}", "prompt_tokens", (json_int_t)event->n_prompt, "completion_tokens",
                     (json_int_t)event->n_generated, "total_tokens",
                     (json_int_t)event->n_prompt + (json_int_t)event->n_generated, "prompt_tokens_details",
                     "cached_tokens", (json_int_t)event->n_cached);
}

static double ms(uint64_t ns)
{
    return (double)ns / 1e6;
}

static double per_second(uint32_t n, uint64_t ns)
{
    return ns ? n * 1e9 / (double)ns : 0;
}

json_t *cairn__answer_timings(const cairn__event *event, const cairn__answer_times *times)
{
    uint32_t computed = event->n_prompt > event->n_cached ? event->n_prompt - event->n_cached : 0;
    json_t  *timings  = json_pack(
        "{s:I,s:I,s:I,s:f,s:f,s:I,s:f,s:f}", "prompt_n", (json_int_t)computed, "cached_n", (json_int_t)event->n_cached,
        "from_store", (json_int_t)event->from_store, "ttft_ms", ms(times->ttft_ns), "restore_ms", ms(event->restore_ns),
        "restored_bytes", (json_int_t)event->restored_bytes, "prefill_ms", ms(event->prefill_ns), "prompt_per_second",
        per_second(computed, event->prefill_ns));
    /* The first token comes out of the prefill: decoding made the others. */
    uint32_t decoded = event->n_generated > 1 ? event->n_generated - 1 : 0;
    json_t  *more    = json_pack("{s:I,s:f,s:f,s:s}", "predicted_n", (json_int_t)event->n_generated, "predicted_ms",
                             ms(event->decode_ns), "predicted_per_second",
                             per_second(decoded, event->decode_ns), "miss", cairn_miss_text(event->miss));
    if (timings && more)
        json_object_update(timings, more);
    json_decref(more);
    return timings;
}

/* ---- logprobs ---- */

/* JSON has no infinity; OpenAI writes -9999 for a token without probability. */
static double printable(float logprob)
{
    return isfinite(logprob) ? (double)logprob : -9999.0;
}

static json_t *bytes_array(const char *piece, size_t size)
{
    json_t *bytes = json_array();
    for (size_t i = 0; bytes && i < size; i++)
        json_array_append_new(bytes, json_integer((unsigned char)piece[i]));
    return bytes;
}

static json_t *chat_entry(const cairn__answer *answer, int32_t token, float logprob)
{
    char   piece[256];
    size_t size = cairn__token_piece(answer->rt, token, true, piece, sizeof piece);
    return json_pack("{s:o,s:f,s:o}", "token", cairn__json_string(piece, size), "logprob", printable(logprob), "bytes",
                     bytes_array(piece, size));
}

static json_t *chat_info(const cairn__answer *answer, const cairn__token_info *info)
{
    json_t *entry = chat_entry(answer, info->token, info->logprob);
    json_t *top   = json_array();
    for (uint32_t i = 0; i < info->n_top; i++)
        json_array_append_new(top, chat_entry(answer, info->top[i].token, info->top[i].logprob));
    json_object_set_new(entry, "top_logprobs", top);
    return entry;
}

/* Completions want four arrays; collected as one object a token until then. */
static json_t *completion_info(cairn__answer *answer, const cairn__token_info *info)
{
    char    piece[256];
    size_t  size  = cairn__token_piece(answer->rt, info->token, true, piece, sizeof piece);
    json_t *top   = json_object();
    json_t *entry = json_pack("{s:o,s:f,s:I}", "token", cairn__json_string(piece, size), "logprob",
                              printable(info->logprob), "offset", (json_int_t)answer->text_offset);
    answer->text_offset += size;
    for (uint32_t i = 0; i < info->n_top; i++) {
        size         = cairn__token_piece(answer->rt, info->top[i].token, true, piece, sizeof piece);
        json_t *text = cairn__json_string(piece, size);
        /* Two pieces that are not UTF-8 may look alike; the likelier one stays. */
        if (text && !json_object_get(top, json_string_value(text)))
            json_object_set_new_nocheck(top, json_string_value(text), json_real(printable(info->top[i].logprob)));
        json_decref(text);
    }
    json_object_set_new(entry, "top", top);
    return entry;
}

void cairn__answer_add_logprobs(cairn__answer *answer, const cairn__event *event)
{
    for (uint32_t i = 0; answer->logprobs && i < event->n_infos; i++) {
        json_t *entry = answer->request->kind == CAIRN__REQUEST_CHAT ? chat_info(answer, &event->infos[i])
                                                                     : completion_info(answer, &event->infos[i]);
        if (!entry || json_array_append_new(answer->logprobs, entry) != 0)
            answer->failed = true;
    }
}

static json_t *completion_arrays(const json_t *entries)
{
    json_t *tokens = json_array(), *values = json_array(), *tops = json_array(), *offsets = json_array();
    for (size_t i = 0; i < json_array_size(entries); i++) {
        const json_t *entry = json_array_get(entries, i);
        json_array_append(tokens, json_object_get(entry, "token"));
        json_array_append(values, json_object_get(entry, "logprob"));
        json_array_append(tops, json_object_get(entry, "top"));
        json_array_append(offsets, json_object_get(entry, "offset"));
    }
    return json_pack("{s:o,s:o,s:o,s:o}", "tokens", tokens, "token_logprobs", values, "top_logprobs", tops,
                     "text_offset", offsets);
}

json_t *cairn__answer_take_logprobs(cairn__answer *answer)
{
    if (!answer->logprobs)
        return json_null();
    json_t *entries  = answer->logprobs;
    answer->logprobs = json_array();
    if (!answer->logprobs)
        answer->failed = true;
    if (answer->request->kind == CAIRN__REQUEST_CHAT)
        return json_pack("{s:o}", "content", entries);
    json_t *arrays = completion_arrays(entries);
    json_decref(entries);
    return arrays;
}

/* ---- objects ---- */

json_t *cairn__answer_object(const cairn__answer *answer, const char *object, json_t *choices_take)
{
    return json_pack("{s:s,s:s,s:I,s:s,s:o}", "id", answer->id, "object", object, "created",
                     (json_int_t)answer->created, "model", answer->model, "choices", choices_take);
}

void cairn__answer_emit(cairn__answer *answer, json_t *object_take, cairn__buf *out)
{
    char *text = object_take ? cairn__json_print_answer(object_take) : NULL;
    json_decref(object_take);
    if (!text) {
        answer->failed = true;
        return;
    }
    cairn__buf_text(out, "data: ");
    cairn__buf_text(out, text);
    cairn__buf_text(out, "\n\n");
    free(text);
}
