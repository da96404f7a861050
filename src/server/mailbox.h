/* mailbox.h - how other threads speak to the loop: each posts a mail, the loop
 * delivers them in order. */
#ifndef CAIRN_SERVER_MAILBOX_H
#define CAIRN_SERVER_MAILBOX_H

#include "cairn/base.h"

struct event_base;

typedef struct cairn__mail { /* first member of what is sent; owned by the mailbox until delivered */
    struct cairn__mail *next;
    void (*deliver)(struct cairn__mail *mail); /* on the loop; the mail is the receiver's then */
} cairn__mail;

typedef struct cairn__mailbox cairn__mailbox;

CAIRN_MUST_USE cairn_status cairn__mailbox_create(struct event_base *base, cairn__mailbox **ret_box);
void cairn__mailbox_post(cairn__mailbox *box, cairn__mail *mail); /* any thread, never blocks for long */
void cairn__mailbox_deliver(cairn__mailbox *box);                 /* all that was posted, now; loop thread */
void cairn__mailbox_destroy(cairn__mailbox *box);                 /* delivers what is left; accepts NULL */

#endif
