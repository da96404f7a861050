/* tool.h - a root without its server: what `cairn verify`, `clear` and `prune`
 * work with. They are processes like any other that shares the root: they take no
 * lock that a server waits for, tell the ledger what they remove, and may be
 * killed at any moment. */
#ifndef CAIRN_STORE_TOOL_H
#define CAIRN_STORE_TOOL_H

#include "store/internal.h"

/* A store without threads, queue and budget on a root that is there. ledger false:
 * nothing is written, and there is no store->ledger. End with cairn_store_close().
 * CAIRN_ENOENT: there is no such directory; CAIRN_EINVAL: it is not ours; others as
 * cairn_store_open(). The text in *error says what to do. */
CAIRN_MUST_USE cairn_status cairn__tool_open(const char *root, bool ledger, cairn_store **ret_store,
                                             cairn_error *error);

/* Pages and texts sealed with this key can be looked into. Once, before use.
 * CAIRN_ENOMEM. */
CAIRN_MUST_USE cairn_status cairn__tool_set_key(cairn_store *store, const uint8_t key[CAIRN__SECRET_SIZE]);

typedef struct cairn__tool_result {
    uint64_t n_pages, freed_bytes; /* gone */
    uint64_t n_stuck;              /* files that could not be removed */
    char     stuck[256];           /* below the root, the first of them */
    uint64_t left_bytes;           /* used and reserved afterwards, as the ledger has it */
} cairn__tool_result;

/* Removes all pages, texts of identities and quarantined files. What servers write
 * meanwhile stays. Errors: CAIRN_EIO, CAIRN_ENOMEM: part of it is done. */
CAIRN_MUST_USE cairn_status cairn__tool_clear(cairn_store *store, cairn__tool_result *ret_result);

/* Evicts until at most to_bytes are used or nothing is left that may go. */
CAIRN_MUST_USE cairn_status cairn__tool_prune(cairn_store *store, uint64_t to_bytes, cairn__tool_result *ret_result);

#endif
