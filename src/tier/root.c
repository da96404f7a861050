/* root.c - see root.h.
 *
 * The marker is what separates "an empty directory that the user made for us"
 * and "our root" from everything else: without it a mistyped --cache-dir ~ would
 * let eviction loose on a home directory. It is written as a temporary file and
 * renamed, so that a process killed in between leaves a directory that still
 * counts as empty. Two processes that create one root at the same time both
 * succeed: the loser of the rename reads the winner's marker. */
#include "tier/root.h"

#include "base/bytes.h"
#include "os/file.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static const char MARKER_TEXT[] = "cairn root 1\n";
#define MARKER_SIZE (sizeof(MARKER_TEXT) - 1)

__attribute__((format(printf, 3, 4))) static cairn_status fail(cairn_error *error, cairn_status status,
                                                               const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (error)
        vsnprintf(error->text, sizeof(error->text), format, args);
    va_end(args);
    return status;
}

/* ENOENT and friends of the kernel make no sense as the answer to "open a store". */
static cairn_status outward(cairn_status status)
{
    switch (status) {
    case CAIRN_EACCES:
    case CAIRN_ENOSPC:
    case CAIRN_ENOMEM:
    case CAIRN_EINVAL:
        return status;
    default:
        return CAIRN_EIO;
    }
}

/* ---- the path ---- */

/* a + b, malloc()ed. */
static char *join(const char *a, const char *b)
{
    /* NOLINTNEXTLINE(clang-analyzer-core.NonNullParamChecker): it does not see that fail() returns its argument */
    size_t size = strlen(a) + strlen(b) + 1;
    char  *out = malloc(size);
    if (out)
        snprintf(out, size, "%s%s", a, b);
    return out;
}

/* O_NOFOLLOW has no effect on "link/". */
static void strip_slashes(char *path)
{
    for (size_t n = strlen(path); n > 1 && path[n - 1] == '/'; n--)
        path[n - 1] = 0;
}

static char *default_path(void)
{
    const char *cache = getenv("XDG_CACHE_HOME");
    if (cache && cache[0] == '/') /* the XDG specification: a relative path is to be ignored */
        return join(cache, "/cairn");
    const char *home = getenv("HOME");
    if (home && home[0] == '/')
        return join(home, "/.cache/cairn");
    return NULL;
}

static char *below_working_directory(const char *path)
{
    char *cwd = getcwd(NULL, 0);
    char *base = cwd ? join(cwd, strcmp(cwd, "/") == 0 ? "" : "/") : NULL;
    char *out = base ? join(base, path) : NULL;
    free(base);
    free(cwd);
    return out;
}

cairn_status cairn__root_path(const char *path, char **ret_path, cairn_error *error)
{
    char *out;
    if (path && !path[0])
        return fail(error, CAIRN_EINVAL, "the cache directory is an empty name; name a directory");
    if (!path)
        out = default_path();
    else if (path[0] == '/')
        out = join(path, "");
    else
        out = below_working_directory(path);
    if (!out)
        return fail(
            error, CAIRN_EINVAL, "%s",
            path ? "the working directory has no name, so the cache directory needs an absolute one"
                 : "neither $XDG_CACHE_HOME nor $HOME is an absolute path; name a cache directory (--cache-dir)");
    strip_slashes(out);
    *ret_path = out;
    return CAIRN_OK;
}

/* So that a power cut can't take away the root itself. Nothing is said when that
 * fails: a folder above that may not be read is no reason to have no cache. */
static void sync_parent(const char *path)
{
    char *copy = join(path, "");
    char *slash = copy ? strrchr(copy, '/') : NULL;
    int   fd = -1;
    if (slash) {
        slash[slash == copy] = 0;         /* "/" itself keeps its slash */
        char *through = join(copy, "/."); /* the last component may be a link that the user made */
        if (through && cairn__open_dir(AT_FDCWD, through, &fd) == CAIRN_OK)
            (void)!cairn__sync_dir(fd);
        cairn__close(fd);
        free(through);
    }
    free(copy);
}

/* mkdir -p of everything above the last component. */
static cairn_status make_parents(const char *path, cairn_error *error)
{
    char *copy = join(path, "");
    if (!copy)
        return CAIRN_ENOMEM;
    cairn_status status = CAIRN_OK;
    for (char *slash = strchr(copy + 1, '/'); slash && !status; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        bool created = false;
        status = cairn__make_dir(AT_FDCWD, copy, &created);
        if (created)
            sync_parent(copy);
        if (status)
            fail(error, status, "cannot create the directory %s above the cache: %s; create it or name another", copy,
                 cairn__os_error_text());
        *slash = '/';
    }
    free(copy);
    return status;
}

/* ---- the directory ---- */

static cairn_status explain_open_failure(const char *path, cairn_status status, cairn_error *error)
{
    cairn__file_info info;
    if (status == CAIRN_ENOMEM || cairn__stat(AT_FDCWD, path, &info) != CAIRN_OK)
        return fail(error, outward(status), "cannot open the cache directory %s: %s", path, cairn__os_error_text());
    if (!info.is_directory && (info.mode & S_IFMT) == S_IFLNK)
        return fail(error, CAIRN_EINVAL,
                    "the cache directory %s is a symbolic link, which is not followed; name what it points to", path);
    if (!info.is_directory)
        return fail(error, CAIRN_EINVAL, "the cache directory %s is not a directory; name a directory", path);
    return fail(error, outward(status), "cannot open the cache directory %s: %s; make it yours or name another", path,
                cairn__os_error_text());
}

static cairn_status open_directory(const char *path, int *ret_fd, cairn_error *error)
{
    cairn_status status = make_parents(path, error);
    if (status)
        return outward(status);
    status = cairn__make_dir(AT_FDCWD, path, NULL);
    if (status)
        return fail(error, outward(status), "cannot create the cache directory %s: %s; create it or name another", path,
                    cairn__os_error_text());
    sync_parent(path); /* also when it exists: who made it may have been killed before it did */
    status = cairn__open_dir(AT_FDCWD, path, ret_fd);
    return status ? explain_open_failure(path, status, error) : CAIRN_OK;
}

static cairn_status check_owner(cairn__root *root, cairn_error *error)
{
    cairn__file_info info;
    cairn_status     status = cairn__fstat(root->fd, &info);
    if (status)
        return fail(error, outward(status), "cannot look at the cache directory %s: %s", root->path,
                    cairn__os_error_text());
    if (info.uid != (uint32_t)geteuid()) {
        return fail(error, CAIRN_EACCES,
                    "the cache directory %s belongs to user %u, and this process runs as user %u; name another",
                    root->path, (unsigned)info.uid, (unsigned)geteuid());
    }
    root->uid = info.uid;
    return CAIRN_OK;
}

/* ---- the marker ---- */

void cairn__temp_name(char buf[CAIRN__TEMP_NAME_SIZE])
{
    uint8_t random[8];
    cairn__random_bytes(random, sizeof(random));
    memcpy(buf, CAIRN__TEMP_PREFIX, sizeof(CAIRN__TEMP_PREFIX));
    cairn__hex(random, sizeof(random), buf + sizeof(CAIRN__TEMP_PREFIX) - 1);
}

bool cairn__is_temp_name(const char *name)
{
    const size_t prefix = sizeof(CAIRN__TEMP_PREFIX) - 1;
    uint8_t      random[8];
    return strncmp(name, CAIRN__TEMP_PREFIX, prefix) == 0 && strlen(name) == CAIRN__TEMP_NAME_SIZE - 1 &&
           cairn__unhex(name + prefix, random, sizeof(random));
}

typedef struct look {
    bool marker, foreign;
} look;

static bool look_at_entry(void *ctx, const char *name)
{
    look *l = ctx;
    if (strcmp(name, CAIRN__ROOT_MARKER) == 0)
        l->marker = true;
    /* lost+found: the root of a fresh ext4 volume is as good as empty. */
    else if (strcmp(name, "lost+found") != 0 && !cairn__is_temp_name(name))
        l->foreign = true;
    return !l->marker;
}

static cairn_status check_marker(const cairn__root *root, cairn_error *error)
{
    char         text[MARKER_SIZE + 1] = {0};
    int          fd = -1;
    cairn_status status = cairn__open_read(root->fd, CAIRN__ROOT_MARKER, &fd);
    if (!status)
        status = cairn__read_at(fd, text, MARKER_SIZE, 0);
    cairn__close(fd);
    if (status && status != CAIRN_ECORRUPT)
        return fail(error, outward(status), "cannot read the file CAIRN in the cache directory %s: %s", root->path,
                    cairn__os_error_text());
    if (status || memcmp(text, MARKER_TEXT, MARKER_SIZE) != 0)
        return fail(error, CAIRN_EINVAL,
                    "the file CAIRN in the directory %s is not one that this version writes; name another directory",
                    root->path);
    return CAIRN_OK;
}

static cairn_status write_marker(const cairn__root *root, cairn_error *error)
{
    char         temp[CAIRN__TEMP_NAME_SIZE];
    int          fd = -1;
    cairn_status status;
    cairn__temp_name(temp);
    status = cairn__create_new(root->fd, temp, &fd);
    if (!status)
        status = cairn__write_at(fd, MARKER_TEXT, MARKER_SIZE, 0);
    if (!status)
        status = cairn__sync_data(fd);
    if (!status)
        status = cairn__rename_new(root->fd, temp, CAIRN__ROOT_MARKER);
    if (!status)
        status = cairn__sync_dir(root->fd);
    else
        fail(error, outward(status),
             "cannot write to the cache directory %s: %s; make room or make it writable, or name another", root->path,
             cairn__os_error_text());
    if (status && fd >= 0)
        (void)!cairn__unlink(root->fd, temp);
    cairn__close(fd);
    return status == CAIRN_EBUSY ? check_marker(root, error) : status ? outward(status) : CAIRN_OK;
}

static cairn_status claim(const cairn__root *root, cairn_error *error)
{
    look         l = {0};
    cairn_status status = cairn__list_dir(root->fd, look_at_entry, &l);
    if (status)
        return fail(error, outward(status), "cannot list the cache directory %s: %s", root->path,
                    cairn__os_error_text());
    if (l.marker)
        status = check_marker(root, error);
    else if (l.foreign)
        status = fail(error, CAIRN_EINVAL,
                      "the directory %s is not empty and is not a cache of ours (no file CAIRN in it); "
                      "name an empty or new one",
                      root->path);
    else
        status = write_marker(root, error);
    if (status)
        return status;
    status = cairn__set_mode(root->fd, 0700);
    return status
               ? fail(error, outward(status),
                      "cannot make the cache directory %s private: %s; name one that can be written to (--cache-dir)",
                      root->path, cairn__os_error_text())
               : CAIRN_OK;
}

static cairn_status make_folders(const cairn__root *root, cairn_error *error)
{
    static const char *const names[] = {CAIRN__ROOT_PAGES, CAIRN__ROOT_QUARANTINE};
    cairn_status             status = CAIRN_OK;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]) && !status; i++)
        status = cairn__make_dir(root->fd, names[i], NULL);
    if (!status)
        status = cairn__sync_dir(root->fd); /* also for one that was killed here */
    if (status)
        return fail(error, outward(status),
                    "cannot write to the cache directory %s: %s; make room or make it writable, or name another",
                    root->path, cairn__os_error_text());
    return CAIRN_OK;
}

cairn_status cairn__root_open(const char *path, cairn__root *ret_root, cairn_error *error)
{
    cairn__root  root = {.fd = -1};
    cairn_status status = cairn__root_path(path, &root.path, error);
    if (!status) /* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): freed by cairn__root_close() */
        status = open_directory(root.path, &root.fd, error);
    if (!status)
        status = check_owner(&root, error);
    if (!status)
        status = claim(&root, error);
    if (!status)
        status = make_folders(&root, error);
    if (status) {
        cairn__root_close(&root);
        return status;
    }
    *ret_root = root;
    return CAIRN_OK;
}

/* A directory without the marker. */
static cairn_status look_for_marker(const cairn__root *root, cairn_error *error)
{
    cairn__file_info info;
    cairn_status     status = cairn__stat(root->fd, CAIRN__ROOT_MARKER, &info);
    if (status == CAIRN_ENOENT)
        return fail(error, CAIRN_EINVAL, "the directory %s is not a cache of ours (no file CAIRN in it); name another",
                    root->path);
    return status ? fail(error, outward(status), "cannot look at the file CAIRN in the cache directory %s: %s",
                         root->path, cairn__os_error_text())
                  : check_marker(root, error);
}

cairn_status cairn__root_open_existing(const char *path, cairn__root *ret_root, cairn_error *error)
{
    cairn__root  root = {.fd = -1};
    cairn_status status = cairn__root_path(path, &root.path, error);
    if (!status) { /* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): freed by cairn__root_close() */
        status = cairn__open_dir(AT_FDCWD, root.path, &root.fd);
        if (status == CAIRN_ENOENT)
            fail(error, status, "there is no cache directory %s; name one with --cache-dir", root.path);
        else if (status)
            status = explain_open_failure(root.path, status, error);
    }
    if (!status)
        status = check_owner(&root, error);
    if (!status)
        status = look_for_marker(&root, error);
    if (status) {
        cairn__root_close(&root);
        return status;
    }
    *ret_root = root;
    return CAIRN_OK;
}

void cairn__root_close(cairn__root *root)
{
    cairn__close(root->fd);
    root->fd = -1;
    free(root->path);
    root->path = NULL;
}
