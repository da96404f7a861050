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
#include "tier/root.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LEDGER_SIZE 4096u
#define LEDGER_VERSION 1u
#define HEADER_SIZE 64u
#define SLOT_SIZE 32u
#define N_SLOTS 125u
#define CHECKSUM_AT 4088u
_Static_assert(HEADER_SIZE + N_SLOTS * SLOT_SIZE <= CHECKSUM_AT, "slots end before the checksum");

#define FLAG_KNOWN 1u  /* used_bytes is not below the truth */
#define FLAG_WANTED 2u /* it is above: count when there is time */

/* How long to wait for other processes' transactions, which take microseconds: a
 * process stopped in the middle of one must not stop us. */
#define LOCK_WAIT_NS (UINT64_C(2) * 1000 * 1000 * 1000)

static const char MAGIC[8] = {'C', 'A', 'I', 'R', 'N', 'L', 'D', 'G'};

typedef struct slot {
    uint64_t reserved;
    uint32_t pid; /* for a person */
} slot;

typedef struct image {
    uint32_t flags;
    uint32_t count_slot; /* whose count is running */
    uint64_t used, count_id, count_added, boot_id;
    uint64_t last_count; /* id of the last complete one, 0: none */
    slot     slots[N_SLOTS];
} image;

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

    atomic_uint_fast64_t total; /* likewise; read without the lock */
};

/* ---- the block ---- */

static void encode(const image *im, uint8_t buf[LEDGER_SIZE])
{
    memset(buf, 0, LEDGER_SIZE);
    memcpy(buf, MAGIC, sizeof(MAGIC));
    cairn__put_u32(buf + 8, LEDGER_VERSION);
    cairn__put_u32(buf + 12, N_SLOTS);
    cairn__put_u64(buf + 16, im->used);
    cairn__put_u64(buf + 24, im->count_id);
    cairn__put_u64(buf + 32, im->count_added);
    cairn__put_u32(buf + 40, im->flags);
    cairn__put_u32(buf + 44, im->count_slot);
    cairn__put_u64(buf + 48, im->boot_id);
    cairn__put_u64(buf + 56, im->last_count);
    for (uint32_t i = 0; i < N_SLOTS; i++) {
        cairn__put_u64(buf + HEADER_SIZE + i * SLOT_SIZE, im->slots[i].reserved);
        cairn__put_u32(buf + HEADER_SIZE + i * SLOT_SIZE + 8, im->slots[i].pid);
    }
    cairn__xxh128 sum = cairn__xxh3_128(buf, CHECKSUM_AT);
    memcpy(buf + CHECKSUM_AT, sum.bytes, LEDGER_SIZE - CHECKSUM_AT);
}

static bool decode(const uint8_t buf[LEDGER_SIZE], image *im)
{
    cairn__xxh128 sum = cairn__xxh3_128(buf, CHECKSUM_AT);
    if (memcmp(buf, MAGIC, sizeof(MAGIC)) != 0 || cairn__get_u32(buf + 8) != LEDGER_VERSION ||
        cairn__get_u32(buf + 12) != N_SLOTS || memcmp(buf + CHECKSUM_AT, sum.bytes, LEDGER_SIZE - CHECKSUM_AT) != 0)
        return false;
    im->used = cairn__get_u64(buf + 16);
    im->count_id = cairn__get_u64(buf + 24);
    im->count_added = cairn__get_u64(buf + 32);
    im->flags = cairn__get_u32(buf + 40);
    im->count_slot = cairn__get_u32(buf + 44);
    im->boot_id = cairn__get_u64(buf + 48);
    im->last_count = cairn__get_u64(buf + 56);
    for (uint32_t i = 0; i < N_SLOTS; i++) {
        im->slots[i].reserved = cairn__get_u64(buf + HEADER_SIZE + i * SLOT_SIZE);
        im->slots[i].pid = cairn__get_u32(buf + HEADER_SIZE + i * SLOT_SIZE + 8);
    }
    return true;
}

/* Saturating: a number from disk must not wrap into "plenty of room". */
static uint64_t plus(uint64_t a, uint64_t b)
{
    uint64_t sum;
    return cairn__add_u64(a, b, &sum) ? sum : UINT64_MAX;
}

static uint64_t minus(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

static uint64_t total_of(const image *im)
{
    uint64_t total = im->used;
    for (uint32_t i = 0; i < N_SLOTS; i++)
        total = plus(total, im->slots[i].reserved);
    return total;
}

/* ---- slots ---- */

static bool lock_slot(const cairn__ledger *ledger, uint32_t i)
{
    return cairn__lock_range(ledger->fd, HEADER_SIZE + (uint64_t)i * SLOT_SIZE, SLOT_SIZE, false) == CAIRN_OK;
}

static void unlock_slot(const cairn__ledger *ledger, uint32_t i)
{
    cairn__unlock_range(ledger->fd, HEADER_SIZE + (uint64_t)i * SLOT_SIZE, SLOT_SIZE);
}

static bool is_alive(const cairn__ledger *ledger, uint32_t i)
{
    if ((int)i == ledger->slot)
        return true;
    if (i >= N_SLOTS || !lock_slot(ledger, i))
        return i < N_SLOTS;
    unlock_slot(ledger, i);
    return false;
}

/* Somebody died with this reserved: it may lie on disk as temporary files. */
static void inherit(image *im, uint32_t i)
{
    if (im->slots[i].reserved == 0)
        return;
    im->used = plus(im->used, im->slots[i].reserved);
    im->slots[i].reserved = 0;
    im->flags |= FLAG_WANTED;
}

static void claim_slot(cairn__ledger *ledger, image *im)
{
    for (uint32_t i = 0; i < N_SLOTS && ledger->slot < 0; i++) {
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
    while ((status = cairn__lock_range(ledger->fd, 0, HEADER_SIZE, false)) == CAIRN_EBUSY) {
        if (cairn__monotonic_ns() > deadline)
            return CAIRN_EIO;
        nanosleep(&(struct timespec){.tv_nsec = 200 * 1000}, NULL);
    }
    return status;
}

static void load(cairn__ledger *ledger, image *im)
{
    uint8_t buf[LEDGER_SIZE];
    memset(im, 0, sizeof(*im)); /* new or damaged: used is unknown */
    bool good = cairn__read_at(ledger->fd, buf, sizeof(buf), 0) == CAIRN_OK && decode(buf, im);
    /* Asked once: two hosts that share a root would else count for ever. */
    if (!good || (!ledger->booted && im->boot_id != ledger->boot_id)) {
        im->flags &= ~FLAG_KNOWN;
        im->boot_id = ledger->boot_id;
    }
    ledger->booted = true;
    if (ledger->slot < 0)
        claim_slot(ledger, im);
    if (ledger->slot >= 0)
        im->slots[ledger->slot] = (slot){ledger->reserved, (uint32_t)getpid()};
}

/* On CAIRN_OK the mutex and the header's lock are held; end with finish(). */
static cairn_status begin(cairn__ledger *ledger, image *im)
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

static void apply_owed(const cairn__ledger *ledger, image *im)
{
    im->used = plus(im->used, ledger->owed);
    if (im->count_id)
        im->count_added = plus(im->count_added, ledger->owed);
    if (ledger->overstated)
        im->flags |= FLAG_WANTED;
}

static cairn_status write_image(cairn__ledger *ledger, image *im)
{
    uint8_t buf[LEDGER_SIZE];
    if (ledger->slot >= 0)
        im->slots[ledger->slot].reserved = ledger->reserved;
    apply_owed(ledger, im);
    encode(im, buf);
    cairn_status status = cairn__write_at(ledger->fd, buf, sizeof(buf), 0);
    if (!status) { /* else what is owed may be added twice, which is too much and no harm */
        ledger->owed = 0;
        ledger->overstated = false;
        atomic_store(&ledger->total, total_of(im));
        ledger->last_count = im->last_count;
    }
    return status;
}

static void unlock(cairn__ledger *ledger)
{
    cairn__unlock_range(ledger->fd, 0, HEADER_SIZE);
    pthread_mutex_unlock(&ledger->lock);
}

static cairn_status finish(cairn__ledger *ledger, image *im)
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
    image          im;
    cairn__ledger *ledger = calloc(1, sizeof(*ledger));
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
    image im;
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

cairn_status cairn__ledger_reserve(cairn__ledger *ledger, uint64_t bytes, uint64_t budget_bytes, uint64_t *ret_missing)
{
    image        im;
    cairn_status status = begin(ledger, &im);
    if (status)
        return CAIRN_EIO;
    uint64_t wanted = plus(total_of(&im), bytes);
    if (ledger->slot < 0)
        status = CAIRN_EIO; /* more processes than slots */
    else if (!(im.flags & FLAG_KNOWN))
        status = CAIRN_EBUSY;
    else if (wanted > budget_bytes) {
        status = CAIRN_ENOSPC;
        *ret_missing = wanted - budget_bytes;
    } else
        ledger->reserved += bytes;
    if (write_image(ledger, &im) != CAIRN_OK && !status) {
        ledger->reserved -= bytes; /* nobody else can know of it */
        status = CAIRN_EIO;
    }
    unlock(ledger);
    return status;
}

void cairn__ledger_commit(cairn__ledger *ledger, uint64_t reserved_bytes, uint64_t used_bytes)
{
    image im;
    pthread_mutex_lock(&ledger->lock);
    ledger->reserved = minus(ledger->reserved, reserved_bytes);
    ledger->owed = plus(ledger->owed, used_bytes);
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
    image im;
    if (!bytes)
        return;
    if (begin(ledger, &im) != CAIRN_OK) {
        note_overstated(ledger);
        return;
    }
    if (im.last_count == last_count)
        im.used = minus(im.used, bytes);
    else
        im.flags |= FLAG_WANTED; /* used is of a count that may have missed them: not twice */
    if (finish(ledger, &im) != CAIRN_OK)
        note_overstated(ledger);
}

/* ---- counting ---- */

bool cairn__ledger_wants_count(cairn__ledger *ledger)
{
    image im;
    if (begin(ledger, &im) != CAIRN_OK)
        return false;
    for (uint32_t i = 0; i < N_SLOTS; i++)
        if (im.slots[i].reserved && !is_alive(ledger, i))
            inherit(&im, i);
    bool wanted = !(im.flags & FLAG_KNOWN) || (im.flags & FLAG_WANTED);
    (void)!finish(ledger, &im);
    return wanted;
}

cairn_status cairn__ledger_count_begin(cairn__ledger *ledger, uint64_t *ret_count_id)
{
    image        im;
    cairn_status status = begin(ledger, &im);
    if (status)
        return CAIRN_EIO;
    if (ledger->slot < 0)
        status = CAIRN_EIO;
    else if (im.count_id && (int)im.count_slot != ledger->slot && is_alive(ledger, im.count_slot))
        status = CAIRN_EBUSY;
    if (!status) {
        for (uint32_t i = 0; i < N_SLOTS; i++)
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

void cairn__ledger_count_end(cairn__ledger *ledger, uint64_t count_id, uint64_t total_bytes, bool complete)
{
    image im;
    if (begin(ledger, &im) != CAIRN_OK)
        return;
    if (im.count_id == count_id) {
        im.count_id = 0;
        if (complete) {
            im.used = plus(total_bytes, im.count_added);
            im.flags = FLAG_KNOWN;
            im.last_count = count_id;
        }
    }
    (void)!finish(ledger, &im);
}

/* Without the lock, so of a file that may be half written: then as last seen. */
static void look(cairn__ledger *ledger)
{
    uint8_t buf[LEDGER_SIZE];
    image   im;
    if (ledger->fd < 0 || cairn__read_at(ledger->fd, buf, sizeof(buf), 0) != CAIRN_OK || !decode(buf, &im))
        return;
    atomic_store(&ledger->total, total_of(&im));
    ledger->last_count = im.last_count;
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
