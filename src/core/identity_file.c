/* identity_file.c - see identity_file.h. */
#include "core/identity_file.h"

#include "base/bytes.h"

enum {
    AT_MAGIC = 0,   /* 8 */
    AT_VERSION = 8, /* u32 */
    AT_SIZE = 12,   /* u32: of the text */
    AT_SALT = 16,   /* 32 */
    AT_TAG = 48,    /* 16: of the text, with all before as plain */
    AT_TEXT = 64,
};
_Static_assert(AT_TEXT == CAIRN__IDENTITY_SEAL_SIZE, "no gaps");
_Static_assert(AT_SALT + CAIRN__SALT_SIZE == AT_TAG, "no gaps");
_Static_assert(AT_TAG + CAIRN__GCM_TAG_SIZE == AT_TEXT, "no gaps");

#define VERSION 1u
static const uint8_t MAGIC[8] = {'C', 'A', 'I', 'R', 'N', 'I', 'D', '1'};

static cairn__sealed_part text_part(const uint8_t *file)
{
    return (cairn__sealed_part){
        .salt = file + AT_SALT, .number = CAIRN__SEAL_TEXT, .plain = file, .plain_size = AT_TAG};
}

cairn_status cairn__identity_file_seal(const cairn__keyring *keyring, const uint8_t salt[CAIRN__SALT_SIZE],
                                       const char *text, size_t size, uint8_t *file)
{
    memcpy(file + AT_MAGIC, MAGIC, sizeof(MAGIC));
    cairn__put_u32(file + AT_VERSION, VERSION);
    cairn__put_u32(file + AT_SIZE, (uint32_t)size);
    memcpy(file + AT_SALT, salt, CAIRN__SALT_SIZE);
    memcpy(file + AT_TEXT, text, size);
    cairn__sealed_part part = text_part(file);
    return cairn__seal(keyring, &part, file + AT_TEXT, size, file + AT_TAG);
}

bool cairn__identity_file_is_sealed(const uint8_t *file, size_t file_size)
{
    return file_size >= AT_TEXT && file_size - AT_TEXT <= CAIRN__IDENTITY_TEXT_MAX &&
           memcmp(file + AT_MAGIC, MAGIC, sizeof(MAGIC)) == 0 && cairn__get_u32(file + AT_VERSION) == VERSION &&
           cairn__get_u32(file + AT_SIZE) == file_size - AT_TEXT;
}

cairn_status cairn__identity_file_unseal(const cairn__keyring *keyring, uint8_t *file, size_t file_size,
                                         const char **ret_text, size_t *ret_size)
{
    if (!cairn__identity_file_is_sealed(file, file_size))
        return CAIRN_ECORRUPT;
    cairn__sealed_part part = text_part(file);
    cairn_status       status = cairn__unseal(keyring, &part, file + AT_TEXT, file_size - AT_TEXT, file + AT_TAG);
    if (status)
        return status;
    *ret_text = (const char *)file + AT_TEXT;
    *ret_size = file_size - AT_TEXT;
    return CAIRN_OK;
}
