/*
 * The tokens of a vocabulary as a tree of their bytes, in the order in which a walk meets its nodes: what follows a byte
 * that may not come is left out in one step.
 *
 *     "a" "ab" "b"      node 0: a, depth 0, after 2, token "a"    1: b, depth 1, token "ab"    2: b, depth 0, token "b"
 */
#ifndef CVN_CONSTRAIN_VOCABULARY_H
#define CVN_CONSTRAIN_VOCABULARY_H

#include "base/arena.h"
#include "caravan/constrain.h"

enum { TOKEN_BYTES = 512 }; /* longer tokens are never allowed */

typedef struct TrieNode {
    uint32_t after;    /* the node behind all that begin with this one */
    uint32_t first, n; /* its tokens, in `token` */
    uint16_t depth;    /* bytes before this one */
    unsigned char byte;
} TrieNode;

struct cvn_vocabulary {
    Arena arena;
    TrieNode *node;
    uint32_t n_nodes;
    cvn_token *token; /* ids, in the order of nodes */
    cvn_token n;
    const char **piece; /* [n] */
    size_t *length;     /* [n] */
    cvn_token *end;     /* [n_end] */
    size_t n_end;
};

#endif
