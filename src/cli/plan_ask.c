#include "cli/plan_ask.h"

#include "base/json_file.h"
#include "cli/figures.h"
#include "cli/run_model.h"
#include "io/model.h"
#include "model/presets.h"
#include "train/config.h"

#include <inttypes.h>

const Option ask_option[ASK_OPTIONS] = {
    [PRESET] = {"preset", .letter = 'p', .kind = ARG_CHOICE, .required = true, .group = 1,
                .value = "NAME", .choice = choice_of_preset, .or_shape = true,
                .help = "the shape to plan, one of"},
    [MODEL] = {"model", .letter = 'm', .kind = ARG_INPUT, .required = true, .group = 1,
               .value = "DIR", .help = "the shape of a model on disk"},
    [MESH] = {"mesh", .kind = ARG_TEXT, .check = check_mesh, .value = "MESH", .fallback = "",
              .help = "devices, such as data=32,model=4; none: one device"},
    [LAYOUT] = {"layout", .letter = 'l', .kind = ARG_TEXT, .value = "NAME", .fallback = "2d",
                .help = "how tensors lie on it: dp, tp, tp-scatter, fsdp, 2d, a product "
                        "such as fsdp+tp, or FILE.json"},
    [THREADS] = {"threads", .letter = 't', .kind = ARG_INT, .low = 1, .high = 4096, .value = "N",
                 .fallback = "1", .help = "of each device: each has scratch of its own"},
    [TRAIN] = {"train", .kind = ARG_FLAG, .group = 2,
               .help = "plan a training step; else a step of decoding"},
    [PREFILL] = {"prefill", .kind = ARG_FLAG, .group = 2, .help = "plan a prefill of --seq tokens"},
    [SEQ] = {"seq", .letter = 's', .kind = ARG_INT, .low = 1, .high = 1 << 24, .value = "N",
             .fallback = "1024", .help = "tokens per row"},
    [BATCH] = {"batch", .letter = 'b', .kind = ARG_INT, .low = 1, .high = 1 << 20, .value = "B",
               .fallback = "1", .help = "rows, over all devices"},
    [CONTEXT] = {"context", .letter = 'c', .kind = ARG_INT, .low = 1, .high = 1 << 30, .value = "N",
                 .help = "tokens that a row may have, else the model's"},
    [OPTIMIZER] = {"optimizer", .kind = ARG_CHOICE, .value = "NAME", .fallback = "adamw",
                   .choice = train_optimizer_name, .help = "of training, one of"},
    [REMAT] = {"remat", .kind = ARG_CHOICE, .value = "POLICY", .fallback = "block",
               .choice = choice_of_remat, .help = "what the backward pass computes again, one of"},
};

/* Weights in blocks are planned as they run, but for training, which widens them. */
static int shape(const Value *v, IoModel *model, LlamaConfig *config, cvn_err *err)
{
    if (v[PRESET].given || is_shape(v[MODEL].text)) /* weights are not needed */
        return preset_config(v[PRESET].given ? v[PRESET].text : v[MODEL].text, config, err);
    TRY(io_open_shown(model, v[MODEL].text, err));
    if (!v[TRAIN].flag && io_audit(model, NULL) == CVN_OK)
        io_keep_blocks(model);
    *config = model->config;
    return CVN_OK;
}

int plan_ask(SimAsk *ask, IoModel *model, const Value *v, cvn_err *err)
{
    *ask = (SimAsk){.mesh = v[MESH].text,
                    .layout = v[LAYOUT].text,
                    .task = v[TRAIN].flag     ? SIM_TRAIN
                            : v[PREFILL].flag ? SIM_PREFILL
                                              : SIM_DECODE,
                    .batch = v[BATCH].integer,
                    .seq = v[SEQ].integer,
                    .compute = dtype_of(&v[DTYPE]),
                    .device = backends[0],
                    .threads = (int)v[THREADS].integer,
                    .blocking = v[OVERLAP].integer == 1};
    const Backend *named;
    if (backend_find(v[DEVICE].text, &named, err) || shape(v, model, &ask->config, err) ||
        check_layout(ask->mesh, ask->layout, err))
        return err->code;
    if (ask->compute == CVN_DTYPE_COUNT)
        ask->compute = CVN_BF16;
    ask->context = v[CONTEXT].given ? v[CONTEXT].integer : ask->config.max_context;
    ask->train =
        (TrainStepOptions){.clip = 1,
                           .remat = (RematPolicy)v[REMAT].integer,
                           .optimizer = optimizer_defaults((OptimizerKind)v[OPTIMIZER].integer,
                                                           model_size(&ask->config).params)};
    if (ask->task == SIM_TRAIN && ask->seq > ask->config.max_context)
        ask->config.max_context = ask->seq;
    if (ask->task == SIM_PREFILL && ask->seq > ask->context)
        return err_set(err, CVN_EINVAL,
                       "--seq %" PRId64 " does not fit in a context of %" PRId64
                       "; shorten it or raise --context",
                       ask->seq, ask->context);
    return CVN_OK;
}

json_t *plan_memory_json(const SimAnswer *a)
{
    json_t *bytes = device_memory_json(&a->memory);
    bytes = json_with(bytes, "gradients", json_real(a->gradients));
    return json_with(bytes, "gathered_weights", json_real(a->peak.gathered));
}
