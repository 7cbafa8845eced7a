#include "cli/export_modules.h"

#include "base/file.h"
#include "base/json_file.h"
#include "base/num.h"
#include "graph/signature.h"
#include "graph/simplify.h"
#include "graph/stablehlo/stablehlo.h"
#include "io/model.h"
#include "serve/steps.h"
#include "train/step.h"

#include <inttypes.h>
#include <stdio.h>

typedef struct Modules {
    const char *folder;
    const ModulesAsk *ask;
    IoModel model;   /* of the folder */
    json_t *modules; /* of the signature; NULL: there was no memory */
} Modules;

static json_t *tensor_json(const cvn_value *v, const Binding *is)
{
    static const char *const roles[ROLE_COUNT] = {
        [ROLE_WEIGHT] = "weight",   [ROLE_TRAINED] = "weight", [ROLE_SLOT] = "optimizer",
        [ROLE_ROUNDED] = "rounded", [ROLE_CACHE] = "cache",    [ROLE_TOKENS] = "tokens",
        [ROLE_TARGETS] = "targets", [ROLE_STARTS] = "starts",  [ROLE_START] = "start",
        [ROLE_LENGTH] = "length",   [ROLE_SCALAR] = "scalar",  [ROLE_NEXT] = "next",
        [ROLE_LOGPROB] = "logprob", [ROLE_ARGMAX] = "argmax",  [ROLE_REPORT] = "report"};
    /* As numpy calls them. */
    static const char *const dtypes[CVN_DTYPE_COUNT] = {
        [CVN_F64] = "float64", [CVN_F32] = "float32", [CVN_BF16] = "bfloat16",
        [CVN_F16] = "float16", [CVN_I32] = "int32",   [CVN_U32] = "uint32",
        [CVN_I8] = "int8",     [CVN_I4] = "int4",     [CVN_BOOL] = "bool"};
    return json_pack("{s:s,s:s,s:o}", "role", roles[is->role] ? roles[is->role] : "other", "dtype",
                     dtypes[v->type.dtype], "shape", json_integers(v->type.dim, v->type.rank));
}

/* The module of a graph, its file and its row of the signature. The graph is freed; NULL: it could not be made, and err says
   why. */
static int add_module(Modules *m, const char *name, cvn_graph *made, cvn_err *err)
{
    SCOPED(strbuf_free) StrBuf text = {0};
    SCOPED(graph_release) cvn_graph *g = made;
    SCOPED(arena_free) Arena arena = {0};
    char file[80];
    Signature s;
    if (!g || arena_begin(&arena, err) || graph_simplify(g, NULL, err))
        return err->code;
    snprintf(file, sizeof file, "%s.mlir", name);
    signature_of(&s, g, &arena);
    TRY(graph_print_stablehlo(&text, g, NULL, err));
    TRY(file_write(file_path(m->folder, file).text, text.text, text.length, err));
    json_t *inputs = json_array(), *outputs = json_array();
    for (int i = 0; i < g->n_parameters; i++) {
        const Binding *is = &s.parameter[i];
        json_t *one = tensor_json(g->parameter[i], is);
        one = json_with(one, "name", json_string(g->parameter[i]->def->attr.name));
        if (is->role == ROLE_WEIGHT || is->role == ROLE_TRAINED || is->role == ROLE_ROUNDED)
            one = json_with(one, "tensor",
                            json_string(m->model.params.param[is->index].file_name[NAMING_HF]));
        inputs = json_append(inputs, one);
    }
    for (int i = 0; i < g->n_outputs; i++) {
        json_t *one = tensor_json(g->output[i].value, &s.output[i]);
        if (s.into[i] >= 0)
            one = json_with(one, "into", json_integer(s.into[i]));
        outputs = json_append(outputs, one);
    }
    m->modules =
        json_with(m->modules, name,
                  json_pack("{s:s,s:o,s:o}", "file", file, "inputs", inputs, "outputs", outputs));
    return CVN_OK;
}

static int add_steps(Modules *m, cvn_err *err)
{
    const ModulesAsk *ask = m->ask;
    const Model *config = m->model.desc;
    int64_t bucket[CVN_MAX_BUCKETS];
    int n = steps_buckets(ask->context, bucket);
    const Steps steps = {.context = ask->context,
                         .positions = num_max(ask->context, bucket[n - 1]),
                         .compute = ask->compute};
    ModelStep step = steps_chunk(&steps, ask->batch, 1);
    TRY(add_module(m, "decode", model_step(config, &step, err), err));
    for (int i = 0; i < n; i++) {
        char name[64];
        step = steps_chunk(&steps, ask->batch, bucket[i]);
        snprintf(name, sizeof name, "prefill_%" PRId64, bucket[i]);
        TRY(add_module(m, name, model_step(config, &step, err), err));
        step.output = STEP_SCORE;
        snprintf(name, sizeof name, "score_%" PRId64, bucket[i]);
        if (ask->score)
            TRY(add_module(m, name, model_step(config, &step, err), err));
    }
    return CVN_OK;
}

int export_modules(const char *folder, const ModulesAsk *ask, cvn_err *err)
{
    Modules m = {.folder = folder, .ask = ask, .modules = json_object()};
    TRY(io_open_model(&m.model, folder, err));
    const Model *config = m.model.desc;
    const TrainStepOptions train = {
        .batch = ask->batch,
        .seq = ask->train_seq,
        .compute = ask->compute,
        .clip = 1,
        .dropout = model_dropout(config),
        .optimizer = optimizer_defaults(OPTIMIZER_ADAMW, model_size(config).params)};
    int code = add_steps(&m, err);
    if (!code && ask->train_seq)
        code = add_module(&m, "train", train_graph(TRAIN_STEP, config, &train, err), err);
    io_close_model(&m.model);
    json_auto_t *all = json_pack("{s:s,s:i,s:I,s:I,s:o}", "format", "caravan-stablehlo", "version",
                                 1, "batch", (json_int_t)ask->batch, "context",
                                 (json_int_t)ask->context, "modules", m.modules);
    TRY(code);
    return all ? json_file_write(file_path(folder, "signature.json").text, all, err)
               : err_set(err, CVN_EMEM, "no memory for the signature of '%s'", folder);
}
