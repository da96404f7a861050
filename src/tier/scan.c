/* scan.c - see scan.h.
 *
 * A temporary file belongs to a live writer when its OFD lock is held; between
 * creating and locking it nobody holds the lock, so a young one is left alone
 * whatever its lock says. A writer that was stopped for an hour still holds its
 * lock. A clock that jumped can at worst leave a dead file for a later scan. */
#include "tier/scan.h"

#include "tier/names.h"

#include <string.h>

/* v1/<identity>/<fan-out>/file is depth 3; deeper things are not ours, and counted as
 * far as this, a descriptor each. */
#define MAX_DEPTH 40

typedef struct walk {
    const cairn__scan_request *request;
    cairn__scan_result         result;
    bool                       in_pages; /* below v1/ */
    const char                *identity; /* of the folder the walk is in, or NULL */
    cairn_status               status;
} walk;

/* ---- one file ---- */

typedef enum hold { FREE, HELD, UNKNOWN } hold; /* of the writer's lock */

static hold hold_of(int folder_fd, const char *name, const cairn__file_info *info)
{
    int  fd;
    bool locked = false;
    if (!info->is_regular)
        return FREE; /* we never make such */
    if (cairn__open_read(folder_fd, name, &fd) != CAIRN_OK)
        return UNKNOWN;
    cairn_status status = cairn__is_range_locked(fd, 0, 1, &locked);
    cairn__close(fd);
    return status ? UNKNOWN : locked ? HELD : FREE;
}

/* What is gone by now needs no counting; what can't be looked at does. */
static bool look_at(walk *w, int folder_fd, const char *name, cairn__file_info *ret_info)
{
    cairn_status status = cairn__stat(folder_fd, name, ret_info);
    if (status && status != CAIRN_ENOENT)
        w->result.complete = false;
    return !status;
}

/* A locked one is covered by its writer's reservation and not counted here; one of
 * which nothing can be learnt is left alone and counted. */
static void see_temp(walk *w, int folder_fd, const char *name)
{
    cairn__file_info info;
    if (!look_at(w, folder_fd, name, &info))
        return; /* renamed or removed by its writer */
    int64_t age_ns = w->request->now_ns - info.mtime_ns;
    bool    young = age_ns < w->request->grace_ns && age_ns > -w->request->grace_ns;
    hold    lock = hold_of(folder_fd, name, &info);
    if (lock == FREE && !young && (w->request->look_only || cairn__unlink(folder_fd, name) == CAIRN_OK)) {
        w->result.n_removed++;
        if (info.n_links == 1) /* else it was the second name of a page, which stays */
            w->result.freed_bytes += info.disk_bytes;
        return;
    }
    w->result.n_left++;
    if (lock == HELD)
        return;
    w->result.n_young++;
    w->result.total_bytes += info.disk_bytes;
}

static void walk_folder(walk *w, int parent_fd, const char *name, int depth);

static void see_entry(walk *w, int folder_fd, const char *name, int depth)
{
    cairn__file_info info;
    cairn__page_name page;
    if (cairn__is_temp_name(name)) {
        see_temp(w, folder_fd, name);
        return;
    }
    bool is_page = cairn__page_name_parse(name, &page);
    if (is_page && !w->request->stat_files)
        return;
    if (!look_at(w, folder_fd, name, &info))
        return;
    if (info.is_directory) {
        walk_folder(w, folder_fd, name, depth + 1);
        return;
    }
    w->result.total_bytes += info.disk_bytes;
    if (!is_page || !w->identity || depth != 3 || !info.is_regular || !w->request->page)
        return;
    cairn__scan_page seen = {w->identity, &page, &info};
    if (!w->request->page(w->request->ctx, &seen))
        w->status = CAIRN_ECANCELED;
}

/* ---- folders ---- */

static void walk_names(walk *w, int fd, const cairn__names *n, int depth)
{
    bool        quarantine = false;
    const char *name = NULL;
    while (!w->status && (name = cairn__names_next(n, name)) != NULL) {
        if (depth == 0 && strcmp(name, CAIRN__ROOT_QUARANTINE) == 0)
            quarantine = true; /* last: what moves there while we walk must not be missed */
        else if (depth == 0 && strcmp(name, "lost+found") == 0)
            continue;
        else
            see_entry(w, fd, name, depth);
    }
    if (quarantine && !w->status)
        see_entry(w, fd, CAIRN__ROOT_QUARANTINE, depth);
}

static void walk_open_folder(walk *w, int fd, int depth)
{
    cairn__file_info info;
    cairn__names     n = {0};
    cairn_status     status = CAIRN_ECANCELED;
    if (!w->request->stop || !w->request->stop(w->request->ctx)) {
        status = cairn__fstat(fd, &info);
        if (!status)
            status = cairn__names_read(fd, &n);
    }
    if (status == CAIRN_ECANCELED || status == CAIRN_ENOMEM)
        w->status = status;
    else if (status)
        w->result.complete &= depth > 0 && status == CAIRN_ENOENT; /* removed since it was opened */
    else {
        w->result.total_bytes += info.disk_bytes;
        walk_names(w, fd, &n, depth);
    }
    cairn__names_done(&n);
}

static void walk_folder(walk *w, int parent_fd, const char *name, int depth)
{
    int          fd;
    cairn_status status = depth > MAX_DEPTH ? CAIRN_EINVAL : cairn__open_dir(parent_fd, name, &fd);
    if (status) {
        w->result.complete &= status == CAIRN_ENOENT; /* removed meanwhile, when its last page went */
        return;
    }
    if (depth == 1)
        w->in_pages = strcmp(name, CAIRN__ROOT_PAGES) == 0;
    if (depth == 2)
        w->identity = w->in_pages ? name : NULL;
    walk_open_folder(w, fd, depth);
    if (depth == 2)
        w->identity = NULL;
    cairn__close(fd);
}

cairn_status cairn__scan(const cairn__root *root, const cairn__scan_request *request, cairn__scan_result *ret_result)
{
    walk w = {.request = request, .result = {.complete = true}};
    walk_open_folder(&w, root->fd, 0);
    if (!w.status)
        *ret_result = w.result;
    return w.status;
}
