/* Every call that can fail, fails: each scenario is run with its Nth call failing,
 * N rising until nothing fires, for every kind of call and several errors, once
 * and for good. After each run the store is opened again without faults:
 *   - every page file is whole, and what was there before is still found
 *   - every byte that was ever returned as good is right (during the run too)
 *   - the store takes pages again, and the root fits its budget
 *   - no descriptor and no allocation is left over, and nothing took long
 *   - while it ran, what lay on disk never passed what the ledger says
 * CAIRN_CRASH_POINTS set: every N. Else N grows in steps after the first ones. */
#include "fault.h"
#include "store/verify.h"
#include "world.h"

#include <errno.h>

#define MAX_RUN_NS (UINT64_C(20) * 1000000000) /* a busy machine included; a wait for nothing is longer */

typedef struct scenario {
    const char *name;
    void (*prepare)(world *w); /* the root that each run starts from */
    void (*run)(world *w);     /* with faults */
    uint64_t    budget;
    uint32_t    keeps[N_SEQUENCES]; /* tokens of each sequence that must be found afterwards */
    const char *bad_boot;           /* not NULL: the machine seems to have booted anew */
} scenario;

typedef struct totals {
    uint64_t runs, fired, slowest_ns;
} totals;

/* ---- watching the ledger ---- */

static char watch_text[256];

/* Of the writer thread, which alone makes the tree larger: the ledger is written by
 * others too, and while one looks around the writer goes on. */
static void watch_written(void *ctx, int fd)
{
    const world *w = ctx;
    struct stat  st, ledger;
    char         path[4096];
    snprintf(path, sizeof(path), "%s/ledger", w->root);
    if (fstat(fd, &st) != 0 || stat(path, &ledger) != 0 || st.st_ino == ledger.st_ino)
        return;
    uint64_t total, used = disk_usage(w->root);
    if (ledger_total(w->root, &total) && used > total && !watch_text[0])
        snprintf(watch_text, sizeof(watch_text), "%llu bytes on disk, the ledger says %llu", (unsigned long long)used,
                 (unsigned long long)total);
    if (used > w->budget && !watch_text[0])
        snprintf(watch_text, sizeof(watch_text), "%llu bytes on disk, budget %llu", (unsigned long long)used,
                 (unsigned long long)w->budget);
}

/* ---- scenarios ---- */

static void put_clean(const world *w, int sequence)
{
    cairn_store *store;
    bool         published;
    assert_int_equal(world_open(w, &store), CAIRN_OK);
    assert_int_equal(world_put(w, store, sequence, &published), CAIRN_OK);
    assert_true(published);
    assert_int_equal(world_note(w, store), CAIRN_OK);
    assert_int_equal(world_recent(w, store), 2);
    cairn_store_close(store);
}

static void prepare_nothing(world *w)
{
    (void)w;
}

static void prepare_long(world *w)
{
    put_clean(w, LONG);
}

static void prepare_short(world *w)
{
    put_clean(w, SHORT);
    put_clean(w, OTHER);
}

static void prepare_full(world *w)
{
    for (int i = SHORT; i <= LATER; i++)
        put_clean(w, i);
}

static void prepare_states(world *w)
{
    cairn_store *store;
    bool         published;
    put_clean(w, LONG);
    assert_int_equal(world_open(w, &store), CAIRN_OK);
    assert_int_equal(world_put_checkpoint(w, store, LONG, 40, &published), CAIRN_OK);
    assert_true(published);
    cairn_store_close(store);
}

/* Flips a bit in a page: in its header, its last block, or its first. */
static void spoil(const world *w, int sequence, uint32_t page, int64_t offset)
{
    char       *name = world_page_name(w, sequence, page), *path = NULL;
    struct stat st;
    uint8_t     byte;
    assert_true(asprintf(&path, "%s/%s", w->root, name) > 0);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0 && fstat(fd, &st) == 0);
    off_t at = (off_t)(offset < 0 ? st.st_size + offset : offset);
    assert_int_equal(pread(fd, &byte, 1, at), 1);
    byte ^= 1;
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    close(fd);
    free(path);
    free(name);
}

/* A page that is valid in itself, under the key of other tokens. */
static void forge(const world *w, int sequence, uint32_t page)
{
    static uint8_t     data[1 << 16];
    int32_t            tokens[P];
    cairn__page_block  blocks[TEST_BLOCKS];
    cairn__page_header h;
    char              *name = world_page_name(w, sequence, page), *path = NULL;
    assert_true(asprintf(&path, "%s/%s", w->root, name) > 0);
    size_t size = test_read_file(path, data, sizeof(data));
    assert_int_equal(world_decode(data, size, &h), CAIRN_OK);
    for (uint32_t i = 0; i < h.n_tokens; i++)
        tokens[i] = cairn__page_token(&h, i);
    for (uint32_t i = 0; i < TEST_BLOCKS; i++)
        blocks[i] = cairn__page_block_at(&h, i);
    tokens[h.n_tokens - 1]++;
    h.tokens = tokens;
    h.blocks = blocks;
    h.raw_tokens = h.raw_table = NULL;
    assert_int_equal(world_encode(&h, data, sizeof(data)), CAIRN_OK);
    test_write_file(path, data, size);
    free(path);
    free(name);
}

static void prepare_bad(world *w)
{
    prepare_full(w);
    forge(w, LONG, 2);
    spoil(w, FORK, 2, -1);
    spoil(w, OTHER, 0, 20);
    spoil(w, LATER, 1, 4096);
}

/* What a process that was killed leaves: a temporary file, old. */
static void prepare_dead(world *w)
{
    char *name = world_page_name(w, LONG, 0), *path = NULL;
    prepare_long(w);
    assert_true(asprintf(&path, "%s/%.*s/.tmp-0123456789abcdef", w->root, (int)(strrchr(name, '/') - name), name) > 0);
    test_write_file(path, "half a page", 11);
    assert_int_equal(utimensat(AT_FDCWD, path, (struct timespec[2]){{.tv_sec = 1000}, {.tv_sec = 1000}}, 0), 0);
    free(path);
    free(name);
}

static cairn_store *open_faulty(world *w)
{
    cairn_store *store = NULL;
    return FAULTY(world_open(w, &store)) ? NULL : store;
}

static void run_record(world *w)
{
    cairn_store *store = open_faulty(w);
    bool         published = false;
    if (!store)
        return;
    (void)FAULTY(world_put(w, store, LONG, &published));
    (void)FAULTY(world_put(w, store, OTHER, NULL));
    (void)FAULTY(world_note(w, store));
    (void)FAULTY(world_read(w, store, LONG, 72));
    FAULTY_VOID(cairn_store_close(store));
}

static void run_lookup(world *w)
{
    cairn_store *store = open_faulty(w);
    if (!store)
        return;
    (void)FAULTY(world_read(w, store, LONG, 72));
    (void)FAULTY(world_read(w, store, LONG, 70));
    (void)FAULTY(world_read(w, store, FORK, 48)); /* by the search among children */
    test_put *p = test_make_put(w->id, w->sequences[LONG].tokens, 72, P, 0);
    (void)FAULTY(cairn_store_has(store, w->id, &p->pages[1]));
    (void)FAULTY(cairn_store_put_room(store));
    (void)FAULTY(world_recent(w, store));
    test_release(p);
    FAULTY_VOID(cairn_store_close(store));
}

static void run_evict(world *w)
{
    cairn_store *store = open_faulty(w);
    if (!store)
        return;
    fault_watch(watch_written, w);
    for (int i = MORE_1; i <= MORE_3; i++)
        (void)FAULTY(world_put(w, store, i, NULL));
    (void)FAULTY(world_note(w, store));
    (void)FAULTY(world_read(w, store, LONG, 72));
    FAULTY_VOID(cairn_store_close(store));
    fault_watch(NULL, NULL);
}

static void run_supersede(world *w)
{
    cairn_store *store = open_faulty(w);
    if (!store)
        return;
    (void)FAULTY(world_put(w, store, LONG, NULL));
    (void)FAULTY(world_put(w, store, SHORT, NULL)); /* covered, or stored again */
    (void)FAULTY(world_read(w, store, LONG, 72));
    FAULTY_VOID(cairn_store_close(store));
}

/* Of a model with state that can't be cut. */
static void run_checkpoint(world *w)
{
    cairn_store *store = open_faulty(w);
    if (!store)
        return;
    (void)FAULTY(world_put_checkpoint(w, store, LONG, 70, NULL));
    (void)FAULTY(world_put_checkpoint(w, store, LONG, 20, NULL));
    (void)FAULTY(world_put_checkpoint(w, store, OTHER, 48, NULL)); /* of which no page is there */
    (void)FAULTY(world_read_checkpoint(w, store, LONG, 72));
    (void)FAULTY(world_read_checkpoint(w, store, LONG, 69));
    (void)FAULTY(world_read_checkpoint(w, store, FORK, 48)); /* at most at 20: they part at 24 */
    FAULTY_VOID(cairn_store_close(store));
}

/* Where checkpoints and pages compete for room. */
static void run_evict_checkpoints(world *w)
{
    cairn_store *store = open_faulty(w);
    if (!store)
        return;
    fault_watch(watch_written, w);
    for (int i = MORE_1; i <= MORE_3; i++) {
        (void)FAULTY(world_put(w, store, i, NULL));
        (void)FAULTY(world_put_checkpoint(w, store, i, 95, NULL));
        (void)FAULTY(world_put_checkpoint(w, store, i, 32, NULL));
    }
    (void)FAULTY(world_read_checkpoint(w, store, MORE_3, 96));
    (void)FAULTY(world_read_checkpoint(w, store, LONG, 72));
    FAULTY_VOID(cairn_store_close(store));
    fault_watch(NULL, NULL);
}

static void run_reopen(world *w)
{
    run_record(w);
    cairn_store *store = open_faulty(w);
    if (!store)
        return;
    (void)FAULTY(world_read(w, store, LONG, 72));
    (void)FAULTY(world_put(w, store, LATER, NULL));
    FAULTY_VOID(cairn_store_close(store));
}

static void run_quarantine(world *w)
{
    cairn_store *store = open_faulty(w);
    if (!store)
        return;
    for (int i = LONG; i <= LATER; i++)
        (void)FAULTY(world_read(w, store, i, w->sequences[i].n));
    (void)FAULTY(world_put(w, store, LATER, NULL)); /* the good page takes the bad one's place */
    (void)FAULTY(world_read(w, store, LATER, 40));
    FAULTY_VOID(cairn_store_close(store));
}

/* The tools, on a root as a server leaves it. */
static cairn_store *open_tool_faulty(world *w)
{
    cairn_store *store = NULL;
    cairn_error  error;
    return FAULTY(cairn__tool_open(w->root, true, &store, &error)) ? NULL : store;
}

static void run_clear(world *w)
{
    cairn__tool_result r;
    cairn_store       *store = open_tool_faulty(w);
    if (!store)
        return;
    (void)FAULTY(cairn__tool_clear(store, &r));
    FAULTY_VOID(cairn_store_close(store));
    run_lookup(w);
}

static void run_prune(world *w)
{
    cairn__tool_result r;
    cairn_store       *store = open_tool_faulty(w);
    if (!store)
        return;
    (void)FAULTY(cairn__tool_prune(store, 64u << 10, &r));
    FAULTY_VOID(cairn_store_close(store));
    run_lookup(w);
}

static void run_verify(world *w)
{
    cairn__verify_request request = {.deep = true};
    cairn__verify_result  r;
    cairn_store          *store = open_tool_faulty(w);
    if (!store)
        return;
    (void)FAULTY(cairn__verify(store, &request, &r));
    FAULTY_VOID(cairn_store_close(store));
    run_lookup(w);
}

#define GIB (UINT64_C(1) << 30)
static const scenario RECORD = {"record", prepare_nothing, run_record, GIB, {0}, NULL};
static const scenario LOOKUP = {"lookup", prepare_long, run_lookup, GIB, {[LONG] = 72}, NULL};
static const scenario EVICT = {"evict", prepare_full, run_evict, 192u << 10, {0}, NULL};
static const scenario CHECKPOINT = {"checkpoint", prepare_states, run_checkpoint, GIB, {[LONG] = 72}, NULL};
static const scenario EVICT_CHECKPOINTS = {"evict_checkpoints", prepare_states, run_evict_checkpoints, 192u << 10, {0}, NULL};
static const scenario SUPERSEDE = {"supersede", prepare_short, run_supersede, GIB, {[SHORT] = 40, [OTHER] = 48}, NULL};
static const scenario REOPEN = {"reopen", prepare_short, run_reopen, GIB, {[SHORT] = 40, [OTHER] = 48}, NULL};
static const scenario QUARANTINE = {
    "quarantine", prepare_bad, run_quarantine, GIB, {[LONG] = 32, [FORK] = 32, [LATER] = 16}, NULL};
static const scenario DEAD = {"dead", prepare_dead,  run_reopen,
                              GIB,    {[LONG] = 72}, "another boot of the machine, 36 long"};

static const scenario CLEAR = {"clear", prepare_full, run_clear, GIB, {0}, NULL};
static const scenario PRUNE = {"prune", prepare_full, run_prune, GIB, {0}, NULL};
static const scenario VERIFY = {
    "verify", prepare_bad, run_verify, GIB, {[LONG] = 32, [FORK] = 32, [LATER] = 16}, NULL};

/* ---- what can happen to a call ---- */

typedef struct mishap {
    fault_kind   kind;
    fault_effect effect;
    int          error;
    bool         once, for_good;
    bool         loses; /* a good page may be taken for a bad one */
} mishap;

static const mishap MISHAPS[] = {
    {FAULT_OPEN, FAULT_ERROR, EMFILE, true, true, false},
    {FAULT_OPEN, FAULT_ERROR, EIO, true, false, false},
    {FAULT_OPEN, FAULT_ERROR, EINTR, true, false, false},
    {FAULT_CREATE, FAULT_ERROR, ENOSPC, true, true, false},
    {FAULT_CREATE, FAULT_ERROR, EMFILE, true, true, false},
    {FAULT_CREATE, FAULT_LATE_ERROR, EIO, true, false, false},
    {FAULT_CLOSE, FAULT_ERROR, EIO, true, true, false},
    {FAULT_READ, FAULT_ERROR, EIO, true, true, false},
    {FAULT_READ, FAULT_ERROR, EINTR, true, false, false},
    {FAULT_READ, FAULT_SHORT, 0, true, true, false},
    {FAULT_READ, FAULT_NOTHING, 0, true, true, true},
    {FAULT_READ, FAULT_GARBLE, 0, true, true, true},
    {FAULT_WRITE, FAULT_ERROR, EIO, true, true, false},
    {FAULT_WRITE, FAULT_ERROR, ENOSPC, true, true, false},
    {FAULT_WRITE, FAULT_ERROR, EDQUOT, true, false, false},
    {FAULT_WRITE, FAULT_ERROR, EINTR, true, false, false},
    {FAULT_WRITE, FAULT_LATE_ERROR, EIO, true, false, false},
    {FAULT_WRITE, FAULT_SHORT, 0, true, true, false},
    {FAULT_WRITE, FAULT_NOTHING, 0, true, true, false},
    {FAULT_SYNC, FAULT_ERROR, EIO, true, true, false},
    {FAULT_SYNC, FAULT_ERROR, ENOSPC, true, true, false},
    {FAULT_SYNC, FAULT_ERROR, EDQUOT, true, false, false},
    {FAULT_SYNC_DIR, FAULT_ERROR, EIO, true, true, false},
    {FAULT_SYNC_DIR, FAULT_ERROR, ENOSPC, true, false, false},
    {FAULT_START_WRITE, FAULT_ERROR, EIO, true, true, false},
    {FAULT_RENAME_NEW, FAULT_ERROR, EIO, true, true, false},
    {FAULT_RENAME_NEW, FAULT_ERROR, ENOSPC, true, true, false},
    {FAULT_RENAME_NEW, FAULT_ERROR, EINVAL, true, true, false}, /* a file system without it: hard links */
    {FAULT_RENAME_NEW, FAULT_LATE_ERROR, EIO, true, false, false},
    {FAULT_RENAME, FAULT_ERROR, EIO, true, true, false},
    {FAULT_RENAME, FAULT_ERROR, EXDEV, true, true, false},
    {FAULT_RENAME, FAULT_LATE_ERROR, EIO, true, false, false},
    {FAULT_UNLINK, FAULT_ERROR, EIO, true, true, false},
    {FAULT_UNLINK, FAULT_LATE_ERROR, EIO, true, false, false},
    {FAULT_RMDIR, FAULT_ERROR, EIO, true, true, false},
    {FAULT_CHMOD, FAULT_ERROR, EPERM, true, true, false},
    {FAULT_MKDIR, FAULT_ERROR, ENOSPC, true, true, false},
    {FAULT_MKDIR, FAULT_ERROR, EDQUOT, true, false, false},
    {FAULT_MKDIR, FAULT_LATE_ERROR, EIO, true, false, false},
    {FAULT_STAT, FAULT_ERROR, EIO, true, true, false},
    {FAULT_FSTAT, FAULT_ERROR, EIO, true, true, false},
    {FAULT_TOUCH, FAULT_ERROR, EIO, true, true, false},
    {FAULT_LIST, FAULT_ERROR, EIO, true, true, false},
    {FAULT_SPACE, FAULT_ERROR, EIO, true, true, false},
    {FAULT_SPACE, FAULT_ERROR, EINTR, true, false, false},
    {FAULT_LOCK, FAULT_ERROR, ENOLCK, true, true, false},
    {FAULT_LOCK, FAULT_ERROR, EAGAIN, true, false, false},
    {FAULT_RANDOM, FAULT_ERROR, ENOSYS, true, true, false},
    {FAULT_RANDOM, FAULT_ERROR, EINTR, true, false, false},
    {FAULT_MALLOC, FAULT_ERROR, ENOMEM, true, true, false},
    {FAULT_THREAD, FAULT_ERROR, EAGAIN, true, true, false},
    {FAULT_CLOCK, FAULT_PAST, 0, true, false, false},
    {FAULT_CLOCK, FAULT_FUTURE, 0, true, false, false},
};
#define N_MISHAPS (sizeof(MISHAPS) / sizeof(MISHAPS[0]))

/* Kinds after whose failure there is something to be removed. */
#define LEAVES_FILES                                                                                                   \
    (FAULT_MASK(FAULT_CREATE) | FAULT_MASK(FAULT_WRITE) | FAULT_MASK(FAULT_SYNC) | FAULT_MASK(FAULT_SYNC_DIR) |        \
     FAULT_MASK(FAULT_RENAME_NEW) | FAULT_MASK(FAULT_LOCK) | FAULT_MASK(FAULT_MALLOC))

/* ---- one run ---- */

static void expect_kept(const world *w, cairn_store *store, const scenario *s, bool loses)
{
    for (int i = 0; i < N_SEQUENCES; i++) {
        uint32_t good = world_read(w, store, i, w->sequences[i].n);
        if (good < s->keeps[i] && !loses)
            FINDING("sequence %d: %u tokens found, %u were stored", i, good, s->keeps[i]);
    }
    (void)world_recent(w, store);
    if (s->run == run_checkpoint && !loses && world_read_checkpoint(w, store, LONG, 72) < 40)
        FINDING("the checkpoint that was stored is not found");
}

static void verify(world *w, const scenario *s, bool loses)
{
    cairn_store *store = NULL;
    bool         published;
    bool         planted = s->prepare == prepare_bad;
    if (!planted)
        (void)check_pages(w, w->root);
    if (world_open(w, &store) != CAIRN_OK)
        FINDING("the store does not open again");
    expect_kept(w, store, s, loses);
    uint32_t good = 0;
    /* A bad page that no lookup has met is found by the first that reads it. */
    for (int tries = planted ? 2 : 1; tries > 0 && good < 32; tries--) {
        if (world_put(w, store, LATER, &published) != CAIRN_OK || !published)
            FINDING("the store takes nothing any more");
        good = world_read(w, store, LATER, 40);
    }
    if (good < 32)
        FINDING("what was stored afterwards is not found");
    for (int i = 0; i < N_SEQUENCES; i++) {
        (void)world_read(w, store, i, w->sequences[i].n);
        (void)world_read_checkpoint(w, store, i, w->sequences[i].n);
    }
    cairn_store_close(store);
    check_budget(w);
    if (!planted) /* else one that nobody met may still be there */
        (void)check_pages(w, w->root);
}

static uint64_t run_once(const world *prepared, const scenario *s, const fault_plan *plan, bool loses, totals *t)
{
    world w = *prepared;
    char  path[4096];
    snprintf(path, sizeof(path), "%s/run", prepared->base);
    w.root = path;
    if (access(prepared->root, F_OK) == 0)
        copy_tree(prepared->root, w.root);
    uint32_t descriptors = count_descriptors();
    size_t   allocations = fault_live_allocations();
    uint64_t began = test_now_ns();
    watch_text[0] = 0;
    fault_arm(plan);
    s->run(&w);
    uint64_t fired = fault_disarm();
    uint64_t took = test_now_ns() - began;
    if (watch_text[0])
        FINDING("%s", watch_text);
    if (count_descriptors() != descriptors)
        FINDING("%d descriptors are left open", (int)(count_descriptors() - descriptors));
    if (fault_live_allocations() != allocations)
        FINDING("%d allocations are left over", (int)(fault_live_allocations() - allocations));
    if (took > MAX_RUN_NS)
        FINDING("it took %u s", (unsigned)(took / 1000000000));
    verify(&w, s, loses);
    remove_tree(w.root);
    t->runs++;
    t->fired += fired;
    t->slowest_ns = took > t->slowest_ns ? took : t->slowest_ns;
    return fired;
}

/* What a failure of the test says in addition. */
static const scenario *now_scenario;
static fault_plan      now_plan; /* n 0: none */

static void say_where(void)
{
    if (!now_plan.n)
        return;
    fprintf(stderr, "in scenario %s:", now_scenario->name);
    for (int i = 0; i < FAULT_N_KINDS; i++)
        if (now_plan.kinds & FAULT_MASK(i))
            fprintf(stderr, " %s", fault_kind_name((fault_kind)i));
    fprintf(stderr, " number %u, effect %d, %s, %s%s\n", (unsigned)now_plan.n, now_plan.effect,
            strerror(now_plan.error), now_plan.for_good ? "for good" : "once",
            now_plan.also ? ", unlink fails too" : "");
}

/* Two failures in a row sit behind one call, and threads decide which one that is. */
static uint64_t next_n(const fault_plan *plan)
{
    const uint64_t each = plan->also ? 24 : 8;
    return plan->n < each || getenv("CAIRN_CRASH_POINTS") ? plan->n + 1 : 2 * plan->n;
}

static void drive(const world *prepared, const scenario *s, fault_plan plan, bool loses, totals *t)
{
    now_scenario = s;
    now_plan = plan;
    for (now_plan.n = 1; run_once(prepared, s, &now_plan, loses, t) > 0; now_plan.n = next_n(&now_plan))
        continue;
    now_plan.n = 0;
}

static void campaign(const scenario *s)
{
    world  w;
    totals t = {0};
    char   boot[4096];
    world_init(&w);
    s->prepare(&w);
    w.budget = s->budget;
    if (s->bad_boot) {
        snprintf(boot, sizeof(boot), "%s/boot_id", w.base);
        test_write_file(boot, s->bad_boot, strlen(s->bad_boot));
        fault_set_boot_id_file(boot);
    }
    for (size_t i = 0; i < N_MISHAPS; i++) {
        const mishap *m = &MISHAPS[i];
        fault_plan    plan = {.kinds = FAULT_MASK(m->kind), .effect = m->effect, .error = m->error};
        if (m->once)
            drive(&w, s, plan, m->loses, &t);
        plan.for_good = true;
        if (m->for_good)
            drive(&w, s, plan, m->loses, &t);
        plan.for_good = false;
        plan.also = FAULT_MASK(FAULT_UNLINK);
        if (m->once && m->effect == FAULT_ERROR && m->error != EINTR && (LEAVES_FILES & FAULT_MASK(m->kind)))
            drive(&w, s, plan, m->loses, &t);
    }
    /* A device of which nothing works any more. */
    fault_plan dead = {.kinds = ~FAULT_MASK(FAULT_MALLOC) & ~FAULT_MASK(FAULT_THREAD) & ~FAULT_MASK(FAULT_CLOCK),
                       .effect = FAULT_ERROR,
                       .error = EIO,
                       .for_good = true};
    drive(&w, s, dead, false, &t);
    fault_set_boot_id_file(NULL);
    world_done(&w);
    printf("%s: %u runs, %u calls failed, the slowest took %u ms\n", s->name, (unsigned)t.runs, (unsigned)t.fired,
           (unsigned)(t.slowest_ns / 1000000));
}

#define TEST(function, scenario)                                                                                       \
    static void function(void **state)                                                                                 \
    {                                                                                                                  \
        (void)state;                                                                                                   \
        campaign(&scenario);                                                                                           \
    }
TEST(record, RECORD)
TEST(lookup, LOOKUP)
TEST(evict, EVICT)
TEST(checkpoint, CHECKPOINT)
TEST(evict_checkpoints, EVICT_CHECKPOINTS)
TEST(supersede, SUPERSEDE)
TEST(reopen, REOPEN)
TEST(quarantine, QUARANTINE)
TEST(dead, DEAD)
TEST(clear, CLEAR)
TEST(prune, PRUNE)
TEST(verify_, VERIFY)

static int teardown(void **state)
{
    (void)state;
    (void)fault_disarm();
    fault_included = false;
    fault_watch(NULL, NULL);
    say_where();
    now_plan.n = 0;
    world_clean_up();
    return 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(record, teardown), cmocka_unit_test_teardown(lookup, teardown),
        cmocka_unit_test_teardown(evict, teardown),  cmocka_unit_test_teardown(supersede, teardown),
        cmocka_unit_test_teardown(reopen, teardown), cmocka_unit_test_teardown(quarantine, teardown),
        cmocka_unit_test_teardown(dead, teardown),   cmocka_unit_test_teardown(clear, teardown),
        cmocka_unit_test_teardown(prune, teardown),  cmocka_unit_test_teardown(verify_, teardown),
        cmocka_unit_test_teardown(checkpoint, teardown),
        cmocka_unit_test_teardown(evict_checkpoints, teardown),
    };
    test_key = world_key();
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
