/* key_file.c - the key of --cache-key-file: 32 random bytes, as they are or as 64
 * hex digits. What else a file can hold is refused rather than stretched: a
 * password has not the bits that a key must have. */
#include "cli/cli.h"
#include "base/bytes.h"
#include "base/digest.h"
#include "os/secret.h"

#include <ctype.h>
#include <string.h>

#define OPTION "--cache-key-file"
#define MAX_SIZE 128u /* of a file that gets a better answer than that it is too large */
#define HEX_SIZE (2 * CAIRN__SECRET_SIZE)

static cairn_status refuse(const char *path, const char *what, cairn_error *error)
{
    snprintf(error->text, sizeof error->text,
             OPTION " %.300s %s; make one with: (umask 077; openssl rand -hex 32 > FILE)", path, what);
    return CAIRN_EINVAL;
}

/* 32 random bytes look like this once in 10^13 files. */
static bool is_text(const char *data, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (!isprint((unsigned char)data[i]) && !isspace((unsigned char)data[i]))
            return false;
    return true;
}

static bool read_hex(char *data, size_t size, uint8_t *key)
{
    if (size == HEX_SIZE + 1 && data[HEX_SIZE] == '\n')
        size--;
    if (size != HEX_SIZE)
        return false;
    for (size_t i = 0; i < HEX_SIZE; i++)
        data[i] = (char)tolower((unsigned char)data[i]);
    data[HEX_SIZE] = 0;
    return cairn__unhex(data, key, CAIRN__SECRET_SIZE);
}

static cairn_status take_key(const char *path, char *data, size_t size, uint8_t *key, cairn_error *error)
{
    static const uint8_t none[CAIRN__SECRET_SIZE];
    if (size != CAIRN__SECRET_SIZE) {
        if (!read_hex(data, size, key))
            return refuse(path, "has neither 32 bytes nor 64 hex digits", error);
    } else if (is_text(data, size)) {
        return refuse(path, "has 32 characters of text and not 32 random bytes", error);
    } else {
        memcpy(key, data, size);
    }
    return memcmp(key, none, sizeof none) == 0 ? refuse(path, "has zeros alone", error) : CAIRN_OK;
}

cairn_status cairn__cli_read_key(const char *path, uint8_t key[CAIRN__SECRET_SIZE], cairn_error *error)
{
    char        *data = NULL;
    size_t       size = 0;
    cairn_status status = cairn__secret_read(OPTION, path, MAX_SIZE, &data, &size, error);
    if (status != CAIRN_OK)
        return status;
    status = take_key(path, data, size, key, error);
    cairn__secret_free(data, size);
    if (status != CAIRN_OK)
        cairn__wipe(key, CAIRN__SECRET_SIZE);
    return status;
}
