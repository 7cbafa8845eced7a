/*
 * The commands, in the order in which help lists them. To add one: write src/cli/NAME.c with a
 * Command in it, and give it a row here.
 */
#include "cli/options.h"

extern const Command command_chat, command_generate, command_score, command_bench, command_init,
    command_export, command_quantize, command_inspect, command_tokenize, command_train,
    command_plan, command_opt, command_reshard, command_serve, command_constrain, command_convert,
    command_devices, command_compile;

const Command *const commands[] = {
    &command_train,    &command_chat,      &command_serve,
    &command_generate, &command_score,     &command_bench,
    &command_init,     &command_export,    &command_convert,
    &command_reshard,  &command_quantize,  &command_inspect,
    &command_tokenize, &command_plan,      &command_opt,
    &command_devices,  &command_compile,   &command_constrain,
    NULL, /* ends the list */
};
