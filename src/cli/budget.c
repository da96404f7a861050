/* budget.c - `--cache-disk`: off, auto, a size, or a file with one of these, which is
 * read again on SIGHUP. */
#include "cli/cli.h"
#include "os/file.h"

#include <ctype.h>
#include <string.h>

#define TEXT_SIZE 64

static bool parse(const char *text, uint64_t *ret_budget)
{
    if (strcmp(text, "off") == 0) {
        *ret_budget = CAIRN_BUDGET_OFF;
        return true;
    }
    if (strcmp(text, "auto") == 0) {
        *ret_budget = CAIRN_BUDGET_AUTO;
        return true;
    }
    return cairn__cli_size(text, ret_budget) && *ret_budget > 0;
}

/* What is no file, a FIFO above all, would hold up the whole server while it is read. */
static bool read_text(const char *path, char text[TEXT_SIZE], size_t *ret_size, cairn_error *error)
{
    cairn__file_info info = {0};
    int              fd = -1;
    cairn_status     status = cairn__open_user_file(path, &fd);
    if (!status)
        status = cairn__fstat(fd, &info);
    *ret_size = info.size_bytes < TEXT_SIZE ? (size_t)info.size_bytes : TEXT_SIZE;
    if (!status && info.is_regular)
        status = cairn__read_at(fd, text, *ret_size, 0);
    if (status || !info.is_regular)
        snprintf(error->text, sizeof error->text, "--cache-disk @%.300s can't be read: %s", path,
                 status ? cairn__os_error_text() : "it is not a regular file");
    cairn__close(fd);
    return !status && info.is_regular;
}

bool cairn__cli_read_budget(const char *path, uint64_t *ret_budget, cairn_error *error)
{
    char   text[TEXT_SIZE + 1];
    size_t n = 0;
    if (!read_text(path, text, &n, error))
        return false;
    text[n]          = 0;
    const bool whole = strlen(text) == n && n < TEXT_SIZE;
    while (n > 0 && isspace((unsigned char)text[n - 1]))
        n--;
    text[n]          = 0;
    const char *word = text;
    while (isspace((unsigned char)*word))
        word++;
    if (whole && parse(word, ret_budget))
        return true;
    snprintf(error->text, sizeof error->text,
             "the file of --cache-disk @%.300s must hold off, auto or a size such as 20G and nothing else, not '%.60s'",
             path, word);
    return false;
}

bool cairn__cli_cache_disk(const char *text, cairn__serve_options *o)
{
    cairn_error error = {{0}};
    o->budget_file    = text[0] == '@' ? text + 1 : NULL;
    if (o->budget_file) {
        if (cairn__cli_read_budget(o->budget_file, &o->cache_budget, &error))
            return true;
        cairn__cli_error("%s", error.text);
        return false;
    }
    if (parse(text, &o->cache_budget))
        return true;
    cairn__cli_error("--cache-disk must be off, auto, a size such as 20G, or @FILE, not '%.60s'", text);
    return false;
}
