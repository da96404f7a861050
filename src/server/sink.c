/* sink.c - see sink.h. The last event has its place from the start, so that even
 * without memory every request ends. Progress that the loop has not seen yet is
 * not sent twice. */
#include "server/sink.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

typedef struct note { /* one event, copied */
    cairn__mail        mail;
    cairn__sink       *sink;
    cairn__event       event;
    char               message[400]; /* of the last event */
    cairn__token_info *infos;
    char              *text;
} note;

struct cairn__sink {
    cairn__mailbox *box;
    cairn__sink_fn  fn; /* NULL: detached */
    void           *ctx;
    atomic_bool     progress_pending, lost;
    note            last;
};

static void free_note(note *n)
{
    free(n->infos);
    free(n->text);
    free(n);
}

static void deliver(cairn__mail *mail)
{
    note        *n    = (note *)mail;
    cairn__sink *sink = n->sink;
    if (n->event.type == CAIRN__EVENT_PREFILL)
        atomic_store(&sink->progress_pending, false);
    if (sink->fn)
        sink->fn(sink->ctx, &n->event, atomic_load(&sink->lost));
    if (n == &sink->last)
        free(sink);
    else
        free_note(n);
}

static note *copy_event(cairn__sink *sink, const cairn__event *event)
{
    note *n = calloc(1, sizeof *n);
    if (!n)
        return NULL;
    n->event = *event;
    if (event->text_size && (n->text = malloc(event->text_size)))
        memcpy(n->text, event->text, event->text_size);
    if (event->n_infos && (n->infos = malloc(event->n_infos * sizeof *n->infos)))
        memcpy(n->infos, event->infos, event->n_infos * sizeof *n->infos);
    if ((event->text_size && !n->text) || (event->n_infos && !n->infos)) {
        free_note(n);
        return NULL;
    }
    n->sink          = sink;
    n->event.text    = n->text;
    n->event.infos   = n->infos;
    n->event.message = NULL;
    return n;
}

static note *last_note(cairn__sink *sink, const cairn__event *event)
{
    note       *n    = &sink->last;
    const char *text = event->message ? event->message : "";
    n->sink          = sink;
    n->event         = *event;
    n->event.text    = NULL;
    n->event.infos   = NULL;
    n->event.n_infos = 0;
    n->event.text_size = 0;
    strncpy(n->message, text, sizeof n->message - 1);
    n->event.message = n->message;
    return n;
}

/* The last event may carry text: it goes ahead as an event of its own. */
static void post_text(cairn__sink *sink, const cairn__event *event)
{
    cairn__event text = *event;
    text.type         = CAIRN__EVENT_TEXT;
    note *n           = copy_event(sink, &text);
    if (!n) {
        atomic_store(&sink->lost, true);
        return;
    }
    n->mail.deliver = deliver;
    cairn__mailbox_post(sink->box, &n->mail);
}

void cairn__sink_event(void *ctx, const cairn__event *event)
{
    cairn__sink *sink = ctx;
    note        *n;
    if (event->type == CAIRN__EVENT_END || event->type == CAIRN__EVENT_ERROR) {
        if (event->type == CAIRN__EVENT_END && (event->text_size || event->n_infos))
            post_text(sink, event);
        n = last_note(sink, event);
    } else {
        if (event->type == CAIRN__EVENT_PREFILL && atomic_exchange(&sink->progress_pending, true))
            return;
        n = copy_event(sink, event);
        if (!n) {
            if (event->type == CAIRN__EVENT_TEXT)
                atomic_store(&sink->lost, true);
            return;
        }
    }
    n->mail.deliver = deliver;
    cairn__mailbox_post(sink->box, &n->mail);
}

cairn__sink *cairn__sink_create(cairn__mailbox *box, cairn__sink_fn fn, void *ctx)
{
    cairn__sink *sink = calloc(1, sizeof *sink);
    if (!sink)
        return NULL;
    sink->box = box;
    sink->fn  = fn;
    sink->ctx = ctx;
    return sink;
}

void cairn__sink_detach(cairn__sink *sink)
{
    sink->fn = NULL;
}

void cairn__sink_destroy(cairn__sink *sink)
{
    free(sink);
}
