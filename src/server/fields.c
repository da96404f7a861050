/* fields.c - see fields.h. */
#include "server/fields.h"

#include <math.h>

const json_t *cairn__field(const json_t *object, const char *name)
{
    const json_t *value = json_object_get(object, name);
    return json_is_null(value) ? NULL : value;
}

const char *cairn__json_kind(const json_t *value)
{
    if (!value)
        return "nothing";
    if (cairn__json_is_number(value))
        return json_is_integer(value) ? "an integer" : "a number";
    switch (json_typeof(value)) {
    case JSON_OBJECT: return "an object";
    case JSON_ARRAY: return "an array";
    case JSON_STRING: return "a string";
    case JSON_INTEGER:
    case JSON_REAL: return "a number";
    case JSON_TRUE:
    case JSON_FALSE: return "a boolean";
    case JSON_NULL: return "null";
    }
    return "something else";
}

static bool wrong_type(cairn__refusal *refusal, const char *name, const char *wanted, const json_t *value)
{
    return cairn__refuse(refusal, 400, "invalid_type", name, "'%s' must be %s, not %s", name, wanted,
                         cairn__json_kind(value));
}

bool cairn__field_bool(const json_t *object, const char *name, bool *io_value, cairn__refusal *refusal)
{
    const json_t *value = cairn__field(object, name);
    if (value && !json_is_boolean(value))
        return wrong_type(refusal, name, "true or false", value);
    if (value)
        *io_value = json_is_true(value);
    return true;
}

bool cairn__field_int(const json_t *object, const char *name, cairn__int_range range, int64_t *io_value,
                      cairn__refusal *refusal)
{
    const json_t *value = cairn__field(object, name);
    if (!value)
        return true;
    int64_t number = 0;
    if (json_is_integer(value)) {
        number = json_integer_value(value);
    } else if (cairn__json_is_number(value) && fabs(cairn__json_number(value)) < 9e15 &&
               floor(cairn__json_number(value)) == cairn__json_number(value)) {
        number = (int64_t)cairn__json_number(value);
    } else {
        return wrong_type(refusal, name, "an integer", value);
    }
    if (number < range.min || number > range.max)
        return cairn__refuse(refusal, 400, "invalid_value", name, "'%s' must be from %lld to %lld, not %lld", name,
                             (long long)range.min, (long long)range.max, (long long)number);
    *io_value = number;
    return true;
}

bool cairn__field_real(const json_t *object, const char *name, cairn__real_range range, float *io_value,
                       cairn__refusal *refusal)
{
    const json_t *value = cairn__field(object, name);
    if (!value)
        return true;
    if (!cairn__json_is_number(value))
        return wrong_type(refusal, name, "a number", value);
    double number = cairn__json_number(value);
    if (!(number >= range.min && number <= range.max))
        return cairn__refuse(refusal, 400, "invalid_value", name, "'%s' must be from %g to %g, not %g", name, range.min,
                             range.max, number);
    *io_value = (float)number;
    return true;
}

bool cairn__field_object(const json_t *object, const char *name, const json_t **io_value, cairn__refusal *refusal)
{
    const json_t *value = cairn__field(object, name);
    if (value && !json_is_object(value))
        return wrong_type(refusal, name, "an object", value);
    if (value)
        *io_value = value;
    return true;
}

bool cairn__field_array(const json_t *object, const char *name, const json_t **io_value, cairn__refusal *refusal)
{
    const json_t *value = cairn__field(object, name);
    if (value && !json_is_array(value))
        return wrong_type(refusal, name, "an array", value);
    if (value)
        *io_value = value;
    return true;
}

bool cairn__field_string(const json_t *object, const char *name, const char **io_value, cairn__refusal *refusal)
{
    const json_t *value = cairn__field(object, name);
    if (value && !cairn__json_is_text(value))
        return wrong_type(refusal, name, "a string", value);
    if (value)
        *io_value = json_string_value(value);
    return true;
}
