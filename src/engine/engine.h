/* engine.h - queues requests, keeps sequences resident, generates tokens.
 *
 * One thread of the engine's own touches the runtime; all others submit jobs
 * and receive events. Requests run one after another. The engine knows neither
 * HTTP nor JSON.
 *
 * A job: restore (resident cells first, then the store) -> prefill the rest in
 * chunks, recording pages as it goes -> decode -> record what was generated. */
#ifndef CAIRN_ENGINE_H
#define CAIRN_ENGINE_H

#include "llama/sampler.h"

typedef struct cairn__engine cairn__engine;

typedef enum cairn__finish { CAIRN__FINISH_STOP, CAIRN__FINISH_LENGTH, CAIRN__FINISH_CANCELED } cairn__finish;

/* Positions of a prompt where others are likely to part from it (core/ladder.h):
 * what a model that needs checkpoints can restore later. Those in `fork` always get
 * one, those in `end` while there is a budget, the first before the others. */
typedef struct cairn__marks {
    uint32_t fork[4], end[16];
    uint32_t n_fork, n_end;
} cairn__marks;

typedef struct cairn__job { /* copied whole by submit */
    const int32_t     *tokens;
    uint32_t           n_tokens;
    uint32_t           max_tokens; /* 0 is allowed: prefill only */
    cairn_digest       salt;       /* shares KV with jobs of the same salt alone; zeros: none */
    cairn__sampling    sampling;
    const char *const *stops; /* stop strings, UTF-8 */
    uint32_t           n_stops;
    bool               special_pieces; /* control tokens have text (tool formats) */
    bool               ignore_eos;
    bool               want_logprobs;
    uint32_t           n_top_logprobs; /* up to 20 */
    cairn__marks       marks;
} cairn__job;

typedef struct cairn__token_info { /* one generated token, with logprobs if wanted */
    int32_t        token;
    float          logprob;
    cairn__logprob top[20];
    uint32_t       n_top;
} cairn__token_info;

typedef enum cairn__event_type {
    CAIRN__EVENT_QUEUED,   /* position in the queue changed */
    CAIRN__EVENT_PREFILL,  /* progress: done of n_prompt, cached */
    CAIRN__EVENT_TEXT,     /* complete UTF-8 characters, no part of a stop string */
    CAIRN__EVENT_END,      /* last event of a job that ran */
    CAIRN__EVENT_ERROR     /* last event of a job that failed */
} cairn__event_type;

typedef struct cairn__event { /* borrowed by the callback, valid while it runs */
    cairn__event_type        type;
    uint32_t                 queue_position; /* QUEUED: requests before this one */
    uint32_t                 n_prompt, n_done, n_cached, n_generated;
    const char              *text; /* TEXT: text[0..text_size) */
    size_t                   text_size;
    /* TEXT: tokens whose first byte is in this text, if logprobs are wanted. The
     * last TEXT of a job may bring infos of tokens without text and text_size 0. */
    const cairn__token_info *infos;
    uint32_t                 n_infos;
    cairn__finish            finish; /* END */
    cairn_miss               miss;   /* END: why not more was restored */
    uint64_t                 restore_ns, prefill_ns, decode_ns, ttft_ns;
    uint64_t                 restored_bytes;
    uint32_t                 from_store; /* tokens of n_cached that came from the store */
    cairn_status             status; /* ERROR */
    const char              *message;
} cairn__event;

/* Called on the engine's thread; must not block and must not call the engine. */
typedef void (*cairn__event_fn)(void *ctx, const cairn__event *event);

typedef struct cairn__engine_options {
    bool     reproducible;
    bool     warm_start; /* begin with the prompts that the process before had in memory */
    uint32_t max_queue;  /* 0: 64 */
    void (*log)(void *ctx, const char *line); /* operator's log, any thread; NULL: none */
    void *log_ctx;
} cairn__engine_options;

/* Takes the runtime on success; the engine's thread uses it from then on.
 * Decodes a few tokens first, so that weights are in memory and the prefill
 * speed is roughly known. CAIRN_ERUNTIME: the model can't decode. */
CAIRN_MUST_USE cairn_status cairn__engine_create(cairn__runtime *rt_take, const cairn__engine_options *options,
                                                 cairn__engine **ret_engine);
/* Starts hashing the weights and attaches `store` when done (borrowed; must
 * outlive the engine). A job that arrives meanwhile waits only while what is
 * left takes less time than its estimated prefill. */
CAIRN_MUST_USE cairn_status cairn__engine_attach_store(cairn__engine *engine, cairn_store *store, const char *digest_cache_dir);

/* Waits until the store is attached, and what a warm start brings is in memory, or
 * neither will be; at most timeout_ms. False: not yet. Before the first submit: a
 * restarted server that waits a moment here answers its first request from the store
 * instead of letting it wait. */
bool cairn__engine_await_store(cairn__engine *engine, uint32_t timeout_ms);

/* [any thread] CAIRN_EBUSY: queue full, or the engine is stopping. Events of a job come in order and end
 * with END or ERROR, exactly once. */
CAIRN_MUST_USE cairn_status cairn__engine_submit(cairn__engine *engine, const cairn__job *job, cairn__event_fn fn,
                                                 void *ctx, uint64_t *ret_job_id);
/* [any thread] The job ends soon with END/CANCELED; a queued one leaves the
 * queue at once (its END comes from the engine's thread like every event, after
 * the decode call that is running). What was prefilled is kept. Unknown ids are
 * ignored. */
void cairn__engine_cancel(cairn__engine *engine, uint64_t job_id);

/* Refuses new jobs, ends queued ones with ERROR, lets the running one go on for
 * at most grace_ms, then cancels it; flushes the store; joins the thread. */
void cairn__engine_stop(cairn__engine *engine, uint32_t grace_ms);
void cairn__engine_destroy(cairn__engine *engine); /* after stop; closes the runtime */

typedef struct cairn__engine_stats {
    uint64_t jobs, jobs_canceled, jobs_failed, prompt_tokens, cached_tokens, generated_tokens;
    uint64_t misses[CAIRN_MISS_COUNT]; /* why jobs had not more from the store */
    uint32_t queued, running;
} cairn__engine_stats;
void cairn__engine_get_stats(cairn__engine *engine, cairn__engine_stats *ret_stats);
const cairn__runtime *cairn__engine_runtime(const cairn__engine *engine); /* for [any thread] functions */

#endif
