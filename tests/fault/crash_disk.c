/* crash_disk.c - replaying: see journal.h.
 *
 * A folder has entries that are sure and a list of pending changes, in order; its
 * present contents are both together. A file has bytes that are sure and a list
 * of pending writes. */
#include "fault.h"
#include "journal_events.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_ENTRIES 256u
#define MAX_CHANGES 256u
#define MAX_WRITES 24u /* older ones become sure: a file that is written for ever without a sync */
#define SECTOR 512u

typedef struct entry {
    char name[JOURNAL_NAME_SIZE];
    int  node;
    int  epoch;    /* of the rename that made it */
    bool promised; /* only in present contents */
} entry;

typedef struct entries {
    entry  list[MAX_ENTRIES];
    size_t n;
} entries;

/* Removes `from` if not empty, then adds `to` if not empty. */
typedef struct change {
    char from[JOURNAL_NAME_SIZE], to[JOURNAL_NAME_SIZE];
    int  node;
} change;

typedef struct node {
    bool                 is_dir;
    entries              sure, now;
    change               changes[MAX_CHANGES];
    size_t               n_changes;
    uint8_t             *data; /* sure */
    size_t               size;
    const journal_event *writes[MAX_WRITES];
    size_t               n_writes;
} node;

struct crash_disk {
    node **nodes;
    int    n_nodes;
};

/* ---- entries ---- */

static entry *find(entries *all, const char *name)
{
    for (size_t i = 0; i < all->n; i++)
        if (strcmp(all->list[i].name, name) == 0)
            return &all->list[i];
    return NULL;
}

static int take_out(entries *all, const char *name)
{
    entry *e = find(all, name);
    if (!e)
        return -1;
    int id = e->node;
    *e = all->list[--all->n];
    return id;
}

static entry *put_in(entries *all, const char *name, int id)
{
    entry *e = find(all, name);
    if (!e) {
        MUST(all->n < MAX_ENTRIES);
        e = &all->list[all->n++];
    }
    *e = (entry){.node = id};
    strcpy(e->name, name);
    return e;
}

static void apply_change(entries *all, const change *c)
{
    if (c->from[0])
        (void)take_out(all, c->from);
    if (c->to[0])
        (void)put_in(all, c->to, c->node);
}

static void add_change(node *dir, const char *from, const char *to, int id)
{
    MUST(dir->n_changes < MAX_CHANGES);
    change *c = &dir->changes[dir->n_changes++];
    *c = (change){.node = id};
    strcpy(c->from, from);
    strcpy(c->to, to);
}

/* ---- bytes ---- */

static void put_bytes(uint8_t **data, size_t *size, uint64_t offset, const uint8_t *from, size_t n)
{
    if (offset + n > *size) {
        *data = realloc(*data, offset + n);
        MUST(*data);
        memset(*data + *size, 0, offset + n - *size);
        *size = offset + n;
    }
    memcpy(*data + offset, from, n);
}

static void make_write_sure(node *f)
{
    const journal_event *w = f->writes[0];
    put_bytes(&f->data, &f->size, w->offset, w->data, w->size);
    f->n_writes--;
    memmove(f->writes, f->writes + 1, f->n_writes * sizeof(f->writes[0]));
}

/* ---- events ---- */

static node *node_at(const crash_disk *disk, int id)
{
    MUST(id >= 0 && id < disk->n_nodes);
    return disk->nodes[id];
}

crash_disk *crash_disk_create(void)
{
    crash_disk *disk = calloc(1, sizeof(*disk));
    disk->n_nodes = journal_n_nodes();
    disk->nodes = calloc((size_t)disk->n_nodes, sizeof(*disk->nodes));
    for (int i = 0; i < disk->n_nodes; i++)
        disk->nodes[i] = calloc(1, sizeof(node));
    disk->nodes[0]->is_dir = true;
    return disk;
}

void crash_disk_destroy(crash_disk *disk)
{
    for (int i = 0; i < disk->n_nodes; i++) {
        free(disk->nodes[i]->data);
        free(disk->nodes[i]);
    }
    free(disk->nodes);
    free(disk);
}

static void apply_rename(crash_disk *disk, const journal_event *e)
{
    node *from = node_at(disk, e->dir), *to = node_at(disk, e->to_dir);
    int   id = take_out(&from->now, e->name);
    if (id < 0)
        return;
    put_in(&to->now, e->to_name, id)->epoch = e->epoch;
    if (from == to) {
        add_change(from, e->name, e->to_name, id);
    } else {
        add_change(to, "", e->to_name, id);
        add_change(from, e->name, "", id);
    }
}

static void apply_sync(node *n)
{
    if (n->is_dir) {
        for (size_t i = 0; i < n->n_changes; i++)
            apply_change(&n->sure, &n->changes[i]);
        n->n_changes = 0;
    }
    while (n->n_writes > 0)
        make_write_sure(n);
}

static bool is_page(const char *name)
{
    size_t size = strlen(name);
    return size > 5 && (strcmp(name + size - 5, ".page") == 0 || strcmp(name + size - 5, ".ckpt") == 0);
}

static void apply_promise(crash_disk *disk, int epoch)
{
    for (int i = 0; i < disk->n_nodes; i++) {
        entries *now = &disk->nodes[i]->now;
        for (size_t j = 0; j < now->n; j++)
            now->list[j].promised |= now->list[j].epoch == epoch && is_page(now->list[j].name);
    }
}

static void apply_write(node *f, const journal_event *e)
{
    if (f->n_writes == MAX_WRITES)
        make_write_sure(f);
    f->writes[f->n_writes++] = e;
}

const char *crash_disk_apply(crash_disk *disk, size_t i)
{
    static const char *const names[] = {
#define X(name) #name,
        JOURNAL_TYPES(X)
#undef X
    };
    const journal_event *e = journal_event_at(i);
    switch (e->type) {
    case JOURNAL_CREATE:
    case JOURNAL_MKDIR:
        node_at(disk, e->node)->is_dir = e->type == JOURNAL_MKDIR;
        put_in(&node_at(disk, e->dir)->now, e->name, e->node)->epoch = -1;
        add_change(node_at(disk, e->dir), "", e->name, e->node);
        break;
    case JOURNAL_WRITE:
        apply_write(node_at(disk, e->node), e);
        break;
    case JOURNAL_SYNC:
        apply_sync(node_at(disk, e->node));
        break;
    case JOURNAL_RENAME:
        apply_rename(disk, e);
        break;
    case JOURNAL_LINK:
        put_in(&node_at(disk, e->to_dir)->now, e->to_name, e->node)->epoch = e->epoch;
        add_change(node_at(disk, e->to_dir), "", e->to_name, e->node);
        break;
    case JOURNAL_REMOVE:
        (void)take_out(&node_at(disk, e->dir)->now, e->name);
        add_change(node_at(disk, e->dir), e->name, "", -1);
        break;
    case JOURNAL_ROT: {
        node *f = node_at(disk, e->node);
        put_bytes(&f->data, &f->size, e->offset, e->data, e->size);
        break;
    }
    case JOURNAL_PROMISE:
        apply_promise(disk, e->epoch);
        break;
    }
    return names[e->type];
}

/* ---- outcomes ---- */

typedef struct fate {
    uint64_t state;   /* xorshift64 */
    uint32_t keep;    /* of 100 pending writes this many are kept */
    uint32_t names;   /* of 100 pending changes of a folder */
    bool     garbles; /* of the others some are torn or garbled, else all dropped */
} fate;

static uint32_t roll(fate *f, uint32_t n)
{
    f->state ^= f->state << 13;
    f->state ^= f->state >> 7;
    f->state ^= f->state << 17;
    return (uint32_t)(f->state >> 33) % n;
}

static fate fate_of(uint64_t seed)
{
    static const uint32_t odds[] = {50, 90, 10, 70, 100, 0};
    fate                  f = {.state = seed * UINT64_C(0x9E3779B97F4A7C15) | 1};
    if (seed < 3) {
        f.keep = seed == 1 ? 100 : 0;
        f.names = seed == 0 ? 0 : 100;
        return f;
    }
    f.garbles = true;
    f.keep = f.names = odds[roll(&f, sizeof(odds) / sizeof(odds[0]))];
    return f;
}

/* Sectors of the file, not of the write: what a disk writes as a whole. */
static void put_sectors(fate *fate, uint8_t **data, size_t *size, const journal_event *w)
{
    for (size_t at = 0; at < w->size;) {
        size_t n = SECTOR - (size_t)((w->offset + at) % SECTOR);
        n = n < w->size - at ? n : w->size - at;
        if (roll(fate, 2))
            put_bytes(data, size, w->offset + at, w->data + at, n);
        at += n;
    }
}

static void put_garbled(fate *fate, uint8_t **data, size_t *size, const journal_event *w)
{
    uint8_t *copy = malloc(w->size);
    memcpy(copy, w->data, w->size);
    size_t from = roll(fate, (uint32_t)w->size), n = 1 + roll(fate, (uint32_t)(w->size - from));
    for (size_t i = 0; i < n; i++)
        copy[from + i] = (uint8_t)roll(fate, 256);
    put_bytes(data, size, w->offset, copy, w->size);
    free(copy);
}

static void put_pending(fate *fate, uint8_t **data, size_t *size, const journal_event *w)
{
    if (roll(fate, 100) < fate->keep) {
        put_bytes(data, size, w->offset, w->data, w->size);
        return;
    }
    switch (fate->garbles ? roll(fate, 4) : 0) {
    case 1:
        put_bytes(data, size, w->offset, w->data, roll(fate, (uint32_t)w->size + 1));
        break;
    case 2:
        put_sectors(fate, data, size, w);
        break;
    case 3:
        put_garbled(fate, data, size, w);
        break;
    default:
        break; /* dropped */
    }
}

static void write_file(const node *f, const char *path, fate *fate)
{
    size_t   size = f->size;
    uint8_t *data = malloc(size + 1);
    if (size)
        memcpy(data, f->data, size);
    for (size_t i = 0; i < f->n_writes; i++)
        put_pending(fate, &data, &size, f->writes[i]);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    MUST(fd >= 0);
    ssize_t n = pwrite(fd, data, size, 0);
    MUST(n == (ssize_t)size);
    close(fd);
    free(data);
}

static void write_dir(const crash_disk *disk, const node *dir, const char *path, fate *fate)
{
    entries *all = malloc(sizeof(*all));
    *all = dir->sure;
    for (size_t i = 0; i < dir->n_changes; i++)
        if (roll(fate, 100) < fate->names)
            apply_change(all, &dir->changes[i]);
    for (size_t i = 0; i < all->n; i++) {
        char  child[4096];
        node *n = node_at(disk, all->list[i].node);
        snprintf(child, sizeof(child), "%s/%s", path, all->list[i].name);
        if (n->is_dir) {
            int result = mkdir(child, 0700);
            MUST(result == 0);
            write_dir(disk, n, child, fate);
        } else {
            write_file(n, child, fate);
        }
    }
    free(all);
}

void crash_materialise(const crash_disk *disk, const char *path, uint64_t seed)
{
    fate fate = fate_of(seed);
    write_dir(disk, disk->nodes[0], path, &fate);
}

static void promises_in(const crash_disk *disk, const node *dir, const char *path, crash_promise_fn fn, void *ctx)
{
    for (size_t i = 0; i < dir->now.n; i++) {
        char         child[4096];
        const entry *e = &dir->now.list[i];
        snprintf(child, sizeof(child), "%s%s%s", path, path[0] ? "/" : "", e->name);
        if (node_at(disk, e->node)->is_dir)
            promises_in(disk, node_at(disk, e->node), child, fn, ctx);
        else if (e->promised)
            fn(ctx, child);
    }
}

void crash_promises(const crash_disk *disk, crash_promise_fn fn, void *ctx)
{
    promises_in(disk, disk->nodes[0], "", fn, ctx);
}
