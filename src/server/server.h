/* server.h - the server as the program sees it: make it, run it until a signal
 * ends it. */
#ifndef CAIRN_SERVER_SERVER_H
#define CAIRN_SERVER_SERVER_H

#include "engine/engine.h"
#include "llama/chat.h"
#include "server/http.h"
#include "server/keys.h"

typedef struct cairn__server cairn__server;

typedef struct cairn__server_options { /* all borrowed until destroy, except http */
    cairn__http   *http; /* bound; taken */
    cairn__engine *engine;
    cairn__chat   *chat;       /* NULL: the model has no template, then why: */
    const char    *chat_error;
    const char    *model_name; /* as clients see it */
    const cairn__keys *keys;   /* NULL: open to everybody */
    bool           reproducible;
    uint32_t       grace_ms; /* for the running answer when a signal ends the server */
    void (*reload)(void *ctx); /* on SIGHUP, in the server's thread; NULL: the signal is left as it is */
    void *reload_ctx;
} cairn__server_options;

/* Takes options->http in every case. */
CAIRN_MUST_USE cairn_status cairn__server_create(const cairn__server_options *options, cairn__server **ret_server,
                                                 cairn_error *error);
/* Serves until SIGTERM or SIGINT, then ends the running answer within the grace
 * time, stops the engine (which flushes the store), and returns. A second signal
 * ends the process at once. */
void cairn__server_run(cairn__server *server);
void cairn__server_destroy(cairn__server *server); /* accepts NULL */

#endif
