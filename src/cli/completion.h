/* Shell completions, made of the commands' own tables. */
#ifndef CVN_CLI_COMPLETION_H
#define CVN_CLI_COMPLETION_H

#include "base/strbuf.h"

#include <stdbool.h>

/* The script for "bash", "zsh" or "fish"; false for another shell. */
bool completion_script(StrBuf *out, const char *shell);

#endif
