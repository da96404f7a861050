/* names.h - the names in one folder, read before anything is done to them: a
 * folder must not change under its own listing, and memory is bounded by the
 * largest folder. */
#ifndef CAIRN_TIER_NAMES_H
#define CAIRN_TIER_NAMES_H

#include "cairn/base.h"

typedef struct cairn__names {
    char  *text; /* NUL-terminated names, one after the other */
    size_t size, room;
} cairn__names;

/* Everything in the folder but . and .., in the file system's order. End with
 * cairn__names_done(), also after an error. Errors: CAIRN_ENOMEM, and those of
 * cairn__list_dir(). */
CAIRN_MUST_USE cairn_status cairn__names_read(int dir_fd, cairn__names *ret_names);
void                        cairn__names_done(cairn__names *names);

/* The name after `name`, the first one for NULL; NULL at the end. */
const char *cairn__names_next(const cairn__names *names, const char *name);

#endif
