/* fields.h - typed fields of a JSON object. A missing field and null leave the
 * caller's default; any other type, or a value out of range, is refused with the
 * field's name. JSON has one kind of number, so 1.0 is an integer and 1.5 is not. */
#ifndef CAIRN_SERVER_FIELDS_H
#define CAIRN_SERVER_FIELDS_H

#include "server/error.h"
#include "server/json_text.h"

typedef struct cairn__int_range {
    int64_t min, max;
} cairn__int_range;

typedef struct cairn__real_range {
    double min, max;
} cairn__real_range;

/* Each: false with *refusal filled when the field can't be used. */
bool cairn__field_bool(const json_t *object, const char *name, bool *io_value, cairn__refusal *refusal);
bool cairn__field_int(const json_t *object, const char *name, cairn__int_range range, int64_t *io_value,
                      cairn__refusal *refusal);
bool cairn__field_real(const json_t *object, const char *name, cairn__real_range range, float *io_value,
                       cairn__refusal *refusal);
/* Borrowed from the object; NULL stays when missing. */
bool cairn__field_object(const json_t *object, const char *name, const json_t **io_value, cairn__refusal *refusal);
bool cairn__field_array(const json_t *object, const char *name, const json_t **io_value, cairn__refusal *refusal);
bool cairn__field_string(const json_t *object, const char *name, const char **io_value, cairn__refusal *refusal);

/* The field, NULL when missing or null. */
const json_t *cairn__field(const json_t *object, const char *name);
/* "a string", for messages. */
const char *cairn__json_kind(const json_t *value);

#endif
