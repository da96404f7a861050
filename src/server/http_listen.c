/* http_listen.c - the address, the listener, and the connections as a whole. */
#include "server/http_internal.h"
#include "os/clock.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* A reader that stalls would otherwise hide 4 MB in the kernel; with these the
 * backlog stays where it is counted (measured, see the project's dependency notes). */
#define SEND_BUFFER 262144
#define NOTSENT_LOWAT 131072

/* ---- binding ---- */

static int bind_one(const struct addrinfo *address)
{
    int fd = socket(address->ai_family, address->ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int on = 1;
    if (fd < 0)
        return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, address->ai_addr, address->ai_addrlen) == 0)
        return fd;
    int why = errno;
    close(fd);
    errno = why;
    return -1;
}

static uint16_t port_of(int fd)
{
    struct sockaddr_storage address;
    socklen_t               size = sizeof address;
    if (getsockname(fd, (struct sockaddr *)&address, &size) != 0)
        return 0;
    /* NOLINTNEXTLINE(clang-analyzer-core.*): getsockname() has filled it */
    return ntohs(address.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&address)->sin6_port
                                               : ((struct sockaddr_in *)&address)->sin_port);
}

static int bind_address(const char *host, uint16_t port, cairn_error *error)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *list = NULL;
    char            service[8];
    snprintf(service, sizeof service, "%u", port);
    int code = getaddrinfo(host, service, &hints, &list);
    if (code != 0) {
        snprintf(error->text, sizeof error->text, "--host %s: %s", host, gai_strerror(code));
        return -1;
    }
    int fd = -1;
    for (struct addrinfo *a = list; a && fd < 0; a = a->ai_next)
        fd = bind_one(a);
    int why = errno;
    freeaddrinfo(list);
    if (fd < 0 && why == EADDRINUSE)
        snprintf(error->text, sizeof error->text,
                 "port %u on %s is in use by another program; stop it or choose another with --port", port, host);
    else if (fd < 0)
        snprintf(error->text, sizeof error->text, "can't listen on %s port %u: %s", host, port, strerror(why));
    return fd;
}

cairn_status cairn__http_bind(const cairn__http_options *options, cairn__http **ret_http, cairn_error *error)
{
    cairn_error  none;
    cairn_error *text = error ? error : &none;
    const char  *host = options->host ? options->host : "127.0.0.1";
    int          fd   = bind_address(host, options->port, text);
    if (fd < 0)
        return CAIRN_EINVAL;
    cairn__http *http = calloc(1, sizeof *http);
    if (!http) {
        close(fd);
        return CAIRN_ENOMEM;
    }
    http->fd              = fd;
    http->port            = port_of(fd);
    http->max_body_size   = options->max_body_size ? options->max_body_size : (uint64_t)32 << 20;
    http->read_timeout_ns = (options->read_timeout_s ? options->read_timeout_s : 15) * 1000000000ull;
    http->max_connections = options->max_connections ? options->max_connections : 1024;
    *ret_http             = http;
    return CAIRN_OK;
}

uint16_t cairn__http_port(const cairn__http *http)
{
    return http->port;
}

/* ---- accepting ---- */

/* The connection that has waited longest without a request, to make room. */
static cairn__conn *oldest_idle(const cairn__http *http)
{
    cairn__conn *oldest = NULL;
    for (cairn__conn *conn = http->first; conn; conn = conn->next)
        if ((conn->state == CONN_HEAD || conn->state == CONN_LINGER) && (!oldest || conn->since_ns < oldest->since_ns))
            oldest = conn;
    return oldest;
}

static void on_accept(struct evconnlistener *listener, evutil_socket_t fd, struct sockaddr *address, int size,
                      void *ctx)
{
    cairn__http *http = ctx;
    int          on = 1, send_buffer = SEND_BUFFER, lowat = NOTSENT_LOWAT;
    (void)listener, (void)address, (void)size;
    if (http->n_conns >= http->max_connections) {
        cairn__conn *oldest = oldest_idle(http);
        if (!oldest) {
            evutil_closesocket(fd);
            return;
        }
        cairn__conn_close(oldest);
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &send_buffer, sizeof send_buffer);
    setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &lowat, sizeof lowat);
    (void)cairn__conn_create(http, fd); /* NULL: out of memory, the client sees a closed connection */
}

/* Out of descriptors, most likely: give up an idle one; the next accept tries again. */
static void on_accept_error(struct evconnlistener *listener, void *ctx)
{
    cairn__http *http   = ctx;
    cairn__conn *oldest = oldest_idle(http);
    (void)listener;
    if (oldest)
        cairn__conn_close(oldest);
    else
        usleep(1000); /* else the loop would spin; 1 ms is not felt */
}

static void on_tick(evutil_socket_t fd, short what, void *ctx)
{
    cairn__http *http = ctx;
    uint64_t     now  = cairn__monotonic_ns();
    (void)fd, (void)what;
    for (cairn__conn *conn = http->first, *next; conn; conn = next) {
        next = conn->next;
        cairn__conn_check_deadline(conn, now);
    }
    http->ops.tick(http->ops.ctx);
}

static void on_reap(evutil_socket_t fd, short what, void *ctx)
{
    cairn__http *http = ctx;
    (void)fd, (void)what;
    while (http->dead) {
        cairn__conn *conn = http->dead;
        http->dead        = conn->next;
        cairn__conn_free(conn);
    }
}

cairn_status cairn__http_start(cairn__http *http, struct event_base *base, const cairn__http_ops *ops)
{
    struct timeval second = {1, 0};
    http->ops             = *ops;
    http->base            = base;
    http->tick            = event_new(base, -1, EV_PERSIST, on_tick, http);
    http->reap            = event_new(base, -1, 0, on_reap, http);
    if (!http->tick || !http->reap || event_add(http->tick, &second) != 0)
        return CAIRN_ENOMEM;
    http->listener = evconnlistener_new(base, on_accept, http, LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC, 1024,
                                        http->fd);
    if (!http->listener) /* another program bound the port at the same time and listens already */
        return CAIRN_EBUSY;
    http->fd = -1;
    evconnlistener_set_error_cb(http->listener, on_accept_error);
    return CAIRN_OK;
}

/* ---- ending ---- */

void cairn__http_stop(cairn__http *http)
{
    http->stopping = true;
    if (http->listener)
        evconnlistener_free(http->listener);
    http->listener = NULL;
    for (cairn__conn *conn = http->first, *next; conn; conn = next) {
        next = conn->next;
        if (conn->state == CONN_HEAD)
            cairn__conn_close(conn);
    }
}

size_t cairn__http_connections(const cairn__http *http)
{
    return http->n_conns;
}

void cairn__http_destroy(cairn__http *http)
{
    if (!http)
        return;
    while (http->first)
        cairn__conn_close(http->first);
    if (http->reap)
        on_reap(-1, 0, http);
    if (http->listener)
        evconnlistener_free(http->listener);
    if (http->tick)
        event_free(http->tick);
    if (http->reap)
        event_free(http->reap);
    if (http->fd >= 0)
        close(http->fd);
    free(http);
}
