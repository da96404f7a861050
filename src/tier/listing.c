/* listing.c - see listing.h. A small table under one lock; the listing itself is
 * read and parsed outside of it. The least recently used entry makes place. */
#include "tier/listing.h"

#include "os/clock.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define MAX_FOLDERS 64u
#define MAX_NAMES 200000u /* in all kept listings: 12 MB */
#define SETTLE_NS (INT64_C(20) * 1000 * 1000)

typedef struct kept {
    uint64_t        dev, inode;
    int64_t         mtime_ns, ctime_ns;
    uint64_t        last_use;
    cairn__listing *listing; /* NULL: free place */
} kept;

struct cairn__listings {
    pthread_mutex_t lock;
    uint64_t        uses;
    size_t          n_names;
    kept            kept[MAX_FOLDERS];
};

cairn_status cairn__listings_create(cairn__listings **ret_listings)
{
    cairn__listings *listings = calloc(1, sizeof(*listings));
    if (!listings)
        return CAIRN_ENOMEM;
    pthread_mutex_init(&listings->lock, NULL);
    *ret_listings = listings;
    return CAIRN_OK;
}

static void destroy_listing(cairn__listing *listing)
{
    free(listing->names);
    free(listing);
}

static void release_locked(cairn__listing *listing)
{
    if (--listing->n_users == 0)
        destroy_listing(listing);
}

static void drop(cairn__listings *listings, kept *k)
{
    if (!k->listing)
        return;
    listings->n_names -= k->listing->n_names;
    release_locked(k->listing);
    k->listing = NULL;
}

void cairn__listings_destroy(cairn__listings *listings)
{
    if (!listings)
        return;
    for (size_t i = 0; i < MAX_FOLDERS; i++)
        drop(listings, &listings->kept[i]);
    pthread_mutex_destroy(&listings->lock);
    free(listings);
}

void cairn__listing_release(cairn__listings *listings, cairn__listing *listing)
{
    pthread_mutex_lock(&listings->lock);
    release_locked(listing);
    pthread_mutex_unlock(&listings->lock);
}

/* ---- reading one ---- */

typedef struct reading {
    cairn__listing *listing;
    size_t          room;
    bool            no_memory;
} reading;

static bool add_name(void *ctx, const char *text)
{
    reading         *r = ctx;
    cairn__page_name name;
    if (!cairn__page_name_parse(text, &name))
        return true;
    if (r->listing->n_names == r->room) {
        size_t            room = r->room ? r->room * 2 : 64;
        cairn__page_name *names = realloc(r->listing->names, room * sizeof(*names));
        if (!names) {
            r->no_memory = true;
            return false;
        }
        r->listing->names = names;
        r->room = room;
    }
    r->listing->names[r->listing->n_names++] = name;
    return true;
}

static cairn_status read_listing(int folder_fd, cairn__listing **ret_listing)
{
    reading r = {.listing = calloc(1, sizeof(cairn__listing))};
    if (!r.listing)
        return CAIRN_ENOMEM;
    r.listing->n_users = 1;
    cairn_status status = cairn__list_dir(folder_fd, add_name, &r);
    if (r.no_memory)
        status = CAIRN_ENOMEM;
    if (status)
        destroy_listing(r.listing);
    else
        *ret_listing = r.listing;
    return status;
}

/* ---- keeping it ---- */

static bool same(const kept *k, const cairn__file_info *info)
{
    return k->listing && k->dev == info->dev && k->inode == info->inode;
}

static bool unchanged(const kept *k, const cairn__file_info *info)
{
    return same(k, info) && k->mtime_ns == info->mtime_ns && k->ctime_ns == info->ctime_ns;
}

static cairn__listing *find(cairn__listings *listings, const cairn__file_info *info)
{
    cairn__listing *found = NULL;
    pthread_mutex_lock(&listings->lock);
    for (size_t i = 0; i < MAX_FOLDERS && !found; i++) {
        kept *k = &listings->kept[i];
        if (!unchanged(k, info))
            continue;
        k->last_use = ++listings->uses;
        k->listing->n_users++;
        found = k->listing;
    }
    pthread_mutex_unlock(&listings->lock);
    return found;
}

/* The place to put a new one: the folder's old one, a free one, or the oldest. */
static kept *choose(cairn__listings *listings, const cairn__file_info *info)
{
    kept *best = &listings->kept[0];
    for (size_t i = 0; i < MAX_FOLDERS; i++) {
        kept *k = &listings->kept[i];
        if (same(k, info))
            return k;
        if (best->listing && (!k->listing || k->last_use < best->last_use))
            best = k;
    }
    return best;
}

static void drop_oldest_but(cairn__listings *listings, const kept *stays)
{
    kept *oldest = NULL;
    for (size_t i = 0; i < MAX_FOLDERS; i++) {
        kept *k = &listings->kept[i];
        if (k->listing && k != stays && (!oldest || k->last_use < oldest->last_use))
            oldest = k;
    }
    if (oldest)
        drop(listings, oldest);
}

static void keep(cairn__listings *listings, const cairn__file_info *info, cairn__listing *listing)
{
    if (listing->n_names > MAX_NAMES)
        return;
    pthread_mutex_lock(&listings->lock);
    kept *k = choose(listings, info);
    drop(listings, k);
    *k = (kept){info->dev, info->inode, info->mtime_ns, info->ctime_ns, ++listings->uses, listing};
    listing->n_users++;
    listings->n_names += listing->n_names;
    while (listings->n_names > MAX_NAMES)
        drop_oldest_but(listings, k);
    pthread_mutex_unlock(&listings->lock);
}

cairn_status cairn__listing_get(cairn__listings *listings, int folder_fd, cairn__listing **ret_listing)
{
    cairn__file_info before, after;
    cairn_status     status = cairn__fstat(folder_fd, &before);
    if (status)
        return status;
    cairn__listing *listing = find(listings, &before);
    if (!listing) {
        int64_t begun_ns = cairn__wall_ns();
        status = read_listing(folder_fd, &listing);
        if (status)
            return status;
        bool settled = begun_ns - before.mtime_ns >= SETTLE_NS && begun_ns - before.ctime_ns >= SETTLE_NS;
        if (settled && cairn__fstat(folder_fd, &after) == CAIRN_OK && after.mtime_ns == before.mtime_ns &&
            after.ctime_ns == before.ctime_ns)
            keep(listings, &before, listing);
    }
    *ret_listing = listing;
    return CAIRN_OK;
}
