/*
 * The nearest word: what somebody who typed "--promt" meant. Nearness is the Damerau-Levenshtein
 * distance (insert, delete, replace, swap neighbours) in its restricted form, in bytes.
 */
#ifndef CVN_BASE_SUGGEST_H
#define CVN_BASE_SUGGEST_H

#include "base/strbuf.h"

#include <stdbool.h>
#include <stddef.h>

/* The i-th candidate of a list, NULL past the last. */
typedef const char *(*SuggestAt)(const void *list, size_t i);

/* The nearest candidate if it is near enough to be meant, else NULL. A word that begins a candidate
 * is near. */
const char *suggest(const char *word, SuggestAt at, const void *list);

/* Adds the path beside `path` whose last part is nearest; false, and nothing added, when there is
 * none. */
bool suggest_path(const char *path, StrBuf *out);

#endif
