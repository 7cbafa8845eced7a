/* A vocabulary: its tokens' bytes, as a tree too, and what is the same in every string and behind all blanks. */
#ifndef CVN_CONSTRAIN_VOCABULARY_H
#define CVN_CONSTRAIN_VOCABULARY_H

#include "constrain/trie.h"

struct cvn_vocabulary {
    Arena arena;
    Trie trie;
    cvn_token n;
    const char **piece; /* [n] */
    size_t *length;     /* [n] */
    uint32_t longest;   /* of length */
    cvn_token *end;     /* [n_end] */
    size_t n_end;
    /* string_mask.h, of any strings and of canonical ones; owned */
    struct StringMask *free_text[2];
    /* Nodes from which on tokens go on behind blanks, or behind nothing: those of byte b are those from begin[b] on. */
    uint32_t *node; /* [begin[256]] */
    uint32_t begin[257];
    uint32_t *blank; /* [CVN_MASK_WORDS(n)] tokens of blanks alone */
};

#endif
