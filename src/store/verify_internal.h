/* verify_internal.h - shared by the files that verify a root: verify.c walks it,
 * verify_identity.c looks at one identity, verify_page.c at one page. */
#ifndef CAIRN_STORE_VERIFY_INTERNAL_H
#define CAIRN_STORE_VERIFY_INTERNAL_H

#include "store/verify.h"

#define CAIRN__VERIFY_PATH 700u /* v1/, two folders, a name of 255 bytes; escaped */

typedef struct cairn__verifier {
    cairn_store                 *store;
    const cairn__verify_request *request;
    cairn__verify_result         result;
    cairn_status                 status;      /* of the walk: CAIRN_ENOMEM ends it */
    int64_t                      began_ns;    /* wall clock */
    char                         folder[128]; /* where the walk is, with a slash at the end */
} cairn__verifier;

/* Counts and tells. `name` in the folder that the walk is in. */
void cairn__verify_report(cairn__verifier *v, cairn__problem problem, const char *name, const char *what,
                          bool repaired);
/* Moves a bad file to quarantine and tells the ledger. False: dry run, or it stayed. */
bool cairn__verify_quarantine(cairn__verifier *v, int folder_fd, const char *name, uint64_t inode);

/* Looks at kind, owner and mode of what should be a file or a folder, and makes the
 * mode private. False: gone, or not to be used; it was reported. */
bool cairn__verify_entry(cairn__verifier *v, int dir_fd, const char *name, bool folder, cairn__file_info *ret_info);

/* What is not one of ours. */
void cairn__verify_unknown(cairn__verifier *v, const char *name);

void cairn__verify_identity(cairn__verifier *v, int pages_fd, const char *name);

typedef struct cairn__verify_page {
    cairn__page_name name;
    uint32_t         start;
    bool             sealed;
    int64_t          mtime_ns;
} cairn__verify_page;

/* What an identity's folder tells of its pages. */
typedef struct cairn__verify_space {
    const char  *name;   /* of the folder */
    cairn_digest digest; /* what its keys are made of */
    bool         known;  /* digest; else there is no text, or it is sealed under a key that we don't have */
    bool         sealed; /* the text is, so the pages must be */
} cairn__verify_space;

/* One page file of the folder `fanout` of an identity. False: gone or bad. */
bool cairn__verify_one_page(cairn__verifier *v, int folder_fd, const char *fanout, const char *text,
                            const cairn__verify_space *space, cairn__verify_page *ret_page);

#endif
