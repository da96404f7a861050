/* page_use.h - when a page was last used and whether ever, in its file's mtime.
 *
 * The seconds are those of the last use; the nanoseconds count uses, at most one a
 * minute: 0 since it was stored, up to 999. A file with other nanoseconds was
 * copied or touched by other tools, and counts as used. Where a file system keeps
 * whole seconds only, all pages look unused, which is as good as not knowing. */
#ifndef CAIRN_CORE_PAGE_USE_H
#define CAIRN_CORE_PAGE_USE_H

#include <stdint.h>

typedef struct cairn__page_use {
    int64_t  used_s; /* unix seconds */
    uint32_t n_uses; /* 0..999 */
} cairn__page_use;

cairn__page_use cairn__page_use_of(int64_t mtime_ns);
int64_t         cairn__page_use_mtime_ns(cairn__page_use use);
/* The use after one at now_s. */
cairn__page_use cairn__page_use_again(cairn__page_use use, int64_t now_s);

#endif
