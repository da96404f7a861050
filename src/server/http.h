/* http.h - an HTTP/1.1 server on libevent's bufferevents. Knows no API.
 *
 * Why not evhttp: it frames a request that has both Content-Length and
 * Transfer-Encoding, takes the body of a GET for the next request, has no
 * deadline for a header that drips in, and answers what it refuses by itself in
 * HTML, closing so early that a client still sending never sees the answer. All
 * of these are named cases; the parser here is strict instead.
 *
 * H1 One loop thread. Nothing here blocks.
 * H2 A connection carries one request at a time: HEAD -> BODY -> BUSY -> HEAD.
 *    Pipelined requests wait in the input buffer.
 * H3 Memory is bounded: header 16 KiB, body max_body_size, all bodies being read
 *    at once 8 * max_body_size, connections max_connections; output is bounded by
 *    the handler, which looks at cairn__conn_queued().
 * H4 Every state has a deadline, looked at once a second.
 * H5 A connection object lives until the loop is back at its top, so callbacks may
 *    close it at any point. */
#ifndef CAIRN_SERVER_HTTP_H
#define CAIRN_SERVER_HTTP_H

#include "server/error.h"

struct event_base;

/* ---- http_head.c: a request's head, pure ---- */

/* Value of a header that carries a secret. Longer ones, and ones that were sent
 * twice, can't be used: two programs might read two different ones. */
typedef struct cairn__http_credential {
    char text[512]; /* "": none, or unusable */
    bool seen;
} cairn__http_credential;

typedef struct cairn__http_head {
    char     method[16];
    char     path[256]; /* without query; longer ones are refused with 404 by whoever routes */
    bool     path_cut;
    bool     http10, keep_alive, chunked, has_length, expect_continue;
    bool     encoded;        /* Content-Encoding other than identity */
    uint64_t content_length;
    cairn__http_credential authorization, api_key; /* Authorization, X-Api-Key */
} cairn__http_head;

#define CAIRN__HEAD_MAX_SIZE 16384

/* text[0..size) ends with the blank line. 0, or the HTTP status to refuse with
 * and *ret_reason. */
int cairn__http_head_parse(const char *text, size_t size, cairn__http_head *ret_head, const char **ret_reason);

/* ---- http_chunked.c: the chunked transfer coding, pure ---- */

typedef struct cairn__chunked { /* zero-initialise */
    int      state;
    uint64_t left;      /* of the chunk */
    uint32_t line_size; /* of the size line or trailer line so far */
    uint32_t trailer_size;
} cairn__chunked;

typedef enum cairn__chunked_result { CAIRN__CHUNKED_MORE, CAIRN__CHUNKED_DONE, CAIRN__CHUNKED_BAD } cairn__chunked_result;

/* Reads input[0..size); *ret_used bytes were taken. Body bytes are handed over
 * in pieces. BAD: the connection can't be used further. */
cairn__chunked_result cairn__chunked_read(cairn__chunked *state, const char *input, size_t size, size_t *ret_used,
                                          void (*body)(void *ctx, const char *data, size_t size), void *ctx);

/* ---- server ---- */

typedef struct cairn__http cairn__http;
typedef struct cairn__conn cairn__conn;

typedef struct cairn__http_ops {
    /* The head is complete. False: a reply was given and the body is not wanted. */
    bool (*head)(void *ctx, cairn__conn *conn, const cairn__http_head *head);
    /* The request is complete; body_take is malloc()ed, NULL when there is none. */
    void (*request)(void *ctx, cairn__conn *conn, const cairn__http_head *head, char *body_take, size_t body_size);
    /* The client left, or stopped reading, before the reply was complete. */
    void (*gone)(void *ctx, cairn__conn *conn);
    void (*tick)(void *ctx); /* once a second */
    void *ctx;
} cairn__http_ops;

typedef struct cairn__http_options { /* zero value = defaults */
    const char *host; /* NULL: 127.0.0.1 */
    uint16_t    port; /* 0: any free one */
    uint64_t    max_body_size;     /* 0: 32 MiB */
    uint32_t    read_timeout_s;    /* for a head, and for silence in a body; 0: 15 */
    uint32_t    max_connections;   /* 0: 1024 */
} cairn__http_options;

/* Binds, so that a port in use is known before a large model is loaded;
 * connections are refused until cairn__http_start(). Errors carry a text for the
 * operator. */
CAIRN_MUST_USE cairn_status cairn__http_bind(const cairn__http_options *options, cairn__http **ret_http,
                                             cairn_error *error);
uint16_t                    cairn__http_port(const cairn__http *http);
/* CAIRN_EBUSY: another program took the port meanwhile. */
CAIRN_MUST_USE cairn_status cairn__http_start(cairn__http *http, struct event_base *base, const cairn__http_ops *ops);
/* Accepts no more and closes what is idle; replies that run may end. */
void   cairn__http_stop(cairn__http *http);
size_t cairn__http_connections(const cairn__http *http); /* open ones */
void   cairn__http_destroy(cairn__http *http); /* closes all without calling `gone`; accepts NULL */

/* ---- replies: in `head` or `request`, or later until `gone` ---- */

/* One more header line for the reply to come, without CRLF; static text. */
void cairn__conn_extra_header(cairn__conn *conn, const char *line);
/* A whole reply. `close`: the connection ends after it. */
void cairn__conn_reply(cairn__conn *conn, int status, const char *content_type, const char *body, size_t size,
                       bool close);
void cairn__conn_reply_refusal(cairn__conn *conn, const cairn__refusal *refusal, bool close);
/* A reply that grows. */
void   cairn__conn_stream_begin(cairn__conn *conn, const char *content_type);
void   cairn__conn_stream_write(cairn__conn *conn, const char *data, size_t size);
void   cairn__conn_stream_end(cairn__conn *conn, bool close);
size_t cairn__conn_queued(const cairn__conn *conn); /* bytes that the client has not taken */
void   cairn__conn_drop(cairn__conn *conn);         /* closes at once; `gone` is not called */
void   cairn__conn_set_data(cairn__conn *conn, void *data);
void  *cairn__conn_data(const cairn__conn *conn);

#endif
