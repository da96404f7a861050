/* journal.h - what was done to a directory tree, step by step, and what a power
 * cut after any step may leave of it.
 *
 * Recording: the functions below do the real call and note it, one at a time.
 * Replaying: a disk (model of the tree) is fed one event after the other. It
 * knows for each file and folder what is surely there (synced) and what is not
 * (pending). crash_materialise() writes one possible outcome into a folder:
 *   - of a file's pending writes each is kept, dropped, cut to a prefix, kept in
 *     some of its 512-byte sectors, or garbled
 *   - of a folder's pending entries (created, renamed, removed) each is kept or
 *     dropped; a rename within a folder happens as a whole or not at all, one
 *     across folders in either half
 *   - fsync of a folder makes its entries sure and nothing else; fdatasync of a
 *     file its bytes, not its name
 * That is less than any file system in use promises, and all that POSIX does. */
#ifndef CAIRN_JOURNAL_H
#define CAIRN_JOURNAL_H

#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* ---- recording; between begin and end, of everything below `base` ---- */
void   journal_begin(const char *base); /* an existing empty folder, itself sure */
void   journal_end(void);
size_t journal_n_events(void);
void   journal_free(void);

/* A new owner of the pages that are renamed from now on. */
void journal_epoch(void);
/* Pages renamed in this epoch are promised from here on, unless removed later. */
void journal_promise(void);
/* Bytes that rot on the disk itself: flips `mask` in the byte at `offset` of a file
 * below `base`, as if it had always been so. */
void journal_rot(const char *path, uint64_t offset, uint8_t mask);

/* Real calls, journalled while recording. */
int     journal_open(int dir_fd, const char *name, int flags, mode_t mode); /* O_CREAT */
ssize_t journal_pwrite(int fd, const void *buf, size_t size, off_t offset);
int     journal_sync(int fd);
int     journal_rename(int from_dir, const char *from, int to_dir, const char *to, unsigned flags);
int     journal_link(int from_dir, const char *from, int to_dir, const char *to);
int     journal_unlink(int dir_fd, const char *name, int flags);
int     journal_mkdir(int dir_fd, const char *name, mode_t mode);

/* ---- replaying ---- */
typedef struct crash_disk crash_disk;
crash_disk               *crash_disk_create(void);
void                      crash_disk_destroy(crash_disk *disk);
/* Applies event `i` (in order). Returns its name, for messages. */
const char *crash_disk_apply(crash_disk *disk, size_t i);

/* Writes one outcome into `path`, an existing empty folder. seed 0: everything
 * pending is dropped; 1: everything is kept; 2: names are, bytes of files are not;
 * else a mixture. */
void crash_materialise(const crash_disk *disk, const char *path, uint64_t seed);

/* Names of the pages that must be there, relative to `base`. */
typedef void (*crash_promise_fn)(void *ctx, const char *path);
void crash_promises(const crash_disk *disk, crash_promise_fn fn, void *ctx);

#endif
