/* The inside of terms, shared by what builds them (term.c) and what follows bytes through them. */
#ifndef CVN_CONSTRAIN_TERM_IMPL_H
#define CVN_CONSTRAIN_TERM_IMPL_H

#include "constrain/term.h"

/* Notes the limit that was met; TERM_NONE. */
Term term_fail(TermTable *t, const char *what);

/* Counts steps of work, of which there is a limit. */
void term_count_work(TermTable *t, size_t n);

/* The id of a node with this content: `set`, or a list of n. */
Term term_intern(TermTable *t, TermKind kind, const ByteSet *set, uint32_t min, uint32_t max,
                 const Term *list, size_t n, bool nullable, bool plain);

/* Of a TERM_K_LANGUAGE. */
static inline const Language *term_language_of(const TermNode *node)
{
    return (const Language *)(uintptr_t)(node->list[0] | (uint64_t)node->list[1] << 32);
}

#endif
