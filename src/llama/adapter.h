/* adapter.h - what the files of libcairn-llama share.
 *
 *   open.c      checks the context, puts a cairn_llama together, takes it apart
 *   probe.c     which memory the context has, its blob's layout, the self-test
 *   identity.c  the identity; libraries.c the digests of the loaded runtime
 *   namespace.c whose pages a sequence reads and writes: identity by salt
 *   transfer.c  one run out of or into the runtime (the only two functions that
 *               call llama_state_seq_get_data and _set_data on pages)
 *   restore.c   store -> sequence      record.c   sequence -> store
 *   checkpoint.c  state at a position -> store
 *   fetch.c     the part of a restore that asks the disk; stored.c that of a recording
 *   errand.c    how both are waited for
 *   blob.c, layout.c, staging.c: see their headers
 *
 * A1 The scratch sequence is empty whenever a public function returns.
 * A2 A sequence passed to restore holds exactly [0, n) afterwards, n returned.
 * A3 Of an unsupported model nothing below touches the runtime.
 *
 * A4 The thread that owns a cairn_llama makes no call that may touch the disk of the
 *    store (errand.h), but for open and close.
 *
 * One thread owns a cairn_llama; the clerk looks up, pool threads only read pages
 * into staging buffers, the store's writer only reads from them. */
#ifndef CAIRN_LLAMA_ADAPTER_H
#define CAIRN_LLAMA_ADAPTER_H

#include "cairn/llama.h"
#include "llama/blob.h"
#include "llama/errand.h"
#include "llama/staging.h"

#define CAIRN__MAX_READERS 16u /* they reach 37 GB/s from the page cache, more gain nothing */
#define CAIRN__WINDOW_BYTES (1u << 20) /* what makes a device busy at once (bench/cold) */

/* The pages of one salt. */
typedef struct cairn__namespace {
    cairn_identity *identity;
    cairn_digest    seed; /* all its chain keys begin with it */
} cairn__namespace;

/* What is known of the prefix in one sequence, for record.c. */
typedef struct cairn__track {
    int32_t   *tokens;   /* [n_keys * page_tokens] that the keys were computed from */
    cairn_key *keys;     /* chain keys of the full pages */
    uint32_t   n_keys, capacity;
    uint32_t   n_stored; /* leading pages known to be in the store or queued */
    uint64_t   mark_ns;  /* when the last call for this sequence ended, 0: no such call */
    uint32_t   mark_tokens;
    uint32_t   checkpoint_tokens; /* where the last checkpoint was taken or restored */
    uint64_t   ns_per_token; /* in the last stretch of prefill, 0: unknown */

    bool             salted; /* by cairn_llama_set_salt(); else the cache's namespace holds */
    cairn_digest     salt;
    cairn__namespace space; /* when salted; without an identity: it could not be made */
} cairn__track;

struct cairn_llama {
    struct llama_model   *model;
    struct llama_context *ctx;
    llama_memory_t        memory;
    cairn_store          *store;
    cairn__namespace      space;   /* of the options' salt */
    cairn__layout        *layout;  /* of pages; NULL: the memory has none */
    cairn__layout        *partial; /* of checkpoints; NULL: it needs none. Both NULL: unsupported */
    /* What a checkpoint is: PARTIAL_ONLY, or all of a sequence whose memory is not known
     * well enough to cut (`partial` is opaque then, and there are no pages). */
    llama_state_seq_flags checkpoint_flags;
    uint8_t              *empty_partial; /* PARTIAL_ONLY blob of an unused sequence; with `partial` */
    uint64_t              empty_partial_size;
    char                  unsupported[256];

    llama_seq_id scratch;
    uint32_t     n_seq, n_ctx, page_tokens, run_tokens, grid_tokens;
    uint32_t     n_readers, n_cold_readers; /* of what is in memory, and of what the device has to give */

    cairn__pool    *pool, *cold_pool; /* n_readers and n_cold_readers */
    cairn__pool    *clerk; /* one thread */
    cairn__errand  *errand; /* NULL: none */
    uint64_t        patience_ns;
    cairn__staging *staging;
    uint64_t        stage_size;
    cairn__track   *tracks; /* [n_seq] */
    uint64_t        pages_given_up, checkpoints_given_up;
    uint32_t        n_silent; /* buffers that the writer held when a wait for it was in vain; 0: none was */
    uint64_t        checkpoint_bytes; /* of the largest so far */

    /* Work space of record.c: pages of one run and their blocks. */
    cairn_page  *pages;  /* [run pages] */
    cairn_block *blocks; /* [run pages][n_blocks] */
    uint32_t    *order;  /* [n_ctx]; also of transfer.c */
};

static inline bool cairn__is_supported(const cairn_llama *cache)
{
    return cache->layout || cache->partial;
}

/* ---- probe.c ---- */

/* Finds out which parts the memory has (attention, a window, recurrent state) and
 * their layouts, and proves the recipe for them in the scratch sequence. CAIRN_OK
 * with both layouts NULL and cache->unsupported set: not a memory that is known. Errors: CAIRN_EINVAL (scratch not empty), CAIRN_ENOMEM. */
CAIRN_MUST_USE cairn_status cairn__probe(cairn_llama *cache, cairn_error *error);

/* ---- identity.c, libraries.c ---- */

CAIRN_MUST_USE cairn_status cairn__identity_build(cairn_llama *cache, const cairn_llama_options *options,
                                                  cairn_error *error);
/* Adds one `runtime.NAME` line for each library of the runtime that is loaded. */
CAIRN_MUST_USE cairn_status cairn__identity_add_libraries(cairn_identity *identity);
/* True for devices that the KV of this context is computed on. */
bool cairn__device_in_use(const cairn_llama_options *options, ggml_backend_dev_t device);

/* ---- namespace.c ---- */

void cairn__namespace_init(const cairn_llama *cache, cairn__namespace *space, cairn_identity *identity_take);
void cairn__namespace_done(cairn__namespace *space); /* accepts one of zeros */
/* Of the sequence; NULL: it has none, so nothing may be restored or recorded. */
const cairn__namespace *cairn__namespace_of(const cairn_llama *cache, llama_seq_id seq);

/* ---- transfer.c ---- */

/* Imports the blob of positions [first_pos, first_pos + n_cells) that lies in
 * blob[0..size) behind what `seq` holds; straight into it when `seq_is_empty`.
 * Errors, with seq as it was before (and empty if it was): CAIRN_ECORRUPT (not
 * the blob it should be), CAIRN_ENOSPC (the runtime refused it: no room),
 * CAIRN_EINVAL (the scratch sequence holds something that is not ours). */
CAIRN_MUST_USE cairn_status cairn__import(cairn_llama *cache, llama_seq_id seq, bool seq_is_empty, const uint8_t *blob,
                                          uint64_t size, uint32_t first_pos, uint32_t n_cells);

/* Exports positions [first_pos, first_pos + n_cells) of `seq` into buf, which
 * has room for cairn__export_size(n_cells). order[n_cells]: see
 * cairn__blob_check_order(). False when the blob is not what the layout says or
 * the scratch sequence is in use; nothing is changed. */
CAIRN_MUST_USE bool cairn__export(cairn_llama *cache, llama_seq_id seq, uint32_t first_pos, uint32_t n_cells,
                                  uint8_t *buf, uint32_t *order);

/* Room that exporting n_cells needs: what lies behind the pages comes along. */
uint64_t cairn__export_size(const cairn_llama *cache, uint32_t n_cells);

/* Takes the checkpoint of `seq`, which holds exactly [0, n_tokens), into
 * buf[0..size), size being what the runtime says it has. False: it is not what
 * the layout says. */
CAIRN_MUST_USE bool cairn__take_partial(cairn_llama *cache, llama_seq_id seq, uint32_t n_tokens, uint8_t *buf,
                                        uint64_t size);
uint64_t            cairn__partial_size(const cairn_llama *cache, llama_seq_id seq);
/* Gives `seq`, whose pages hold [0, n_tokens), the checkpoint taken there. Errors,
 * with the sequence emptied: CAIRN_ECORRUPT, CAIRN_ENOSPC. */
CAIRN_MUST_USE cairn_status cairn__set_partial(cairn_llama *cache, llama_seq_id seq, uint32_t n_tokens,
                                               const uint8_t *blob, uint64_t size);

/* ---- stored.c ---- */

/* Whether pages[i] is stored or queued, into ret_stored[n]; one behind the other,
 * their tokens too. False: the disk does not answer, or out of memory. */
CAIRN_MUST_USE bool cairn__ask_stored(cairn_llama *cache, const cairn_identity *identity, const cairn_page *pages,
                                      uint32_t n, bool *ret_stored);

/* ---- record.c ---- */

/* Starts the clock for prefill costs: `seq` holds n_tokens now. */
void cairn__track_restored(cairn_llama *cache, llama_seq_id seq, uint32_t n_tokens);
/* Keys of the n_pages full pages of this prefix, in the track of `seq`: keeps what it
 * shares with the last one and adds the rest. False: out of memory, or no namespace. */
CAIRN_MUST_USE bool cairn__track_follow(cairn_llama *cache, llama_seq_id seq, const llama_token *tokens,
                                        uint32_t n_pages);
void cairn__track_done(cairn__track *track);

#endif
