/* file.h - the only place that touches the file system. Every call maps errno
 * to a cairn_status; errno goes no further (cairn__os_error_text() is for the
 * operator's message). Paths are relative to an open directory wherever a name
 * could come from outside. No call follows a symlink in its last component,
 * but for the two _user_file ones: the path of a model file is the user's own,
 * and model caches are made of symlinks. Thread-safe, no state but the last
 * error's text. Status: ENOENT, EACCES (also a symlink, a read-only file
 * system), EBUSY (exists, locked), ENOSPC (also a quota), EINVAL (not a
 * directory), ENOMEM, ENOTSUP, and EIO for all else. */
#ifndef CAIRN_OS_FILE_H
#define CAIRN_OS_FILE_H

#include "cairn/base.h"

typedef struct cairn__file_info {
    uint64_t dev, inode, size_bytes, disk_bytes; /* disk_bytes: blocks it occupies */
    uint64_t n_links;
    int64_t  mtime_ns, ctime_ns;
    uint32_t mode, uid;
    bool     is_regular, is_directory;
} cairn__file_info;

/* O_CLOEXEC | O_NOFOLLOW always; *ret_fd is a plain descriptor to close with
 * cairn__close(). dir_fd may be AT_FDCWD. Opening for reading never blocks (a FIFO). */
CAIRN_MUST_USE cairn_status cairn__open_dir(int dir_fd, const char *name, int *ret_fd);
CAIRN_MUST_USE cairn_status cairn__open_read(int dir_fd, const char *name, int *ret_fd);
/* FOLDER/NAME in one call, without following a link in either. CAIRN_ENOENT: one of them
 * is not there. Any other error may be the system's, which can't do it. */
CAIRN_MUST_USE cairn_status cairn__open_read_in(int dir_fd, const char *path, int *ret_fd);
/* 0600, O_EXCL, for writing; CAIRN_EBUSY: exists. */
CAIRN_MUST_USE cairn_status cairn__create_new(int dir_fd, const char *name, int *ret_fd);
/* 0600, created if missing, for reading and writing. */
CAIRN_MUST_USE cairn_status cairn__open_shared(int dir_fd, const char *name, int *ret_fd);
CAIRN_MUST_USE cairn_status cairn__open_user_file(const char *path, int *ret_fd); /* for reading */
void                        cairn__close(int fd);                                 /* accepts -1 */

/* Exactly size bytes at offset; short is CAIRN_ECORRUPT for reads. EINTR is retried. */
CAIRN_MUST_USE cairn_status cairn__read_at(int fd, void *buf, size_t size, uint64_t offset);
CAIRN_MUST_USE cairn_status cairn__write_at(int fd, const void *buf, size_t size, uint64_t offset);

/* Whether the device would be asked for the byte at offset, which asking reads nothing of
 * (a read that does not wait would bring it in). False also where that can't be told. */
bool cairn__is_cold(int fd, uint64_t offset);

/* The device's own bytes, past the page cache, which takes longer to fill than a fast
 * device to give them. A second descriptor of the same file, whatever its name is by
 * now. Offset, size and buf are multiples of CAIRN__DIRECT_ALIGNMENT; the file may end
 * before size, but not before `needed`. Any error: not possible here. */
#define CAIRN__DIRECT_ALIGNMENT 4096u
CAIRN_MUST_USE cairn_status cairn__read_direct(int fd, void *buf, size_t size, size_t needed, uint64_t offset);

/* Brings [offset, offset + size) into memory, for whoever reads it next; a hint. */
void                        cairn__read_ahead(int fd, uint64_t offset, uint64_t size);
/* Begins to write what is dirty and waits for nothing: a hint, so that syncing many
 * files after it costs one journal commit and not one each. */
void                        cairn__start_write(int fd);
CAIRN_MUST_USE cairn_status cairn__sync_data(int fd);
CAIRN_MUST_USE cairn_status cairn__sync_dir(int dir_fd);
/* CAIRN_EBUSY if `to` exists. */
CAIRN_MUST_USE cairn_status cairn__rename_new(int dir_fd, const char *from, const char *to);
CAIRN_MUST_USE cairn_status cairn__rename_across(int from_dir, const char *from, int to_dir, const char *to);
CAIRN_MUST_USE cairn_status cairn__unlink(int dir_fd, const char *name);
CAIRN_MUST_USE cairn_status cairn__remove_dir(int dir_fd, const char *name); /* CAIRN_EBUSY: not empty */
CAIRN_MUST_USE cairn_status cairn__set_mode(int fd, uint32_t mode);
/* 0700; exists (as anything) is CAIRN_OK; ret_created may be NULL. */
CAIRN_MUST_USE cairn_status cairn__make_dir(int dir_fd, const char *name, bool *ret_created);
CAIRN_MUST_USE cairn_status cairn__stat(int dir_fd, const char *name, cairn__file_info *ret_info); /* no follow */
CAIRN_MUST_USE cairn_status cairn__stat_user_file(const char *path, cairn__file_info *ret_info);
CAIRN_MUST_USE cairn_status cairn__fstat(int fd, cairn__file_info *ret_info);
CAIRN_MUST_USE cairn_status cairn__set_mtime(int fd, int64_t mtime_ns);
/* `fd` becomes another name for what `by` is, at once for all threads; `by` stays. */
CAIRN_MUST_USE cairn_status cairn__replace(int fd, int by);

/* Calls visit for each entry but . and ..; visit returns false to stop. The
 * listing order is the file system's. Cost: 0.5 us an entry (ext4). */
CAIRN_MUST_USE cairn_status cairn__list_dir(int dir_fd, bool (*visit)(void *ctx, const char *name), void *ctx);

typedef struct cairn__disk_space {
    uint64_t total_bytes, available_bytes; /* available to this user */
} cairn__disk_space;
CAIRN_MUST_USE cairn_status cairn__disk_space_of(int fd, cairn__disk_space *ret_space);

/* OFD write lock on bytes [offset, offset + size) of fd. wait: block. CAIRN_EBUSY: held by another. */
CAIRN_MUST_USE cairn_status cairn__lock_range(int fd, uint64_t offset, uint64_t size, bool wait);
void                        cairn__unlock_range(int fd, uint64_t offset, uint64_t size);
/* Whether another open file holds such a lock; takes none, so that two who ask do
 * not see each other. fd may be open for reading only. */
CAIRN_MUST_USE cairn_status cairn__is_range_locked(int fd, uint64_t offset, uint64_t size, bool *ret_locked);

/* For names: where the kernel gives none, they differ and are no secret. */
void cairn__random_bytes(void *buf, size_t size);
/* For salts and keys: the kernel's, or CAIRN_EIO. */
CAIRN_MUST_USE cairn_status cairn__random_salt(void *buf, size_t size);

/* Text of the errno behind this thread's last failed call of this header. */
const char *cairn__os_error_text(void);

#endif
