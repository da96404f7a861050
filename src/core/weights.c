/* weights.c - the digest that says which model KV was computed with.
 *
 *     file    = SHA-256("cairn file 1\0" | u64le size | SHA-256 of each 16 MiB chunk, in order)
 *     weights = SHA-256("cairn weights 1\0" | u32le n | file of each shard, in order)
 *
 * A plain SHA-256 of a file is one chain and takes one core (1.3 GB/s); chunks
 * are independent. Twice as many chunks as threads are in flight, and the
 * caller takes their digests in order: while it waits it hashes chunks itself.
 * Each task reads 256 KiB at a time, so that what it hashes is still in the
 * core's cache and memory stays small on machines with many cores.
 *
 * A file that changes underneath gives an error, not a digest: size, times and
 * inode are compared before and after, and the path must still lead there. */
#include "cairn/identity.h"

#include "base/bytes.h"
#include "base/digest.h"
#include "core/weights_cache.h"
#include "os/clock.h"
#include "os/file.h"
#include "os/pool.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK_SIZE (UINT64_C(16) << 20) /* part of the format: see docs/format.md */
/* Fits a core's L2 cache beside the hash's own state. Guess, unmeasured. */
#define READ_SIZE ((size_t)256 << 10)
#define N_THREADS_MAX 256u
#define N_PATHS_MAX 4096u /* bounds the descriptors held open; split models have up to some hundred shards */
#define PROGRESS_NS UINT64_C(100000000)

typedef struct shard {
    const char      *path;
    int              fd;
    cairn__file_info info;
    cairn_digest     digest;
    bool             known; /* digest came from the cache */
} shard;

typedef struct work {
    const cairn_weights_request *request;
    cairn_error                 *error;
    shard                       *shards; /* [request->n_paths] */
    struct slot                 *slots;  /* [n_slots] */
    uint32_t                     n_slots;
    cairn__pool                 *pool;
    int                          cache_fd;
    uint64_t                     total_bytes, done_bytes;
    uint64_t                     progress_at_ns; /* next call not before; 0: at once */
    atomic_bool                  stop;
} work;

/* One chunk in flight. `task` is first, so that run() gets the slot back. */
typedef struct slot {
    cairn__task  task;
    work        *work;
    uint8_t     *buf; /* [READ_SIZE] */
    int          fd;
    uint64_t     offset, size;
    cairn_digest digest;
    cairn_status status;
} slot;

__attribute__((format(printf, 3, 4))) static cairn_status fail(const work *w, cairn_status status, const char *format,
                                                               ...)
{
    va_list args;
    if (w->error) {
        va_start(args, format);
        vsnprintf(w->error->text, sizeof(w->error->text), format, args);
        va_end(args);
    }
    return status;
}

static cairn_status open_shard(const work *w, shard *s)
{
    if (cairn__open_user_file(s->path, &s->fd) || cairn__fstat(s->fd, &s->info))
        return fail(w, CAIRN_EIO, "can't read model file %s: %s", s->path, cairn__os_error_text());
    if (!s->info.is_regular)
        return fail(w, CAIRN_EIO, "model file %s is not a regular file", s->path);
    s->known = cairn__weights_cache_get(w->cache_fd, &s->info, &s->digest);
    return CAIRN_OK;
}

static bool same_file(const cairn__file_info *a, const cairn__file_info *b)
{
    return a->dev == b->dev && a->inode == b->inode && a->size_bytes == b->size_bytes && a->mtime_ns == b->mtime_ns &&
           a->ctime_ns == b->ctime_ns;
}

static cairn_status changed(const work *w, const shard *s)
{
    return fail(w, CAIRN_EIO, "model file %s changed while it was read; start again when it is complete", s->path);
}

static cairn_status check_unchanged(const work *w, const shard *s)
{
    cairn__file_info by_fd, by_path;
    if (cairn__fstat(s->fd, &by_fd) || cairn__stat_user_file(s->path, &by_path))
        return fail(w, CAIRN_EIO, "can't check model file %s: %s", s->path, cairn__os_error_text());
    return same_file(&by_fd, &s->info) && same_file(&by_path, &s->info) ? CAIRN_OK : changed(w, s);
}

/* On any thread of the pool, and on the caller's. */
static void hash_chunk(cairn__task *task)
{
    slot         *s = (slot *)task;
    cairn__sha256 sha;
    s->status = CAIRN_OK;
    cairn__sha256_init(&sha);
    for (uint64_t done = 0; !s->status && done < s->size;) {
        size_t some = s->size - done < READ_SIZE ? (size_t)(s->size - done) : READ_SIZE;
        if (atomic_load_explicit(&s->work->stop, memory_order_relaxed))
            s->status = CAIRN_ECANCELED;
        else
            s->status = cairn__read_at(s->fd, s->buf, some, s->offset + done);
        if (!s->status)
            cairn__sha256_update(&sha, s->buf, some);
        done += some;
    }
    s->digest = cairn__sha256_done(&sha);
}

static uint64_t n_chunks_of(const shard *s)
{
    return s->info.size_bytes / CHUNK_SIZE + (s->info.size_bytes % CHUNK_SIZE != 0);
}

static void submit_chunk(work *w, const shard *file, uint64_t chunk)
{
    slot    *s = &w->slots[chunk % w->n_slots];
    uint64_t offset = chunk * CHUNK_SIZE, rest = file->info.size_bytes - offset;
    s->fd = file->fd;
    s->offset = offset;
    s->size = rest < CHUNK_SIZE ? rest : CHUNK_SIZE;
    cairn__pool_submit(w->pool, &s->task);
}

/* At most 10 calls a second, the first before anything is hashed. */
static cairn_status report(work *w)
{
    uint64_t now = cairn__monotonic_ns();
    if (!w->request->progress || now < w->progress_at_ns)
        return CAIRN_OK;
    w->progress_at_ns = now + PROGRESS_NS;
    if (w->request->progress(w->request->progress_ctx, w->done_bytes, w->total_bytes))
        return CAIRN_OK;
    return fail(w, CAIRN_ECANCELED, "the digest of the weights was cancelled");
}

static cairn_status chunk_failed(const work *w, const shard *file, const slot *s)
{
    if (s->status == CAIRN_ECORRUPT) /* shorter than its size: it is being rewritten */
        return changed(w, file);
    return fail(w, CAIRN_EIO, "can't read model file %s at offset %llu", file->path, (unsigned long long)s->offset);
}

/* Waits for chunks [taken, submitted) so that no task touches its slot or fd any more. */
static void drain(work *w, uint64_t taken, uint64_t submitted)
{
    atomic_store_explicit(&w->stop, true, memory_order_relaxed);
    for (; taken < submitted; taken++)
        cairn__pool_wait(w->pool, &w->slots[taken % w->n_slots].task);
}

static cairn_status hash_shard(work *w, shard *file)
{
    static const char DOMAIN[] = "cairn file 1";
    uint64_t          n = n_chunks_of(file), submitted = 0;
    uint8_t           size[8];
    cairn__sha256     sha;
    cairn_status      status = CAIRN_OK;
    cairn__sha256_init(&sha);
    cairn__put_u64(size, file->info.size_bytes);
    cairn__sha256_update(&sha, DOMAIN, sizeof(DOMAIN));
    cairn__sha256_update(&sha, size, sizeof(size));
    for (uint64_t chunk = 0; chunk < n && !status; chunk++) {
        status = report(w);
        while (!status && submitted < n && submitted < chunk + w->n_slots)
            submit_chunk(w, file, submitted++);
        slot *s = &w->slots[chunk % w->n_slots];
        if (!status)
            cairn__pool_wait(w->pool, &s->task);
        if (!status && s->status)
            status = chunk_failed(w, file, s);
        if (status) {
            drain(w, chunk, submitted);
            break;
        }
        cairn__sha256_update(&sha, s->digest.bytes, sizeof(s->digest.bytes));
        w->done_bytes += s->size;
    }
    file->digest = cairn__sha256_done(&sha);
    return status;
}

static cairn_status start_threads(work *w)
{
    uint32_t n = w->request->n_threads ? w->request->n_threads : cairn__cpu_count();
    n = n < 1 ? 1 : n > N_THREADS_MAX ? N_THREADS_MAX : n;
    w->n_slots = 2 * n;
    w->slots = calloc(w->n_slots, sizeof(*w->slots));
    if (!w->slots)
        return fail(w, CAIRN_ENOMEM, "out of memory");
    for (uint32_t i = 0; i < w->n_slots; i++) {
        w->slots[i] = (slot){.task.run = hash_chunk, .work = w, .buf = malloc(READ_SIZE)};
        if (!w->slots[i].buf)
            return fail(w, CAIRN_ENOMEM, "out of memory");
    }
    /* The caller, waiting, is the last of the n. */
    cairn__pool *pool = NULL;
    if (cairn__pool_create(n - 1, &pool))
        return fail(w, CAIRN_ENOMEM, "can't start %u threads to hash the model", n - 1);
    w->pool = pool;
    return CAIRN_OK;
}

static void stop_threads(work *w)
{
    cairn__pool_destroy(w->pool);
    for (uint32_t i = 0; w->slots && i < w->n_slots; i++)
        free(w->slots[i].buf);
    free(w->slots);
}

static cairn_status open_shards(work *w)
{
    uint64_t total = 0;
    for (uint32_t i = 0; i < w->request->n_paths; i++) {
        shard       *s = &w->shards[i];
        cairn_status status = open_shard(w, s);
        if (status)
            return status;
        if (!cairn__add_u64(total, s->info.size_bytes, &total))
            return fail(w, CAIRN_EINVAL, "the model files are too large together");
        if (s->known)
            w->done_bytes += s->info.size_bytes;
    }
    w->total_bytes = total;
    return CAIRN_OK;
}

static cairn_status digest_shard(work *w, shard *s)
{
    int64_t      began_ns = cairn__wall_ns();
    cairn_status status = CAIRN_OK;
    if (!s->known && !w->pool)
        status = start_threads(w);
    if (!status && !s->known)
        status = hash_shard(w, s);
    if (!status)
        status = check_unchanged(w, s);
    if (!status && !s->known)
        cairn__weights_cache_put(w->cache_fd, &s->info, began_ns, &s->digest);
    return status;
}

static cairn_digest join_digests(const work *w)
{
    static const char DOMAIN[] = "cairn weights 1";
    uint8_t           count[4];
    cairn__sha256     sha;
    cairn__sha256_init(&sha);
    cairn__put_u32(count, w->request->n_paths);
    cairn__sha256_update(&sha, DOMAIN, sizeof(DOMAIN));
    cairn__sha256_update(&sha, count, sizeof(count));
    for (uint32_t i = 0; i < w->request->n_paths; i++)
        cairn__sha256_update(&sha, w->shards[i].digest.bytes, sizeof(w->shards[i].digest.bytes));
    return cairn__sha256_done(&sha);
}

static bool request_is_valid(const cairn_weights_request *request)
{
    if (!request || !request->paths || request->n_paths < 1 || request->n_paths > N_PATHS_MAX)
        return false;
    for (uint32_t i = 0; i < request->n_paths; i++)
        if (!request->paths[i])
            return false;
    return true;
}

cairn_status cairn_weights_digest(const cairn_weights_request *request, cairn_digest *ret_digest, cairn_error *error)
{
    work w = {.request = request, .error = error, .cache_fd = -1};
    if (error)
        error->text[0] = 0;
    if (!request_is_valid(request) || !ret_digest)
        return fail(&w, CAIRN_EINVAL, "no model files given");
    w.shards = calloc(request->n_paths, sizeof(*w.shards));
    if (!w.shards)
        return fail(&w, CAIRN_ENOMEM, "out of memory");
    for (uint32_t i = 0; i < request->n_paths; i++)
        w.shards[i] = (shard){.path = request->paths[i], .fd = -1};
    w.cache_fd = cairn__weights_cache_open(request->cache_dir);

    cairn_status status = open_shards(&w);
    for (uint32_t i = 0; i < request->n_paths && !status; i++)
        status = digest_shard(&w, &w.shards[i]);
    if (!status)
        *ret_digest = join_digests(&w);

    stop_threads(&w);
    for (uint32_t i = 0; i < request->n_paths; i++)
        cairn__close(w.shards[i].fd);
    cairn__close(w.cache_fd);
    free(w.shards);
    return status;
}
