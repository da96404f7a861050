/* seal.h - encryption at rest: what is derived from the operator's key, and how a
 * file's parts are sealed with it. docs/format.md, "Sealed files", is normative.
 *
 *     namespace key = HMAC(key, "cairn namespace 1\0")
 *     file key      = HMAC(key, "cairn file 1\0")
 *     namespace     = HMAC(namespace key, identity digest)    stands for the identity's digest
 *     key of a file = HMAC(file key, salt)                    everywhere in a root
 *
 * Sealed files differ in their random salt of 32 bytes, hence in their key; the
 * parts of one file differ in their number, which is the nonce. So no nonce is
 * used twice under a key, whatever processes crash or run beside each other, and
 * a part can't stand in for another or for one of another file.
 *
 * A keyring is read-only once made: any thread may use it. */
#ifndef CAIRN_CORE_SEAL_H
#define CAIRN_CORE_SEAL_H

#include "base/gcm.h"

#define CAIRN__SALT_SIZE 32u
#define CAIRN__SEAL_HEADER UINT32_MAX     /* number of a page's header; its blocks count from 0 */
#define CAIRN__SEAL_TEXT (UINT32_MAX - 1) /* number of the text in identity.txt */
#define CAIRN__SEAL_RECENT (UINT32_MAX - 2) /* number of the prompts in the note `recent` */

typedef struct cairn__keyring cairn__keyring;

/* The key is not needed any more afterwards. Errors: CAIRN_ENOMEM. */
CAIRN_MUST_USE cairn_status cairn__keyring_create(const uint8_t key[CAIRN__SECRET_SIZE], cairn__keyring **ret_keyring);
void                        cairn__keyring_destroy(cairn__keyring *keyring); /* wipes; accepts NULL */

/* What stands for an identity in names, chain keys and headers. keyring NULL: the
 * identity's own digest. */
cairn_digest cairn__namespace_digest(const cairn__keyring *keyring, const cairn_digest *identity);

/* One part of a sealed file. */
typedef struct cairn__sealed_part {
    const uint8_t *salt; /* [CAIRN__SALT_SIZE], of the file */
    uint32_t       number;
    const void    *plain; /* authenticated with it; NULL: nothing */
    size_t         plain_size;
} cairn__sealed_part;

/* For a part that is sealed piece by piece: go on as gcm.h says. CAIRN_ENOMEM. */
CAIRN_MUST_USE cairn_status cairn__seal_begin(const cairn__keyring *keyring, const cairn__sealed_part *part,
                                              cairn__gcm **ret_gcm);
/* A whole one, where it lies. CAIRN_ENOMEM: data is of no use any more. */
CAIRN_MUST_USE cairn_status cairn__seal(const cairn__keyring *keyring, const cairn__sealed_part *part, void *data,
                                        size_t size, uint8_t ret_tag[CAIRN__GCM_TAG_SIZE]);
/* Opens it where it lies. CAIRN_ECORRUPT: it is not what was sealed under this
 * key; CAIRN_ENOMEM. After an error data is zeros: what was never authenticated
 * can't be used by mistake. */
CAIRN_MUST_USE cairn_status cairn__unseal(const cairn__keyring *keyring, const cairn__sealed_part *part, void *data,
                                          size_t size, const uint8_t tag[CAIRN__GCM_TAG_SIZE]);

#endif
