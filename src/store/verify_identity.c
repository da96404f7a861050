/* verify_identity.c - one identity: its text, its folders, and whether each page's
 * parent is there.
 *
 * Parents are looked for when all pages were seen. A page may have come after its
 * parent's folder was listed, or gone since; so only one that is older than a
 * minute, and still there, is called an orphan. */
#include "store/verify_internal.h"

#include "base/digest.h"
#include "core/identity_text.h"
#include "core/recent_file.h"
#include "tier/names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ORPHAN_AGE_NS (INT64_C(60) * 1000 * 1000 * 1000) /* as eviction has it */

typedef struct pages {
    cairn__verify_page *pages;
    size_t              n, room;
} pages;

typedef struct one_identity {
    cairn__verifier    *v;
    int                 fd;
    cairn__verify_space space;
    bool                bad; /* the text */
    pages               all;
    bool                has_pages; /* not checkpoints alone */
} one_identity;

/* ---- the text ---- */

/* CAIRN_ECORRUPT: it says something that its folder's name denies. */
static cairn_status learn_from_text(cairn__verify_space *space, const cairn__keyring *keyring, const char *text,
                                    size_t size)
{
    char         own[CAIRN__IDENTITY_NAME_SIZE];
    cairn_digest digest = cairn__sha256_once(text, size);
    space->digest = cairn__namespace_digest(keyring, &digest);
    cairn__identity_name(&space->digest, own);
    space->known = cairn__identity_text_is_valid(text, size) && strcmp(own, space->name) == 0;
    return space->known ? CAIRN_OK : CAIRN_ECORRUPT;
}

/* A sealed one that our key does not open may be good under another. */
static cairn_status learn_from_file(cairn__verify_space *space, const cairn__keyring *keyring, uint8_t *file,
                                    size_t size)
{
    const char *text;
    size_t      text_size;
    space->sealed = cairn__identity_file_is_sealed(file, size);
    if (!space->sealed)
        return size > CAIRN__IDENTITY_TEXT_MAX ? CAIRN_ECORRUPT
                                               : learn_from_text(space, NULL, (const char *)file, size);
    if (!keyring)
        return CAIRN_OK;
    cairn_status status = cairn__identity_file_unseal(keyring, file, size, &text, &text_size);
    if (status)
        return status == CAIRN_ECORRUPT ? CAIRN_OK : status;
    return learn_from_text(space, keyring, text, text_size);
}

static cairn_status learn_digest(one_identity *id)
{
    uint8_t         *file;
    cairn__file_info info;
    cairn_status     status = cairn__disk_read_identity_text(id->fd, &file, &info);
    if (status)
        return status;
    status = learn_from_file(&id->space, id->v->store->root.keyring, file, (size_t)info.size_bytes);
    free(file);
    return status;
}

/* A bad one goes, so that the next page of the identity brings the right one. */
static void look_at_text(one_identity *id)
{
    cairn__verifier *v = id->v;
    cairn__file_info info;
    if (cairn__stat(id->fd, CAIRN__IDENTITY_TEXT, &info) == CAIRN_ENOENT)
        return; /* said once pages were seen: a folder may be in the making */
    id->bad = true;
    if (!cairn__verify_entry(v, id->fd, CAIRN__IDENTITY_TEXT, false, &info))
        return;
    cairn_status status = learn_digest(id);
    id->bad = status != CAIRN_OK && status != CAIRN_ENOENT;
    if (status == CAIRN_ECORRUPT)
        cairn__verify_report(v, CAIRN__PROBLEM_IDENTITY, CAIRN__IDENTITY_TEXT, "it is not the text of this folder",
                             cairn__verify_quarantine(v, id->fd, CAIRN__IDENTITY_TEXT, info.inode));
    else if (id->bad)
        cairn__verify_report(v, CAIRN__PROBLEM_UNREADABLE, CAIRN__IDENTITY_TEXT, "it can't be read", false);
}

static void miss_text(one_identity *id)
{
    cairn__file_info info;
    if (!id->space.known && !id->space.sealed && !id->bad && id->all.n > 0 &&
        cairn__stat(id->fd, CAIRN__IDENTITY_TEXT, &info) == CAIRN_ENOENT)
        cairn__verify_report(id->v, CAIRN__PROBLEM_IDENTITY, CAIRN__IDENTITY_TEXT,
                             "it is missing; the next page that is stored brings it", false);
}

/* ---- the note of prompts ---- */

/* Without its key a sealed one can only be looked at from outside. */
static cairn_status prove_recent(const one_identity *id, uint8_t *file, size_t size)
{
    const cairn__keyring *keyring = id->v->store->root.keyring;
    cairn_prompt         *prompts = NULL;
    uint32_t              n;
    if (!id->space.known && cairn__recent_file_is_sealed(file, size))
        return CAIRN_OK;
    cairn_status status = cairn__recent_check(id->space.sealed ? keyring : NULL, file, size, &prompts, &n);
    free(prompts);
    return status;
}

/* A damaged one goes, as when a server meets it. */
static void look_at_recent(one_identity *id)
{
    cairn__verifier *v = id->v;
    cairn__file_info info;
    uint8_t         *file = NULL;
    if (!cairn__verify_entry(v, id->fd, CAIRN__IDENTITY_RECENT, false, &info))
        return;
    cairn_status status = cairn__recent_read(v->store, id->fd, &file, &info);
    if (!status)
        status = prove_recent(id, file, (size_t)info.size_bytes);
    free(file);
    if (status == CAIRN_ECORRUPT)
        cairn__verify_report(v, CAIRN__PROBLEM_SIDE_FILE, CAIRN__IDENTITY_RECENT,
                             "it is damaged; the next server begins with nothing in memory",
                             !v->request->dry_run && cairn__recent_remove_bad(v->store, id->fd, info.inode));
    else if (status == CAIRN_ENOMEM)
        v->status = status;
    else if (status && status != CAIRN_ENOENT)
        cairn__verify_report(v, CAIRN__PROBLEM_UNREADABLE, CAIRN__IDENTITY_RECENT, "it can't be read", false);
}

/* ---- folders ---- */

static void keep(one_identity *id, const cairn__verify_page *page)
{
    pages *all = &id->all;
    if (all->n == all->room) {
        size_t              room = all->room * 2 + 256;
        cairn__verify_page *more = realloc(all->pages, room * sizeof(*more));
        if (!more) {
            id->v->status = CAIRN_ENOMEM;
            return;
        }
        all->pages = more;
        all->room = room;
    }
    all->pages[all->n++] = *page;
}

static void look_at_file(one_identity *id, int folder_fd, const char *fanout, const char *name)
{
    cairn__page_name   parsed;
    cairn__verify_page page;
    if (cairn__is_temp_name(name))
        return; /* counted, and removed, by the scan */
    if (!cairn__page_name_parse(name, &parsed)) {
        cairn__verify_unknown(id->v, name);
        return;
    }
    if (cairn__verify_one_page(id->v, folder_fd, fanout, name, &id->space, &page))
        keep(id, &page);
    if (id->v->request->progress)
        id->v->request->progress(id->v->request->ctx, &id->v->result);
}

static void look_at_folder(one_identity *id, const char *fanout)
{
    cairn__verifier *v = id->v;
    cairn__names     names = {0};
    cairn__file_info info;
    const char      *name = NULL;
    int              fd = -1;
    if (!cairn__verify_entry(v, id->fd, fanout, true, &info))
        return;
    v->result.n_folders++;
    snprintf(v->folder, sizeof(v->folder), "%s/%s/%s/", CAIRN__ROOT_PAGES, id->space.name, fanout);
    cairn_status status = cairn__open_dir(id->fd, fanout, &fd);
    if (!status)
        status = cairn__names_read(fd, &names);
    while (!status && !v->status && (name = cairn__names_next(&names, name)) != NULL)
        look_at_file(id, fd, fanout, name);
    cairn__names_done(&names);
    cairn__close(fd);
    snprintf(v->folder, sizeof(v->folder), "%s/%s/", CAIRN__ROOT_PAGES, id->space.name);
    if (status == CAIRN_ENOMEM)
        v->status = status;
    else if (status && status != CAIRN_ENOENT)
        cairn__verify_report(v, CAIRN__PROBLEM_UNREADABLE, fanout, "it can't be listed", false);
}

static bool is_hex(const char *name, size_t size)
{
    return strlen(name) == size && strspn(name, "0123456789abcdef") == size;
}

static void look_inside(one_identity *id)
{
    cairn__verifier *v = id->v;
    cairn__names     names;
    const char      *name = NULL;
    look_at_text(id);
    cairn_status status = cairn__names_read(id->fd, &names);
    while (!status && !v->status && (name = cairn__names_next(&names, name)) != NULL) {
        if (is_hex(name, CAIRN__FANOUT_NAME_SIZE - 1))
            look_at_folder(id, name);
        else if (strcmp(name, CAIRN__IDENTITY_RECENT) == 0)
            look_at_recent(id);
        else if (strcmp(name, CAIRN__IDENTITY_TEXT) != 0 && !cairn__is_temp_name(name))
            cairn__verify_unknown(v, name);
    }
    cairn__names_done(&names);
    if (status == CAIRN_ENOMEM)
        v->status = status;
    miss_text(id);
}

/* ---- parents ---- */

static int by_key(const void *a, const void *b)
{
    const cairn__verify_page *x = a, *y = b;
    return memcmp(x->name.key, y->name.key, sizeof(x->name.key));
}

static const cairn__verify_page *parent_of(const pages *all, const cairn__verify_page *page)
{
    cairn__verify_page wanted = {.start = 0};
    memcpy(wanted.name.key, page->name.parent, sizeof(wanted.name.key));
    return bsearch(&wanted, all->pages, all->n, sizeof(wanted), by_key);
}

static void look_for_parent(one_identity *id, const cairn__verify_page *page)
{
    static const uint8_t      first[CAIRN__PAGE_NAME_KEY_SIZE];
    char                      fanout[CAIRN__FANOUT_NAME_SIZE], text[CAIRN__PAGE_NAME_SIZE], path[128];
    cairn__file_info          info;
    cairn_key                 key = {{0}};
    const cairn__verify_page *parent = parent_of(&id->all, page);
    if (memcmp(page->name.parent, first, sizeof(first)) == 0 || (page->name.is_checkpoint && !id->has_pages))
        return; /* recurrent models have checkpoints alone */
    bool follows = parent && (page->sealed || parent->start + parent->name.n_tokens == page->start);
    if (follows || (!parent && id->v->began_ns - page->mtime_ns < ORPHAN_AGE_NS))
        return;
    memcpy(key.bytes, page->name.parent, sizeof(page->name.parent));
    cairn__fanout_name(&key, fanout);
    cairn__page_name_format(&page->name, text);
    snprintf(path, sizeof(path), "%s/%s", fanout, text);
    if (cairn__stat(id->fd, path, &info) != CAIRN_OK)
        return; /* evicted meanwhile, before its parent was */
    cairn__verify_report(id->v, parent ? CAIRN__PROBLEM_PAGE : CAIRN__PROBLEM_ORPHAN, path,
                         parent ? "its position does not follow its parent's" : "its parent is missing", false);
}

void cairn__verify_identity(cairn__verifier *v, int pages_fd, const char *name)
{
    one_identity     id = {.v = v, .space = {.name = name}};
    cairn__file_info info;
    if (!cairn__verify_entry(v, pages_fd, name, true, &info))
        return;
    cairn_status status = cairn__open_dir(pages_fd, name, &id.fd);
    if (status) {
        if (status != CAIRN_ENOENT)
            cairn__verify_report(v, CAIRN__PROBLEM_UNREADABLE, name, "it can't be opened", false);
        return;
    }
    v->result.n_identities++;
    snprintf(v->folder, sizeof(v->folder), "%s/%s/", CAIRN__ROOT_PAGES, name);
    look_inside(&id);
    if (id.all.n > 0) /* else there is no array */
        qsort(id.all.pages, id.all.n, sizeof(*id.all.pages), by_key);
    for (size_t i = 0; i < id.all.n; i++)
        id.has_pages = id.has_pages || !id.all.pages[i].name.is_checkpoint;
    for (size_t i = 0; i < id.all.n && !v->status; i++)
        look_for_parent(&id, &id.all.pages[i]);
    free(id.all.pages);
    cairn__close(id.fd);
    snprintf(v->folder, sizeof(v->folder), "%s/", CAIRN__ROOT_PAGES);
}
