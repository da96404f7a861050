/* A disk that hangs: one call does not return. Whoever made it waits; nobody else
 * may. The Nth call of every kind hangs, N rising, first of a thread that reads,
 * then of the store's own; meanwhile another thread looks up, reads, asks and
 * puts, and each of these must return soon. Afterwards all goes on. */
#include "fault.h"
#include "world.h"

#include <pthread.h>

#define SOON_NS (UINT64_C(5) * 1000000000) /* a busy machine included; a wait for the disk has no end */

typedef struct hang {
    world        w;
    cairn_store *store;
    atomic_bool  done;
} hang;

static const char *now_kind = "";
static unsigned    now_n;

static void *read_all(void *ctx)
{
    hang *h = ctx;
    (void)world_read(&h->w, h->store, LONG, 72);
    (void)world_read(&h->w, h->store, FORK, 48);
    atomic_store(&h->done, true);
    return NULL;
}

/* What a request does, on a thread of its own in a real program. */
static void others_go_on(hang *h)
{
    uint64_t  began = test_now_ns();
    test_put *p = test_make_put(h->w.id, h->w.sequences[OTHER].tokens, 48, P, 0);
    if (world_read(&h->w, h->store, OTHER, 48) != 48)
        FINDING("not found while another call hangs");
    if (!cairn_store_has(h->store, h->w.id, &p->pages[0]))
        FINDING("not there while another call hangs");
    (void)cairn_store_put_room(h->store);
    (void)test_stats(h->store);
    cairn_status status = cairn_store_put(h->store, &p->put);
    if (status)
        test_release(p);
    if (status && status != CAIRN_EBUSY)
        FINDING("put said %s", cairn_status_name(status));
    if (test_now_ns() - began > SOON_NS)
        FINDING("it took %u s", (unsigned)((test_now_ns() - began) / 1000000000));
}

static void setup_world(hang *h)
{
    *h = (hang){.done = false};
    world_init(&h->w);
    assert_int_equal(world_open(&h->w, &h->store), CAIRN_OK);
    assert_int_equal(world_put(&h->w, h->store, LONG, NULL), CAIRN_OK);
    assert_int_equal(world_put(&h->w, h->store, OTHER, NULL), CAIRN_OK);
}

static void end_world(hang *h)
{
    cairn_store_close(h->store);
    (void)check_pages(&h->w, h->w.root);
    world_done(&h->w);
}

static void arm(fault_kind kind, unsigned n)
{
    now_kind = fault_kind_name(kind);
    now_n = n;
    alarm(20);
    fault_arm(&(fault_plan){.kinds = FAULT_MASK(kind), .n = n, .effect = FAULT_HANG});
}

/* False: nothing hung. */
static bool reader_hangs(fault_kind kind, unsigned n)
{
    hang      h;
    pthread_t thread;
    setup_world(&h);
    arm(kind, n);
    assert_int_equal(pthread_create(&thread, NULL, read_all, &h), 0);
    while (fault_n_fired() == 0 && !atomic_load(&h.done))
        test_sleep_ms(1);
    bool fired = fault_n_fired() > 0;
    if (fired)
        others_go_on(&h);
    (void)fault_disarm();
    pthread_join(thread, NULL);
    assert_true(atomic_load(&h.done));
    end_world(&h);
    return fired;
}

static bool writer_hangs(fault_kind kind, unsigned n)
{
    hang h;
    setup_world(&h);
    arm(kind, n);
    test_put *p = test_make_put(h.w.id, h.w.sequences[MORE_1].tokens, 96, P, 0);
    assert_int_equal(cairn_store_put(h.store, &p->put), CAIRN_OK);
    while (fault_n_fired() == 0 && cairn_store_flush(h.store, 1) == CAIRN_ETIMEDOUT)
        continue;
    bool fired = fault_n_fired() > 0;
    if (fired) {
        others_go_on(&h);
        bool writers_alone = kind != FAULT_CLOSE && kind != FAULT_STAT; /* else it may be the janitor that hangs */
        if (cairn_store_flush(h.store, 10) != CAIRN_ETIMEDOUT && writers_alone)
            FINDING("a flush returned while the writer hangs");
    }
    (void)fault_disarm();
    assert_int_equal(cairn_store_flush(h.store, 30000), CAIRN_OK);
    assert_int_equal(world_read(&h.w, h.store, MORE_1, 96), 96);
    end_world(&h);
    return fired;
}

static void drive(bool (*run)(fault_kind kind, unsigned n), const fault_kind *kinds, size_t n_kinds)
{
    unsigned n_hung = 0;
    for (size_t i = 0; i < n_kinds; i++)
        for (unsigned n = 1; run(kinds[i], n); n += 1 + n / 8)
            n_hung++;
    now_kind = "";
    alarm(0);
    printf("%u calls hung\n", n_hung);
    assert_true(n_hung > 20);
}

static void a_read_hangs(void **state)
{
    static const fault_kind kinds[] = {FAULT_OPEN, FAULT_FSTAT, FAULT_READ, FAULT_LIST, FAULT_CLOSE};
    (void)state;
    drive(reader_hangs, kinds, sizeof(kinds) / sizeof(kinds[0]));
}

static void a_write_hangs(void **state)
{
    static const fault_kind kinds[] = {FAULT_CREATE, FAULT_WRITE, FAULT_SYNC,       FAULT_SYNC_DIR, FAULT_START_WRITE,
                                       FAULT_MKDIR,  FAULT_LOCK,  FAULT_RENAME_NEW, FAULT_SPACE,    FAULT_STAT};
    (void)state;
    drive(writer_hangs, kinds, sizeof(kinds) / sizeof(kinds[0]));
}

static int teardown(void **state)
{
    (void)state;
    (void)fault_disarm();
    if (now_kind[0])
        fprintf(stderr, "%s number %u hung\n", now_kind, now_n);
    now_kind = "";
    world_clean_up();
    return 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(a_read_hangs, teardown),
        cmocka_unit_test_teardown(a_write_hangs, teardown),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
