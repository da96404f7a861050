/* runtime_files.c - the files of a model: shards, their resolved paths, and what
 * they looked like before the load.
 *
 * A split model is named PREFIX-00001-of-0000N.gguf; any shard may be given, all
 * are found. Checked here, before llama.cpp sees the path, because its messages
 * do not tell a missing file from a directory or a text file. */
#include "llama/runtime_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* "-00001-of-00003.gguf" at the end of path. */
static bool parse_shard_name(const char *path, uint32_t *ret_prefix_len, uint32_t *ret_n_shards)
{
    size_t len = strlen(path);
    int    number = 0, count = 0, used = 0;
    if (len < 20 || sscanf(path + len - 20, "-%5d-of-%5d.gguf%n", &number, &count, &used) != 2 || used != 20)
        return false;
    if (count < 1 || number < 1 || number > count)
        return false;
    *ret_prefix_len = (uint32_t)(len - 20);
    *ret_n_shards = (uint32_t)count;
    return true;
}

static char *shard_name(const char *path, uint32_t prefix_len, uint32_t shard, uint32_t n_shards)
{
    size_t size = prefix_len + 32u;
    char  *name = malloc(size);
    if (name)
        snprintf(name, size, "%.*s-%05u-of-%05u.gguf", (int)prefix_len, path, shard + 1, n_shards);
    return name;
}

/* Resolves, opens, remembers and checks the magic of files->names[i]. */
static cairn_status inspect(cairn__model_files *files, uint32_t i, cairn_error *error)
{
    const char *name = files->names[i];
    char       *resolved = realpath(name, NULL);
    if (!resolved) {
        if (errno == ENOMEM)
            return CAIRN_ENOMEM;
        cairn_status status = errno == ENOENT || errno == ENOTDIR ? CAIRN_ENOENT : CAIRN_EACCES;
        return cairn__runtime_fail(error, status, "the model %s can't be opened: %s", name, strerror(errno));
    }
    files->paths[i] = resolved;
    int          fd = -1;
    cairn_status status = cairn__open_read(AT_FDCWD, resolved, &fd);
    if (status)
        return cairn__runtime_fail(error, status, "the model %s can't be opened: %s", name, cairn__os_error_text());
    uint8_t magic[4] = {0};
    status = cairn__fstat(fd, &files->infos[i]);
    if (!status && !files->infos[i].is_regular)
        status = cairn__runtime_fail(error, CAIRN_EINVAL, "the model %s is not a file; give a .gguf file", name);
    else if (!status && files->infos[i].size_bytes >= sizeof magic)
        status = cairn__read_at(fd, magic, sizeof magic, 0);
    cairn__close(fd);
    if (status) {
        if (error && !error->text[0])
            cairn__runtime_fail(error, status, "the model %s can't be read: %s", name, cairn__os_error_text());
        return status;
    }
    if (memcmp(magic, "GGUF", 4) != 0)
        return cairn__runtime_fail(error, CAIRN_EINVAL, "the model %s is not a GGUF file; convert it, or choose another", name);
    return CAIRN_OK;
}

cairn_status cairn__model_files_find(const char *path, cairn__model_files *ret_files, cairn_error *error)
{
    cairn__model_files files = {0};
    uint32_t           prefix_len = 0, n_shards = 1;
    bool               split = parse_shard_name(path, &prefix_len, &n_shards);
    files.names = calloc(n_shards, sizeof *files.names);
    files.paths = calloc(n_shards, sizeof *files.paths);
    files.infos = calloc(n_shards, sizeof *files.infos);
    cairn_status status = CAIRN_ENOMEM;
    if (!files.names || !files.paths || !files.infos)
        goto out;
    for (files.n = 0; files.n < n_shards; files.n++) {
        uint32_t i = files.n;
        files.names[i] = split ? shard_name(path, prefix_len, i, n_shards) : strdup(path);
        status = files.names[i] ? inspect(&files, i, error) : CAIRN_ENOMEM;
        if (status) {
            files.n++; /* so that done() frees this one too */
            goto out;
        }
    }
    *ret_files = files;
    return CAIRN_OK;
out:
    cairn__model_files_done(&files);
    return status;
}

void cairn__model_files_done(cairn__model_files *files)
{
    for (uint32_t i = 0; i < files->n; i++) {
        free(files->names[i]);
        free(files->paths[i]);
    }
    free(files->names);
    free(files->paths);
    free(files->infos);
    memset(files, 0, sizeof *files);
}

cairn_status cairn__runtime_check_model(const char *path, cairn_error *error)
{
    cairn__model_files files;
    cairn_status       status = cairn__model_files_find(path, &files, error);
    if (!status)
        cairn__model_files_done(&files);
    return status;
}

bool cairn__model_files_unchanged(const cairn__model_files *files)
{
    for (uint32_t i = 0; i < files->n; i++) {
        const cairn__file_info *then = &files->infos[i];
        cairn__file_info        now;
        if (cairn__stat(AT_FDCWD, files->paths[i], &now))
            return false;
        if (now.dev != then->dev || now.inode != then->inode || now.size_bytes != then->size_bytes ||
            now.mtime_ns != then->mtime_ns || now.ctime_ns != then->ctime_ns)
            return false;
    }
    return true;
}
