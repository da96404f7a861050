/* libraries.c - digests of the runtime that is loaded in this process.
 *
 * The bits of KV depend on the code that computed them, and llama.cpp has no
 * build id to ask for. So the read-only segments of every loaded libllama and
 * libggml* are hashed as they lie in memory: that is the code that runs, even
 * when the file on disk was replaced since, and the same file gives the same
 * digest on every machine (position-independent code has no relocations there).
 * When llama.cpp is linked statically there is no such library, and the
 * executable stands for it.
 *
 * Cost: 1.3 GB/s once per process; kept for later opens until any library is
 * unloaded (a library loaded later is hashed then). */
#include "llama/adapter.h"

#include "base/bytes.h"
#include "base/digest.h"

#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_LIBRARIES = 32, NAME_SIZE = 48 };

typedef struct library {
    char         name[NAME_SIZE];
    uintptr_t    base;
    cairn_digest digest;
} library;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static library         known[MAX_LIBRARIES]; /* guarded by mutex */
static uint32_t        n_known;
static uint64_t        unloads; /* libraries unloaded so far, when `known` was filled */

/* Copies code and constants out of the image. Not instrumented: in a sanitized
 * executable the space between constants counts as poisoned. */
__attribute__((no_sanitize("address", "undefined"))) static void copy_out(uint8_t *dst, const uint8_t *src, size_t n)
{
    const volatile uint8_t *from = src;
    for (size_t i = 0; i < n; i++)
        dst[i] = from[i];
}

static cairn_digest hash_segments(const struct dl_phdr_info *info)
{
    static uint8_t buffer[1 << 16]; /* under the mutex */
    cairn__sha256  sha;
    cairn__sha256_init(&sha);
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        if (segment->p_type != PT_LOAD || (segment->p_flags & (PF_R | PF_W)) != PF_R)
            continue;
        const uint8_t *data = (const uint8_t *)(uintptr_t)(info->dlpi_addr + segment->p_vaddr);
        for (size_t at = 0; at < segment->p_filesz;) {
            size_t n = segment->p_filesz - at < sizeof buffer ? segment->p_filesz - at : sizeof buffer;
            copy_out(buffer, data + at, n);
            cairn__sha256_update(&sha, buffer, n);
            at += n;
        }
    }
    return cairn__sha256_done(&sha);
}

/* "libggml-cpu.so.0" -> "libggml_cpu"; false: not of the runtime. */
static bool runtime_name(const char *path, char name[NAME_SIZE])
{
    const char *base = strrchr(path, '/');
    base = base ? base + 1 : path;
    const char *end = strstr(base, ".so");
    size_t      n = end ? (size_t)(end - base) : 0;
    if (n == 0 || n >= NAME_SIZE)
        return false;
    for (size_t i = 0; i < n; i++) {
        char c = base[i];
        name[i] = c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ? c : '_';
    }
    name[n] = 0;
    return !strcmp(name, "libllama") || !strncmp(name, "libggml", 7);
}

typedef struct search {
    cairn_status status;
    bool         executable; /* look for the executable instead */
    uint32_t     found[MAX_LIBRARIES], n_found;
} search;

static void add(search *s, const struct dl_phdr_info *info, const char *name)
{
    uintptr_t base = (uintptr_t)info->dlpi_phdr; /* differs between images loaded at one time */
    uint32_t  i = 0;
    while (i < n_known && (known[i].base != base || strcmp(known[i].name, name) != 0))
        i++;
    if (i == n_known) {
        if (n_known == MAX_LIBRARIES) {
            s->status = CAIRN_ENOTSUP;
            return;
        }
        library *lib = &known[i];
        lib->digest = hash_segments(info);
        snprintf(lib->name, sizeof lib->name, "%s", name);
        lib->base = base;
        n_known++;
    }
    s->found[s->n_found++] = i;
}

static int visit(struct dl_phdr_info *info, size_t size, void *ctx)
{
    (void)size;
    search *s = ctx;
    char    name[NAME_SIZE];
    if (info->dlpi_subs != unloads) {
        unloads = info->dlpi_subs;
        n_known = s->n_found = 0; /* can't change between images of one walk: s is empty */
    }
    if (s->n_found == MAX_LIBRARIES)
        return 1;
    if (s->executable) { /* always the first one */
        add(s, info, "executable");
        return 1;
    }
    if (info->dlpi_name && runtime_name(info->dlpi_name, name))
        add(s, info, name);
    return s->status != CAIRN_OK;
}

static bool has_libllama(const search *s)
{
    for (uint32_t i = 0; i < s->n_found; i++)
        if (!strcmp(known[s->found[i]].name, "libllama"))
            return true;
    return false;
}

static cairn_status set_fields(cairn_identity *identity, const search *s)
{
    cairn_status status = CAIRN_OK;
    for (uint32_t i = 0; i < s->n_found && !status; i++) {
        const library *lib = &known[s->found[i]];
        char           key[NAME_SIZE + 16];
        snprintf(key, sizeof key, "runtime.%s", lib->name);
        status = cairn_identity_set_digest(identity, key, &lib->digest);
    }
    return status;
}

cairn_status cairn__identity_add_libraries(cairn_identity *identity)
{
    pthread_mutex_lock(&mutex);
    search s = {.status = CAIRN_OK};
    dl_iterate_phdr(visit, &s);
    if (!s.status && !has_libllama(&s)) {
        s.executable = true;
        dl_iterate_phdr(visit, &s);
    }
    if (!s.status)
        s.status = set_fields(identity, &s);
    pthread_mutex_unlock(&mutex);
    return s.status;
}
