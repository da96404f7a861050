/* disk.h - page files in a root: open by name, publish a batch, remove.
 *
 * The file system is the index. Readers take no lock: a page exists under its
 * name from one rename on, complete and synced, and is never written again.
 * Nothing here knows budgets, queues or requests.
 *
 * Invariants:
 *   D1  a name of a page leads to a file that was synced before it got the name
 *   D2  a page file is opened, verified and read through one descriptor
 *   D3  a temporary file is held under an OFD lock while its writer lives
 *   D4  no existing name is ever replaced */
#ifndef CAIRN_TIER_DISK_H
#define CAIRN_TIER_DISK_H

#include "cairn/store.h"
#include "core/identity_file.h"
#include "core/page.h"
#include "core/page_name.h"
#include "os/file.h"
#include "tier/root.h"

/* `identity` below is the digest of a namespace, cairn__namespace_digest() the
 * identity: with a keyring in the root not the identity's own. */

/* ---- folders ---- */

#define CAIRN__IDENTITY_TEXT "identity.txt" /* beside the folders of an identity's pages */
#define CAIRN__IDENTITY_RECENT "recent"     /* there, too: prompts for the next process, a hint */

/* CAIRN_ENOENT: nothing stored there yet. Descriptors to close with cairn__close(). */
CAIRN_MUST_USE cairn_status cairn__disk_open_identity(const cairn__root *root, const cairn_digest *identity,
                                                      int *ret_fd);
CAIRN_MUST_USE cairn_status cairn__disk_open_identity_named(const cairn__root *root, const char *name, int *ret_fd);
CAIRN_MUST_USE cairn_status cairn__disk_open_folder(int identity_fd, const cairn_key *parent, int *ret_fd);

/* All of a small file, with room for a byte more: what is longer than max_size, or no
 * plain file, is CAIRN_ECORRUPT. Also CAIRN_ENOENT, CAIRN_EIO, CAIRN_ENOMEM; on error
 * *ret_data is NULL. free(). */
CAIRN_MUST_USE cairn_status cairn__disk_read_whole(int folder_fd, const char *name, uint64_t max_size,
                                                   uint8_t **ret_data, cairn__file_info *ret_info);
CAIRN_MUST_USE cairn_status cairn__disk_read_identity_text(int identity_fd, uint8_t **ret_text,
                                                           cairn__file_info *ret_info);

/* The name of what is put. */
cairn__page_name cairn__disk_name(const cairn_digest *identity, const cairn_page *page);

/* ---- reading ---- */

/* An open page file whose header verified and agrees with its name. */
typedef struct cairn__page_file {
    int                fd;
    cairn__file_info   info; /* when it was opened */
    cairn__page_header header;
    uint64_t          *block_size;   /* [n_blocks] */
    uint64_t          *block_offset; /* [n_blocks] */
    void              *memory;       /* what the header and both arrays lie in */
} cairn__page_file;

/* Opens and verifies. CAIRN_ENOENT: no such page. CAIRN_ECORRUPT: what has this
 * name is no good page of it (wrong kind of file, unreadable, wrong owner, wrong
 * size, bad header, header of another identity, key, parent or length):
 * quarantine it. CAIRN_EIO, CAIRN_ENOMEM: can't tell, among others when the
 * process has no descriptor left. Keys are compared as far as the name has
 * them; the caller compares the rest. On error nothing is held, but
 * ret_file->info may be that of the bad file (inode 0: unknown).
 * With a keyring in the root the page must be sealed with it, without one it must
 * be plain: anything else is CAIRN_ECORRUPT. */
CAIRN_MUST_USE cairn_status cairn__page_file_open(const cairn__root *root, int folder_fd, const cairn__page_name *name,
                                                  const cairn_digest *identity, cairn__page_file *ret_file);
/* The same without opening its folder, by one call. Of another error than CAIRN_ENOENT
 * only opening it in its folder says what it means. */
CAIRN_MUST_USE cairn_status cairn__page_file_open_in(const cairn__root *root, int identity_fd,
                                                     const cairn__page_name *name, const cairn_key *parent,
                                                     const cairn_digest *identity, cairn__page_file *ret_file);
/* A sealed page whose key nobody has: what can be told of it without. Its header has
 * counts and sizes, the rest is zeros; nothing of it can be read. Statuses as
 * above; CAIRN_ECORRUPT also for a plain one. For tools. */
CAIRN_MUST_USE cairn_status cairn__page_file_open_shape(const cairn__root *root, int folder_fd,
                                                        const cairn__page_name *name, cairn__page_file *ret_file);
/* Whether the file, of which `info` was just learnt, is the page of its name, of the size
 * that its header says: then it takes what it did when it was counted. Not where that
 * can't be told; of a page under another's key sizes alone are compared. */
bool cairn__page_file_is_as_counted(const cairn__root *root, int folder_fd, const cairn__page_name *name,
                                    const cairn__file_info *info);
/* Reads block `block` (below n_blocks) into dst[0..its size) and proves it there: its
 * checksum, or by decrypting it. Only after CAIRN_OK may dst be used. From any
 * thread. CAIRN_ECORRUPT: it is bad, or the file ends before it. CAIRN_EIO,
 * CAIRN_ENOMEM: can't tell. */
CAIRN_MUST_USE cairn_status cairn__page_file_read(const cairn__root *root, const cairn__page_file *file, uint32_t block,
                                                  void *dst);
/* The same for one of the blocks [block, end) that the caller wants one after the
 * other: the device is asked for all of them at once, past the page cache, and what it
 * gave lies in the window, unproven, until another is read. */
typedef struct cairn__window {
    uint8_t                *data;
    size_t                  room;
    const cairn__page_file *file; /* whose bytes [offset, offset + size) are there; NULL: none */
    uint64_t                offset, size;
} cairn__window;
CAIRN_MUST_USE cairn_status cairn__page_file_read_through(const cairn__root *root, const cairn__page_file *file,
                                                          cairn__window *window, uint32_t block, uint32_t end,
                                                          void *dst);
bool                        cairn__page_file_is_cold(const cairn__page_file *file);    /* its end is not in memory */
void                        cairn__page_file_read_ahead(const cairn__page_file *file, uint32_t block); /* will be read again */
void                        cairn__page_file_close(cairn__page_file *file); /* accepts a zeroed one with fd -1 */

/* ---- removing ---- */

/* Moves a bad file out of the way into ROOT/quarantine, or unlinks what can't be
 * moved. inode 0: whatever has the name; else only that file, since another
 * process may have put a good one there meanwhile. False: it is still there.
 * Then drops the oldest until at most CAIRN__QUARANTINE_FILES and max_bytes are
 * left; *ret_freed is what that gave back. */
#define CAIRN__QUARANTINE_FILES 64u /* guess: enough to look into, few enough to list each time */
bool cairn__quarantine(const cairn__root *root, int folder_fd, const char *name, uint64_t inode, uint64_t max_bytes,
                       uint64_t *ret_freed);
/* Empties it down to max_bytes. Returns bytes given back. */
uint64_t cairn__quarantine_trim(const cairn__root *root, uint64_t max_bytes);

/* ---- publishing ---- */

#define CAIRN__BATCH_PAGES 16u
#define CAIRN__BATCH_BYTES (UINT64_C(64) << 20)

typedef struct cairn__batch cairn__batch; /* pages that become visible together */

CAIRN_MUST_USE cairn_status cairn__batch_create(const cairn__root *root, cairn__batch **ret_batch);

/* Upper bound of the blocks that publishing this page can come to occupy, with
 * its folders and names. */
uint64_t cairn__batch_page_cost(const cairn_page *page, const char *identity_text);

/* Writes one page into a temporary file of its folder. identity_text goes into
 * identity.txt, sealed with a keyring, where there is none yet. At most CAIRN__BATCH_PAGES.
 * Errors: CAIRN_EINVAL (shape outside the format), CAIRN_ENOMEM, CAIRN_ENOSPC,
 * CAIRN_EIO: *ret_fatal says that a write failed, so that the device can't be
 * trusted; false for failures to open or create. */
CAIRN_MUST_USE cairn_status cairn__batch_add(cairn__batch *batch, const cairn_digest *identity,
                                             const char *identity_text, const cairn_page *page, int64_t now_s,
                                             bool *ret_fatal);

/* Syncs what was added, renames in that order, syncs the folders.
 * ret_published[i]: page i is there and durable under its name, written by us;
 * false with CAIRN_OK: another process was first. On an error the pages from the
 * first one concerned on are not published, or not surely durable. */
CAIRN_MUST_USE cairn_status cairn__batch_publish(cairn__batch *batch, bool ret_published[CAIRN__BATCH_PAGES]);

/* Blocks that the batch occupies more than before it began, temporary files
 * that could not be removed included. Call after publish or instead of it (it
 * removes what was not published). */
uint64_t cairn__batch_finish(cairn__batch *batch);
void     cairn__batch_destroy(cairn__batch *batch); /* accepts NULL */

#endif
