/* secret.c - see secret.h. What is checked is the open file, so it can't be
 * another one by the time it is read. */
#include "os/secret.h"
#include "os/file.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

__attribute__((format(printf, 3, 4))) static cairn_status fail(cairn_error *error, cairn_status status,
                                                               const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(error->text, sizeof error->text, format, args);
    va_end(args);
    return status;
}

static cairn_status check(const char *option, const char *path, const cairn__file_info *info, size_t max_size,
                          cairn_error *error)
{
    if (!info->is_regular)
        return fail(error, CAIRN_EINVAL, "%s %.300s is not a regular file", option, path);
    if (info->uid != (uint32_t)geteuid())
        return fail(error, CAIRN_EACCES, "%s %.300s belongs to user %u, not to the one who runs this (%u); chown it",
                    option, path, (unsigned)info->uid, (unsigned)geteuid());
    if (info->mode & (S_IRWXG | S_IRWXO))
        return fail(error, CAIRN_EACCES, "%s %.300s is open to others (mode %04o); chmod 600 it", option, path,
                    (unsigned)info->mode & 07777u);
    if (info->size_bytes == 0 || info->size_bytes > max_size)
        return fail(error, CAIRN_EINVAL, "%s %.300s is %s", option, path,
                    info->size_bytes ? "too large to be such a file" : "empty");
    return CAIRN_OK;
}

static cairn_status read_whole(int fd, size_t size, char **ret_data)
{
    char *data = malloc(size + 1);
    if (!data)
        return CAIRN_ENOMEM;
    cairn_status status = cairn__read_at(fd, data, size, 0);
    if (status) {
        cairn__secret_free(data, size);
        return status == CAIRN_ECORRUPT ? CAIRN_EIO : status; /* it became shorter meanwhile */
    }
    data[size] = 0;
    *ret_data = data;
    return CAIRN_OK;
}

cairn_status cairn__secret_read(const char *option, const char *path, size_t max_size, char **ret_data,
                                size_t *ret_size, cairn_error *error)
{
    int              fd = -1;
    cairn__file_info info;
    cairn_status     status = cairn__open_read(AT_FDCWD, path, &fd);
    if (!status)
        status = cairn__fstat(fd, &info);
    if (status) {
        fail(error, status, "%s %.300s can't be opened: %s; it must be a file, not a symbolic link", option, path,
             cairn__os_error_text());
        cairn__close(fd);
        return status;
    }
    status = check(option, path, &info, max_size, error);
    if (!status) {
        status = read_whole(fd, (size_t)info.size_bytes, ret_data);
        if (status)
            fail(error, status, "%s %.300s can't be read: %s", option, path, cairn_status_text(status));
    }
    cairn__close(fd);
    if (!status)
        *ret_size = (size_t)info.size_bytes;
    return status;
}

void cairn__secret_free(char *data, size_t size)
{
    if (data)
        explicit_bzero(data, size);
    free(data);
}
