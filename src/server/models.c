/* models.c - GET /v1/models and /v1/models/NAME. */
#include "server/server_internal.h"

#include <stdlib.h>
#include <string.h>

static json_t *model_object(const cairn__server *server)
{
    const cairn__runtime *rt = cairn__engine_runtime(server->options.engine);
    return json_pack("{s:s,s:s,s:I,s:s,s:{s:I,s:I}}", "id", server->options.model_name, "object", "model", "created",
                     (json_int_t)server->started, "owned_by", "cairn", "meta", "n_ctx",
                     (json_int_t)cairn__runtime_n_ctx(rt), "n_vocab", (json_int_t)cairn__runtime_n_vocab(rt));
}

void cairn__reply_models(cairn__server *server, cairn__conn *conn, const char *name)
{
    cairn__refusal refusal = {0};
    if (name && strcmp(name, server->options.model_name) != 0) {
        cairn__refuse(&refusal, 404, "model_not_found", "model", "this server has one model, '%s'",
                      server->options.model_name);
        cairn__conn_reply_refusal(conn, &refusal, false);
        return;
    }
    json_t *object = model_object(server);
    if (!name)
        object = json_pack("{s:s,s:[o]}", "object", "list", "data", object);
    char *text = object ? cairn__json_print(object) : NULL;
    json_decref(object);
    if (text) {
        cairn__conn_reply(conn, 200, "application/json", text, strlen(text), false);
    } else {
        cairn__refuse_memory(&refusal);
        cairn__conn_reply_refusal(conn, &refusal, false);
    }
    free(text);
}
