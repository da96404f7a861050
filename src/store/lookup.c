/* lookup.c - the longest run of stored pages for a request.
 *
 * Keys of the pages before from_tokens are computed from the request alone: they
 * need not be stored. From there on page after page is opened by the name that
 * the request gives, until one is missing; then the child that shares the most
 * tokens ends the run. Each step moves forward by a page or ends, so a lookup
 * makes at most n_tokens / page_tokens + 1 steps whatever lies on disk.
 *
 * What can't be cut needs a checkpoint (query.needs_checkpoint): then the run only
 * says how far one may lie, and the deepest one at or before its end is looked for,
 * folder by folder backwards. The hit ends there; without any it is a miss.
 *
 * A page that can't be opened for lack of descriptors or memory ends the run like
 * a missing one: what was found before it is right and is offered. */
#include "store/internal.h"

#include "base/bytes.h"
#include "os/clock.h"
#include "store/ring.h"

#include <stdlib.h>
#include <string.h>

#define KNOWN_NS (UINT64_C(3600) * 1000 * 1000 * 1000)

typedef struct search {
    cairn_store       *store;
    const cairn_query *query;
    cairn_digest       identity;
    cairn__want        want;
    cairn_pin         *pin;
    uint32_t           end; /* tokens found, from position 0 */
    bool               has_checkpoint;
    cairn_miss         miss;      /* why it ended */
    uint64_t           evicted_s; /* how long ago the page that is missing was evicted, then */
    uint32_t           reached;   /* the end before a checkpoint or the grid was asked for */
} search;

static cairn_miss miss_of(cairn_status status)
{
    switch (status) {
    case CAIRN_ENOENT:
        return CAIRN_MISS_NEVER_SEEN;
    case CAIRN_ECORRUPT:
        return CAIRN_MISS_CORRUPT;
    default:
        return CAIRN_MISS_IO;
    }
}

/* Key of everything before the page that contains from_tokens. */
static void go_to_start(search *s)
{
    const cairn_query *q = s->query;
    uint32_t           page = s->store->page_tokens;
    uint32_t           start = q->from_tokens / page * page;
    for (uint32_t at = 0; at < start; at += page)
        s->want.parent = cairn_chain_key(&s->identity, &s->want.parent, q->tokens + at, page);
    s->want.start = start;
    s->end = start;
}

static cairn_status found(search *s, cairn__page_file *file, uint32_t run)
{
    if (!s->pin) {
        cairn_status status = cairn__pin_create(s->store, &s->identity, &s->pin);
        if (status) {
            cairn__page_file_close(file);
            return status;
        }
    }
    cairn_status status = cairn__pin_add_take(s->pin, file, run);
    if (!status)
        s->end += run;
    return status;
}

/* One step: the wanted page as a whole. CAIRN_OK: found, go on. */
static cairn_status step(search *s)
{
    cairn__page_file file;
    cairn_key        key;
    cairn_status     status = cairn__open_whole(s->store, &s->want, &key, &file);
    if (!status)
        status = found(s, &file, s->want.n_tokens);
    if (!status)
        s->want.parent = key;
    return status;
}

/* Never seen, or evicted: the ring of evicted keys knows the latter. */
static void look_into_ring(search *s)
{
    cairn_key key = cairn_chain_key(&s->identity, &s->want.parent, s->want.tokens, s->want.n_tokens);
    int64_t   when_s, now_s = cairn__wall_seconds();
    if (!cairn__ring_find(s->store->root.fd, key.bytes, &when_s))
        return;
    s->miss = CAIRN_MISS_EVICTED;
    s->evicted_s = when_s < now_s ? (uint64_t)now_s - (uint64_t)when_s : 0;
}

/* Once an hour the folder of an identity in use gets a new time, so that eviction
 * can tell those that nobody opens any more. */
static void note_identity(cairn_store *store, const cairn_digest *identity, int identity_fd)
{
    uint64_t now = cairn__monotonic_ns();
    bool     known = false;
    pthread_mutex_lock(&store->lock);
    for (size_t i = 0; i < CAIRN__KNOWN_IDENTITIES && !known; i++)
        known = store->known[i].until_ns > now && memcmp(&store->known[i].identity, identity, sizeof(*identity)) == 0;
    if (!known) {
        store->known[store->next_known].identity = *identity;
        store->known[store->next_known].until_ns = now + KNOWN_NS;
        store->next_known = (store->next_known + 1) % CAIRN__KNOWN_IDENTITIES;
    }
    pthread_mutex_unlock(&store->lock);
    if (!known)
        (void)!cairn__set_mtime(identity_fd, cairn__wall_ns());
}

static void want_next(search *s)
{
    uint32_t left = s->query->n_tokens - s->end;
    s->want.start = s->end;
    s->want.tokens = s->query->tokens + s->end;
    s->want.n_tokens = left < s->store->page_tokens ? left : s->store->page_tokens;
}

/* The page that is not there as a whole, to the exact token. */
static cairn_status step_partly(search *s)
{
    cairn__page_file file;
    uint32_t         run;
    cairn_status     status = cairn__open_longest_child(s->store, &s->want, &file, &run);
    if (status || run == 0)
        return status;
    return found(s, &file, run);
}

static bool goes_on(const cairn_query *q)
{
    return !q->page_found || q->page_found(q->page_found_ctx);
}

static cairn_status walk(search *s)
{
    cairn_status status = CAIRN_OK;
    s->miss = CAIRN_MISS_NONE;
    for (want_next(s); s->want.n_tokens > 0 && !status; want_next(s)) {
        status = step(s);
        if (!status && s->want.n_tokens < s->store->page_tokens)
            break; /* a short page has no children */
        if (!status && !goes_on(s->query)) {
            s->miss = CAIRN_MISS_TIMEOUT;
            return CAIRN_OK;
        }
    }
    if (!status || status == CAIRN_ENOMEM)
        return status;
    s->miss = miss_of(status);
    if (s->miss == CAIRN_MISS_IO)
        return CAIRN_OK;
    if (s->miss == CAIRN_MISS_NEVER_SEEN)
        look_into_ring(s);
    status = step_partly(s);
    if (status == CAIRN_EIO)
        s->miss = CAIRN_MISS_IO;
    if (s->end == s->query->n_tokens)
        s->miss = CAIRN_MISS_NONE;
    return status == CAIRN_ENOMEM ? status : CAIRN_OK;
}

/* What ends off the grid, or adds nothing to what is resident, is given back. */
static void trim(search *s)
{
    uint32_t end = s->end;
    if (s->query->grid_tokens)
        end -= end % s->query->grid_tokens;
    if (end <= s->query->from_tokens)
        end = 0;
    while (s->pin && s->pin->n_pages > 0) {
        cairn__pin_page *last = s->pin->pages[s->pin->n_pages - 1];
        uint32_t         start = last->file.header.start;
        if (end > start) {
            last->used_tokens = end - start;
            break;
        }
        cairn__pin_drop_last(s->pin);
    }
    if (s->pin && s->pin->n_pages == 0) {
        cairn_pin_release(s->pin);
        s->pin = NULL;
    }
    s->end = end;
}

/* Keys of all full pages before `end`; [0]: of none. */
static cairn_key *chain_of(const search *s, uint32_t end)
{
    const uint32_t page = s->store->page_tokens, n = end / page;
    cairn_key     *keys = malloc((n + (size_t)1) * sizeof(*keys));
    if (!keys)
        return NULL;
    memset(&keys[0], 0, sizeof(keys[0]));
    for (uint32_t i = 0; i < n; i++)
        keys[i + 1] = cairn_chain_key(&s->identity, &keys[i], s->query->tokens + (size_t)i * page, page);
    return keys;
}

/* The deepest checkpoint in (from_tokens, s->end]. *ret_end 0: none. */
static cairn_status find_checkpoint(search *s, cairn__page_file *ret_file, uint32_t *ret_end)
{
    const cairn_query *q = s->query;
    const uint32_t     page = s->store->page_tokens;
    cairn_key         *chain = chain_of(s, s->end);
    cairn_status       status = chain ? CAIRN_OK : CAIRN_ENOMEM;
    *ret_end = 0;
    for (uint32_t end = s->end; end > q->from_tokens && !status && *ret_end == 0;) {
        uint32_t    start = (end - 1) / page * page, found_tokens;
        cairn__want want = {&s->identity, s->want.identity_fd, chain[start / page], start, q->tokens + start, end - start};
        status = cairn__open_checkpoint(s->store, &want, q->tokens, q->grid_tokens, ret_file, &found_tokens);
        if (!status && found_tokens > 0)
            *ret_end = start + found_tokens;
        end = start;
    }
    if (*ret_end > 0 && *ret_end <= q->from_tokens) {
        cairn__page_file_close(ret_file);
        *ret_end = 0;
    }
    free(chain);
    return status;
}

/* Pages are there, or the model has none, and nothing says how its state was behind
 * them. Not where pages are missing for a reason of their own: what a prompt shares with
 * another one within the first page makes it no prompt of before. */
static bool lacks_checkpoint(const search *s, uint32_t end)
{
    if (s->query->no_pages)
        return end > 0 && end < s->query->n_tokens;
    if (s->miss == CAIRN_MISS_NONE)
        return end < s->query->n_tokens;
    return end == 0 && s->miss == CAIRN_MISS_NEVER_SEEN && s->end >= s->store->page_tokens &&
           s->end > s->query->from_tokens;
}

/* Ends what was found at a checkpoint, which becomes the pin's last page. */
static cairn_status end_at_checkpoint(search *s)
{
    cairn__page_file file;
    uint32_t         end;
    cairn_status     status = find_checkpoint(s, &file, &end);
    if (status == CAIRN_EIO)
        s->miss = CAIRN_MISS_IO;
    else if (lacks_checkpoint(s, end))
        s->miss = CAIRN_MISS_CHECKPOINT;
    else if (s->query->no_pages && end == 0)
        s->miss = CAIRN_MISS_NEVER_SEEN;
    s->end = end;
    trim(s);
    if (end == 0)
        return status == CAIRN_EIO ? CAIRN_OK : status;
    s->has_checkpoint = true;
    status = found(s, &file, file.header.n_tokens);
    s->end = end;
    return status;
}

/* The identity has no folder: it is new, its last page was evicted, or all is gone. */
static void nothing_there(search *s)
{
    cairn__store_suspect_root(s->store);
    if (s->query->no_pages)
        return;
    want_next(s);
    look_into_ring(s);
}

static cairn_status run(search *s)
{
    int          identity_fd;
    cairn_status status = cairn__disk_open_identity(&s->store->root, &s->identity, &identity_fd);
    if (status) {
        s->end = 0;
        s->miss = miss_of(status);
        if (status == CAIRN_ENOENT)
            nothing_there(s);
        return CAIRN_OK;
    }
    note_identity(s->store, &s->identity, identity_fd);
    s->want.identity_fd = identity_fd;
    go_to_start(s);
    if (s->query->no_pages)
        s->end = s->query->n_tokens;
    else
        status = walk(s);
    s->reached = s->query->no_pages ? 0 : s->end;
    if (!status && s->query->needs_checkpoint)
        status = end_at_checkpoint(s);
    else
        trim(s);
    cairn__close(identity_fd);
    return status;
}

static bool is_valid(const cairn_query *q)
{
    return q && q->identity && (q->tokens || q->n_tokens == 0) && q->from_tokens <= q->n_tokens &&
           (!q->no_pages || q->needs_checkpoint);
}

static void count(cairn_store *store, const cairn_query *q, const cairn_hit *hit)
{
    cairn__count(&store->counters.lookups, 1);
    cairn__count(&store->counters.misses[hit->miss], hit->miss != CAIRN_MISS_NONE);
    if (hit->cached_tokens) {
        cairn__count(&store->counters.hits, 1);
        cairn__count(&store->counters.hit_tokens, hit->cached_tokens - q->from_tokens);
    }
    if (hit->miss == CAIRN_MISS_IO)
        cairn__count(&store->counters.read_errors, 1);
}

cairn_status cairn_store_lookup(cairn_store *store, const cairn_query *query, cairn_hit *ret_hit, cairn_pin **ret_pin)
{
    if (!store || !ret_hit || !ret_pin || !is_valid(query))
        return CAIRN_EINVAL;
    cairn_status status = CAIRN_OK;
    search       s = {.store = store, .query = query, .identity = cairn_store_namespace(store, query->identity)};
    s.want.identity = &s.identity;
    if (store->off || atomic_load(&store->lost))
        s.miss = CAIRN_MISS_TIER_OFF;
    else if (query->n_tokens > query->from_tokens)
        status = run(&s);
    if (status) {
        cairn_pin_release(s.pin);
        return status;
    }
    cairn_hit hit = {.cached_tokens = s.end, .miss = s.miss};
    if (s.miss == CAIRN_MISS_EVICTED)
        hit.evicted_s = s.evicted_s;
    for (uint32_t i = 0; s.pin && i < s.pin->n_pages; i++)
        hit.stored_bytes += s.pin->pages[i]->file.header.payload_size;
    hit.has_checkpoint = s.has_checkpoint;
    hit.reached_tokens = s.reached;
    hit.n_pages = s.pin ? s.pin->n_pages - s.has_checkpoint : 0;
    count(store, query, &hit);
    *ret_hit = hit;
    *ret_pin = s.pin;
    return CAIRN_OK;
}
