/* A disk that hangs under the adapter: calls of one kind do not return, from the
 * Nth on or the Nth alone, N rising until none hangs. The thread that decodes must
 * come back within its patience, with what was imported so far, and the answer must
 * be right; meanwhile later calls must not wait again; and when the disk answers
 * everything is found, and nothing was lost on the way. */
#include "campaign.h"

enum {
    PATIENCE_MS = 150,
    SOON_MS = 5000, /* twice the patience, on a machine that is busy */
    ALARM_S = 60
};

static const char *now_kind = "";
static unsigned    now_n;

static void arm(fault_kind kind, unsigned n)
{
    now_kind = fault_kind_name(kind);
    now_n = n;
    alarm(ALARM_S); /* the thread that decodes hangs: nothing else would end the test */
    fault_arm(&(fault_plan){.kinds = FAULT_MASK(kind), .n = n, .effect = FAULT_HANG, .for_good = n % 2 == 0});
}

static cairn_llama_restored timed_restore(const char *when)
{
    uint64_t             began = now_ms();
    cairn_llama_restored r = FAULTY(restore(c.cache, 0, c.tokens, N + 1, 0));
    if (now_ms() - began > SOON_MS)
        FINDING("a restore %s took %u ms", when, (unsigned)(now_ms() - began));
    if (r.n_tokens > N || r.n_tokens % PAGE || r.from_store != r.n_tokens)
        FINDING("a restore %s gave %u tokens", when, r.n_tokens);
    return r;
}

/* What requests meet while calls hang: the first may wait, no other. */
static void go_on(void)
{
    unsigned n_waited = 0;
    for (int i = 0; i < 4; i++) {
        forget();
        uint64_t             began = now_ms();
        cairn_llama_restored r = timed_restore("behind a hanging one");
        n_waited += i > 0 && r.miss == CAIRN_MISS_TIMEOUT && now_ms() - began >= PATIENCE_MS;
        if (n_waited == 3) /* one alone may have been slow */
            FINDING("the same disk was waited for again and again");
        answer_from(r.n_tokens);
        FAULTY_VOID(cairn_llama_record(c.cache, 0, c.tokens, N + 1));
    }
}

/* The disk answers: it is used again, without anybody's help. */
static void comes_back(void)
{
    uint32_t n = 0;
    for (int i = 0; i < 100 && n != N; i++) {
        forget();
        n = timed_restore("of a disk that answers again").n_tokens;
        if (n != N)
            sleep_ms(20);
    }
    if (n != N)
        FINDING("the disk answers again and only %u tokens are found", n);
    answer_from(n);
}

/* Without a call that hangs: a busy machine may be slower than the patience. Such a
 * run says nothing; how many more there may be. */
static int slow_runs;

static bool was_slow(void)
{
    if (slow_runs-- > 0)
        return true;
    FINDING("nothing hangs, and the disk does not answer");
    return false;
}

/* False: nothing hung. */
static bool restore_hangs(fault_kind kind, unsigned n)
{
    begin_run(false, PAGE, PATIENCE_MS);
    arm(kind, n);
    cairn_llama_restored r = timed_restore("of a disk that hangs");
    await_fault(n);
    bool fired = fault_n_fired() > 0;
    if (r.n_tokens < N && r.miss != CAIRN_MISS_TIMEOUT)
        FINDING("%u tokens, because of: %s", r.n_tokens, cairn_miss_text(r.miss));
    answer_from(r.n_tokens);
    if (fired)
        go_on();
    (void)fault_disarm();
    comes_back();
    end_run();
    if (!fired && r.miss == CAIRN_MISS_TIMEOUT && was_slow())
        return restore_hangs(kind, n);
    return fired;
}

static bool record_hangs(fault_kind kind, unsigned n)
{
    begin_run(true, 4 * PAGE, PATIENCE_MS); /* two puts: as many as the writer may hold */
    prefill(&c.rt, 0, c.tokens, 0, N + 1, PAGE);
    arm(kind, n);
    uint64_t began = now_ms();
    FAULTY_VOID(cairn_llama_record(c.cache, 0, c.tokens, 2 * PAGE));
    FAULTY_VOID(cairn_llama_record_end(c.cache, 0, c.tokens, N + 1));
    for (int i = 0; i < 1000 && fault_n_fired() == 0 && cairn_store_flush(c.store, 5) == CAIRN_ETIMEDOUT; i++)
        continue;
    bool fired = fault_n_fired() > 0;
    for (int i = 0; i < 3; i++) {
        uint64_t again = now_ms();
        FAULTY_VOID(cairn_llama_record_end(c.cache, 0, c.tokens, N + 1));
        if (i > 1 && fired && now_ms() - again > SOON_MS / 5)
            FINDING("a record behind a hanging one took %u ms", (unsigned)(now_ms() - again));
    }
    bool lost = cairn_llama_pages_given_up(c.cache) > 0;
    if (now_ms() - began > 2 * SOON_MS)
        FINDING("recording took %u ms", (unsigned)(now_ms() - began));
    bool later = fault_disarm() > 0; /* in the calls just made */
    for (int i = 0; i < 100; i++) { /* what was given up is offered again */
        uint64_t given_up = cairn_llama_pages_given_up(c.cache);
        FAULTY_VOID(cairn_llama_record_end(c.cache, 0, c.tokens, N + 1));
        assert_int_equal(cairn_store_flush(c.store, 30000), CAIRN_OK);
        if (cairn_llama_pages_given_up(c.cache) == given_up)
            break;
        sleep_ms(20);
    }
    comes_back();
    end_run();
    if (!later && lost && was_slow())
        return record_hangs(kind, n);
    return fired;
}

static void drive(bool (*run)(fault_kind kind, unsigned n), const fault_kind *kinds, size_t n_kinds)
{
    unsigned n_hung = 0;
    need_model();
    slow_runs = 20;
    for (size_t i = 0; i < n_kinds; i++) {
        unsigned n = 1, of_kind = 0;
        for (; run(kinds[i], n); n += 1 + n / 4)
            of_kind++;
        if (of_kind == 0)
            FINDING("no call of the kind %s is made", now_kind);
        n_hung += of_kind;
    }
    now_kind = "";
    alarm(0);
    printf("%u calls hung\n", n_hung);
}

static void a_restore_hangs(void **state)
{
    static const fault_kind kinds[] = {FAULT_OPEN, FAULT_FSTAT, FAULT_READ, FAULT_READ_AHEAD, FAULT_CLOSE, FAULT_TOUCH};
    (void)state;
    drive(restore_hangs, kinds, sizeof kinds / sizeof kinds[0]);
}

static void a_recording_hangs(void **state)
{
    static const fault_kind kinds[] = {FAULT_STAT, FAULT_LIST, FAULT_CREATE, FAULT_WRITE, FAULT_SYNC, FAULT_RENAME_NEW};
    (void)state;
    drive(record_hangs, kinds, sizeof kinds / sizeof kinds[0]);
}

/* Marks of use: the identity's is set by the lookup, a page's when the result is there
 * already, and nobody waits for that one. */
static void a_touch_hangs(void **state)
{
    char command[4200];
    (void)state;
    need_model();
    snprintf(command, sizeof command, "find '%s/root/v1' -exec touch -d '2 days ago' {} +", c.dir);
    for (unsigned n = 1; n <= 2; n++) {
        REQUIRE(system(command) == 0);
        begin_run(false, 0, 10 * PATIENCE_MS);
        arm(FAULT_TOUCH, n);
        cairn_llama_restored r = timed_restore("of a disk that hangs");
        await_fault(1);
        assert_true(fault_n_fired() > 0);
        assert_true(n == 1 ? r.miss == CAIRN_MISS_TIMEOUT : r.n_tokens == N);
        answer_from(r.n_tokens);
        go_on();
        (void)fault_disarm();
        comes_back();
        end_run();
    }
    alarm(0);
    now_kind = "";
}

/* A writer that holds all it may is waited for once. */
static void a_writer_that_hangs_is_waited_for_once(void **state)
{
    (void)state;
    need_model();
    begin_run(true, PAGE, PATIENCE_MS);
    prefill(&c.rt, 0, c.tokens, 0, N + 1, PAGE);
    arm(FAULT_WRITE, 1);
    uint64_t began = now_ms();
    FAULTY_VOID(cairn_llama_record_end(c.cache, 0, c.tokens, N + 1)); /* two pages leave, then it waits in vain */
    FAULTY_VOID(cairn_llama_record_end(c.cache, 0, c.tokens, N + 1));
    assert_true(now_ms() - began >= 2000 && now_ms() - began < 8000);
    began = now_ms();
    for (int i = 0; i < 10; i++)
        FAULTY_VOID(cairn_llama_record_end(c.cache, 0, c.tokens, N + 1));
    assert_true(now_ms() - began < 1500);
    (void)fault_disarm();
    record_to_end(c.cache, c.store, c.tokens, N + 1);
    comes_back();
    end_run();
    alarm(0);
    now_kind = "";
}

static int teardown(void **state)
{
    (void)state;
    (void)fault_disarm();
    if (now_kind[0])
        fprintf(stderr, "%s number %u hung\n", now_kind, now_n);
    now_kind = "";
    return 0;
}

int main(int argc, char **argv)
{
    sleep_at_barriers(argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(a_restore_hangs, teardown),
        cmocka_unit_test_teardown(a_recording_hangs, teardown),
        cmocka_unit_test_teardown(a_touch_hangs, teardown),
        cmocka_unit_test_teardown(a_writer_that_hangs_is_waited_for_once, teardown),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
