/* The adapter under failing calls: memory, threads, and every call to the disk, the
 * Nth alone or all from there on, N rising until none fails. A cache that can't be
 * opened says so and leaves nothing; a restore gives a shorter prefix or none; and
 * in each case the answer is the one of a prefill, bit for bit. Afterwards, with
 * nothing failing, what was lost is stored again and all of it is found. */
#include "campaign.h"

typedef struct mode {
    fault_kind   kind;
    fault_effect effect;
    int          error;
    bool         for_good; /* too */
} mode;

static const mode modes[] = {
    {FAULT_MALLOC, FAULT_ERROR, ENOMEM, true},   {FAULT_THREAD, FAULT_ERROR, EAGAIN, true},
    {FAULT_OPEN, FAULT_ERROR, EMFILE, true},     {FAULT_OPEN, FAULT_ERROR, EIO, false},
    {FAULT_FSTAT, FAULT_ERROR, EIO, false},      {FAULT_READ, FAULT_ERROR, EIO, true},
    {FAULT_READ, FAULT_SHORT, 0, true},          {FAULT_READ, FAULT_NOTHING, 0, false},
    {FAULT_READ, FAULT_GARBLE, 0, true},         {FAULT_CLOSE, FAULT_ERROR, EIO, false},
    {FAULT_STAT, FAULT_ERROR, EIO, true},        {FAULT_WRITE, FAULT_ERROR, ENOSPC, true},
    {FAULT_SYNC, FAULT_ERROR, EIO, false},       {FAULT_CLOCK, FAULT_PAST, 0, false},
    {FAULT_CLOCK, FAULT_FUTURE, 0, false},       {FAULT_READ_AHEAD, FAULT_ERROR, EIO, true},
};

static fault_plan now;

static cairn_llama_options options_of_run(void)
{
    static const cairn_digest weights = {{1}};
    cairn_llama_options       o = cache_options(&c.rt, c.store);
    o.weights = &weights;
    o.n_readers = 2;
    o.run_tokens = 2 * PAGE;
    return o;
}

/* A prompt that was never there: something to write in each run. */
static void record_another(void)
{
    static uint64_t seed = 1000;
    llama_token    *tokens = make_tokens(2 * PAGE + 3, c.rt.n_vocab, seed++);
    prefill(&c.rt, 1, tokens, 0, 2 * PAGE + 3, PAGE);
    FAULTY_VOID(cairn_llama_record_end(c.cache, 1, tokens, 2 * PAGE + 3));
    free(tokens);
}

static void request(void)
{
    cairn_llama_restored r = {0};
    forget();
    if (FAULTY(cairn_llama_restore(c.cache, 0, c.tokens, N + 1, 0, &r)) != CAIRN_OK)
        FINDING("a restore failed");
    if (r.n_tokens > N || llama_memory_seq_pos_max(c.rt.memory, 0) + 1 != (llama_pos)r.n_tokens)
        FINDING("a restore says %u tokens and there are %d", r.n_tokens,
                (int)llama_memory_seq_pos_max(c.rt.memory, 0) + 1);
    answer_from(r.n_tokens);
    if (now.kinds == FAULT_MASK(FAULT_READ_AHEAD))
        await_fault(now.n);
    FAULTY_VOID(cairn_llama_record(c.cache, 0, c.tokens, 2 * PAGE));
    FAULTY_VOID(cairn_llama_record_end(c.cache, 0, c.tokens, N + 1));
    record_another();
    if (llama_memory_seq_pos_max(c.rt.memory, 3) >= 0)
        FINDING("something is left in the scratch sequence");
}

static void no_cache(cairn_status status, const cairn_error *error)
{
    if (status != CAIRN_ENOMEM && status != CAIRN_EIO)
        FINDING("open said %s", cairn_status_name(status));
    if (!error->text[0])
        FINDING("open failed without a word");
    if (llama_memory_seq_pos_max(c.rt.memory, 3) >= 0)
        FINDING("an open that failed left something in the scratch sequence");
    answer_from(0);
}

static void close_all(void)
{
    FAULTY_VOID(cairn_llama_close(c.cache));
    cairn_store_close(c.store);
    c.cache = NULL;
    if (count_descriptors() != c.n_descriptors)
        FINDING("descriptors are left open");
    if (fault_live_allocations() != 0)
        FINDING("%zu allocations are left over", fault_live_allocations());
}

static uint64_t failing_run(const fault_plan *plan)
{
    cairn_error error = {""};
    forget();
    c.cache = NULL;
    c.n_descriptors = count_descriptors();
    c.store = open_store(c.dir, PAGE, 0);
    cairn_llama_options options = options_of_run();
    fault_arm(plan);
    cairn_status status = FAULTY(cairn_llama_open(c.rt.model, c.rt.ctx, &options, &c.cache, &error));
    if (status)
        no_cache(status, &error);
    else
        request();
    if (cairn_store_flush(c.store, 30000))
        FINDING("the writer hangs");
    uint64_t n = fault_disarm();
    close_all();
    return n;
}

/* What the run lost is stored again, and found. */
static void healthy_run(void)
{
    c.store = open_store(c.dir, PAGE, 0);
    cairn_llama_options options = options_of_run();
    c.cache = open_cache(&c.rt, &options);
    forget();
    answer_from(restore(c.cache, 0, c.tokens, N + 1, 0).n_tokens);
    record_to_end(c.cache, c.store, c.tokens, N);
    forget();
    uint32_t n = restore(c.cache, 0, c.tokens, N + 1, 0).n_tokens;
    if (n != N)
        FINDING("%u tokens are found afterwards", n);
    answer_from(n);
    cairn_llama_close(c.cache);
    cairn_store_close(c.store);
}

/* `every` N, else N in steps that grow. */
static unsigned drive(const mode *m, bool for_good, bool every)
{
    unsigned n_failed = 0;
    for (uint64_t n = 1;; n += every ? 1 : 1 + n / 8) {
        now = (fault_plan){
            .kinds = FAULT_MASK(m->kind), .n = n, .for_good = for_good, .effect = m->effect, .error = m->error};
        alarm(60);
        uint64_t fired = failing_run(&now);
        healthy_run();
        if (!fired)
            break;
        n_failed++;
    }
    alarm(0);
    now.kinds = 0;
    return n_failed;
}

static void every_call_fails(void **state)
{
    unsigned n_failed = 0;
    (void)state;
    need_model();
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
        unsigned n = drive(&modes[i], false, false);
        if (n == 0)
            FINDING("no call of the kind %s is made", fault_kind_name(modes[i].kind));
        n_failed += n + (modes[i].for_good ? drive(&modes[i], true, false) : 0);
    }
    printf("%u calls failed\n", n_failed);
}

/* What is read is proven where it is imported from: no read is left out. */
static void each_garbled_read(void **state)
{
    static const mode garbled = {FAULT_READ, FAULT_GARBLE, 0, false};
    (void)state;
    need_model();
    printf("%u reads were garbled\n", drive(&garbled, false, true));
}

static int teardown(void **state)
{
    (void)state;
    (void)fault_disarm();
    for (int i = 0; now.kinds && i < FAULT_N_KINDS; i++)
        if (now.kinds & FAULT_MASK(i))
            fprintf(stderr, "%s number %llu%s, effect %d\n", fault_kind_name((fault_kind)i), (unsigned long long)now.n,
                    now.for_good ? " and all after it" : "", (int)now.effect);
    return 0;
}

int main(int argc, char **argv)
{
    sleep_at_barriers(argv);
    cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
    const struct CMUnitTest tests[] = {cmocka_unit_test_teardown(every_call_fails, teardown),
                                       cmocka_unit_test_teardown(each_garbled_read, teardown)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
