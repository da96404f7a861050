/* llama.h - durable prefix caching for a program on stock llama.cpp.
 *
 *     cairn_llama *cache;
 *     cairn_llama_open(model, ctx, &options, &cache, &error);
 *     ...
 *     uint32_t n = 0;
 *     cairn_llama_restore(cache, seq, tokens, n_tokens, &n);   // KV of [0,n) is in seq
 *     for (each llama_decode of a chunk of the rest)
 *         cairn_llama_record(cache, seq, tokens, n_decoded);   // pages leave while prefill runs
 *     cairn_llama_record_end(cache, seq, tokens, n_decoded);   // and the short last page
 *     cairn_llama_close(cache);
 *
 * All calls that take a cache belong to the one thread that calls
 * llama_decode() on its context. Links libcairn-llama. */
#ifndef CAIRN_LLAMA_H
#define CAIRN_LLAMA_H

#include "cairn/store.h"
#include <llama.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cairn_llama cairn_llama; /* opaque */

typedef struct cairn_llama_adapter { /* a LoRA adapter set on the context */
    const char *path;
    float       scale;
} cairn_llama_adapter;

typedef struct cairn_llama_options {
    /* What the model and the context were created from: KV depends on it and
     * llama.cpp has no way to ask. Both required; copied. */
    const struct llama_model_params   *model_params;
    const struct llama_context_params *context_params;
    const char *const                 *model_paths; /* all shards, in order; required */
    uint32_t                           n_model_paths;
    const cairn_llama_adapter         *adapters; /* as set by llama_set_adapters_lora; NULL: none */
    uint32_t                           n_adapters;
    const char                        *salt; /* tenant of all sequences, see cairn_llama_set_salt(); NULL: none */

    cairn_store *store;        /* borrowed; must outlive the cache */
    llama_seq_id scratch_seq;  /* a sequence id nobody else uses; 0: n_seq_max - 1 */
    uint32_t     run_tokens;   /* tokens per import or export; 0: what fills 8 MiB, or 128 MiB of pinned memory */
    /* Threads that read ahead; 0: one less than cores, at most 16. Of what is not in
     * memory at least 4 read: they sleep. */
    uint32_t     n_readers;
    uint32_t     grid_tokens;  /* > 0: reproducible, see DESIGN: restores and pages end on this grid */
    bool         pageable;     /* do not use memory pinned for the device (for measurements) */
    uint32_t     patience_ms;  /* a disk that does nothing for so long is not waited for; 0: 2,000 */
    /* Weights digest. NULL: computed by open, with its progress given here. */
    const cairn_digest *weights;
    bool (*progress)(void *ctx, uint64_t done_bytes, uint64_t total_bytes);
    void *progress_ctx;
} cairn_llama_options;

/* Finds out which memory the context has and whether the recipe for it holds
 * (a self-test of some tokens in scratch_seq, which must be empty).
 * Refuses a context in which it can't run and names the parameters to set:
 * kv_unified must be true and n_seq_max at least 2. A model whose memory is not
 * attention alone opens, restores nothing, and says why in
 * cairn_llama_unsupported(). Errors: CAIRN_EINVAL, CAIRN_EIO, CAIRN_ENOMEM,
 * CAIRN_ECANCELED; `error` has the text. */
CAIRN_API CAIRN_MUST_USE cairn_status cairn_llama_open(struct llama_model *model, struct llama_context *ctx,
                                                       const cairn_llama_options *options, cairn_llama **ret_cache,
                                                       cairn_error *error);
/* Accepts NULL; does not close the store. Waits for calls that hang with the disk. */
CAIRN_API void cairn_llama_close(cairn_llama *cache);

/* NULL when pages can be stored; else a sentence why not. */
CAIRN_API const char *cairn_llama_unsupported(const cairn_llama *cache);
CAIRN_API const cairn_identity *cairn_llama_identity(const cairn_llama *cache); /* NULL when unsupported */

/* The tenant that `seq` belongs to from now on: what is recorded from it is found
 * under the same salt alone, and so is what is restored into it. NULL: the
 * options' salt, as after open. KV of another tenant must have been removed from
 * the sequence, and none may be copied into it. Costs a hash when nothing
 * changes, else tens of microseconds. Errors: CAIRN_EINVAL, CAIRN_ENOMEM; after
 * CAIRN_ENOMEM the sequence belongs to nobody: it restores and records nothing
 * until a call succeeds. */
CAIRN_API CAIRN_MUST_USE cairn_status cairn_llama_set_salt(cairn_llama *cache, llama_seq_id seq, const char *salt);

typedef struct cairn_llama_restored {
    uint32_t   n_tokens;     /* KV of [0, n_tokens) is in the sequence now */
    uint32_t   from_store;   /* of them, tokens that came from the store */
    uint64_t   bytes;        /* payload imported */
    uint64_t   elapsed_ns;
    cairn_miss miss;         /* why not more */
    uint64_t   evicted_s;    /* with CAIRN_MISS_EVICTED: how long ago, seconds */
    uint32_t   shared;       /* leading tokens that some earlier prompt had too, as far as pages tell; with
                              * checkpoints it can be more than n_tokens, and one there will serve the next */
} cairn_llama_restored;

/* Brings KV for the longest stored prefix of tokens[0..n_tokens) into `seq`.
 * The sequence must hold positions 0..n_resident-1 of the same tokens, without a
 * gap, and nothing else; n_resident may be 0. At most n_tokens - 1 are restored, so that
 * the caller always decodes one token and gets logits. Never fails a request:
 * CAIRN_OK with n_tokens == n_resident is a miss. After an error of the runtime
 * the sequence holds exactly [0, ret->n_tokens).
 * The calling thread does not touch the disk. When nothing comes from it for
 * patience_ms, or less than 1 MiB/s on the whole, the rest is left to be computed,
 * CAIRN_MISS_TIMEOUT; until the calls that hang have returned, the same is said at
 * once, without another wait.
 * Errors: CAIRN_EINVAL only. */
CAIRN_API CAIRN_MUST_USE cairn_status cairn_llama_restore(cairn_llama *cache, llama_seq_id seq,
                                                          const llama_token *tokens, uint32_t n_tokens,
                                                          uint32_t n_resident, cairn_llama_restored *ret_restored);

/* The same for a prompt that nobody waits for: go_on is asked before each run (8 MiB, or
 * run_tokens) and every 20 ms while the disk is waited for, by the calling thread; once
 * it says no, what was brought so far is the result, as if no more were stored:
 * CAIRN_MISS_STOPPED. A sequence with checkpoints is empty then. */
CAIRN_API CAIRN_MUST_USE cairn_status cairn_llama_restore_ahead(cairn_llama *cache, llama_seq_id seq,
                                                                const llama_token *tokens, uint32_t n_tokens,
                                                                uint32_t n_resident, bool (*go_on)(void *ctx), void *ctx,
                                                                cairn_llama_restored *ret_restored);

/* Prompts to begin with, by cairn_llama_restore_ahead(): those that the process before
 * noted, under the options' salt. See cairn_store_note_recent(). A disk that does not
 * answer for patience_ms is not waited for: none. Free *ret_prompts, which is one block,
 * with free(). Errors: CAIRN_EINVAL, CAIRN_ENOMEM. */
CAIRN_API CAIRN_MUST_USE cairn_status cairn_llama_recent(cairn_llama *cache, cairn_prompt **ret_prompts,
                                                         uint32_t *ret_n_prompts);
CAIRN_API CAIRN_MUST_USE cairn_status cairn_llama_note_recent(cairn_llama *cache, const cairn_prompt *prompts,
                                                              uint32_t n_prompts);

/* Offers the complete pages of [0, n_tokens), all decoded into `seq` at these
 * positions and behind exactly these tokens, to the store. A sequence whose
 * positions were changed (llama_memory_seq_add, _div: context shift) is not that,
 * whatever its tokens read like, and must not be recorded any more. Pages already stored cost one stat each; others are exported while the
 * writer has room, the rest at the next call. Never fails a request.
 * In reproducible mode only pages whose grid chunk is complete are taken, and
 * n_tokens must count prefilled tokens alone. */
CAIRN_API void cairn_llama_record(cairn_llama *cache, llama_seq_id seq, const llama_token *tokens, uint32_t n_tokens);
/* The same for the end of a prompt or answer: also the short last page (not in
 * reproducible mode), waiting up to 2 s for the writer to have room; what does
 * not fit then is given up from the end backwards and counted. */
CAIRN_API void cairn_llama_record_end(cairn_llama *cache, llama_seq_id seq, const llama_token *tokens,
                                      uint32_t n_tokens);
/* More than 0 for a model with sliding windows or recurrent state: such state can't be
 * cut by token range, so restores end at positions where a checkpoint was taken. The
 * size of the largest one yet; windows grow until they are full. */
CAIRN_API uint64_t cairn_llama_checkpoint_bytes(const cairn_llama *cache);
/* For such a model, after a llama_decode() that ended at n_tokens and the
 * cairn_llama_record() of it: takes the state of `seq`, which holds exactly
 * tokens[0..n_tokens), into the store, and puts it back in place as a restore
 * would, so that what follows has the same bits either way. Worth calling where
 * later prompts are likely to part from this one: at the end of a system prompt, of
 * a message, and before the last token of a prompt. Without a need, or at another
 * position, it does nothing. Costs two copies of the state and a put; no room for
 * it is counted and no failure. False: the runtime lost the state, and the sequence
 * is empty. */
CAIRN_API CAIRN_MUST_USE bool cairn_llama_checkpoint(cairn_llama *cache, llama_seq_id seq, const llama_token *tokens,
                                                     uint32_t n_tokens);
CAIRN_API uint64_t cairn_llama_checkpoints_given_up(const cairn_llama *cache);
/* Pages that record_end gave up so far. */
CAIRN_API uint64_t cairn_llama_pages_given_up(const cairn_llama *cache);

#ifdef __cplusplus
}
#endif
#endif
