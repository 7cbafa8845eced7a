#include "constrain/vocabulary.h"

#include <stdlib.h>
#include <string.h>

typedef struct Piece {
    const char *text;
    size_t length;
    cvn_token id;
} Piece;

static int by_bytes(const void *a, const void *b)
{
    const Piece *x = a, *y = b;
    int order = memcmp(x->text, y->text, x->length < y->length ? x->length : y->length);
    if (!order)
        order = (x->length > y->length) - (x->length < y->length);
    return order ? order : (x->id > y->id) - (x->id < y->id);
}

static void add_node(cvn_vocabulary *v, const Piece *piece, size_t depth)
{
    v->node = arena_more(&v->arena, v->node, v->n_nodes, sizeof *v->node);
    v->node[v->n_nodes++] =
        (TrieNode){.depth = (uint16_t)depth, .byte = (unsigned char)piece->text[depth]};
}

static void build(cvn_vocabulary *v, Piece *piece, size_t n)
{
    uint32_t open[TOKEN_BYTES + 1]; /* nodes from the root to the last one */
    size_t depth = 0;
    qsort(piece, n, sizeof *piece, by_bytes);
    for (size_t i = 0; i < n; i++) {
        size_t same = 0;
        while (i && same < depth && same < piece[i].length &&
               piece[i].text[same] == piece[i - 1].text[same])
            same++;
        for (; depth > same; depth--)
            v->node[open[depth - 1]].after = v->n_nodes;
        for (; depth < piece[i].length; depth++) {
            open[depth] = v->n_nodes;
            add_node(v, &piece[i], depth);
        }
        TrieNode *last = &v->node[open[depth - 1]];
        if (!last->n)
            last->first = (uint32_t)i;
        last->n++;
        v->token[i] = piece[i].id;
    }
    for (; depth > 0; depth--)
        v->node[open[depth - 1]].after = v->n_nodes;
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
    v->token = arena_array(&v->arena, (size_t)v->n + 1, sizeof *v->token);
    v->end = arena_copy(&v->arena, end, n_end * sizeof *end);
    v->n_end = n_end;
    Piece *sorted = arena_array(&v->arena, (size_t)v->n + 1, sizeof *sorted);
    for (cvn_token i = 0; i < v->n; i++) {
        bool ends = false;
        for (size_t k = 0; k < n_end; k++)
            ends = ends || end[k] == i;
        v->length[i] = ends || length[i] > TOKEN_BYTES ? 0 : length[i];
        v->piece[i] = arena_copy(&v->arena, piece[i], v->length[i]);
        if (v->length[i])
            sorted[count++] = (Piece){v->piece[i], v->length[i], i};
    }
    build(v, sorted, count);
    *out = v;
    return CVN_OK;
}

void cvn_vocabulary_free(cvn_vocabulary *vocabulary)
{
    if (!vocabulary)
        return;
    arena_free(&vocabulary->arena);
    free(vocabulary);
}
