/* memory.c - see memory.h. */
#include "os/memory.h"

#include <stdlib.h>
#include <sys/mman.h>

#define HUGE_PAGE ((size_t)2 << 20)

uint8_t *cairn__alloc_large(size_t size)
{
    if (size > SIZE_MAX - HUGE_PAGE)
        return NULL;
    const size_t rounded = (size + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    uint8_t     *data = aligned_alloc(HUGE_PAGE, rounded);
    if (data)
        (void)madvise(data, rounded, MADV_HUGEPAGE);
    return data;
}
