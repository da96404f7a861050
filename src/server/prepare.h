/* prepare.h - the worker thread that turns bodies into jobs, so that a megabyte
 * of JSON, a slow template or a large grammar never holds up the loop. */
#ifndef CAIRN_SERVER_PREPARE_H
#define CAIRN_SERVER_PREPARE_H

#include "server/mailbox.h"
#include "server/request.h"

#include <stdatomic.h>

typedef struct cairn__preparer cairn__preparer;

typedef struct cairn__preparation {
    cairn__mail                mail; /* posted when done; deliver is set by who submits */
    struct cairn__preparation *next;
    cairn__api_body            body; /* its text is owned */
    atomic_bool                abandoned; /* nobody waits: skip the work, still post */
    cairn__api_request            *request;   /* result: one of the two */
    cairn__refusal             refusal;
    void                      *owner; /* the submitter's, loop thread */
} cairn__preparation;

CAIRN_MUST_USE cairn_status cairn__preparer_create(const cairn__api_request_env *env, cairn__mailbox *box,
                                                   cairn__preparer **ret_preparer);
/* CAIRN_EBUSY: too many wait. On success the preparation comes back as mail. */
CAIRN_MUST_USE cairn_status cairn__preparer_submit(cairn__preparer *preparer, cairn__preparation *preparation_take);
void cairn__preparer_destroy(cairn__preparer *preparer); /* posts what is queued, unprepared; accepts NULL */

void cairn__preparation_destroy(cairn__preparation *preparation); /* accepts NULL */

#endif
