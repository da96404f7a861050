/* Power cuts: scenarios are run once with every step noted (journal.h), then
 * replayed; after every step several outcomes of a cut at that moment are written
 * into a folder, and the store is opened on each:
 *   - every page file that has its name is whole: bytes were synced before it got it
 *   - pages are there whose flush returned, unless they were removed since
 *   - no lookup returns a wrong byte
 *   - the store opens, takes pages, and fits its budget afterwards
 * CAIRN_CRASH_POINTS says how many outcomes are tried in all scenarios together;
 * CAIRN_CRASH_SEED with which numbers (a failure prints its own). */
#include "fault.h"
#include "journal.h"
#include "store/tool.h"
#include "world.h"

#include <errno.h>

#define POINTS_DEFAULT 1800u

typedef struct play {
    world        w;
    test_random  random;
    cairn_store *store;
    bool         broken; /* a call was made to fail: what is stored now is not promised */
} play;

/* ---- what happens before the cut ---- */

static void open_again(play *p)
{
    cairn_store_close(p->store);
    p->store = NULL;
    journal_epoch();
    if (FAULTY(world_open(&p->w, &p->store)) != CAIRN_OK)
        p->store = NULL;
}

/* Stores a sequence; when flush returned and nothing was given up it is promised. */
static void put(play *p, int sequence)
{
    bool published = false;
    if (!p->store)
        return;
    journal_epoch();
    if (FAULTY(world_put(&p->w, p->store, sequence, &published)) == CAIRN_OK && published && !p->broken)
        journal_promise();
}

/* Nothing is promised of it but that it is right or not there. */
static void note(play *p)
{
    journal_epoch();
    if (p->store)
        (void)FAULTY(world_note(&p->w, p->store));
}

static void play_record(play *p)
{
    open_again(p);
    put(p, SHORT);
    note(p);
    put(p, LONG); /* the short page goes */
    put(p, FORK);
    note(p);
    open_again(p);
    put(p, OTHER);
    note(p);
    (void)world_read(&p->w, p->store, LONG, 72);
}

static void put_checkpoint(play *p, int sequence, uint32_t n)
{
    bool published = false;
    if (!p->store)
        return;
    journal_epoch();
    if (FAULTY(world_put_checkpoint(&p->w, p->store, sequence, n, &published)) == CAIRN_OK && published && !p->broken)
        journal_promise();
}

static void play_checkpoints(play *p)
{
    open_again(p);
    put(p, SHORT);
    put_checkpoint(p, SHORT, 39);
    put(p, LONG);
    put_checkpoint(p, LONG, 71);
    put_checkpoint(p, LONG, 32);
    open_again(p);
    put_checkpoint(p, FORK, 47);
    put(p, FORK);
    (void)world_read_checkpoint(&p->w, p->store, LONG, 72);
}

static void play_evict(play *p)
{
    p->w.budget = 240u << 10; /* a batch of six, and no more than two thirds of all */
    open_again(p);
    for (int i = LONG; i <= MORE_3; i++)
        put(p, i);
    open_again(p);
    put(p, LONG);
}

/* A page rots, is met, moved away, and stored again. */
static void play_quarantine(play *p)
{
    open_again(p);
    put(p, LONG);
    for (uint32_t i = 0; i < 2; i++) {
        char *name = world_page_name(&p->w, LONG, 1 + i), path[4096];
        snprintf(path, sizeof(path), "%s/%s", p->w.root, name);
        journal_rot(path, i ? 20 : 4096, 0x04);
        free(name);
    }
    (void)world_read(&p->w, p->store, LONG, 72);
    (void)world_read(&p->w, p->store, LONG, 72);
    put(p, LONG);
    open_again(p);
    (void)world_read(&p->w, p->store, LONG, 72);
    put(p, LONG);
}

/* A call fails somewhere, the process goes on as it can and ends; the next one on
 * the same root stores again. */
static void play_failure(play *p)
{
    static const fault_kind kinds[] = {FAULT_WRITE, FAULT_SYNC,   FAULT_SYNC_DIR, FAULT_RENAME_NEW,
                                       FAULT_MKDIR, FAULT_UNLINK, FAULT_CREATE,   FAULT_OPEN};
    static const int        errors[] = {ENOSPC, EIO};
    fault_plan              plan = {.effect = test_below(&p->random, 4) ? FAULT_ERROR : FAULT_LATE_ERROR,
                                    .error = errors[test_below(&p->random, 2)],
                                    .for_good = test_below(&p->random, 3) == 0};
    fault_kind              kind = kinds[test_below(&p->random, sizeof(kinds) / sizeof(kinds[0]))];
    plan.kinds = FAULT_MASK(kind);
    plan.n = 1 + test_below(&p->random, kind == FAULT_OPEN ? 60 : 12);
    if (kind == FAULT_RENAME_NEW && test_below(&p->random, 2))
        plan.error = EINVAL; /* hard links instead */
    p->broken = true;
    fault_arm(&plan);
    open_again(p);
    put(p, LONG);
    note(p);
    put(p, FORK);
    if (p->store)
        FAULTY_VOID(cairn_store_close(p->store));
    p->store = NULL;
    (void)fault_disarm();
    p->broken = false;
    open_again(p);
    put(p, LATER);
    put(p, LONG);
    put(p, FORK);
    put(p, OTHER);
}

/* Two processes that make the same folders and pages: two stores behave like them. */
static void play_two(play *p)
{
    cairn_store *other;
    open_again(p);
    assert_int_equal(world_open(&p->w, &other), CAIRN_OK);
    put(p, SHORT);
    cairn_store *first = p->store;
    p->store = other;
    put(p, OTHER);
    put(p, LONG);
    p->store = first;
    put(p, FORK);
    put(p, LONG);
    cairn_store_close(other);
}

/* The tools in the middle of a server's life. What they remove is not promised any
 * more; what is stored afterwards is. */
static void play_tools(play *p)
{
    cairn__tool_result r;
    cairn_store       *tool;
    cairn_error        error;
    open_again(p);
    put(p, LONG);
    put(p, OTHER);
    note(p);
    journal_epoch();
    if (FAULTY(cairn__tool_open(p->w.root, true, &tool, &error)) == CAIRN_OK) {
        (void)FAULTY(cairn__tool_prune(tool, 60u << 10, &r));
        FAULTY_VOID(cairn_store_close(tool));
    }
    put(p, LONG);
    journal_epoch();
    if (FAULTY(cairn__tool_open(p->w.root, true, &tool, &error)) == CAIRN_OK) {
        (void)FAULTY(cairn__tool_clear(tool, &r));
        FAULTY_VOID(cairn_store_close(tool));
    }
    put(p, FORK);
    put(p, SHORT);
}

/* ---- what is left of it ---- */

typedef struct promises {
    const char *path; /* the folder of the outcome */
    char        names[64][256];
    size_t      n;
} promises;

static void expect_file(void *ctx, const char *name)
{
    promises *p = ctx;
    char      path[4096];
    snprintf(path, sizeof(path), "%s/%s", p->path, name);
    if (!test_exists(path))
        FINDING("a page that was flushed is gone: %s", name);
    MUST(p->n < 64 && strlen(name) < sizeof(p->names[0]));
    strcpy(p->names[p->n++], name);
}

static bool is_promised(const promises *p, const char *name)
{
    for (size_t i = 0; i < p->n; i++)
        if (strcmp(p->names[i] + strlen("cache/"), name) == 0)
            return true;
    return false;
}

/* Tokens of the pages from the first on that are promised. */
static uint32_t promised_tokens(const world *w, const promises *p, int sequence)
{
    uint32_t n = w->sequences[sequence].n, good = 0;
    for (uint32_t page = 0; page * P < n; page++) {
        char *name = world_page_name(w, sequence, page);
        bool  promised = is_promised(p, name);
        free(name);
        if (!promised)
            break;
        good = (page + 1) * P < n ? (page + 1) * P : n;
    }
    return good;
}

/* `rotten`: a byte of a page has changed by itself, so not every page is whole and
 * found. */
static void check_outcome(const play *played, const crash_disk *disk, const char *path, bool rotten)
{
    world        w = played->w;
    promises     p = {.path = path};
    char         root[4200];
    cairn_store *store;
    bool         published;
    snprintf(root, sizeof(root), "%s/cache", path);
    w.root = root;
    crash_promises(disk, expect_file, &p);
    if (!rotten)
        (void)check_pages(&w, path);
    if (world_open(&w, &store) != CAIRN_OK)
        FINDING("the store does not open after the cut");
    for (int i = 0; i < N_SEQUENCES; i++) {
        uint32_t good = world_read(&w, store, i, w.sequences[i].n);
        (void)world_read_checkpoint(&w, store, i, w.sequences[i].n);
        (void)world_recent(&w, store);
        if (!rotten && good < promised_tokens(&w, &p, i))
            FINDING("sequence %d: %u tokens found, %u promised", i, good, promised_tokens(&w, &p, i));
    }
    for (int tries = rotten ? 3 : 1; tries > 0; tries--) {
        if (world_put(&w, store, PROBE, &published) != CAIRN_OK || !published)
            FINDING("the store takes nothing after the cut");
        if (world_read(&w, store, PROBE, 32) == 32)
            break;
        if (tries == 1)
            FINDING("what was stored after the cut is not found");
    }
    cairn_store_close(store);
    check_budget(&w);
    if (!rotten)
        (void)check_pages(&w, path);
}

/* ---- the campaign ---- */

typedef struct scenario {
    const char *name;
    void (*run)(play *p);
    bool rots;
} scenario;

static const scenario SCENARIOS[] = {
    {"record", play_record, false},   {"evict", play_evict, false}, {"quarantine", play_quarantine, true},
    {"failure", play_failure, false}, {"two", play_two, false},     {"tools", play_tools, false},
    {"checkpoints", play_checkpoints, false},
};
#define N_SCENARIOS (sizeof(SCENARIOS) / sizeof(SCENARIOS[0]))

static char now_text[256]; /* what a failure of the test says in addition */

static uint64_t number_of(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text && *text ? strtoull(text, NULL, 0) : otherwise;
}

/* Records one run of a scenario into the journal. */
static void record(const scenario *s, play *p, uint64_t seed)
{
    *p = (play){.random = {seed | 1}};
    world_init(&p->w);
    snprintf(now_text, sizeof(now_text), "scenario %s, CAIRN_CRASH_SEED=%llu, while recording", s->name,
             (unsigned long long)seed);
    journal_begin(p->w.base);
    s->run(p);
    cairn_store_close(p->store);
    p->store = NULL;
    journal_end();
}

static const char *new_boot(const char *folder, uint64_t seed)
{
    static char path[4096];
    char        text[64];
    snprintf(path, sizeof(path), "%s/boot_id", folder);
    snprintf(text, sizeof(text), "%036llu", (unsigned long long)seed);
    test_write_file(path, text, 36);
    return path;
}

/* The first ones tried of a step: new names without their data, the worst that a file
 * system does to a forgotten sync; nothing of what was pending; all of it. */
static const uint64_t FIRST_OUTCOMES[] = {2, 0, 1};
#define N_FIRST (sizeof(FIRST_OUTCOMES) / sizeof(FIRST_OUTCOMES[0]))

/* At most `points` outcomes of one recording, spread over its steps, behind the first
 * ones mixtures. Returns how many were tried. */
static uint64_t replay(const scenario *s, const play *p, uint64_t seed, uint64_t points)
{
    crash_disk *disk = crash_disk_create();
    size_t      n = journal_n_events();
    uint64_t    tried = 0;
    bool        rotten = false;
    char       *base = world_make_folder(), path[4096];
    snprintf(path, sizeof(path), "%s/disk", base);
    fault_set_boot_id_file(new_boot(base, seed));
    for (size_t i = 0; i < n; i++) {
        const char *step = crash_disk_apply(disk, i);
        rotten |= strcmp(step, "ROT") == 0;
        for (uint64_t k = 0; tried < points * (i + 1) / n; k++, tried++) {
            uint64_t outcome = k < N_FIRST && points > n ? FIRST_OUTCOMES[k] : seed * 1000003 + i * 131 + k + N_FIRST;
            snprintf(now_text, sizeof(now_text), "scenario %s, CAIRN_CRASH_SEED=%llu, step %u of %u (%s), outcome %llu",
                     s->name, (unsigned long long)seed, (unsigned)i, (unsigned)n, step, (unsigned long long)outcome);
            MUST(mkdir(path, 0700) == 0);
            crash_materialise(disk, path, outcome);
            check_outcome(p, disk, path, rotten);
            remove_tree(path);
        }
    }
    fault_set_boot_id_file(NULL);
    crash_disk_destroy(disk);
    remove_tree(base);
    free(base);
    return tried;
}

/* Few outcomes of many recordings where a recording depends on chance, else many
 * outcomes of few. */
static void campaign(const scenario *s)
{
    uint64_t points = number_of("CAIRN_CRASH_POINTS", POINTS_DEFAULT) / N_SCENARIOS + 1;
    uint64_t seed = number_of("CAIRN_CRASH_SEED", 1), tried = 0, recordings = 0;
    uint64_t portion = s->run == play_failure ? 40 : 1000;
    while (tried < points) {
        play p;
        record(s, &p, seed + recordings);
        tried += replay(s, &p, seed + recordings, points - tried < portion ? points - tried : portion);
        world_done(&p.w);
        journal_free();
        recordings++;
    }
    now_text[0] = 0;
    printf("%s: %u crash points in %u recordings\n", s->name, (unsigned)tried, (unsigned)recordings);
}

#define TEST(name, index)                                                                                              \
    static void name(void **state)                                                                                     \
    {                                                                                                                  \
        (void)state;                                                                                                   \
        campaign(&SCENARIOS[index]);                                                                                   \
    }
TEST(record_, 0)
TEST(evict, 1)
TEST(quarantine, 2)
TEST(failure, 3)
TEST(two, 4)
TEST(tools, 5)
TEST(checkpoints, 6)

static int teardown(void **state)
{
    (void)state;
    (void)fault_disarm();
    fault_included = false;
    journal_end();
    if (now_text[0])
        fprintf(stderr, "in %s\n", now_text);
    now_text[0] = 0;
    world_clean_up();
    return 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(record_, teardown),    cmocka_unit_test_teardown(evict, teardown),
        cmocka_unit_test_teardown(quarantine, teardown), cmocka_unit_test_teardown(failure, teardown),
        cmocka_unit_test_teardown(two, teardown),        cmocka_unit_test_teardown(tools, teardown),
        cmocka_unit_test_teardown(checkpoints, teardown),
    };
    test_key = world_key();
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
