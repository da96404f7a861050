/* verify.h - is a root what docs/format.md says? For `cairn verify`.
 *
 * Beside running servers: nothing is locked, what comes or goes meanwhile is no
 * problem. Repairs unless told not to: a page that fails goes to quarantine, as a
 * lookup would do; so does a text that is not its folder's identity; modes are made
 * private; damaged side files are unlinked; temporary files of dead processes go;
 * the ledger is counted anew where it disagrees. Pages whose parent is missing are
 * left: they serve again once it is stored, and eviction takes them first. Files of
 * others are left alone. */
#ifndef CAIRN_STORE_VERIFY_H
#define CAIRN_STORE_VERIFY_H

#include "store/tool.h"

/* name, word in JSON, what a person reads for many of them */
#define CAIRN__PROBLEM_LIST(X)                                                                                         \
    X(CAIRN__PROBLEM_PAGE, "bad_page", "pages that fail verification")                                                 \
    X(CAIRN__PROBLEM_BLOCK, "bad_block", "pages with blocks that fail their checksum")                                 \
    X(CAIRN__PROBLEM_PLACE, "misplaced", "pages in a folder or under a name that is not theirs")                       \
    X(CAIRN__PROBLEM_ORPHAN, "orphan", "pages whose parent is missing")                                                \
    X(CAIRN__PROBLEM_IDENTITY, "identity", "identities whose text is missing or wrong")                                \
    X(CAIRN__PROBLEM_KIND, "kind", "things that are not the kind of file they should be")                              \
    X(CAIRN__PROBLEM_OWNER, "owner", "files of another user")                                                          \
    X(CAIRN__PROBLEM_MODE, "mode", "files that others may read")                                                       \
    X(CAIRN__PROBLEM_SIDE_FILE, "side_file", "damaged side files")                                                     \
    X(CAIRN__PROBLEM_LEDGER, "ledger", "disagreements of the ledger with the disk")                                    \
    X(CAIRN__PROBLEM_UNKNOWN, "unknown", "files that are not ours")                                                    \
    X(CAIRN__PROBLEM_UNREADABLE, "unreadable", "files and folders that can't be read")
typedef enum cairn__problem {
#define X(name, word, text) name,
    CAIRN__PROBLEM_LIST(X)
#undef X
        CAIRN__PROBLEM_COUNT
} cairn__problem;
const char *cairn__problem_word(cairn__problem problem);
const char *cairn__problem_text(cairn__problem problem);

typedef struct cairn__finding {
    cairn__problem problem;
    const char    *path; /* below the root; borrowed */
    const char    *what; /* likewise */
    bool           repaired;
} cairn__finding;

typedef struct cairn__verify_result {
    uint64_t n_identities, n_folders, n_pages;
    uint64_t n_sealed;                   /* of them encrypted, looked at from outside only */
    uint64_t page_bytes, used_bytes;     /* blocks of pages; of everything */
    uint64_t read_bytes;                 /* of blocks: deep alone */
    uint64_t n_dead_temps, n_live_temps; /* of dead processes (removed); in use, or younger than a minute */
    uint64_t n_quarantined, quarantine_bytes;
    uint64_t n_digests;
    uint64_t n_problems[CAIRN__PROBLEM_COUNT], n_repaired;
    uint64_t ledger_bytes, ledger_reserved; /* as the ledger had it before */
    bool     ledger_known;                  /* it said something, and nobody changed it meanwhile */
} cairn__verify_result;

typedef struct cairn__verify_request { /* zero value: quick, with repairs */
    bool deep;                         /* every block of every page, too */
    bool dry_run;                      /* look only */
    void (*finding)(void *ctx, const cairn__finding *finding);
    void (*progress)(void *ctx, const cairn__verify_result *so_far); /* after each page; NULL: don't care */
    void *ctx;
} cairn__verify_request;

/* The store is one of cairn__tool_open(), with a ledger unless dry_run. Errors:
 * CAIRN_ENOMEM, CAIRN_EIO: the root itself can't be read. */
CAIRN_MUST_USE cairn_status cairn__verify(cairn_store *store, const cairn__verify_request *request,
                                          cairn__verify_result *ret_result);

#endif
