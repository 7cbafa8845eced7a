/*
 * An opened model as the source of a new folder: conversion of form (Meta, GGUF) and of type.
 *
 * Hugging Face rotates the pair (i, i + half) of a head, Meta and GGUF the pair (2i, 2i + 1). The same
 * model in the other order has the rows of q and k (and their biases) reordered within each head:
 *
 *   row of Hugging Face     0  1  2  3     (head dimension 4, half 2)
 *   row of Meta             0  2  1  3
 */
#include "io/convert.h"
#include "io/model.h"
#include "io/save.h"

/* Row d of a head in half-split order is this row in interleaved order. */
static int64_t interleaved_row(int64_t d, int64_t half)
{
    return d % half * 2 + d / half;
}

static void fill_reordered(const IoTensor *tensor, const Param *param, int64_t first, int64_t n,
                           float *out)
{
    int64_t width = param->rank == 3 ? param->dims[2] : 1, head_dim = param->dims[1];
    while (n > 0) {
        int64_t row = first / width, column = first % width;
        int64_t piece = width - column < n ? width - column : n;
        int64_t from = row / head_dim * head_dim + interleaved_row(row % head_dim, head_dim / 2);
        io_decode(tensor, from * width + column, piece, out);
        first += piece;
        out += piece;
        n -= piece;
    }
}

int save_fill_model(void *context, const Param *param, int64_t first, int64_t n, float *out,
                    cvn_err *err)
{
    const IoModel *model = context;
    const Param *same = params_find(&model->params, param->kind, param->layer);
    const IoTensor *tensor = model->source[same - model->params.param];
    (void)err;
    if (param->rotated && !model_has_hf_pairs(model->desc))
        fill_reordered(tensor, param, first, n, out);
    else
        io_decode(tensor, first, n, out);
    return CVN_OK;
}

int save_model(const char *folder, const IoModel *model, const SaveOptions *options, cvn_err *err)
{
    SCOPED(arena_free) Arena arena = {0};
    if (model_quant(model->desc).kind != QUANT_NONE)
        return err_set(err, CVN_EUNSUPPORTED,
                       "'%s' is quantized; convert the model it was made from", model->path);
    TRY(arena_begin(&arena, err));
    Model *saved = model_copy(model->desc, &arena);
    model_set_hf_pairs(saved);
    return save_folder(folder, saved, options, save_fill_model, (void *)(uintptr_t)model, err);
}
