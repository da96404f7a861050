/* main.c - chooses the command. */
#include "cli/cli.h"

#include <string.h>

typedef struct command {
    const char *name;
    int (*run)(int argc, char **argv);
} command;

static const command commands[] = {
    {"serve", cairn__cli_serve},
    {"verify", cairn__cli_verify},
    {"clear", cairn__cli_clear},
    {"prune", cairn__cli_prune},
};

static int help(int argc, char **argv)
{
    const char *command = argc > 2 ? argv[2] : "";
    if (cairn__cli_help(command, stdout))
        return 0;
    cairn__cli_error("there is no command '%.80s'; see: cairn help", command);
    return 2;
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "";
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++)
        if (strcmp(name, commands[i].name) == 0)
            return commands[i].run(argc - 1, argv + 1);
    if (strcmp(name, "help") == 0 || strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)
        return help(argc, argv);
    if (strcmp(name, "--version") == 0 || strcmp(name, "version") == 0) {
        printf("cairn %s\n", cairn_version());
        return 0;
    }
    if (*name)
        cairn__cli_error("unknown command '%.80s'; see: cairn help", name);
    else
        (void)cairn__cli_help("", stderr);
    return 2;
}
