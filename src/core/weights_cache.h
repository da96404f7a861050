/* weights_cache.h - digests of model files kept beside what stat says of them.
 *
 * What it trusts: a regular file whose device, inode, size, mtime and ctime (in
 * nanoseconds) are those of the entry has the bytes that were hashed. Tools can
 * set mtime back but not ctime. An entry is made only when the ctime was two
 * seconds old before the hashing began, else a second write within one tick
 * of the clock could hide behind the same ctime. Whoever can write into the folder
 * (it is 0700) or below the file system (a block device, a restored snapshot)
 * is trusted.
 *
 * One file per entry, <dev: 16 hex>-<inode: 16 hex>.digest, ending in a SHA-256
 * of the rest; anything that is not byte for byte what this version writes for
 * the file at hand is no entry. All of it can be deleted at any time. No
 * function fails: without the folder nothing is cached. */
#ifndef CAIRN_CORE_WEIGHTS_CACHE_H
#define CAIRN_CORE_WEIGHTS_CACHE_H

#include "cairn/identity.h"
#include "os/file.h"

/* Opens `path`, created if missing; -1 (no cache) when that fails or the folder
 * is another user's or open to others. path NULL: -1. Close with cairn__close(). */
int cairn__weights_cache_open(const char *path);
/* dir_fd may be -1: a miss. */
bool cairn__weights_cache_get(int dir_fd, const cairn__file_info *info, cairn_digest *ret_digest);
/* hashing_began_ns: wall clock before the first byte was read. dir_fd may be -1. */
void cairn__weights_cache_put(int dir_fd, const cairn__file_info *info, int64_t hashing_began_ns,
                              const cairn_digest *digest);

/* Blocks of the folder and all in it, 0: there is none; and the most that putting
 * one entry adds. */
uint64_t cairn__weights_cache_bytes(const char *path);
#define CAIRN__WEIGHTS_CACHE_STEP (UINT64_C(16) << 10) /* folder, its growth, entry, and blocks up to 4 KiB */

#define CAIRN__DIGESTS_FOLDER "digests" /* under a root */
#define CAIRN__DIGEST_ENTRY_MAX 512u    /* bytes */
/* Whether a name is one that an entry can have, and bytes are an undamaged entry of
 * some file: not whether it holds for that file. */
bool cairn__weights_cache_is_name(const char *name);
bool cairn__weights_cache_is_entry(const void *data, size_t size);

#endif
