/*
 * Token masks within strings, names and texts that are not JSON: one for each term (term.h). The vocabulary trie is walked through a DFA
 * whose states are terms and whose transitions are computed on first use; all masks of a constraint share it:
 *
 *     [a-z]+     state 3: a → 4, b → 4, …, " → dead        state 4: a → 4, …, " → the end
 *
 * Where a term is free, which is to say that every text goes on to some end (that of a pattern that may stand anywhere, say), tokens are
 * as in strings of which nothing is asked, and only those with a quote in them are looked at.
 */
#ifndef CVN_CONSTRAIN_STRING_MASK_H
#define CVN_CONSTRAIN_STRING_MASK_H

#include "constrain/term.h"
#include "constrain/vocabulary.h"

typedef struct StringMask {
    uint32_t *bits; /* [CVN_MASK_WORDS(n)] */
    Trie tail;      /* what follows the quote, of tokens that go on behind it */
    /* Tokens of free strings belong to the tail as well, unless their bit is set here; or NULL. */
    uint32_t *seen;
    /* [n_exits] nodes of the vocabulary where the string ends and a token goes on */
    uint32_t *exit;
    uint32_t n_exits;
    bool no_tails;    /* they would be most of the vocabulary: tokens have to be walked whole */
    uint32_t *quote;  /* [n_quotes] only in masks of free strings: nodes where the string ends */
    uint16_t *before; /* [n_quotes] characters before the quote */
    uint32_t n_quotes;
    uint16_t *characters; /* [tokens] that a token begins in the string, as far as it is in it */
} StringMask;

enum {
    TEXT_STATES = 30000, /* states that are kept; others are computed again */
    FREE_STATES = 128,   /* states that are looked at to find out whether a term is free */
};

/* A state of the DFA: a position in a string, by what may follow it. */
typedef struct TextState {
    Term term;
    uint32_t escape; /* of raw text: u */
    bool raw, ends;
    bool stays_known;
    int8_t free;       /* whether every text goes on from it (1, 0); -1: not known */
    uint64_t ascii[2]; /* the characters that leave the term as it is: a bit for each … */
    uint64_t lead,
        known; /* … and as TrieBelow has them: whether all that begin so do, and whether that is known */
    uint16_t next[256]; /* transitions: states, TEXT_DEAD, TEXT_END, or TEXT_UNKNOWN */
} TextState;

typedef struct TextDfa {
    Arena *arena;   /* borrowed */
    Map ids;        /* (term, escape, raw) -> index of a state */
    Map free;       /* term -> whether it is */
    TextState **at; /* [n] states; from TEXT_STATES on those that last for one walk only */
    uint32_t n;
} TextDfa;

/* NULL: no memory. */
int text_dfa_init(TextDfa *dfa, Arena *arena);
size_t text_dfa_bytes(const TextDfa *dfa);

/* The mask of a term. `tails`: a text that is not JSON, behind which another may follow. NULL: no memory. */
StringMask *string_mask_make(const cvn_vocabulary *v, TextDfa *dfa, TermTable *terms, Term term,
                             uint32_t escape, bool canonical, bool raw, bool tails);

/* The mask of strings of which nothing is asked; it is made with the vocabulary. NULL: no memory. */
StringMask *string_mask_free_text(const cvn_vocabulary *vocabulary, bool canonical);
void string_mask_free(StringMask *mask);

/* The end of the tokens that go through a node. */
static inline uint32_t tokens_end(const Trie *trie, uint32_t node)
{
    uint32_t after = trie->node[node].after;
    return after < trie->n_nodes ? trie->node[after].first : trie->n_tokens;
}

static inline void set_bit(uint32_t *bits, cvn_token token)
{
    bits[token / 32] |= 1u << (token % 32);
}

static inline bool has_bit(const uint32_t *bits, cvn_token token)
{
    return bits[token / 32] >> (token % 32) & 1;
}

#endif
