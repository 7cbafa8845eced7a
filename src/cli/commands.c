/*
 * The table of commands. To add one: write src/cli/NAME.c with a Command in it, and give it a row in commands.def.
 */
#include "cli/options.h"

#define COMMAND(name) extern const Command command_##name;
#include "cli/commands.def"
#undef COMMAND

const Command *const commands[] = {
#define COMMAND(name) &command_##name,
#include "cli/commands.def"
#undef COMMAND
    NULL, /* ends the list */
};
