/* bench_scale - a root with very many pages.
 *
 *     bench_scale make --root DIR [--pages N]      writes them, without a sync
 *     bench_scale measure --root DIR [--pages N]   another process: opens, looks up, evicts
 *
 * Conversations of 128 pages of 256 tokens, each with one block of a byte: a file
 * of 8 KiB on disk. They are written straight into place by the formats of
 * docs/format.md, in half an hour's use of a server each older than the one before;
 * the ledger is left unknown, as after a power cut, so that what opens the root has
 * to count it.
 *
 * Measured: open to the end of the first lookup; lookups of whole conversations,
 * each for the second time ("warm"), alone, while the root is counted, and while
 * 10,000 pages are evicted because the budget was made smaller; memory meanwhile.
 * A lookup that does not find all of its conversation ends the bench, unless the
 * eviction has begun. */
#include "util.h"

#include "core/page.h"
#include "core/page_name.h"
#include "os/file.h"
#include "tier/disk.h"

#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define PAGE 256u
#define CHAIN 128u
#define N_TOKENS (CHAIN * PAGE)
#define EVICTED 10000u
#define PAGE_BYTES 8192u
#define ROUND 400 /* lookups */
#define MAX_SAMPLES 20000

static cairn_identity *make_identity(void)
{
    cairn_identity *id;
    if (cairn_identity_create(&id) != CAIRN_OK || cairn_identity_set(id, "bench", "scale") != CAIRN_OK)
        bench_die("can't make an identity");
    return id;
}

static cairn_store *open_store(const char *root, uint64_t budget)
{
    cairn_store        *store;
    cairn_error         error = {{0}};
    cairn_store_options o = {.root = root, .budget_bytes = budget, .reserve_bytes = 1};
    if (cairn_store_open(&o, &store, &error) != CAIRN_OK)
        bench_die("%s", error.text);
    return store;
}

/* ---- making ---- */

typedef struct maker {
    cairn_digest digest;
    int          identity_fd;
    int          folders[4096]; /* open ones, by fan-out; 0: not yet */
    int64_t      now_s;
} maker;

static int folder_of(maker *m, const cairn_key *parent)
{
    char     name[CAIRN__FANOUT_NAME_SIZE];
    unsigned index = (unsigned)parent->bytes[0] << 4 | parent->bytes[1] >> 4;
    cairn__fanout_name(parent, name);
    if (m->folders[index] == 0 && (cairn__make_dir(m->identity_fd, name, NULL) != CAIRN_OK ||
                                   cairn__open_dir(m->identity_fd, name, &m->folders[index]) != CAIRN_OK))
        bench_die("can't make a folder: %s", cairn__os_error_text());
    return m->folders[index];
}

static cairn_key write_page(maker *m, const cairn_key *parent, uint32_t start, const int32_t *tokens, int64_t age_s)
{
    uint8_t            buf[8192] = {0}, block = 1;
    char               text[CAIRN__PAGE_NAME_SIZE];
    int                fd;
    cairn__page_block  table = {1, cairn__xxh3_128(&block, 1)};
    cairn__page_header header = {.identity = m->digest,
                                 .parent = *parent,
                                 .start = start,
                                 .n_tokens = PAGE,
                                 .n_blocks = 1,
                                 .kind = CAIRN__PAGE_ATTENTION,
                                 .layout = 1,
                                 .created_s = m->now_s - age_s,
                                 .prefill_ns = 50000000,
                                 .tokens = tokens,
                                 .blocks = &table};
    header.key = cairn_chain_key(&m->digest, parent, tokens, PAGE);
    cairn__page_name name = cairn__page_name_of(&m->digest, &header.key, parent, tokens, PAGE);
    cairn__page_name_format(&name, text);
    uint32_t offset = cairn__page_payload_offset(PAGE, 1);
    if (cairn__page_encode(&header, buf, offset) != CAIRN_OK)
        bench_die("can't encode a page");
    buf[offset] = block;
    if (cairn__create_new(folder_of(m, parent), text, &fd) != CAIRN_OK ||
        cairn__write_at(fd, buf, offset + 1, 0) != CAIRN_OK ||
        cairn__set_mtime(fd, (m->now_s - age_s) * 1000000000) != CAIRN_OK)
        bench_die("can't write a page: %s", cairn__os_error_text());
    cairn__close(fd);
    return header.key;
}

static void make(const char *root, uint32_t n_pages)
{
    static maker    m;
    char            path[4096], name[CAIRN__IDENTITY_NAME_SIZE];
    cairn_identity *id = make_identity();
    cairn_store_close(open_store(root, UINT64_C(1) << 40)); /* marker, folders */
    m.digest = cairn_identity_digest(id);
    m.now_s = (int64_t)time(NULL);
    cairn__identity_name(&m.digest, name);
    snprintf(path, sizeof path, "%s/v1/%s", root, name);
    if (cairn__make_dir(AT_FDCWD, path, NULL) != CAIRN_OK ||
        cairn__open_dir(AT_FDCWD, path, &m.identity_fd) != CAIRN_OK)
        bench_die("can't make %s", path);
    snprintf(path, sizeof path, "%s/v1/%s/identity.txt", root, name);
    FILE *text = fopen(path, "w");
    if (!text || fputs(cairn_identity_text(id, NULL), text) < 0 || fclose(text) != 0 || chmod(path, 0600) != 0)
        bench_die("can't write %s", path);
    uint32_t n_chains = n_pages / CHAIN;
    for (uint32_t c = 0; c < n_chains; c++) {
        llama_token *tokens = bench_tokens(N_TOKENS, 100000, c + 1);
        cairn_key    parent = {{0}};
        for (uint32_t p = 0; p < CHAIN; p++)
            parent = write_page(&m, &parent, p * PAGE, tokens + p * PAGE, 3600 + 1800 * (int64_t)(n_chains - c));
        free(tokens);
        if (c % 500 == 499)
            bench_note("%u pages written", (c + 1) * CHAIN);
    }
    snprintf(path, sizeof path, "%s/ledger", root);
    (void)unlink(path);
    cairn_identity_destroy(id);
}

/* ---- measuring ---- */

typedef struct samples {
    double ms[MAX_SAMPLES];
    int    n;
} samples;

typedef struct bench {
    cairn_store    *store;
    cairn_identity *id;
    uint32_t        n_chains;
    uint64_t        random;
    bool            evicting; /* pages may be missing */
} bench;

static double look_up(bench *b, const llama_token *tokens)
{
    cairn_hit   hit = {0};
    cairn_pin  *pin = NULL;
    cairn_query query = {.identity = b->id, .tokens = tokens, .n_tokens = N_TOKENS};
    double      start = bench_now_ms();
    if (cairn_store_lookup(b->store, &query, &hit, &pin) != CAIRN_OK)
        bench_die("lookup failed");
    double ms = bench_now_ms() - start;
    cairn_pin_release(pin);
    if (hit.cached_tokens != N_TOKENS && !b->evicting)
        bench_die("found %u tokens of %u", hit.cached_tokens, N_TOKENS);
    return ms;
}

/* One conversation of the younger half, twice; the second time counts. */
static double warm_lookup(bench *b)
{
    b->random = b->random * 6364136223846793005u + 1442695040888963407u;
    uint32_t     chain = b->n_chains / 2 + (uint32_t)(b->random >> 33) % (b->n_chains - b->n_chains / 2);
    llama_token *tokens = bench_tokens(N_TOKENS, 100000, chain + 1);
    (void)look_up(b, tokens);
    double ms = look_up(b, tokens);
    free(tokens);
    return ms;
}

static void add(samples *s, double ms)
{
    if (s->n < MAX_SAMPLES)
        s->ms[s->n++] = ms;
}

static void tell(const char *what, samples *s)
{
    char   key[64];
    double median = s->n ? bench_median(s->ms, s->n) : 0; /* sorts */
    snprintf(key, sizeof key, "%s_lookups", what);
    json_number(key, s->n);
    snprintf(key, sizeof key, "%s_median_ms", what);
    json_number(key, median);
    snprintf(key, sizeof key, "%s_p99_ms", what);
    json_number(key, s->n ? s->ms[s->n * 99 / 100] : 0);
}

static uint64_t used(const bench *b)
{
    cairn_store_stats stats;
    cairn_store_get_stats(b->store, &stats);
    return stats.used_bytes;
}

static void measure(const char *root, uint32_t n_pages)
{
    static samples counting, alone, evicting;
    bench          b = {.id = make_identity(), .n_chains = n_pages / CHAIN, .random = 1};
    long           kib_before = bench_peak_kib();
    llama_token   *first = bench_tokens(N_TOKENS, 100000, b.n_chains);
    double         start = bench_now_ms();
    b.store = open_store(root, UINT64_C(1) << 40);
    double open_ms = bench_now_ms() - start;
    (void)look_up(&b, first);
    double first_ms = bench_now_ms() - start;
    while (used(&b) < (uint64_t)n_pages * PAGE_BYTES) /* the root is counted in the background */
        add(&counting, warm_lookup(&b));
    double counted_ms = bench_now_ms() - start;
    long   kib_open = bench_peak_kib();
    for (int i = 0; i < ROUND; i++)
        add(&alone, warm_lookup(&b));
    uint64_t before = used(&b), target = before - (uint64_t)EVICTED * PAGE_BYTES;
    b.evicting = true;
    start = bench_now_ms();
    if (cairn_store_set_budget(b.store, target) != CAIRN_OK)
        bench_die("can't set the budget");
    double returned_ms = bench_now_ms() - start;
    while (used(&b) > target)
        add(&evicting, warm_lookup(&b));
    double            evict_ms = bench_now_ms() - start;
    cairn_store_stats stats;
    cairn_store_get_stats(b.store, &stats);
    json_begin();
    json_number("pages", n_pages);
    json_number("open_ms", open_ms);
    json_number("first_lookup_ms", first_ms);
    json_number("counted_ms", counted_ms);
    tell("counting", &counting);
    tell("alone", &alone);
    json_number("set_budget_ms", returned_ms);
    json_number("evict_ms", evict_ms);
    json_number("evicted_pages", (double)stats.pages_evicted);
    tell("evicting", &evicting);
    json_number("open_extra_kib", (double)(kib_open - kib_before));
    json_number("evict_bytes_per_page", (double)(bench_peak_kib() - kib_open) * 1024 / n_pages);
    json_end();
    cairn_store_close(b.store);
    cairn_identity_destroy(b.id);
    free(first);
}

int main(int argc, char **argv)
{
    static const struct option longs[] = {
        {"root", required_argument, NULL, 'd'}, {"pages", required_argument, NULL, 'n'}, {NULL, 0, NULL, 0}};
    const char *root = NULL;
    uint32_t    n_pages = 100000;
    for (int c; (c = getopt_long(argc, argv, "", longs, NULL)) != -1;)
        switch (c) {
        case 'd':
            root = optarg;
            break;
        case 'n':
            n_pages = (uint32_t)strtoul(optarg, NULL, 10);
            break;
        default:
            return 2;
        }
    const char *verb = optind + 1 == argc ? argv[optind] : "";
    bool        is_make = strcmp(verb, "make") == 0;
    n_pages -= n_pages % CHAIN;
    if (!root || n_pages < 2 * EVICTED || (!is_make && strcmp(verb, "measure") != 0)) {
        fputs("usage: bench_scale make|measure --root DIR [--pages N], N at least 20,096\n", stderr);
        return 2;
    }
    if (is_make)
        make(root, n_pages);
    else
        measure(root, n_pages);
    return 0;
}
