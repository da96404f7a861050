/* memory.h - buffers of megabytes. */
#ifndef CAIRN_OS_MEMORY_H
#define CAIRN_OS_MEMORY_H

#include <stddef.h>
#include <stdint.h>

/* On huge pages where the system has them: a device is then told of one piece of
 * memory, not of one for each 4 KiB, and copies miss fewer pages. Begins on a page;
 * to free() by the caller. NULL: out of memory. */
uint8_t *cairn__alloc_large(size_t size);

#endif
