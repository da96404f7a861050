/* identity_file.h - an identity's text as it lies beside its pages: as it is in
 * identity.txt, or sealed. A sealed one begins with bytes that no text begins with.
 * Pure functions; docs/format.md, "Sealed files". */
#ifndef CAIRN_CORE_IDENTITY_FILE_H
#define CAIRN_CORE_IDENTITY_FILE_H

#include "core/seal.h"

#define CAIRN__IDENTITY_SEAL_SIZE 64u /* before the text in a sealed file */
#define CAIRN__IDENTITY_TEXT_MAX ((uint64_t)1 << 20)
#define CAIRN__IDENTITY_FILE_MAX (CAIRN__IDENTITY_TEXT_MAX + CAIRN__IDENTITY_SEAL_SIZE)

/* Seals text[0..size) into file[0..CAIRN__IDENTITY_SEAL_SIZE + size). CAIRN_ENOMEM. */
CAIRN_MUST_USE cairn_status cairn__identity_file_seal(const cairn__keyring *keyring,
                                                      const uint8_t salt[CAIRN__SALT_SIZE], const char *text,
                                                      size_t size, uint8_t *file);
/* True of a sealed file, as far as can be told without its key. */
bool cairn__identity_file_is_sealed(const uint8_t *file, size_t file_size);
/* Opens a sealed file where it lies; *ret_text points into it, *ret_size bytes
 * without NUL. CAIRN_ECORRUPT: no such file, changed, or sealed under another key. */
CAIRN_MUST_USE cairn_status cairn__identity_file_unseal(const cairn__keyring *keyring, uint8_t *file, size_t file_size,
                                                        const char **ret_text, size_t *ret_size);

#endif
