/* store.h - find, pin, read and write stored KV pages.
 *
 * The store knows pages: tokens, keys and opaque blocks of bytes. It knows no
 * runtime and no HTTP. One store per root and process; several processes share
 * a root. Calls are thread-safe; a pin belongs to one thread at a time, except
 * cairn_pin_read_block() and _read_ahead(), which many threads may call for one pin. Nothing here
 * logs, exits or aborts on bad input.
 *
 * Never a wrong answer: a page is a hit only when its header verifies, its
 * identity, parent and tokens equal the request's, and each block's checksum
 * holds in the very buffer the caller imports from; with a key, in place of
 * checksums, what was written with this key comes out of AES-256-GCM there. */
#ifndef CAIRN_STORE_H
#define CAIRN_STORE_H

#include "cairn/base.h"
#include "cairn/identity.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cairn_store cairn_store; /* opaque */
typedef struct cairn_pin   cairn_pin;   /* keeps found pages readable, even if evicted meanwhile */

#define CAIRN_PAGE_TOKENS_DEFAULT 256u
#define CAIRN_BUDGET_AUTO 0u            /* least of 20 % of the disk and 64 GiB */
#define CAIRN_BUDGET_OFF UINT64_MAX     /* no disk tier: every lookup misses, every put is dropped */

/* Why a lookup found less than it was asked for. */
#define CAIRN_MISS_LIST(X)                                    \
    X(CAIRN_MISS_NONE, "none")                                \
    X(CAIRN_MISS_NEVER_SEEN, "never seen")                    \
    X(CAIRN_MISS_CORRUPT, "corrupt")                          \
    X(CAIRN_MISS_BELOW_FLOOR, "below the floor")              \
    X(CAIRN_MISS_TIER_OFF, "tier off")                        \
    X(CAIRN_MISS_IO, "input/output error")                    \
    X(CAIRN_MISS_SLOWER_THAN_PREFILL, "slower than prefill")  \
    X(CAIRN_MISS_UNSUPPORTED_MODEL, "unsupported model")      \
    X(CAIRN_MISS_NO_DIGEST, "weights digest not ready")       \
    X(CAIRN_MISS_NO_ROOM, "no room in the context")           \
    X(CAIRN_MISS_EVICTED, "evicted")                          \
    X(CAIRN_MISS_IDENTITY_CHANGED, "identity changed")        \
    X(CAIRN_MISS_CHECKPOINT, "checkpoint missing")            \
    X(CAIRN_MISS_TIMEOUT, "the disk does not answer")         \
    X(CAIRN_MISS_STOPPED, "stopped")
typedef enum cairn_miss {
#define CAIRN_MISS_ENUM(name, text) name,
    CAIRN_MISS_LIST(CAIRN_MISS_ENUM)
#undef CAIRN_MISS_ENUM
    CAIRN_MISS_COUNT
} cairn_miss;
CAIRN_API const char *cairn_miss_text(cairn_miss miss);

typedef struct cairn_store_options { /* zero value = defaults */
    const char *root;              /* NULL: $XDG_CACHE_HOME/cairn, else $HOME/.cache/cairn */
    uint64_t    budget_bytes;      /* CAIRN_BUDGET_AUTO, CAIRN_BUDGET_OFF or a size */
    uint64_t    reserve_bytes;     /* stays free on the device; 0: least of 16 GiB and 10 %, at least 1 GiB */
    uint32_t    page_tokens;       /* 0: 256; a multiple of 16 up to 4096 */
    uint64_t    write_queue_bytes; /* bound on bytes accepted and not yet published; 0: 256 MiB */
    /* 32 secret random bytes: pages are encrypted with them (docs/operate.md); another
     * key finds nothing of them, nor does none. NULL: off. Wipe it after the call. */
    const uint8_t *key;
    uint64_t    day_bytes;         /* most that all processes together write a day (UTC); 0: no bound */
    /* Told of changes of state in one line for a person: nothing can be stored and
     * why, it can again, a page was bad, the folder is gone. From any thread, also before open
     * returns; must not call the store. NULL: nobody is told. */
    void (*notice)(void *ctx, const char *line);
    void *notice_ctx;
} cairn_store_options;

/* Opens or creates the root (0700, owner checked, no symlink as last
 * component, marker file). Refuses a directory that is not empty and not ours.
 * On failure `error` says what is wrong with which path and what to do.
 * Errors: CAIRN_EINVAL, CAIRN_EACCES, CAIRN_ENOSPC, CAIRN_EIO, CAIRN_ENOMEM. */
CAIRN_API CAIRN_MUST_USE cairn_status cairn_store_open(const cairn_store_options *options, cairn_store **ret_store,
                                                       cairn_error *error);
/* Publishes what is queued, stops the threads, frees. No pin may be left. Accepts
 * NULL. A store does not survive fork(): a child must not use or close it. */
CAIRN_API void cairn_store_close(cairn_store *store);

/* The digest that this store knows an identity by, to be given to
 * cairn_chain_key(): that of the identity's text, or with a key one that nobody can
 * compute without it. `identity` is only read. */
CAIRN_API cairn_digest cairn_store_namespace(const cairn_store *store, const cairn_identity *identity);

/* ---- reading ---- */

typedef struct cairn_query {
    const cairn_identity *identity;
    const int32_t        *tokens;      /* the request's prefix, from position 0 */
    uint32_t              n_tokens;    /* never more than this many are offered back */
    uint32_t              from_tokens; /* already resident; pages that end at or before it are not looked for */
    uint32_t              grid_tokens; /* 0: to the exact token; else end on a multiple of this */
    bool (*page_found)(void *ctx);     /* NULL, or called after each page; false: what was found will do */
    void                 *page_found_ctx;
    bool                  needs_checkpoint; /* end at one: what it holds can't be cut elsewhere */
    bool                  no_pages;         /* with it: there is nothing but checkpoints */
} cairn_query;

typedef struct cairn_hit {
    uint32_t   cached_tokens; /* 0 = miss; else above from_tokens and at most n_tokens */
    uint32_t   n_pages;       /* pages pinned; the first contains position from_tokens */
    bool       has_checkpoint; /* one at cached_tokens is pinned, too, as page n_pages */
    uint32_t   reached_tokens; /* of which all pages are there: cached_tokens, or more where a checkpoint is missing */
    uint64_t   stored_bytes;  /* payload of those pages, headers excluded */
    cairn_miss miss;          /* why it ended before n_tokens; NONE when it did not */
    uint64_t   evicted_s;     /* with CAIRN_MISS_EVICTED: how long ago, seconds */
} cairn_hit;

/* A page is the KV of its tokens. A checkpoint is state at the end of its tokens
 * that can't be cut by range: it belongs to the whole prefix, so its first block is
 * all tokens of [0, start + n_tokens), 4 bytes each, in the machine's byte order,
 * and a hit compares them. */
typedef enum cairn_page_kind { CAIRN_PAGE, CAIRN_CHECKPOINT } cairn_page_kind;

/* One pinned page or checkpoint, its header verified and its tokens compared. */
typedef struct cairn_page_view {
    cairn_page_kind kind;
    uint32_t        start;       /* position of its first token; a multiple of page_tokens */
    uint32_t        n_tokens;    /* tokens stored in it */
    uint32_t        used_tokens; /* leading tokens that match the query; below n_tokens only in the last page */
    uint32_t        n_blocks;
    const uint64_t *block_size;  /* [n_blocks], bytes; borrowed until release */
    uint64_t        layout;      /* as given to put: the caller's digest of the meaning of its blocks */
    uint64_t        prefill_ns;  /* measured cost of computing it, 0 = unknown */
} cairn_page_view;

/* Longest run of stored pages for the query, pinned. A miss is CAIRN_OK with
 * cached_tokens 0 and *ret_pin NULL. A page whose header does not verify is
 * quarantined, counted, and a shorter prefix used. Cost: one open and read of
 * some KiB per page, one directory listing at the end.
 * Errors: CAIRN_EINVAL, CAIRN_ENOMEM; on error the ret_ values are untouched.
 * Caller ends with cairn_pin_release(), which accepts NULL. */
CAIRN_API CAIRN_MUST_USE cairn_status cairn_store_lookup(cairn_store *store, const cairn_query *query,
                                                         cairn_hit *ret_hit, cairn_pin **ret_pin);
CAIRN_API cairn_page_view cairn_pin_page(const cairn_pin *pin, uint32_t page); /* page < n_pages */

/* Reads block `block` of pinned page `page` into dst[0..block_size) and
 * verifies its checksum there, or decrypts it there. Only after CAIRN_OK may dst be used. Errors:
 * CAIRN_ECORRUPT (counted, page quarantined), CAIRN_EIO, CAIRN_EINVAL. */
CAIRN_API CAIRN_MUST_USE cairn_status cairn_pin_read_block(cairn_pin *pin, uint32_t page, uint32_t block, void *dst);

/* The same for a page that is cold, and one of its blocks [block, end), which the caller
 * reads one after the other: the device is asked for all of them at once, past the page
 * cache, which takes longer to fill than a fast device needs.
 * A window is of one thread at a time and of one pin, after whose release nothing can
 * be done with it but to destroy it; it is as large as the largest [block, end). */
typedef struct cairn_pin_window cairn_pin_window;
CAIRN_API CAIRN_MUST_USE cairn_pin_window *cairn_pin_window_create(void); /* NULL: out of memory */
CAIRN_API void cairn_pin_window_destroy(cairn_pin_window *window); /* accepts NULL */
CAIRN_API CAIRN_MUST_USE cairn_status cairn_pin_read_through(cairn_pin *pin, cairn_pin_window *window, uint32_t page,
                                                             uint32_t block, uint32_t end, void *dst);
/* Whether the device would be asked for the page's end; a guess about the rest. */
CAIRN_API bool cairn_pin_is_cold(const cairn_pin *pin, uint32_t page); /* page < n_pages */

/* Brings a block into the page cache, for whoever reads it next; a hint, after the last
 * read of the pin: what is measured of a restore ends here. Returns when the device was
 * told, which takes as long as its queue is full: from a thread that has nothing else
 * to do. page < n_pages, block < n_blocks. */
CAIRN_API void cairn_pin_read_ahead(cairn_pin *pin, uint32_t page, uint32_t block);

/* The caller's own look at a page found that it is not what its identity
 * promises (its layout, sizes or content): counted as corrupt, quarantined, so
 * that it can be stored anew. From any thread, like cairn_pin_read_block(). */
CAIRN_API void cairn_pin_reject(cairn_pin *pin, uint32_t page); /* page < n_pages */

/* Marks the pin's deepest page as used (mtime, at most once a minute) and frees it. */
CAIRN_API void cairn_pin_release(cairn_pin *pin);

/* ---- writing ---- */

typedef struct cairn_block {
    const void *data;
    uint64_t    size;
} cairn_block;

typedef struct cairn_page {
    cairn_page_kind    kind;
    cairn_key          key, parent; /* of cairn_chain_key() on cairn_store_namespace() */
    uint32_t           start;       /* a multiple of page_tokens */
    uint32_t           n_tokens;    /* page_tokens, or fewer for a short last page or a checkpoint */
    const int32_t     *tokens;      /* [n_tokens]; copied by the call */
    const cairn_block *blocks;      /* array copied by the call, data borrowed until release */
    uint32_t           n_blocks;
    uint64_t           layout;
    uint64_t           prefill_ns;
} cairn_page;

typedef struct cairn_put {
    const cairn_identity *identity; /* text copied on first use */
    const cairn_page     *pages;    /* in order of position */
    uint32_t              n_pages;
    void (*release)(void *ctx);     /* called once, from any thread, when the blocks' data is no longer read */
    void *release_ctx;
} cairn_put;

/* Bytes that put would accept now; 0 while the queue is full or the tier can't
 * write. */
CAIRN_API uint64_t cairn_store_put_room(cairn_store *store);

/* Hands pages to the writer thread. They are published in order of position,
 * a batch at a time: temporary files, sync, rename, directory sync. A page
 * that exists already is skipped. A short page is unlinked when a longer one
 * with the same parent and the same leading tokens is published. CAIRN_EBUSY:
 * queue full (release not called, try later); CAIRN_EINVAL, CAIRN_ENOMEM: likewise.
 * A put larger than the whole queue is taken when the queue is empty. While the
 * tier is off or can't write, pages are taken, counted as given up and released
 * at once. A failed write is counted and never reported here: not storing is not
 * an error of the request. */
CAIRN_API CAIRN_MUST_USE cairn_status cairn_store_put(cairn_store *store, const cairn_put *put);

/* True when the page with this key and shape is published (or queued), so that
 * exporting it again can be saved; of a short page also when a longer one begins
 * with it. Cost: one stat, for a short page a listing too. */
CAIRN_API bool cairn_store_has(cairn_store *store, const cairn_identity *identity, const cairn_page *page);

/* Waits until all that was put so far is published or given up, and no note is to be
 * written (below); at most timeout_ms. Errors: CAIRN_ETIMEDOUT. */
CAIRN_API CAIRN_MUST_USE cairn_status cairn_store_flush(cairn_store *store, uint32_t timeout_ms);

/* ---- prompts for the next process ---- */

typedef struct cairn_prompt {
    const int32_t *tokens; /* from position 0 */
    uint32_t       n_tokens;
} cairn_prompt;

/* Leaves a note beside the identity's pages: the prompts that this process would begin
 * with if it were started again, the most wanted first. It takes the place of the note
 * of before, by whichever process. Copied, at most 256 prompts and 4 million tokens of
 * them, and written behind the pages that were put; not where no page is stored yet, and
 * not when the tier can't write. A hint: what is restored because of it is looked up
 * like any other prompt. Never touches the disk itself.
 * Errors: CAIRN_EINVAL, CAIRN_ENOMEM. */
CAIRN_API CAIRN_MUST_USE cairn_status cairn_store_note_recent(cairn_store *store, const cairn_identity *identity,
                                                              const cairn_prompt *prompts, uint32_t n_prompts);
/* The note of whichever process came before, as one block for free(), or NULL and 0. One
 * that is damaged is removed and counts as none. May take as long as the disk does.
 * Errors: CAIRN_EINVAL, CAIRN_ENOMEM. */
CAIRN_API CAIRN_MUST_USE cairn_status cairn_store_recent(cairn_store *store, const cairn_identity *identity,
                                                         cairn_prompt **ret_prompts, uint32_t *ret_n_prompts);

/* ---- the budget ---- */

/* Another budget from now on: CAIRN_BUDGET_AUTO or a size, CAIRN_EINVAL for
 * CAIRN_BUDGET_OFF and for a store that was opened with it. Returns at once; what
 * lies above it is evicted in the background, and nothing is written above it. */
CAIRN_API CAIRN_MUST_USE cairn_status cairn_store_set_budget(cairn_store *store, uint64_t budget_bytes);

/* cairn_weights_digest() with a cache of digests below the root: what it writes there is
 * counted, before it is there, so that the budget is never passed. From any thread. */
CAIRN_API CAIRN_MUST_USE cairn_status cairn_store_weights_digest(cairn_store *store,
                                                                 const cairn_weights_request *request,
                                                                 cairn_digest *ret_digest, cairn_error *error);

/* ---- watching ---- */

typedef struct cairn_store_stats {
    uint64_t lookups, hits, hit_tokens;
    uint64_t misses[CAIRN_MISS_COUNT];
    uint64_t pages_put, pages_published, pages_skipped, pages_given_up;
    uint64_t bytes_written, bytes_read;
    uint64_t pages_corrupt, pages_quarantined, pages_evicted;
    uint64_t pages_over_day; /* of those given up: for day_bytes */
    uint64_t write_errors, read_errors;
    uint64_t queued_bytes;
    uint64_t written_today_bytes; /* of the whole root, all processes */
    uint64_t budget_bytes, used_bytes, reserve_bytes; /* of the whole root, all processes */
    bool     read_only;                               /* below the reserve, after a write error, or for day_bytes */
} cairn_store_stats;
CAIRN_API void        cairn_store_get_stats(cairn_store *store, cairn_store_stats *ret_stats);
CAIRN_API const char *cairn_store_root(const cairn_store *store); /* borrowed, absolute */
CAIRN_API uint32_t    cairn_store_page_tokens(const cairn_store *store);

#ifdef __cplusplus
}
#endif
#endif
