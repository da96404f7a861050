/* root.h - the directory that all of a disk tier lies in, opened or created.
 *
 *     ROOT/CAIRN        marker: what makes a directory ours
 *     ROOT/ledger       budget, shared by processes (store/ledger.h)
 *     ROOT/quarantine/  bad files, bounded
 *     ROOT/v1/          page files
 *
 * A root is ours alone: mode 0700, owner = effective user, no symlink as last
 * component. Everything below is reached through `fd`, so that renaming or
 * replacing the path later can't lead us elsewhere. */
#ifndef CAIRN_TIER_ROOT_H
#define CAIRN_TIER_ROOT_H

#include "cairn/base.h"
#include "core/seal.h"

#define CAIRN__ROOT_MARKER "CAIRN"
#define CAIRN__ROOT_PAGES "v1"
#define CAIRN__ROOT_QUARANTINE "quarantine"
#define CAIRN__ROOT_LEDGER "ledger"
#define CAIRN__TEMP_PREFIX ".tmp-"
#define CAIRN__TEMP_NAME_SIZE 22u /* prefix, 16 hex, NUL */

typedef struct cairn__root {
    char    *path; /* absolute, without trailing slashes */
    int      fd;   /* the directory */
    uint32_t uid;  /* its owner: every file below must have the same */
    /* Pages are sealed with it, read and written; borrowed. NULL: plain ones. Set by
     * the owner after opening. */
    const cairn__keyring *keyring;
} cairn__root;

/* The absolute form of `path`; NULL means $XDG_CACHE_HOME/cairn, else
 * $HOME/.cache/cairn. *ret_path is malloc()ed. CAIRN_EINVAL: nothing to build it from. */
CAIRN_MUST_USE cairn_status cairn__root_path(const char *path, char **ret_path, cairn_error *error);

/* Opens or creates it, with missing parents. Takes a directory only when it has
 * the marker or is empty. Errors as cairn_store_open() documents, text in *error. */
CAIRN_MUST_USE cairn_status cairn__root_open(const char *path, cairn__root *ret_root, cairn_error *error);
/* Opens one that is there, and changes nothing. CAIRN_ENOENT: no such directory;
 * CAIRN_EINVAL: not one of ours. */
CAIRN_MUST_USE cairn_status cairn__root_open_existing(const char *path, cairn__root *ret_root, cairn_error *error);
void                        cairn__root_close(cairn__root *root); /* accepts a zeroed one with fd -1 */

/* A fresh temporary name. */
void cairn__temp_name(char buf[CAIRN__TEMP_NAME_SIZE]);
bool cairn__is_temp_name(const char *name);

#endif
