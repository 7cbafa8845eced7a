/*
 * Texts that end a generation. Text streams through; what may be the beginning of a stop text is
 * held back until it is clear that it is none, so that a stop text that comes in pieces, of several
 * tokens, is never seen by the reader:
 *
 *     stop "\n\nUser"     in "fine." "\n" "\nthanks" "\n\nUs" "er: x"
 *                         out "fine." ""  "\n\nthanks" ""      and stopped
 *
 * The stop text that is complete first counts; of those that end at the same byte the longest.
 * How the text is cut into pieces makes no difference.
 */
#ifndef CVN_SERVE_STOPS_H
#define CVN_SERVE_STOPS_H

#include "base/strbuf.h"

typedef struct Stops {
    const char *const *text; /* [n] borrowed, none empty */
    size_t n;
    StrBuf held;     /* owned: the longest end of what was pushed that may begin a stop text */
    bool stopped;    /* a stop text came: nothing follows */
    const char *met; /* which, one of `text`; or NULL */
} Stops;

void stops_init(Stops *stops, const char *const *text, size_t n);
void stops_free(Stops *stops);

/* Appends to out what is certain not to be part of a stop text. False once a stop text was met. */
bool stops_push(Stops *stops, const char *text, size_t n, StrBuf *out);

/* At the end of the text: what was held back belongs to it after all. */
void stops_flush(Stops *stops, StrBuf *out);

#endif
