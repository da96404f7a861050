/* clock.h - time. Durations come from the monotonic clock only. */
#ifndef CAIRN_OS_CLOCK_H
#define CAIRN_OS_CLOCK_H

#include <stdint.h>

uint64_t cairn__monotonic_ns(void);
int64_t  cairn__wall_seconds(void); /* UTC, may jump */
int64_t  cairn__wall_ns(void);      /* the same, to compare with file times only */

#endif
