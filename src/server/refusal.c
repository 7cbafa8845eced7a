#include "server/refusal.h"

#include <stdarg.h>
#include <stdio.h>

int refuse(Refusal *why, int status, const char *field, const char *format, ...)
{
    if (why->status)
        return why->status;
    char text[sizeof why->err.message];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    why->status = status;
    snprintf(why->param, sizeof why->param, "%s", field ? field : "");
    err_set(&why->err, CVN_EINVAL, "%s", text);
    return status;
}
