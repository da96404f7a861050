/* verify.c - `cairn verify`: what was found, for a person or as JSON. */
#include "cli/cli.h"
#include "os/clock.h"
#include "store/verify.h"

#include <jansson.h>
#include <string.h>

#define FINDINGS_MAX 1000u /* of each run, told one by one; the others are counted */
#define PROGRESS_NS 2000000000ull

typedef struct report {
    const cairn__tool_options *options;
    const char                *root;
    json_t                    *findings; /* NULL: for a person */
    uint64_t                   n_told, told_ns;
} report;

static void tell_finding(void *ctx, const cairn__finding *finding)
{
    report     *r    = ctx;
    const char *word = cairn__problem_word(finding->problem);
    if (r->n_told++ >= FINDINGS_MAX)
        return;
    if (r->findings)
        json_array_append_new(r->findings, json_pack("{s:s, s:s, s:s, s:b}", "problem", word, "path", finding->path,
                                                     "what", finding->what, "repaired", finding->repaired));
    else
        printf("%s: %s: %s%s\n", word, finding->path, finding->what, finding->repaired ? " (repaired)" : "");
}

static void tell_progress(void *ctx, const cairn__verify_result *so_far)
{
    report  *r   = ctx;
    uint64_t now = cairn__monotonic_ns();
    char     size[32];
    if (now - r->told_ns < PROGRESS_NS)
        return;
    r->told_ns = now;
    fprintf(stderr, "%llu pages looked at, %s read\n", (unsigned long long)so_far->n_pages,
            cairn__cli_size_text(so_far->read_bytes, size, sizeof size));
}

static uint64_t sum(const cairn__verify_result *v)
{
    uint64_t n = 0;
    for (int i = 0; i < CAIRN__PROBLEM_COUNT; i++)
        n += v->n_problems[i];
    return n;
}

/* ---- for a person ---- */

static void print_counts(const report *r, const cairn__verify_result *v)
{
    char used[32], pages[32], read[32];
    printf("%s: %llu identities, %llu pages of %s, %s in all", r->root, (unsigned long long)v->n_identities,
           (unsigned long long)v->n_pages, cairn__cli_size_text(v->page_bytes, pages, sizeof pages),
           cairn__cli_size_text(v->used_bytes, used, sizeof used));
    if (r->options->deep)
        printf(", %s read", cairn__cli_size_text(v->read_bytes, read, sizeof read));
    printf("\n");
    if (v->n_sealed)
        printf("%llu pages are encrypted%s: they were looked at from outside alone%s\n",
               (unsigned long long)v->n_sealed, r->options->cache_key_file ? " with another key" : "",
               r->options->cache_key_file ? "" : "; see --cache-key-file");
    if (v->n_dead_temps)
        printf("%llu temporary files of dead processes%s\n", (unsigned long long)v->n_dead_temps,
               r->options->dry_run ? "" : ", removed");
    if (v->n_live_temps)
        printf("%llu temporary files in use\n", (unsigned long long)v->n_live_temps);
    if (v->n_quarantined)
        printf("%llu files in quarantine\n", (unsigned long long)v->n_quarantined);
}

static void print_verdict(const report *r, const cairn__verify_result *v)
{
    uint64_t n = sum(v);
    if (r->n_told > FINDINGS_MAX)
        printf("... and %llu more\n", (unsigned long long)(r->n_told - FINDINGS_MAX));
    for (int i = 0; i < CAIRN__PROBLEM_COUNT; i++)
        if (v->n_problems[i])
            printf("%8llu %s\n", (unsigned long long)v->n_problems[i], cairn__problem_text((cairn__problem)i));
    if (n)
        printf("%llu problems, %llu repaired\n", (unsigned long long)n, (unsigned long long)v->n_repaired);
    else
        printf("all is well\n");
}

/* ---- JSON ---- */

#define NUMBER(value) ((json_int_t)(value))

static json_t *problems_of(const cairn__verify_result *v)
{
    json_t *problems = json_object();
    for (int i = 0; i < CAIRN__PROBLEM_COUNT; i++)
        json_object_set_new(problems, cairn__problem_word((cairn__problem)i), json_integer(NUMBER(v->n_problems[i])));
    return problems;
}

static void print_json(const report *r, const cairn__verify_result *v)
{
    json_t *all = json_pack(
        "{s:o?, s:b, s:b, s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:{s:I, s:I}, s:{s:I, s:I}, s:I, s:{s:b, s:I, s:I}, "
        "s:o, s:I, s:I, s:O}",
        "root", json_string(r->root), "ok", sum(v) == 0, "deep", r->options->deep, "dry_run", r->options->dry_run, "identities",
        NUMBER(v->n_identities), "pages", NUMBER(v->n_pages), "sealed_pages", NUMBER(v->n_sealed), "page_bytes",
        NUMBER(v->page_bytes), "used_bytes", NUMBER(v->used_bytes), "read_bytes", NUMBER(v->read_bytes), "temporaries",
        "dead", NUMBER(v->n_dead_temps), "in_use", NUMBER(v->n_live_temps), "quarantine", "files",
        NUMBER(v->n_quarantined), "bytes", NUMBER(v->quarantine_bytes), "digests", NUMBER(v->n_digests), "ledger",
        "known", v->ledger_known, "used_bytes", NUMBER(v->ledger_bytes), "reserved_bytes", NUMBER(v->ledger_reserved),
        "problems", problems_of(v), "n_problems", NUMBER(sum(v)), "n_repaired", NUMBER(v->n_repaired), "findings",
        r->findings);
    if (all)
        json_dumpf(all, stdout, JSON_INDENT(2) | JSON_SORT_KEYS);
    printf("\n");
    json_decref(all);
}

/* ---- the command ---- */

static int verify(cairn_store *store, report *r)
{
    cairn__verify_request request = {.deep     = r->options->deep,
                                     .dry_run  = r->options->dry_run,
                                     .finding  = tell_finding,
                                     .progress = tell_progress,
                                     .ctx      = r};
    cairn__verify_result  v       = {0};
    cairn_status          status  = cairn__verify(store, &request, &v);
    if (status != CAIRN_OK) {
        cairn__cli_error("%s could not be read to its end: %s", r->root, cairn_status_text(status));
        return 1;
    }
    if (r->findings) {
        print_json(r, &v);
    } else {
        print_counts(r, &v);
        print_verdict(r, &v);
    }
    return sum(&v) ? 1 : 0;
}

static cairn_status open_tool(const cairn__tool_options *options, cairn_store **ret_store, cairn_error *error)
{
    uint8_t      key[CAIRN__SECRET_SIZE];
    cairn_status status = CAIRN_OK;
    if (options->cache_key_file)
        status = cairn__cli_read_key(options->cache_key_file, key, error);
    if (status == CAIRN_OK)
        status = cairn__tool_open(options->cache_dir, !options->dry_run, ret_store, error);
    if (status == CAIRN_OK && options->cache_key_file)
        status = cairn__tool_set_key(*ret_store, key);
    cairn__wipe(key, sizeof key);
    return status;
}

int cairn__cli_verify(int argc, char **argv)
{
    cairn__tool_options options;
    cairn_error         error = {{0}};
    cairn_store        *store = NULL;
    if (!cairn__cli_tool_options(argc, argv, "dnjk", &options))
        return 2;
    if (options.help) {
        (void)cairn__cli_help("verify", stdout);
        return 0;
    }
    cairn_status status = open_tool(&options, &store, &error);
    if (status != CAIRN_OK) {
        cairn__cli_error("%s", error.text[0] ? error.text : cairn_status_text(status));
        cairn_store_close(store);
        return cairn_status_exit_code(status);
    }
    report r = {.options  = &options,
                .root     = cairn_store_root(store),
                .findings = options.json ? json_array() : NULL,
                .told_ns  = cairn__monotonic_ns()};
    int code = verify(store, &r);
    json_decref(r.findings);
    cairn_store_close(store);
    return code;
}
