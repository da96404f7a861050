/* chat_schema.cpp - JSON schemas made safe for llama.cpp's grammar converter.
 *
 * The converter covers a part of JSON Schema and refuses a whole tool list for
 * one construct outside it; coding agents send dozens of schemas that they do
 * not control. So a schema is copied keyword by keyword: known keywords whose
 * values are of the right kind and of a size that a grammar bears, everything
 * else left out, which only widens what the model may say. The schema shown to
 * the model is always the client's own. */
#include "llama/chat_internal.h"

#include "json-schema-to-grammar.h"
#include "sampling.h"

#include <cstring>
#include <llama.h>

namespace cairn
{

/* llama.cpp refuses more than 2,000 rules from one repetition, and each
 * repetition multiplies with the ones inside it (llama-grammar.cpp at the pinned
 * tree); these bounds keep two levels below it. */
static const int64_t MAX_STRING_LENGTH = 256;
static const int64_t MAX_ARRAY_ITEMS   = 32;
/* Alternatives of one enum; 2,000 compile in 0.1 s (measured on the test machine). */
static const size_t MAX_ENUM = 4096;
static const size_t MAX_PATTERN_SIZE = 128;

static bool is_one_of(const std::string &text, std::initializer_list<const char *> list)
{
    for (const char *item : list)
        if (text == item)
            return true;
    return false;
}

/* Skips one {m}, {m,} or {m,n} at p[i]; 0 when it is none or too large. */
static size_t counted_repeat(const std::string &p, size_t i)
{
    size_t start = i++;
    int    digits = 0;
    for (; i < p.size() && (isdigit((unsigned char)p[i]) || p[i] == ','); i++)
        if (isdigit((unsigned char)p[i]) && ++digits > 4)
            return 0;
    return digits && i < p.size() && p[i] == '}' ? i + 1 - start : 0;
}

/* Skips one [...] without escapes at p[i]; 0 when it is none. */
static size_t character_class(const std::string &p, size_t i)
{
    size_t start = i++;
    if (i < p.size() && p[i] == '^')
        i++;
    size_t first = i;
    for (; i < p.size() && p[i] != ']'; i++)
        if (p[i] == '\\' || p[i] == '[' || (unsigned char)p[i] < ' ' || (unsigned char)p[i] > '~')
            return 0;
    return i < p.size() && i > first ? i + 1 - start : 0;
}

/* Anchored, printable ASCII, no groups, alternatives or escapes, and nothing
 * repeated that isn't there: the regular expressions that convert exactly. */
static bool pattern_is_expressible(const std::string &p)
{
    if (p.size() < 2 || p.size() > MAX_PATTERN_SIZE || p.front() != '^' || p.back() != '$')
        return false;
    bool have_atom = false;
    for (size_t i = 1; i + 1 < p.size();) {
        size_t n = 1;
        if (strchr("*+?", p[i]) || p[i] == '{') {
            n = p[i] == '{' ? counted_repeat(p, i) : 1;
            if (!have_atom || n == 0)
                return false;
            have_atom = false; /* "a++" and "a{2}?" are not for us */
        } else {
            if (p[i] == '[')
                n = character_class(p, i);
            else if (strchr("\\()|^$]}\"", p[i]) || (unsigned char)p[i] < ' ' || (unsigned char)p[i] > '~')
                return false;
            if (n == 0)
                return false;
            have_atom = true;
        }
        i += n;
    }
    return true;
}

static bool count_is_small(const common_json &value, int64_t max)
{
    return value.is_number_integer() && value.get<int64_t>() >= 0 && value.get<int64_t>() <= max;
}

static bool string_is(const common_json &value, bool (*good)(const std::string &))
{
    return value.is_string() && good(value.get<std::string>());
}

static bool format_is_known(const std::string &format)
{
    return is_one_of(format, {"date", "time", "date-time", "uuid", "uuid1", "uuid2", "uuid3", "uuid4", "uuid5"});
}

static bool type_is_known(const std::string &type)
{
    return is_one_of(type, {"null", "boolean", "number", "integer", "string", "array", "object"});
}

static bool type_list_is_known(const common_json &value)
{
    if (!value.is_array() || value.empty())
        return false;
    for (const auto &type : value)
        if (!string_is(type, type_is_known))
            return false;
    return true;
}

/* "#/a/b" found in root; no escapes, no indexes: those degrade to "anything". */
static bool ref_resolves(const common_json &root, const std::string &ref)
{
    if (ref == "#")
        return true;
    if (ref.compare(0, 2, "#/") != 0 || ref.find_first_of("~%") != std::string::npos)
        return false;
    const common_json *node = &root;
    for (size_t i = 2; i <= ref.size();) {
        size_t end = std::min(ref.find('/', i), ref.size());
        std::string key = ref.substr(i, end - i);
        if (!node->is_object() || !node->contains(key))
            return false;
        node = &node->at(key);
        i = end + 1;
    }
    return node->is_object();
}

static common_json copy_schema(const common_json &root, const common_json &schema);

static common_json copy_map(const common_json &root, const common_json &map)
{
    common_json out = common_json::object();
    for (const auto &[key, value] : map.items())
        out[key] = copy_schema(root, value);
    return out;
}

static common_json copy_list(const common_json &root, const common_json &list)
{
    common_json out = common_json::array();
    for (const auto &value : list)
        out.push_back(copy_schema(root, value));
    return out;
}

static common_json copy_names(const common_json &list)
{
    common_json out = common_json::array();
    for (const auto &value : list)
        if (value.is_string())
            out.push_back(value);
    return out;
}

/* Keywords that are values, not schemas: kept as they are, or not at all. */
static bool keep_value(const std::string &key, const common_json &value)
{
    if (key == "type")
        return string_is(value, type_is_known) || type_list_is_known(value);
    if (key == "enum")
        return value.is_array() && !value.empty() && value.size() <= MAX_ENUM;
    if (key == "const")
        return true;
    if (key == "format")
        return string_is(value, format_is_known);
    if (key == "pattern")
        return string_is(value, pattern_is_expressible);
    if (key == "minLength" || key == "maxLength")
        return count_is_small(value, MAX_STRING_LENGTH);
    if (key == "minItems" || key == "maxItems")
        return count_is_small(value, MAX_ARRAY_ITEMS);
    if (is_one_of(key, {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}))
        return value.is_number_integer();
    return key == "additionalProperties" && value.is_boolean();
}

static common_json copy_schema(const common_json &root, const common_json &schema)
{
    common_json out = common_json::object();
    if (!schema.is_object())
        return out; /* true, or nonsense: anything */
    if (schema.contains("$ref") && !string_is(schema.at("$ref"), [](const std::string &) { return true; }))
        return out;
    if (schema.contains("$ref") && !ref_resolves(root, schema.at("$ref").get<std::string>()))
        return out;
    for (const auto &[key, value] : schema.items()) {
        if (key == "$ref" || keep_value(key, value))
            out[key] = value;
        else if (is_one_of(key, {"properties", "$defs", "definitions"}) && value.is_object())
            out[key] = copy_map(root, value);
        else if (is_one_of(key, {"anyOf", "oneOf", "allOf"}) && value.is_array() && !value.empty())
            out[key] = copy_list(root, value);
        else if ((key == "items" || key == "additionalProperties") && value.is_object())
            out[key] = copy_schema(root, value);
        else if (key == "required" && value.is_array())
            out[key] = copy_names(value);
    }
    return out;
}

common_json schema_expressible(const common_json &schema)
{
    return copy_schema(schema, schema);
}

void chat_triggers(const common_chat_params &params, std::vector<std::string> &ret_patterns,
                   std::vector<llama_token> &ret_tokens)
{
    for (const auto &trigger : params.grammar_triggers) {
        std::string pattern = trigger.value;
        if (trigger.type == COMMON_GRAMMAR_TRIGGER_TYPE_TOKEN) {
            ret_tokens.push_back(trigger.token);
            continue;
        }
        if (trigger.type == COMMON_GRAMMAR_TRIGGER_TYPE_WORD)
            pattern = regex_escape(pattern);
        else if (trigger.type == COMMON_GRAMMAR_TRIGGER_TYPE_PATTERN_FULL)
            pattern = "^(?:" + pattern + ")$";
        ret_patterns.push_back(pattern);
    }
}

static std::vector<llama_token> tokens_of(const cairn__chat &chat, const std::string &text)
{
    std::vector<llama_token> tokens(text.size() + 8);
    int32_t n = llama_tokenize(chat.vocab, text.data(), (int32_t)text.size(), tokens.data(), (int32_t)tokens.size(),
                               false, true);
    tokens.resize(n > 0 ? (size_t)n : 0);
    return tokens;
}

/* Throws when the grammar does not begin so. */
static void accept_all(llama_sampler *sampler, const std::vector<llama_token> &tokens)
{
    for (llama_token token : tokens)
        llama_sampler_accept(sampler, token);
}

bool grammar_compiles(const cairn__chat &chat, const common_chat_params &params, const std::string &prefix)
{
    if (params.grammar.empty())
        return true;
    std::vector<std::string> patterns;
    std::vector<llama_token> tokens;
    chat_triggers(params, patterns, tokens);
    std::vector<const char *> c_patterns;
    for (const auto &pattern : patterns)
        c_patterns.push_back(pattern.c_str());
    std::unique_ptr<llama_sampler, void (*)(llama_sampler *)> sampler(
        params.grammar_lazy
            ? llama_sampler_init_grammar_lazy_patterns(chat.vocab, params.grammar.c_str(), "root", c_patterns.data(),
                                                       c_patterns.size(), tokens.data(), tokens.size())
            : llama_sampler_init_grammar(chat.vocab, params.grammar.c_str(), "root"),
        llama_sampler_free);
    if (!sampler)
        return false;
    accept_all(sampler.get(), tokens_of(chat, prefix));
    return true;
}

bool schema_compiles(const cairn__chat &chat, const common_json &schema)
{
    try {
        common_chat_params params;
        params.grammar = json_schema_to_grammar(schema, true);
        return grammar_compiles(chat, params, "");
    } catch (const std::exception &) {
        return false;
    }
}

} // namespace cairn
