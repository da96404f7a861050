/* http_internal.h - shared by http_conn.c (one connection) and http_listen.c (all of them). */
#ifndef CAIRN_SERVER_HTTP_INTERNAL_H
#define CAIRN_SERVER_HTTP_INTERNAL_H

#include "server/http.h"

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/listener.h>

/* HEAD  waits for or reads a head          BODY    reads a body
 * BUSY  the handler has it                 FLUSH   the reply is whole, the client still takes it
 * LINGER sent all, said so, drops what the client still sends: closing with input
 *        unread would make the kernel reset, and the client might never see the reply
 * CLOSED on the list of the dead */
typedef enum cairn__conn_state { CONN_HEAD, CONN_BODY, CONN_BUSY, CONN_FLUSH, CONN_LINGER, CONN_CLOSED } cairn__conn_state;

struct cairn__conn {
    cairn__http        *http;
    cairn__conn        *prev, *next; /* in http->first, or next in http->dead */
    struct bufferevent *bev;
    cairn__conn_state   state;
    bool                processing; /* inside the loop of cairn__conn_process() */
    bool                streaming, close_after;
    cairn__http_head    head;
    cairn__chunked      chunked;
    struct evbuffer    *body;
    uint64_t            body_reserved; /* counted in http->body_bytes */
    uint64_t            since_ns;      /* in this state */
    uint64_t            head_ns;       /* first byte of this head; 0: none yet */
    uint64_t            input_ns, output_ns; /* last progress */
    uint32_t            n_served;
    const char         *extra_header;
    void               *data;
};

struct cairn__http {
    cairn__http_ops        ops;
    struct event_base     *base;
    struct evconnlistener *listener;
    struct event          *tick, *reap;
    int                    fd; /* bound; -1 once the listener has it */
    uint16_t               port;
    uint64_t               max_body_size, body_bytes;
    uint64_t               read_timeout_ns;
    uint32_t               max_connections, n_conns;
    cairn__conn           *first, *dead;
    bool                   stopping;
};

/* Takes fd. NULL: out of memory, fd closed. */
cairn__conn *cairn__conn_create(cairn__http *http, int fd);
void         cairn__conn_close(cairn__conn *conn); /* without `gone` */
void         cairn__conn_check_deadline(cairn__conn *conn, uint64_t now_ns);
void         cairn__conn_free(cairn__conn *conn); /* of a closed one */

#endif
