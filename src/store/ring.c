/* ring.c - see ring.h. */
#include "store/ring.h"

#include "base/bytes.h"
#include "base/digest.h"
#include "os/file.h"
#include "tier/root.h"

#include <string.h>

enum { AT_WHEN = CAIRN__PAGE_NAME_KEY_SIZE, AT_CHECK = AT_WHEN + 8 };
_Static_assert(AT_CHECK + 8 == CAIRN__RING_ENTRY_SIZE, "an entry has no gaps");

static void checksum(const uint8_t *entry, uint8_t ret_check[8])
{
    cairn__xxh128 sum = cairn__xxh3_128(entry, AT_CHECK);
    memcpy(ret_check, sum.bytes, 8);
}

static bool read_entry(const uint8_t *entry, int64_t *ret_when_s)
{
    uint8_t check[8];
    checksum(entry, check);
    if (memcmp(entry + AT_CHECK, check, sizeof(check)) != 0)
        return false;
    *ret_when_s = (int64_t)cairn__get_u64(entry + AT_WHEN);
    return true;
}

bool cairn__ring_get(const uint8_t ring[CAIRN__RING_SIZE], const uint8_t key[CAIRN__PAGE_NAME_KEY_SIZE],
                     int64_t *ret_when_s)
{
    bool found = false;
    for (uint32_t i = 0; i < CAIRN__RING_ENTRIES; i++) {
        const uint8_t *entry = ring + i * CAIRN__RING_ENTRY_SIZE;
        int64_t        when_s;
        if (memcmp(entry, key, CAIRN__PAGE_NAME_KEY_SIZE) != 0 || !read_entry(entry, &when_s) ||
            (found && when_s <= *ret_when_s))
            continue;
        *ret_when_s = when_s;
        found = true;
    }
    return found;
}

/* The key's own place, a free or damaged one, or the oldest. */
static uint32_t choose(const uint8_t *ring, const uint8_t *key)
{
    uint32_t best = 0;
    int64_t  best_s = INT64_MAX;
    for (uint32_t i = 0; i < CAIRN__RING_ENTRIES; i++) {
        const uint8_t *entry = ring + i * CAIRN__RING_ENTRY_SIZE;
        int64_t        when_s;
        if (memcmp(entry, key, CAIRN__PAGE_NAME_KEY_SIZE) == 0)
            return i;
        if (!read_entry(entry, &when_s))
            when_s = INT64_MIN;
        if (when_s < best_s) {
            best_s = when_s;
            best = i;
        }
    }
    return best;
}

void cairn__ring_put(uint8_t ring[CAIRN__RING_SIZE], const uint8_t key[CAIRN__PAGE_NAME_KEY_SIZE], int64_t when_s)
{
    uint8_t *entry = ring + choose(ring, key) * CAIRN__RING_ENTRY_SIZE;
    memcpy(entry, key, CAIRN__PAGE_NAME_KEY_SIZE);
    cairn__put_u64(entry + AT_WHEN, (uint64_t)when_s);
    checksum(entry, entry + AT_CHECK);
}

/* ---- the file ---- */

uint32_t cairn__ring_file_size(uint64_t budget_bytes)
{
    uint64_t size = budget_bytes / 256;
    return size < CAIRN__RING_FILE_MAX ? (uint32_t)(size / CAIRN__RING_FILE_STEP * CAIRN__RING_FILE_STEP)
                                       : CAIRN__RING_FILE_MAX;
}

static cairn_status write_zeros(int fd, uint32_t size)
{
    static const uint8_t zeros[CAIRN__RING_FILE_STEP];
    cairn_status         status = CAIRN_OK;
    for (uint32_t at = 0; at < size && !status; at += sizeof(zeros))
        status = cairn__write_at(fd, zeros, sizeof(zeros), at);
    return status;
}

/* All blocks at once, so that no write to it later takes room that nobody reserved. */
cairn_status cairn__ring_create(int root_fd, uint32_t size, uint64_t *ret_bytes)
{
    char             temp[CAIRN__TEMP_NAME_SIZE];
    cairn__file_info info = {.disk_bytes = size};
    int              fd = -1;
    *ret_bytes = 0;
    cairn__temp_name(temp);
    cairn_status status = cairn__create_new(root_fd, temp, &fd);
    if (!status)
        status = cairn__lock_range(fd, 0, 1, false);
    if (!status)
        status = write_zeros(fd, size);
    if (!status)
        status = cairn__sync_data(fd); /* blocks are counted when they are there */
    if (!status)
        status = cairn__rename_new(root_fd, temp, CAIRN__RING_FILE);
    if (!status || (fd >= 0 && cairn__unlink(root_fd, temp) != CAIRN_OK)) {
        if (cairn__fstat(fd, &info) != CAIRN_OK)
            info.disk_bytes = size;
        *ret_bytes = info.disk_bytes;
    }
    cairn__close(fd);
    return status == CAIRN_EBUSY ? CAIRN_OK : status;
}

cairn_status cairn__ring_open(int root_fd, bool write, int *ret_fd, uint32_t *ret_n_rings)
{
    cairn__file_info info;
    int              fd = -1;
    cairn_status     status = cairn__stat(root_fd, CAIRN__RING_FILE, &info);
    if (!status) /* never made by opening it: a name that vanishes in between makes an empty one, which is none */
        status = write ? cairn__open_shared(root_fd, CAIRN__RING_FILE, &fd)
                       : cairn__open_read(root_fd, CAIRN__RING_FILE, &fd);
    if (!status)
        status = cairn__fstat(fd, &info);
    if (!status && (!info.is_regular || info.size_bytes == 0 || info.size_bytes > CAIRN__RING_FILE_MAX ||
                    info.size_bytes % CAIRN__RING_FILE_STEP != 0))
        status = CAIRN_ENOENT;
    if (status) {
        cairn__close(fd);
        return status;
    }
    *ret_fd = fd;
    *ret_n_rings = (uint32_t)info.size_bytes / CAIRN__RING_SIZE;
    return CAIRN_OK;
}

/* Keys are cryptographic hashes: any of their bits will do. */
static uint64_t offset_of(const uint8_t *key, uint32_t n_rings)
{
    return (uint64_t)(cairn__get_u32(key) % n_rings) * CAIRN__RING_SIZE;
}

void cairn__ring_note(int fd, uint32_t n_rings, const uint8_t key[CAIRN__PAGE_NAME_KEY_SIZE], int64_t now_s)
{
    uint8_t  ring[CAIRN__RING_SIZE];
    uint64_t offset = offset_of(key, n_rings);
    if (cairn__read_at(fd, ring, sizeof(ring), offset) != CAIRN_OK)
        return;
    cairn__ring_put(ring, key, now_s);
    (void)!cairn__write_at(fd, ring, sizeof(ring), offset);
}

bool cairn__ring_find(int root_fd, const uint8_t key[CAIRN__PAGE_NAME_KEY_SIZE], int64_t *ret_when_s)
{
    uint8_t  ring[CAIRN__RING_SIZE];
    uint32_t n_rings;
    int      fd;
    if (cairn__ring_open(root_fd, false, &fd, &n_rings) != CAIRN_OK)
        return false;
    bool found = cairn__read_at(fd, ring, sizeof(ring), offset_of(key, n_rings)) == CAIRN_OK &&
                 cairn__ring_get(ring, key, ret_when_s);
    cairn__close(fd);
    return found;
}
