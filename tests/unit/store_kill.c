/* Several processes on one root; processes killed while they write. */
#include "store_testing.h"

#include "base/digest.h"
#include "store/ledger.h"
#include "tier/disk.h"

#include <signal.h>
#include <utime.h>

#define P 16u
#define ROUNDS 200

/* ---- checking every page file, without the store ---- */

static void check_page_file(void *ctx, const char *path)
{
    static uint8_t      data[1 << 16];
    uint8_t             expected[1 << 12];
    uint64_t            offsets[TEST_BLOCKS];
    int32_t             tokens[P];
    cairn__page_header  h;
    cairn__page_name    name;
    char                text[CAIRN__PAGE_NAME_SIZE];
    const cairn_digest *identity = ctx;
    size_t              size = test_read_file(path, data, sizeof(data));
    if (cairn__page_decode(data, size, &h) != CAIRN_OK)
        fail_msg("%s: no good header", path);
    assert_int_equal(cairn__page_file_size(&h), size);
    assert_memory_equal(&h.identity, identity, sizeof(*identity));
    assert_true(h.n_tokens <= P);
    for (uint32_t i = 0; i < h.n_tokens; i++)
        tokens[i] = cairn__page_token(&h, i);
    cairn_key key = cairn_chain_key(identity, &h.parent, tokens, h.n_tokens);
    assert_memory_equal(&key, &h.key, sizeof(key));
    name = cairn__page_name_of(identity, &h.key, &h.parent, tokens, h.n_tokens);
    cairn__page_name_format(&name, text);
    assert_string_equal(strrchr(path, '/') + 1, text);
    assert_int_equal(h.n_blocks, TEST_BLOCKS);
    cairn__page_block_offsets(&h, offsets);
    for (uint32_t b = 0; b < TEST_BLOCKS; b++) {
        uint64_t block = test_block_size(&key, h.n_tokens, b);
        assert_int_equal(cairn__page_block_at(&h, b).size, block);
        test_fill_block(&key, b, expected, block);
        assert_memory_equal(data + offsets[b], expected, block);
    }
}

static test_tree check_all(const test_fixture *f)
{
    cairn_digest digest = cairn_identity_digest(f->id);
    test_tree    t = {.page = check_page_file, .ctx = &digest};
    test_walk(&t, f->root);
    assert_int_equal(t.n_quarantined, 0);
    return t;
}

/* ---- children ---- */

/* Writes chains for ever. Its first byte to `ready` says that the store is open. */
static void write_for_ever(const test_fixture *f, uint64_t seed, uint64_t budget, int ready)
{
    cairn_store_options o = {.root = f->root, .budget_bytes = budget, .reserve_bytes = 1, .page_tokens = P};
    cairn_store        *store;
    if (cairn_store_open(&o, &store, NULL) != CAIRN_OK || write(ready, "x", 1) != 1)
        _exit(1);
    test_random r = {seed * 7919 + 1};
    for (;;) {
        int32_t  t[20 * P];
        uint32_t n = 1 + test_below(&r, 20 * P);
        test_tokens(t, n, test_next(&r) % 100000);
        test_put *p = test_make_put(f->id, t, n, P, 0);
        while (cairn_store_put(store, &p->put) == CAIRN_EBUSY)
            test_sleep_ms(1);
        if (test_below(&r, 4) == 0)
            (void)!cairn_store_flush(store, 20);
    }
}

static pid_t start_writer(const test_fixture *f, uint64_t seed, uint64_t budget)
{
    int  ready[2];
    char byte;
    assert_int_equal(pipe(ready), 0);
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        write_for_ever(f, seed, budget, ready[1]);
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    return pid;
}

static void kill_and_wait(pid_t pid)
{
    int status;
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
}

static void age_temp(const char *path)
{
    DIR *dir = opendir(path);
    for (struct dirent *e; dir && (e = readdir(dir));) {
        char          *child;
        struct utimbuf old = {time(NULL) - 120, time(NULL) - 120};
        if (e->d_name[0] == '.' && strncmp(e->d_name, ".tmp-", 5) != 0)
            continue;
        assert_true(asprintf(&child, "%s/%s", path, e->d_name) > 0);
        if (e->d_type == DT_DIR)
            age_temp(child);
        else if (e->d_name[0] == '.')
            assert_int_equal(utime(child, &old), 0);
        free(child);
    }
    if (dir)
        closedir(dir);
}

/* Opens, waits for the background scan to remove what it may, closes. */
static test_tree reopen(const test_fixture *f, uint64_t budget, uint32_t temps_expected)
{
    cairn_store *store = test_open(f->root, budget, P);
    for (int i = 0; i < 3000 && test_tree_of(f->root).n_temps > temps_expected; i++)
        test_sleep_ms(10);
    cairn_store_close(store);
    test_tree t = check_all(f);
    assert_int_equal(t.n_temps, temps_expected);
    return t;
}

static void killed_at_random_moments(void **state)
{
    test_fixture       *f = *state;
    const uint64_t budget = 16 << 20;
    test_random    r = {20260707};
    uint32_t       rounds_with_temps = 0, most_temps = 0, pages_checked = 0, cleaned = 0;
    uint64_t       most_bytes = 0;
    for (int round = 0; round < ROUNDS; round++) {
        pid_t pid = start_writer(f, (uint64_t)round + 1, budget);
        /* Mostly before or in the first batch, now and then some batches later. */
        test_sleep_ms(test_below(&r, round % 4 ? 31 : 121));
        kill_and_wait(pid);
        test_tree t = check_all(f);
        pages_checked += t.n_pages;
        rounds_with_temps += t.n_temps > 0;
        most_temps = t.n_temps > most_temps ? t.n_temps : most_temps;
        most_bytes = t.disk_bytes > most_bytes ? t.disk_bytes : most_bytes;
        assert_true(t.disk_bytes <= budget);
        if (round % 10 == 9) { /* the others stay, as after a quick restart */
            age_temp(f->root);
            cleaned += t.n_temps;
            reopen(f, budget, 0);
        }
    }
    test_tree t = reopen(f, budget, 0);
    printf("%d rounds: %u page files checked byte by byte, none wrong; temporaries left in %u rounds, at most %u at a "
           "time, all %u cleaned up; at most %llu of %llu bytes; %u pages at the end\n",
           ROUNDS, pages_checked, rounds_with_temps, most_temps, cleaned, (unsigned long long)most_bytes,
           (unsigned long long)budget, t.n_pages);
    assert_true(pages_checked > 0);
    assert_true(rounds_with_temps > 0); /* else nothing was hit in the middle */
}

/* Two writers and a killer: the survivor is not disturbed. What the killed ones
 * leave counts in the budget until it is a minute old, so there must be room for
 * all of it: at most 16 pages of 7 KB in each of 20 rounds. */
static void one_of_two_dies(void **state)
{
    test_fixture       *f = *state;
    const uint64_t budget = 16 << 20;
    int            status;
    pid_t          survivor = start_writer(f, 1000, budget);
    for (int i = 0; i < 1000 && test_tree_of(f->root).n_pages == 0; i++)
        test_sleep_ms(10); /* a slow disk has its time */
    for (int round = 0; round < 20; round++) {
        pid_t pid = start_writer(f, 2000 + (uint64_t)round, budget);
        test_sleep_ms(5 + (uint32_t)round);
        kill_and_wait(pid);
        assert_int_equal(waitpid(survivor, &status, WNOHANG), 0);
    }
    kill_and_wait(survivor);
    age_temp(f->root);
    test_tree t = reopen(f, budget, 0);
    assert_true(t.n_pages > 0);
    assert_true(t.disk_bytes <= budget);
}

/* ---- two processes that talk ---- */

/* A child that does what it is told by a byte, and answers with one. */
typedef struct helper {
    pid_t pid;
    int   to, from;
} helper;

static helper start_helper(void (*body)(const test_fixture *f, int in, int out), const test_fixture *f)
{
    int to[2], from[2];
    assert_int_equal(pipe(to), 0);
    assert_int_equal(pipe(from), 0);
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        close(to[1]);
        close(from[0]);
        body(f, to[0], from[1]);
        _exit(0);
    }
    close(to[0]);
    close(from[1]);
    return (helper){pid, to[1], from[0]};
}

static uint8_t ask(helper *h, uint8_t what)
{
    uint8_t answer;
    assert_int_equal(write(h->to, &what, 1), 1);
    assert_int_equal(read(h->from, &answer, 1), 1);
    return answer;
}

static void end_helper(helper *h)
{
    int status;
    close(h->to);
    close(h->from);
    assert_int_equal(waitpid(h->pid, &status, 0), h->pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* Stores the chain with the seed it is told. */
static void storing_body(const test_fixture *f, int in, int out)
{
    cairn_store *store = test_open(f->root, 1 << 30, P);
    uint8_t      seed;
    while (read(in, &seed, 1) == 1) {
        int32_t t[5 * P];
        test_tokens(t, 5 * P, seed);
        test_store(store, f->id, t, 5 * P - 3);
        cairn_store_stats s = test_stats(store);
        uint8_t           published = (uint8_t)s.pages_published;
        if (write(out, &published, 1) != 1)
            break;
    }
    cairn_store_close(store);
}

static void one_writes_the_other_finds(void **state)
{
    test_fixture     *f = *state;
    helper       h = start_helper(storing_body, f);
    cairn_store *store = test_open(f->root, 1 << 30, P);
    int32_t      t[5 * P];
    for (uint8_t seed = 1; seed <= 20; seed++) {
        test_tokens(t, 5 * P, seed);
        test_expect(store, f->id, t, 5 * P, 0, NULL, 0); /* also fills the listing cache */
        assert_int_equal(ask(&h, seed), seed * 5);
        test_expect(store, f->id, t, 5 * P, 5 * P - 3, t, 5 * P - 3);
        int32_t q[5 * P];
        memcpy(q, t, sizeof(q));
        q[P + 7]++; /* through the listing */
        test_expect(store, f->id, q, 5 * P, P + 7, t, 5 * P - 3);
    }
    end_helper(&h);
    /* What the other stored is not stored again. */
    test_tokens(t, 5 * P, 1);
    test_store(store, f->id, t, 5 * P - 3);
    assert_int_equal(test_stats(store).pages_published, 0);
    assert_int_equal(test_stats(store).pages_skipped, 5);
    cairn_store_close(store);
}

/* Both publish the same pages at the same time: one of them does, neither fails. */
static void racing_body(const test_fixture *f, int in, int out)
{
    cairn_store *store = test_open(f->root, 1 << 30, P);
    uint8_t      seed;
    while (read(in, &seed, 1) == 1) {
        int32_t t[16 * P];
        test_tokens(t, 16 * P, seed);
        test_store(store, f->id, t, 16 * P);
        cairn_store_stats s = test_stats(store);
        bool              good = s.pages_published + s.pages_skipped == s.pages_put && s.write_errors == 0;
        uint8_t           answer = good ? (uint8_t)(s.pages_published % 256) : 255;
        if (write(out, &answer, 1) != 1)
            break;
    }
    cairn_store_close(store);
}

static void both_publish_the_same(void **state)
{
    test_fixture *f = *state;
    helper   a = start_helper(racing_body, f), b = start_helper(racing_body, f);
    for (uint8_t seed = 1; seed <= 12; seed++) {
        uint8_t x, y;
        assert_int_equal(write(a.to, &seed, 1), 1);
        assert_int_equal(write(b.to, &seed, 1), 1);
        assert_int_equal(read(a.from, &x, 1), 1);
        assert_int_equal(read(b.from, &y, 1), 1);
        assert_true(x != 255 && y != 255);
        assert_int_equal(x + y, seed * 16);
        assert_int_equal(check_all(f).n_pages, seed * 16u);
    }
    end_helper(&b); /* the later one first: it inherited the pipe to the other */
    end_helper(&a);
    assert_int_equal(check_all(f).n_temps, 0);
}

/* A writer that was stopped in the middle for long still owns its temporary file. */
static void slow_body(const test_fixture *f, int in, int out)
{
    cairn__root   root;
    cairn__batch *batch;
    int32_t       t[P];
    bool          fatal, published[CAIRN__BATCH_PAGES];
    uint8_t       byte;
    cairn_digest  digest = cairn_identity_digest(f->id);
    test_tokens(t, P, 1);
    test_put *p = test_make_put(f->id, t, P, P, 0);
    if (cairn__root_open(f->root, &root, NULL) || cairn__batch_create(&root, &batch) ||
        cairn__batch_add(batch, &digest, cairn_identity_text(f->id, NULL), &p->pages[0], 0, &fatal) ||
        read(in, &byte, 1) != 1 || write(out, "a", 1) != 1 || read(in, &byte, 1) != 1)
        _exit(1);
    uint8_t answer = cairn__batch_publish(batch, published) == CAIRN_OK && published[0];
    (void)!write(out, &answer, 1);
    cairn__batch_destroy(batch);
    cairn__root_close(&root);
    test_release(p);
}

static void slow_writer_keeps_its_temporary(void **state)
{
    test_fixture *f = *state;
    int32_t  t[P];
    cairn_store_close(test_open(f->root, 1 << 30, P));
    helper h = start_helper(slow_body, f);
    assert_int_equal(ask(&h, 1), 'a');
    assert_int_equal(test_tree_of(f->root).n_temps, 1);
    age_temp(f->root);
    char *dead = NULL;
    assert_true(asprintf(&dead, "%s/v1/.tmp-00112233445566ff", f->root) > 0);
    test_write_file(dead, "x", 1);
    age_temp(f->root);
    reopen(f, 1 << 30, 1);
    assert_false(test_exists(dead));
    free(dead);
    assert_int_equal(ask(&h, 1), 1);
    end_helper(&h);
    cairn_store *store = test_open(f->root, 1 << 30, P);
    test_tokens(t, P, 1);
    test_expect(store, f->id, t, P, P, t, P);
    cairn_store_close(store);
}

/* ---- the ledger alone ---- */

/* Reserves 1,000 bytes and waits. */
static void reserving_body(const test_fixture *f, int in, int out)
{
    cairn__ledger *ledger;
    uint64_t       missing;
    uint8_t        byte;
    int            fd = open(f->root, O_RDONLY | O_DIRECTORY);
    if (cairn__ledger_open(fd, &ledger) || read(in, &byte, 1) != 1)
        _exit(1);
    uint8_t answer = cairn__ledger_reserve(ledger, 1000, &(cairn__ledger_limits){10000, 0}, &missing) == CAIRN_OK;
    (void)!write(out, &answer, 1);
    (void)!read(in, &byte, 1);
    if (byte == 2)
        cairn__ledger_close(ledger); /* byte 1: dies with it */
}

static void ledger_slots(void **state)
{
    test_fixture       *f = *state;
    cairn__ledger *ledger;
    uint64_t       missing = 0, id = 0, other = 0;
    int            fd = open(f->root, O_RDONLY | O_DIRECTORY);
    assert_true(fd >= 0);
    assert_int_equal(cairn__ledger_open(fd, &ledger), CAIRN_OK);
    assert_int_equal(cairn__ledger_reserve(ledger, 1, &(cairn__ledger_limits){10000, 0}, &missing), CAIRN_EBUSY); /* unknown */
    assert_true(cairn__ledger_wants_count(ledger));
    assert_int_equal(cairn__ledger_count_begin(ledger, &id), CAIRN_OK);
    cairn__ledger_count_end(ledger, id + 1, 1, true); /* not ours */
    assert_true(cairn__ledger_wants_count(ledger));
    assert_int_equal(cairn__ledger_count_begin(ledger, &id), CAIRN_OK);
    cairn__ledger_count_end(ledger, id, 5000, true);
    assert_false(cairn__ledger_wants_count(ledger));
    assert_int_equal(cairn__ledger_total(ledger), 5000);

    helper h = start_helper(reserving_body, f);
    assert_int_equal(ask(&h, 1), 1);
    assert_int_equal(cairn__ledger_total(ledger), 6000);
    assert_int_equal(cairn__ledger_reserve(ledger, 4001, &(cairn__ledger_limits){10000, 0}, &missing), CAIRN_ENOSPC);
    assert_int_equal(missing, 1);
    assert_int_equal(cairn__ledger_reserve(ledger, 4000, &(cairn__ledger_limits){10000, 0}, &missing), CAIRN_OK);
    assert_int_equal(cairn__ledger_total(ledger), 10000);
    assert_false(cairn__ledger_wants_count(ledger)); /* it lives */
    assert_int_equal(write(h.to, "\1", 1), 1);
    end_helper(&h); /* dies: what it reserved may lie on disk */
    assert_true(cairn__ledger_wants_count(ledger));
    assert_int_equal(cairn__ledger_total(ledger), 10000);
    /* Committed and freed during a count: the first is added, the second is not. */
    assert_int_equal(cairn__ledger_count_begin(ledger, &id), CAIRN_OK);
    cairn__ledger_commit(ledger, 4000, 3000);
    cairn__ledger_freed(ledger, 500, cairn__ledger_last_count(ledger));
    cairn__ledger_count_end(ledger, id, 5000, true);
    assert_int_equal(cairn__ledger_total(ledger), 8000);
    assert_true(cairn__ledger_wants_count(ledger)); /* the count may have met the 3000, too */
    assert_int_equal(cairn__ledger_count_begin(ledger, &id), CAIRN_OK);
    cairn__ledger_count_end(ledger, id, 8000, true);
    assert_false(cairn__ledger_wants_count(ledger));

    h = start_helper(reserving_body, f);
    assert_int_equal(ask(&h, 1), 1);
    assert_int_equal(cairn__ledger_total(ledger), 9000);
    assert_int_equal(write(h.to, "\2", 1), 1);
    end_helper(&h); /* in order: given back */
    assert_int_equal(cairn__ledger_total(ledger), 8000);
    assert_false(cairn__ledger_wants_count(ledger));
    /* Two that count at once: the second is told. */
    cairn__ledger *second;
    assert_int_equal(cairn__ledger_open(fd, &second), CAIRN_OK);
    assert_int_equal(cairn__ledger_count_begin(ledger, &id), CAIRN_OK);
    assert_int_equal(cairn__ledger_count_begin(second, &other), CAIRN_EBUSY);
    cairn__ledger_close(ledger); /* dies in the middle of it */
    assert_int_equal(cairn__ledger_count_begin(second, &other), CAIRN_OK);
    cairn__ledger_count_end(second, other, 77, false);
    assert_int_equal(cairn__ledger_total(second), 8000);
    /* Removed before a count that ended before it was told: gone already. */
    uint64_t before = cairn__ledger_last_count(second);
    assert_int_equal(cairn__ledger_count_begin(second, &other), CAIRN_OK);
    cairn__ledger_count_end(second, other, 7500, true);
    cairn__ledger_freed(second, 500, before);
    assert_int_equal(cairn__ledger_total(second), 7500);
    assert_true(cairn__ledger_wants_count(second)); /* or not, so one looks again */
    cairn__ledger_freed(second, 1 << 30, cairn__ledger_last_count(second)); /* never below nothing */
    assert_int_equal(cairn__ledger_total(second), 0);
    assert_int_equal(cairn__ledger_reserve(second, UINT64_MAX, &(cairn__ledger_limits){UINT64_MAX - 1, 0}, &missing), CAIRN_ENOSPC);
    cairn__ledger_close(second);
    cairn__ledger_close(NULL);
    close(fd);
}

int main(void)
{
    /* All of them fork; none before has a store open. */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(ledger_slots, test_setup, test_teardown),
        cmocka_unit_test_setup_teardown(slow_writer_keeps_its_temporary, test_setup, test_teardown),
        cmocka_unit_test_setup_teardown(one_writes_the_other_finds, test_setup, test_teardown),
        cmocka_unit_test_setup_teardown(both_publish_the_same, test_setup, test_teardown),
        cmocka_unit_test_setup_teardown(one_of_two_dies, test_setup, test_teardown),
        cmocka_unit_test_setup_teardown(killed_at_random_moments, test_setup, test_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
