/* recent_file.h - the note `recent` beside an identity's pages: the prompts that a
 * process had in memory last, for the one that comes after it. Pure functions;
 * docs/format.md, "The note of recent prompts", is normative.
 *
 * A hint: what is brought back because of it is looked up, compared and verified like
 * for any request, so a wrong note costs time and nothing else. */
#ifndef CAIRN_CORE_RECENT_FILE_H
#define CAIRN_CORE_RECENT_FILE_H

#include "cairn/store.h"
#include "core/seal.h"

#define CAIRN__RECENT_HEADER_SIZE 64u
#define CAIRN__RECENT_PROMPTS_MAX 256u
#define CAIRN__RECENT_TOKENS_MAX (UINT64_C(4) << 20) /* of all prompts, shared ones counted for each */
#define CAIRN__RECENT_SIZE_MAX                                                                                         \
    (CAIRN__RECENT_HEADER_SIZE + CAIRN__RECENT_PROMPTS_MAX * UINT64_C(8) + CAIRN__RECENT_TOKENS_MAX * 4)

/* The note with nothing in its header yet, malloc()ed: that is the seal's, below.
 * Prompts from the end are left out where there is no room for them. CAIRN_ENOMEM. */
CAIRN_MUST_USE cairn_status cairn__recent_file_make(const cairn_prompt *prompts, uint32_t n_prompts, uint8_t **ret_file,
                                                    size_t *ret_size);
/* Fills the header: a checksum, or with a keyring what is behind it is encrypted with
 * `salt`. CAIRN_ENOMEM: the note is of no use any more. */
CAIRN_MUST_USE cairn_status cairn__recent_file_seal(const cairn__keyring *keyring, const uint8_t salt[CAIRN__SALT_SIZE],
                                                    uint8_t *file, size_t size);

/* Proves a note, and decrypts it where it lies. CAIRN_ECORRUPT: it is none, changed, or
 * not under this key; CAIRN_ENOMEM. */
CAIRN_MUST_USE cairn_status cairn__recent_file_open(const cairn__keyring *keyring, uint8_t *file, size_t size);
/* True of a sealed one, as far as can be told without its key. */
bool cairn__recent_file_is_sealed(const uint8_t *file, size_t size);
/* The prompts of a note that was opened; one malloc()ed block, tokens included.
 * CAIRN_ECORRUPT: they are not what a note can have; CAIRN_ENOMEM. */
CAIRN_MUST_USE cairn_status cairn__recent_file_prompts(const uint8_t *file, size_t size, cairn_prompt **ret_prompts,
                                                       uint32_t *ret_n);

#endif
