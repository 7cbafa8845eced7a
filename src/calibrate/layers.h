/*
 * A text on its way through a model, layer by layer. Between two layers there are the states of all tokens; of the model one layer
 * is in memory, as f32:
 *
 *     states [texts, length, dim]    what the layers before made of the text, cut into pieces of `length` tokens
 *     weight [params]                of the layer, NULL for the others; the caller may change them
 *
 * Behind the last layer comes the head, of which only the norm before it is computed.
 */
#ifndef CVN_CALIBRATE_LAYERS_H
#define CVN_CALIBRATE_LAYERS_H

#include "base/threads.h"
#include "caravan/run.h"
#include "io/model.h"

enum { CALIBRATION_PIECE = 512 /* tokens of a piece, where the model's context has so many */ };

typedef struct Layers {
    const IoModel *model; /* borrowed: its matrices are floats */
    Pool *pool;           /* owned */
    cvn_mesh *mesh;       /* owned */
    const volatile int *interrupt;
    int32_t *id;                /* [texts, length], owned */
    int64_t texts, length, dim; /* pieces, tokens of one, width of a state */
    float *state;               /* [texts, length, dim], owned */
    int64_t layer;              /* whose weights are there; layers: the head's; -1: none yet */
    float **weight;             /* [params] of the model; owned */
} Layers;

/* The first n ids of a text, in pieces. */
int layers_open(Layers *layers, const IoModel *model, const int32_t *id, int64_t n, int threads,
                const volatile int *interrupt, cvn_err *err);
/* Safe on {0}. */
void layers_close(Layers *layers);

/* Back to the beginning: states are embeddings. */
void layers_rewind(Layers *layers);
/* The weights of the next layer are read. */
int layers_read(Layers *layers, cvn_err *err);

/* The layer as a graph over some pieces at once: x is its first parameter, and then come the weights that are there. */
typedef struct LayerGraph {
    const Layers *layers;
    cvn_graph *g;
    int64_t batch;               /* pieces */
    cvn_value *x, *y;            /* [batch, length, dim]; y of the head: its norm */
    cvn_value **weight, **input; /* [params]; input: what enters the product with each */
    void **in;                   /* [n] where each parameter lies */
    int n;
    struct {
        uint8_t *all; /* [texts] of which a run has `batch` */
        size_t bytes; /* of one */
        int at;       /* parameter, or output */
    } part[16], given[16];
    int parts, givens, outputs;
} LayerGraph;

/* Another parameter of the graph. */
cvn_value *layer_parameter(LayerGraph *l, cvn_type type, void *array);
/* An output, written among those of all pieces. */
void layer_give(LayerGraph *l, cvn_value *v, void *all);
/* Adds the sum of v, over all runs, to an array. */
void layer_add(LayerGraph *l, cvn_value *v, void *array);
/* What enters a product, as a matrix [tokens, columns]. */
cvn_value *layer_rows(LayerGraph *l, cvn_value *input);

/* Adds to the graph what is wanted of the layer; it is called twice where the pieces do not divide into runs of equal size. */
typedef int LayerMake(LayerGraph *l, void *context, cvn_err *err);

/* Makes the graph, and runs it over pieces first … first + n - 1, some at a time. */
int layers_run(Layers *layers, int64_t first, int64_t n, LayerMake *make, void *context,
               cvn_err *err);

#endif
