/* The error response to a request that is refused: HTTP status, error code, the field, a sentence. */
#ifndef CVN_SERVER_REFUSAL_H
#define CVN_SERVER_REFUSAL_H

#include "base/err.h"

typedef struct Refusal {
    int status;       /* of HTTP; 0: there is none */
    const char *code; /* a word for programs, "model_not_found", or NULL */
    char param[80];   /* the field it is about, or "" */
    int retry;        /* seconds after which to try again; 0: not said */
    cvn_err err;
} Refusal;

/* Fills *why, unless it already has an error, and returns its status. field may be NULL. */
int refuse(Refusal *why, int status, const char *field, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

#endif
