/*
 * Where a trainer's numbers come from: drawn from a seed, a model, a checkpoint. Each is a source of boxes of a tensor in
 * f32, whatever lies on the devices; a weight that has a rounded copy fills both.
 */
#include "base/num.h"
#include "io/convert.h"
#include "io/save.h"
#include "train/trainer.h"

#include <stdlib.h>

/* Another source's numbers in another type, row by row. */
typedef struct Rounding {
    const Source *of;
    cvn_dtype dtype;
} Rounding;

static int read_rounded(void *context, const Box *box, void *out, cvn_err *err)
{
    const Rounding *r = context;
    Box row = *box;
    int64_t rows = box->rank > 0 ? box->count[0] : 1;
    if (box->rank > 0)
        row.count[0] = 1;
    int64_t n = box_elements(&row);
    SCOPED(scoped_free) float *exact = malloc((size_t)n * sizeof *exact + 1);
    if (!exact)
        return err_set(err, CVN_EMEM, "no memory for a row of a tensor");
    for (int64_t i = 0; i < rows; i++, row.first[0]++) {
        TRY(r->of->read(r->of->context, &row, exact, err));
        io_encode(r->dtype, exact, n, (char *)out + cvn_dtype_bytes(r->dtype, i * n));
    }
    return CVN_OK;
}

/* A buffer, in each stage that has it. */
static int fill(Trainer *t, Role role, int index, const Source *exact, cvn_err *err)
{
    for (int k = 0; k < t->n_stages; k++) {
        Runtime *rt = &t->stage[k].rt;
        Buffer *b = runtime_buffer(rt, role, index);
        if (!b)
            continue;
        Rounding rounding = {exact, b->type.dtype};
        const Source rounded = {.read = read_rounded, .context = &rounding};
        bool as_saved = b->type.dtype != CVN_BF16 || role == ROLE_SLOT;
        TRY(buffer_fill(rt, b, as_saved ? exact : &rounded, err));
    }
    return CVN_OK;
}

/* ---- parameters ---- */

typedef struct Given {
    const Param *param;
    IoFill *fill;
    void *context;
} Given;

static int read_param(void *context, const Box *box, void *out, cvn_err *err)
{
    const Given *g = context;
    const cvn_type type = cvn_type_make(CVN_F32, g->param->rank, g->param->dims);
    const Box all = box_whole(&type);
    const BoxArray whole = box_packed(&all), part = box_packed(box);
    BoxWalk w;
    box_walk(&w, box, &whole, &part);
    while (box_next(&w))
        g->fill(g->context, g->param, w.a, w.n, (float *)out + w.b);
    (void)err;
    return CVN_OK;
}

static int fill_params(Trainer *t, Role role, const ParamList *list, IoFill *from, void *context,
                       cvn_err *err)
{
    for (int i = 0; i < list->n; i++) {
        Given given = {&list->param[i], from, context};
        const Source source = {.read = read_param, .context = &given};
        if (fill(t, role, i, &source, err) || fill(t, ROLE_ROUNDED, i, &source, err))
            return err->code;
    }
    return CVN_OK;
}

/* Draws the numbers of an adapter; context is the seed. */
static void draw_adapter(void *context, const Param *param, int64_t first, int64_t n, float *out)
{
    lora_fill(param, *(const uint64_t *)context, first, n, out);
}

/* Reads numbers of a model, the context; rotary pairs become those that its family has in Hugging Face's files. */
static void read_model(void *context, const Param *param, int64_t first, int64_t n, float *out)
{
    const IoModel *model = context;
    const Param *same = params_find(&model->params, param->kind, param->layer);
    const IoTensor *tensor = model->source[same - model->params.param];
    const int64_t width = param->rank == 3 ? param->dims[2] : 1;
    const bool other = !model_is_interleaved(model->desc);
    if (!param->rotated || model_has_hf_pairs(model->desc)) {
        io_decode(tensor, first, n, out);
        return;
    }
    for (int64_t at = first, step; at < first + n; at += step, out += step) {
        step = num_min(width - at % width, first + n - at);
        io_decode(tensor, io_row(model, param, at / width, other) * width + at % width, step, out);
    }
}

int trainer_random(Trainer *t, uint64_t seed, cvn_err *err)
{
    bool lora = t->options.lora.rank > 0;
    return fill_params(t, lora ? ROLE_ADAPTER : ROLE_TRAINED, &t->state.params,
                       lora ? draw_adapter : init_fill, &seed, err);
}

int trainer_from_model(Trainer *t, const IoModel *model, cvn_err *err)
{
    bool lora = t->options.lora.rank > 0;
    return fill_params(t, lora ? ROLE_WEIGHT : ROLE_TRAINED, &t->state.model, read_model,
                       (void *)(uintptr_t)model, err);
}

/* ---- checkpoints ---- */

typedef struct Saved {
    const Checkpoint *checkpoint;
    const CheckpointTensor *tensor;
} Saved;

static int read_saved(void *context, const Box *box, void *out, cvn_err *err)
{
    const Saved *s = context;
    const BoxArray to = box_packed(box);
    (void)err;
    checkpoint_restore_box(s->checkpoint, s->tensor, &to, out);
    return CVN_OK;
}

int trainer_restore(Trainer *t, const Checkpoint *checkpoint, cvn_err *err)
{
    TrainState *s = &t->state;
    TRY(checkpoint_restore_counters(checkpoint, &s->saved, err));
    for (int i = 0; i < s->saved.n - 1; i++) {
        Saved saved = {checkpoint, &s->saved.tensor[i]};
        const Source source = {.read = read_saved, .context = &saved};
        if (fill(t, s->binding[i].role, s->binding[i].index, &source, err) ||
            (i < s->n_weights && fill(t, ROLE_ROUNDED, i, &source, err)))
            return err->code;
    }
    const CheckpointTensor *updates = &s->saved.tensor[s->saved.n - 1];
    const Box all = box_whole(&updates->type);
    return read_saved(&(Saved){checkpoint, updates}, &all, s->updates, err);
}
