/* http_conn.c - one connection: reads requests, writes replies, keeps deadlines. */
#include "server/http_internal.h"
#include "os/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define SECOND 1000000000ull
#define IDLE_TIMEOUT_NS (75 * SECOND)   /* between requests, as nginx has it */
#define STALL_TIMEOUT_NS (60 * SECOND)  /* the client takes nothing of a reply */
#define LINGER_NS (2 * SECOND)
#define MIN_BODY_RATE 16384             /* bytes/s below which a body is a drip */
#define PIPELINE_MAX 262144             /* input read ahead while a request is busy */

static void process(cairn__conn *conn);

static void set_state(cairn__conn *conn, cairn__conn_state state)
{
    conn->state    = state;
    conn->since_ns = cairn__monotonic_ns();
}

static struct evbuffer *output_of(const cairn__conn *conn)
{
    return bufferevent_get_output(conn->bev);
}

static void release_body(cairn__conn *conn)
{
    conn->http->body_bytes -= conn->body_reserved;
    conn->body_reserved = 0;
    evbuffer_drain(conn->body, evbuffer_get_length(conn->body));
}

/* ---- closing ---- */

void cairn__conn_close(cairn__conn *conn)
{
    cairn__http *http = conn->http;
    if (conn->state == CONN_CLOSED)
        return;
    release_body(conn);
    set_state(conn, CONN_CLOSED);
    bufferevent_disable(conn->bev, EV_READ | EV_WRITE);
    bufferevent_setcb(conn->bev, NULL, NULL, NULL, NULL);
    if (conn->prev)
        conn->prev->next = conn->next;
    else
        http->first = conn->next;
    if (conn->next)
        conn->next->prev = conn->prev;
    http->n_conns--;
    conn->next = http->dead;
    http->dead = conn;
    event_active(http->reap, 0, 0);
}

void cairn__conn_free(cairn__conn *conn)
{
    bufferevent_free(conn->bev);
    evbuffer_free(conn->body);
    free(conn);
}

/* The client can't be answered any more. */
static void lost(cairn__conn *conn)
{
    if (conn->state == CONN_BUSY)
        conn->http->ops.gone(conn->http->ops.ctx, conn);
    cairn__conn_close(conn);
}

static void begin_linger(cairn__conn *conn)
{
    shutdown(bufferevent_getfd(conn->bev), SHUT_WR);
    set_state(conn, CONN_LINGER);
    struct evbuffer *input = bufferevent_get_input(conn->bev);
    evbuffer_drain(input, evbuffer_get_length(input));
}

/* ---- replies ---- */

static void reply_done(cairn__conn *conn)
{
    conn->streaming    = false;
    conn->extra_header = NULL;
    release_body(conn);
    bufferevent_setwatermark(conn->bev, EV_READ, 0, 0);
    if (conn->close_after) {
        set_state(conn, CONN_FLUSH);
        if (evbuffer_get_length(output_of(conn)) == 0)
            begin_linger(conn);
        return;
    }
    set_state(conn, CONN_HEAD);
    conn->head_ns = 0;
    conn->n_served++;
    if (!conn->processing)
        process(conn);
}

/* True when the client may still be sending a body that nobody will read. */
static bool body_pending(const cairn__conn *conn)
{
    return conn->state == CONN_BODY && (conn->head.chunked || conn->head.content_length > 0);
}

static void write_head(cairn__conn *conn, int status, const char *content_type, bool close)
{
    struct evbuffer *out = output_of(conn);
    conn->close_after    = close || !conn->head.keep_alive || conn->http->stopping || body_pending(conn);
    evbuffer_add_printf(out, "HTTP/1.1 %d %s\r\nServer: cairn\r\nContent-Type: %s\r\n", status,
                        cairn__http_reason(status), content_type);
    if (conn->extra_header)
        evbuffer_add_printf(out, "%s\r\n", conn->extra_header);
    if (conn->close_after)
        evbuffer_add_printf(out, "Connection: close\r\n");
    else if (conn->head.http10)
        evbuffer_add_printf(out, "Connection: keep-alive\r\n");
}

void cairn__conn_extra_header(cairn__conn *conn, const char *line)
{
    conn->extra_header = line;
}

void cairn__conn_reply(cairn__conn *conn, int status, const char *content_type, const char *body, size_t size,
                       bool close)
{
    write_head(conn, status, content_type, close);
    evbuffer_add_printf(output_of(conn), "Content-Length: %zu\r\n\r\n", size);
    if (strcmp(conn->head.method, "HEAD") != 0)
        evbuffer_add(output_of(conn), body, size);
    reply_done(conn);
}

void cairn__conn_reply_refusal(cairn__conn *conn, const cairn__refusal *refusal, bool close)
{
    char       *text   = cairn__error_json(refusal);
    const char *answer = text ? text : "{\"error\":{\"message\":\"out of memory\",\"type\":\"server_error\","
                                       "\"param\":null,\"code\":null}}";
    cairn__conn_reply(conn, refusal->http_status, "application/json", answer, strlen(answer), close);
    free(text);
}

void cairn__conn_stream_begin(cairn__conn *conn, const char *content_type)
{
    write_head(conn, 200, content_type, conn->head.http10);
    evbuffer_add_printf(output_of(conn), "Cache-Control: no-cache\r\nX-Accel-Buffering: no\r\n%s\r\n",
                        conn->head.http10 ? "" : "Transfer-Encoding: chunked\r\n");
    conn->streaming = true;
}

void cairn__conn_stream_write(cairn__conn *conn, const char *data, size_t size)
{
    if (size == 0) /* an empty chunk would end the body */
        return;
    if (conn->head.http10) {
        evbuffer_add(output_of(conn), data, size);
        return;
    }
    evbuffer_add_printf(output_of(conn), "%zx\r\n", size);
    evbuffer_add(output_of(conn), data, size);
    evbuffer_add(output_of(conn), "\r\n", 2);
}

void cairn__conn_stream_end(cairn__conn *conn, bool close)
{
    if (!conn->head.http10)
        evbuffer_add(output_of(conn), "0\r\n\r\n", 5);
    conn->close_after |= close;
    reply_done(conn);
}

size_t cairn__conn_queued(const cairn__conn *conn)
{
    return evbuffer_get_length(output_of(conn));
}

void cairn__conn_drop(cairn__conn *conn)
{
    cairn__conn_close(conn);
}

void cairn__conn_set_data(cairn__conn *conn, void *data)
{
    conn->data = data;
}

void *cairn__conn_data(const cairn__conn *conn)
{
    return conn->data;
}

/* ---- reading ---- */

static void refuse(cairn__conn *conn, int status, const char *code, const char *reason)
{
    cairn__refusal refusal = {0};
    cairn__refuse(&refusal, status, code, NULL, "%s", reason);
    cairn__conn_reply_refusal(conn, &refusal, true);
}

/* Room for `size` more bytes of bodies, here and in all connections together. */
static bool reserve_body(cairn__conn *conn, uint64_t size)
{
    cairn__http *http = conn->http;
    char         reason[120];
    if (size > http->max_body_size || conn->body_reserved > http->max_body_size - size) {
        snprintf(reason, sizeof reason, "the body is larger than %llu bytes, the limit of this server",
                 (unsigned long long)http->max_body_size);
        refuse(conn, 413, "body_too_large", reason);
        return false;
    }
    if (http->body_bytes + size > 8 * http->max_body_size) {
        refuse(conn, 503, "busy", "too many large requests are being received; try again later");
        return false;
    }
    conn->body_reserved += size;
    http->body_bytes += size;
    return true;
}

static void begin_request(cairn__conn *conn)
{
    cairn__http *http = conn->http;
    set_state(conn, CONN_BODY);
    conn->input_ns = conn->since_ns;
    conn->chunked  = (cairn__chunked){0};
    if (conn->head.encoded)
        refuse(conn, 415, "unsupported_encoding", "compressed bodies are not supported");
    else if (conn->head.has_length && !reserve_body(conn, conn->head.content_length))
        return;
    else if (!http->ops.head(http->ops.ctx, conn, &conn->head))
        return;
    else if (conn->head.expect_continue && !conn->head.http10 &&
             evbuffer_get_length(bufferevent_get_input(conn->bev)) == 0)
        evbuffer_add_printf(output_of(conn), "HTTP/1.1 100 Continue\r\n\r\n");
}

/* True when the state changed. */
static bool read_head(cairn__conn *conn)
{
    struct evbuffer *input = bufferevent_get_input(conn->bev);
    char             crlf[2];
    while (evbuffer_copyout(input, crlf, 2) == 2 && crlf[0] == '\r' && crlf[1] == '\n')
        evbuffer_drain(input, 2); /* RFC 9112 2.2: an empty line before the request line */
    struct evbuffer_ptr end = evbuffer_search(input, "\r\n\r\n", 4, NULL);
    size_t              len = evbuffer_get_length(input);
    if (len && !conn->head_ns)
        conn->head_ns = cairn__monotonic_ns();
    if (end.pos < 0 ? len <= CAIRN__HEAD_MAX_SIZE : false)
        return false;
    conn->head        = (cairn__http_head){0};
    const char *why   = "the header is too large";
    size_t      size  = end.pos < 0 ? len : (size_t)end.pos + 4;
    int         status = 431;
    if (size <= CAIRN__HEAD_MAX_SIZE) {
        const char *text = (const char *)evbuffer_pullup(input, (ev_ssize_t)size);
        why              = "out of memory";
        status           = text ? cairn__http_head_parse(text, size, &conn->head, &why) : 503;
    }
    if (status) {
        refuse(conn, status, "malformed_request", why);
        return true;
    }
    evbuffer_drain(input, size);
    begin_request(conn);
    return true;
}

static void add_body(void *ctx, const char *data, size_t size)
{
    cairn__conn *conn = ctx;
    if (conn->state != CONN_BODY || !reserve_body(conn, size))
        return;
    if (evbuffer_add(conn->body, data, size) != 0)
        refuse(conn, 503, "out_of_memory", "out of memory; try again later");
}

static void request_complete(cairn__conn *conn)
{
    cairn__http *http = conn->http;
    size_t       size = evbuffer_get_length(conn->body);
    char        *body = size ? malloc(size + 1) : NULL;
    if (size && !body) {
        refuse(conn, 503, "out_of_memory", "out of memory; try again later");
        return;
    }
    if (body) {
        evbuffer_remove(conn->body, body, size);
        body[size] = 0;
    }
    release_body(conn);
    set_state(conn, CONN_BUSY);
    bufferevent_setwatermark(conn->bev, EV_READ, 0, PIPELINE_MAX);
    http->ops.request(http->ops.ctx, conn, &conn->head, body, size);
}

static bool read_chunked_body(cairn__conn *conn)
{
    struct evbuffer *input = bufferevent_get_input(conn->bev);
    size_t           len;
    while (conn->state == CONN_BODY && (len = evbuffer_get_contiguous_space(input)) > 0) {
        const char           *data = (const char *)evbuffer_pullup(input, (ev_ssize_t)len);
        size_t                used = 0;
        cairn__chunked_result result = cairn__chunked_read(&conn->chunked, data, len, &used, add_body, conn);
        if (conn->state != CONN_BODY)
            return true;
        evbuffer_drain(input, used);
        if (result == CAIRN__CHUNKED_BAD)
            refuse(conn, 400, "malformed_request", "the chunked body is malformed");
        else if (result == CAIRN__CHUNKED_DONE)
            request_complete(conn);
    }
    return conn->state != CONN_BODY;
}

static bool read_body(cairn__conn *conn)
{
    if (conn->head.chunked)
        return read_chunked_body(conn);
    struct evbuffer *input = bufferevent_get_input(conn->bev);
    size_t           have  = evbuffer_get_length(conn->body);
    size_t           want  = (size_t)conn->head.content_length - have;
    if (want && evbuffer_remove_buffer(input, conn->body, want) < 0) {
        refuse(conn, 503, "out_of_memory", "out of memory; try again later");
        return true;
    }
    if (evbuffer_get_length(conn->body) < conn->head.content_length)
        return false;
    request_complete(conn);
    return true;
}

static void process(cairn__conn *conn)
{
    conn->processing = true;
    for (bool go_on = true; go_on;) {
        if (conn->state == CONN_HEAD)
            go_on = read_head(conn);
        else if (conn->state == CONN_BODY)
            go_on = read_body(conn);
        else
            go_on = false;
    }
    conn->processing = false;
}

static void on_read(struct bufferevent *bev, void *ctx)
{
    cairn__conn *conn = ctx;
    conn->input_ns    = cairn__monotonic_ns();
    if (conn->state == CONN_FLUSH || conn->state == CONN_LINGER) {
        struct evbuffer *input = bufferevent_get_input(bev);
        evbuffer_drain(input, evbuffer_get_length(input));
        return;
    }
    process(conn);
}

static void on_write(struct bufferevent *bev, void *ctx)
{
    cairn__conn *conn = ctx;
    (void)bev;
    if (conn->state == CONN_FLUSH && evbuffer_get_length(output_of(conn)) == 0)
        begin_linger(conn);
}

static void on_event(struct bufferevent *bev, short what, void *ctx)
{
    cairn__conn *conn = ctx;
    (void)bev;
    /* A client that has sent all and shut its side down may still read what is on
     * its way; one whose answer is being made can't be told from one that left. */
    if ((what & BEV_EVENT_EOF) && conn->state == CONN_FLUSH)
        return;
    lost(conn);
}

static void on_output(struct evbuffer *buffer, const struct evbuffer_cb_info *info, void *ctx)
{
    cairn__conn *conn = ctx;
    (void)buffer;
    if (info->n_deleted || info->orig_size == 0)
        conn->output_ns = cairn__monotonic_ns();
}

/* ---- deadlines ---- */

static bool body_too_slow(const cairn__conn *conn, uint64_t now_ns)
{
    uint64_t limit = conn->http->read_timeout_ns;
    uint64_t rate  = evbuffer_get_length(conn->body) / MIN_BODY_RATE * SECOND;
    return now_ns - conn->input_ns > limit || now_ns - conn->since_ns > 2 * limit + rate;
}

void cairn__conn_check_deadline(cairn__conn *conn, uint64_t now_ns)
{
    uint64_t timeout = conn->http->read_timeout_ns;
    bool     stalled = cairn__conn_queued(conn) > 0 && now_ns - conn->output_ns > STALL_TIMEOUT_NS;
    switch (conn->state) {
    case CONN_HEAD:
        if (conn->head_ns && now_ns - conn->head_ns > timeout)
            refuse(conn, 408, "timeout", "the header took too long");
        else if (!conn->head_ns && now_ns - conn->since_ns > (conn->n_served ? IDLE_TIMEOUT_NS : timeout))
            cairn__conn_close(conn);
        break;
    case CONN_BODY:
        if (body_too_slow(conn, now_ns))
            refuse(conn, 408, "timeout", "the body took too long");
        break;
    case CONN_BUSY:
    case CONN_FLUSH:
        if (stalled)
            lost(conn);
        break;
    case CONN_LINGER:
        if (now_ns - conn->since_ns > LINGER_NS)
            cairn__conn_close(conn);
        break;
    case CONN_CLOSED: break;
    }
}

/* ---- birth ---- */

cairn__conn *cairn__conn_create(cairn__http *http, int fd)
{
    cairn__conn *conn = calloc(1, sizeof *conn);
    if (conn)
        conn->bev = bufferevent_socket_new(http->base, fd, BEV_OPT_CLOSE_ON_FREE);
    if (!conn || !conn->bev || !(conn->body = evbuffer_new())) {
        if (conn && conn->bev)
            bufferevent_free(conn->bev);
        else
            evutil_closesocket(fd);
        free(conn);
        return NULL;
    }
    conn->http = http;
    set_state(conn, CONN_HEAD);
    conn->output_ns = conn->since_ns;
    conn->next      = http->first;
    if (http->first)
        http->first->prev = conn;
    http->first = conn;
    http->n_conns++;
    bufferevent_setcb(conn->bev, on_read, on_write, on_event, conn);
    evbuffer_add_cb(output_of(conn), on_output, conn);
    bufferevent_enable(conn->bev, EV_READ | EV_WRITE);
    return conn;
}
