/* Help pages, man pages and shell completions, made of the commands' own tables. */
#ifndef CVN_CLI_HELP_H
#define CVN_CLI_HELP_H

#include "base/strbuf.h"
#include "cli/options.h"

/* One page, 80 columns: examples, usage, options. */
void help_command(StrBuf *out, const Command *command);

/* The page of the program: what it is, its commands. */
void help_program(StrBuf *out);

/* The same two as man(7) source. */
void man_command(StrBuf *out, const Command *command);
void man_program(StrBuf *out);

/* The script for "bash", "zsh" or "fish"; false for another shell (completion.c). */
bool completion_script(StrBuf *out, const char *shell);

#endif
