/* cli.h - what the files of the program share. */
#ifndef CAIRN_CLI_H
#define CAIRN_CLI_H

#include "base/digest.h"
#include "llama/runtime.h"

#include <stdio.h>

/* "64", "512M", "1.5GiB", "20 G": IEC, 1K = 1024. False: not a size, or too large. */
bool cairn__cli_size(const char *text, uint64_t *ret_bytes);
/* "1.5 GiB" */
const char *cairn__cli_size_text(uint64_t bytes, char *buf, size_t buf_size);

typedef struct cairn__serve_options {
    cairn__runtime_options runtime;
    const char            *host, *port_file, *cache_dir, *alias, *template_file, *api_key_file, *cache_key_file;
    uint16_t               port;
    uint64_t               cache_budget, cache_reserve, cache_per_day, max_body_size;
    const char            *budget_file; /* of --cache-disk @FILE; NULL: none */
    uint32_t               read_timeout_s, grace_s;
    bool                   warm_start, verbose, help;
} cairn__serve_options;

/* Reads the key of --cache-key-file. Wipe it when it was used. Errors with a text that
 * says what to do: CAIRN_EINVAL, CAIRN_EACCES, CAIRN_ENOENT, CAIRN_EIO, CAIRN_ENOMEM. */
CAIRN_MUST_USE cairn_status cairn__cli_read_key(const char *path, uint8_t key[CAIRN__SECRET_SIZE], cairn_error *error);

/* argv[0] is "serve". False: a line on stderr said what is wrong. */
bool cairn__cli_serve_options(int argc, char **argv, cairn__serve_options *ret_options);

/* --cache-disk: sets cache_budget and budget_file. */
bool cairn__cli_cache_disk(const char *text, cairn__serve_options *options);
bool cairn__cli_read_budget(const char *path, uint64_t *ret_budget, cairn_error *error);

/* The commands; argv[0] is the command's own name. Exit codes. */
int cairn__cli_serve(int argc, char **argv);
int cairn__cli_verify(int argc, char **argv);
int cairn__cli_clear(int argc, char **argv);
int cairn__cli_prune(int argc, char **argv);

/* What the operator's tools take; each allows some of it. */
typedef struct cairn__tool_options {
    const char *cache_dir, *cache_key_file;
    uint64_t    to_bytes;
    bool        has_to, deep, dry_run, json, help;
} cairn__tool_options;
/* `allowed`: letters of d (--deep), n (--dry-run), j (--json), k (--cache-key-file), t (--to). False: a line
 * on stderr said what is wrong. */
bool cairn__cli_tool_options(int argc, char **argv, const char *allowed, cairn__tool_options *ret_options);

/* command "": the program's. False: there is no such command. */
bool cairn__cli_help(const char *command, FILE *out);

/* One line: "cairn: ..." */
void cairn__cli_error(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
