/* The queue and the writer: bounds, releases, order, threads, full devices. */
#include "store_testing.h"

#include <pthread.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>

#define P 64u

static cairn_store *open_with_queue(const test_fixture *f, uint64_t queue_bytes)
{
    cairn_store_options o = {.root = f->root,
                             .budget_bytes = 1 << 30,
                             .reserve_bytes = 1,
                             .page_tokens = P,
                             .write_queue_bytes = queue_bytes};
    cairn_store        *store;
    assert_int_equal(cairn_store_open(&o, &store, NULL), CAIRN_OK);
    return store;
}

/* Fills the queue faster than the device syncs: puts are refused, none is lost, each
 * accepted one is released once, and everything accepted is there in the end. */
static void queue_is_bounded(void **state)
{
    test_fixture       *f = *state;
    const uint64_t limit = 20000;
    cairn_store   *store = open_with_queue(f, limit);
    atomic_int     released = 0;
    int32_t        t[200][2 * P];
    int            refused = 0;
    assert_int_equal(cairn_store_put_room(store), limit);
    for (int i = 0; i < 200; i++) {
        test_tokens(t[i], 2 * P, 100 + (uint64_t)i);
        test_put *p = test_make_put(f->id, t[i], 2 * P, P, 0);
        p->released = &released;
        uint64_t begun = test_now_ns();
        for (;;) {
            cairn_status status = cairn_store_put(store, &p->put);
            if (status == CAIRN_OK)
                break;
            assert_int_equal(status, CAIRN_EBUSY);
            assert_true(released <= i); /* not released */
            assert_true(test_now_ns() - begun < 60000000000u);
            refused++;
            sched_yield();
        }
        cairn_store_stats s = test_stats(store);
        assert_true(s.queued_bytes <= limit);
        assert_true(cairn_store_put_room(store) <= limit);
    }
    assert_int_equal(cairn_store_flush(store, 60000), CAIRN_OK);
    assert_int_equal(released, 200);
    assert_true(refused > 0);
    assert_int_equal(cairn_store_put_room(store), limit);
    cairn_store_stats s = test_stats(store);
    assert_int_equal(s.pages_put, 400);
    assert_int_equal(s.pages_published, 400);
    assert_int_equal(s.queued_bytes, 0);
    for (int i = 0; i < 200; i++)
        test_expect(store, f->id, t[i], 2 * P, 2 * P, t[i], 2 * P);
    cairn_store_close(store);
}

static void larger_than_the_queue(void **state)
{
    test_fixture     *f = *state;
    cairn_store *store = open_with_queue(f, 1000);
    int32_t      t[4 * P];
    test_tokens(t, 4 * P, 1);
    test_store(store, f->id, t, 4 * P); /* taken, since the queue is empty */
    test_expect(store, f->id, t, 4 * P, 4 * P, t, 4 * P);
    cairn_store_close(store);
}

/* Closing publishes what is queued. */
static void close_drains(void **state)
{
    test_fixture     *f = *state;
    cairn_store *store = open_with_queue(f, 0);
    atomic_int   released = 0;
    int32_t      t[20][3 * P];
    for (int i = 0; i < 20; i++) {
        test_tokens(t[i], 3 * P, (uint64_t)i + 1);
        test_put *p = test_make_put(f->id, t[i], 3 * P, P, 0);
        p->released = &released;
        assert_int_equal(cairn_store_put(store, &p->put), CAIRN_OK);
    }
    cairn_store_close(store);
    assert_int_equal(released, 20);
    store = open_with_queue(f, 0);
    for (int i = 0; i < 20; i++)
        test_expect(store, f->id, t[i], 3 * P, 3 * P, t[i], 3 * P);
    cairn_store_close(store);
}

static void flush_waits_and_times_out(void **state)
{
    test_fixture     *f = *state;
    cairn_store *store = open_with_queue(f, 0);
    int32_t      t[8 * P];
    bool         timed_out = false;
    assert_int_equal(cairn_store_flush(store, 0), CAIRN_OK); /* nothing to wait for */
    for (int i = 0; i < 50 && !timed_out; i++) {
        test_tokens(t, 8 * P, (uint64_t)i + 1);
        test_put *p = test_make_put(f->id, t, 8 * P, P, 0);
        assert_int_equal(cairn_store_put(store, &p->put), CAIRN_OK);
        timed_out = cairn_store_flush(store, 0) == CAIRN_ETIMEDOUT;
    }
    assert_true(timed_out);
    assert_int_equal(cairn_store_flush(store, 60000), CAIRN_OK);
    cairn_put nothing = {.identity = f->id};
    assert_int_equal(cairn_store_put(store, &nothing), CAIRN_OK);
    cairn_store_close(store);
}

/* Out of descriptors: lookups offer what they could open, nothing breaks, and
 * afterwards everything is there. */
static void out_of_descriptors(void **state)
{
    test_fixture      *f = *state;
    cairn_store  *store = open_with_queue(f, 0);
    int32_t       t[40 * P];
    struct rlimit old, few;
    test_tokens(t, 40 * P, 1);
    test_store(store, f->id, t, 40 * P);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    int next = open("/dev/null", O_RDONLY);
    assert_true(next >= 0);
    close(next);
    for (int spare = 0; spare < 30; spare++) {
        cairn_pin *pin;
        few = (struct rlimit){(rlim_t)(next + spare), old.rlim_max};
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
        cairn_hit hit = test_lookup(store, f->id, t, 40 * P, 0, 0, &pin);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
        assert_true(hit.cached_tokens <= (uint32_t)spare * P);
        assert_int_equal(hit.miss, CAIRN_MISS_IO);
        if (spare >= 4)
            assert_true(hit.cached_tokens > 0);
        if (pin)
            test_check_pin(pin, &hit, f->id, t, 40 * P, P, 0);
        cairn_pin_release(pin);
    }
    assert_int_equal(test_stats(store).pages_corrupt, 0);
    test_expect(store, f->id, t, 40 * P, 40 * P, t, 40 * P);
    cairn_store_close(store);
}

/* ---- many threads ---- */

typedef struct crowd {
    cairn_store    *store;
    cairn_identity *id;
    atomic_int      released, accepted, wrong, found;
} crowd;

/* Puts and looks up the same few sequences as everybody else. */
static void *member(void *ctx)
{
    crowd      *c = ctx;
    test_random r = {(uint64_t)(uintptr_t)&r | 1};
    for (int i = 0; i < 40; i++) {
        int32_t    t[6 * P];
        uint32_t   n = 1 + test_below(&r, 6 * P);
        cairn_pin *pin = NULL;
        cairn_hit  hit;
        test_tokens(t, 6 * P, 1 + test_below(&r, 5));
        if (i % 2) {
            test_put *p = test_make_put(c->id, t, n, P, 0);
            p->released = &c->released;
            if (cairn_store_put(c->store, &p->put) == CAIRN_OK)
                atomic_fetch_add(&c->accepted, 1);
            else
                test_release(p), atomic_fetch_sub(&c->released, 1);
        }
        cairn_query q = {.identity = c->id, .tokens = t, .n_tokens = n};
        if (cairn_store_lookup(c->store, &q, &hit, &pin) != CAIRN_OK)
            atomic_fetch_add(&c->wrong, 1);
        for (uint32_t k = 0; pin && k < hit.n_pages; k++) {
            cairn_page_view v = cairn_pin_page(pin, k);
            for (uint32_t b = 0; b < v.n_blocks; b++) {
                uint8_t *data = malloc(v.block_size[b] + 1);
                if (cairn_pin_read_block(pin, k, b, data) != CAIRN_OK)
                    atomic_fetch_add(&c->wrong, 1);
                free(data);
            }
        }
        atomic_fetch_add(&c->found, hit.cached_tokens > 0);
        cairn_pin_release(pin);
        test_put *p = test_make_put(c->id, t, n, P, 0);
        (void)cairn_store_has(c->store, c->id, &p->pages[0]);
        test_release(p);
        (void)cairn_store_put_room(c->store);
        (void)test_stats(c->store);
        if (i % 8 == 0)
            (void)!cairn_store_flush(c->store, 5);
    }
    return NULL;
}

static void many_threads(void **state)
{
    test_fixture  *f = *state;
    crowd     c = {.store = test_open(f->root, 400 << 10, P), .id = f->id};
    pthread_t threads[6];
    int32_t   t[6 * P];
    for (uint64_t seed = 1; seed <= 5; seed += 2) { /* some are there from the start */
        test_tokens(t, 6 * P, seed);
        test_store(c.store, f->id, t, 4 * P + 9);
    }
    for (int i = 0; i < 6; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, member, &c), 0);
    for (int i = 0; i < 6; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    cairn_store_close(c.store);
    assert_int_equal(c.wrong, 0);
    assert_true(c.found > 0);
    assert_int_equal(c.released, c.accepted);
}

typedef struct readers {
    cairn_pin *pin;
    atomic_int next, corrupt, ok;
    uint32_t   n_pages;
} readers;

static void *read_blocks(void *ctx)
{
    readers *r = ctx;
    for (int i; (i = atomic_fetch_add(&r->next, 1)) < (int)(r->n_pages * TEST_BLOCKS * 4);) {
        uint32_t        page = (uint32_t)i / TEST_BLOCKS % r->n_pages, block = (uint32_t)i % TEST_BLOCKS;
        cairn_page_view v = cairn_pin_page(r->pin, page);
        uint8_t        *data = malloc(v.block_size[block] + 1);
        cairn_status    status = cairn_pin_read_block(r->pin, page, block, data);
        atomic_fetch_add(status == CAIRN_OK ? &r->ok : &r->corrupt, 1);
        free(data);
    }
    return NULL;
}

/* One pin, many readers; a bad page is counted once. */
static void many_readers_of_one_pin(void **state)
{
    test_fixture     *f = *state;
    cairn_store *store = test_open(f->root, 1 << 30, P);
    int32_t      t[4 * P];
    pthread_t    threads[4];
    test_tokens(t, 4 * P, 3);
    test_store(store, f->id, t, 4 * P);
    test_put *p = test_make_put(f->id, t, 4 * P, P, 0);
    char     *path = test_page_path(f->root, f->id, &p->pages[2]);
    test_release(p);
    readers   r = {.n_pages = 4};
    cairn_hit hit = test_lookup(store, f->id, t, 4 * P, 0, 0, &r.pin);
    assert_int_equal(hit.n_pages, 4);
    int fd = open(path, O_WRONLY);
    assert_int_equal(pwrite(fd, "x", 1, 4096 + 5), 1); /* in the first block */
    close(fd);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, read_blocks, &r), 0);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(r.corrupt, 4);
    assert_int_equal(r.ok, 4 * 4 * TEST_BLOCKS - 4);
    assert_int_equal(test_stats(store).pages_corrupt, 1);
    assert_int_equal(test_stats(store).pages_quarantined, 1);
    cairn_pin_release(r.pin);
    free(path);
    cairn_store_close(store);
}

/* ---- a device that is full ---- */

static int full_device_body(test_fixture *f)
{
    char path[600];
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("cairn-test", f->root, "tmpfs", 0, "size=1m,mode=0700") != 0)
        return 77;
    int32_t      t[40][4 * P];
    atomic_int   released = 0;
    cairn_store *store = test_open(f->root, 1 << 30, P); /* the budget is larger than the device */
    for (int i = 0; i < 40; i++) {
        test_tokens(t[i], 4 * P, 10 + (uint64_t)i);
        test_put *p = test_make_put(f->id, t[i], 4 * P, P, 0);
        p->released = &released;
        if (cairn_store_put(store, &p->put) != CAIRN_OK || cairn_store_flush(store, 60000) != CAIRN_OK)
            return 1;
    }
    cairn_store_stats s = test_stats(store);
    test_tree         tree = test_tree_of(f->root);
    if (released != 40 || s.pages_given_up == 0 || !s.read_only || cairn_store_put_room(store) != 0)
        return 2;
    if (s.pages_published + s.pages_given_up != 160 || tree.n_pages != s.pages_published || tree.n_temps != 0)
        return 3;
    /* What is there is served, complete; and nothing is there in part. */
    uint32_t found = 0;
    for (int i = 0; i < 40; i++) {
        cairn_pin *pin;
        cairn_hit  hit = test_lookup(store, f->id, t[i], 4 * P, 0, 0, &pin);
        found += hit.n_pages;
        if (pin)
            test_check_pin(pin, &hit, f->id, t[i], 4 * P, P, 0);
        cairn_pin_release(pin);
    }
    if (found != s.pages_published || test_stats(store).pages_corrupt != 0)
        return 4;
    /* Room again: it writes again, after a while. */
    snprintf(path, sizeof(path), "rm -rf '%s/v1'", f->root);
    if (system(path) != 0)
        return 5;
    for (int i = 0; i < 150 && cairn_store_put_room(store) == 0; i++)
        test_sleep_ms(100);
    if (cairn_store_put_room(store) == 0)
        return 6;
    test_put *p = test_make_put(f->id, t[0], 4 * P, P, 0);
    if (cairn_store_put(store, &p->put) != CAIRN_OK || cairn_store_flush(store, 60000) != CAIRN_OK)
        return 7;
    cairn_pin *pin;
    cairn_hit  hit = test_lookup(store, f->id, t[0], 4 * P, 0, 0, &pin);
    cairn_pin_release(pin);
    s = test_stats(store);
    cairn_store_close(store);
    return hit.cached_tokens == 4 * P && !s.read_only ? 0 : 8;
}

static void full_device(void **state)
{
    int status;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0)
        _exit(full_device_body(*state));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77)
        printf("skipped: can't mount a small file system\n");
    else
        assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(full_device, test_setup, test_teardown), /* forks: before any store has threads */
        cmocka_unit_test_setup_teardown(queue_is_bounded, test_setup, test_teardown),
        cmocka_unit_test_setup_teardown(larger_than_the_queue, test_setup, test_teardown),
        cmocka_unit_test_setup_teardown(close_drains, test_setup, test_teardown),
        cmocka_unit_test_setup_teardown(flush_waits_and_times_out, test_setup, test_teardown),
        cmocka_unit_test_setup_teardown(out_of_descriptors, test_setup, test_teardown),
        cmocka_unit_test_setup_teardown(many_threads, test_setup, test_teardown),
        cmocka_unit_test_setup_teardown(many_readers_of_one_pin, test_setup, test_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
