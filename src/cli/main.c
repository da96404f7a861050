/* main.c - chooses the command. */
#include "cli/cli.h"

#include <string.h>

static int help(int argc, char **argv)
{
    if (argc > 2 && strcmp(argv[2], "serve") == 0)
        cairn__cli_help_serve(stdout);
    else
        cairn__cli_help(stdout);
    return 0;
}

int main(int argc, char **argv)
{
    const char *command = argc > 1 ? argv[1] : "";
    if (strcmp(command, "serve") == 0)
        return cairn__cli_serve(argc - 1, argv + 1);
    if (strcmp(command, "help") == 0 || strcmp(command, "--help") == 0 || strcmp(command, "-h") == 0)
        return help(argc, argv);
    if (strcmp(command, "--version") == 0 || strcmp(command, "version") == 0) {
        printf("cairn %s\n", cairn_version());
        return 0;
    }
    if (*command)
        cairn__cli_error("unknown command '%.80s'; see: cairn help", command);
    else
        cairn__cli_help(stderr);
    return 2;
}
