#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *cvn_code_text(int code)
{
    switch (code) {
    case CVN_OK:
        return "no error";
#define X(name, value, text)                                                                       \
    case name:                                                                                     \
        return text;
        CVN_ERROR_CODES(X)
#undef X
    default:
        return "unknown error";
    }
}

/* Names in a message may come from a file that somebody else wrote: what would begin a new line, or
   be a command to the terminal, is shown as a question mark. */
static void keep_to_a_line(char *message)
{
    for (char *c = message; *c; c++)
        if ((unsigned char)*c < 32 || *c == 127)
            *c = '?';
}

int err_set_at(cvn_err *err, int code, const char *file, int line, const char *format, ...)
{
    if (!err || err->code != CVN_OK)
        return code;
    err->code = code;
    err->file = file;
    err->line = line;
    va_list args;
    va_start(args, format);
    vsnprintf(err->message, sizeof err->message, format, args);
    va_end(args);
    keep_to_a_line(err->message);
    return code;
}

void err_prefix(cvn_err *err, const char *format, ...)
{
    if (!err || err->code == CVN_OK)
        return;
    char rest[sizeof err->message];
    memcpy(rest, err->message, sizeof rest);
    va_list args;
    va_start(args, format);
    int n = vsnprintf(err->message, sizeof err->message, format, args);
    va_end(args);
    if (n < 0)
        n = 0;
    if ((size_t)n < sizeof err->message)
        snprintf(err->message + n, sizeof err->message - (size_t)n, ": %s", rest);
    keep_to_a_line(err->message);
}

void scoped_free(void *pointer)
{
    free(*(void **)pointer);
}
