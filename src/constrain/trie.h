/*
 * The tokens of a vocabulary as a tree of their bytes, in the order in which a walk meets its nodes: what follows a byte
 * that may not come is left out in one step.
 *
 *     "a" "ab" "b"      node 0: a, depth 0, after 2, token "a"    1: b, depth 1, token "ab"    2: b, depth 0, token "b"
 */
#ifndef CVN_CONSTRAIN_TRIE_H
#define CVN_CONSTRAIN_TRIE_H

#include "base/arena.h"
#include "caravan/constrain.h"

enum { TRIE_LEAD = 0xc2, TOKEN_BYTES = 512 }; /* longer tokens are never allowed */

typedef struct TrieNode {
    uint32_t after;    /* the node behind all that begin with this one */
    uint32_t first, n; /* its tokens, in `token` */
    uint16_t depth;    /* bytes before this one */
    unsigned char byte;
} TrieNode;

/* The bytes that stand anywhere below a node. */
typedef struct TrieBelow {
    uint64_t ascii[2]; /* a bit for each */
    /* a bit for each first byte, from TRIE_LEAD on, of longer characters, of which tokens may have no more */
    uint64_t lead;
    bool broken; /* or what is no UTF-8, where the node ends a character */
} TrieBelow;

typedef struct Trie {
    TrieNode *node;   /* [n_nodes] owned */
    cvn_token *token; /* ids, in the order of nodes; owned */
    uint32_t n_nodes, n_tokens;
    TrieBelow *below; /* [n_nodes] owned; NULL before trie_look_below */
} Trie;

typedef struct TriePiece {
    const char *text;
    size_t length; /* 1 to TOKEN_BYTES */
    cvn_token id;
} TriePiece;

/* JSON's. */
static inline bool is_blank(unsigned char byte)
{
    return byte == ' ' || byte == '\t' || byte == '\n' || byte == '\r';
}

/* Of n pieces, which are sorted. False where memory ran out. */
bool trie_make(Trie *trie, TriePiece *piece, size_t n);
bool trie_look_below(Trie *trie);
void trie_free(Trie *trie);

#endif
