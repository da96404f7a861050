/* exchange.c - one generation: received, prepared, submitted, answered.
 *
 *   begin -> preparing -> running -> answered
 *        \-> refused   \-> refused  \-> failed      client gone: from anywhere
 *
 * A stream's headers go out when the job was accepted: until then every error is
 * a plain HTTP error. From then on something is written at least every PING_NS. */
#include "server/answer.h"
#include "server/log.h"
#include "server/server_internal.h"
#include "server/sink.h"
#include "os/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MS 1000000ull
#define PING_NS (5000 * MS)     /* clients give up after minutes of silence; proxies after 10 s and more */
#define PROGRESS_NS (500 * MS)  /* between two progress comments */
#define MAX_QUEUED (4u << 20)   /* bytes that a reader may leave untaken before it counts as gone */

struct cairn__exchange {
    cairn__server      *server;
    cairn__exchange    *prev, *next;
    cairn__conn        *conn;
    cairn__preparation *preparation; /* while preparing */
    cairn__api_request     *request;
    cairn__answer       answer;
    cairn__sink        *sink; /* while running */
    uint64_t            job_id;
    cairn__api_request_kind kind;
    bool                streaming; /* the headers of a stream were sent */
    uint64_t            received_ns, first_ns, written_ns, progress_ns;
};

/* ---- life ---- */

static void unlink_exchange(cairn__exchange *x)
{
    if (x->prev)
        x->prev->next = x->next;
    else
        x->server->first = x->next;
    if (x->next)
        x->next->prev = x->prev;
}

/* The connection is told first: a reply may start the next request on it. */
static cairn__conn *finish(cairn__exchange *x)
{
    cairn__conn *conn = x->conn;
    cairn__conn_set_data(conn, NULL);
    unlink_exchange(x);
    if (x->sink)
        cairn__sink_detach(x->sink);
    cairn__answer_done(&x->answer);
    cairn__api_request_destroy(x->request);
    free(x);
    return conn;
}

static const char *path_of(cairn__api_request_kind kind)
{
    return kind == CAIRN__REQUEST_CHAT ? "/v1/chat/completions" : "/v1/completions";
}

static void log_refusal(const cairn__exchange *x, const cairn__refusal *refusal)
{
    cairn__log_line("POST %s: %d %s%s%s", path_of(x->kind), refusal->http_status, refusal->code ? refusal->code : "error",
                    refusal->param[0] ? ", field " : "", refusal->param);
}

/* The whole answer is an error. */
static void refuse(cairn__exchange *x, const cairn__refusal *refusal)
{
    log_refusal(x, refusal);
    bool         busy = refusal->http_status == 503;
    cairn__conn *conn = finish(x);
    if (busy)
        cairn__conn_extra_header(conn, "Retry-After: 10");
    cairn__conn_reply_refusal(conn, refusal, false);
}

/* An error after the headers of a stream, or instead of an answer. */
static void fail(cairn__exchange *x, const cairn__refusal *refusal)
{
    if (!x->streaming) {
        refuse(x, refusal);
        return;
    }
    log_refusal(x, refusal);
    char        *text = cairn__error_json(refusal);
    cairn__buf   out  = {0};
    cairn__conn *conn = finish(x);
    cairn__buf_text(&out, "data: ");
    cairn__buf_text(&out, text ? text : "{\"error\":{\"message\":\"out of memory\"}}");
    cairn__buf_text(&out, "\n\n");
    if (!out.failed)
        cairn__conn_stream_write(conn, out.data, out.size);
    cairn__conn_stream_end(conn, true);
    cairn__buf_done(&out);
    free(text);
}

void cairn__exchange_gone(cairn__exchange *x)
{
    cairn__log_line("POST %s: the client left after %.1f s", path_of(x->kind),
                    (double)(cairn__monotonic_ns() - x->received_ns) / 1e9);
    if (x->preparation) {
        atomic_store(&x->preparation->abandoned, true);
        x->preparation->owner = NULL;
    }
    if (x->sink)
        cairn__engine_cancel(x->server->options.engine, x->job_id);
    finish(x);
}

/* ---- writing ---- */

static void write_stream(cairn__exchange *x, const char *data, size_t size)
{
    x->written_ns = cairn__monotonic_ns();
    cairn__conn_stream_write(x->conn, data, size);
}

/* True when the exchange is gone with its reader. */
static bool reader_stalled(cairn__exchange *x)
{
    if (cairn__conn_queued(x->conn) <= MAX_QUEUED)
        return false;
    cairn__conn *conn = x->conn;
    cairn__exchange_gone(x);
    cairn__conn_drop(conn);
    return true;
}

static void write_comment(cairn__exchange *x, const char *text)
{
    if (x->streaming)
        write_stream(x, text, strlen(text));
}

static void on_progress(cairn__exchange *x, const cairn__event *event)
{
    char     text[80];
    uint64_t now = cairn__monotonic_ns();
    bool     next_up = event->type == CAIRN__EVENT_QUEUED && event->queue_position == 0;
    if (next_up || now - x->progress_ns < PROGRESS_NS)
        return;
    x->progress_ns = now;
    if (event->type == CAIRN__EVENT_QUEUED)
        snprintf(text, sizeof text, ": queued behind %u\n\n", event->queue_position);
    else
        snprintf(text, sizeof text, ": prefill %u/%u\n\n", event->n_done, event->n_prompt);
    write_comment(x, text);
}

static void on_text(cairn__exchange *x, const cairn__event *event)
{
    cairn__buf out = {0};
    uint64_t   now = cairn__monotonic_ns();
    if (!x->first_ns)
        x->first_ns = now;
    cairn__answer_text(&x->answer, event, now, &out);
    if (x->streaming && out.size && !out.failed)
        write_stream(x, out.data, out.size);
    cairn__buf_done(&out);
    if (x->streaming)
        reader_stalled(x);
}

static void log_end(const cairn__exchange *x, const cairn__event *e)
{
    cairn__log_detail("POST %s: 200, prompt %u, cached %u (%u from the store), first token %.0f ms after the request, "
                      "generated %u",
                      path_of(x->kind), e->n_prompt, e->n_cached, e->from_store,
                      x->first_ns ? (double)(x->first_ns - x->received_ns) / 1e6 : 0.0, e->n_generated);
}

static void on_end(cairn__exchange *x, const cairn__event *event, bool lost)
{
    cairn__buf          out     = {0};
    cairn__refusal      refusal = {0};
    cairn__answer_times times   = {.ttft_ns = x->first_ns ? x->first_ns - x->received_ns : 0};
    bool                ok      = !lost || cairn__refuse_memory(&refusal);
    ok = ok && cairn__answer_end(&x->answer, event, &times, &out, &refusal);
    if (!ok) {
        fail(x, &refusal);
    } else if (x->streaming) {
        log_end(x, event);
        write_stream(x, out.data, out.size);
        cairn__conn_stream_end(finish(x), false);
    } else {
        log_end(x, event);
        cairn__conn_reply(finish(x), 200, "application/json", out.data, out.size, false);
    }
    cairn__buf_done(&out);
}

static void on_error(cairn__exchange *x, const cairn__event *event)
{
    cairn__refusal refusal = {0};
    int            status  = cairn_status_http(event->status);
    bool           ours    = status == 499 || (x->server->stopping && status >= 500);
    if (ours)
        cairn__refuse(&refusal, 503, "shutting_down", NULL, "the server is shutting down");
    else
        cairn__refuse(&refusal, status, NULL, NULL, "%s",
                      event->message && *event->message ? event->message : cairn_status_text(event->status));
    fail(x, &refusal);
}

static void on_event(void *ctx, const cairn__event *event, bool lost)
{
    cairn__exchange *x = ctx;
    switch (event->type) {
    case CAIRN__EVENT_QUEUED:
    case CAIRN__EVENT_PREFILL: on_progress(x, event); break;
    case CAIRN__EVENT_TEXT: on_text(x, event); break;
    case CAIRN__EVENT_END:
        x->sink = NULL; /* frees itself after this */
        on_end(x, event, lost);
        break;
    case CAIRN__EVENT_ERROR:
        x->sink = NULL;
        on_error(x, event);
        break;
    }
}

/* ---- the start ---- */

static void submit(cairn__exchange *x)
{
    cairn__server *server  = x->server;
    cairn__refusal refusal = {0};
    x->sink                = cairn__sink_create(server->box, on_event, x);
    bool ready = x->sink && cairn__answer_init(&x->answer, x->request, cairn__engine_runtime(server->options.engine),
                                               server->options.model_name);
    cairn_status status = CAIRN_ENOMEM;
    if (ready)
        status = cairn__engine_submit(server->options.engine, &x->request->job, cairn__sink_event, x->sink, &x->job_id);
    if (status != CAIRN_OK) {
        cairn__sink_destroy(x->sink);
        x->sink = NULL;
        if (status == CAIRN_ENOMEM)
            cairn__refuse_memory(&refusal);
        else if (server->stopping)
            cairn__refuse(&refusal, 503, "shutting_down", NULL, "the server is shutting down");
        else if (status == CAIRN_EBUSY)
            cairn__refuse(&refusal, 503, "busy", NULL, "too many requests are waiting; try again later");
        else
            cairn__refuse(&refusal, cairn_status_http(status), NULL, NULL, "%s", cairn_status_text(status));
        refuse(x, &refusal);
        return;
    }
    if (!x->request->stream)
        return;
    x->streaming  = true;
    x->written_ns = cairn__monotonic_ns();
    cairn__conn_stream_begin(x->conn, "text/event-stream; charset=utf-8");
}

static void on_prepared(cairn__mail *mail)
{
    cairn__preparation *p = (cairn__preparation *)mail;
    cairn__exchange    *x = p->owner;
    if (x) {
        x->preparation = NULL;
        x->request     = p->request;
        p->request     = NULL;
        if (x->request)
            submit(x);
        else
            refuse(x, &p->refusal);
    }
    cairn__preparation_destroy(p);
}

static cairn__exchange *create(cairn__server *server, cairn__conn *conn, const cairn__api_body *body_take)
{
    cairn__exchange    *x = calloc(1, sizeof *x);
    cairn__preparation *p = calloc(1, sizeof *p);
    if (!x || !p) {
        free(x);
        free(p);
        return NULL;
    }
    *x = (cairn__exchange){.server = server, .conn = conn, .kind = body_take->kind, .preparation = p, .next = server->first};
    x->received_ns  = cairn__monotonic_ns();
    p->body         = *body_take;
    p->owner        = x;
    p->mail.deliver = on_prepared;
    if (server->first)
        server->first->prev = x;
    server->first = x;
    cairn__conn_set_data(conn, x);
    return x;
}

void cairn__exchange_begin(cairn__server *server, cairn__conn *conn, const cairn__api_body *body_take)
{
    cairn__refusal   refusal = {0};
    cairn__exchange *x       = create(server, conn, body_take);
    if (!x) {
        free(body_take->text);
        cairn__refuse_memory(&refusal);
        cairn__conn_reply_refusal(conn, &refusal, false);
        return;
    }
    cairn__preparation *p = x->preparation;
    if (server->stopping)
        cairn__refuse(&refusal, 503, "shutting_down", NULL, "the server is shutting down");
    else if (!p->body.text)
        cairn__refuse(&refusal, 400, "invalid_json", NULL, "the body is empty; it must be a JSON object");
    else if (cairn__preparer_submit(server->preparer, p) != CAIRN_OK)
        cairn__refuse(&refusal, 503, "busy", NULL, "too many requests are waiting; try again later");
    if (!refusal.http_status)
        return;
    x->preparation = NULL;
    cairn__preparation_destroy(p);
    refuse(x, &refusal);
}

void cairn__exchange_tick(cairn__server *server)
{
    uint64_t now = cairn__monotonic_ns();
    for (cairn__exchange *x = server->first, *next; x; x = next) {
        next = x->next;
        if (x->streaming && now - x->written_ns >= PING_NS && !reader_stalled(x))
            write_comment(x, ": ping\n\n");
    }
}
