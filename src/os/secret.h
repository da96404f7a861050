/* secret.h - files with keys in them, which nobody else may read or have written. */
#ifndef CAIRN_OS_SECRET_H
#define CAIRN_OS_SECRET_H

#include "cairn/base.h"

/* Reads the whole file at `path` into *ret_data, which is malloc()ed, ends with
 * a zero byte beyond *ret_size, and goes back through cairn__secret_free(). It
 * must be a regular file of this user that no one else may read or write, no
 * symbolic link, not empty and at most max_size. `option` is what the operator
 * named it with: "--api-key-file". Errors, with a text that says what to do:
 * CAIRN_ENOENT, CAIRN_EACCES, CAIRN_EINVAL, CAIRN_EIO, CAIRN_ENOMEM. */
CAIRN_MUST_USE cairn_status cairn__secret_read(const char *option, const char *path, size_t max_size, char **ret_data,
                                               size_t *ret_size, cairn_error *error);
void                        cairn__secret_free(char *data, size_t size); /* overwritten first; accepts NULL */

#endif
