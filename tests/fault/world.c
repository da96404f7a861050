/* world.c - see world.h. */
#include "world.h"

#include "base/digest.h"
#include "fault.h"
#include "store/internal.h"

#include <ftw.h>

/* ---- folders ---- */

static char made[8][64];

char *world_make_folder(void)
{
    static size_t n;
    char         *path = NULL;
    MUST(asprintf(&path, "%s/cairn-fault-XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp") > 0);
    MUST(mkdtemp(path));
    snprintf(made[n++ % 8], sizeof(made[0]), "%s", path);
    return path;
}

void world_clean_up(void)
{
    for (size_t i = 0; i < 8; i++)
        if (made[i][0] && access(made[i], F_OK) == 0)
            remove_tree(made[i]);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

void remove_tree(const char *path)
{
    MUST(nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS) == 0);
}

static void copy_file(const char *from, const char *to)
{
    static uint8_t data[1 << 20];
    struct stat    st;
    int            in = open(from, O_RDONLY | O_CLOEXEC), out = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    MUST(in >= 0 && out >= 0 && fstat(in, &st) == 0 && (size_t)st.st_size <= sizeof(data));
    ssize_t n = read(in, data, sizeof(data));
    MUST(n == st.st_size && write(out, data, (size_t)n) == n);
    const struct timespec times[2] = {st.st_atim, st.st_mtim};
    MUST(futimens(out, times) == 0);
    close(in);
    close(out);
}

void copy_tree(const char *from, const char *to)
{
    char a[4096], b[4096];
    MUST(mkdir(to, 0700) == 0);
    DIR *dir = opendir(from);
    MUST(dir);
    for (struct dirent *e; (e = readdir(dir));) {
        struct stat st;
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        snprintf(a, sizeof(a), "%s/%s", from, e->d_name);
        snprintf(b, sizeof(b), "%s/%s", to, e->d_name);
        MUST(lstat(a, &st) == 0);
        if (S_ISDIR(st.st_mode))
            copy_tree(a, b);
        else
            copy_file(a, b);
    }
    closedir(dir);
}

/* Files that vanish meanwhile count nothing, those with two names once. */
uint64_t disk_usage(const char *path)
{
    struct stat st;
    char        child[4096];
    if (lstat(path, &st) != 0)
        return 0;
    uint64_t bytes = (uint64_t)st.st_blocks * 512;
    if (S_ISREG(st.st_mode))
        bytes /= st.st_nlink;
    DIR *dir = S_ISDIR(st.st_mode) ? opendir(path) : NULL;
    if (!dir)
        return bytes;
    for (struct dirent *e; (e = readdir(dir));) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        snprintf(child, sizeof(child), "%s/%s", path, e->d_name);
        bytes += disk_usage(child);
    }
    closedir(dir);
    return bytes;
}

uint32_t count_descriptors(void)
{
    uint32_t n = 0;
    DIR     *dir = opendir("/proc/self/fd");
    MUST(dir);
    while (readdir(dir))
        n++;
    closedir(dir);
    return n;
}

/* ---- the world ---- */

static void make_sequences(world *w)
{
    static const uint32_t n[N_SEQUENCES] = {40, 72, 48, 48, 40, 96, 96, 96, 32};
    for (int i = 0; i < N_SEQUENCES; i++) {
        w->sequences[i].n = n[i];
        test_tokens(w->sequences[i].tokens, n[i], 100 + (uint64_t)i);
    }
    memcpy(w->sequences[SHORT].tokens, w->sequences[LONG].tokens, 40 * sizeof(int32_t));
    memcpy(w->sequences[FORK].tokens, w->sequences[LONG].tokens, 24 * sizeof(int32_t));
}

const uint8_t *world_key(void)
{
    static const uint8_t key[32] = "a key of the campaigns, public.";
    return getenv("CAIRN_FAULT_SEALED") ? key : NULL;
}

cairn_status world_decode(uint8_t *data, size_t size, cairn__page_header *ret_header)
{
    cairn__keyring *keyring = test_keyring();
    cairn_status    status = keyring ? cairn__page_decode_sealed(keyring, data, size, ret_header)
                                     : cairn__page_decode(data, size, ret_header);
    cairn__keyring_destroy(keyring);
    return status;
}

cairn_status world_encode(const cairn__page_header *header, uint8_t *data, size_t size)
{
    cairn__keyring *keyring = test_keyring();
    cairn_status    status =
        keyring ? cairn__page_encode_sealed(keyring, header, data, size) : cairn__page_encode(header, data, size);
    cairn__keyring_destroy(keyring);
    return status;
}

/* Block of a file as it was put; false when it does not prove itself. */
static bool open_block(const cairn__page_header *h, uint32_t block, uint8_t *data)
{
    cairn__keyring *keyring = test_keyring();
    bool            good = cairn__page_prove_block(keyring, h, block, data) == CAIRN_OK;
    cairn__keyring_destroy(keyring);
    return good;
}

void world_init(world *w)
{
    test_key = world_key();
    *w = (world){.base = world_make_folder(), .id = test_identity("faults"), .budget = UINT64_C(1) << 30};
    MUST(asprintf(&w->root, "%s/cache", w->base) > 0);
    w->digest = test_namespace(w->id);
    make_sequences(w);
}

void world_done(world *w)
{
    remove_tree(w->base);
    cairn_identity_destroy(w->id);
    free(w->root);
    free(w->base);
}

cairn_status world_open(const world *w, cairn_store **ret_store)
{
    cairn_store_options o = {.root = w->root, .budget_bytes = w->budget, .reserve_bytes = 1, .page_tokens = P};
    o.key = world_key();
    cairn_error  error;
    bool         included = fault_included;
    cairn_status status = cairn_store_open(&o, ret_store, &error);
    fault_included = false;
    if (status && !error.text[0])
        FINDING("open failed without a word (%s)", cairn_status_name(status));
    if (status && status != CAIRN_EINVAL && status != CAIRN_EACCES && status != CAIRN_ENOSPC && status != CAIRN_EIO &&
        status != CAIRN_ENOMEM)
        FINDING("open said %s", cairn_status_name(status));
    fault_included = included;
    return status;
}

/* Puts `put`, of n_pages, whose `released` counts, and flushes. */
static cairn_status put_and_count(cairn_store *store, const cairn_put *put, atomic_int *released, bool included,
                                  bool *ret_published)
{
    cairn_store_stats before = test_stats(store), after;
    uint32_t          n_pages = put->n_pages;
    fault_included = included;
    cairn_status status = cairn_store_put(store, put);
    if (!status && cairn_store_flush(store, 30000) != CAIRN_OK) {
        fault_included = false;
        FINDING("a flush hung");
    }
    fault_included = false;
    if (status && status != CAIRN_ENOMEM)
        FINDING("put said %s", cairn_status_name(status));
    if (atomic_load(released) != (status ? 0 : 1))
        FINDING("release was called %d times", atomic_load(released));
    after = test_stats(store);
    uint64_t ended = after.pages_published + after.pages_skipped + after.pages_given_up - before.pages_published -
                     before.pages_skipped - before.pages_given_up;
    if (ended != (status ? 0 : n_pages))
        FINDING("%u pages put, %u ended", n_pages, (unsigned)ended);
    if (ret_published)
        *ret_published = !status && after.pages_given_up == before.pages_given_up;
    return status;
}

cairn_status world_put(const world *w, cairn_store *store, int sequence, bool *ret_published)
{
    bool                   included = fault_included;
    const struct sequence *s = &w->sequences[sequence];
    atomic_int             released = 0;
    fault_included = false;
    test_put *p = test_make_put(w->id, s->tokens, s->n, P, 0);
    p->released = &released;
    cairn_status status = put_and_count(store, &p->put, &released, included, ret_published);
    if (status)
        test_release(p);
    fault_included = included;
    return status;
}

static void note_release(void *ctx)
{
    atomic_fetch_add((atomic_int *)ctx, 1);
}

cairn_status world_put_checkpoint(const world *w, cairn_store *store, int sequence, uint32_t n, bool *ret_published)
{
    bool        included = fault_included;
    uint8_t     state[TEST_STATE_SIZE];
    atomic_int  released = 0;
    fault_included = false;
    cairn_page  page = test_checkpoint(w->id, w->sequences[sequence].tokens, n, P);
    cairn_block blocks[2] = {{w->sequences[sequence].tokens, n * sizeof(int32_t)}, {state, sizeof(state)}};
    cairn_put   put = {.identity = w->id, .pages = &page, .n_pages = 1, .release = note_release, .release_ctx = &released};
    page.blocks = blocks;
    page.n_blocks = 2;
    test_fill_state(&page.key, state);
    cairn_status status = put_and_count(store, &put, &released, included, ret_published);
    fault_included = included;
    return status;
}

/* ---- reading ---- */

/* The page is what its key says, continues the sequence, and was looked for. */
static void check_header(const world *w, const sequence *s, const cairn__page_header *h, uint32_t used,
                         const cairn_key *parent, uint32_t start)
{
    int32_t tokens[P];
    if (memcmp(&h->parent, parent, sizeof(*parent)) != 0 || h->start != start || h->n_tokens > P || used > h->n_tokens)
        FINDING("a page that does not follow the one before");
    for (uint32_t i = 0; i < h->n_tokens; i++)
        tokens[i] = cairn__page_token(h, i);
    if (memcmp(tokens, s->tokens + start, used * sizeof(int32_t)) != 0)
        FINDING("wrong tokens: a hit on a page that holds others");
    cairn_key key = cairn_chain_key(&w->digest, parent, tokens, h->n_tokens);
    if (memcmp(&key, &h->key, sizeof(key)) != 0)
        FINDING("wrong key: a hit on a page with another");
}

static bool read_blocks(cairn_pin *pin, uint32_t page, const cairn_key *key, uint32_t n_tokens)
{
    static uint8_t  data[1 << 16], expected[1 << 16];
    cairn_page_view v = cairn_pin_page(pin, page);
    bool            good = true;
    for (uint32_t b = 0; b < v.n_blocks; b++) {
        bool     included = fault_included;
        uint64_t size = test_block_size(key, n_tokens, b);
        if (v.n_blocks != TEST_BLOCKS || v.block_size[b] != size || size > sizeof(data))
            FINDING("wrong shape");
        memset(data, 0xee, size);
        cairn_status status = cairn_pin_read_block(pin, page, b, data);
        fault_included = false;
        test_fill_block(key, b, expected, size);
        if (!status && memcmp(data, expected, size) != 0)
            FINDING("wrong bytes were returned as good (block %u of %u)", b, v.n_blocks);
        if (status && status != CAIRN_ECORRUPT && status != CAIRN_EIO)
            FINDING("reading a block said %s", cairn_status_name(status));
        good &= !status;
        fault_included = included;
    }
    return good;
}

/* The pages of a hit, each byte of them: returns their tokens; *ret_good: those before the
 * first page of which a block could not be read. */
static uint32_t read_pages(const world *w, const sequence *s, cairn_pin *pin, uint32_t n_pages, uint32_t *ret_good)
{
    cairn_key parent = {{0}};
    uint32_t  at = 0;
    bool      all_good = true;
    *ret_good = 0;
    for (uint32_t i = 0; i < n_pages; i++) {
        const cairn__page_header *h = &pin->pages[i]->file.header;
        uint32_t                  used = cairn_pin_page(pin, i).used_tokens;
        check_header(w, s, h, used, &parent, at);
        all_good &= read_blocks(pin, i, &h->key, h->n_tokens);
        at += used;
        *ret_good = all_good ? at : *ret_good;
        parent = h->key;
    }
    return at;
}

uint32_t world_read(const world *w, cairn_store *store, int sequence, uint32_t n)
{
    const struct sequence *s = &w->sequences[sequence];
    cairn_query            query = {.identity = w->id, .tokens = s->tokens, .n_tokens = n};
    cairn_hit              hit = {0};
    cairn_pin             *pin = NULL;
    uint32_t               good;
    cairn_status           status = cairn_store_lookup(store, &query, &hit, &pin);
    if (status && status != CAIRN_ENOMEM)
        FINDING("a lookup said %s", cairn_status_name(status));
    if (status)
        return 0;
    if ((hit.cached_tokens > 0) != (pin != NULL) || hit.cached_tokens > n)
        FINDING("a hit of %u tokens of %u, pin %d", hit.cached_tokens, n, pin != NULL);
    uint32_t at = read_pages(w, s, pin, hit.n_pages, &good);
    if (at != hit.cached_tokens)
        FINDING("%u tokens promised, %u in the pages", hit.cached_tokens, at);
    cairn_pin_release(pin);
    return good;
}

/* The state is that of these tokens, and the pages before it are theirs. */
static bool check_checkpoint(const world *w, const sequence *s, cairn_pin *pin, const cairn_hit *hit)
{
    bool                      included = fault_included;
    uint8_t                   state[TEST_STATE_SIZE] = {0}, expected[TEST_STATE_SIZE];
    const cairn__page_header *h = &pin->pages[hit->n_pages]->file.header;
    cairn_page_view           v = cairn_pin_page(pin, hit->n_pages);
    if (v.kind != CAIRN_CHECKPOINT || v.start + v.n_tokens != hit->cached_tokens || v.n_blocks != 2 ||
        v.block_size[1] != sizeof(state))
        FINDING("a hit that is no checkpoint at its end");
    cairn_status status = cairn_pin_read_block(pin, hit->n_pages, 1, state);
    fault_included = false;
    cairn_page page = test_checkpoint(w->id, s->tokens, hit->cached_tokens, P);
    if (memcmp(&page.key, &h->key, sizeof(page.key)) != 0)
        FINDING("a checkpoint of other tokens");
    test_fill_state(&page.key, expected);
    if (!status && memcmp(state, expected, sizeof(state)) != 0)
        FINDING("wrong state was returned as good");
    if (status && status != CAIRN_ECORRUPT && status != CAIRN_EIO)
        FINDING("reading a state said %s", cairn_status_name(status));
    fault_included = included;
    return !status;
}

uint32_t world_read_checkpoint(const world *w, cairn_store *store, int sequence, uint32_t n)
{
    const struct sequence *s = &w->sequences[sequence];
    cairn_query  query = {.identity = w->id, .tokens = s->tokens, .n_tokens = n, .needs_checkpoint = true};
    cairn_hit    hit = {0};
    cairn_pin   *pin = NULL;
    cairn_status status = cairn_store_lookup(store, &query, &hit, &pin);
    if (status && status != CAIRN_ENOMEM)
        FINDING("a lookup said %s", cairn_status_name(status));
    if (status || !pin)
        return 0;
    if (!hit.has_checkpoint || hit.cached_tokens == 0 || hit.cached_tokens > n)
        FINDING("a hit of %u tokens of %u, checkpoint %d", hit.cached_tokens, n, hit.has_checkpoint);
    uint32_t good, at = read_pages(w, s, pin, hit.n_pages, &good);
    if (at != hit.cached_tokens)
        FINDING("a checkpoint at %u, pages up to %u", hit.cached_tokens, at);
    bool state_good = check_checkpoint(w, s, pin, &hit);
    cairn_pin_release(pin);
    return state_good && good == at ? hit.cached_tokens : 0;
}

/* ---- the note of prompts ---- */

cairn_status world_note(const world *w, cairn_store *store)
{
    const cairn_prompt prompts[2] = {{w->sequences[LONG].tokens, w->sequences[LONG].n},
                                     {w->sequences[SHORT].tokens, w->sequences[SHORT].n}};
    cairn_status       status = cairn_store_note_recent(store, w->id, prompts, 2);
    if (status && status != CAIRN_ENOMEM)
        FINDING("a note said %s", cairn_status_name(status));
    return status ? status : cairn_store_flush(store, 30000);
}

uint32_t world_recent(const world *w, cairn_store *store)
{
    static const int noted[2] = {LONG, SHORT};
    cairn_prompt    *prompts = NULL;
    uint32_t         n = 0;
    cairn_status     status = cairn_store_recent(store, w->id, &prompts, &n);
    bool             included = fault_included;
    fault_included = false;
    if ((status && status != CAIRN_ENOMEM) || (status && prompts) || (n != 0 && n != 2))
        FINDING("asking for the note said %s, %u prompts", cairn_status_name(status), n);
    for (uint32_t i = 0; i < n; i++) {
        const sequence *s = &w->sequences[noted[i]];
        if (prompts[i].n_tokens != s->n || memcmp(prompts[i].tokens, s->tokens, s->n * sizeof(int32_t)) != 0)
            FINDING("a note of other prompts");
    }
    free(prompts);
    fault_included = included;
    return n;
}

/* ---- files ---- */

/* All its tokens lie in the first block; they give its parent and its key. */
static void check_checkpoint_file(const world *w, const char *path, cairn__page_header *h, uint8_t *data)
{
    uint8_t  expected[TEST_STATE_SIZE];
    uint64_t offsets[2];
    cairn__page_block_offsets(h, offsets);
    const uint32_t n = h->start + h->n_tokens;
    if (cairn__page_block_at(h, 0).size != n * sizeof(int32_t) || cairn__page_block_at(h, 1).size != TEST_STATE_SIZE ||
        !open_block(h, 0, data + offsets[0]) || !open_block(h, 1, data + offsets[1]))
        FINDING("a checkpoint under its name that is not whole");
    int32_t tokens[6 * P];
    MUST(n <= 6 * P);
    memcpy(tokens, data + offsets[0], n * sizeof(int32_t));
    cairn_page       page = test_checkpoint(w->id, tokens, n, P);
    cairn__page_name name = cairn__page_name_of(&w->digest, &page.key, &page.parent, page.tokens, page.n_tokens);
    char             text[CAIRN__PAGE_NAME_SIZE];
    name.is_checkpoint = true;
    cairn__page_name_format(&name, text);
    if (memcmp(&page.key, &h->key, sizeof(page.key)) != 0 || memcmp(&page.parent, &h->parent, sizeof(page.parent)) != 0 ||
        strcmp(strrchr(path, '/') + 1, text) != 0)
        FINDING("a checkpoint under another's name");
    test_fill_state(&page.key, expected);
    if (memcmp(data + offsets[1], expected, sizeof(expected)) != 0)
        FINDING("a checkpoint under its name that is not whole: state");
}

static void check_page_file(const world *w, const char *path)
{
    static uint8_t     data[1 << 16], expected[1 << 16];
    uint64_t           offsets[TEST_BLOCKS];
    int32_t            tokens[P];
    cairn__page_header h;
    char               text[CAIRN__PAGE_NAME_SIZE];
    size_t             size = test_read_file(path, data, sizeof(data));
    if (world_decode(data, size, &h) != CAIRN_OK || cairn__page_file_size(&h) != size || h.n_tokens > P ||
        h.n_blocks != (h.kind == CAIRN__PAGE_CHECKPOINT ? 2 : TEST_BLOCKS) ||
        memcmp(&h.identity, &w->digest, sizeof(w->digest)) != 0)
        FINDING("a page under its name that is not whole: header");
    if (h.kind == CAIRN__PAGE_CHECKPOINT) {
        check_checkpoint_file(w, path, &h, data);
        return;
    }
    for (uint32_t i = 0; i < h.n_tokens; i++)
        tokens[i] = cairn__page_token(&h, i);
    cairn_key        key = cairn_chain_key(&w->digest, &h.parent, tokens, h.n_tokens);
    cairn__page_name name = cairn__page_name_of(&w->digest, &h.key, &h.parent, tokens, h.n_tokens);
    cairn__page_name_format(&name, text);
    if (memcmp(&key, &h.key, sizeof(key)) != 0 || strcmp(strrchr(path, '/') + 1, text) != 0)
        FINDING("a page under another's name");
    cairn__page_block_offsets(&h, offsets);
    for (uint32_t b = 0; b < TEST_BLOCKS; b++) {
        uint64_t block = test_block_size(&key, h.n_tokens, b);
        test_fill_block(&key, b, expected, block);
        if (cairn__page_block_at(&h, b).size != block || !open_block(&h, b, data + offsets[b]) ||
            memcmp(data + offsets[b], expected, block) != 0)
            FINDING("a page under its name that is not whole: block %u", b);
    }
}

static void check_one(void *ctx, const char *path)
{
    check_page_file(ctx, path);
}

uint32_t check_pages(const world *w, const char *root)
{
    test_tree t = {.page = check_one, .ctx = (void *)w};
    test_walk(&t, root);
    return t.n_pages;
}

char *world_page_name(const world *w, int sequence, uint32_t page)
{
    const struct sequence *s = &w->sequences[sequence];
    test_put              *p = test_make_put(w->id, s->tokens, s->n, P, 0);
    char                  *path = test_page_path("", w->id, &p->pages[page]);
    test_release(p);
    memmove(path, path + 1, strlen(path)); /* the slash after the root */
    return path;
}

bool ledger_total(const char *root, uint64_t *ret_total)
{
    uint8_t buf[4096];
    char    path[4096];
    snprintf(path, sizeof(path), "%s/ledger", root);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t n = pread(fd, buf, sizeof(buf), 0);
    close(fd);
    if (n != sizeof(buf))
        return false;
    cairn__xxh128 sum = cairn__xxh3_128(buf, 4088);
    if (memcmp(sum.bytes, buf + 4088, 8) != 0 || !(cairn__get_u32(buf + 40) & 1))
        return false;
    *ret_total = cairn__get_u64(buf + 16);
    for (int i = 0; i < 125; i++)
        *ret_total += cairn__get_u64(buf + 64 + 32 * i);
    return true;
}

void check_budget(const world *w)
{
    uint64_t total, used = disk_usage(w->root);
    if (used > w->budget)
        FINDING("%llu bytes on disk, budget %llu", (unsigned long long)used, (unsigned long long)w->budget);
    if (ledger_total(w->root, &total) && used > total)
        FINDING("%llu bytes on disk, the ledger says %llu", (unsigned long long)used, (unsigned long long)total);
}
