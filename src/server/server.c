/* server.c - the loop, and how it ends.
 *
 * A signal: accept no more, refuse new requests, and let a thread of its own stop
 * the engine, since that waits for the running answer while the loop must go on
 * delivering it. When the engine has ended all its events are in the mailbox; the
 * loop then gives clients a moment to take what is queued for them. With a disk that
 * hangs the process ends all the same (leave.h). */
#include "server/leave.h"
#include "server/log.h"
#include "server/server_internal.h"
#include "os/clock.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define STOP_MS 45000u /* beside the grace time: 30 s for the write queue, the rest for what hangs */
#define DRAIN_ROUND_MS 20
#define DRAIN_ROUNDS 100 /* 2 s for clients to take the end of their answers */

typedef struct stopped_mail {
    cairn__mail    mail;
    cairn__server *server;
} stopped_mail;

static void on_drain(evutil_socket_t fd, short what, void *ctx)
{
    cairn__server *server = ctx;
    struct timeval pause  = {0, DRAIN_ROUND_MS * 1000};
    (void)fd, (void)what;
    if ((server->first || cairn__http_connections(server->http)) && server->drain_rounds++ < DRAIN_ROUNDS)
        event_add(server->drain, &pause);
    else
        event_base_loopbreak(server->base);
}

static void on_stopped(cairn__mail *mail)
{
    stopped_mail *stopped    = (stopped_mail *)mail;
    stopped->server->stopped = true;
    on_drain(-1, 0, stopped->server);
    free(stopped);
}

static void *stop_engine(void *ctx)
{
    stopped_mail  *stopped = ctx;
    cairn__server *server  = stopped->server;
    cairn__engine_stop(server->options.engine, server->options.grace_ms);
    cairn__mailbox_post(server->box, &stopped->mail);
    return NULL;
}

static void on_signal(evutil_socket_t signal_number, short what, void *ctx)
{
    cairn__server *server = ctx;
    pthread_t      thread;
    (void)what;
    if (server->stopping)
        _exit(128 + (int)signal_number); /* asked twice: now */
    server->stopping      = true;
    stopped_mail *stopped = calloc(1, sizeof *stopped);
    cairn__log_line("stopping: %s; a second signal ends at once",
                    server->first ? "the running answer may end" : "writing out what is queued");
    cairn__leave_within(server->options.grace_ms + STOP_MS, 0);
    cairn__http_stop(server->http);
    if (stopped)
        *stopped = (stopped_mail){.mail = {.deliver = on_stopped}, .server = server};
    if (!stopped || pthread_create(&thread, NULL, stop_engine, stopped) != 0) {
        free(stopped);
        cairn__engine_stop(server->options.engine, 0);
        event_base_loopbreak(server->base);
        return;
    }
    pthread_detach(thread);
}

static void on_reload(evutil_socket_t signal_number, short what, void *ctx)
{
    cairn__server *server = ctx;
    (void)signal_number, (void)what;
    server->options.reload(server->options.reload_ctx);
}

static bool watch_signal(cairn__server *server, int i, int number, event_callback_fn act)
{
    server->signals[i] = evsignal_new(server->base, number, act, server);
    return server->signals[i] && event_add(server->signals[i], NULL) == 0;
}

static bool watch_signals(cairn__server *server)
{
    signal(SIGPIPE, SIG_IGN);
    if (!watch_signal(server, 0, SIGTERM, on_signal) || !watch_signal(server, 1, SIGINT, on_signal) ||
        (server->options.reload && !watch_signal(server, 2, SIGHUP, on_reload)))
        return false;
    server->drain = evtimer_new(server->base, on_drain, server);
    return server->drain != NULL;
}

static cairn_status start(cairn__server *server, cairn_error *error)
{
    const cairn__server_options *o   = &server->options;
    cairn__http_ops              ops = cairn__routes(server);
    cairn__api_request_env           env = {.rt           = cairn__engine_runtime(o->engine),
                                        .chat         = o->chat,
                                        .chat_error   = o->chat_error,
                                        .reproducible = o->reproducible};
    server->base                     = event_base_new();
    cairn_status status              = server->base && watch_signals(server) ? CAIRN_OK : CAIRN_ENOMEM;
    if (status == CAIRN_OK)
        status = cairn__mailbox_create(server->base, &server->box);
    if (status == CAIRN_OK)
        status = cairn__preparer_create(&env, server->box, &server->preparer);
    if (status == CAIRN_OK)
        status = cairn__http_start(server->http, server->base, &ops);
    if (status == CAIRN_EBUSY)
        snprintf(error->text, sizeof error->text,
                 "port %u is in use by another program; stop it or choose another with --port",
                 cairn__http_port(server->http));
    else if (status != CAIRN_OK)
        snprintf(error->text, sizeof error->text, "can't start the server: %s", cairn_status_text(status));
    return status;
}

cairn_status cairn__server_create(const cairn__server_options *options, cairn__server **ret_server, cairn_error *error)
{
    cairn__server *server = calloc(1, sizeof *server);
    if (!server) {
        cairn__http_destroy(options->http);
        snprintf(error->text, sizeof error->text, "out of memory");
        return CAIRN_ENOMEM;
    }
    server->options     = *options;
    server->http        = options->http;
    server->started     = cairn__wall_seconds();
    cairn_status status = start(server, error);
    if (status == CAIRN_OK)
        *ret_server = server;
    else
        cairn__server_destroy(server);
    return status;
}

void cairn__server_run(cairn__server *server)
{
    event_base_dispatch(server->base);
    cairn__log_line("stopped");
}

/* Exchanges that still run are ended as if their clients had left. */
static void end_exchanges(cairn__server *server)
{
    while (server->first)
        cairn__exchange_gone(server->first);
}

void cairn__server_destroy(cairn__server *server)
{
    if (!server)
        return;
    end_exchanges(server);
    cairn__preparer_destroy(server->preparer);
    cairn__mailbox_destroy(server->box);
    cairn__http_destroy(server->http);
    for (size_t i = 0; i < sizeof server->signals / sizeof server->signals[0]; i++)
        if (server->signals[i])
            event_free(server->signals[i]);
    if (server->drain)
        event_free(server->drain);
    if (server->base)
        event_base_free(server->base);
    free(server);
}
