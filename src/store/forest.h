/* forest.h - all pages of a root as a forest, and its leaves by what they are worth.
 * Built from a scan, used up by eviction; see evict.c. The writer thread's. */
#ifndef CAIRN_STORE_FOREST_H
#define CAIRN_STORE_FOREST_H

#include "store/internal.h"

#define CAIRN__NO_NODE UINT32_MAX

typedef struct cairn__node {
    cairn__page_name name;
    uint32_t         identity; /* index */
    uint32_t         parent;   /* index, or CAIRN__NO_NODE: first page, or orphan */
    uint32_t         n_children;
    bool             leads_on; /* a checkpoint lies behind it */
    bool             orphan; /* of no use: it, or one before it, has lost its parent, or no checkpoint needs it */
    uint8_t          reach;  /* forest.c's, while it finds that out */
    bool             unused; /* since it was stored, and so are all behind it */
    uint64_t         disk_bytes, prefill_ns;
    int64_t          used_s;
    double           score;
} cairn__node;

typedef struct cairn__forest_identity {
    char     text[CAIRN__IDENTITY_NAME_SIZE];
    bool     stale;   /* nobody has opened it for long */
    uint32_t n_pages; /* that are left, checkpoints included */
    bool     has_checkpoints, has_others;
    bool     leads_on; /* a checkpoint lies in its first page */
    int64_t  used_s;  /* of its newest page, or when it was opened */
} cairn__forest_identity;

struct cairn__evictor {
    cairn__node            *nodes;
    uint32_t                n_nodes, room;
    cairn__forest_identity *identities;
    uint32_t                n_identities, identity_room;
    uint32_t               *heap; /* indices of leaves, lowest score first */
    uint32_t                n_heap;
    uint64_t                built_ns;
    double                  ns_per_byte; /* stands in where nothing was measured */
    uint64_t                restore_ps;  /* picoseconds for a byte; 0: unknown */
};

/* Scans the root, which also corrects the ledger. NULL: out of memory, or the scan failed. */
cairn__evictor *cairn__forest_build(cairn_store *store);

/* A leaf by its score, and out again. A node is in at most once. */
void     cairn__forest_push(cairn__evictor *ev, uint32_t index);
uint32_t cairn__forest_pop(cairn__evictor *ev); /* n_heap > 0 */
/* Sets the node's score from what it says now. */
void cairn__forest_judge(const cairn__evictor *ev, cairn__node *n, int64_t now_s);

/* Folder of the node's identity. */
CAIRN_MUST_USE cairn_status cairn__forest_open_identity(const cairn_store *store, const cairn__evictor *ev,
                                                        const cairn__node *n, int *ret_fd);
/* A key with the bytes that a name has: enough to find its folder. */
cairn_key cairn__forest_key(const uint8_t bytes[CAIRN__PAGE_NAME_KEY_SIZE]);

#endif
