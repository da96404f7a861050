/* runtime_internal.h - what the runtime's and the sampler's files share.
 *
 * R1 The context is unified (every sequence sees one pool of cells) and has one
 *    sequence more than the engine may use: the last one is the adapter's scratch.
 * R2 One decode call carries one sequence and is one ubatch (n_batch = n_ubatch),
 *    so a failed or aborted call leaves nothing behind but what is cut here.
 * R3 No C++ exception of llama.cpp passes through C: calls that can throw go
 *    through runtime_guard.cpp. */
#ifndef CAIRN_LLAMA_RUNTIME_INTERNAL_H
#define CAIRN_LLAMA_RUNTIME_INTERNAL_H

#include "llama/runtime.h"
#include "os/file.h"

#include <llama.h>

#ifdef __cplusplus
extern "C" {
#else
#include <stdatomic.h>

/* Files of one model: one, or all shards of a split one. Paths are resolved:
 * a download cache links its files, and a link may be pointed elsewhere later. */
typedef struct cairn__model_files {
    char            **names; /* [n] as the user named them: llama.cpp finds shards by name */
    char            **paths; /* [n] absolute, without links */
    cairn__file_info *infos; /* [n] as they were before the load */
    uint32_t          n;
} cairn__model_files;

CAIRN_MUST_USE cairn_status cairn__model_files_find(const char *path, cairn__model_files *ret_files,
                                                    cairn_error *error);
void                        cairn__model_files_done(cairn__model_files *files);
bool                        cairn__model_files_unchanged(const cairn__model_files *files);

typedef enum cairn__memory_kind {
    CAIRN__MEMORY_ATTENTION,
    CAIRN__MEMORY_WINDOW,
    CAIRN__MEMORY_OTHER
} cairn__memory_kind;

struct cairn_llama; /* the adapter's */

struct cairn__runtime {
    struct llama_model         *model;
    struct llama_context       *ctx;
    llama_memory_t              memory;
    const struct llama_vocab   *vocab; /* NULL: the model has no tokenizer */
    struct llama_model_params   model_params;
    struct llama_context_params context_params;
    struct llama_batch          batch;
    cairn__model_files          files;
    cairn__memory_kind          memory_kind;
    atomic_bool                 abort;
    bool                        reproducible;
    bool                        poisoned; /* a decode failed or gave NaN: clear the cells' data too */
    uint32_t                    n_ctx, n_batch, n_seq, n_vocab, patience_ms;
    char                        description[256];
    char                        warning[256];
    struct cairn_llama         *cache;       /* NULL until attached */
};

void cairn__runtime_cache_close(cairn__runtime *rt);

/* error->text = formatted text; returns status. */
cairn_status cairn__runtime_fail(cairn_error *error, cairn_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* llama.cpp's log goes to one place per process: errors are kept, the rest is dropped. */
void cairn__runtime_log_install(void);
void cairn__runtime_log_reset(void);

#endif

/* Results of guarded calls that threw; below every code of llama.cpp. */
#define CAIRN__GUARD_THREW (-1000)

int                   cairn__guard_decode(struct llama_context *ctx, const struct llama_batch *batch);
struct llama_context *cairn__guard_context(struct llama_model *model, const struct llama_context_params *params);
/* NULL: does not parse, or a trigger is no regular expression. */
struct llama_sampler *cairn__guard_grammar(const struct llama_vocab *vocab, const char *grammar, bool lazy,
                                           const char **patterns, size_t n_patterns, const int32_t *tokens,
                                           size_t n_tokens);
bool                  cairn__guard_accept(struct llama_sampler *sampler, int32_t token);
bool                  cairn__guard_apply(struct llama_sampler *sampler, llama_token_data_array *candidates);
int32_t cairn__guard_tokenize(const struct llama_vocab *vocab, const char *text, int32_t text_size, int32_t *tokens,
                              int32_t n_max, bool add_special, bool parse_special);

#ifdef __cplusplus
}
#endif
#endif
