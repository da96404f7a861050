/* runtime.h - the model and its one context, without llama.h.
 *
 * The engine and everything above it see llama.cpp through this header,
 * sampler.h and chat.h alone. One thread at a time uses a runtime, except the
 * functions marked [any thread], which read the immutable vocabulary. */
#ifndef CAIRN_LLAMA_RUNTIME_H
#define CAIRN_LLAMA_RUNTIME_H

#include "cairn/base.h"
#include "cairn/store.h"

#ifdef __cplusplus
extern "C" {
#endif

struct llama_model;
typedef struct cairn__runtime cairn__runtime;

/* Tokens per decode call: llama.cpp's own default; larger gains little on a CPU. */
#define CAIRN__BATCH_DEFAULT 512u

typedef enum cairn__kv_type { CAIRN__KV_F16, CAIRN__KV_Q8_0, CAIRN__KV_Q4_0, CAIRN__KV_F32, CAIRN__KV_BF16 } cairn__kv_type;

typedef struct cairn__runtime_options { /* zero value = defaults */
    const char    *model_path;
    uint32_t       n_ctx;        /* tokens in all sequences together; 0: the model's, at most 32,768 */
    uint32_t       n_batch;      /* tokens per decode call = per ubatch; 0: 512 */
    uint32_t       n_seq;        /* resident sequences, beside one scratch sequence; 0: 4, with windows 2 */
    int32_t        n_threads;    /* 0: cores */
    int32_t        n_gpu_layers; /* -1: all */
    int            flash_attn;   /* -1 off, 0 auto, 1 on */
    cairn__kv_type type_k, type_v;
    bool           reproducible;
    uint32_t       patience_ms;  /* for a disk that does nothing, see cairn/llama.h; 0: 2,000 */
    bool (*load_progress)(void *ctx, float fraction); /* false cancels */
    void *load_progress_ctx;
} cairn__runtime_options;

/* Whether the model's files are there and GGUF, without opening them as a model:
 * so that a wrong path is refused before anything is made for it. Errors:
 * CAIRN_ENOENT, CAIRN_EACCES, CAIRN_EINVAL, CAIRN_EIO, CAIRN_ENOMEM. */
CAIRN_MUST_USE cairn_status cairn__runtime_check_model(const char *path, cairn_error *error);

/* Opens model and context. The cache part (weights digest, self-test) is
 * attached later by cairn__runtime_attach_store(), so that a server can listen
 * while a large model is hashed. Errors carry a text for the operator. */
CAIRN_MUST_USE cairn_status cairn__runtime_open(const cairn__runtime_options *options, cairn__runtime **ret_runtime,
                                                cairn_error *error);
void                        cairn__runtime_close(cairn__runtime *rt);

/* Shards of the model, first to last, for the weights digest. Borrowed. */
const char *const *cairn__runtime_model_paths(const cairn__runtime *rt, uint32_t *ret_n);
uint64_t cairn__runtime_model_bytes(const cairn__runtime *rt); /* size of all shards */
/* False when a model file was replaced or rewritten since it was opened. */
bool cairn__runtime_model_unchanged(const cairn__runtime *rt);
CAIRN_MUST_USE cairn_status cairn__runtime_attach_store(cairn__runtime *rt, cairn_store *store,
                                                        const cairn_digest *weights, cairn_error *error);
/* NULL when the model's state can be stored, else why not; NULL before attach. */
const char *cairn__runtime_unsupported(const cairn__runtime *rt);

/* ---- facts [any thread] ---- */
uint32_t    cairn__runtime_n_ctx(const cairn__runtime *rt);
uint32_t    cairn__runtime_n_batch(const cairn__runtime *rt);
uint32_t    cairn__runtime_n_seq(const cairn__runtime *rt);
uint32_t    cairn__runtime_n_vocab(const cairn__runtime *rt);
const char *cairn__runtime_description(const cairn__runtime *rt);
/* A sentence for the operator about an unwise setting (context longer than
 * trained), or NULL. */
const char *cairn__runtime_warning(const cairn__runtime *rt);
/* True when a sequence can be restored at some positions only: see marks of a job. */
bool        cairn__runtime_needs_checkpoints(const cairn__runtime *rt);
bool        cairn__runtime_reproducible(const cairn__runtime *rt);
/* For the other files of src/llama only (chat templates). Borrowed. */
const struct llama_model *cairn__runtime_model(const cairn__runtime *rt);

/* ---- tokens [any thread] ---- */
/* *ret_tokens is malloc()ed. add_special: BOS as the model wants it;
 * parse_special: text of control tokens becomes control tokens. */
CAIRN_MUST_USE cairn_status cairn__tokenize(const cairn__runtime *rt, const char *text, size_t text_size,
                                            bool add_special, bool parse_special, int32_t **ret_tokens,
                                            uint32_t *ret_n_tokens); /* CAIRN_ENOTSUP: no tokenizer */
/* Bytes of one token into buf; returns the size, 0 for tokens without text
 * (control tokens unless `special`). buf_size >= 256 is always enough. */
size_t cairn__token_piece(const cairn__runtime *rt, int32_t token, bool special, char *buf, size_t buf_size);
bool   cairn__token_is_eog(const cairn__runtime *rt, int32_t token);

/* ---- sequences ---- */
/* Decodes tokens [0,n) at positions pos.. of seq in one call; n <= n_batch.
 * want_logits: for the last token. CAIRN_EBUSY: no free cells (nothing
 * changed); CAIRN_ECANCELED: abort flag; CAIRN_ERUNTIME otherwise (the sequence
 * must be removed). */
CAIRN_MUST_USE cairn_status cairn__decode(cairn__runtime *rt, uint32_t seq, const int32_t *tokens, uint32_t n,
                                          uint32_t pos, bool want_logits);
/* Logits of the last decode, [n_vocab] f32; valid until the next. */
const float *cairn__logits(cairn__runtime *rt);
/* First error line that llama.cpp printed since the last cairn__decode() or
 * cairn__runtime_open() began; "" if none. Copied into buf. [any thread] */
void cairn__runtime_last_error(char *buf, size_t buf_size);
/* Set from any thread to make a running decode return CAIRN_ECANCELED (CPU). */
void cairn__runtime_abort(cairn__runtime *rt, bool abort);

/* Removes positions [from, end) of seq. False when the memory can't cut there
 * (recurrent, window): remove the whole sequence then (from 0 always works). */
bool cairn__seq_cut(cairn__runtime *rt, uint32_t seq, uint32_t from);
/* dst := positions [0,n) of src, sharing cells. dst must be empty. False as above. */
bool cairn__seq_fork(cairn__runtime *rt, uint32_t src, uint32_t dst, uint32_t n);
void cairn__runtime_clear(cairn__runtime *rt); /* all sequences */
/* Takes state that can't be cut (windows, recurrent) out of seq and puts it back, so
 * that it lies as after a restore: the bits of what follows depend on it. Other
 * models: nothing. False: it was lost, remove the sequence. */
CAIRN_MUST_USE bool cairn__seq_settle(cairn__runtime *rt, uint32_t seq);

/* Restore and record through cairn/llama.h; no-ops without a store. Both under
 * one salt (zeros: none), which must be that of all tokens in the sequence: what
 * was recorded under a salt is restored under it alone. */
typedef struct cairn__restored {
    uint32_t   n_tokens, from_store;
    uint64_t   bytes, elapsed_ns;
    cairn_miss miss;
    uint64_t   evicted_s; /* with CAIRN_MISS_EVICTED: how long ago */
    uint32_t   shared; /* as in cairn_llama_restored */
} cairn__restored;
cairn__restored cairn__seq_restore(cairn__runtime *rt, uint32_t seq, const cairn_digest *salt, const int32_t *tokens,
                                   uint32_t n_tokens, uint32_t n_resident);
/* Of a prompt without a salt that nobody waits for, see cairn_llama_restore_ahead(). */
cairn__restored cairn__seq_restore_ahead(cairn__runtime *rt, uint32_t seq, const cairn_prompt *prompt,
                                         uint32_t n_resident, bool (*go_on)(void *ctx), void *ctx);
/* Prompts of the process before, and for the one after; see cairn_llama_recent(). NULL and
 * 0: none. A note that can't be left is none. */
cairn_prompt *cairn__runtime_recent(cairn__runtime *rt, uint32_t *ret_n_prompts);
void          cairn__runtime_note_recent(cairn__runtime *rt, const cairn_prompt *prompts, uint32_t n_prompts);
/* Bytes of a checkpoint, as large as they get; 0: the model needs none, or there is
 * no store. */
uint64_t cairn__runtime_checkpoint_bytes(const cairn__runtime *rt);
/* Of [0, n_tokens), where the last decode ended; see cairn_llama_checkpoint().
 * False: the state was lost, remove the sequence. */
CAIRN_MUST_USE bool cairn__seq_checkpoint(cairn__runtime *rt, uint32_t seq, const cairn_digest *salt,
                                          const int32_t *tokens, uint32_t n_tokens);
void cairn__seq_record(cairn__runtime *rt, uint32_t seq, const cairn_digest *salt, const int32_t *tokens,
                       uint32_t n_tokens, bool end);

#ifdef __cplusplus
}
#endif
#endif
