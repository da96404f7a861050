/* log.h - the operator's log: lines on stderr with the time. Never text of a
 * prompt or an answer. Any thread. */
#ifndef CAIRN_SERVER_LOG_H
#define CAIRN_SERVER_LOG_H

#include <stdbool.h>

void cairn__log_line(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Details are dropped unless verbose; set before the threads start. */
void cairn__log_set_verbose(bool verbose);
void cairn__log_detail(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
