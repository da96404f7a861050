/* journal_events.h - the events themselves, between journal.c and crash_disk.c. */
#ifndef CAIRN_JOURNAL_EVENTS_H
#define CAIRN_JOURNAL_EVENTS_H

#include "journal.h"

#define JOURNAL_NAME_SIZE 160u /* a page in quarantine has the longest */

#define JOURNAL_TYPES(X) X(CREATE) X(MKDIR) X(WRITE) X(SYNC) X(RENAME) X(LINK) X(REMOVE) X(ROT) X(PROMISE)
typedef enum journal_type {
#define X(name) JOURNAL_##name,
    JOURNAL_TYPES(X)
#undef X
} journal_type;

typedef struct journal_event {
    journal_type type;
    int          node;        /* of the file or folder, except for RENAME and REMOVE */
    int          dir, to_dir; /* nodes of folders */
    int          epoch;
    char         name[JOURNAL_NAME_SIZE], to_name[JOURNAL_NAME_SIZE];
    uint64_t     offset;
    size_t       size;
    uint8_t     *data; /* [size] */
} journal_event;

const journal_event *journal_event_at(size_t i);
int                  journal_n_nodes(void);

#endif
