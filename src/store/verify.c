/* verify.c - see verify.h: the walk over a root, its side files and its ledger. */
#include "store/verify_internal.h"

#include "core/weights_cache.h"
#include "os/clock.h"
#include "store/ledger_image.h"
#include "store/ring.h"
#include "tier/names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PEEKS 5                                     /* a ledger that is being written can be read torn */

const char *cairn__problem_word(cairn__problem problem)
{
    static const char *const words[] = {
#define X(name, word, text) word,
        CAIRN__PROBLEM_LIST(X)
#undef X
    };
    return words[problem];
}

const char *cairn__problem_text(cairn__problem problem)
{
    static const char *const texts[] = {
#define X(name, word, text) text,
        CAIRN__PROBLEM_LIST(X)
#undef X
    };
    return texts[problem];
}

/* ---- what is said ---- */

/* A name that is not ours may hold anything; a terminal must not. */
static void escape(const char *name, char *to, size_t room)
{
    size_t at = 0;
    for (; *name && at + 5 <= room; name++) {
        bool plain = *name > 0x20 && *name < 0x7f && *name != '\\';
        at += (size_t)snprintf(to + at, room - at, plain ? "%c" : "\\x%02x", plain ? *name : (unsigned char)*name);
    }
    to[at] = 0;
}

void cairn__verify_report(cairn__verifier *v, cairn__problem problem, const char *name, const char *what, bool repaired)
{
    char   path[CAIRN__VERIFY_PATH];
    size_t at = strlen(v->folder);
    memcpy(path, v->folder, at);
    escape(name, path + at, sizeof(path) - at);
    cairn__finding finding = {problem, path, what, repaired};
    v->result.n_problems[problem]++;
    v->result.n_repaired += repaired;
    if (v->request->finding)
        v->request->finding(v->request->ctx, &finding);
}

void cairn__verify_unknown(cairn__verifier *v, const char *name)
{
    if (strncmp(name, ".nfs", 4) != 0) /* an NFS client's file that is open and unlinked */
        cairn__verify_report(v, CAIRN__PROBLEM_UNKNOWN, name, "it is not ours, and left alone", false);
}

/* ---- what is done ---- */

bool cairn__verify_quarantine(cairn__verifier *v, int folder_fd, const char *name, uint64_t inode)
{
    cairn_store *store = v->store;
    uint64_t     freed;
    if (v->request->dry_run)
        return false;
    bool gone = cairn__quarantine(&store->root, folder_fd, name, inode, cairn__quarantine_limit(store), &freed);
    if (freed > 0)
        cairn__ledger_freed_unsure(store->ledger);
    return gone;
}

static bool set_mode(cairn__verifier *v, int dir_fd, const char *name, bool folder)
{
    int fd = -1;
    if (v->request->dry_run)
        return false;
    cairn_status status = folder ? cairn__open_dir(dir_fd, name, &fd) : cairn__open_read(dir_fd, name, &fd);
    if (!status)
        status = cairn__set_mode(fd, folder ? 0700 : 0600);
    cairn__close(fd);
    return !status;
}

bool cairn__verify_entry(cairn__verifier *v, int dir_fd, const char *name, bool folder, cairn__file_info *ret_info)
{
    cairn_status status = cairn__stat(dir_fd, name, ret_info);
    if (status) {
        if (status != CAIRN_ENOENT)
            cairn__verify_report(v, CAIRN__PROBLEM_UNREADABLE, name, "it can't be looked at", false);
        return false;
    }
    cairn__page_name page;
    if (folder ? !ret_info->is_directory : !ret_info->is_regular) {
        bool gone = cairn__page_name_parse(name, &page) && cairn__verify_quarantine(v, dir_fd, name, ret_info->inode);
        cairn__verify_report(v, CAIRN__PROBLEM_KIND, name, folder ? "it is not a folder" : "it is not a plain file",
                             gone);
        return false;
    }
    if (ret_info->uid != v->store->root.uid) {
        cairn__verify_report(v, CAIRN__PROBLEM_OWNER, name, "it belongs to another user", false);
        return false;
    }
    if ((ret_info->mode & 07777) != (folder ? 0700u : 0600u))
        cairn__verify_report(v, CAIRN__PROBLEM_MODE, name, folder ? "its mode is not 0700" : "its mode is not 0600",
                             set_mode(v, dir_fd, name, folder));
    return true;
}

/* ---- side files ---- */

static void look_at_digest(cairn__verifier *v, int fd, const char *name)
{
    uint8_t          data[CAIRN__DIGEST_ENTRY_MAX];
    cairn__file_info info;
    int              file = -1;
    if (!cairn__verify_entry(v, fd, name, false, &info))
        return;
    v->result.n_digests++;
    cairn_status status = info.size_bytes <= sizeof(data) ? cairn__open_read(fd, name, &file) : CAIRN_ECORRUPT;
    if (!status)
        status = cairn__read_at(file, data, (size_t)info.size_bytes, 0);
    cairn__close(file);
    if (!status && !cairn__weights_cache_is_entry(data, (size_t)info.size_bytes))
        status = CAIRN_ECORRUPT;
    if (status == CAIRN_ECORRUPT)
        cairn__verify_report(v, CAIRN__PROBLEM_SIDE_FILE, name, "it is damaged; the model is hashed anew",
                             !v->request->dry_run && cairn__unlink(fd, name) == CAIRN_OK);
    else if (status && status != CAIRN_ENOENT)
        cairn__verify_report(v, CAIRN__PROBLEM_UNREADABLE, name, "it can't be read", false);
}

static void look_at_quarantined(cairn__verifier *v, int fd, const char *name)
{
    cairn__file_info info;
    if (cairn__stat(fd, name, &info) != CAIRN_OK)
        return;
    v->result.n_quarantined++;
    v->result.quarantine_bytes += info.disk_bytes;
}

static void look_at_pages(cairn__verifier *v, int fd, const char *name)
{
    size_t size = CAIRN__IDENTITY_NAME_SIZE - 1;
    if (strlen(name) == size && strspn(name, "0123456789abcdef") == size)
        cairn__verify_identity(v, fd, name);
    else
        cairn__verify_unknown(v, name);
}

static void look_at_digest_name(cairn__verifier *v, int fd, const char *name)
{
    if (cairn__weights_cache_is_name(name))
        look_at_digest(v, fd, name);
    else
        cairn__verify_unknown(v, name);
}

static void walk_folder(cairn__verifier *v, const char *folder,
                        void (*each)(cairn__verifier *v, int fd, const char *name))
{
    cairn__names     names = {0};
    cairn__file_info info;
    const char      *name = NULL;
    int              fd = -1;
    if (!cairn__verify_entry(v, v->store->root.fd, folder, true, &info))
        return;
    cairn_status status = cairn__open_dir(v->store->root.fd, folder, &fd);
    if (!status)
        status = cairn__names_read(fd, &names);
    snprintf(v->folder, sizeof(v->folder), "%s/", folder);
    while (!status && !v->status && (name = cairn__names_next(&names, name)) != NULL)
        if (!cairn__is_temp_name(name))
            each(v, fd, name);
    v->folder[0] = 0;
    cairn__names_done(&names);
    cairn__close(fd);
    if (status == CAIRN_ENOMEM)
        v->status = status;
    else if (status && status != CAIRN_ENOENT)
        cairn__verify_report(v, CAIRN__PROBLEM_UNREADABLE, folder, "it can't be listed", false);
}

static void look_at_root_entry(cairn__verifier *v, const char *name)
{
    cairn__file_info info;
    if (strcmp(name, CAIRN__ROOT_PAGES) == 0)
        walk_folder(v, name, look_at_pages);
    else if (strcmp(name, CAIRN__ROOT_QUARANTINE) == 0)
        walk_folder(v, name, look_at_quarantined);
    else if (strcmp(name, CAIRN__DIGESTS_FOLDER) == 0)
        walk_folder(v, name, look_at_digest_name);
    else if (strcmp(name, CAIRN__ROOT_MARKER) == 0 || strcmp(name, CAIRN__ROOT_LEDGER) == 0 ||
             strcmp(name, CAIRN__RING_FILE) == 0)
        (void)cairn__verify_entry(v, v->store->root.fd, name, false, &info);
    else if (strcmp(name, "lost+found") != 0 && !cairn__is_temp_name(name))
        cairn__verify_unknown(v, name);
}

static cairn_status walk_root(cairn__verifier *v)
{
    cairn__names     names = {0};
    cairn__file_info info;
    const char      *name = NULL;
    cairn_status     status = cairn__fstat(v->store->root.fd, &info);
    if (!status && (info.mode & 07777) != 0700)
        cairn__verify_report(v, CAIRN__PROBLEM_MODE, ".", "its mode is not 0700",
                             !v->request->dry_run && cairn__set_mode(v->store->root.fd, 0700) == CAIRN_OK);
    if (!status)
        status = cairn__names_read(v->store->root.fd, &names);
    while (!status && !v->status && (name = cairn__names_next(&names, name)) != NULL)
        look_at_root_entry(v, name);
    cairn__names_done(&names);
    return status ? status : v->status;
}

/* ---- the ledger ---- */

/* False: there is none, or it says nothing. */
static bool peek(const cairn_store *store, uint8_t buf[CAIRN__LEDGER_SIZE], cairn__ledger_image *ret_image)
{
    int  fd = -1;
    bool good = false;
    if (cairn__open_read(store->root.fd, CAIRN__ROOT_LEDGER, &fd) != CAIRN_OK)
        return false;
    for (int i = 0; i < PEEKS && !good; i++)
        good = cairn__read_at(fd, buf, CAIRN__LEDGER_SIZE, 0) == CAIRN_OK && cairn__ledger_decode(buf, ret_image);
    cairn__close(fd);
    return good;
}

static cairn_status scan(cairn__verifier *v, cairn__scan_result *ret_result)
{
    cairn__scan_request request = {
        .stat_files = true, .look_only = true, .now_ns = cairn__wall_ns(), .grace_ns = CAIRN__ORPHAN_NS};
    return cairn__scan(&v->store->root, &request, ret_result);
}

/* What is on disk, and what the ledger says of it, if nobody changed it meanwhile. */
static cairn_status compare_ledger(cairn__verifier *v, bool *ret_differs)
{
    uint8_t             before[CAIRN__LEDGER_SIZE], after[CAIRN__LEDGER_SIZE];
    cairn__ledger_image im = {0};
    cairn__scan_result  r = {0};
    bool                was = peek(v->store, before, &im);
    cairn_status        status = scan(v, &r);
    if (status)
        return status;
    bool still = peek(v->store, after, &im) && was && memcmp(before, after, sizeof(before)) == 0;
    v->result.used_bytes = r.total_bytes;
    v->result.n_dead_temps = r.n_removed;
    v->result.n_live_temps = r.n_left;
    v->result.ledger_bytes = im.used;
    v->result.ledger_reserved = cairn__ledger_image_total(&im) - im.used;
    v->result.ledger_known = still && (im.flags & CAIRN__LEDGER_KNOWN) && r.complete;
    uint64_t on_disk = r.total_bytes + r.freed_bytes; /* of dead temporaries: reserved, or in used by now */
    *ret_differs = !v->result.ledger_known || im.used != r.total_bytes || r.n_removed > 0;
    if (v->result.ledger_known && on_disk > cairn__ledger_image_total(&im))
        return CAIRN_ECORRUPT;
    return CAIRN_OK;
}

/* Too much is how it errs by design; too little would let the budget be passed. */
static cairn_status verify_ledger(cairn__verifier *v)
{
    bool         differs = false;
    cairn_status status = compare_ledger(v, &differs), counted = CAIRN_EIO;
    if (status && status != CAIRN_ECORRUPT)
        return status;
    if (differs && !v->request->dry_run)
        counted = cairn__store_count(v->store); /* also removes what dead processes left */
    if (status)
        cairn__verify_report(v, CAIRN__PROBLEM_LEDGER, CAIRN__ROOT_LEDGER, "it says less than there is", !counted);
    return CAIRN_OK;
}

cairn_status cairn__verify(cairn_store *store, const cairn__verify_request *request, cairn__verify_result *ret_result)
{
    cairn__verifier v = {.store = store, .request = request, .began_ns = cairn__wall_ns()};
    cairn_status    status = verify_ledger(&v);
    if (!status)
        status = walk_root(&v);
    *ret_result = v.result;
    return status == CAIRN_OK || status == CAIRN_ENOMEM ? status : CAIRN_EIO;
}
