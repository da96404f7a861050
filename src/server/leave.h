/* leave.h - an end in bounded time, whatever hangs. */
#ifndef CAIRN_SERVER_LEAVE_H
#define CAIRN_SERVER_LEAVE_H

#include <stdint.h>

/* If the process has not ended by then, it does: with this exit code and a line in
 * the log. For ends in which a thread may wait for a disk that hangs: nothing but the
 * end of the process takes it from there, and nothing that is published is lost. */
void cairn__leave_within(uint32_t ms, int exit_code);

#endif
