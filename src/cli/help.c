/* help.c - texts for people at a terminal. */
#include "cli/cli.h"

#include <string.h>

static const char PROGRAM[] =
    "Cairn keeps what a model computed for a prompt: the same beginning is never computed twice,\n"
    "not even after a restart.\n"
    "\n"
    "usage: cairn serve -m MODEL.gguf [OPTION...]   serve a model with the OpenAI API\n"
    "       cairn verify [OPTION...]                check the cache on disk, and repair it\n"
    "       cairn prune --to SIZE [OPTION...]       make it smaller now\n"
    "       cairn clear [OPTION...]                 empty it\n"
    "       cairn help [COMMAND]                    this text, or that of a command\n"
    "       cairn --version\n"
    "\n"
    "Start with:  cairn serve -m MODEL.gguf\n"
    "and point any OpenAI client at http://127.0.0.1:8080/v1\n";

static const char SERVE[] =
    "usage: cairn serve -m MODEL.gguf [OPTION...]\n"
    "\n"
    "  -m, --model FILE          the model (GGUF; the first file of a split one)\n"
    "\n"
    "where\n"
    "      --host ADDRESS        listen there (default 127.0.0.1)\n"
    "  -p, --port N              port (default 8080; 0: any free one)\n"
    "      --port-file FILE      write the port there once the server listens\n"
    "      --alias NAME          name of the model for clients (default: the file's name)\n"
    "      --api-key-file FILE   asks for a key; a line each: KEY TENANT. Tenants share no cache\n"
    "\n"
    "cache on disk\n"
    "      --cache-dir DIR       where (default $XDG_CACHE_HOME/cairn, else ~/.cache/cairn)\n"
    "      --cache-disk SIZE     off, auto or the most it may take (default auto: the least of 20 %\n"
    "                            of the disk and 64 GiB); @FILE: what the file says, again on SIGHUP\n"
    "      --cache-reserve SIZE  what stays free on the disk (default: the least of 10 % of it and\n"
    "                            16 GiB, at least 1 GiB)\n"
    "      --cache-key-file FILE encrypts it with the key in this file: 32 random bytes, or 64 hex digits\n"
    "      --cache-timeout S     a disk that does nothing for so long is not waited for (default 2)\n"
    "      --cache-write-per-day SIZE  off, or the most that is written a day (default off)\n"
    "      --warm-start on|off   begin with the prompts in memory that the server before had (default on)\n"
    "      --reproducible        an answer never depends on the cache; costs some speed\n"
    "\n"
    "model\n"
    "  -c, --ctx N               tokens in the context (default: the model's, at most 32768)\n"
    "      --batch N             tokens per step of a prefill (default 512)\n"
    "      --sequences N         conversations kept in memory (default 4; models with windows 2)\n"
    "  -t, --threads N           (default: all cores)\n"
    "      --gpu-layers N        layers on the GPU (default: all)\n"
    "      --flash-attn MODE     on, off or auto (default auto)\n"
    "      --cache-type-k TYPE   f16, q8_0, q4_0, f32 or bf16 (default f16)\n"
    "      --cache-type-v TYPE   the same for V; quantized only with flash attention\n"
    "      --chat-template-file FILE  instead of the model's own (Jinja)\n"
    "\n"
    "serving\n"
    "      --max-body SIZE       largest request (default 32 MiB)\n"
    "      --read-timeout S      for a request to arrive (default 15)\n"
    "      --grace S             for the running answer when the server is stopped (default 20)\n"
    "      --verbose             a second log line for each answer: what it took at the client's side\n"
    "  -h, --help\n"
    "\n"
    "Sizes take K, M, G and T (1K = 1024). Exit code 2: something above is wrong, the message says what.\n";

static const char VERIFY[] =
    "usage: cairn verify [OPTION...]\n"
    "\n"
    "Checks the cache on disk; servers may use it meanwhile.\n"
    "\n"
    "      --cache-dir DIR       where (default $XDG_CACHE_HOME/cairn, else ~/.cache/cairn)\n"
    "      --cache-key-file FILE looks into pages that were encrypted with this key, too\n"
    "      --deep                read every block of every page, too\n"
    "      --dry-run             look only, change nothing\n"
    "      --json                print one JSON object\n"
    "  -h, --help\n"
    "\n"
    "Looked at: names, kinds, owners and modes of files; each page's header, size, key and parent;\n"
    "texts of identities; digests of models; what the ledger says is used.\n"
    "Repaired: bad pages and texts are moved to the folder quarantine, as a server does when it meets\n"
    "them; modes are made private; damaged digests are removed, and temporary files that dead processes\n"
    "left; the ledger is counted anew. Not touched: files that are not Cairn's or another user's, and\n"
    "pages whose parent is missing - these serve again once it is stored, and are evicted first.\n"
    "\n"
    "Exit code: 0 all is well, 1 problems were found (repaired or not), 2 there is no cache there, or an\n"
    "option is wrong.\n";

static const char CLEAR[] =
    "usage: cairn clear [OPTION...]\n"
    "\n"
    "Removes everything that was stored, of all models; servers may run meanwhile, and store anew. Digests\n"
    "of model files stay.\n"
    "\n"
    "      --cache-dir DIR       where (default $XDG_CACHE_HOME/cairn, else ~/.cache/cairn)\n"
    "  -h, --help\n"
    "\n"
    "Exit code: 0 done, 1 something could not be removed, 2 there is no cache there, or an option is wrong.\n";

static const char PRUNE[] =
    "usage: cairn prune --to SIZE [OPTION...]\n"
    "\n"
    "Evicts until the cache takes at most SIZE, in the order in which a server does: what is worth least\n"
    "goes first. Servers may run meanwhile; they fill it again up to their own --cache-disk.\n"
    "\n"
    "      --to SIZE             such as 512M or 20G; for nothing at all: cairn clear\n"
    "      --cache-dir DIR       where (default $XDG_CACHE_HOME/cairn, else ~/.cache/cairn)\n"
    "  -h, --help\n"
    "\n"
    "Exit code: 0 done, 1 it takes more than that still, 2 there is no cache there, or an option is wrong.\n";

bool cairn__cli_help(const char *command, FILE *out)
{
    static const struct {
        const char *command, *text;
    } texts[] = {{"", PROGRAM}, {"serve", SERVE}, {"verify", VERIFY}, {"clear", CLEAR}, {"prune", PRUNE}};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        if (strcmp(command, texts[i].command) != 0)
            continue;
        fputs(texts[i].text, out);
        return true;
    }
    return false;
}
