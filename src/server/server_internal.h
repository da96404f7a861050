/* server_internal.h - shared by the files that make up the server on the loop thread. */
#ifndef CAIRN_SERVER_SERVER_INTERNAL_H
#define CAIRN_SERVER_SERVER_INTERNAL_H

#include "server/mailbox.h"
#include "server/prepare.h"
#include "server/server.h"

#include <event2/event.h>

typedef struct cairn__exchange cairn__exchange;

struct cairn__server {
    cairn__server_options options;
    struct event_base    *base;
    cairn__mailbox       *box;
    cairn__preparer      *preparer;
    cairn__http          *http;
    struct event         *signals[3], *drain;
    cairn__exchange      *first; /* all generations under way */
    int64_t               started; /* wall clock */
    bool                  stopping, stopped; /* a signal came; the engine has ended */
    uint32_t              drain_rounds;
};

/* routes.c: the operations that http.h calls, ctx is the server */
cairn__http_ops cairn__routes(cairn__server *server);
/* models.c */
void cairn__reply_models(cairn__server *server, cairn__conn *conn, const char *name); /* NULL: the list */

/* exchange.c: one generation */
void cairn__exchange_begin(cairn__server *server, cairn__conn *conn, const cairn__api_body *body_take);
void cairn__exchange_gone(cairn__exchange *exchange); /* its connection is lost */
void cairn__exchange_tick(cairn__server *server);

#endif
