/* listing.h - which pages lie in a folder, remembered between lookups.
 *
 * A folder holds the children of a few parents, or ten thousand of one. Listing
 * those takes 5 ms (main-job.md), so parsed listings are kept per process and
 * used again while the folder's identity, mtime and ctime stay the same. File
 * times tick coarsely (4 ms here, 10 ms on some kernels): a listing taken within
 * 20 ms of them is used once and not kept, since a name added later could leave
 * the times as they are. Thread-safe. */
#ifndef CAIRN_TIER_LISTING_H
#define CAIRN_TIER_LISTING_H

#include "core/page_name.h"
#include "os/file.h"

typedef struct cairn__listing { /* immutable once given out */
    cairn__page_name *names;    /* in the file system's order */
    size_t            n_names;
    uint32_t          n_users; /* the cache's */
} cairn__listing;

typedef struct cairn__listings cairn__listings;

CAIRN_MUST_USE cairn_status cairn__listings_create(cairn__listings **ret_listings);
void                        cairn__listings_destroy(cairn__listings *listings); /* accepts NULL; none may be in use */

/* The pages in a folder as of now; end with cairn__listing_release(). Names that
 * are no page names are left out. Errors: CAIRN_ENOMEM, CAIRN_EIO. */
CAIRN_MUST_USE cairn_status cairn__listing_get(cairn__listings *listings, int folder_fd, cairn__listing **ret_listing);
void                        cairn__listing_release(cairn__listings *listings, cairn__listing *listing);

#endif
