#include "calibrate/calibrate.h"

#include "base/float16.h"
#include "calibrate/importance.h"
#include "calibrate/round.h"

#include <stdlib.h>
#include <string.h>

struct Calibration {
    Importance importance;
    /* The text in the model as it is, and in what it becomes: of that layer's weights those that are rounded are replaced. */
    Layers floats, quantized;
    /* [params] what enters each matrix of the layer as it is, [tokens, columns], owned by the first of those with the same inputs;
       and the index of that one, -1: it is no matrix of the layer. */
    float **entered;
    int *same;
    Inputs inputs; /* of the matrices that are rounded; owned */
    int looked_at; /* index of the parameter whose inputs they are; -1: of none */
};

static void forget_inputs(Calibration *c)
{
    for (int i = 0; c->entered && i < c->floats.model->params.n; i++) {
        if (c->same[i] == i)
            free(c->entered[i]);
        c->entered[i] = NULL;
        c->same[i] = -1;
    }
    inputs_close(&c->inputs);
    c->looked_at = -1;
}

/* Keeps what enters each matrix, once for all that have the same inputs. */
static int keep_inputs(LayerGraph *l, void *context, cvn_err *err)
{
    Calibration *c = context;
    const int64_t tokens = l->layers->texts * l->layers->length;
    for (int i = 0; i < l->layers->model->params.n; i++) {
        if (!l->input[i])
            continue;
        int first = 0;
        while (l->input[first] != l->input[i])
            first++;
        c->same[i] = first;
        if (!c->entered[first]) {
            cvn_value *rows = layer_rows(l, l->input[i]);
            c->entered[first] =
                malloc((size_t)(tokens * cvn_value_type(rows)->dim[1]) * sizeof(float));
            if (!c->entered[first])
                return err_set(err, CVN_EMEM, "no memory for what enters a layer's matrices");
        }
        if (first == i)
            layer_give(l, layer_rows(l, l->input[i]), c->entered[i]);
        c->entered[i] = c->entered[first];
    }
    layer_give(l, l->y, l->layers->state);
    return CVN_OK;
}

static int go_on(LayerGraph *l, void *context, cvn_err *err)
{
    (void)context;
    (void)err;
    layer_give(l, l->y, l->layers->state);
    return CVN_OK;
}

/* On to the next layer, or the head. */
static int next_layer(Calibration *c, cvn_err *err)
{
    if (c->quantized.layer >= 0)
        TRY(layers_run(&c->quantized, 0, c->quantized.texts, go_on, NULL, err));
    forget_inputs(c);
    TRY(layers_read(&c->floats, err));
    TRY(layers_read(&c->quantized, err));
    return layers_run(&c->floats, 0, c->floats.texts, keep_inputs, c, err);
}

typedef struct Sums {
    Calibration *c;
    int param;
    float *sums, *changes; /* [columns, columns] */
} Sums;

static int add_products(LayerGraph *l, void *context, cvn_err *err)
{
    const Sums *s = context;
    cvn_value *x = layer_rows(l, l->input[s->param]);
    cvn_value *was = layer_part(l, *cvn_value_type(x), s->c->entered[s->param]);
    (void)err;
    layer_add(l, cvn_einsum_as(l->g, "ti,tj->ij", x, x, CVN_F32), s->sums);
    was = cvn_subtract(l->g, was, x);
    layer_add(l, cvn_einsum_as(l->g, "ti,tj->ij", was, x, CVN_F32), s->changes);
    return CVN_OK;
}

static int look_at_inputs(Calibration *c, int param, int64_t k, cvn_err *err)
{
    SCOPED(scoped_free) float *sums = calloc((size_t)(k * k), sizeof *sums);
    SCOPED(scoped_free) float *changes = calloc((size_t)(k * k), sizeof *changes);
    Sums s = {c, param, sums, changes};
    if (!sums || !changes)
        return err_set(err, CVN_EMEM, "no memory for the inputs of a layer");
    TRY(layers_run(&c->quantized, 0, c->quantized.texts, add_products, &s, err));
    inputs_close(&c->inputs);
    TRY(inputs_open(&c->inputs, sums, changes, k, c->quantized.pool, err));
    c->looked_at = param;
    return CVN_OK;
}

/* What numbers and scales say, in place of the weights. */
static void replace(float *w, const QuantForm *f, const uint8_t *q, const void *scale)
{
    const int64_t group = f->k / f->groups;
    for (int64_t i = 0; i < f->n * f->k; i++)
        if (f->dtype == CVN_I4) {
            int code = q[i / 2] >> i % 2 * 4 & 15;
            w[i] =
                (float)(code - (code & 8) * 2) * bf16_to_f32(((const uint16_t *)scale)[i / group]);
        } else {
            w[i] = (float)(int8_t)q[i] * ((const float *)scale)[i / group];
        }
}

int calibration_round(void *calibration, const Param *param, bool known, uint8_t *q, void *scale,
                      cvn_err *err)
{
    Calibration *c = calibration;
    const IoModel *model = c->floats.model;
    const ParamList *params = &model->params;
    const Param *p = params_find(params, param->kind, param->layer);
    const int64_t layer = param->layer < 0 ? model_layers(model->desc) : param->layer;
    const QuantForm *f = &param->quant;
    if (!p)
        p = params_find(params, PARAM_EMBED, -1); /* the head of a tied model */
    const int i = (int)(p - params->param);
    while (c->quantized.layer < layer)
        TRY(next_layer(c, err));
    float *w = c->quantized.weight[i];
    if (known) {
        replace(w, f, q, scale);
        return CVN_OK;
    }
    if (f->dtype == CVN_I4) {
        if (c->looked_at < 0 || c->same[c->looked_at] != c->same[i])
            TRY(look_at_inputs(c, i, f->k, err));
        TRY(round_matrix(&c->inputs, f, w, q, scale, c->quantized.pool, err));
    }
    for (int64_t row = 0; f->dtype != CVN_I4 && row < f->n; row++)
        quant_row(f, w + row * f->k, f->k, q + row * f->k, (float *)scale + row);
    replace(w, f, q, scale);
    return CVN_OK;
}

int calibration_open(Calibration **out, const CalibrationOptions *o, cvn_err *err)
{
    Calibration *c = *out = calloc(1, sizeof *c);
    if (!c)
        return err_set(err, CVN_EMEM, "no memory to calibrate");
    c->looked_at = -1;
    TRY(layers_open(&c->floats, o->model, o->id, o->n, o->threads, o->interrupt, err));
    TRY(layers_open(&c->quantized, o->model, o->id, o->n, o->threads, o->interrupt, err));
    c->entered = calloc((size_t)o->model->params.n, sizeof *c->entered);
    c->same = calloc((size_t)o->model->params.n, sizeof *c->same);
    if (!c->entered || !c->same)
        return err_set(err, CVN_EMEM, "no memory to calibrate");
    for (int i = 0; i < o->model->params.n; i++)
        c->same[i] = -1;
    TRY(importance_measure(&c->importance, &c->floats, o->scheme, err));
    layers_rewind(&c->floats);
    return CVN_OK;
}

const float *calibration_importance(void *calibration, const Param *param)
{
    const Calibration *c = calibration;
    const ParamList *params = &c->floats.model->params;
    const Param *p = params_find(params, param->kind, param->layer);
    return p ? c->importance.column[p - params->param] : NULL;
}

const bool *calibration_choose(const Calibration *c, QuantScheme scheme, double bits, Arena *arena)
{
    return importance_choose(&c->importance, c->floats.model, scheme, bits, arena);
}

void calibration_close(Calibration *c)
{
    if (!c)
        return;
    if (c->entered && c->same)
        forget_inputs(c);
    importance_free(&c->importance);
    layers_close(&c->floats);
    layers_close(&c->quantized);
    free(c->entered);
    free(c->same);
    free(c);
}
