/* identity_text.h - is a text that of an identity? For texts that lie on a disk. */
#ifndef CAIRN_CORE_IDENTITY_TEXT_H
#define CAIRN_CORE_IDENTITY_TEXT_H

#include "cairn/identity.h"

/* True when text[0..size) is what cairn_identity_text() can give: docs/format.md,
 * "Identity". Its digest is then the SHA-256 of those bytes. */
bool cairn__identity_text_is_valid(const char *text, size_t size);

#endif
