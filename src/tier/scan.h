/* scan.h - walks a whole root: counts what it occupies, finds pages, removes the
 * temporary files of dead processes.
 *
 * Takes no lock and stops nobody: what is added or removed while it runs may or
 * may not be seen. Folders are read one at a time, so memory is bounded by the
 * largest; the quarantine comes last, since files only ever move into it. */
#ifndef CAIRN_TIER_SCAN_H
#define CAIRN_TIER_SCAN_H

#include "core/page_name.h"
#include "os/file.h"
#include "tier/root.h"

typedef struct cairn__scan_page {
    const char             *identity; /* name of its folder under v1/ */
    const cairn__page_name *name;
    const cairn__file_info *info;
} cairn__scan_page;

typedef struct cairn__scan_request {                       /* zero value: temporaries only */
    bool stat_files;                                       /* look at every file: total_bytes and pages are wanted */
    bool look_only;                                        /* temporaries are counted as removed, and stay */
    bool (*page)(void *ctx, const cairn__scan_page *page); /* false: stop; NULL: don't care */
    bool (*stop)(void *ctx);                               /* asked at each folder; NULL: never */
    void   *ctx;
    int64_t now_ns;   /* wall clock */
    int64_t grace_ns; /* temporaries younger than this are left alone */
} cairn__scan_request;

typedef struct cairn__scan_result {
    uint64_t total_bytes;       /* blocks of everything, folders included; needs stat_files */
    uint64_t freed_bytes;       /* of the temporaries removed; not in total_bytes */
    uint32_t n_removed, n_left; /* temporaries removed; and left: young, or their writer lives */
    uint32_t n_young;           /* of these, without a writer that is known to live */
    bool     complete;          /* every folder could be read */
} cairn__scan_result;

/* CAIRN_ECANCELED: stopped. CAIRN_ENOMEM. Folders that can't be read are skipped
 * and make the result incomplete. */
CAIRN_MUST_USE cairn_status cairn__scan(const cairn__root *root, const cairn__scan_request *request,
                                        cairn__scan_result *ret_result);

#endif
