#include "calibrate/calibrate.h"

#include "base/float16.h"
#include "base/num.h"
#include "calibrate/round.h"
#include "caravan/run.h"
#include "io/convert.h"
#include "model/forward.h"

#include <stdlib.h>
#include <string.h>

enum { TEXT = 512 /* tokens of a piece of the text */, TOGETHER = 4 /* pieces that a run reads */ };

struct Calibration {
    const IoModel *model; /* borrowed */
    Pool *pool;           /* owned */
    cvn_mesh *mesh;       /* owned */
    const volatile int *interrupt;
    int64_t dim, texts, length; /* pieces, and tokens of one */
    float *state;               /* [texts, length, dim], owned */
    int64_t layer;              /* whose weights are there; layers: the head's; -1: none yet */
    float **weight;             /* [params] of the model; owned */
    Inputs inputs;              /* of the parameter `entered`; owned */
    int entered;                /* index; -1: of none */
};

/* ---- graphs ---- */

/* The layer as a graph, x its first parameter, then the weights that are there. */
typedef struct LayerGraph {
    cvn_graph *g;
    cvn_value *y, **input; /* input [params] */
    void **in;             /* [parameters] where each lies */
    int n;
} LayerGraph;

static void layer_graph_free(LayerGraph *l)
{
    cvn_graph_free(l->g);
    free(l->in);
    free(l->input);
}

static int layer_graph(LayerGraph *l, const Calibration *c, int64_t batch, cvn_err *err)
{
    const ParamList *params = &c->model->params;
    const size_t n = (size_t)params->n;
    const cvn_type type = CVN_TYPE(CVN_F32, batch, c->length, c->dim);
    *l = (LayerGraph){.g = cvn_graph_new("layer", err)};
    SCOPED(scoped_free) cvn_value **weight = calloc(n, sizeof(cvn_value *));
    l->in = calloc(n + 2, sizeof *l->in);
    l->input = calloc(n, sizeof(cvn_value *));
    if (!l->g || !weight || !l->in || !l->input)
        return err_set(err, CVN_EMEM, "no memory for the graph of a layer");
    cvn_value *x = cvn_parameter(l->g, "x", type);
    l->n = 1;
    for (size_t i = 0; i < n; i++) {
        const Param *p = &params->param[i];
        if (!c->weight[i])
            continue;
        weight[i] = cvn_parameter(l->g, p->name, cvn_type_make(CVN_F32, p->rank, p->dims));
        l->in[l->n++] = c->weight[i];
    }
    l->y = model_layer(l->g, c->model->desc, CVN_F32, c->layer, x, weight, l->input);
    return cvn_graph_check(l->g, err);
}

/* Runs it over all pieces, the states being written anew where it gives some. */
static int run_pieces(Calibration *c, const LayerGraph *l, int64_t batch, int64_t first, bool gives,
                      cvn_err *err)
{
    cvn_program *program = cvn_compile(c->mesh, l->g, err);
    const int64_t each = c->length * c->dim;
    int code = program ? CVN_OK : CVN_EINVAL;
    for (int64_t at = first; code == CVN_OK && at + batch <= c->texts; at += batch) {
        float *x = c->state + at * each;
        l->in[0] = x;
        code = flag_is_set(c->interrupt)
                   ? err_set(err, CVN_EINTERRUPTED, "interrupted while calibrating")
                   : cvn_run(program, l->in, gives ? (void *[]){x} : NULL, err);
    }
    cvn_program_free(program);
    return code;
}

/* Pieces go through TOGETHER at a time, the last few one by one. */
static int run_layer(Calibration *c, int param, float *sums, cvn_err *err)
{
    for (int turn = 0; turn < 2; turn++) {
        const int64_t batch = turn ? 1 : TOGETHER,
                      first = turn ? c->texts / TOGETHER * TOGETHER : 0;
        LayerGraph l;
        if (first + batch > c->texts)
            continue;
        int code = layer_graph(&l, c, batch, err);
        if (code == CVN_OK && sums) {
            cvn_value *x = l.input[param];
            const cvn_type *type = cvn_value_type(x);
            const int64_t tokens = batch * c->length;
            const int64_t k = cvn_type_elements(type) / tokens;
            x = cvn_reshape(l.g, x, 2, (int64_t[]){tokens, k});
            cvn_value *sum = cvn_parameter(l.g, "sums", CVN_TYPE(CVN_F32, k, k));
            l.in[l.n++] = sums;
            cvn_output_into(l.g, cvn_add(l.g, sum, cvn_einsum_as(l.g, "ti,tj->ij", x, x, CVN_F32)),
                            sum);
        } else if (code == CVN_OK) {
            cvn_output(l.g, l.y);
        }
        if (code == CVN_OK)
            code = cvn_graph_check(l.g, err);
        if (code == CVN_OK)
            code = run_pieces(c, &l, batch, first, !sums, err);
        layer_graph_free(&l);
        TRY(code);
    }
    return CVN_OK;
}

/* ---- layers ---- */

typedef struct Reading {
    const IoTensor *tensor;
    float *to;
    int64_t n;
} Reading;

static void read_part(void *context, int thread, int n_threads)
{
    const Reading *r = context;
    int64_t begin = r->n * thread / n_threads, end = r->n * (thread + 1) / n_threads;
    io_decode(r->tensor, begin, end - begin, r->to + begin);
}

static void forget_weights(Calibration *c)
{
    for (int i = 0; c->weight && i < c->model->params.n; i++) {
        free(c->weight[i]);
        c->weight[i] = NULL;
    }
}

/* On to the next layer, or the head: what this one gives is computed, and that one's weights are read. */
static int go_on(Calibration *c, cvn_err *err)
{
    const ParamList *params = &c->model->params;
    const int64_t layers = model_layers(c->model->desc);
    if (c->layer >= 0)
        TRY(run_layer(c, -1, NULL, err));
    forget_weights(c);
    c->entered = -1;
    c->layer++;
    bool head = params_find(params, PARAM_LM_HEAD, -1) != NULL;
    for (int i = 0; i < params->n; i++) {
        const Param *p = &params->param[i];
        if (c->layer < layers ? p->layer != c->layer
                              : p->layer >= 0 || (p->kind == PARAM_EMBED && head))
            continue;
        c->weight[i] = malloc((size_t)p->n * sizeof(float));
        if (!c->weight[i])
            return err_set(err, CVN_EMEM, "no memory for the weights of a layer");
        Reading r = {.tensor = c->model->source[i], .to = c->weight[i], .n = p->n};
        pool_run(c->pool, read_part, &r);
    }
    return CVN_OK;
}

static int look_at_inputs(Calibration *c, int param, int64_t k, cvn_err *err)
{
    SCOPED(scoped_free) float *sums = calloc((size_t)(k * k), sizeof *sums);
    if (!sums)
        return err_set(err, CVN_EMEM, "no memory for the inputs of a layer");
    TRY(run_layer(c, param, sums, err));
    inputs_close(&c->inputs);
    TRY(inputs_open(&c->inputs, sums, k, c->pool, err));
    c->entered = param;
    return CVN_OK;
}

static bool same_inputs(ParamKind a, ParamKind b)
{
    static const ParamKind kinds[][3] = {{PARAM_Q, PARAM_K, PARAM_V},
                                         {PARAM_GATE, PARAM_UP, PARAM_UP}};
    for (int i = 0; i < 2; i++) {
        bool has[2] = {false};
        for (int j = 0; j < 3; j++) {
            has[0] |= kinds[i][j] == a;
            has[1] |= kinds[i][j] == b;
        }
        if (has[0] && has[1])
            return true;
    }
    return a == b;
}

/* What numbers and scales say, in place of the weights. */
static void replace(float *w, const QuantForm *f, const uint8_t *q, const uint16_t *scale)
{
    const int64_t group = f->k / f->groups;
    for (int64_t i = 0; i < f->n * f->k; i++) {
        int code = q[i / 2] >> i % 2 * 4 & 15;
        w[i] = (float)(code - (code & 8) * 2) * bf16_to_f32(scale[i / group]);
    }
}

int calibration_round(void *calibration, const Param *param, bool known, uint8_t *q, void *scale,
                      cvn_err *err)
{
    Calibration *c = calibration;
    const ParamList *params = &c->model->params;
    const Param *p = params_find(params, param->kind, param->layer);
    const int64_t layer = param->layer < 0 ? model_layers(c->model->desc) : param->layer;
    if (!p)
        p = params_find(params, PARAM_EMBED, -1); /* the head of a tied model */
    const int i = (int)(p - params->param);
    while (c->layer < layer)
        TRY(go_on(c, err));
    if (param->quant.dtype != CVN_I4) {
        QuantForm f = param->quant;
        for (int64_t row = 0; row < f.n && !known; row++)
            quant_row(&f, c->weight[i] + row * f.k, f.k, q + row * f.k, (float *)scale + row);
        return CVN_OK;
    }
    if (!known) {
        if (c->entered < 0 || !same_inputs(params->param[c->entered].kind, p->kind))
            TRY(look_at_inputs(c, i, param->quant.k, err));
        TRY(round_matrix(&c->inputs, &param->quant, c->weight[i], q, scale, c->pool, err));
    }
    replace(c->weight[i], &param->quant, q, scale);
    return CVN_OK;
}

int calibration_open(Calibration **out, const CalibrationOptions *o, cvn_err *err)
{
    const Param *embed = params_find(&o->model->params, PARAM_EMBED, -1);
    Calibration *c = *out = calloc(1, sizeof *c);
    if (!c)
        return err_set(err, CVN_EMEM, "no memory to calibrate");
    c->model = o->model;
    c->dim = embed->dims[1];
    c->interrupt = o->interrupt;
    c->layer = c->entered = -1;
    c->length = num_min(num_min(TEXT, model_context(o->model->desc)), o->n);
    c->texts = o->n / c->length;
    c->weight = calloc((size_t)o->model->params.n, sizeof *c->weight);
    c->state = malloc((size_t)(c->texts * c->length * c->dim) * sizeof *c->state);
    if (!c->weight || !c->state)
        return err_set(err, CVN_EMEM, "no memory to calibrate by %lld tokens", (long long)o->n);
    if (!(c->pool = pool_new(o->threads, err)) ||
        !(c->mesh = cvn_mesh_new(NULL, &(cvn_mesh_options){.threads = o->threads}, err)))
        return err->code;
    for (int64_t t = 0; t < c->texts * c->length; t++)
        io_decode(o->model->source[embed - o->model->params.param], o->id[t] * c->dim, c->dim,
                  c->state + t * c->dim);
    return CVN_OK;
}

void calibration_close(Calibration *c)
{
    if (!c)
        return;
    forget_weights(c);
    inputs_close(&c->inputs);
    cvn_mesh_free(c->mesh);
    pool_free(c->pool);
    free(c->weight);
    free(c->state);
    free(c);
}
