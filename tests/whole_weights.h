/* All floats of an opened model in memory, as its files have them: for comparing. */
#ifndef CVN_TESTS_WHOLE_WEIGHTS_H
#define CVN_TESTS_WHOLE_WEIGHTS_H

#include "io/convert.h"
#include "io/model.h"

#include <stdlib.h>

typedef struct WholeWeights {
    void **data;   /* [n], in the order of IoModel.params */
    size_t *bytes; /* [n] */
    int n;
    size_t n_nonfinite; /* elements of all */
} WholeWeights;

static inline void whole_load(WholeWeights *w, const IoModel *model, cvn_dtype dtype)
{
    size_t n = (size_t)model->params.n;
    *w = (WholeWeights){calloc(n, sizeof *w->data), calloc(n, sizeof *w->bytes), (int)n, 0};
    for (size_t i = 0; i < n; i++) {
        int64_t elements = model->params.param[i].n;
        w->bytes[i] = cvn_dtype_bytes(dtype, elements);
        w->data[i] = malloc(w->bytes[i]);
        w->n_nonfinite += (size_t)io_convert(model->source[i], 0, elements, dtype, w->data[i]);
    }
}

static inline void whole_free(WholeWeights *w)
{
    for (int i = 0; i < w->n; i++)
        free(w->data[i]);
    free(w->data);
    free(w->bytes);
    *w = (WholeWeights){0};
}

#endif
