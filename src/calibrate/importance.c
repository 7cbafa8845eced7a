#include "calibrate/importance.h"

#include "base/float16.h"
#include "base/num.h"
#include "model/forward.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TRIED = 4 /* pieces of the text that losses are measured by */ };

/* ---- what enters ---- */

/* Adds up the squares of all that enters products, and goes on to the states behind the layer. */
static int look(LayerGraph *l, void *context, cvn_err *err)
{
    Importance *importance = context;
    for (int i = 0; i < importance->n; i++) {
        if (!l->input[i])
            continue;
        cvn_value *x = layer_rows(l, l->input[i]);
        const int64_t columns = cvn_value_type(x)->dim[1];
        if (!importance->column[i])
            importance->column[i] = calloc((size_t)columns, sizeof(float));
        if (!importance->column[i])
            return err_set(err, CVN_EMEM, "no memory for what enters the matrices");
        x = cvn_reduce_dims(l->g, CVN_SUM, cvn_multiply(l->g, x, x), 1, (int[]){0});
        layer_add(l, x, importance->column[i]);
    }
    layer_give(l, l->y, l->layers->state);
    return CVN_OK;
}

/* ---- what rounding costs ---- */

typedef struct Nearest {
    const QuantForm *form;
    const float *w, *importance;
    float *to;
} Nearest;

/* Rows in 4 bits, to the nearest, as numbers. */
static void round_rows(void *context, int thread, int n_threads)
{
    const Nearest *r = context;
    const QuantForm *f = r->form;
    const int64_t group = f->k / f->groups;
    for (int64_t row = thread; row < f->n; row += n_threads)
        for (int64_t g = 0; g < f->groups; g++) {
            const float *w = r->w + row * f->k + g * group;
            const float scale = bf16_to_f32(quant_scale(w, r->importance + g * group, group));
            for (int64_t i = 0; i < group; i++) {
                float code = scale != 0 ? rintf(w[i] / scale) : 0;
                code = code > 7 ? 7 : code < -8 ? -8 : code;
                r->to[row * f->k + g * group + i] = code * scale;
            }
        }
}

typedef struct Trial {
    Importance *importance;
    float **rounded; /* [params] matrices of the layer in 4 bits, as numbers, or NULL */
    float *loss;     /* [params] */
} Trial;

/* Of each matrix alone: how the layer changes, beside what it gives. */
static int try_matrices(LayerGraph *l, void *context, cvn_err *err)
{
    const Trial *trial = context;
    const size_t n = (size_t)trial->importance->n;
    const Layers *of = l->layers;
    cvn_graph *g = l->g;
    cvn_value **weight = arena_copy(&g->arena, l->weight, n * sizeof *weight);
    cvn_value **input = arena_array(&g->arena, n, sizeof *input);
    cvn_value *size = cvn_reduce_dims(g, CVN_SUM, cvn_multiply(g, l->y, l->y), 1, (int[]){2});
    (void)err;
    for (size_t i = 0; i < n; i++) {
        if (!trial->rounded[i])
            continue;
        weight[i] = layer_parameter(l, *cvn_value_type(l->weight[i]), trial->rounded[i]);
        cvn_value *y = model_layer(g, of->model->desc, CVN_F32, of->layer, l->x, weight, input);
        cvn_value *change = cvn_subtract(g, y, l->y);
        change = cvn_reduce_dims(g, CVN_SUM, cvn_multiply(g, change, change), 1, (int[]){2});
        change = cvn_divide(g, change, size);
        layer_add(l, cvn_reduce_dims(g, CVN_SUM, change, 2, (int[]){0, 1}), &trial->loss[i]);
        weight[i] = l->weight[i];
    }
    return CVN_OK;
}

static int measure_losses(Importance *importance, Layers *of, QuantScheme scheme, int64_t pieces,
                          cvn_err *err)
{
    const size_t n = (size_t)importance->n;
    SCOPED(scoped_free) float *loss = calloc(n, sizeof *loss);
    SCOPED(scoped_free) float **rounded = calloc(n, sizeof *rounded);
    Trial trial = {.importance = importance, .rounded = rounded, .loss = loss};
    bool any = false;
    int code = loss && rounded ? CVN_OK : err_set(err, CVN_EMEM, "no memory to try matrices");
    for (size_t i = 0; i < n && code == CVN_OK; i++) {
        const Param *p = &of->model->params.param[i];
        int64_t rows = 1;
        if (!of->weight[i] || !importance->column[i] || p->layer < 0)
            continue;
        for (int d = 0; d < p->n_rows; d++)
            rows *= p->dims[d];
        const QuantForm form = quant_form(scheme, rows, p->n / rows);
        if (form.dtype != CVN_I4)
            continue;
        rounded[i] = malloc((size_t)p->n * sizeof(float));
        if (!rounded[i])
            code = err_set(err, CVN_EMEM, "no memory to try matrices");
        Nearest work = {&form, of->weight[i], importance->column[i], rounded[i]};
        if (code == CVN_OK)
            pool_run(of->pool, round_rows, &work);
        any = true;
    }
    if (code == CVN_OK && any)
        code = layers_run(of, 0, pieces, try_matrices, &trial, err);
    for (size_t i = 0; i < n && loss && rounded; i++) {
        if (rounded[i])
            importance->loss[i] = (double)loss[i];
        free(rounded[i]);
    }
    return code;
}

int importance_measure(Importance *importance, Layers *of, QuantScheme scheme, cvn_err *err)
{
    const int64_t layers = model_layers(of->model->desc);
    *importance = (Importance){.n = of->model->params.n};
    importance->column = calloc((size_t)importance->n, sizeof *importance->column);
    importance->loss = calloc((size_t)importance->n, sizeof *importance->loss);
    if (!importance->column || !importance->loss)
        return err_set(err, CVN_EMEM, "no memory for what enters the matrices");
    const int64_t tried = num_min(TRIED, of->texts);
    const size_t bytes = (size_t)(tried * of->length * of->dim) * sizeof(float);
    SCOPED(scoped_free) float *before = malloc(bytes);
    if (!before)
        return err_set(err, CVN_EMEM, "no memory to try matrices");
    for (int64_t layer = 0; layer <= layers; layer++) {
        TRY(layers_read(of, err));
        memcpy(before, of->state, bytes);
        TRY(layers_run(of, 0, of->texts, look, importance, err));
        if (scheme.kind != QUANT_INT4)
            continue;
        float *behind = of->state;
        of->state = before; /* once more from there, on these pieces */
        int code = measure_losses(importance, of, scheme, tried, err);
        of->state = behind;
        TRY(code);
    }
    return CVN_OK;
}

void importance_free(Importance *importance)
{
    for (int i = 0; i < importance->n && importance->column; i++)
        free(importance->column[i]);
    free(importance->column);
    free(importance->loss);
    *importance = (Importance){0};
}

/* ---- what is kept in 8 bits ---- */

typedef struct Candidate {
    int param;
    double bits, extra, loss; /* in 4 bits with scales; what 8 take more; what that saves */
} Candidate;

static int by_loss(const void *a, const void *b)
{
    const Candidate *x = a, *y = b;
    const double p = x->loss / x->extra, q = y->loss / y->extra;
    return p != q ? (p < q ? 1 : -1) : (x->param > y->param) - (x->param < y->param);
}

static double bits_of(const QuantForm *f)
{
    const double scales = (double)(f->n * f->groups) * (double)cvn_dtype_bytes(f->scale_dtype, 1);
    return 8 * ((double)cvn_dtype_bytes(f->dtype, f->n * f->k) + scales);
}

const bool *importance_choose(const Importance *importance, const IoModel *model,
                              QuantScheme scheme, double bits, Arena *arena)
{
    const int64_t layers = model_layers(model->desc);
    Candidate *choice = arena_array(arena, (size_t)importance->n + 1, sizeof *choice);
    bool *eight = arena_array(arena, (size_t)layers * PARAM_KIND_COUNT, sizeof *eight), any = false;
    double left = 0;
    size_t n = 0;
    for (int i = 0; i < importance->n; i++) {
        const Param *p = &model->params.param[i];
        int64_t rows = 1;
        if (p->layer < 0 || !importance->column[i])
            continue;
        for (int d = 0; d < p->n_rows; d++)
            rows *= p->dims[d];
        const QuantForm four = quant_form(scheme, rows, p->n / rows);
        const QuantForm wide = quant_form((QuantScheme){.kind = QUANT_INT8}, rows, p->n / rows);
        left += bits * (double)p->n - bits_of(&four);
        if (four.dtype == CVN_I4)
            choice[n++] = (Candidate){i, bits_of(&four), bits_of(&wide) - bits_of(&four),
                                      importance->loss[i]};
    }
    qsort(choice, n, sizeof *choice, by_loss);
    for (size_t i = 0; i < n; i++) {
        const Param *p = &model->params.param[choice[i].param];
        if (choice[i].extra > left)
            continue;
        left -= choice[i].extra;
        eight[p->layer * PARAM_KIND_COUNT + p->kind] = any = true;
    }
    return any ? eight : NULL;
}
