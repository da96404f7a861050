/* campaign.h - what the campaigns over the adapter share: a tiny model, a prompt of
 * some pages, and a root in which it is stored. The test's thread is the one that
 * decodes; FAULTY() around a call makes its calls to the disk count, which there
 * should be none of. */
#ifndef CAIRN_FAULT_LLAMA_CAMPAIGN_H
#define CAIRN_FAULT_LLAMA_CAMPAIGN_H

#include "llama/support.h"

#include "fault.h"

enum { PAGE = 16, N_PAGES = 5, N = N_PAGES * PAGE, SEED = 11 };

#define FINDING(...) fail_msg("finding: " __VA_ARGS__)

typedef struct campaign {
    runtime      rt;
    char         dir[4096]; /* holds the root in which [0, N) is stored */
    llama_token *tokens;    /* [N + 1] */
    float       *logits;    /* behind them, computed in steps of PAGE */
    cairn_store *store;     /* of a run */
    cairn_llama *cache;
    char         run_dir[4096]; /* "": the run uses dir */
    uint32_t     n_descriptors;
} campaign;

static campaign c;

MAYBE_UNUSED static uint64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

MAYBE_UNUSED static void sleep_ms(long ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

/* What ends a restore is done behind it, by another thread, unless something else
 * comes first: waits for the call that is to fail. The first of a kind is made in
 * any case, however busy the machine; behind the last there is none. */
MAYBE_UNUSED static void await_fault(uint64_t n)
{
    for (int i = 0; i < (n == 1 ? 10000 : 20) && fault_n_fired() == 0; i++)
        sleep_ms(1);
}

static uint32_t count_descriptors(void)
{
    DIR     *dir = opendir("/proc/self/fd");
    uint32_t n = 0;
    while (dir && readdir(dir))
        n++;
    if (dir)
        closedir(dir);
    return n;
}

static void forget(void)
{
    llama_memory_clear(c.rt.memory, true);
}

/* A run: the store of the campaign, or a fresh one, and a cache over it. */
MAYBE_UNUSED static void begin_run(bool fresh, uint32_t run_tokens, uint32_t patience_ms)
{
    c.run_dir[0] = 0;
    if (fresh)
        make_temp(c.run_dir, sizeof c.run_dir);
    forget();
    c.n_descriptors = count_descriptors();
    c.store = open_store(fresh ? c.run_dir : c.dir, PAGE, 0);
    cairn_llama_options options = cache_options(&c.rt, c.store);
    options.weights = &(const cairn_digest){{1}};
    options.n_readers = 2;
    options.run_tokens = run_tokens;
    options.patience_ms = patience_ms;
    c.cache = FAULTY(open_cache(&c.rt, &options));
}

/* Closes all, and nothing is left behind. */
MAYBE_UNUSED static void end_run(void)
{
    FAULTY_VOID(cairn_llama_close(c.cache));
    cairn_store_close(c.store);
    if (count_descriptors() != c.n_descriptors)
        FINDING("descriptors are left open");
    if (fault_live_allocations() != 0)
        FINDING("%zu allocations are left over", fault_live_allocations());
    if (c.run_dir[0])
        remove_tree(c.run_dir);
}

/* Computes what is missing; the answer is as if nothing had been restored. */
static void answer_from(uint32_t from)
{
    prefill(&c.rt, 0, c.tokens, from, N + 1, PAGE);
    if (memcmp(llama_get_logits_ith(c.rt.ctx, -1), c.logits, c.rt.n_vocab * sizeof *c.logits) != 0)
        FINDING("wrong logits behind a restore of %u tokens", from);
}

static int set_up(void **state)
{
    static const kv_setup f16 = {"f16", GGML_TYPE_F16, GGML_TYPE_F16, true};
    (void)state;
    if (access("/dev/shm", W_OK) == 0) /* in memory: the calls count, not the disk */
        setenv("TMPDIR", "/dev/shm", 0);
    init_llama();
    if (!is_file(tiny_path("llama-dense")))
        return 0;
    c.rt = load(tiny_path("llama-dense"));
    open_context(&c.rt, context_params(&f16, 512, PAGE));
    c.tokens = make_tokens(N + 1, c.rt.n_vocab, SEED);
    c.logits = malloc(c.rt.n_vocab * sizeof *c.logits);
    make_temp(c.dir, sizeof c.dir);
    prefill(&c.rt, 0, c.tokens, 0, N + 1, PAGE);
    REQUIRE(c.logits);
    memcpy(c.logits, llama_get_logits_ith(c.rt.ctx, -1), c.rt.n_vocab * sizeof *c.logits);
    begin_run(false, 0, 0);
    prefill(&c.rt, 0, c.tokens, 0, N, PAGE);
    record_to_end(c.cache, c.store, c.tokens, N);
    end_run();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    if (!c.rt.model)
        return 0;
    free(c.tokens);
    free(c.logits);
    unload(&c.rt);
    remove_tree(c.dir);
    return 0;
}

static void need_model(void)
{
    if (!c.rt.model) {
        print_message("no model at %s: set CAIRN_TEST_ARCHS_DIR\n", tiny_path("llama-dense"));
        skip();
    }
}

#endif
