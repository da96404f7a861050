/* names.c - see names.h. */
#include "tier/names.h"

#include "os/file.h"

#include <stdlib.h>
#include <string.h>

typedef struct reading {
    cairn__names *names;
    bool          no_memory;
} reading;

static bool add_name(void *ctx, const char *name)
{
    reading      *r = ctx;
    cairn__names *n = r->names;
    size_t        size = strlen(name) + 1;
    if (n->room - n->size < size) {
        size_t room = (n->room + size) * 2 + 4096;
        char  *text = realloc(n->text, room);
        if (!text) {
            r->no_memory = true;
            return false;
        }
        n->text = text;
        n->room = room;
    }
    memcpy(n->text + n->size, name, size);
    n->size += size;
    return true;
}

cairn_status cairn__names_read(int dir_fd, cairn__names *ret_names)
{
    reading r = {.names = ret_names};
    *ret_names = (cairn__names){0};
    cairn_status status = cairn__list_dir(dir_fd, add_name, &r);
    return r.no_memory ? CAIRN_ENOMEM : status;
}

void cairn__names_done(cairn__names *names)
{
    free(names->text);
    *names = (cairn__names){0};
}

const char *cairn__names_next(const cairn__names *names, const char *name)
{
    const char *next = name ? name + strlen(name) + 1 : names->text;
    return names->size && next < names->text + names->size ? next : NULL;
}
