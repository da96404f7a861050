/* base.h - status codes, export macros and version, shared by all of Cairn.
 *
 * A status is 0 for success and negative for an error; the numbers are fixed
 * for ever. A miss is not an error: functions that can miss say so with
 * CAIRN_OK and a count of 0. */
#ifndef CAIRN_BASE_H
#define CAIRN_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define CAIRN_API __attribute__((visibility("default")))
#define CAIRN_MUST_USE __attribute__((warn_unused_result))
#else
#define CAIRN_API
#define CAIRN_MUST_USE
#endif

#define CAIRN_VERSION_MAJOR 0
#define CAIRN_VERSION_MINOR 1
#define CAIRN_VERSION_PATCH 0

/* name, value, text, HTTP status that a server answers with, exit code of a
 * program that ends for this reason (2 = configuration, 1 = anything else). */
#define CAIRN_STATUS_LIST(X)                                                   \
    X(CAIRN_OK, 0, "success", 200, 0)                                          \
    X(CAIRN_EINVAL, -1, "invalid argument", 400, 2)                            \
    X(CAIRN_ENOMEM, -2, "out of memory", 503, 1)                               \
    X(CAIRN_EIO, -3, "input/output error", 500, 1)                             \
    X(CAIRN_ENOSPC, -4, "no space within the budget or on the device", 507, 2) \
    X(CAIRN_EACCES, -5, "permission denied", 403, 2)                           \
    X(CAIRN_ECORRUPT, -6, "stored data failed verification", 500, 1)           \
    X(CAIRN_ENOTSUP, -7, "not supported", 501, 2)                              \
    X(CAIRN_EBUSY, -8, "busy", 503, 1)                                         \
    X(CAIRN_ETIMEDOUT, -9, "timed out", 504, 1)                                \
    X(CAIRN_ECANCELED, -10, "cancelled", 499, 1)                               \
    X(CAIRN_ENOENT, -11, "not found", 404, 2)                                  \
    X(CAIRN_ERUNTIME, -12, "the model runtime failed", 500, 1)

typedef enum cairn_status {
#define CAIRN_STATUS_ENUM(name, value, text, http, code) name = (value),
    CAIRN_STATUS_LIST(CAIRN_STATUS_ENUM)
#undef CAIRN_STATUS_ENUM
} cairn_status;

/* Static strings, never NULL: "CAIRN_EIO", "input/output error". */
CAIRN_API const char *cairn_status_name(cairn_status status);
CAIRN_API const char *cairn_status_text(cairn_status status);
CAIRN_API int         cairn_status_http(cairn_status status);
CAIRN_API int         cairn_status_exit_code(cairn_status status);

/* "0.1.0" of the library that is running. */
CAIRN_API const char *cairn_version(void);

/* Text of one error for a person: what is wrong and what to do. Always
 * NUL-terminated; empty on success. Functions that take one accept NULL. */
typedef struct cairn_error {
    char text[512];
} cairn_error;

#ifdef __cplusplus
}
#endif
#endif
