/* verify, clear and prune: what they find, repair, remove and leave, also beside
 * processes that write, evict and read the same root. Pages of 16 tokens. */
#include "store_testing.h"

#include "base/digest.h"
#include "store/ledger_image.h"
#include "store/verify.h"

#include <signal.h>
#include <sys/prctl.h>
#include <utime.h>

#define P 16u

typedef struct found {
    uint64_t n[CAIRN__PROBLEM_COUNT], all, repaired;
    char     last[1024];
} found;

static void find(void *ctx, const cairn__finding *f)
{
    found *all = ctx;
    all->n[f->problem]++;
    all->all++;
    all->repaired += f->repaired;
    snprintf(all->last, sizeof(all->last), "%s: %s: %s", cairn__problem_word(f->problem), f->path, f->what);
}

static found verify(const char *root, bool deep, bool dry_run, cairn__verify_result *ret_result)
{
    found                 all = {.all = 0};
    cairn__verify_request request = {.deep = deep, .dry_run = dry_run, .finding = find, .ctx = &all};
    cairn_store          *store = NULL;
    cairn_error           error;
    assert_int_equal(cairn__tool_open(root, !dry_run, &store, &error), CAIRN_OK);
    assert_int_equal(cairn__verify(store, &request, ret_result), CAIRN_OK);
    cairn_store_close(store);
    for (int i = 0; i < CAIRN__PROBLEM_COUNT; i++)
        assert_int_equal(ret_result->n_problems[i], all.n[i]);
    assert_int_equal(ret_result->n_repaired, all.repaired);
    return all;
}

static void expect_clean(const char *root, uint64_t n_pages)
{
    cairn__verify_result r;
    found                f = verify(root, true, false, &r);
    if (f.all)
        fail_msg("%s", f.last);
    assert_int_equal(r.n_pages, n_pages);
    assert_true(r.ledger_known);
    assert_int_equal(r.used_bytes, test_tree_of(root).disk_bytes);
}

/* Pages 0..3 of one sequence, with a store that was closed again. */
static void fill(const test_fixture *f, int32_t tokens[4 * P])
{
    cairn_store *store = test_open(f->root, 8 << 20, P);
    test_tokens(tokens, 4 * P, 7);
    test_store(store, f->id, tokens, 4 * P);
    cairn_store_close(store);
}

static char *path_of_page(const test_fixture *f, const int32_t *tokens, uint32_t page)
{
    test_put *p = test_make_put(f->id, tokens, 4 * P, P, 0);
    char     *path = test_page_path(f->root, f->id, &p->pages[page]);
    test_release(p);
    return path;
}

static void clean_root(void **state)
{
    test_fixture        *f = *state;
    int32_t              tokens[4 * P];
    cairn__verify_result r;
    fill(f, tokens);
    expect_clean(f->root, 4);
    found all = verify(f->root, false, true, &r);
    assert_int_equal(all.all, 0);
    assert_int_equal(r.n_identities, 1);
    assert_true(r.n_folders >= 1 && r.n_folders <= 4);
    assert_int_equal(r.read_bytes, 0);
    assert_int_equal(r.ledger_bytes, r.used_bytes);
    assert_int_equal(r.ledger_reserved, 0);
}

static void not_a_root(void **state)
{
    test_fixture *f = *state;
    cairn_store  *store = NULL;
    cairn_error   error;
    char          path[600];
    assert_int_equal(cairn__tool_open(f->root, true, &store, &error), CAIRN_EINVAL);
    assert_non_null(strstr(error.text, f->root));
    assert_int_equal(test_tree_of(f->root).n_pages, 0);
    snprintf(path, sizeof(path), "%s/none", f->root);
    assert_int_equal(cairn__tool_open(path, true, &store, &error), CAIRN_ENOENT);
    assert_false(test_exists(path));
    assert_int_equal(symlink(f->root, path), 0);
    assert_int_equal(cairn__tool_open(path, true, &store, &error), CAIRN_EINVAL);
}

/* ---- one damage after the other ---- */

typedef struct scene {
    const test_fixture *f;
    char               *page[4], *folder, *identity; /* paths */
} scene;

static void flip(const char *path, long at)
{
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, at, at < 0 ? SEEK_END : SEEK_SET), 0);
    int byte = fgetc(file);
    assert_int_equal(fseek(file, -1, SEEK_CUR), 0);
    fputc(byte ^ 1, file);
    assert_int_equal(fclose(file), 0);
}

static void in_header(scene *s)
{
    flip(s->page[3], 40);
}
static void in_last_block(scene *s)
{
    flip(s->page[3], -1);
}
static void cut(scene *s)
{
    assert_int_equal(truncate(s->page[3], 5000), 0);
}
static void emptied(scene *s)
{
    assert_int_equal(truncate(s->page[3], 0), 0);
}
static void grown(scene *s)
{
    assert_int_equal(truncate(s->page[3], 100000), 0);
}
static void open_mode(scene *s)
{
    assert_int_equal(chmod(s->page[1], 0644), 0);
}
static void open_folder(scene *s)
{
    assert_int_equal(chmod(s->folder, 0755), 0);
}
static void open_root(scene *s)
{
    assert_int_equal(chmod(s->f->root, 0755), 0);
}

static void is_link(scene *s)
{
    assert_int_equal(unlink(s->page[3]), 0);
    assert_int_equal(symlink(s->page[2], s->page[3]), 0);
}

static void is_fifo(scene *s)
{
    assert_int_equal(unlink(s->page[3]), 0);
    assert_int_equal(mkfifo(s->page[3], 0600), 0);
}

static void is_folder(scene *s)
{
    assert_int_equal(unlink(s->page[3]), 0);
    assert_int_equal(mkdir(s->page[3], 0700), 0);
}

static void is_another(scene *s) /* a valid page under another's name */
{
    uint8_t data[1 << 16];
    size_t  size = test_read_file(s->page[2], data, sizeof(data));
    test_write_file(s->page[3], data, size);
}

static void elsewhere(scene *s)
{
    char path[1024];
    snprintf(path, sizeof(path), "%s/000/%s", s->identity, strrchr(s->page[3], '/') + 1);
    assert_int_equal(rename(s->page[3], path), 0);
}

static void no_parent(scene *s)
{
    struct utimbuf times = {.modtime = time(NULL) - 1000};
    assert_int_equal(unlink(s->page[2]), 0);
    assert_int_equal(utime(s->page[3], &times), 0);
}

static void young_no_parent(scene *s)
{
    assert_int_equal(unlink(s->page[2]), 0);
}

static void write_in(const char *folder, const char *name, const char *text)
{
    char path[1024];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    test_write_file(path, text, strlen(text));
    assert_int_equal(chmod(path, 0600), 0);
}

static void other_text(scene *s)
{
    write_in(s->identity, "identity.txt", "test=other\n");
}
static void bad_text(scene *s)
{
    write_in(s->identity, "identity.txt", "no text at all");
}

static void no_text(scene *s)
{
    char path[1024];
    snprintf(path, sizeof(path), "%s/identity.txt", s->identity);
    assert_int_equal(unlink(path), 0);
}

static void strange_file(scene *s)
{
    write_in(s->folder, "letter.txt", "mine");
}
static void strange_in_root(scene *s)
{
    write_in(s->f->root, "letter\n.txt", "mine");
}
static void page_by_its_name(scene *s)
{
    write_in(s->folder, "0123.page", "page");
}

static void bad_digest(scene *s)
{
    char folder[600];
    snprintf(folder, sizeof(folder), "%s/digests", s->f->root);
    assert_int_equal(mkdir(folder, 0700), 0);
    write_in(folder, "0000000000000801-00000000000a1b2c.digest", "cairn digest 1\n");
}

static void set_used(const char *root, uint64_t used)
{
    uint8_t             buf[CAIRN__LEDGER_SIZE];
    cairn__ledger_image im;
    char                path[600];
    snprintf(path, sizeof(path), "%s/ledger", root);
    assert_int_equal(test_read_file(path, buf, sizeof(buf)), sizeof(buf));
    assert_true(cairn__ledger_decode(buf, &im));
    im.used = used;
    cairn__ledger_encode(&im, buf);
    test_write_file(path, buf, sizeof(buf));
}

static void low_ledger(scene *s)
{
    set_used(s->f->root, test_tree_of(s->f->root).disk_bytes - 4096);
}
static void high_ledger(scene *s)
{
    set_used(s->f->root, test_tree_of(s->f->root).disk_bytes + 12288);
}

static void dead_temp(scene *s)
{
    char           path[1024];
    struct utimbuf times = {.modtime = 1000};
    write_in(s->folder, ".tmp-0123456789abcdef", "half a page");
    snprintf(path, sizeof(path), "%s/.tmp-0123456789abcdef", s->folder);
    assert_int_equal(utime(path, &times), 0);
}

typedef struct damage {
    const char *name;
    void (*make)(scene *s);
    int  problem; /* -1: none */
    bool deep;    /* found only so */
    int  left;    /* problems that a repair leaves */
} damage;

#define DAMAGE(make, problem, deep, left)                                                                              \
    {                                                                                                                  \
#make, make, problem, deep, left                                                                               \
    }
static const damage DAMAGES[] = {
    DAMAGE(in_header, CAIRN__PROBLEM_PAGE, false, 0),
    DAMAGE(in_last_block, CAIRN__PROBLEM_BLOCK, true, 0),
    DAMAGE(cut, CAIRN__PROBLEM_PAGE, false, 0),
    DAMAGE(emptied, CAIRN__PROBLEM_PAGE, false, 0),
    DAMAGE(grown, CAIRN__PROBLEM_PAGE, false, 0),
    DAMAGE(is_link, CAIRN__PROBLEM_KIND, false, 0),
    DAMAGE(is_fifo, CAIRN__PROBLEM_KIND, false, 0),
    DAMAGE(is_folder, CAIRN__PROBLEM_KIND, false, 0),
    DAMAGE(is_another, CAIRN__PROBLEM_PAGE, false, 0),
    DAMAGE(elsewhere, CAIRN__PROBLEM_PLACE, false, 0),
    DAMAGE(open_mode, CAIRN__PROBLEM_MODE, false, 0),
    DAMAGE(open_folder, CAIRN__PROBLEM_MODE, false, 0),
    DAMAGE(open_root, CAIRN__PROBLEM_MODE, false, 0),
    DAMAGE(no_parent, CAIRN__PROBLEM_ORPHAN, false, 1),
    DAMAGE(young_no_parent, -1, false, 0),
    DAMAGE(other_text, CAIRN__PROBLEM_IDENTITY, false, 1), /* then it is missing until the next page */
    DAMAGE(bad_text, CAIRN__PROBLEM_IDENTITY, false, 1),
    DAMAGE(no_text, CAIRN__PROBLEM_IDENTITY, false, 1),
    DAMAGE(strange_file, CAIRN__PROBLEM_UNKNOWN, false, 1),
    DAMAGE(strange_in_root, CAIRN__PROBLEM_UNKNOWN, false, 1),
    DAMAGE(page_by_its_name, CAIRN__PROBLEM_UNKNOWN, false, 1),
    DAMAGE(bad_digest, CAIRN__PROBLEM_SIDE_FILE, false, 0),
    DAMAGE(low_ledger, CAIRN__PROBLEM_LEDGER, false, 0),
    DAMAGE(high_ledger, -1, false, 0),
    DAMAGE(dead_temp, -1, false, 0),
};

static char *copy_listing(const char *root)
{
    char *command = NULL, *text = calloc(1, 1 << 16);
    assert_true(asprintf(&command, "find '%s' -printf '%%p %%y %%m %%s\\n' | sort", root) > 0);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    assert_true(fread(text, 1, (1 << 16) - 1, pipe) > 0);
    assert_int_equal(pclose(pipe), 0);
    free(command);
    return text;
}

static void try_damage(const damage *d)
{
    test_fixture        *f = NULL;
    int32_t              tokens[4 * P];
    cairn__verify_result r;
    assert_int_equal(test_setup((void **)&f), 0);
    fill(f, tokens);
    scene s = {.f = f};
    for (uint32_t i = 0; i < 4; i++)
        s.page[i] = path_of_page(f, tokens, i);
    s.folder = strdup(s.page[3]);
    *strrchr(s.folder, '/') = 0;
    s.identity = strdup(s.folder);
    *strrchr(s.identity, '/') = 0;
    d->make(&s);
    if (d->make != low_ledger && d->make != high_ledger)
        set_used(f->root, test_tree_of(f->root).disk_bytes); /* the damage is not one of the ledger */
    uint64_t expected = d->problem >= 0 ? 1 : 0;
    char    *before = copy_listing(f->root);
    found    looked = verify(f->root, d->deep, true, &r);
    char    *after = copy_listing(f->root);
    assert_string_equal(before, after);
    if (looked.all != expected || (expected && looked.n[d->problem] != 1) || looked.repaired)
        fail_msg("%s: looking found %llu: %s", d->name, (unsigned long long)looked.all, looked.last);
    if (d->deep)
        assert_int_equal(verify(f->root, false, true, &r).all, 0);
    found repaired = verify(f->root, d->deep, false, &r);
    if (repaired.all != expected)
        fail_msg("%s: found %llu: %s", d->name, (unsigned long long)repaired.all, repaired.last);
    assert_int_equal(r.n_dead_temps, d->make == dead_temp);
    found again = verify(f->root, d->deep, false, &r);
    if ((int)again.all != d->left)
        fail_msg("%s: a second run found %llu: %s", d->name, (unsigned long long)again.all, again.last);
    assert_int_equal(test_tree_of(f->root).n_temps, 0);
    cairn_store *store = test_open(f->root, 8 << 20, P); /* and it serves */
    test_store(store, f->id, tokens, 4 * P);
    test_store(store, f->id, tokens, 4 * P);
    if (!d->deep && d->problem != CAIRN__PROBLEM_KIND)
        test_expect(store, f->id, tokens, 4 * P, 4 * P, tokens, 4 * P);
    cairn_store_close(store);
    for (uint32_t i = 0; i < 4; i++)
        free(s.page[i]);
    free(s.folder);
    free(s.identity);
    free(before);
    free(after);
    test_teardown((void **)&f);
}

static void damages(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(DAMAGES) / sizeof(DAMAGES[0]); i++)
        try_damage(&DAMAGES[i]);
}

/* ---- clear, prune ---- */

static cairn__tool_result clear(const char *root)
{
    cairn_store       *store = NULL;
    cairn_error        error;
    cairn__tool_result r;
    assert_int_equal(cairn__tool_open(root, true, &store, &error), CAIRN_OK);
    assert_int_equal(cairn__tool_clear(store, &r), CAIRN_OK);
    cairn_store_close(store);
    return r;
}

static cairn__tool_result prune(const char *root, uint64_t to)
{
    cairn_store       *store = NULL;
    cairn_error        error;
    cairn__tool_result r;
    assert_int_equal(cairn__tool_open(root, true, &store, &error), CAIRN_OK);
    assert_int_equal(cairn__tool_prune(store, to, &r), CAIRN_OK);
    cairn_store_close(store);
    return r;
}

/* A store that is open, reads and goes on writing sees an empty root, and fills it. */
static void clear_beside_a_store(void **state)
{
    test_fixture *f = *state;
    int32_t       tokens[4 * P];
    cairn_pin    *pin;
    cairn_store  *store = test_open(f->root, 8 << 20, P);
    test_tokens(tokens, 4 * P, 7);
    test_store(store, f->id, tokens, 4 * P);
    cairn_hit hit = test_lookup(store, f->id, tokens, 4 * P, 0, 0, &pin);
    assert_int_equal(hit.cached_tokens, 4 * P);
    cairn__tool_result r = clear(f->root);
    assert_int_equal(r.n_pages, 4);
    assert_int_equal(r.n_stuck, 0);
    assert_true(r.freed_bytes >= 4 * 8192);
    test_tree t = test_tree_of(f->root);
    assert_int_equal(t.n_pages, 0);
    assert_int_equal(r.left_bytes, t.disk_bytes);
    assert_int_equal(test_stats(store).used_bytes, t.disk_bytes);
    test_check_pin(pin, &hit, f->id, tokens, 4 * P, P, 0); /* open files stay readable */
    cairn_pin_release(pin);
    test_expect(store, f->id, tokens, 4 * P, 0, tokens, 4 * P);
    for (int i = 0; i < 3; i++) {
        test_store(store, f->id, tokens, 4 * P);
        test_expect(store, f->id, tokens, 4 * P, 4 * P, tokens, 4 * P);
        assert_int_equal(test_stats(store).used_bytes, test_tree_of(f->root).disk_bytes);
        assert_int_equal(clear(f->root).n_pages, 4);
    }
    assert_int_equal(test_stats(store).write_errors, 0);
    assert_false(test_stats(store).read_only);
    cairn_store_close(store);
    char path[600];
    snprintf(path, sizeof(path), "%s/v1", f->root);
    assert_int_equal(rmdir(path), 0); /* nothing is left in it */
    assert_int_equal(clear(f->root).n_pages, 0);
}

/* A folder in a page's place, with something in it. */
static void clear_names_what_it_cannot_remove(void **state)
{
    test_fixture *f = *state;
    int32_t       tokens[4 * P];
    fill(f, tokens);
    char *path = path_of_page(f, tokens, 1), *inside = NULL;
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_true(asprintf(&inside, "%s/letter.txt", path) > 0);
    test_write_file(inside, "mine", 4);
    cairn__tool_result r = clear(f->root);
    assert_int_equal(r.n_pages, 3);
    assert_int_equal(r.n_stuck, 1);
    assert_int_equal(strncmp(path, f->root, strlen(f->root)), 0);
    assert_string_equal(r.stuck, path + strlen(f->root) + 1);
    assert_true(test_exists(inside));
    free(inside);
    free(path);
}

static void clear_leaves_what_is_not_ours(void **state)
{
    test_fixture *f = *state;
    int32_t       tokens[4 * P];
    fill(f, tokens);
    char *path = path_of_page(f, tokens, 0), *letter = NULL;
    *strrchr(path, '/') = 0;
    assert_true(asprintf(&letter, "%s/letter.txt", path) > 0);
    test_write_file(letter, "mine", 4);
    cairn__tool_result r = clear(f->root);
    assert_int_equal(r.n_pages, 4);
    assert_true(test_exists(letter));
    assert_int_equal(test_tree_of(f->root).n_pages, 0);
    assert_int_equal(r.left_bytes, test_tree_of(f->root).disk_bytes);
    free(letter);
    free(path);
}

/* The oldest go first, from their ends, and what is left can be reached. */
static void prune_order(void **state)
{
    test_fixture *f = *state;
    int32_t       tokens[10][4 * P];
    cairn_store  *store = test_open(f->root, 8 << 20, P);
    for (int i = 0; i < 10; i++) {
        test_tokens(tokens[i], 4 * P, 40 + (uint64_t)i);
        test_store(store, f->id, tokens[i], 4 * P);
        for (uint32_t page = 0; page < 4; page++) {
            struct utimbuf times = {.modtime = time(NULL) - 1000 * (10 - i)};
            char          *path = path_of_page(f, tokens[i], page);
            assert_int_equal(utime(path, &times), 0);
            free(path);
        }
    }
    uint64_t           used = test_tree_of(f->root).disk_bytes;
    cairn__tool_result r = prune(f->root, used);
    assert_int_equal(r.n_pages, 0);
    r = prune(f->root, used / 2);
    assert_true(r.n_pages >= 15 && r.n_pages <= 25);
    assert_true(r.left_bytes <= used / 2);
    assert_int_equal(r.left_bytes, test_tree_of(f->root).disk_bytes);
    assert_int_equal(test_stats(store).used_bytes, r.left_bytes);
    assert_int_equal(r.freed_bytes, used - r.left_bytes);
    uint32_t gone = 0;
    for (int i = 0; i < 10; i++) {
        for (uint32_t page = 0; page < 4; page++) {
            char *path = path_of_page(f, tokens[i], page);
            bool  there = test_exists(path);
            gone += !there;
            assert_true(there || i <= 6);
            assert_true(!there || i >= 3 || page < 3);
            free(path);
        }
    }
    assert_int_equal(gone, r.n_pages);
    test_expect(store, f->id, tokens[9], 4 * P, 4 * P, tokens[9], 4 * P);
    expect_clean(f->root, 40 - r.n_pages);
    test_store(store, f->id, tokens[0], 4 * P); /* and the server fills it again */
    test_expect(store, f->id, tokens[0], 4 * P, 4 * P, tokens[0], 4 * P);
    r = prune(f->root, 0);
    assert_int_equal(test_tree_of(f->root).n_pages, 0);
    assert_true(r.left_bytes > 0); /* folders and side files stay */
    cairn_store_close(store);
}

/* ---- beside processes that write and evict ---- */

static void child_main(const char *root, unsigned seed)
{
    cairn_identity *id = test_identity("fixture");
    cairn_store    *store = test_open(root, 500 << 10, P);
    test_random     r = {seed};
    int32_t         t[6 * P];
    for (;;) {
        uint32_t   pages = 1 + test_below(&r, 6), n = pages * P - test_below(&r, P);
        cairn_pin *pin;
        test_tokens(t, n, test_below(&r, 30));
        cairn_hit hit = test_lookup(store, id, t, n, 0, 0, &pin);
        (void)hit;
        for (uint32_t i = 0; pin && i < hit.n_pages; i++) { /* right to the byte, or an error: evicted is no error */
            cairn_page_view v = cairn_pin_page(pin, i);
            for (uint32_t b = 0; b < v.n_blocks; b++) {
                uint8_t data[4096];
                assert_true(v.block_size[b] <= sizeof(data));
                assert_int_equal(cairn_pin_read_block(pin, i, b, data), CAIRN_OK);
            }
        }
        cairn_pin_release(pin);
        test_store(store, id, t, n);
        cairn_store_stats s = test_stats(store);
        assert_int_equal(s.write_errors, 0);
        assert_int_equal(s.pages_corrupt, 0);
        assert_false(s.read_only);
    }
}

static void beside_writers(void **state)
{
    test_fixture        *f = *state;
    pid_t                children[2];
    cairn__verify_result r;
    uint64_t             pages = 0, cleared = 0, until;
    cairn_store_close(test_open(f->root, 500 << 10, P));
    for (unsigned i = 0; i < 2; i++) {
        children[i] = fork();
        assert_true(children[i] >= 0);
        if (children[i] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL); /* also when the test is killed */
            child_main(f->root, 17 + i);
            _exit(0);
        }
    }
    until = test_now_ns() + 2500000000u;
    for (int round = 0; test_now_ns() < until; round++) {
        found found_ = verify(f->root, true, round % 2, &r);
        if (found_.all)
            fail_msg("round %d: %s", round, found_.last);
        pages += r.n_pages;
        if (round % 4 == 1)
            (void)prune(f->root, 200 << 10);
        if (round % 8 == 3)
            cleared += clear(f->root).n_pages;
        assert_true(test_tree_of(f->root).disk_bytes <= 500 << 10);
    }
    for (unsigned i = 0; i < 2; i++) {
        int status;
        assert_int_equal(waitpid(children[i], &status, WNOHANG), 0); /* it lives: nothing surprised it */
        assert_int_equal(kill(children[i], SIGKILL), 0);
        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
    }
    assert_true(pages > 0 && cleared > 0);
    /* What the killed were writing is taken over; nothing else is wrong. */
    found found_ = verify(f->root, true, false, &r);
    if (found_.all)
        fail_msg("%s", found_.last);
    cairn_store *store = test_open(f->root, 500 << 10, P);
    int32_t      t[4 * P];
    test_tokens(t, 4 * P, 1000);
    test_store(store, f->id, t, 4 * P);
    test_expect(store, f->id, t, 4 * P, 4 * P, t, 4 * P);
    cairn_store_close(store);
    assert_true(test_tree_of(f->root).disk_bytes <= 500 << 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(clean_root, test_setup, test_teardown),
        cmocka_unit_test_setup_teardown(not_a_root, test_setup, test_teardown),
        cmocka_unit_test(damages),
        cmocka_unit_test_setup_teardown(clear_beside_a_store, test_setup, test_teardown),
        cmocka_unit_test_setup_teardown(clear_names_what_it_cannot_remove, test_setup, test_teardown),
        cmocka_unit_test_setup_teardown(clear_leaves_what_is_not_ours, test_setup, test_teardown),
        cmocka_unit_test_setup_teardown(prune_order, test_setup, test_teardown),
        cmocka_unit_test_setup_teardown(beside_writers, test_setup, test_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
