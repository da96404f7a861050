/* internal.h - what the engine's files share.
 *
 * E1 runtime, sequences, estimate and disk_is_silent belong to the engine's thread.
 * E2 The fields below `mutex` are read and written under it; no callback and no
 *    call of the runtime happens under it, but for cairn__runtime_abort().
 * E3 A request is freed by the engine's thread alone; others only move it from
 *    the queue to `ended` or mark it.
 * E4 The abort flag is set only while `running` is the request that was
 *    cancelled, and taken back before another one runs or the self-test decodes. */
#ifndef CAIRN_ENGINE_INTERNAL_H
#define CAIRN_ENGINE_INTERNAL_H

#include "engine/engine.h"
#include "engine/estimate.h"
#include "engine/sequences.h"

#include <pthread.h>
#include <stdatomic.h>

typedef struct cairn__request {
    struct cairn__request *next;
    uint64_t               id, submitted_ns;
    cairn__job             job; /* deep copy */
    cairn__event_fn        fn;
    void                  *ctx;
    atomic_bool            canceled;
    uint32_t               told_position; /* last QUEUED event; UINT32_MAX: none yet */
    cairn_status           end_status;    /* in `ended`: CAIRN_ECANCELED, or why it is refused */
} cairn__request;

typedef struct cairn__request_list {
    cairn__request *first, *last;
    uint32_t        n;
} cairn__request_list;

typedef enum cairn__attach_state {
    CAIRN__ATTACH_NONE,    /* no store was given */
    CAIRN__ATTACH_HASHING, /* the digest is being computed */
    CAIRN__ATTACH_HASHED,  /* the engine's thread attaches at the next occasion */
    CAIRN__ATTACHED,
    CAIRN__ATTACH_OFF /* unsupported, or failed; said in the log */
} cairn__attach_state;

typedef struct cairn__attach {
    cairn_store        *store;
    char               *digest_cache_dir;
    pthread_t           thread;
    bool                thread_started;
    atomic_bool         stop;
    cairn__attach_state state; /* under the engine's mutex, as all that follows */
    cairn_digest        digest;
    uint64_t            done_bytes, total_bytes, started_ns, logged_ns;
} cairn__attach;

struct cairn__engine {
    cairn__runtime         *rt;
    cairn__engine_options   options;
    pthread_t               thread;
    bool                    thread_started;
    cairn__sequences        seqs;
    cairn__estimate         estimate;
    cairn__restore_estimate restore_estimate;
    bool                    disk_is_silent; /* at the last restore; said in the log when it changes */
    struct position        *positions; /* [max_queue + 1] scratch of cairn__engine_service() */

    pthread_mutex_t     mutex;
    pthread_cond_t      wake;     /* something to do for the engine's thread */
    pthread_cond_t      finished; /* the running request ended */
    cairn__request_list queue, ended;
    cairn__request     *running;
    bool                undisturbed; /* a decode call runs that no cancel may abort */
    bool                stopping, stopped;
    uint64_t            last_id;
    cairn__engine_stats stats;
    bool                warmed; /* under the mutex: the thread's first decode calls are over */
    cairn_status        warm_status;
    cairn__attach       attach;
};

/* ---- request.c ---- */
CAIRN_MUST_USE cairn_status cairn__request_create(const cairn__job *job, cairn__request **ret_request);
void                        cairn__request_destroy(cairn__request *request);
void                        cairn__request_push(cairn__request_list *list, cairn__request *request);
cairn__request             *cairn__request_pop(cairn__request_list *list);
cairn__request             *cairn__request_remove(cairn__request_list *list, uint64_t id);

/* ---- engine.c ---- */
void cairn__engine_log(const cairn__engine *engine, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Ends cancelled and refused requests, tells the others their places. Between
 * decode calls and whenever idle. */
void cairn__engine_service(cairn__engine *engine);
/* Says in the log when the disk of the cache stops to answer, and when it does again. */
void cairn__engine_watch_disk(cairn__engine *engine, cairn_miss miss);
/* Waits for something to happen, at most timeout_ms. Called with the mutex held. */
void cairn__engine_wait(cairn__engine *engine, uint32_t timeout_ms);

/* Between these two no cancel aborts a decode call; a request sees its mark only. */
void cairn__engine_undisturbed_begin(cairn__engine *engine);
void cairn__engine_undisturbed_end(cairn__engine *engine);

/* ---- attach.c ---- */
/* Between requests: attaches if the digest is ready, and records what is resident;
 * detaches, and forgets what is resident, if the model's file is not what it was. */
void cairn__attach_poll(cairn__engine *engine);
/* Waits for the digest while that is shorter than the prefill of n_tokens; calls
 * tick about once a second, which returns false to give up. */
void cairn__attach_wait(cairn__engine *engine, uint64_t request_id, uint32_t n_tokens, bool (*tick)(void *ctx),
                        void *ctx);
/* Why nothing can be restored at the moment; NONE when attached. */
cairn_miss cairn__attach_miss(cairn__engine *engine);
void       cairn__attach_stop(cairn__engine *engine);

/* ---- resident.c: plans carried out ---- */
/* Brings a sequence to hold as much of the job's prompt as is resident under its salt. */
uint32_t cairn__resident_prepare(cairn__engine *engine, const cairn__job *job, uint32_t *ret_seq);
void     cairn__resident_remove(cairn__engine *engine, uint32_t seq);
/* Frees the sequence used longest ago but `except`. False: there is none. */
bool cairn__resident_evict(cairn__engine *engine, uint32_t except);
void cairn__resident_make_room(cairn__engine *engine, uint32_t seq, uint32_t n_more);
void cairn__resident_clear(cairn__engine *engine);
/* Restoring brought it to hold tokens[0..n), all of a prompt. */
void cairn__resident_restored(cairn__engine *engine, uint32_t seq, const int32_t *tokens, uint32_t n);
/* Tokens of seq that may be recorded: all, or in reproducible mode the grid's; none
 * once the model's file changed, since other weights may have computed them. */
uint32_t cairn__resident_recordable(const cairn__engine *engine, uint32_t seq);
/* Where a prefill call ended at what the sequence holds, for a model that needs
 * checkpoints: on the grid its state is put in place as a restore would, and with
 * `store` its checkpoint is taken. False: it was lost, and the sequence was removed. */
CAIRN_MUST_USE bool cairn__resident_checkpoint(cairn__engine *engine, uint32_t seq, bool store);
void     cairn__resident_record(cairn__engine *engine, uint32_t seq, bool end);

/* ---- warm.c ---- */
/* Notes the prompts in memory for the next process; behind a request. */
void cairn__warm_note(cairn__engine *engine);
/* Brings back those that the process before noted; once, before the first request. */
void cairn__warm_start(cairn__engine *engine);

/* ---- job.c ---- */
void cairn__job_run(cairn__engine *engine, cairn__request *request);

#endif
