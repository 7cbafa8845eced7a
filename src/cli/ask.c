#include "cli/ask.h"

#include "base/json_file.h"
#include "cli/figures.h"
#include "cli/run_model.h"
#include "io/stats.h"
#include "io/towers.h"
#include "model/presets.h"
#include "train/config.h"

#include <inttypes.h>
#include <string.h>

const char *const ask_tasks[] = {"a training step", "a prefill", "a decode step"};

const char *ask_name(const Args *args)
{
    const Value *preset = args_value(args, ASK(PRESET));
    return preset->given ? preset->text : args_value(args, ASK(MODEL))->text;
}

/* Weights in blocks are planned as they run, but for training, which widens them, and where they are quantized anew. */
static int shape(const Args *args, IoModel *model, Model **out, cvn_err *err)
{
    QuantScheme scheme;
    const bool text_only = args_value(args, SHARED(TEXT_ONLY))->flag;
    const Value *quantize = args_value(args, SHARED(QUANTIZE));
    if (args_value(args, ASK(PRESET))->given || is_shape(ask_name(args))) { /* without weights */
        TRY(arena_init(&model->arena, err));
        TRY(preset_model(ask_name(args), &model->desc, &model->arena, err));
        TRY(towers_check(model->desc, text_only, ask_name(args), err));
    } else {
        TRY(io_open_as(model, ask_name(args), IO_SHOWN | (text_only ? IO_TEXT_ONLY : 0), err));
        if (!args_value(args, ASK(TRAIN))->flag && !quantize->given &&
            io_audit(model, NULL) == CVN_OK)
            io_keep_blocks(model);
    }
    *out = model_copy(model->desc, &model->arena);
    if (!quantize->given)
        return CVN_OK;
    TRY(quant_parse(quantize->text, &scheme, err));
    model_set_quant(*out, scheme);
    return CVN_OK;
}

/* Vector memory of TPUs of v5e and later, and CMEM of v4. */
#define TPU_ON_CHIP 0x1p27

static bool says_int8(const Value *value)
{
    return value->text && strcmp(value->text, "int8") == 0;
}

static int check(const SimAsk *ask, cvn_err *err)
{
    if (ask->task == SIM_TRAIN && (model_quant(ask->model).kind != QUANT_NONE || ask->kv_int8))
        return err_set(err, CVN_EINVAL,
                       "training supports f32 and bf16 only; leave out --quantize and --kv-cache");
    if (ask->int8_inputs && !model_takes_int8(ask->model))
        return err_set(
            err, CVN_EINVAL,
            "int8 activations require weights in int8 (--quantize int8) or in GGUF blocks");
    if (ask->task == SIM_PREFILL && ask->seq > ask->context)
        return err_set(err, CVN_EINVAL,
                       "--seq %" PRId64 " does not fit in a context of %" PRId64
                       "; shorten it or raise --context",
                       ask->seq, ask->context);
    return CVN_OK;
}

int ask_of(const Args *args, int64_t context, IoModel *model, SimAsk *ask, cvn_err *err)
{
    const Value *dtype = args_value(args, SHARED(DTYPE));
    *ask = (SimAsk){.mesh = args_value(args, ASK(MESH))->text,
                    .layout = layout_said(args_value(args, ASK(MESH))->text,
                                          args_value(args, ASK(LAYOUT)),
                                          args_value(args, ASK(TRAIN))->flag),
                    .task = args_value(args, ASK(TRAIN))->flag     ? SIM_TRAIN
                            : args_value(args, ASK(PREFILL))->flag ? SIM_PREFILL
                                                                   : SIM_DECODE,
                    .batch = args_value(args, ASK(BATCH))->integer,
                    .seq = args_value(args, ASK(SEQ))->integer,
                    .micro_batch = args_value(args, ASK(MICRO_BATCH))->integer,
                    .compute = dtype_of(dtype),
                    .kv_int8 = says_int8(args_value(args, SHARED(KV_CACHE))),
                    .int8_inputs = says_int8(args_value(args, SHARED(ACTIVATIONS))),
                    .device = backends[0],
                    .threads = args_value(args, ASK(THREADS))->given
                                   ? (int)args_value(args, ASK(THREADS))->integer
                                   : 1,
                    .blocking = args_value(args, SHARED(OVERLAP))->integer == 1};
    Model *shaped = NULL;
    if (shape(args, model, &shaped, err) ||
        (strcmp(ask->mesh, "auto") != 0 && check_layout(ask->mesh, ask->layout, err)))
        return err->code;
    /* By its name, since no plugin is loaded for a plan: libtpu. */
    const char *device = args_value(args, SHARED(DEVICE))->text;
    ask->on_chip = device && strstr(device, "tpu") ? TPU_ON_CHIP : 0;
    if (ask->compute == CVN_DTYPE_COUNT)
        ask->compute = CVN_BF16;
    ask->context = context ? context : model_context(shaped);
    ask->train = (TrainStepOptions){
        .clip = 1,
        .dropout = model_dropout(shaped),
        .remat = (RematPolicy)args_value(args, ASK(REMAT))->integer,
        .optimizer = optimizer_defaults((OptimizerKind)args_value(args, ASK(OPTIMIZER))->integer,
                                        model_size(shaped).params)};
    if (ask->task == SIM_TRAIN && ask->seq > model_context(shaped))
        model_set_context(shaped, ask->seq);
    ask->model = shaped;
    return check(ask, err);
}

json_t *ask_memory_json(const SimAnswer *a)
{
    json_t *bytes = device_memory_json(&a->memory);
    bytes = json_with(bytes, "gradients", json_real(a->gradients));
    return json_with(bytes, "gathered_weights", json_real(a->peak.gathered));
}
