/* routes.c - who answers which path. Methods and paths are checked before a body
 * is read. */
#include "server/server_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct route {
    const char *path;
    const char *method; /* GET serves HEAD too */
    void (*run)(cairn__server *server, cairn__conn *conn, char *body_take, size_t body_size);
} route;

static void health(cairn__server *server, cairn__conn *conn, char *body_take, size_t body_size)
{
    static const char ok[] = "{\"status\":\"ok\"}", stopping[] = "{\"status\":\"shutting down\"}";
    (void)body_size;
    free(body_take);
    if (server->stopping)
        cairn__conn_reply(conn, 503, "application/json", stopping, sizeof stopping - 1, false);
    else
        cairn__conn_reply(conn, 200, "application/json", ok, sizeof ok - 1, false);
}

static void front(cairn__server *server, cairn__conn *conn, char *body_take, size_t body_size)
{
    char text[512];
    (void)body_size;
    free(body_take);
    int n = snprintf(text, sizeof text,
                     "Cairn %s, serving %.200s\n\nOpenAI-compatible API under /v1: chat/completions, completions, "
                     "models. State: /health\n",
                     cairn_version(), server->options.model_name);
    cairn__conn_reply(conn, 200, "text/plain; charset=utf-8", text, (size_t)n, false);
}

static void models(cairn__server *server, cairn__conn *conn, char *body_take, size_t body_size)
{
    (void)body_size;
    free(body_take);
    cairn__reply_models(server, conn, NULL);
}

static void chat(cairn__server *server, cairn__conn *conn, char *body_take, size_t body_size)
{
    cairn__exchange_begin(server, conn, CAIRN__REQUEST_CHAT, body_take, body_size);
}

static void completions(cairn__server *server, cairn__conn *conn, char *body_take, size_t body_size)
{
    cairn__exchange_begin(server, conn, CAIRN__REQUEST_COMPLETION, body_take, body_size);
}

static const route routes[] = {
    {"/v1/chat/completions", "POST", chat},
    {"/v1/completions", "POST", completions},
    {"/v1/models", "GET", models},
    {"/health", "GET", health},
    {"/", "GET", front},
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

static bool on_head(void *ctx, cairn__conn *conn, const cairn__http_head *head)
{
    const route   *found   = find_route(head);
    bool           model   = !found && strncmp(head->path, MODEL_PREFIX, sizeof MODEL_PREFIX - 1) == 0;
    const char    *method  = found ? found->method : "GET";
    cairn__refusal refusal = {0};
    (void)ctx;
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
    const route *found = find_route(head);
    if (found) {
        found->run(ctx, conn, body_take, body_size);
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
