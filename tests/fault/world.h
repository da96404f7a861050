/* world.h - what both campaigns share: a root, sequences of tokens whose pages'
 * bytes follow from their keys, and checks that look at every byte. */
#ifndef CAIRN_WORLD_H
#define CAIRN_WORLD_H

#include "store_testing.h"

#define P 16u         /* tokens of a page */
#define N_SEQUENCES 9 /* SHORT is the beginning of LONG, FORK shares 24 tokens with it; the others share nothing */
enum { SHORT, LONG, FORK, OTHER, LATER, MORE_1, MORE_2, MORE_3, PROBE };
typedef struct sequence {
    int32_t  tokens[6 * P];
    uint32_t n;
} sequence;

typedef struct world {
    char           *base, *root; /* root = base/cache */
    cairn_identity *id;
    cairn_digest    digest;
    sequence        sequences[N_SEQUENCES];
    uint64_t        budget;
} world;

/* With CAIRN_FAULT_SEALED in the environment all pages are sealed with this key; else
 * NULL. Each file of a test sets test_key to it. */
const uint8_t *world_key(void);

/* Decodes either kind where it lies. */
cairn_status world_decode(uint8_t *data, size_t size, cairn__page_header *ret_header);
cairn_status world_encode(const cairn__page_header *header, uint8_t *data, size_t size);

void world_init(world *w); /* base: a fresh folder */
void world_done(world *w);

char *world_make_folder(void); /* in memory where there is such */
void  world_clean_up(void);    /* removes what a failed test left of those */
void  remove_tree(const char *path);
void  copy_tree(const char *from, const char *to); /* `to` is made; times are kept */
/* Blocks of everything below. */
uint64_t disk_usage(const char *path);
uint32_t count_descriptors(void);

/* Opens with the world's budget. The caller's thread decides whether this is FAULTY. */
cairn_status world_open(const world *w, cairn_store **ret_store);
/* CAIRN_OK: all of it was handed over, and flushed. *ret_published: every page of
 * it that was not there is there now. */
cairn_status world_put(const world *w, cairn_store *store, int sequence, bool *ret_published);

/* The same for a checkpoint at n tokens of a sequence. */
cairn_status world_put_checkpoint(const world *w, cairn_store *store, int sequence, uint32_t n, bool *ret_published);

/* Looks tokens[0..n) of a sequence up and reads every block. What is returned with
 * CAIRN_OK is compared to the byte; returns the tokens before the first page of
 * which a block could not be read. */
uint32_t world_read(const world *w, cairn_store *store, int sequence, uint32_t n);

/* The same with checkpoints: what comes back is the state of exactly these tokens. Returns
 * the tokens of the hit, 0 where something of it could not be read. */
uint32_t world_read_checkpoint(const world *w, cairn_store *store, int sequence, uint32_t n);

/* Notes all of LONG and SHORT for the next process; what a note gives is these two. */
cairn_status world_note(const world *w, cairn_store *store);
uint32_t     world_recent(const world *w, cairn_store *store); /* how many prompts: 0 or 2 */

/* Every page file below the root is whole and under its own name. Returns how many. */
uint32_t check_pages(const world *w, const char *root);
/* Name of page `page` of a sequence, relative to the root; malloc()ed. */
char *world_page_name(const world *w, int sequence, uint32_t page);

/* used + reserved as the file says; false: not known, or torn. */
bool ledger_total(const char *root, uint64_t *ret_total);

/* What lies on disk fits the budget and is not more than the ledger says. */
void check_budget(const world *w);

/* A finding ends the test; the text says what. */
#define FINDING(...) fail_msg("finding: " __VA_ARGS__)

#endif
