/* internal.h - the store's state, shared by the files of this folder.
 *
 * Threads: any number of callers; one writer thread, which alone publishes,
 * evicts and reserves; one janitor thread, which scans after open and ends.
 * Locks, in the order in which they may be taken: scan_lock, lock. The listing
 * cache and the ledger have their own inside. `lock` is never held during I/O.
 * Counters are atomic and relaxed: each is right, a set of them may be a moment
 * apart. */
#ifndef CAIRN_STORE_INTERNAL_H
#define CAIRN_STORE_INTERNAL_H

#include "cairn/store.h"
#include "store/ledger.h"
#include "tier/disk.h"
#include "tier/listing.h"
#include "tier/scan.h"

#include <pthread.h>
#include <stdatomic.h>

/* A temporary file that nobody has locked is an orphan from this age on: longer than
 * a writer takes from create to lock; one that takes longer loses the page. */
#define CAIRN__ORPHAN_NS (INT64_C(20) * 1000 * 1000 * 1000)
#define CAIRN__KNOWN_IDENTITIES 16u
#define CAIRN__RECHECK_NS (UINT64_C(10) * 1000 * 1000 * 1000) /* a full device is tried again after this */

typedef struct cairn__put_job cairn__put_job;
typedef struct cairn__evictor cairn__evictor;
typedef struct cairn__note    cairn__note;

/* Shared by the threads that read blocks; only `bad` changes. */
typedef struct cairn__pin_page {
    cairn__page_file file;
    uint32_t         used_tokens;
    atomic_bool      bad; /* quarantined through this pin already */
} cairn__pin_page;

struct cairn_pin {
    cairn_store      *store;
    cairn_pin        *prev, *next; /* the store's list, under its lock */
    cairn_digest      identity;
    cairn__pin_page **pages; /* [n_pages] */
    uint32_t          n_pages, room;
    /* For the price of a restore: when the first block was read, and how much in all. */
    atomic_uint_fast64_t first_read_ns, read_bytes;
    bool                 measured;
};

typedef struct cairn__counters {
    atomic_uint_fast64_t lookups, hits, hit_tokens, misses[CAIRN_MISS_COUNT];
    atomic_uint_fast64_t pages_put, pages_published, pages_skipped, pages_given_up, pages_over_day;
    atomic_uint_fast64_t bytes_written, bytes_read;
    atomic_uint_fast64_t pages_corrupt, pages_quarantined, pages_evicted;
    atomic_uint_fast64_t write_errors, read_errors;
} cairn__counters;

static inline void cairn__count(atomic_uint_fast64_t *counter, uint64_t n)
{
    atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}

struct cairn_store {
    cairn__root root; /* fd -1: tier off */
    bool        off;
    uint32_t    page_tokens;
    uint64_t    reserve_bytes, queue_limit_bytes, day_bytes;
    /* Changes while the store runs; UINT64_MAX: a tool, which writes nothing. */
    atomic_uint_fast64_t budget_bytes;
    cairn__keyring      *keyring; /* NULL: pages are plain; root borrows it */
    cairn__listings     *listings;
    cairn__ledger       *ledger;
    cairn__counters      counters;

    void (*notice)(void *ctx, const char *line);
    void                *notice_ctx;
    atomic_uint_fast64_t small_budget; /* the last one that was less than a page; 0: none */
    atomic_uint_fast64_t restore_ps;   /* measured picoseconds for a byte, 0: unknown */
    atomic_uint          spent_day;    /* the last day on which all that may be written was; 0: none */
    atomic_bool          said_blocked; /* and nothing was published since */
    atomic_bool          lost;         /* the root is gone and could not be made again */
    atomic_bool          young_temps;  /* a count met temporaries whose writers may be dead */
    atomic_bool          freed_unsure; /* by lookups: they don't wait for the ledger's lock, the writer passes it on */

    pthread_mutex_t  lock;
    pthread_cond_t   work; /* to the writer: something to do; to the janitor: stop */
    pthread_cond_t   done; /* to flush: a job ended */
    cairn__put_job  *queue_head, *queue_tail;
    uint64_t         queued_bytes;
    uint64_t         put_seq, done_seq; /* of the last job accepted, ended */
    cairn__note     *notes;             /* to be written; recent.c */
    cairn__file_info last_note;         /* the writer's: as this process left it, and as it was counted */
    bool             notes_under_way;   /* some are being written */
    bool             stop;
    bool             fit_wanted;   /* the writer is to look whether the budget is passed */
    bool             root_suspect; /* and whether the root is still there */
    bool             write_failed; /* for good */
    bool             low_space;    /* below the reserve, or ENOSPC */
    uint32_t         next_known;
    struct { /* identities used lately, so that their folders are touched once an hour */
        cairn_digest identity;
        uint64_t     until_ns;
    } known[CAIRN__KNOWN_IDENTITIES];
    cairn_pin *pins;
    uint64_t   blocked_until_ns; /* monotonic; 0: not blocked */

    pthread_mutex_t scan_lock; /* one scan at a time in this process */
    pthread_t       writer, janitor;

    bool            has_writer, has_janitor;
    cairn__evictor *evictor; /* the writer thread's, like the next four */
    int             ring_fd; /* while it evicts; -1: none */
    uint32_t        n_rings;
    uint32_t        n_unnoted;
    uint8_t (*unnoted)[CAIRN__PAGE_NAME_KEY_SIZE]; /* keys that were evicted before there was a ring; NULL: none yet */
};

/* ---- store.c ---- */
/* Zeroed, with its locks; no root yet. NULL: no memory. */
cairn_store *cairn__store_alloc(void);
/* Most that lies in quarantine. */
uint64_t cairn__quarantine_limit(const cairn_store *store);

/* ---- notice.c ---- */
void cairn__notice(cairn_store *store, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* States, each told once when it changes. Without locks held. */
void cairn__store_set_low(cairn_store *store, bool low);
void cairn__store_fail_writes(cairn_store *store);
bool cairn__store_is_spent(cairn_store *store); /* today */
void cairn__store_set_spent(cairn_store *store);
void cairn__store_say_blocked(cairn_store *store, const char *why);
void cairn__store_say_fitted(cairn_store *store, uint64_t freed_bytes);
void cairn__store_say_small(cairn_store *store, uint64_t page_bytes);
/* Writer thread: the root is there, or again. False: it is gone. */
bool cairn__store_check_root(cairn_store *store);
/* Has the writer do that if it looks as if the root were removed. */
void cairn__store_suspect_root(cairn_store *store);

/* ---- lookup.c, child.c ---- */

/* Position and tokens of a wanted page behind `parent`. */
typedef struct cairn__want {
    const cairn_digest *identity; /* of the namespace, as everywhere in the store */
    int                 identity_fd;
    cairn_key           parent;
    uint32_t            start;
    const int32_t      *tokens; /* [n_tokens], the wanted ones from start on */
    uint32_t            n_tokens;
} cairn__want;

/* Opens the page that holds exactly the wanted tokens, all compared. Statuses of
 * cairn__page_file_open(); a bad page is quarantined and counted. */
CAIRN_MUST_USE cairn_status cairn__open_whole(cairn_store *store, const cairn__want *want, cairn_key *ret_key,
                                              cairn__page_file *ret_file);

/* Among the children of want->parent the one that shares the longest run of
 * tokens. *ret_run 0: none, nothing held. Errors: CAIRN_ENOMEM, CAIRN_EIO. */
CAIRN_MUST_USE cairn_status cairn__open_longest_child(cairn_store *store, const cairn__want *want,
                                                      cairn__page_file *ret_file, uint32_t *ret_run);

/* ---- checkpoint.c ---- */

/* Among the checkpoints behind want->parent the deepest one whose tokens are wanted
 * and that ends on `grid` (0: anywhere); prefix[0..want->start + want->n_tokens) are
 * all tokens of the request, compared. *ret_tokens 0: none, nothing held. Errors:
 * CAIRN_ENOMEM, CAIRN_EIO. */
CAIRN_MUST_USE cairn_status cairn__open_checkpoint(cairn_store *store, const cairn__want *want, const int32_t *prefix,
                                                   uint32_t grid, cairn__page_file *ret_file, uint32_t *ret_tokens);

/* Opens what has this name behind want->parent and compares it with `key`. Bad
 * files are quarantined. As cairn__page_file_open(). */
CAIRN_MUST_USE cairn_status cairn__open_child(cairn_store *store, int folder_fd, const cairn__page_name *name,
                                              const cairn__want *want, const cairn_key *key,
                                              cairn__page_file *ret_file);
/* Valid in itself, but not what its place says: closes and quarantines it. Returns
 * CAIRN_ECORRUPT. */
cairn_status cairn__reject_child(cairn_store *store, int folder_fd, const cairn__page_name *name,
                                 cairn__page_file *file);

/* Counts a bad page and moves it away. */
void cairn__store_quarantine(cairn_store *store, int folder_fd, const cairn__page_name *name, uint64_t inode);

/* ---- pin.c ---- */
CAIRN_MUST_USE cairn_status cairn__pin_create(cairn_store *store, const cairn_digest *identity, cairn_pin **ret_pin);
/* Takes the file over, also on failure. */
CAIRN_MUST_USE cairn_status cairn__pin_add_take(cairn_pin *pin, cairn__page_file *file, uint32_t used_tokens);
void                        cairn__pin_drop_last(cairn_pin *pin);
/* Picoseconds to restore a byte, measured by this process or else by another; 0: unknown. */
uint64_t cairn__restore_price(cairn_store *store);
bool     cairn__store_is_pinned(cairn_store *store, const uint8_t key[CAIRN__PAGE_NAME_KEY_SIZE]);

/* ---- queue.c ---- */

struct cairn__put_job {
    cairn__put_job *next;
    uint64_t        seq, bytes;
    cairn_digest    identity;
    char           *identity_text;
    cairn_page     *pages; /* tokens and blocks are copies too */
    uint32_t        n_pages, n_ended;
    void (*release)(void *ctx);
    void *release_ctx;
};

/* Whether the tier takes pages at the moment; checks a full device again when it
 * is time. Writer thread. */
bool cairn__store_can_write(cairn_store *store);
/* Calls the release and frees. Without locks held. */
void cairn__job_end(cairn__put_job *job);
/* On disk under its name, or covered by a longer page. */
bool cairn__page_is_stored(cairn_store *store, const cairn_digest *identity, const cairn_page *page);
/* True when this key, or a child of it, is queued. */
bool cairn__store_is_queued(cairn_store *store, const uint8_t key[CAIRN__PAGE_NAME_KEY_SIZE]);

/* ---- writer.c, room.c, evict.c ---- */
/* Creates the writer thread, so that it has all the memory it needs. */
CAIRN_MUST_USE cairn_status cairn__writer_start(cairn_store *store);
/* Writer thread: reserves bytes in the ledger, evicting for them if need be.
 * CAIRN_ENOSPC: no room. */
CAIRN_MUST_USE cairn_status cairn__store_reserve(cairn_store *store, uint64_t bytes);
/* Free space on the device does not go below the reserve when `bytes` are written. */
bool cairn__store_space_left(cairn_store *store, uint64_t bytes);
/* Writer thread: what lies above the budget goes. */
void cairn__store_fit_budget(cairn_store *store);
/* Makes `used` of the ledger known and right; waits for another process that counts.
 * False: it can't be counted. */
bool cairn__store_find_used(cairn_store *store);
/* Stops taking pages for CAIRN__RECHECK_NS. */
void cairn__store_block(cairn_store *store, const char *why); /* NULL: less is free than must be */
/* Writer thread: frees at least `bytes` if it can. Returns what it freed. */
uint64_t cairn__evict(cairn_store *store, uint64_t bytes);
uint64_t cairn__empty_quarantine(cairn_store *store);     /* likewise */
void     cairn__evictor_destroy(cairn__evictor *evictor); /* accepts NULL */

/* ---- recent.c ---- */
/* For the writer thread: what is to be written, and writing it. */
cairn__note *cairn__notes_take_locked(cairn_store *store);
void         cairn__notes_write(cairn_store *store, cairn__note *notes); /* takes them; accepts NULL */
void         cairn__notes_destroy(cairn_store *store);                   /* what nobody wrote */
/* The note as it lies in an identity's folder, malloc()ed. CAIRN_ECORRUPT: it can't be
 * one; *ret_info says which file it was, inode 0: it could not be opened. */
CAIRN_MUST_USE cairn_status cairn__recent_read(const cairn_store *store, int folder_fd, uint8_t **ret_file,
                                               cairn__file_info *ret_info);
/* Only the file that was read: another process may have put a good one there since. */
bool cairn__recent_remove_bad(cairn_store *store, int folder_fd, uint64_t inode);
/* Proves it and gives its prompts, as one block for free(). */
CAIRN_MUST_USE cairn_status cairn__recent_check(const cairn__keyring *keyring, uint8_t *file, size_t size,
                                                cairn_prompt **ret_prompts, uint32_t *ret_n);

/* ---- janitor.c ---- */
void *cairn__janitor_main(void *store);
/* One scan, its times filled in. count: also corrects the ledger by it, if no other
 * process is about to. *ret_counted: it did. Errors as cairn__scan(). */
CAIRN_MUST_USE cairn_status cairn__store_scan(cairn_store *store, cairn__scan_request request, bool count,
                                              cairn__scan_result *ret_result, bool *ret_counted);
/* Corrects the ledger by a scan. CAIRN_EBUSY: another process is counting (nothing
 * was scanned). CAIRN_EIO: it can't be counted now. CAIRN_ENOMEM. */
CAIRN_MUST_USE cairn_status cairn__store_count(cairn_store *store);
/* ---- store.c ---- */
/* The writer is to look whether the budget is passed. */
void cairn__store_fit_soon(cairn_store *store);

#endif
