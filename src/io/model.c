#include "io/model.h"

#include "base/strbuf.h"
#include "io/convert.h"
#include "io/folder.h"
#include "io/gguf.h"
#include "io/llama2c.h"
#include "io/meta.h"
#include "io/packed.h"
#include "io/towers.h"
#include "io/weights_quantize.h"
#include "model/gguf.h"

#include <inttypes.h>
#include <string.h>

const char *io_kind_name(IoKind kind)
{
    static const char *const names[] = {[IO_KIND_HF] = "Hugging Face folder",
                                        [IO_KIND_META] = "Meta folder",
                                        [IO_KIND_GGUF] = "GGUF file",
                                        [IO_KIND_LLAMA2C] = "llama2.c file"};
    return names[kind];
}

static int open_folder(IoModel *model, bool text_only, cvn_err *err)
{
    Folder folder;
    bool meta = model->kind == IO_KIND_META;
    int code = meta ? meta_open(&folder, &model->desc, model->path, &model->arena, err)
                    : model_read(&model->desc, model->path, &model->arena, err);
    if (code == CVN_OK && !meta)
        code = towers_check(model->desc, text_only, model->path, err);
    if (code == CVN_OK && !meta)
        code = folder_open(&folder, model->path, &model->arena, err);
    if (code != CVN_OK)
        return code; /* nothing is allocated from here on: the model has the files */
    model->tensors = folder.tensors;
    model->map = folder.map;
    model->n_maps = folder.n_maps;
    if (meta)
        return CVN_OK;
    const bool within = model_within(model->desc);
    if (within)
        TRY(towers_leave_out(&model->tensors, model->desc, model->path, err));
    TRY(packed_join(&model->tensors, model->path, err));
    /* A config.json may say it of the whole or of its text model, and versions of transformers differ in what its silence means. */
    if (within)
        model_set_tied(model->desc, !io_tensors_find(&model->tensors, "lm_head.weight"));
    return CVN_OK;
}

static int open_gguf(IoModel *model, cvn_err *err)
{
    model->gguf = arena_alloc(&model->arena, sizeof *model->gguf);
    const IoTensor *lattice = NULL;
    int code = gguf_open(model->gguf, &model->map, &model->n_maps, model->path, &model->arena, err);
    if (code == CVN_OK)
        code = gguf_model(&model->desc, model->gguf, err);
    model->tensors = model->gguf->tensors;
    for (size_t i = 0; i < model->tensors.n; i++)
        if (model->tensors.tensor[i].block->widen)
            lattice = &model->tensors.tensor[i];
    if (code == CVN_OK && lattice)
        model_warn(model->desc,
                   "'%s' has weights in %s, which no product reads: they are widened, "
                   "to 4 bits with --quantize int4:32",
                   model->path, lattice->type);
    return code;
}

static int open_llama2c(IoModel *model, cvn_err *err)
{
    model->map = arena_alloc(&model->arena, sizeof *model->map);
    TRY(file_map(model->map, model->path, err));
    model->n_maps = 1;
    io_tensors_init(&model->tensors, &model->arena);
    return llama2c_read(&model->tensors, &model->desc, model->path, model->map->data,
                        model->map->size, err);
}

int io_open_files(IoModel *model, const char *path, bool text_only, cvn_err *err)
{
    *model = (IoModel){0};
    int code = arena_init(&model->arena, err);
    if (code != CVN_OK)
        return code;
    model->path = arena_string(&model->arena, path);
    if (file_check_seen(path, err)) {
        code = err->code;
    } else if (!file_exists(path)) {
        code = err_set(err, CVN_EIO, "'%s' does not exist", path);
    } else if (file_has(path, "config.json")) {
        model->kind = IO_KIND_HF;
        code = open_folder(model, text_only, err);
    } else if (file_has(path, "params.json")) {
        model->kind = IO_KIND_META;
        code = open_folder(model, text_only, err);
    } else if (!file_is_folder(path) && io_ends_with(path, ".gguf")) {
        model->kind = IO_KIND_GGUF;
        code = open_gguf(model, err);
    } else if (!file_is_folder(path) && io_ends_with(path, ".bin")) {
        model->kind = IO_KIND_LLAMA2C;
        code = open_llama2c(model, err);
    } else if (!file_is_folder(path) &&
               (io_ends_with(path, "/config.json") || io_ends_with(path, ".safetensors"))) {
        code = err_set(err, CVN_EUNSUPPORTED,
                       "'%s' is one file of a model; give the folder that contains it", path);
    } else if (file_has(path, "checkpoints")) {
        code = err_set(err, CVN_EUNSUPPORTED,
                       "'%s' is a run of caravan train that has not written its model yet; make a "
                       "model of its newest checkpoint with caravan export",
                       path);
    } else {
        code =
            err_set(err, CVN_EUNSUPPORTED,
                    "'%s' is not a model: expected a folder with config.json and *.safetensors, a "
                    "folder with params.json and consolidated.00.pth, or a file *.gguf or *.bin",
                    path);
    }
    if (code != CVN_OK)
        io_close_model(model);
    return code;
}

int64_t io_row(const IoModel *model, const Param *p, int64_t row, bool interleaved)
{
    if (!p->rotated || interleaved == model_is_interleaved(model->desc))
        return row;
    int64_t size = p->dims[1], half = size / 2, d = row % size;
    return row - d + (interleaved ? d % 2 * half + d / 2 : d % half * 2 + d / half);
}

static ParamNaming naming_of(IoKind kind)
{
    return kind == IO_KIND_HF ? NAMING_HF : kind == IO_KIND_GGUF ? NAMING_GGUF : NAMING_META;
}

/* Numbers are stored as bytes, since i4 has no name in safetensors. */
static int check_quantized(const Param *param, const IoTensor *tensor, cvn_err *err)
{
    const QuantForm *q = &param->quant;
    const char *want = param->form == PARAM_QUANTIZED ? "I8"
                       : q->scale_dtype == CVN_F32    ? "F32"
                                                      : "BF16";
    if (strcmp(tensor->type, want) == 0 && tensor->n_parts == 0)
        return CVN_OK;
    return err_set(err, CVN_EFORMAT, "'%s': tensor '%s' is of type %s; a quantized model needs %s",
                   tensor->file, tensor->name, tensor->type, want);
}

static int check_tensor(const IoModel *model, const Param *param, const IoTensor *tensor,
                        cvn_err *err)
{
    char want[64], got[128];
    if (tensor->rank != param->file_rank ||
        memcmp(tensor->dims, param->file_dims, (size_t)tensor->rank * sizeof *tensor->dims) != 0)
        return err_set(
            err, CVN_ESHAPE, "'%s': tensor '%s' has shape %s but the config of '%s' requires %s",
            tensor->file, tensor->name, io_shape_text(tensor->dims, tensor->rank, got, sizeof got),
            model->path, io_shape_text(param->file_dims, param->file_rank, want, sizeof want));
    if (param->form != PARAM_PLAIN)
        return check_quantized(param, tensor, err);
    if (tensor->coding == IO_OPAQUE && tensor->block && tensor->block->elements > 1)
        return err_set(err, CVN_EUNSUPPORTED,
                       "'%s': tensor '%s' is of type %s, which is not supported; get the model in "
                       "another quantization, such as Q4_K_M or Q6_K",
                       tensor->file, tensor->name, tensor->type);
    if (!io_is_numeric(tensor))
        return err_set(err, CVN_EUNSUPPORTED,
                       "'%s': tensor '%s' is of type %s, which cannot be used as a weight",
                       tensor->file, tensor->name, tensor->type);
    return CVN_OK;
}

static bool is_tolerated(const IoModel *model, const IoTensor *tensor)
{
    static const char *const head[NAMING_COUNT] = {[NAMING_HF] = "lm_head.weight",
                                                   [NAMING_META] = "output.weight",
                                                   [NAMING_GGUF] = "output.weight"};
    if (io_ends_with(tensor->name, ".rotary_emb.inv_freq") ||
        strcmp(tensor->name, "rope.freqs") == 0 ||
        (model->kind == IO_KIND_GGUF && strncmp(tensor->name, "rope_f", 6) == 0))
        return true;
    if (model_leaves_out(model->desc, naming_of(model->kind), tensor->name))
        return true;
    const ModelShape shape = model_shape(model->desc);
    return shape.tied && strcmp(tensor->name, head[naming_of(model->kind)]) == 0 &&
           tensor->rank == 2 && tensor->dims[0] == shape.vocab && tensor->dims[1] == shape.width;
}

/* Adds a name to a list that shows the first few and counts the rest. */
static void list_name(StrBuf *list, int *n, const char *name)
{
    if ((*n)++ < 4)
        strbuf_printf(list, "%s'%.100s'", *n > 1 ? ", " : "", name);
}

static int report(const IoModel *model, int n_missing, const StrBuf *missing, int n_unknown,
                  const StrBuf *unknown, cvn_err *err)
{
    if (missing->failed || unknown->failed)
        return err_set(err, CVN_EMEM, "no memory to check '%s'", model->path);
    if (n_missing)
        return err_set(err, CVN_EFORMAT, "'%s' lacks %d tensor%s that its config requires: %s%s",
                       model->path, n_missing, n_missing > 1 ? "s" : "", missing->text,
                       n_missing > 4 ? ", ..." : "");
    if (n_unknown)
        return err_set(err, CVN_EFORMAT,
                       "'%s' holds %d tensor%s that its config does not know: %s%s", model->path,
                       n_unknown, n_unknown > 1 ? "s" : "", unknown->text,
                       n_unknown > 4 ? ", ..." : "");
    return CVN_OK;
}

/* The matrices of a parameter's experts in a tensor that has all of them, and perhaps those of others. */
static int take_experts(IoModel *model, int i, const IoTensor *whole, ParamNaming naming,
                        const IoTensor **out, cvn_err *err)
{
    char shape[128], want[64];
    const Param *param = &model->params.param[i];
    ParamTensor t = {0};
    int64_t k = 0; /* which of those that share it */
    for (int j = model->params.layer[param->layer]; t.n == 0; j++)
        if (model->params.param[j].fused[naming] &&
            strcmp(model->params.param[j].fused[naming], param->fused[naming]) == 0)
            t = params_tensor(&model->params, j, naming);
    while (t.member[k] != i)
        k++;
    if (whole->coding == IO_PACKED && t.form & TENSOR_TURNED) { /* blocks are of rows */
        const int64_t rows = t.dims[2];
        t.dims[2] = t.dims[1];
        t.dims[1] = rows;
        t.form &= ~(unsigned)TENSOR_TURNED;
    }
    if (whole->rank != t.rank ||
        memcmp(whole->dims, t.dims, (size_t)t.rank * sizeof *t.dims) != 0 || !io_is_numeric(whole))
        return err_set(
            err, CVN_ESHAPE,
            "'%s': tensor '%s' is %s %s but the config of '%s' requires numbers of the shape %s",
            whole->file, whole->name, whole->type,
            io_shape_text(whole->dims, whole->rank, shape, sizeof shape), model->path,
            io_shape_text(t.dims, t.rank, want, sizeof want));
    IoTensor own = *whole;
    own.rank = param->file_rank;
    own.n = param->n;
    memcpy(own.dims, param->file_dims, sizeof param->file_dims);
    *out = arena_copy(&model->arena, &own, sizeof own);
    if (t.n == 1 && !(t.form & TENSOR_TURNED))
        return CVN_OK;
    const bool turned = t.form & TENSOR_TURNED, takes_turns = t.form & TENSOR_ALTERNATING;
    const int64_t rows = param->file_dims[0] / param->experts,
                  columns = param->n / param->file_dims[0];
    const int64_t row = turned ? 1 : columns;
    const IoView view = {.rows = rows,
                         .columns = columns,
                         .begin = k * row * (takes_turns ? 1 : rows),
                         .expert = t.n * rows * columns,
                         .row = takes_turns ? t.n * row : row,
                         .column = turned ? t.n * rows : 1};
    own.coding = IO_VIEW;
    own.dtype = CVN_F32;
    own.data = NULL;
    own.bytes = 0;
    own.packed = NULL;
    own.split_dim = 0;
    own.n_parts = 1;
    own.part = whole;
    own.view = arena_copy(&model->arena, &view, sizeof view);
    *out = arena_copy(&model->arena, &own, sizeof own);
    return CVN_OK;
}

/* The rows of a parameter in a tensor that has those of others, too. */
static int take_rows(IoModel *model, int i, const IoTensor *whole, ParamNaming naming,
                     const IoTensor **out, cvn_err *err)
{
    char shape[128];
    const ParamList *list = &model->params;
    const Param *param = &list->param[i];
    int64_t before = 0, rows = 0;
    for (int k = list->layer[param->layer]; k < list->layer[param->layer + 1]; k++) {
        const Param *other = &list->param[k];
        if (!other->fused[naming] || strcmp(other->fused[naming], param->fused[naming]) != 0)
            continue;
        before += k < i ? other->file_dims[0] : 0;
        rows += other->file_dims[0];
    }
    if (whole->dims[0] != rows || whole->rank != param->file_rank)
        return err_set(
            err, CVN_ESHAPE,
            "'%s': tensor '%s' has shape %s but the config of '%s' requires %" PRId64 " rows",
            whole->file, whole->name, io_shape_text(whole->dims, whole->rank, shape, sizeof shape),
            model->path, rows);
    if (whole->n_parts || (whole->coding != IO_PLAIN && whole->coding != IO_BLOCKS))
        return err_set(err, CVN_EUNSUPPORTED,
                       "'%s': tensor '%s' is of type %s and holds several weights, which is not "
                       "supported; get the model in another quantization",
                       whole->file, whole->name, whole->type);
    IoTensor part = *whole;
    const size_t row = whole->bytes / (size_t)rows;
    part.dims[0] = param->file_dims[0];
    part.n = whole->n / rows * part.dims[0];
    part.bytes = row * (size_t)part.dims[0];
    part.data += row * (size_t)before;
    *out = arena_copy(&model->arena, &part, sizeof part);
    return CVN_OK;
}

/* A tensor in the shape of the parameter, which has the rows of all experts one behind the other where files have a dimension of
   experts, and one row where GGUF files have none. */
static const IoTensor *in_shape(IoModel *model, const Param *param, const IoTensor *tensor)
{
    IoTensor t = *tensor;
    int first = param->experts && t.rank == param->file_rank + 1 && t.dims[0] == param->experts;
    if (param->kind == PARAM_SHARED_ROUTER && t.rank == 1) {
        t.dims[1] = t.dims[0];
        t.dims[0] = 1;
        t.rank = 2;
    } else if (!first) {
        return tensor;
    }
    for (int d = 0; d < t.rank - first && first; d++)
        t.dims[d] = (d == 0 ? t.dims[0] : 1) * t.dims[d + 1];
    t.rank -= first;
    return arena_copy(&model->arena, &t, sizeof t);
}

/* The tensors of a parameter's experts as one, in parts; NULL where one is missing, whose name is then in `name`. */
static int join_experts(IoModel *model, const Param *param, const char *pattern, bool *used,
                        const IoTensor **out, cvn_err *err)
{
    IoTensor *part = arena_array(&model->arena, (size_t)param->experts, sizeof *part);
    char name[160], shape[64], first[64];
    for (int64_t e = 0; e < param->experts; e++) {
        param_expert_name(pattern, e, name, sizeof name);
        const IoTensor *t = io_tensors_find(&model->tensors, name);
        if (!t)
            return CVN_OK;
        if (t->rank != param->file_rank || t->rank < 1 ||
            memcmp(t->dims, e ? part->dims : t->dims, (size_t)t->rank * sizeof *t->dims) != 0)
            return err_set(err, CVN_ESHAPE,
                           "'%s': tensor '%s' has shape %s and that of the first expert %s; they "
                           "must be equal matrices",
                           t->file, name, io_shape_text(t->dims, t->rank, shape, sizeof shape),
                           io_shape_text(e ? part->dims : t->dims, t->rank, first, sizeof first));
        if (!io_is_numeric(t))
            return err_set(err, CVN_EUNSUPPORTED,
                           "'%s': tensor '%s' is of type %s, which cannot be used as a weight",
                           t->file, name, t->type);
        part[e] = *t;
        used[t - model->tensors.tensor] = true;
    }
    IoTensor whole = *part;
    whole.name = arena_string(&model->arena, pattern);
    whole.dims[0] *= param->experts;
    whole.n *= param->experts;
    whole.bytes *= (size_t)param->experts;
    whole.data = NULL;
    whole.coding = IO_PLAIN;
    whole.packed = NULL;
    whole.split_dim = 0;
    whole.n_parts = (int)param->experts;
    whole.part = part;
    *out = arena_copy(&model->arena, &whole, sizeof whole);
    return CVN_OK;
}

/* The tensor of a parameter, or NULL where there is none; those of files that it is of are used. */
static int find_source(IoModel *model, int i, ParamNaming naming, bool *used, const IoTensor **out,
                       cvn_err *err)
{
    const Param *param = &model->params.param[i];
    const IoTensor *of_file, **whole = &of_file;
    const char *fused = param->form == PARAM_PLAIN ? param->fused[naming] : NULL;
    *whole = fused ? io_tensors_find(&model->tensors, fused) : NULL;
    if (*whole) {
        used[*whole - model->tensors.tensor] = true;
        return (param->experts ? take_experts : take_rows)(model, i, *whole, naming, out, err);
    }
    if (param->form == PARAM_PLAIN && param_has_pieces(param, naming))
        return join_experts(model, param, param->file_name[naming], used, out, err);
    *whole = io_tensors_find(&model->tensors, param->file_name[naming]);
    *out = *whole ? in_shape(model, param, *whole) : NULL;
    if (*whole)
        used[*whole - model->tensors.tensor] = true;
    if (*whole && naming == NAMING_GGUF && param->above_one && model_gguf_above_one(model->desc)) {
        IoTensor lower = **whole;
        lower.shift = -1;
        *out = arena_copy(&model->arena, &lower, sizeof lower);
    }
    return CVN_OK;
}

int io_audit(IoModel *model, cvn_err *err)
{
    ParamNaming naming = naming_of(model->kind);
    StrBuf missing = {0}, unknown = {0}; /* added to when nothing is allocated any more */
    int n_missing = 0, n_unknown = 0, code = CVN_OK;
    params_list(&model->params, model->desc, &model->arena);
    const IoTensor **source = arena_array(&model->arena, (size_t)model->params.n, sizeof *source);
    bool *used = arena_array(&model->arena, model->tensors.n + 1, sizeof *used);
    for (int i = 0; i < model->params.n && code == CVN_OK; i++) {
        const Param *param = &model->params.param[i];
        code = find_source(model, i, naming, used, &source[i], err);
        if (code == CVN_OK && !source[i])
            list_name(&missing, &n_missing, params_tensor(&model->params, i, naming).name);
        if (code != CVN_OK || !source[i])
            continue;
        code = check_tensor(model, param, source[i], err);
    }
    for (size_t i = 0; i < model->tensors.n; i++)
        if (!used[i] && !is_tolerated(model, &model->tensors.tensor[i]))
            list_name(&unknown, &n_unknown, model->tensors.tensor[i].name);
    if (code == CVN_OK)
        code = report(model, n_missing, &missing, n_unknown, &unknown, err);
    if (code == CVN_OK)
        model->source = source;
    strbuf_free(&missing);
    strbuf_free(&unknown);
    return code;
}

int io_quantize(IoModel *model, QuantScheme scheme, cvn_err *err)
{
    char text[16];
    if (model_quant(model->desc).kind != QUANT_NONE)
        return err_set(err, CVN_EINVAL, "'%s' is quantized already, as %s", model->path,
                       quant_text(model_quant(model->desc), text, sizeof text));
    ParamList floats = model->params;
    const IoTensor *const *from = model->source;
    model_set_quant(model->desc, scheme);
    model->quantizes = true;
    params_list(&model->params, model->desc, &model->arena);
    const IoTensor **source = arena_array(&model->arena, (size_t)model->params.n, sizeof *source);
    for (int i = 0; i < model->params.n; i++) {
        const Param *param = &model->params.param[i];
        const Param *same = params_find(&floats, param->kind, param->layer);
        if (!same) /* the head of a tied model */
            same = params_find(&floats, PARAM_EMBED, -1);
        source[i] = from[same - floats.param];
    }
    model->source = source;
    return CVN_OK;
}

/* The tensor of a parameter: its numbers, joined with their scales where it is quantized. */
static const IoTensor *join(IoModel *model, const ParamList *params, const IoTensor *const *source,
                            int i)
{
    const Param *p = &params->param[i];
    if (p->form != PARAM_QUANTIZED)
        return source[i];
    return packed_own(p, source[i], source[p->scale], &model->arena);
}

IoTensors io_joined(IoModel *model)
{
    IoTensors list = model->tensors;
    if (model_quant(model->desc).kind == QUANT_NONE)
        return list;
    list.tensor = arena_array(&model->arena, (size_t)model->params.n, sizeof *list.tensor);
    list.n = 0;
    for (int i = 0; i < model->params.n; i++)
        if (model->params.param[i].form != PARAM_SCALES)
            list.tensor[list.n++] = *join(model, &model->params, model->source, i);
    return list;
}

void io_widen(IoModel *model)
{
    ParamList quantized = model->params;
    const IoTensor *const *from = model->source;
    if (model_quant(model->desc).kind == QUANT_NONE)
        return;
    model_set_quant(model->desc, (QuantScheme){.kind = QUANT_NONE});
    params_list(&model->params, model->desc, &model->arena);
    const IoTensor **source = arena_array(&model->arena, (size_t)model->params.n, sizeof *source);
    for (int i = 0; i < model->params.n; i++) {
        const Param *param = &model->params.param[i];
        const Param *same = params_find(&quantized, param->kind, param->layer);
        source[i] = join(model, &quantized, from, (int)(same - quantized.param));
    }
    model->source = source;
}

static BlockKind kept_blocks(const Param *param, const IoTensor *t)
{
    if (t->adapter || param->rank < 2 || param->init != INIT_NORMAL)
        return BLOCK_NONE;
    if (t->coding == IO_VIEW && t->view->column == 1 && t->part->coding == IO_PACKED)
        t = t->part;
    if (t->coding == IO_PACKED)
        return packed_kind(t);
    return t->coding == IO_BLOCKS && t->n_parts == 0 ? t->block->kind : BLOCK_NONE;
}

void io_keep_blocks(IoModel *model)
{
    int n = model->params.n;
    const IoTensor **source = arena_array(&model->arena, (size_t)n + 1, sizeof *source);
    unsigned char *blocks = arena_array(&model->arena, (size_t)n + 1, sizeof *blocks);
    bool any = false;
    for (int i = 0; i < n; i++) {
        source[i] = model->source[i];
        blocks[i] = (unsigned char)kept_blocks(&model->params.param[i], source[i]);
        any = any || blocks[i];
    }
    source[n] = source[0]; /* the head of a tied model */
    blocks[n] = blocks[0];
    if (!any || model_quant(model->desc).kind != QUANT_NONE)
        return;
    model_set_blocks(model->desc, blocks);
    model->source = source;
    params_list(&model->params, model->desc, &model->arena);
}

void io_close_model(IoModel *model)
{
    for (size_t i = 0; i < model->n_maps; i++)
        file_unmap(&model->map[i]);
    arena_free(&model->arena);
    *model = (IoModel){0};
}
