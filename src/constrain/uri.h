/* References between schemas: a reference is read relative to a base, by RFC 3986 section 5.2. */
#ifndef CVN_CONSTRAIN_URI_H
#define CVN_CONSTRAIN_URI_H

#include "base/arena.h"

/* The absolute form of a reference, with its fragment; both are NUL-terminated. */
char *uri_resolve(Arena *arena, const char *base, const char *reference);

/* Cuts off the fragment and returns it without its '#', percent-decoded; "" where there is none. */
char *uri_cut_fragment(Arena *arena, char *uri);

#endif
