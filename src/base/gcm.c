/* gcm.c - see gcm.h. EVP_CIPHER_CTX_free() wipes the expanded key. */
#include "base/gcm.h"

#include <openssl/evp.h>

cairn__gcm_cipher *cairn__gcm_cipher_create(void)
{
    return EVP_CIPHER_fetch(NULL, "AES-256-GCM", NULL);
}

void cairn__gcm_cipher_destroy(cairn__gcm_cipher *cipher)
{
    EVP_CIPHER_free(cipher);
}

cairn_status cairn__gcm_begin(const cairn__gcm_cipher *cipher, const cairn__gcm_message *message, cairn__gcm **ret_gcm)
{
    int         done = 0;
    cairn__gcm *gcm = EVP_CIPHER_CTX_new();
    bool        ok = gcm && message->plain_size <= CAIRN__GCM_PART_MAX &&
              EVP_CipherInit_ex2(gcm, cipher, message->key, message->nonce, !message->opening, NULL) == 1;
    if (ok && message->plain_size)
        ok = EVP_CipherUpdate(gcm, NULL, &done, message->plain, (int)message->plain_size) == 1;
    if (!ok) {
        EVP_CIPHER_CTX_free(gcm);
        return CAIRN_ENOMEM;
    }
    *ret_gcm = gcm;
    return CAIRN_OK;
}

cairn_status cairn__gcm_part(cairn__gcm *gcm, const void *in, size_t size, void *out)
{
    int done = 0;
    if (size == 0)
        return CAIRN_OK;
    bool ok = size <= CAIRN__GCM_PART_MAX && EVP_CipherUpdate(gcm, out, &done, in, (int)size) == 1;
    return ok && (size_t)done == size ? CAIRN_OK : CAIRN_ENOMEM;
}

cairn_status cairn__gcm_seal_tag(cairn__gcm *gcm, uint8_t tag[CAIRN__GCM_TAG_SIZE])
{
    uint8_t none[CAIRN__GCM_TAG_SIZE];
    int     done = 0;
    bool    ok = EVP_CipherFinal_ex(gcm, none, &done) == 1 &&
              EVP_CIPHER_CTX_ctrl(gcm, EVP_CTRL_AEAD_GET_TAG, CAIRN__GCM_TAG_SIZE, tag) == 1;
    return ok ? CAIRN_OK : CAIRN_ENOMEM;
}

cairn_status cairn__gcm_open_tag(cairn__gcm *gcm, const uint8_t tag[CAIRN__GCM_TAG_SIZE])
{
    uint8_t none[CAIRN__GCM_TAG_SIZE];
    int     done = 0;
    if (EVP_CIPHER_CTX_ctrl(gcm, EVP_CTRL_AEAD_SET_TAG, CAIRN__GCM_TAG_SIZE, (void *)(uintptr_t)tag) != 1)
        return CAIRN_ENOMEM;
    return EVP_CipherFinal_ex(gcm, none, &done) == 1 ? CAIRN_OK : CAIRN_ECORRUPT;
}

void cairn__gcm_end(cairn__gcm *gcm)
{
    EVP_CIPHER_CTX_free(gcm);
}
