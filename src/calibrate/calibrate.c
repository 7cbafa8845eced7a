#include "calibrate/calibrate.h"

#include "base/float16.h"
#include "calibrate/importance.h"
#include "calibrate/round.h"

#include <stdlib.h>
#include <string.h>

struct Calibration {
    Importance importance;
    /* The text in what the model becomes: of the layer's weights those that are rounded are replaced. */
    Layers layers;
    RoundInputs inputs; /* of the matrices that are rounded; owned */
    int looked_at;      /* index of the parameter whose inputs they are; -1: of none */
    bool *same;         /* [params] whether they are those of this one, too; owned */
};

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
    if (c->layers.layer >= 0)
        TRY(layers_run(&c->layers, 0, c->layers.texts, go_on, NULL, err));
    inputs_close(&c->inputs);
    c->looked_at = -1;
    return layers_read(&c->layers, err);
}

typedef struct Sums {
    Calibration *c;
    int param;
    float *sums; /* [columns, columns] */
} Sums;

static int add_squares(LayerGraph *l, void *context, cvn_err *err)
{
    const Sums *s = context;
    cvn_value *x = layer_rows(l, l->input[s->param]);
    (void)err;
    for (int i = 0; i < l->layers->model->params.n; i++)
        s->c->same[i] = l->input[i] == l->input[s->param];
    layer_add(l, cvn_einsum_as(l->g, "ti,tj->ij", x, x, CVN_F32), s->sums);
    return CVN_OK;
}

static int look_at_inputs(Calibration *c, int param, int64_t k, cvn_err *err)
{
    SCOPED(scoped_free) float *sums = calloc((size_t)(k * k), sizeof *sums);
    Sums s = {c, param, sums};
    if (!sums)
        return err_set(err, CVN_EMEM, "no memory for the inputs of a layer");
    TRY(layers_run(&c->layers, 0, c->layers.texts, add_squares, &s, err));
    inputs_close(&c->inputs);
    TRY(inputs_open(&c->inputs, sums, k, c->layers.pool, err));
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
    const IoModel *model = c->layers.model;
    const ParamList *params = &model->params;
    const Param *p = params_find(params, param->kind, param->layer);
    const int64_t layer = param->layer < 0 ? model_layers(model->desc) : param->layer;
    const QuantForm *f = &param->quant;
    if (!p)
        p = params_find(params, PARAM_EMBED, -1); /* the head of a tied model */
    const int i = (int)(p - params->param);
    while (c->layers.layer < layer)
        TRY(next_layer(c, err));
    float *w = c->layers.weight[i];
    if (known) {
        replace(w, f, q, scale);
        return CVN_OK;
    }
    if (f->dtype == CVN_I4) {
        if (c->looked_at < 0 || !c->same[i])
            TRY(look_at_inputs(c, i, f->k, err));
        TRY(round_matrix(&c->inputs, f, w, q, scale, c->layers.pool, err));
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
    TRY(layers_open(&c->layers, o->model, o->id, o->n, o->threads, o->interrupt, err));
    c->same = calloc((size_t)o->model->params.n, sizeof *c->same);
    if (!c->same)
        return err_set(err, CVN_EMEM, "no memory to calibrate");
    TRY(importance_measure(&c->importance, &c->layers, o->scheme, err));
    layers_rewind(&c->layers);
    return CVN_OK;
}

const float *calibration_importance(void *calibration, const Param *param)
{
    const Calibration *c = calibration;
    const ParamList *params = &c->layers.model->params;
    const Param *p = params_find(params, param->kind, param->layer);
    return p ? c->importance.column[p - params->param] : NULL;
}

const bool *calibration_choose(const Calibration *c, QuantScheme scheme, double bits, Arena *arena)
{
    return importance_choose(&c->importance, c->layers.model, scheme, bits, arena);
}

void calibration_close(Calibration *c)
{
    if (!c)
        return;
    importance_free(&c->importance);
    inputs_close(&c->inputs);
    layers_close(&c->layers);
    free(c->same);
    free(c);
}
