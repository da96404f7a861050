/* tool.c - the operator's tools: their options, and `cairn clear` and `cairn prune`. */
#include "cli/cli.h"
#include "store/tool.h"

#include <getopt.h>
#include <string.h>

static const struct option tool_options[] = {
    {"cache-dir", required_argument, NULL, 'c'},
    {"to", required_argument, NULL, 't'},
    {"cache-key-file", required_argument, NULL, 'k'},
    {"deep", no_argument, NULL, 'd'},
    {"dry-run", no_argument, NULL, 'n'},
    {"json", no_argument, NULL, 'j'},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

static bool read_to(const char *text, cairn__tool_options *o)
{
    o->has_to = cairn__cli_size(text, &o->to_bytes);
    if (!o->has_to)
        cairn__cli_error("--to must be a size such as 512M or 20G, not '%.60s'", text);
    return o->has_to;
}

static bool take(int option, cairn__tool_options *o)
{
    switch (option) {
    case 'c': o->cache_dir = optarg; return true;
    case 't': return read_to(optarg, o);
    case 'k': o->cache_key_file = optarg; return true;
    case 'd': o->deep = true; return true;
    case 'n': o->dry_run = true; return true;
    case 'j': o->json = true; return true;
    case 'h': o->help = true; return true;
    }
    return false;
}

bool cairn__cli_tool_options(int argc, char **argv, const char *allowed, cairn__tool_options *ret_options)
{
    cairn__tool_options o = {0};
    int                 option, index = 0;
    opterr = 0;
    optind = 1;
    while ((option = getopt_long(argc, argv, "+:h", tool_options, &index)) != -1) {
        if (option == ':') {
            cairn__cli_error("%.80s needs a value; see: cairn help %s", argv[optind - 1], argv[0]);
            return false;
        }
        if (option == '?') {
            cairn__cli_error("unknown option %.80s; see: cairn help %s", argv[optind - 1], argv[0]);
            return false;
        }
        if (strchr("tdnjk", option) && !strchr(allowed, option)) {
            cairn__cli_error("--%s is no option of this command; see: cairn help %s", tool_options[index].name,
                             argv[0]);
            return false;
        }
        if (!take(option, &o))
            return false;
    }
    if (!o.help && optind < argc) {
        cairn__cli_error("'%.80s' is not an option; the cache is named with --cache-dir", argv[optind]);
        return false;
    }
    *ret_options = o;
    return true;
}

/* ---- clear, prune ---- */

static int not_opened(cairn_status status, const cairn_error *error)
{
    cairn__cli_error("%s", error->text[0] ? error->text : cairn_status_text(status));
    return cairn_status_exit_code(status);
}

static void say_freed(const char *root, const char *verb, const cairn__tool_result *r)
{
    char freed[32], left[32];
    printf("%s: %llu pages %s, %s freed; %s are in use\n", root, (unsigned long long)r->n_pages, verb,
           cairn__cli_size_text(r->freed_bytes, freed, sizeof freed),
           cairn__cli_size_text(r->left_bytes, left, sizeof left));
}

int cairn__cli_clear(int argc, char **argv)
{
    cairn__tool_options options;
    cairn__tool_result  r     = {0};
    cairn_error         error = {{0}};
    cairn_store        *store = NULL;
    if (!cairn__cli_tool_options(argc, argv, "", &options))
        return 2;
    if (options.help) {
        (void)cairn__cli_help("clear", stdout);
        return 0;
    }
    cairn_status status = cairn__tool_open(options.cache_dir, true, &store, &error);
    if (status != CAIRN_OK)
        return not_opened(status, &error);
    status = cairn__tool_clear(store, &r);
    say_freed(cairn_store_root(store), "removed", &r);
    if (r.n_stuck)
        cairn__cli_error("%llu files could not be removed, the first is %s/%s; look at its attributes (lsattr) and its folder's",
                         (unsigned long long)r.n_stuck, cairn_store_root(store), r.stuck);
    else if (status != CAIRN_OK)
        cairn__cli_error("not all of it could be looked at: %s", cairn_status_text(status));
    cairn_store_close(store);
    return status != CAIRN_OK || r.n_stuck ? 1 : 0;
}

int cairn__cli_prune(int argc, char **argv)
{
    cairn__tool_options options;
    cairn__tool_result  r     = {0};
    cairn_error         error = {{0}};
    cairn_store        *store = NULL;
    char                to[32];
    if (!cairn__cli_tool_options(argc, argv, "t", &options))
        return 2;
    if (options.help) {
        (void)cairn__cli_help("prune", stdout);
        return 0;
    }
    if (!options.has_to) {
        cairn__cli_error("no size given; use: cairn prune --to SIZE");
        return 2;
    }
    cairn_status status = cairn__tool_open(options.cache_dir, true, &store, &error);
    if (status != CAIRN_OK)
        return not_opened(status, &error);
    status = cairn__tool_prune(store, options.to_bytes, &r);
    say_freed(cairn_store_root(store), "evicted", &r);
    bool fits = status == CAIRN_OK && r.left_bytes <= options.to_bytes;
    if (status != CAIRN_OK)
        cairn__cli_error("what is in use can't be counted; see: cairn verify");
    else if (!fits)
        cairn__cli_error("it can't be made as small as %s: folders and side files, and what a server is writing, stay",
                         cairn__cli_size_text(options.to_bytes, to, sizeof to));
    cairn_store_close(store);
    return fits ? 0 : 1;
}
