/* gcm.h - AES-256-GCM (NIST SP 800-38D), through OpenSSL.
 *
 * A message is one key and one nonce of 12 bytes. The same pair must never be
 * used for two messages: who uses this says why it is not (core/seal.h). A
 * message may come in parts and may be opened where it lies; nothing that was
 * opened may be used before its tag was compared. */
#ifndef CAIRN_BASE_GCM_H
#define CAIRN_BASE_GCM_H

#include "base/digest.h"

#define CAIRN__GCM_NONCE_SIZE 12u
#define CAIRN__GCM_TAG_SIZE 16u
#define CAIRN__GCM_PART_MAX (UINT64_C(1) << 30) /* OpenSSL counts in int */

/* The algorithm, looked up once: a look-up takes a lock that readers would meet at.
 * Thread-safe. */
typedef struct evp_cipher_st cairn__gcm_cipher;
/* NULL: no memory, or this OpenSSL has no AES-256-GCM. */
cairn__gcm_cipher *cairn__gcm_cipher_create(void);
void               cairn__gcm_cipher_destroy(cairn__gcm_cipher *cipher); /* accepts NULL */

/* One message under way; belongs to one thread. */
typedef struct evp_cipher_ctx_st cairn__gcm;

typedef struct cairn__gcm_message {
    const uint8_t *key;   /* [CAIRN__SECRET_SIZE] */
    const uint8_t *nonce; /* [CAIRN__GCM_NONCE_SIZE] */
    const void    *plain; /* authenticated, not encrypted; NULL: none */
    size_t         plain_size;
    bool           opening; /* false: sealing */
} cairn__gcm_message;

/* Errors, of the next one too: CAIRN_ENOMEM. */
CAIRN_MUST_USE cairn_status cairn__gcm_begin(const cairn__gcm_cipher *cipher, const cairn__gcm_message *message,
                                             cairn__gcm **ret_gcm);
/* out may be in; at most CAIRN__GCM_PART_MAX. */
CAIRN_MUST_USE cairn_status cairn__gcm_part(cairn__gcm *gcm, const void *in, size_t size, void *out);
/* Sealing: the tag. Opening: CAIRN_ECORRUPT when it is another. */
CAIRN_MUST_USE cairn_status cairn__gcm_seal_tag(cairn__gcm *gcm, uint8_t tag[CAIRN__GCM_TAG_SIZE]);
CAIRN_MUST_USE cairn_status cairn__gcm_open_tag(cairn__gcm *gcm, const uint8_t tag[CAIRN__GCM_TAG_SIZE]);
/* Wipes and frees; accepts NULL. */
void cairn__gcm_end(cairn__gcm *gcm);

#endif
