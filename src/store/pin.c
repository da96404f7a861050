/* pin.c - pages kept open between a lookup and the import.
 *
 * An open descriptor keeps a file's blocks readable whatever happens to its name.
 * The list of pins tells eviction which pages of this process to leave alone:
 * unlinking them would free nothing until they are closed. Sizes, offsets and
 * checksums come from the private copy of the header that the lookup verified.
 * Reading is done with pread into the caller's buffer, and what is checked is
 * what lies there afterwards: a file that changes under us can't slip through. */
#include "store/internal.h"

#include "core/page_use.h"
#include "os/clock.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define TOUCH_S 60
#define PRICE_MIN_BYTES (UINT64_C(256) << 10) /* below, opening is most of it */
#define PRICE_WEIGHT 0.25                     /* guess: follows a change, forgives one outlier */
#define PRICE_MAX_PS UINT32_MAX               /* 4.3 ms a byte: as much as the ledger holds */

cairn_status cairn__pin_create(cairn_store *store, const cairn_digest *identity, cairn_pin **ret_pin)
{
    cairn_pin *pin = calloc(1, sizeof(*pin));
    if (!pin)
        return CAIRN_ENOMEM;
    pin->store = store;
    pin->identity = *identity;
    pthread_mutex_lock(&store->lock);
    pin->next = store->pins;
    if (store->pins)
        store->pins->prev = pin;
    store->pins = pin;
    pthread_mutex_unlock(&store->lock);
    *ret_pin = pin;
    return CAIRN_OK;
}

/* The array may move while eviction looks at it: hence the lock. */
static bool append(cairn_pin *pin, cairn__pin_page *page)
{
    bool ok = true;
    pthread_mutex_lock(&pin->store->lock);
    if (pin->n_pages == pin->room) {
        uint32_t          room = pin->room ? pin->room * 2 : 16;
        cairn__pin_page **pages = realloc(pin->pages, room * sizeof(*pages));
        if (pages) {
            pin->pages = pages;
            pin->room = room;
        }
        ok = pages != NULL;
    }
    if (ok)
        pin->pages[pin->n_pages++] = page;
    pthread_mutex_unlock(&pin->store->lock);
    return ok;
}

static void destroy_page(cairn__pin_page *page)
{
    cairn__page_file_close(&page->file);
    free(page);
}

cairn_status cairn__pin_add_take(cairn_pin *pin, cairn__page_file *file, uint32_t used_tokens)
{
    cairn__pin_page *page = malloc(sizeof(*page));
    if (!page) {
        cairn__page_file_close(file);
        return CAIRN_ENOMEM;
    }
    page->file = *file;
    page->used_tokens = used_tokens;
    atomic_init(&page->bad, false);
    if (append(pin, page))
        return CAIRN_OK;
    destroy_page(page);
    return CAIRN_ENOMEM;
}

void cairn__pin_drop_last(cairn_pin *pin)
{
    pthread_mutex_lock(&pin->store->lock);
    cairn__pin_page *page = pin->pages[--pin->n_pages];
    pthread_mutex_unlock(&pin->store->lock);
    destroy_page(page);
}

bool cairn__store_is_pinned(cairn_store *store, const uint8_t key[CAIRN__PAGE_NAME_KEY_SIZE])
{
    bool pinned = false;
    pthread_mutex_lock(&store->lock);
    for (const cairn_pin *pin = store->pins; pin && !pinned; pin = pin->next)
        for (uint32_t i = 0; i < pin->n_pages && !pinned; i++)
            pinned = memcmp(pin->pages[i]->file.header.key.bytes, key, CAIRN__PAGE_NAME_KEY_SIZE) == 0;
    pthread_mutex_unlock(&store->lock);
    return pinned;
}

cairn_page_view cairn_pin_page(const cairn_pin *pin, uint32_t page)
{
    assert(pin && page < pin->n_pages);
    const cairn__pin_page    *p = pin->pages[page];
    const cairn__page_header *h = &p->file.header;
    return (cairn_page_view){.kind = h->kind == CAIRN__PAGE_CHECKPOINT ? CAIRN_CHECKPOINT : CAIRN_PAGE,
                             .start = h->start,
                             .n_tokens = h->n_tokens,
                             .used_tokens = p->used_tokens,
                             .n_blocks = h->n_blocks,
                             .block_size = p->file.block_size,
                             .layout = h->layout,
                             .prefill_ns = h->prefill_ns};
}

/* The page's own tokens, for its name. */
static cairn__page_name name_of(const cairn__page_header *h)
{
    int32_t tokens[CAIRN__PAGE_TOKENS_MAX];
    for (uint32_t i = 0; i < h->n_tokens; i++)
        tokens[i] = cairn__page_token(h, i);
    cairn__page_name name = cairn__page_name_of(&h->identity, &h->key, &h->parent, tokens, h->n_tokens);
    name.is_checkpoint = h->kind == CAIRN__PAGE_CHECKPOINT;
    return name;
}

static void give_up_page(cairn_pin *pin, cairn__pin_page *page)
{
    cairn__page_name name = name_of(&page->file.header);
    int              identity_fd, folder_fd;
    if (atomic_exchange(&page->bad, true))
        return; /* another reader was first */
    if (cairn__disk_open_identity(&pin->store->root, &pin->identity, &identity_fd) != CAIRN_OK)
        return;
    if (cairn__disk_open_folder(identity_fd, &page->file.header.parent, &folder_fd) == CAIRN_OK) {
        cairn__store_quarantine(pin->store, folder_fd, &name, page->file.info.inode);
        cairn__close(folder_fd);
    }
    cairn__close(identity_fd);
}

void cairn_pin_reject(cairn_pin *pin, uint32_t page)
{
    assert(pin && page < pin->n_pages);
    give_up_page(pin, pin->pages[page]);
}

/* ---- what a restore costs ---- */

/* From the first block to the release: reading, checking and whatever the caller did
 * with it, which for an import is most of it. Blocks are read by many threads. */
static void note_read(cairn_pin *pin, uint64_t bytes)
{
    uint_fast64_t none = 0;
    if (atomic_load_explicit(&pin->first_read_ns, memory_order_relaxed) == 0)
        (void)atomic_compare_exchange_strong(&pin->first_read_ns, &none, cairn__monotonic_ns());
    atomic_fetch_add_explicit(&pin->read_bytes, bytes, memory_order_relaxed);
}

static void measure(cairn_pin *pin)
{
    uint64_t bytes = pin->read_bytes, first = pin->first_read_ns;
    if (pin->measured || bytes < PRICE_MIN_BYTES)
        return;
    pin->measured = true;
    double ps = (double)(cairn__monotonic_ns() - first) * 1000.0 / (double)bytes;
    double old = (double)atomic_load(&pin->store->restore_ps);
    double now = old > 0 ? old + PRICE_WEIGHT * (ps - old) : ps;
    atomic_store(&pin->store->restore_ps, now < 1 ? 1 : now < PRICE_MAX_PS ? (uint64_t)now : PRICE_MAX_PS);
}

uint64_t cairn__restore_price(cairn_store *store)
{
    uint64_t own = atomic_load(&store->restore_ps);
    return own ? own : cairn__ledger_restore_ps(store->ledger);
}

/* ---- reading ---- */

struct cairn_pin_window {
    cairn__window window;
};

cairn_pin_window *cairn_pin_window_create(void)
{
    return calloc(1, sizeof(cairn_pin_window));
}

void cairn_pin_window_destroy(cairn_pin_window *window)
{
    if (window)
        free(window->window.data);
    free(window);
}

static cairn_status read_block(cairn_pin *pin, cairn__pin_page *p, cairn__window *window, uint32_t block, uint32_t end,
                               void *dst)
{
    cairn_status status = window
                              ? cairn__page_file_read_through(&pin->store->root, &p->file, window, block, end, dst)
                              : cairn__page_file_read(&pin->store->root, &p->file, block, dst);
    if (!status)
        cairn__count(&pin->store->counters.bytes_read, p->file.block_size[block]);
    else if (status == CAIRN_ECORRUPT)
        give_up_page(pin, p);
    else {
        cairn__count(&pin->store->counters.read_errors, 1);
        status = CAIRN_EIO;
    }
    return status;
}

cairn_status cairn_pin_read_block(cairn_pin *pin, uint32_t page, uint32_t block, void *dst)
{
    if (!pin || page >= pin->n_pages || block >= pin->pages[page]->file.header.n_blocks || !dst)
        return CAIRN_EINVAL;
    note_read(pin, pin->pages[page]->file.block_size[block]);
    return read_block(pin, pin->pages[page], NULL, block, block + 1, dst);
}

cairn_status cairn_pin_read_through(cairn_pin *pin, cairn_pin_window *window, uint32_t page, uint32_t block,
                                    uint32_t end, void *dst)
{
    if (!pin || !window || page >= pin->n_pages || block >= end || end > pin->pages[page]->file.header.n_blocks || !dst)
        return CAIRN_EINVAL;
    note_read(pin, pin->pages[page]->file.block_size[block]);
    return read_block(pin, pin->pages[page], &window->window, block, end, dst);
}

bool cairn_pin_is_cold(const cairn_pin *pin, uint32_t page)
{
    assert(pin && page < pin->n_pages);
    return cairn__page_file_is_cold(&pin->pages[page]->file);
}

void cairn_pin_read_ahead(cairn_pin *pin, uint32_t page, uint32_t block)
{
    assert(pin && page < pin->n_pages && block < pin->pages[page]->file.header.n_blocks);
    measure(pin);
    cairn__page_file_read_ahead(&pin->pages[page]->file, block);
}

/* Recency is the mtime of the deepest page used; its ancestors live through it.
 * One that lies in the future is put right. */
static void touch(const cairn__pin_page *page)
{
    cairn__page_use use = cairn__page_use_of(page->file.info.mtime_ns);
    int64_t         now_s = cairn__wall_seconds(), age_s = now_s - use.used_s;
    if (use.n_uses == 0 || age_s >= TOUCH_S || age_s < 0) /* a wrong age is harmless */
        (void)!cairn__set_mtime(page->file.fd, cairn__page_use_mtime_ns(cairn__page_use_again(use, now_s)));
}

void cairn_pin_release(cairn_pin *pin)
{
    if (!pin)
        return;
    cairn_store *store = pin->store;
    measure(pin);
    if (pin->n_pages > 0)
        touch(pin->pages[pin->n_pages - 1]);
    if (pin->n_pages > 1 && pin->pages[pin->n_pages - 1]->file.header.kind == CAIRN__PAGE_CHECKPOINT)
        touch(pin->pages[pin->n_pages - 2]); /* the page that it ends in is not its parent */
    pthread_mutex_lock(&store->lock);
    if (pin->prev)
        pin->prev->next = pin->next;
    else
        store->pins = pin->next;
    if (pin->next)
        pin->next->prev = pin->prev;
    pthread_mutex_unlock(&store->lock);
    for (uint32_t i = 0; i < pin->n_pages; i++)
        destroy_page(pin->pages[i]);
    free(pin->pages);
    free(pin);
}
