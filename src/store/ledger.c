/* ledger.c - see ledger.h; layout in docs/format.md.
 *
 * Each change is a transaction: lock, read the block, change it in memory, write
 * it with one pwrite, unlock. A process that is killed in between has written all
 * of it or nothing, since one write of one page-cache page is not torn by a
 * signal. A power cut can tear or lose it: a checksum covers the block, and the
 * id of the boot tells that the pages on disk may not be those of the ledger.
 *
 * What this process has reserved is also kept in memory, which is the truth about
 * it: if somebody deletes or damages the file, the next transaction makes a new
 * one with our reservation in it, and `used` unknown until a count. */
#include "store/ledger.h"

#include "base/bytes.h"
#include "base/digest.h"
#include "os/clock.h"
#include "os/file.h"
#include "store/ledger_image.h"
#include "tier/root.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* How long to wait for other processes' transactions, which take microseconds: a
 * process stopped in the middle of one must not stop us. */
#define LOCK_WAIT_NS (UINT64_C(2) * 1000 * 1000 * 1000)

struct cairn__ledger {
    pthread_mutex_t lock;
    int             root_fd, fd;
    uint64_t        dev, inode;
    uint64_t        boot_id;
    bool            booted; /* boot_id was compared */
    int             slot;   /* -1: none */
    uint64_t        reserved;
    uint64_t        owed;       /* to be added to used, could not be written yet */
    bool            overstated; /* something freed could not be written */
    uint64_t        last_count; /* as last seen */
    uint64_t        unwritten;  /* to be taken off the day's bytes */
    uint64_t        written;    /* of `day`, as last seen: outlives the file */
    uint32_t        day;
    uint32_t        restore_ps; /* as last seen */

    atomic_uint_fast64_t total; /* likewise; read without the lock */
};

static uint64_t minus(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

/* ---- slots ---- */

static bool lock_slot(const cairn__ledger *ledger, uint32_t i)
{
    return cairn__lock_range(ledger->fd, CAIRN__LEDGER_HEADER_SIZE + (uint64_t)i * CAIRN__LEDGER_SLOT_SIZE,
                             CAIRN__LEDGER_SLOT_SIZE, false) == CAIRN_OK;
}

static void unlock_slot(const cairn__ledger *ledger, uint32_t i)
{
    cairn__unlock_range(ledger->fd, CAIRN__LEDGER_HEADER_SIZE + (uint64_t)i * CAIRN__LEDGER_SLOT_SIZE,
                        CAIRN__LEDGER_SLOT_SIZE);
}

static bool is_alive(const cairn__ledger *ledger, uint32_t i)
{
    if ((int)i == ledger->slot)
        return true;
    if (i >= CAIRN__LEDGER_SLOTS || !lock_slot(ledger, i))
        return i < CAIRN__LEDGER_SLOTS;
    unlock_slot(ledger, i);
    return false;
}

/* Somebody died with this reserved: it may lie on disk as temporary files. */
static void inherit(cairn__ledger_image *im, uint32_t i)
{
    if (im->slots[i].reserved == 0)
        return;
    im->used = cairn__ledger_plus(im->used, im->slots[i].reserved);
    im->slots[i].reserved = 0;
    im->flags |= CAIRN__LEDGER_WANTED;
}

static void claim_slot(cairn__ledger *ledger, cairn__ledger_image *im)
{
    for (uint32_t i = 0; i < CAIRN__LEDGER_SLOTS && ledger->slot < 0; i++) {
        if (!lock_slot(ledger, i))
            continue;
        inherit(im, i);
        ledger->slot = (int)i;
    }
}

/* ---- transactions ---- */

static cairn_status open_file(cairn__ledger *ledger)
{
    cairn__file_info info;
    cairn_status     status = cairn__stat(ledger->root_fd, CAIRN__ROOT_LEDGER, &info);
    if (!status && ledger->fd >= 0 && info.inode == ledger->inode && info.dev == ledger->dev)
        return CAIRN_OK;
    cairn__close(ledger->fd); /* deleted or replaced under us; our slot went with it */
    ledger->fd = -1;
    ledger->slot = -1;
    status = cairn__open_shared(ledger->root_fd, CAIRN__ROOT_LEDGER, &ledger->fd);
    if (!status)
        status = cairn__fstat(ledger->fd, &info);
    if (!status && !info.is_regular)
        status = CAIRN_EIO;
    if (status) {
        cairn__close(ledger->fd);
        ledger->fd = -1;
        return status;
    }
    ledger->dev = info.dev;
    ledger->inode = info.inode;
    return CAIRN_OK;
}

static cairn_status lock_header(cairn__ledger *ledger)
{
    uint64_t     deadline = cairn__monotonic_ns() + LOCK_WAIT_NS;
    cairn_status status;
    while ((status = cairn__lock_range(ledger->fd, 0, CAIRN__LEDGER_HEADER_SIZE, false)) == CAIRN_EBUSY) {
        if (cairn__monotonic_ns() > deadline)
            return CAIRN_EIO;
        nanosleep(&(struct timespec){.tv_nsec = 200 * 1000}, NULL);
    }
    return status;
}

static uint32_t today(void)
{
    return (uint32_t)(cairn__wall_seconds() / 86400);
}

static void see_wear(cairn__ledger *ledger, cairn__ledger_image *im, bool good)
{
    uint32_t day = today();
    if (!good) { /* the file was lost, not what is known of it */
        im->day = ledger->day;
        im->written_today = ledger->written;
        im->restore_ps_per_byte = ledger->restore_ps;
    }
    if (im->day != day) {
        im->day = day;
        im->written_today = 0;
    }
}

static void load(cairn__ledger *ledger, cairn__ledger_image *im)
{
    uint8_t buf[CAIRN__LEDGER_SIZE];
    memset(im, 0, sizeof(*im)); /* new or damaged: used is unknown */
    bool good = cairn__read_at(ledger->fd, buf, sizeof(buf), 0) == CAIRN_OK && cairn__ledger_decode(buf, im);
    /* Asked once: two hosts that share a root would else count for ever. */
    if (!good || (!ledger->booted && im->boot_id != ledger->boot_id)) {
        im->flags &= ~CAIRN__LEDGER_KNOWN;
        im->boot_id = ledger->boot_id;
    }
    ledger->booted = true;
    see_wear(ledger, im, good);
    if (ledger->slot < 0)
        claim_slot(ledger, im);
    if (ledger->slot >= 0)
        im->slots[ledger->slot] = (cairn__ledger_slot){ledger->reserved, (uint32_t)getpid()};
}

/* On CAIRN_OK the mutex and the header's lock are held; end with finish(). */
static cairn_status begin(cairn__ledger *ledger, cairn__ledger_image *im)
{
    pthread_mutex_lock(&ledger->lock);
    cairn_status status = open_file(ledger);
    if (!status)
        status = lock_header(ledger);
    if (status) {
        pthread_mutex_unlock(&ledger->lock);
        return status;
    }
    load(ledger, im);
    return CAIRN_OK;
}

static void apply_owed(const cairn__ledger *ledger, cairn__ledger_image *im)
{
    im->used = cairn__ledger_plus(im->used, ledger->owed);
    if (im->count_id)
        im->count_added = cairn__ledger_plus(im->count_added, ledger->owed);
    if (ledger->overstated)
        im->flags |= CAIRN__LEDGER_WANTED;
    im->written_today = minus(im->written_today, ledger->unwritten);
}

static void see(cairn__ledger *ledger, const cairn__ledger_image *im)
{
    atomic_store(&ledger->total, cairn__ledger_image_total(im));
    ledger->last_count = im->last_count;
    ledger->written = im->written_today;
    ledger->day = im->day;
    ledger->restore_ps = im->restore_ps_per_byte;
}

static cairn_status write_image(cairn__ledger *ledger, cairn__ledger_image *im)
{
    uint8_t buf[CAIRN__LEDGER_SIZE];
    if (ledger->slot >= 0)
        im->slots[ledger->slot].reserved = ledger->reserved;
    apply_owed(ledger, im);
    cairn__ledger_encode(im, buf);
    cairn_status status = cairn__write_at(ledger->fd, buf, sizeof(buf), 0);
    if (!status) { /* else what is owed may be added twice, which is too much and no harm */
        ledger->owed = 0;
        ledger->overstated = false;
        ledger->unwritten = 0;
        see(ledger, im);
    }
    return status;
}

static void unlock(cairn__ledger *ledger)
{
    cairn__unlock_range(ledger->fd, 0, CAIRN__LEDGER_HEADER_SIZE);
    pthread_mutex_unlock(&ledger->lock);
}

static cairn_status finish(cairn__ledger *ledger, cairn__ledger_image *im)
{
    cairn_status status = write_image(ledger, im);
    unlock(ledger);
    return status;
}

/* ---- opening ---- */

/* Differs between two boots of a machine; 0 where the kernel does not tell. */
static uint64_t read_boot_id(void)
{
    char     text[36];
    int      fd = -1;
    uint64_t id = 0;
    if (cairn__open_read(AT_FDCWD, "/proc/sys/kernel/random/boot_id", &fd) == CAIRN_OK &&
        cairn__read_at(fd, text, sizeof(text), 0) == CAIRN_OK) {
        cairn__xxh128 sum = cairn__xxh3_128(text, sizeof(text));
        id = cairn__get_u64(sum.bytes);
    }
    cairn__close(fd);
    return id;
}

cairn_status cairn__ledger_open(int root_fd, cairn__ledger **ret_ledger)
{
    cairn__ledger_image im;
    cairn__ledger      *ledger = calloc(1, sizeof(*ledger));
    if (!ledger)
        return CAIRN_ENOMEM;
    pthread_mutex_init(&ledger->lock, NULL);
    ledger->root_fd = root_fd;
    ledger->fd = -1;
    ledger->slot = -1;
    ledger->boot_id = read_boot_id();
    cairn_status status = begin(ledger, &im);
    if (!status)
        status = finish(ledger, &im);
    if (status) {
        cairn__close(ledger->fd);
        pthread_mutex_destroy(&ledger->lock);
        free(ledger);
        return status;
    }
    *ret_ledger = ledger;
    return CAIRN_OK;
}

void cairn__ledger_close(cairn__ledger *ledger)
{
    cairn__ledger_image im;
    if (!ledger)
        return;
    ledger->reserved = 0;
    if (begin(ledger, &im) == CAIRN_OK)
        (void)!finish(ledger, &im);
    cairn__close(ledger->fd); /* and with it the slot's lock */
    pthread_mutex_destroy(&ledger->lock);
    free(ledger);
}

/* ---- changes ---- */

cairn_status cairn__ledger_reserve(cairn__ledger *ledger, uint64_t bytes, const cairn__ledger_limits *limits,
                                   uint64_t *ret_missing)
{
    cairn__ledger_image im;
    cairn_status        status = begin(ledger, &im);
    if (status)
        return CAIRN_EIO;
    uint64_t wanted = cairn__ledger_plus(cairn__ledger_image_total(&im), bytes);
    if (ledger->slot < 0)
        status = CAIRN_EIO; /* more processes than slots */
    else if (!(im.flags & CAIRN__LEDGER_KNOWN))
        status = CAIRN_EBUSY;
    else if (limits->day_bytes && cairn__ledger_plus(im.written_today, bytes) > limits->day_bytes)
        status = CAIRN_EACCES; /* before the budget: else something is evicted for nothing */
    else if (wanted > limits->budget_bytes) {
        status = CAIRN_ENOSPC;
        *ret_missing = wanted - limits->budget_bytes;
    } else {
        ledger->reserved += bytes;
        im.written_today = cairn__ledger_plus(im.written_today, bytes);
    }
    if (write_image(ledger, &im) != CAIRN_OK && !status) {
        ledger->reserved -= bytes; /* nobody else can know of it */
        status = CAIRN_EIO;
    }
    unlock(ledger);
    return status;
}

void cairn__ledger_commit(cairn__ledger *ledger, uint64_t reserved_bytes, uint64_t used_bytes)
{
    cairn__ledger_image im;
    pthread_mutex_lock(&ledger->lock);
    ledger->reserved = minus(ledger->reserved, reserved_bytes);
    ledger->owed = cairn__ledger_plus(ledger->owed, used_bytes);
    ledger->unwritten = cairn__ledger_plus(ledger->unwritten, minus(reserved_bytes, used_bytes));
    pthread_mutex_unlock(&ledger->lock);
    if (begin(ledger, &im) == CAIRN_OK)
        (void)!finish(ledger, &im);
}

static void note_overstated(cairn__ledger *ledger)
{
    pthread_mutex_lock(&ledger->lock);
    ledger->overstated = true;
    pthread_mutex_unlock(&ledger->lock);
}

void cairn__ledger_freed(cairn__ledger *ledger, uint64_t bytes, uint64_t last_count)
{
    cairn__ledger_image im;
    if (!bytes)
        return;
    if (begin(ledger, &im) != CAIRN_OK) {
        note_overstated(ledger);
        return;
    }
    if (im.last_count == last_count)
        im.used = minus(im.used, bytes);
    else
        im.flags |= CAIRN__LEDGER_WANTED; /* used is of a count that may have missed them: not twice */
    if (finish(ledger, &im) != CAIRN_OK)
        note_overstated(ledger);
}

void cairn__ledger_freed_unsure(cairn__ledger *ledger)
{
    cairn__ledger_image im;
    note_overstated(ledger);
    if (begin(ledger, &im) == CAIRN_OK)
        (void)!finish(ledger, &im);
}

/* ---- counting ---- */

bool cairn__ledger_wants_count(cairn__ledger *ledger)
{
    cairn__ledger_image im;
    if (begin(ledger, &im) != CAIRN_OK)
        return false;
    for (uint32_t i = 0; i < CAIRN__LEDGER_SLOTS; i++)
        if (im.slots[i].reserved && !is_alive(ledger, i))
            inherit(&im, i);
    bool wanted = !(im.flags & CAIRN__LEDGER_KNOWN) || (im.flags & CAIRN__LEDGER_WANTED);
    (void)!finish(ledger, &im);
    return wanted;
}

cairn_status cairn__ledger_count_begin(cairn__ledger *ledger, uint64_t *ret_count_id)
{
    cairn__ledger_image im;
    cairn_status        status = begin(ledger, &im);
    if (status)
        return CAIRN_EIO;
    if (ledger->slot < 0)
        status = CAIRN_EIO;
    else if (im.count_id && (int)im.count_slot != ledger->slot && is_alive(ledger, im.count_slot))
        status = CAIRN_EBUSY;
    if (!status) {
        for (uint32_t i = 0; i < CAIRN__LEDGER_SLOTS; i++)
            if (im.slots[i].reserved && !is_alive(ledger, i))
                inherit(&im, i);
        do
            cairn__random_bytes(&im.count_id, sizeof(im.count_id));
        while (im.count_id == 0);
        im.count_slot = (uint32_t)ledger->slot;
        im.count_added = 0;
        *ret_count_id = im.count_id;
    }
    cairn_status written = finish(ledger, &im);
    return status ? status : written;
}

/* What was written during the count was added, or will be, and the walk may have met it. */
static bool met_twice(const cairn__ledger_image *im)
{
    bool may = im->count_added > 0;
    for (uint32_t i = 0; i < CAIRN__LEDGER_SLOTS; i++)
        may |= im->slots[i].reserved > 0;
    return may;
}

void cairn__ledger_count_end(cairn__ledger *ledger, uint64_t count_id, uint64_t total_bytes, bool complete)
{
    cairn__ledger_image im;
    if (begin(ledger, &im) != CAIRN_OK)
        return;
    if (im.count_id == count_id) {
        im.count_id = 0;
        if (complete) {
            im.used = cairn__ledger_plus(total_bytes, im.count_added);
            im.flags = CAIRN__LEDGER_KNOWN;
            if (met_twice(&im))
                im.flags |= CAIRN__LEDGER_WANTED;
            im.last_count = count_id;
        }
    }
    (void)!finish(ledger, &im);
}

/* Without the lock, so of a file that may be half written: then as last seen. */
static void look(cairn__ledger *ledger)
{
    uint8_t             buf[CAIRN__LEDGER_SIZE];
    cairn__ledger_image im;
    if (ledger->fd < 0 || cairn__read_at(ledger->fd, buf, sizeof(buf), 0) != CAIRN_OK ||
        !cairn__ledger_decode(buf, &im))
        return;
    see(ledger, &im);
}

/* Whoever asks for numbers must not wait for a disk that hangs under a transaction. */
uint64_t cairn__ledger_total(cairn__ledger *ledger)
{
    if (pthread_mutex_trylock(&ledger->lock) == 0) {
        look(ledger);
        pthread_mutex_unlock(&ledger->lock);
    }
    return atomic_load(&ledger->total);
}

uint64_t cairn__ledger_last_count(cairn__ledger *ledger)
{
    pthread_mutex_lock(&ledger->lock);
    look(ledger);
    uint64_t last_count = ledger->last_count;
    pthread_mutex_unlock(&ledger->lock);
    return last_count;
}

uint64_t cairn__ledger_written_today(cairn__ledger *ledger)
{
    uint64_t written = 0;
    if (pthread_mutex_trylock(&ledger->lock) == 0) {
        look(ledger);
        written = ledger->day == today() ? ledger->written : 0;
        pthread_mutex_unlock(&ledger->lock);
    }
    return written;
}

uint32_t cairn__ledger_restore_ps(cairn__ledger *ledger)
{
    pthread_mutex_lock(&ledger->lock);
    look(ledger);
    uint32_t ps = ledger->restore_ps;
    pthread_mutex_unlock(&ledger->lock);
    return ps;
}

void cairn__ledger_note_restore_ps(cairn__ledger *ledger, uint32_t ps_per_byte)
{
    cairn__ledger_image im;
    if (begin(ledger, &im) != CAIRN_OK)
        return; /* the next eviction says it again */
    im.restore_ps_per_byte = ps_per_byte;
    (void)!finish(ledger, &im);
}
