/* seal.c - see seal.h. */
#include "core/seal.h"

#include "base/bytes.h"

#include <stdlib.h>

struct cairn__keyring {
    cairn_digest       namespace_key, file_key;
    cairn__gcm_cipher *cipher;
};

cairn_status cairn__keyring_create(const uint8_t key[CAIRN__SECRET_SIZE], cairn__keyring **ret_keyring)
{
    cairn__keyring *keyring = calloc(1, sizeof(*keyring));
    if (!keyring)
        return CAIRN_ENOMEM;
    keyring->cipher = cairn__gcm_cipher_create();
    if (!keyring->cipher) {
        free(keyring);
        return CAIRN_ENOMEM;
    }
    keyring->namespace_key = cairn__hmac_sha256(key, "cairn namespace 1", NULL, 0);
    keyring->file_key = cairn__hmac_sha256(key, "cairn file 1", NULL, 0);
    *ret_keyring = keyring;
    return CAIRN_OK;
}

void cairn__keyring_destroy(cairn__keyring *keyring)
{
    if (!keyring)
        return;
    cairn__gcm_cipher_destroy(keyring->cipher);
    cairn__wipe(keyring, sizeof(*keyring));
    free(keyring);
}

cairn_digest cairn__namespace_digest(const cairn__keyring *keyring, const cairn_digest *identity)
{
    return keyring ? cairn__hmac_sha256(keyring->namespace_key.bytes, NULL, identity->bytes, sizeof(identity->bytes))
                   : *identity;
}

static cairn_status begin(const cairn__keyring *keyring, const cairn__sealed_part *part, bool opening,
                          cairn__gcm **ret_gcm)
{
    uint8_t      nonce[CAIRN__GCM_NONCE_SIZE] = {0};
    cairn_digest key = cairn__hmac_sha256(keyring->file_key.bytes, NULL, part->salt, CAIRN__SALT_SIZE);
    cairn__put_u32(nonce, part->number);
    cairn_status status = cairn__gcm_begin(
        keyring->cipher,
        &(cairn__gcm_message){
            .key = key.bytes, .nonce = nonce, .plain = part->plain, .plain_size = part->plain_size, .opening = opening},
        ret_gcm);
    cairn__wipe(&key, sizeof(key));
    return status;
}

cairn_status cairn__seal_begin(const cairn__keyring *keyring, const cairn__sealed_part *part, cairn__gcm **ret_gcm)
{
    return begin(keyring, part, false, ret_gcm);
}

cairn_status cairn__seal(const cairn__keyring *keyring, const cairn__sealed_part *part, void *data, size_t size,
                         uint8_t ret_tag[CAIRN__GCM_TAG_SIZE])
{
    cairn__gcm  *gcm = NULL;
    cairn_status status = begin(keyring, part, false, &gcm);
    if (!status)
        status = cairn__gcm_part(gcm, data, size, data);
    if (!status)
        status = cairn__gcm_seal_tag(gcm, ret_tag);
    cairn__gcm_end(gcm);
    return status;
}

cairn_status cairn__unseal(const cairn__keyring *keyring, const cairn__sealed_part *part, void *data, size_t size,
                           const uint8_t tag[CAIRN__GCM_TAG_SIZE])
{
    cairn__gcm  *gcm = NULL;
    cairn_status status = begin(keyring, part, true, &gcm);
    if (!status)
        status = cairn__gcm_part(gcm, data, size, data);
    if (!status)
        status = cairn__gcm_open_tag(gcm, tag);
    cairn__gcm_end(gcm);
    if (status)
        cairn__wipe(data, size);
    return status;
}
