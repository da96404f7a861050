/* sink.h - where an engine's events land: copied on the engine's thread, handed
 * to their exchange on the loop. A sink lives until the job's last event was
 * delivered, whether or not its exchange does. */
#ifndef CAIRN_SERVER_SINK_H
#define CAIRN_SERVER_SINK_H

#include "engine/engine.h"
#include "server/mailbox.h"

typedef struct cairn__sink cairn__sink;

/* lost: an event before this one could not be copied for want of memory. */
typedef void (*cairn__sink_fn)(void *ctx, const cairn__event *event, bool lost);

/* NULL: out of memory. */
cairn__sink *cairn__sink_create(cairn__mailbox *box, cairn__sink_fn fn, void *ctx);
/* The engine's callback; ctx is the sink. */
void cairn__sink_event(void *ctx, const cairn__event *event);
/* Nobody listens from now on; the sink frees itself after the last event. Loop thread. */
void cairn__sink_detach(cairn__sink *sink);
/* For a sink that was never submitted. */
void cairn__sink_destroy(cairn__sink *sink);

#endif
