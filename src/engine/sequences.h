/* sequences.h - which tokens each resident sequence holds, and what a request
 * makes of them. Pure logic: the caller does to the runtime what the plan says.
 *
 * Q1 items[s] lists exactly the tokens whose KV the runtime holds in sequence s.
 * Q2 n_prompt <= n: what came with the last request; the rest was generated.
 * Q3 n_grid <= n_prompt: tokens prefilled in complete chunks of the grid
 *    (reproducible mode; 0 otherwise).
 * Q4 All tokens of a sequence were computed for jobs of one salt; sequences of
 *    different salts share nothing, neither tokens nor cells. [engine's thread] */
#ifndef CAIRN_ENGINE_SEQUENCES_H
#define CAIRN_ENGINE_SEQUENCES_H

#include "cairn/identity.h"

typedef struct cairn__resident {
    int32_t     *tokens; /* [n_ctx] room for a whole context */
    uint32_t     n, n_prompt, n_grid;
    uint32_t     n_wanted; /* 0, or tokens[0..n_wanted) are a prompt of which only [0, n) is here: all of it
                            * is what the next process may want back. Forgotten with the next change. */
    uint64_t     used_at; /* rises with every use */
    cairn_digest salt;    /* says nothing while n is 0 */
} cairn__resident;

typedef struct cairn__sequences {
    cairn__resident *items;
    uint32_t         n_seq, n_ctx;
    uint64_t         clock;
} cairn__sequences;

CAIRN_MUST_USE cairn_status cairn__sequences_init(cairn__sequences *seqs, uint32_t n_seq, uint32_t n_ctx);
void                        cairn__sequences_done(cairn__sequences *seqs);

/* Length of the longest common prefix of items[seq] and tokens[0..n) of `salt`. */
uint32_t cairn__sequences_shared(const cairn__sequences *seqs, uint32_t seq, const cairn_digest *salt,
                                 const int32_t *tokens, uint32_t n);
uint32_t cairn__sequences_best(const cairn__sequences *seqs, const cairn_digest *salt, const int32_t *tokens,
                               uint32_t n, uint32_t *ret_shared);

typedef struct cairn__sequence_plan {
    uint32_t seq;    /* serves the request */
    uint32_t keep;   /* tokens of it that stay resident; below n */
    bool     fork;   /* empty `seq`, then share [0,keep) of `source`; else cut `seq` to keep */
    uint32_t source; /* only if fork */
} cairn__sequence_plan;

/* n > 0. A request that goes on where a sequence ended, or differs from it only
 * in what was generated, takes it over; one that parts from it earlier forks, so
 * that the other conversation stays: into an empty sequence, else the one used
 * longest ago. */
cairn__sequence_plan cairn__sequences_plan(const cairn__sequences *seqs, const cairn_digest *salt,
                                           const int32_t *tokens, uint32_t n);

/* Reproducible mode, one sequence: cut to a multiple of grid that is prefilled in
 * complete chunks and leaves at least one token to compute. */
cairn__sequence_plan cairn__sequences_plan_grid(const cairn__sequences *seqs, const cairn_digest *salt,
                                                const int32_t *tokens, uint32_t n, uint32_t grid);

/* Cells in use, prefixes that sequences share counted once. At least so many if
 * equal prefixes were computed twice. */
uint32_t cairn__sequences_cells(const cairn__sequences *seqs);
/* The sequence used longest ago that holds tokens and is not `except`. */
bool cairn__sequences_oldest(const cairn__sequences *seqs, uint32_t except, uint32_t *ret_seq);

/* The sequence, empty or of this salt already, takes tokens of `salt` from now on. */
void cairn__sequences_assign(cairn__sequences *seqs, uint32_t seq, const cairn_digest *salt);
void cairn__sequences_cut(cairn__sequences *seqs, uint32_t seq, uint32_t n);
void cairn__sequences_fork(cairn__sequences *seqs, uint32_t source, uint32_t seq, uint32_t n);
/* n fits: the runtime holds no more than n_ctx. */
void cairn__sequences_append(cairn__sequences *seqs, uint32_t seq, const int32_t *tokens, uint32_t n);
/* The sequence holds the beginning of this prompt, which fits the context. */
void cairn__sequences_want(cairn__sequences *seqs, uint32_t seq, const int32_t *tokens, uint32_t n);
void cairn__sequences_touch(cairn__sequences *seqs, uint32_t seq);
void cairn__sequences_clear(cairn__sequences *seqs);

#endif
