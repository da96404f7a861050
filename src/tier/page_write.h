/* page_write.h - the bytes of one page into its temporary file: see disk.h, D1. */
#ifndef CAIRN_TIER_PAGE_WRITE_H
#define CAIRN_TIER_PAGE_WRITE_H

#include "tier/disk.h"

/* Small blocks are gathered, so that a page of them is not written in hundreds of
 * calls; sealed ones are encrypted into it, since the caller's are read-only. */
#define CAIRN__GATHER_SIZE ((size_t)2 << 20)

typedef struct cairn__page_write {
    int                 fd;
    const cairn__root  *root; /* its keyring seals the page */
    const cairn_digest *identity;
    const cairn_page   *page;
    int64_t             now_s;
    uint8_t             salt[CAIRN__SALT_SIZE]; /* fresh for each page and try; with a keyring */
    uint8_t            *gather;                 /* [CAIRN__GATHER_SIZE] */
} cairn__page_write;

/* Writes all of it and starts writing it out. CAIRN_EINVAL (shape outside the
 * format), CAIRN_ENOMEM, CAIRN_ENOSPC, CAIRN_EIO (the device). */
CAIRN_MUST_USE cairn_status cairn__page_write_to(const cairn__page_write *write);

#endif
