#include "constrain/trie.h"

#include "base/heap.h"
#include "constrain/term.h"

#include <stdlib.h>
#include <string.h>

static int by_bytes(const void *a, const void *b)
{
    const TriePiece *x = a, *y = b;
    int order = memcmp(x->text, y->text, x->length < y->length ? x->length : y->length);
    if (!order)
        order = (x->length > y->length) - (x->length < y->length);
    return order ? order : (x->id > y->id) - (x->id < y->id);
}

static bool add_node(Trie *trie, const TriePiece *piece, size_t depth)
{
    TrieNode *more = heap_more(trie->node, trie->n_nodes, sizeof *more);
    if (!more)
        return false;
    trie->node = more;
    trie->node[trie->n_nodes++] =
        (TrieNode){.depth = (uint16_t)depth, .byte = (unsigned char)piece->text[depth]};
    return true;
}

bool trie_make(Trie *trie, TriePiece *piece, size_t n)
{
    uint32_t open[TOKEN_BYTES + 1]; /* nodes from the root to the last one */
    size_t depth = 0;
    *trie = (Trie){.token = malloc((n + 1) * sizeof *trie->token)};
    if (!trie->token)
        return false;
    if (n)
        qsort(piece, n, sizeof *piece, by_bytes);
    for (size_t i = 0; i < n; i++) {
        size_t same = 0;
        while (i && same < depth && same < piece[i].length &&
               piece[i].text[same] == piece[i - 1].text[same])
            same++;
        for (; depth > same; depth--)
            trie->node[open[depth - 1]].after = trie->n_nodes;
        for (; depth < piece[i].length; depth++) {
            open[depth] = trie->n_nodes;
            if (!add_node(trie, &piece[i], depth))
                return false;
            trie->node[open[depth]].first = (uint32_t)i;
        }
        trie->node[open[depth - 1]].n++;
        trie->token[i] = piece[i].id;
    }
    for (; depth > 0; depth--)
        trie->node[open[depth - 1]].after = trie->n_nodes;
    trie->n_tokens = (uint32_t)n;
    return true;
}

bool trie_look_below(Trie *trie)
{
    int u[TOKEN_BYTES + 1] = {0}; /* where in a character a node is; -1 where that is none */
    trie->below = calloc((size_t)trie->n_nodes + 1, sizeof *trie->below);
    if (!trie->below)
        return false;
    for (uint32_t i = 0; i < trie->n_nodes; i++) {
        const TrieNode *node = &trie->node[i];
        u[node->depth + 1] = u[node->depth] < 0 ? -1 : utf8_step(u[node->depth], node->byte);
        trie->below[i].broken = u[node->depth + 1] < 0;
    }
    for (uint32_t i = trie->n_nodes; i-- > 0;) {
        TrieBelow *below = &trie->below[i];
        for (uint32_t k = i + 1; k < trie->node[i].after; k = trie->node[k].after) {
            unsigned char byte = trie->node[k].byte;
            if (byte < 128)
                below->ascii[byte >> 6] |= 1ull << (byte & 63);
            else if (byte >= TRIE_LEAD)
                below->lead |= 1ull << (byte - TRIE_LEAD);
            below->ascii[0] |= trie->below[k].ascii[0];
            below->ascii[1] |= trie->below[k].ascii[1];
            below->lead |= trie->below[k].lead;
            below->broken = below->broken || trie->below[k].broken;
        }
    }
    return true;
}

void trie_free(Trie *trie)
{
    free(trie->below);
    free(trie->node);
    free(trie->token);
}
