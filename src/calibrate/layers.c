#include "calibrate/layers.h"

#include "base/num.h"
#include "io/convert.h"
#include "model/forward.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { TOGETHER = 4 /* pieces of a run */ };

/* ---- weights and states ---- */

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

static void forget_weights(Layers *l)
{
    for (int i = 0; l->weight && i < l->model->params.n; i++) {
        free(l->weight[i]);
        l->weight[i] = NULL;
    }
}

int layers_read(Layers *l, cvn_err *err)
{
    const ParamList *params = &l->model->params;
    const int64_t layers = model_layers(l->model->desc);
    const bool head = params_find(params, PARAM_LM_HEAD, -1) != NULL;
    forget_weights(l);
    l->layer++;
    for (int i = 0; i < params->n; i++) {
        const Param *p = &params->param[i];
        if (l->layer < layers ? p->layer != l->layer
                              : p->layer >= 0 || (p->kind == PARAM_EMBED && head))
            continue;
        l->weight[i] = malloc((size_t)p->n * sizeof(float));
        if (!l->weight[i])
            return err_set(err, CVN_EMEM, "no memory for the weights of a layer");
        Reading r = {.tensor = l->model->source[i], .to = l->weight[i], .n = p->n};
        pool_run(l->pool, read_part, &r);
    }
    return CVN_OK;
}

void layers_rewind(Layers *l)
{
    const ParamList *params = &l->model->params;
    const Param *embed = params_find(params, PARAM_EMBED, -1);
    forget_weights(l);
    l->layer = -1;
    const float scale = (float)model_embedding_scale(l->model->desc);
    for (int64_t t = 0; t < l->texts * l->length; t++) {
        float *state = l->state + t * l->dim;
        io_decode(l->model->source[embed - params->param], l->id[t] * l->dim, l->dim, state);
        for (int64_t i = 0; i < l->dim; i++)
            state[i] *= scale;
    }
}

int layers_open(Layers *l, const IoModel *model, const int32_t *id, int64_t n, int threads,
                const volatile int *interrupt, cvn_err *err)
{
    *l = (Layers){.model = model, .interrupt = interrupt, .dim = model_width(model->desc)};
    l->length = num_min(num_min(CALIBRATION_PIECE, model_context(model->desc)), n);
    l->texts = n / l->length;
    l->weight = calloc((size_t)model->params.n, sizeof *l->weight);
    l->id = malloc((size_t)n * sizeof *l->id);
    l->state = malloc((size_t)(l->texts * l->length * l->dim) * sizeof *l->state);
    if (!l->weight || !l->id || !l->state)
        return err_set(err, CVN_EMEM, "no memory to calibrate by %lld tokens", (long long)n);
    memcpy(l->id, id, (size_t)n * sizeof *id);
    if (!(l->pool = pool_new(threads, err)) ||
        !(l->mesh = cvn_mesh_new(NULL, &(cvn_mesh_options){.threads = threads}, err)))
        return err->code;
    layers_rewind(l);
    return CVN_OK;
}

void layers_close(Layers *l)
{
    if (l->weight)
        forget_weights(l);
    cvn_mesh_free(l->mesh);
    pool_free(l->pool);
    free(l->weight);
    free(l->id);
    free(l->state);
    *l = (Layers){0};
}

/* ---- graphs ---- */

cvn_value *layer_parameter(LayerGraph *l, cvn_type type, void *array)
{
    /* Without the layer's number in names: equal layers are compiled once. */
    cvn_value *v = cvn_parameter(l->g, arena_printf(&l->g->arena, "in.%d", l->n), type);
    l->in = arena_more(&l->g->arena, l->in, (size_t)l->n, sizeof *l->in);
    l->in[l->n++] = array;
    return v;
}

/* One that has of all pieces those of a run. */
static cvn_value *layer_part(LayerGraph *l, cvn_type type, void *all)
{
    assert(l->parts < (int)(sizeof l->part / sizeof *l->part));
    l->part[l->parts].all = all;
    l->part[l->parts].bytes = cvn_type_bytes(&type) / (size_t)l->batch;
    l->part[l->parts++].at = l->n;
    return layer_parameter(l, type, NULL);
}

void layer_give(LayerGraph *l, cvn_value *v, void *all)
{
    assert(l->givens < (int)(sizeof l->given / sizeof *l->given));
    l->given[l->givens].all = all;
    l->given[l->givens].bytes = cvn_type_bytes(cvn_value_type(v)) / (size_t)l->batch;
    l->given[l->givens++].at = l->outputs++;
    cvn_output(l->g, v);
}

void layer_add(LayerGraph *l, cvn_value *v, void *array)
{
    cvn_value *sum = layer_parameter(l, *cvn_value_type(v), array);
    cvn_output_into(l->g, cvn_add(l->g, sum, v), sum);
    l->outputs++;
}

cvn_value *layer_rows(LayerGraph *l, cvn_value *input)
{
    const int64_t tokens = l->batch * l->layers->length;
    const int64_t columns = cvn_type_elements(cvn_value_type(input)) / tokens;
    return cvn_reshape(l->g, input, 2, (int64_t[]){tokens, columns});
}

static int make_layer(LayerGraph *l, cvn_err *err)
{
    const Layers *of = l->layers;
    const ParamList *params = &of->model->params;
    const size_t n = (size_t)params->n;
    l->weight = arena_array(&l->g->arena, n, sizeof *l->weight);
    l->input = arena_array(&l->g->arena, n, sizeof *l->input);
    l->x = layer_part(l, CVN_TYPE(CVN_F32, l->batch, of->length, of->dim), of->state);
    for (size_t i = 0; i < n; i++) {
        const Param *p = &params->param[i];
        if (of->weight[i])
            l->weight[i] =
                layer_parameter(l, cvn_type_make(CVN_F32, p->rank, p->dims), of->weight[i]);
    }
    l->y = model_layer(l->g, of->model->desc, CVN_F32, of->layer, l->x, l->weight, l->input);
    return cvn_graph_check(l->g, err);
}

static int run_pieces(Layers *of, LayerGraph *l, int64_t first, int64_t n, cvn_err *err)
{
    void *out[sizeof l->given / sizeof *l->given + 64] = {0};
    cvn_program *program = cvn_compile(of->mesh, l->g, err);
    int code = program ? CVN_OK : CVN_EINVAL;
    assert(l->outputs <= (int)(sizeof out / sizeof *out));
    for (int64_t at = first; code == CVN_OK && at < first + n; at += l->batch) {
        for (int i = 0; i < l->parts; i++)
            l->in[l->part[i].at] = l->part[i].all + (size_t)at * l->part[i].bytes;
        for (int i = 0; i < l->givens; i++)
            out[l->given[i].at] = l->given[i].all + (size_t)at * l->given[i].bytes;
        code = flag_is_set(of->interrupt)
                   ? err_set(err, CVN_EINTERRUPTED, "interrupted while calibrating")
                   : cvn_run(program, l->in, out, err);
    }
    cvn_program_free(program);
    return code;
}

/* The last few pieces go one by one. */
int layers_run(Layers *of, int64_t first, int64_t n, LayerMake *make, void *context, cvn_err *err)
{
    const int64_t many = n / TOGETHER * TOGETHER;
    for (int turn = 0; turn < 2; turn++) {
        const int64_t begin = turn ? first + many : first, count = turn ? n - many : many;
        LayerGraph l = {.layers = of, .batch = turn ? 1 : TOGETHER};
        if (count == 0)
            continue;
        l.g = cvn_graph_new("layer", err);
        int code = l.g ? make_layer(&l, err) : CVN_EMEM;
        if (code == CVN_OK)
            code = make(&l, context, err);
        if (code == CVN_OK)
            code = cvn_graph_check(l.g, err);
        if (code == CVN_OK)
            code = run_pieces(of, &l, begin, count, err);
        cvn_graph_free(l.g);
        TRY(code);
    }
    return CVN_OK;
}
