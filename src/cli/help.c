/* help.c - texts for people at a terminal. */
#include "cli/cli.h"

void cairn__cli_help(FILE *out)
{
    fputs("Cairn keeps what a model computed for a prompt: the same beginning is never computed twice,\n"
          "not even after a restart.\n"
          "\n"
          "usage: cairn serve -m MODEL.gguf [OPTION...]   serve a model with the OpenAI API\n"
          "       cairn help [serve]                      this text, or that of a command\n"
          "       cairn --version\n"
          "\n"
          "Start with:  cairn serve -m MODEL.gguf\n"
          "and point any OpenAI client at http://127.0.0.1:8080/v1\n",
          out);
}

void cairn__cli_help_serve(FILE *out)
{
    fputs("usage: cairn serve -m MODEL.gguf [OPTION...]\n"
          "\n"
          "  -m, --model FILE          the model (GGUF; the first file of a split one)\n"
          "\n"
          "where\n"
          "      --host ADDRESS        listen there (default 127.0.0.1)\n"
          "  -p, --port N              port (default 8080; 0: any free one)\n"
          "      --port-file FILE      write the port there once the server listens\n"
          "      --alias NAME          name of the model for clients (default: the file's name)\n"
          "\n"
          "cache on disk\n"
          "      --cache-dir DIR       where (default $XDG_CACHE_HOME/cairn, else ~/.cache/cairn)\n"
          "      --cache-disk SIZE     off, auto or the most it may take (default auto: the least of 20 %\n"
          "                            of the disk and 64 GiB)\n"
          "      --cache-reserve SIZE  what stays free on the disk (default: the least of 10 % of it and\n"
          "                            16 GiB, at least 1 GiB)\n"
          "      --reproducible        an answer never depends on the cache; costs some speed\n"
          "\n"
          "model\n"
          "  -c, --ctx N               tokens in the context (default: the model's, at most 32768)\n"
          "      --batch N             tokens per step of a prefill (default 512)\n"
          "      --sequences N         conversations kept in memory (default 4)\n"
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
          "      --verbose             a log line for each answer\n"
          "  -h, --help\n"
          "\n"
          "Sizes take K, M, G and T (1K = 1024). Exit code 2: something above is wrong, the message says what.\n",
          out);
}
