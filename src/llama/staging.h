/* staging.h - the few large buffers that runs pass through.
 *
 * All have one size, given at birth; their number bounds the adapter's memory.
 * On a GPU they come from the device's host buffer type, which copies 5 times
 * faster than pageable memory (LLAMA_CPP.md: 39 against 7 GB/s); where that
 * fails, and on the CPU, they are plain memory on huge pages. Allocating and
 * first touching is slow (0.9 GB/s; pinned 0.5 s per GiB), so it happens once,
 * on pool threads while the program starts.
 *
 * A buffer belongs to who acquired it until it is released, from any thread.
 * The set lives until its owner has dropped it and every buffer came back: a
 * writer may still read from one after the adapter was closed. */
#ifndef CAIRN_LLAMA_STAGING_H
#define CAIRN_LLAMA_STAGING_H

#include "os/pool.h"

#include <ggml-backend.h>

typedef struct cairn__staging cairn__staging;
typedef struct cairn__stage   cairn__stage; /* one buffer */

/* pinned: NULL for plain memory. n_warm buffers are made by tasks on `pool`,
 * which must be destroyed (and so drained) before the set is dropped. */
typedef struct cairn__staging_options {
    uint32_t                   n_buffers, n_warm;
    uint64_t                   size;
    ggml_backend_buffer_type_t pinned;
} cairn__staging_options;
CAIRN_MUST_USE cairn_status cairn__staging_create(const cairn__staging_options *options, cairn__pool *pool,
                                                  cairn__staging **ret_staging);
/* Until the n_warm buffers are made: else the first restore waits for them. */
void cairn__staging_warmed(cairn__staging *staging, cairn__pool *pool);
void cairn__staging_drop(cairn__staging *staging); /* accepts NULL */

/* A free buffer, or NULL: all in use, or out of memory. Makes one that was not
 * made yet and waits for one that is being made; _ready takes only what is there
 * at once. */
cairn__stage *cairn__stage_acquire(cairn__staging *staging);
cairn__stage *cairn__stage_acquire_ready(cairn__staging *staging);
uint8_t      *cairn__stage_data(cairn__stage *stage);
void          cairn__stage_release(void *stage); /* accepts NULL; a put's release callback */

/* Waits until a buffer comes back, at most timeout_ms. */
void     cairn__staging_wait(cairn__staging *staging, uint32_t timeout_ms);
uint32_t cairn__staging_in_use(cairn__staging *staging);

#endif
