/* request.c - a job copied whole, and lists of them. */
#include "engine/internal.h"

#include <stdlib.h>
#include <string.h>

/* NULL for nothing, which is no failure: *ok is cleared on a failure only. */
static void *copy(const void *data, size_t n, size_t item_size, bool *ok)
{
    if (!data || n == 0)
        return NULL;
    void *result = n <= SIZE_MAX / item_size ? malloc(n * item_size) : NULL;
    if (result)
        memcpy(result, data, n * item_size);
    else
        *ok = false;
    return result;
}

static char *copy_text(const char *text, bool *ok)
{
    return text ? copy(text, strlen(text) + 1, 1, ok) : NULL;
}

static const char *const *copy_texts(const char *const *texts, uint32_t n, bool *ok)
{
    char **result = n > 0 ? calloc(n, sizeof *result) : NULL;
    if (!result) {
        *ok = *ok && n == 0;
        return NULL;
    }
    for (uint32_t i = 0; i < n; i++)
        result[i] = copy_text(texts[i], ok);
    return (const char *const *)result;
}

static void free_texts(const char *const *texts, uint32_t n)
{
    for (uint32_t i = 0; texts && i < n; i++)
        free((void *)texts[i]);
    free((void *)texts);
}

cairn_status cairn__request_create(const cairn__job *job, cairn__request **ret_request)
{
    cairn__request *r = calloc(1, sizeof *r);
    if (!r)
        return CAIRN_ENOMEM;
    bool             ok = true;
    cairn__sampling *s = &r->job.sampling;
    r->job = *job;
    r->told_position = UINT32_MAX;
    atomic_init(&r->canceled, false);
    r->job.tokens = copy(job->tokens, job->n_tokens, sizeof *job->tokens, &ok);
    r->job.stops = copy_texts(job->stops, job->n_stops, &ok);
    s->logit_bias = copy(s->logit_bias, s->n_logit_bias, sizeof *s->logit_bias, &ok);
    s->grammar = copy_text(s->grammar, &ok);
    s->trigger_patterns = copy_texts(s->trigger_patterns, s->n_trigger_patterns, &ok);
    s->trigger_tokens = copy(s->trigger_tokens, s->n_trigger_tokens, sizeof *s->trigger_tokens, &ok);
    s->ban_eog = s->ban_eog || job->ignore_eos;
    for (uint32_t i = 0; ok && i < r->job.n_stops; i++)
        ok = r->job.stops[i] != NULL;
    if (!ok) {
        cairn__request_destroy(r);
        return CAIRN_ENOMEM;
    }
    *ret_request = r;
    return CAIRN_OK;
}

void cairn__request_destroy(cairn__request *r)
{
    if (!r)
        return;
    cairn__sampling *s = &r->job.sampling;
    free((void *)r->job.tokens);
    free_texts(r->job.stops, r->job.n_stops);
    free((void *)s->logit_bias);
    free((void *)s->grammar);
    free_texts(s->trigger_patterns, s->n_trigger_patterns);
    free((void *)s->trigger_tokens);
    free(r);
}

void cairn__request_push(cairn__request_list *list, cairn__request *request)
{
    request->next = NULL;
    if (list->last)
        list->last->next = request;
    else
        list->first = request;
    list->last = request;
    list->n++;
}

cairn__request *cairn__request_pop(cairn__request_list *list)
{
    return list->first ? cairn__request_remove(list, list->first->id) : NULL;
}

cairn__request *cairn__request_remove(cairn__request_list *list, uint64_t id)
{
    cairn__request *before = NULL;
    for (cairn__request *r = list->first; r; before = r, r = r->next) {
        if (r->id != id)
            continue;
        if (before)
            before->next = r->next;
        else
            list->first = r->next;
        if (list->last == r)
            list->last = before;
        list->n--;
        r->next = NULL;
        return r;
    }
    return NULL;
}
