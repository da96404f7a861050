/* remove.h - folders of pages that are empty go, and nothing else.
 *
 * Other processes may be about to publish in them: a folder with anything in it
 * can't be removed, and who finds its folder gone makes it again (publish.c). */
#ifndef CAIRN_TIER_REMOVE_H
#define CAIRN_TIER_REMOVE_H

#include "core/page_name.h"

/* A root with 4,096 empty folders for each identity would fill a small budget.
 * Returns the bytes given back, 0: it stays. */
uint64_t cairn__remove_folder(int identity_fd, const char *fanout);

/* The note of prompts, or whatever has its name; also where the rest has to stay.
 * Returns the bytes given back. */
uint64_t cairn__remove_recent(int identity_fd);

/* The folder of an identity, once nothing but its text and its note of prompts is in
 * it; both go with it, and the text is written anew if a page came in between. */
uint64_t cairn__remove_identity(int pages_fd, const char *identity);

#endif
