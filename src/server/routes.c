/* routes.c - who answers which path. Keys, paths and methods are checked before a
 * body is read: without a key of the server's nobody makes it read or compute. */
#include "server/log.h"
#include "server/server_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct route {
    const char *path;
    const char *method; /* GET serves HEAD too */
    void (*run)(cairn__server *server, cairn__conn *conn, cairn__api_body body_take);
    bool open; /* asks for no key */
} route;

static void health(cairn__server *server, cairn__conn *conn, cairn__api_body body_take)
{
    static const char ok[] = "{\"status\":\"ok\"}"; /* one that stops has closed its port */
    (void)server;
    free(body_take.text);
    cairn__conn_reply(conn, 200, "application/json", ok, sizeof ok - 1, false);
}

static void front(cairn__server *server, cairn__conn *conn, cairn__api_body body_take)
{
    char text[512];
    free(body_take.text);
    int n = snprintf(text, sizeof text,
                     "Cairn %s, serving %.200s\n\nOpenAI-compatible API under /v1: chat/completions, completions, "
                     "models. State: /health\n",
                     cairn_version(), server->options.model_name);
    cairn__conn_reply(conn, 200, "text/plain; charset=utf-8", text, (size_t)n, false);
}

static void models(cairn__server *server, cairn__conn *conn, cairn__api_body body_take)
{
    free(body_take.text);
    cairn__reply_models(server, conn, NULL);
}

static void chat(cairn__server *server, cairn__conn *conn, cairn__api_body body_take)
{
    body_take.kind = CAIRN__REQUEST_CHAT;
    cairn__exchange_begin(server, conn, &body_take);
}

static void completions(cairn__server *server, cairn__conn *conn, cairn__api_body body_take)
{
    body_take.kind = CAIRN__REQUEST_COMPLETION;
    cairn__exchange_begin(server, conn, &body_take);
}

static const route routes[] = {
    {"/v1/chat/completions", "POST", chat, .open = false},
    {"/v1/completions", "POST", completions, .open = false},
    {"/v1/models", "GET", models, .open = false},
    {"/health", "GET", health, .open = true},
    {"/", "GET", front, .open = false},
};

#define MODEL_PREFIX "/v1/models/"

static const route *find_route(const cairn__http_head *head)
{
    for (size_t i = 0; i < sizeof routes / sizeof *routes && !head->path_cut; i++)
        if (strcmp(head->path, routes[i].path) == 0)
            return &routes[i];
    return NULL;
}

static bool method_fits(const char *wanted, const char *method)
{
    return strcmp(wanted, method) == 0 || (strcmp(wanted, "GET") == 0 && strcmp(method, "HEAD") == 0);
}

/* Whose request it is: *ret_tenant, NULL when the server has no keys. False: nobody's. */
static bool admit(const cairn__server *server, const cairn__http_head *head, const char **ret_tenant)
{
    *ret_tenant = server->options.keys ? cairn__keys_tenant(server->options.keys, head) : NULL;
    return !server->options.keys || *ret_tenant;
}

/* Before anything else, so that who has no key learns nothing of what there is. */
static bool refuse_stranger(cairn__conn *conn, const cairn__http_head *head)
{
    cairn__refusal refusal = {0};
    bool           none    = !head->authorization.text[0] && !head->api_key.text[0];
    cairn__log_line("a request without a %s: 401 invalid_api_key", none ? "key" : "known key");
    cairn__refuse(&refusal, 401, "invalid_api_key", NULL,
                  none ? "this server needs an API key: send 'Authorization: Bearer KEY'"
                       : "the API key is not one of this server's");
    cairn__conn_extra_header(conn, "WWW-Authenticate: Bearer");
    cairn__conn_reply_refusal(conn, &refusal, false);
    return false;
}

static bool on_head(void *ctx, cairn__conn *conn, const cairn__http_head *head)
{
    const route   *found   = find_route(head);
    bool           model   = !found && strncmp(head->path, MODEL_PREFIX, sizeof MODEL_PREFIX - 1) == 0;
    const char    *method  = found ? found->method : "GET";
    const char    *tenant;
    cairn__refusal refusal = {0};
    if (!(found && found->open) && !admit(ctx, head, &tenant))
        return refuse_stranger(conn, head);
    if (!found && !model)
        cairn__refuse(&refusal, 404, "not_found", NULL, "there is nothing at this path; see / for what there is");
    else if (!method_fits(method, head->method)) {
        cairn__refuse(&refusal, 405, "method_not_allowed", NULL, "this path takes %s", method);
        cairn__conn_extra_header(conn, strcmp(method, "POST") == 0 ? "Allow: POST" : "Allow: GET, HEAD");
    }
    if (refusal.http_status)
        cairn__conn_reply_refusal(conn, &refusal, false);
    return refusal.http_status == 0;
}

static void on_request(void *ctx, cairn__conn *conn, const cairn__http_head *head, char *body_take, size_t body_size)
{
    const route    *found = find_route(head);
    cairn__api_body body  = {.text = body_take, .size = body_size};
    if (found) {
        (void)admit(ctx, head, &body.tenant); /* on_head() said yes */
        found->run(ctx, conn, body);
        return;
    }
    free(body_take);
    cairn__reply_models(ctx, conn, head->path + sizeof MODEL_PREFIX - 1);
}

static void on_gone(void *ctx, cairn__conn *conn)
{
    cairn__exchange *exchange = cairn__conn_data(conn);
    (void)ctx;
    if (exchange)
        cairn__exchange_gone(exchange);
}

static void on_tick(void *ctx)
{
    cairn__exchange_tick(ctx);
}

cairn__http_ops cairn__routes(cairn__server *server)
{
    return (cairn__http_ops){on_head, on_request, on_gone, on_tick, server};
}
