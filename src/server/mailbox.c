/* mailbox.c - a list under a mutex and an eventfd that wakes the loop. */
#include "server/mailbox.h"

#include <event2/event.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct cairn__mailbox {
    pthread_mutex_t lock;
    cairn__mail    *first, **end;
    int             fd;
    struct event   *wake;
};

void cairn__mailbox_post(cairn__mailbox *box, cairn__mail *mail)
{
    uint64_t one = 1;
    mail->next   = NULL;
    pthread_mutex_lock(&box->lock);
    bool was_empty = box->first == NULL;
    *box->end      = mail;
    box->end       = &mail->next;
    pthread_mutex_unlock(&box->lock);
    /* Can't fail but for a full counter, which wakes as well. */
    if (was_empty && write(box->fd, &one, sizeof one) < 0)
        return;
}

void cairn__mailbox_deliver(cairn__mailbox *box)
{
    pthread_mutex_lock(&box->lock);
    cairn__mail *mail = box->first;
    box->first        = NULL;
    box->end          = &box->first;
    pthread_mutex_unlock(&box->lock);
    while (mail) {
        cairn__mail *next = mail->next;
        mail->deliver(mail);
        mail = next;
    }
}

static void on_wake(evutil_socket_t fd, short what, void *ctx)
{
    uint64_t count;
    (void)what;
    if (read(fd, &count, sizeof count) < 0)
        return;
    cairn__mailbox_deliver(ctx);
}

cairn_status cairn__mailbox_create(struct event_base *base, cairn__mailbox **ret_box)
{
    cairn__mailbox *box = calloc(1, sizeof *box);
    if (!box)
        return CAIRN_ENOMEM;
    pthread_mutex_init(&box->lock, NULL);
    box->end = &box->first;
    box->fd  = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (box->fd >= 0)
        box->wake = event_new(base, box->fd, EV_READ | EV_PERSIST, on_wake, box);
    if (!box->wake || event_add(box->wake, NULL) != 0) {
        cairn__mailbox_destroy(box);
        return CAIRN_ENOMEM;
    }
    *ret_box = box;
    return CAIRN_OK;
}

void cairn__mailbox_destroy(cairn__mailbox *box)
{
    if (!box)
        return;
    while (box->first)
        cairn__mailbox_deliver(box);
    if (box->wake)
        event_free(box->wake);
    if (box->fd >= 0)
        close(box->fd);
    pthread_mutex_destroy(&box->lock);
    free(box);
}
