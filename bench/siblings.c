/* bench_siblings - the right one of thousands of pages with the same parent.
 *
 *     bench_siblings write --root DIR [--count N]   writes them, then looks some up
 *     bench_siblings find --root DIR [--count N]    another process: looks some up
 *
 * A popular system prompt ends inside a page, and every conversation parts from
 * the others there. Sibling k: 100 tokens that all share, then its own. The
 * query repeats the first 200 tokens of one sibling and goes on differently, so
 * exactly that page must be found and cut there; anything else ends the bench. */
#include "util.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAGE 256u
#define COMMON 100u
#define MATCHING 200u
#define BLOCK_BYTES 1024u
#define BATCH 64u
#define LOOKUPS 101

static void common_tokens(int32_t tokens[2 * PAGE], uint32_t sibling)
{
    llama_token *system = bench_tokens(PAGE + COMMON, 100000, 7);
    llama_token *own = bench_tokens(PAGE - COMMON, 100000, 1000 + sibling);
    memcpy(tokens, system, (PAGE + COMMON) * sizeof *tokens);
    memcpy(tokens + PAGE + COMMON, own, (PAGE - COMMON) * sizeof *tokens);
    free(system);
    free(own);
}

static void nothing(void *ctx)
{
    (void)ctx;
}

static void put(cairn_store *store, const cairn_identity *id, const cairn_page *pages, uint32_t n)
{
    cairn_put    p = {.identity = id, .pages = pages, .n_pages = n, .release = nothing};
    cairn_status s;
    while ((s = cairn_store_put(store, &p)) == CAIRN_EBUSY)
        if (cairn_store_flush(store, 60000) != CAIRN_OK)
            bench_die("the store's queue does not empty");
    if (s != CAIRN_OK)
        bench_die("put: %s", cairn_status_text(s));
}

static void write_siblings(cairn_store *store, const cairn_identity *id, uint32_t count)
{
    static uint8_t bytes[BLOCK_BYTES];
    static int32_t tokens[BATCH][2 * PAGE];
    cairn_block    block = {bytes, sizeof bytes};
    cairn_digest   digest = cairn_identity_digest(id);
    cairn_page     pages[BATCH];
    common_tokens(tokens[0], 0);
    cairn_page parent = {.key = cairn_chain_key(&digest, NULL, tokens[0], PAGE),
                         .n_tokens = PAGE,
                         .tokens = tokens[0],
                         .blocks = &block,
                         .n_blocks = 1,
                         .layout = 1};
    put(store, id, &parent, 1);
    for (uint32_t at = 0, n; at < count; at += n) {
        n = count - at < BATCH ? count - at : BATCH;
        for (uint32_t i = 0; i < n; i++) {
            common_tokens(tokens[i], at + i);
            pages[i] = parent;
            pages[i].parent = parent.key;
            pages[i].start = PAGE;
            pages[i].tokens = tokens[i] + PAGE;
            pages[i].key = cairn_chain_key(&digest, &parent.key, pages[i].tokens, PAGE);
        }
        put(store, id, pages, n);
    }
    if (cairn_store_flush(store, 300000) != CAIRN_OK)
        bench_die("the siblings were not published within 300 s");
}

static double look_up(cairn_store *store, const cairn_identity *id, uint32_t sibling)
{
    int32_t    tokens[2 * PAGE];
    cairn_hit  hit = {0};
    cairn_pin *pin = NULL;
    common_tokens(tokens, sibling);
    for (uint32_t i = PAGE + MATCHING; i < 2 * PAGE; i++)
        tokens[i] = 5; /* below all generated ids */
    cairn_query query = {.identity = id, .tokens = tokens, .n_tokens = 2 * PAGE};
    double      start = bench_now_ms();
    if (cairn_store_lookup(store, &query, &hit, &pin) != CAIRN_OK)
        bench_die("lookup failed");
    double ms = bench_now_ms() - start;
    if (hit.cached_tokens != PAGE + MATCHING)
        bench_die("sibling %u: found %u tokens, expected %u", sibling, hit.cached_tokens, PAGE + MATCHING);
    cairn_pin_release(pin);
    return ms;
}

int main(int argc, char **argv)
{
    static const struct option longs[] = {
        {"root", required_argument, NULL, 'd'}, {"count", required_argument, NULL, 'n'}, {NULL, 0, NULL, 0}};
    const char *root = NULL;
    uint32_t    count = 10000;
    for (int c; (c = getopt_long(argc, argv, "", longs, NULL)) != -1;)
        switch (c) {
        case 'd':
            root = optarg;
            break;
        case 'n':
            count = (uint32_t)strtoul(optarg, NULL, 10);
            break;
        default:
            return 2;
        }
    const char *verb = optind + 1 == argc ? argv[optind] : "";
    bool        is_write = strcmp(verb, "write") == 0;
    if (!root || count < 1 || (!is_write && strcmp(verb, "find") != 0)) {
        fputs("usage: bench_siblings write|find --root DIR [--count N]\n", stderr);
        return 2;
    }
    cairn_store    *store;
    cairn_identity *id;
    cairn_error     error = {{0}};
    if (cairn_store_open(&(cairn_store_options){.root = root}, &store, &error) != CAIRN_OK)
        bench_die("%s", error.text);
    if (cairn_identity_create(&id) != CAIRN_OK || cairn_identity_set(id, "bench", "siblings") != CAIRN_OK)
        bench_die("can't make an identity");
    double write_ms = bench_now_ms();
    if (is_write)
        write_siblings(store, id, count);
    write_ms = bench_now_ms() - write_ms;
    double   first = look_up(store, id, count / 2), ms[LOOKUPS], worst = 0;
    uint64_t state = 1;
    for (int i = 0; i < LOOKUPS; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        ms[i] = look_up(store, id, (uint32_t)(state >> 33) % count);
        worst = ms[i] > worst ? ms[i] : worst;
    }
    json_begin();
    json_text("process", is_write ? "wrote them" : "second process");
    json_number("siblings", count);
    json_number("write_ms", is_write ? write_ms : 0);
    json_number("first_lookup_ms", first);
    json_number("lookup_ms", bench_median(ms, LOOKUPS));
    json_number("worst_lookup_ms", worst);
    json_end();
    cairn_identity_destroy(id);
    cairn_store_close(store);
    return 0;
}
