/* child.c - one page behind a parent: the exact one, or the best of many.
 *
 * The exact one has a name that the request's own tokens give: one open. Else the
 * parent's children are listed (tier/listing.h) and ordered by what their names
 * tell, without opening any:
 *   - a child of n tokens, all of them wanted, has the key that the request's
 *     first n tokens give: certain;
 *   - else its h_i say how many tokens it shares at least (16, 32, 64, 128, 192),
 *     and the first h_i that differs how many at most.
 * The best few are opened and the tokens in their headers decide. At most
 * MAX_OPENS are opened, so among very many children that agree up to the same h_i
 * the one taken may share up to 63 tokens less than the best. */
#include "store/internal.h"

#include <stdlib.h>
#include <string.h>

#define MAX_OPENS 8u

void cairn__store_quarantine(cairn_store *store, int folder_fd, const cairn__page_name *name, uint64_t inode)
{
    char     text[CAIRN__PAGE_NAME_SIZE];
    uint64_t freed = 0;
    cairn__page_name_format(name, text);
    cairn__count(&store->counters.pages_corrupt, 1);
    if (cairn__quarantine(&store->root, folder_fd, text, inode, cairn__quarantine_limit(store), &freed)) {
        cairn__count(&store->counters.pages_quarantined, 1);
        cairn__notice(store, "disk cache: a page was bad and is in quarantine: %s", text);
    }
    if (freed > 0)
        atomic_store(&store->freed_unsure, true);
}

/* The header says what its name says; now compare it with what only the caller
 * knows, in full length. */
static bool is_child(const cairn__page_file *file, const cairn__want *want, const cairn_key *key)
{
    const cairn__page_header *h = &file->header;
    return memcmp(&h->key, key, sizeof(*key)) == 0 && memcmp(&h->parent, &want->parent, sizeof(want->parent)) == 0 &&
           h->start == want->start;
}

static cairn_status open_in(cairn_store *store, int folder_fd, const cairn__page_name *name, const cairn__want *want,
                            cairn__page_file *ret_file)
{
    cairn_status status = cairn__page_file_open(&store->root, folder_fd, name, want->identity, ret_file);
    if (status == CAIRN_ECORRUPT)
        cairn__store_quarantine(store, folder_fd, name, ret_file->info.inode);
    return status;
}

cairn_status cairn__reject_child(cairn_store *store, int folder_fd, const cairn__page_name *name,
                                 cairn__page_file *file)
{
    uint64_t inode = file->info.inode;
    cairn__page_file_close(file);
    cairn__store_quarantine(store, folder_fd, name, inode);
    return CAIRN_ECORRUPT;
}

cairn_status cairn__open_child(cairn_store *store, int folder_fd, const cairn__page_name *name,
                               const cairn__want *want, const cairn_key *key, cairn__page_file *ret_file)
{
    cairn__page_file file;
    cairn_status     status = open_in(store, folder_fd, name, want, &file);
    if (!status && !is_child(&file, want, key))
        status = cairn__reject_child(store, folder_fd, name, &file);
    if (!status)
        *ret_file = file;
    return status;
}

static bool has_all_tokens(const cairn__page_file *file, const cairn__want *want)
{
    return cairn__page_match(&file->header, want->tokens, want->n_tokens) == want->n_tokens;
}

/* As a rule the page is good or not there, and one call opens it. Everything else is
 * looked at again in the folder, where it can be moved out of the way. */
static cairn_status open_at_once(cairn_store *store, const cairn__want *want, const cairn__page_name *name,
                                 const cairn_key *key, cairn__page_file *ret_file)
{
    cairn_status status = cairn__page_file_open_in(&store->root, want->identity_fd, name, &want->parent,
                                                   want->identity, ret_file);
    if (!status && !(is_child(ret_file, want, key) && has_all_tokens(ret_file, want))) {
        cairn__page_file_close(ret_file);
        return CAIRN_ECORRUPT;
    }
    return status;
}

static cairn_status open_in_folder(cairn_store *store, const cairn__want *want, const cairn__page_name *name,
                                   const cairn_key *key, cairn__page_file *ret_file)
{
    int          folder_fd;
    cairn_status status = cairn__disk_open_folder(want->identity_fd, &want->parent, &folder_fd);
    if (status)
        return status == CAIRN_ENOENT ? status : CAIRN_EIO;
    status = cairn__open_child(store, folder_fd, name, want, key, ret_file);
    if (!status && !has_all_tokens(ret_file, want))
        status = cairn__reject_child(store, folder_fd, name, ret_file);
    cairn__close(folder_fd);
    return status;
}

cairn_status cairn__open_whole(cairn_store *store, const cairn__want *want, cairn_key *ret_key,
                               cairn__page_file *ret_file)
{
    cairn_key        key = cairn_chain_key(want->identity, &want->parent, want->tokens, want->n_tokens);
    cairn__page_name name = cairn__page_name_of(want->identity, &key, &want->parent, want->tokens, want->n_tokens);
    cairn_status     status = open_at_once(store, want, &name, &key, ret_file);
    if (status && status != CAIRN_ENOENT)
        status = open_in_folder(store, want, &name, &key, ret_file);
    if (!status)
        *ret_key = key;
    return status;
}

/* ---- ordering candidates by their names ---- */

typedef struct candidate {
    const cairn__page_name *name;
    uint32_t                least, most; /* tokens it shares, as far as names tell */
} candidate;

typedef struct candidates {
    candidate best[MAX_OPENS]; /* best first */
    size_t    n;
} candidates;

static bool better(const candidate *a, const candidate *b)
{
    return a->least != b->least ? a->least > b->least : a->most > b->most;
}

static void offer(candidates *all, candidate c)
{
    size_t at = all->n;
    while (at > 0 && better(&c, &all->best[at - 1]))
        at--;
    if (at == MAX_OPENS)
        return;
    if (all->n < MAX_OPENS)
        all->n++;
    memmove(&all->best[at + 1], &all->best[at], (all->n - 1 - at) * sizeof(c));
    all->best[at] = c;
}

static uint32_t min_u32(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* Keys of the request's first n tokens, computed when first asked for. */
typedef struct prefix_keys {
    const cairn__want *want;
    cairn_key         *keys;  /* [want->n_tokens + 1] */
    bool              *known; /* likewise */
} prefix_keys;

static bool is_key_of_prefix(prefix_keys *p, const cairn__page_name *name)
{
    uint32_t n = name->n_tokens;
    if (!p->known[n]) {
        p->keys[n] = cairn_chain_key(p->want->identity, &p->want->parent, p->want->tokens, n);
        p->known[n] = true;
    }
    return memcmp(p->keys[n].bytes, name->key, sizeof(name->key)) == 0;
}

static candidate judge(prefix_keys *p, const cairn__page_name *name, const cairn__page_name *wanted)
{
    uint32_t  both = min_u32(name->n_tokens, wanted->n_tokens);
    candidate c = {name, min_u32(cairn__page_name_shared(name, wanted), both), both};
    for (size_t i = 0; i < CAIRN__PAGE_PREFIXES; i++) {
        uint32_t level = cairn__page_prefix_tokens[i];
        if (level > c.least && level <= both) {
            c.most = level - 1; /* this h_i differs */
            break;
        }
    }
    if (c.most == name->n_tokens) { /* nothing speaks against all of it */
        if (is_key_of_prefix(p, name))
            c.least = c.most;
        else
            c.most--;
    }
    return c;
}

static bool judge_all(candidates *all, const cairn__listing *listing, const cairn__want *want, uint32_t max_tokens)
{
    cairn_key        none = {0};
    cairn__page_name wanted = cairn__page_name_of(want->identity, &none, &want->parent, want->tokens, want->n_tokens);
    prefix_keys      p = {want, malloc((want->n_tokens + 1) * sizeof(cairn_key)), calloc(want->n_tokens + 1, 1)};
    if (p.keys && p.known)
        for (size_t i = 0; i < listing->n_names; i++) {
            const cairn__page_name *name = &listing->names[i];
            if (name->is_checkpoint || memcmp(name->parent, wanted.parent, sizeof(wanted.parent)) != 0 ||
                name->n_tokens > max_tokens)
                continue;
            candidate c = judge(&p, name, &wanted);
            if (c.most > 0)
                offer(all, c);
        }
    bool enough_memory = p.keys && p.known;
    free(p.keys);
    free(p.known);
    return enough_memory;
}

/* ---- opening the best ---- */

/* CAIRN_OK with *ret_run 0: no longer there, or bad. */
static cairn_status open_candidate(cairn_store *store, int folder_fd, const cairn__page_name *name,
                                   const cairn__want *want, cairn__page_file *ret_file, uint32_t *ret_run)
{
    int32_t      tokens[CAIRN__PAGE_TOKENS_MAX];
    cairn_status status = open_in(store, folder_fd, name, want, ret_file);
    *ret_run = 0;
    if (status == CAIRN_ENOENT || status == CAIRN_ECORRUPT)
        return CAIRN_OK;
    if (status)
        return status;
    const cairn__page_header *h = &ret_file->header;
    for (uint32_t i = 0; i < h->n_tokens; i++)
        tokens[i] = cairn__page_token(h, i);
    cairn_key key = cairn_chain_key(want->identity, &want->parent, tokens, h->n_tokens);
    if (!is_child(ret_file, want, &key)) {
        (void)!cairn__reject_child(store, folder_fd, name, ret_file);
        return CAIRN_OK;
    }
    *ret_run = cairn__page_match(h, want->tokens, want->n_tokens);
    if (*ret_run == 0)
        cairn__page_file_close(ret_file);
    return CAIRN_OK;
}

static cairn_status open_best(cairn_store *store, int folder_fd, const candidates *all, const cairn__want *want,
                              cairn__page_file *ret_file, uint32_t *ret_run)
{
    cairn_status status = CAIRN_OK;
    for (size_t i = 0; i < all->n && !status && *ret_run < all->best[i].most; i++) {
        cairn__page_file file;
        uint32_t         run;
        status = open_candidate(store, folder_fd, all->best[i].name, want, &file, &run);
        if (status || run == 0)
            continue;
        if (run > *ret_run) {
            if (*ret_run)
                cairn__page_file_close(ret_file);
            *ret_file = file;
            *ret_run = run;
        } else {
            cairn__page_file_close(&file);
        }
    }
    return *ret_run ? CAIRN_OK : status; /* out of descriptors: what was found will do */
}

cairn_status cairn__open_longest_child(cairn_store *store, const cairn__want *want, cairn__page_file *ret_file,
                                       uint32_t *ret_run)
{
    cairn__listing *listing = NULL;
    candidates      all = {.n = 0};
    int             folder_fd = -1;
    *ret_run = 0;
    cairn_status status = cairn__disk_open_folder(want->identity_fd, &want->parent, &folder_fd);
    if (status)
        return status == CAIRN_ENOENT ? CAIRN_OK : CAIRN_EIO;
    status = cairn__listing_get(store->listings, folder_fd, &listing);
    if (!status && !judge_all(&all, listing, want, store->page_tokens))
        status = CAIRN_ENOMEM;
    if (!status)
        status = open_best(store, folder_fd, &all, want, ret_file, ret_run);
    if (listing)
        cairn__listing_release(store->listings, listing);
    cairn__close(folder_fd);
    return status;
}
