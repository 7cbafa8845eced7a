#include "constrain/vocabulary.h"

#include "base/heap.h"
#include "constrain/mask.h"

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

void trie_free(Trie *trie)
{
    free(trie->node);
    free(trie->token);
}

int cvn_vocabulary_new(const char *const *piece, const size_t *length, cvn_token n,
                       const cvn_token *end, size_t n_end, cvn_vocabulary **out, cvn_err *err)
{
    cvn_vocabulary *v = calloc(1, sizeof *v);
    size_t count = 0;
    if (!v || arena_init(&v->arena, err)) {
        free(v);
        return err_set(err, CVN_EMEM, "there is no memory for the vocabulary");
    }
    v->n = n > 0 ? n : 0;
    v->piece = arena_array(&v->arena, (size_t)v->n + 1, sizeof *v->piece);
    v->length = arena_array(&v->arena, (size_t)v->n + 1, sizeof *v->length);
    v->end = arena_copy(&v->arena, end, n_end * sizeof *end);
    v->n_end = n_end;
    TriePiece *sorted = arena_array(&v->arena, (size_t)v->n + 1, sizeof *sorted);
    for (cvn_token i = 0; i < v->n; i++) {
        bool ends = false;
        for (size_t k = 0; k < n_end; k++)
            ends = ends || end[k] == i;
        v->length[i] = ends || length[i] > TOKEN_BYTES ? 0 : length[i];
        v->piece[i] = arena_copy(&v->arena, piece[i], v->length[i]);
        if (v->length[i] > v->longest)
            v->longest = (uint32_t)v->length[i];
        if (v->length[i])
            sorted[count++] = (TriePiece){v->piece[i], v->length[i], i};
    }
    if (!trie_make(&v->trie, sorted, count) || !(v->free_text = string_mask_free_text(v))) {
        cvn_vocabulary_free(v);
        return err_set(err, CVN_EMEM, "there is no memory for the vocabulary");
    }
    *out = v;
    return CVN_OK;
}

void cvn_vocabulary_free(cvn_vocabulary *vocabulary)
{
    if (!vocabulary)
        return;
    trie_free(&vocabulary->trie);
    string_mask_free(vocabulary->free_text);
    arena_free(&vocabulary->arena);
    free(vocabulary);
}
