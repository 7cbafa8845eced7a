/* The file formats that are little more than a header: Hugging Face's, GGUF and llama2.c's. */
#include "io/formats.h"

#include "base/json_file.h"
#include "io/card.h"
#include "io/gguf_blocks.h"
#include "io/llama2c.h"
#include "io/safetensors.h"
#include "io/save_files.h"
#include "model/gguf.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static int refuse_type(const FormatOptions *o, const char *format, const char *types, cvn_err *err)
{
    return err_set(err, CVN_EINVAL, "%s does not exist in %s; give %s", o->type->name, format,
                   types);
}

static bool is_fp8(const WeightType *type)
{
    return block_info[type->block].form.fraction > 0;
}

/* ---- Hugging Face ---- */

/* A tensor in the header of safetensors, whose rows have so many columns. */
static void put_tensors(StrBuf *text, const ParamTensor *t, const char *ending, const char *type,
                        int64_t columns, uint64_t all, uint64_t *at)
{
    for (int64_t e = 0; e < t->pieces; e++) { /* which lie one behind the other */
        char name[160];
        uint64_t end = *at + all / (uint64_t)t->pieces;
        strbuf_printf(text, ",\"%s%s\":{\"dtype\":\"%s\",\"shape\":[",
                      t->pieces > 1 ? param_expert_name(t->name, e, name, sizeof name) : t->name,
                      ending, type);
        for (int d = 0; d < t->rank; d++)
            strbuf_printf(text, "%s%" PRId64, d ? "," : "", d + 1 < t->rank ? t->dims[d] : columns);
        strbuf_printf(text, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", *at, end);
        *at = end;
    }
}

static void put_entry(StrBuf *text, const Param *p, const ParamTensor *t, cvn_dtype dtype,
                      uint64_t *at)
{
    const uint64_t all = t->n > 1 ? cvn_dtype_bytes(dtype, t->elements) : param_bytes(p, dtype);
    const cvn_dtype stored = p->form == PARAM_QUANTIZED ? CVN_I8
                             : p->form == PARAM_SCALES  ? p->quant.scale_dtype
                                                        : param_type(p, dtype).dtype;
    const int64_t columns = t->dims[t->rank - 1];
    if (p->form != PARAM_BLOCKS) {
        put_tensors(text, t, "", st_dtype_name(stored), columns, all, at);
        return;
    }
    /* FP8, as transformers' FineGrainedFP8 has it */
    const int64_t groups = columns / block_info[p->blocks].elements;
    const uint64_t codes = (uint64_t)p->n;
    put_tensors(text, t, "", "F8_E4M3", columns, codes, at);
    put_tensors(text, t, "_scale_inv", "F32", groups, all - codes, at);
}

/* How a parameter is stored in a folder. */
static OutType hf_type(const Param *p, cvn_dtype dtype)
{
    const bool blocks = p->form == PARAM_BLOCKS;
    return (OutType){
        .dtype = blocks ? dtype : param_type(p, dtype).dtype, .block = p->blocks, .apart = blocks};
}

/* The header for the tensors of one file, and these. */
static int put_safetensors(Out *out, const ParamList *params, const SaveFiles *files, int file,
                           cvn_dtype dtype, cvn_err *err)
{
    uint64_t at = 0;
    SCOPED(strbuf_free) StrBuf text = {0};
    strbuf_puts(&text, "{\"__metadata__\":{\"format\":\"pt\"}");
    for (int i = 0; i < params->n; i++) {
        const Param *p = &params->param[i];
        const ParamTensor t = params_tensor(params, i, NAMING_HF);
        if (files->file[i] != file || p->form == PARAM_SCALES || t.n == 0)
            continue;
        put_entry(&text, p, &t, dtype, &at);
        if (p->form == PARAM_QUANTIZED) {
            const ParamTensor scale = params_tensor(params, p->scale, NAMING_HF);
            put_entry(&text, &params->param[p->scale], &scale, dtype, &at);
        }
    }
    strbuf_putc(&text, '}');
    while ((text.length + 8) % 64 != 0 && !text.failed)
        strbuf_putc(&text, ' ');
    if (text.failed)
        return err_set(err, CVN_EMEM, "no memory for the header of a file");
    uint64_t n = text.length;
    out_file(out, save_files_name(files, file));
    out_bytes(out, &n, sizeof n);
    out_text(out, &text);
    for (int i = 0; i < params->n; i++)
        if (files->file[i] == file && params->param[i].form != PARAM_SCALES) {
            const ParamTensor t = params_tensor(params, i, NAMING_HF);
            if (t.n)
                out_tensor(out, params, &t, hf_type(&params->param[i], dtype));
        }
    return CVN_OK;
}

Model *format_hf_model(const IoModel *model, const FormatOptions *o, Arena *arena)
{
    Model *written = model_copy(model->desc, arena);
    model_set_hf_pairs(written);
    model_set_quant(written, is_fp8(o->type)
                                 ? (QuantScheme){.kind = QUANT_BLOCKS, .blocks = o->type}
                                 : o->type->quant);
    if (o->type->quant.kind == QUANT_NONE && !is_fp8(o->type))
        model_set_dtype(written, o->type->dtype);
    if (o->type->quant.kind == QUANT_INT4)
        model_set_eight(written, o->eight);
    return written;
}

/* The tensor of a parameter, and in the same file those that share it. */
static void save_files_add_tensor(SaveFiles *files, const ParamList *params, int i, OutType type)
{
    const ParamTensor t = params_tensor(params, i, NAMING_HF);
    uint64_t bytes = 0;
    for (int k = 0; k < t.n; k++)
        bytes += out_param_bytes(&params->param[t.member[k]], type);
    for (int k = 0; k < t.n; k++)
        save_files_add(files, t.member[k], t.name, k ? 0 : bytes);
    if (t.pieces > 1)
        files->pieces[i] = t.pieces;
}

int format_hf(Out *out, const FormatOptions *o, cvn_err *err)
{
    const Model *written = format_hf_model(out->model, o, out->arena);
    cvn_dtype dtype = model_dtype(written);
    ParamList params;
    out->interleaved = model_is_interleaved(written);
    if (o->type->block && !is_fp8(o->type))
        return refuse_type(o, "Hugging Face folders",
                           "f32, f16, bf16, fp8, or Caravan's int8 or int4", err);
    params_list(&params, written, out->arena);
    for (int i = 0; i < params.n; i++)
        if (params.param[i].form == PARAM_BLOCKS && params.param[i].fused[NAMING_HF])
            return err_set(err, CVN_EUNSUPPORTED,
                           "'%s': several matrices are one in '%s', which cannot be in fp8; give "
                           "int8 or int4",
                           out->model->path, params.param[i].fused[NAMING_HF]);
    SaveFiles files = save_files("model", o->shard_bytes, 2 * params.n, out->arena);
    for (int i = 0; i < params.n; i++) {
        const Param *p = &params.param[i];
        if (p->form == PARAM_SCALES)
            continue;
        save_files_add_tensor(&files, &params, i, hf_type(p, dtype));
        if (p->form == PARAM_QUANTIZED) /* in the same file */
            save_files_add(&files, p->scale, params.param[p->scale].file_name[NAMING_HF], 0);
        if (p->form == PARAM_BLOCKS) { /* which are no parameters */
            const int at = params.n + i;
            save_files_add(&files, at,
                           arena_printf(out->arena, "%s_scale_inv", p->file_name[NAMING_HF]), 0);
            files.pieces[at] = files.pieces[i];
        }
    }
    for (int file = 0; file < files.n; file++)
        TRY(put_safetensors(out, &params, &files, file, dtype, err));
    json_t *index = files.n > 1 ? save_files_json(&files) : NULL;
    if (files.n > 1) {
        const char *text = json_arena_text(index, JSON_INDENT(2), out->arena);
        json_decref(index);
        if (!text)
            return err_set(err, CVN_EMEM, "no memory for an index");
        out_file(out, SAVE_INDEX);
        out_bytes(out, text, strlen(text));
        out_bytes(out, "\n", 1);
    }
    return CVN_OK;
}

/* ---- GGUF ---- */

static OutType gguf_type(const Param *p, const Model *m, const WeightType *type)
{
    const BlockKind block = param_block(p, m, type);
    if (p->init != INIT_NORMAL || p->kind == PARAM_ROUTER || p->kind == PARAM_SHARED_ROUTER)
        return (OutType){.dtype = CVN_F32};
    return (OutType){.dtype = type->block ? CVN_F16 : type->dtype, .block = block};
}

static uint32_t gguf_number(OutType type)
{
    for (uint32_t number = 0;; number++) {
        const GgufElement *e = gguf_element(number);
        if (e && (type.block ? e->block.kind == type.block
                             : e->coding == IO_PLAIN && e->dtype == type.dtype))
            return number;
    }
}

static void put_ids(GgufKeys *keys, const Model *m)
{
    const SpecialIds *begins = model_begins(m), *ends = model_ends(m);
    if (begins->n)
        gguf_key_u32(keys, "tokenizer.ggml.bos_token_id", begins->id[0]);
    if (ends->n)
        gguf_key_u32(keys, "tokenizer.ggml.eos_token_id", ends->id[0]);
    if (ends->n > 1)
        gguf_key_u32(keys, "tokenizer.ggml.eot_token_id", ends->id[ends->n - 1]);
    if (ends->n > 2)
        gguf_key_u32(keys, "tokenizer.ggml.eom_token_id", ends->id[1]);
    if (model_pad(m) >= 0)
        gguf_key_u32(keys, "tokenizer.ggml.padding_token_id", model_pad(m));
}

static void put_integer(void *of, const char *key, int64_t value)
{
    gguf_key_u32(of, key, value);
}

static void put_real(void *of, const char *key, double value)
{
    gguf_key_f32(of, key, value);
}

static void put_switches(void *of, const char *key, const int64_t *value, int64_t n)
{
    GgufKeys *keys = of;
    gguf_key_array(keys, key, GGUF_BOOL, (uint64_t)n);
    for (int64_t i = 0; i < n; i++)
        strbuf_putc(&keys->bytes, (char)value[i]);
}

static void put_integers(void *of, const char *key, const int64_t *value, int64_t n)
{
    GgufKeys *keys = of;
    gguf_key_array(keys, key, GGUF_I32, (uint64_t)n);
    for (int64_t i = 0; i < n; i++) {
        const int32_t one = (int32_t)value[i];
        gguf_put_raw(&keys->bytes, &one, sizeof one);
    }
}

static void put_boolean(void *of, const char *key, bool value)
{
    gguf_key_bool(of, key, value);
}

static void put_text(void *of, const char *key, const char *value)
{
    gguf_key_text(of, key, value);
}

/* What is said of the model in general, in the GGUF file that is read or in the card of its folder: its name, its licence, who made
   it. */
static void put_general(GgufKeys *keys, const IoModel *model, const FormatOptions *o, Arena *arena)
{
    const Gguf *from = model->gguf;
    Card card = {0};
    static const char *const ours[] = {"general.architecture", "general.file_type",
                                       "general.quantization_version", "general.alignment"};
    if (model->kind == IO_KIND_HF)
        card_read(&card, model->path, arena);
    for (int i = 0; i < CARD_FIELDS; i++)
        if (card.value[i])
            gguf_key_text(keys, card_keys[i], card.value[i]);
    if (!card.value[0] && (!from || !gguf_find(from, "general.name")))
        gguf_key_text(keys, "general.name", o->name);
    for (size_t i = 0; from && i < from->by_key.capacity; i++) {
        const MapEntry *entry = &from->by_key.slot[i];
        bool take = entry->key && entry->length > 8 && memcmp(entry->key, "general.", 8) == 0;
        for (size_t k = 0; take && k < sizeof ours / sizeof *ours; k++)
            take =
                strlen(ours[k]) != entry->length || memcmp(ours[k], entry->key, entry->length) != 0;
        if (take)
            gguf_key_copy(keys, entry->key, &from->value[entry->value]);
    }
}

static int put_settings(GgufKeys *keys, const IoModel *model, const FormatOptions *o, Arena *arena,
                        cvn_err *err)
{
    const GgufSink sink = {.of = keys,
                           .integer = put_integer,
                           .real = put_real,
                           .text = put_text,
                           .boolean = put_boolean,
                           .switches = put_switches,
                           .integers = put_integers};
    const char *architecture = model_gguf_architecture(model->desc);
    gguf_key_text(keys, "general.architecture", architecture ? architecture : "");
    put_general(keys, model, o, arena);
    gguf_key_u32(keys, "general.file_type", o->type->gguf);
    if (o->type->block)
        gguf_key_u32(keys, "general.quantization_version", 2);
    TRY(model_to_gguf(model->desc, model->path, &sink, err));
    put_ids(keys, model->desc);
    return CVN_OK;
}

static void put_tensor(StrBuf *out, const char *name, int rank, const int64_t *dims, OutType type,
                       uint64_t *at, int64_t n)
{
    uint32_t number = gguf_number(type), n_dims = (uint32_t)rank;
    gguf_put_text(out, name, strlen(name));
    gguf_put_raw(out, &n_dims, sizeof n_dims);
    for (int d = rank - 1; d >= 0; d--)
        gguf_put_raw(out, &dims[d], sizeof dims[d]);
    gguf_put_raw(out, &number, sizeof number);
    gguf_put_raw(out, at, sizeof *at);
    *at += (out_type_bytes(type, n) + 31) / 32 * 32;
}

int format_gguf(Out *out, const FormatOptions *o, cvn_err *err)
{
    const Model *m = out->model->desc;
    const ParamList *params = &out->model->params;
    uint32_t version = 3;
    RopeTensor rope[2];
    const int n_rope = model_rope_tensors(m, out->arena, rope);
    uint64_t at = 0, n = (uint64_t)n_rope;
    GgufKeys keys = {0};
    SCOPED(strbuf_free) StrBuf head = {0};
    for (int i = 0; i < params->n; i++)
        n += params_tensor(params, i, NAMING_GGUF).n > 0;
    if (o->type->quant.kind || is_fp8(o->type))
        return refuse_type(o, "GGUF files", "f32, f16, bf16, or a type from q4_0 to q8_0", err);
    int code = put_settings(&keys, out->model, o, out->arena, err);
    if (code != CVN_OK) {
        strbuf_free(&keys.bytes);
        return code;
    }
    if (!o->tokenizer)
        gguf_key_text(&keys, "tokenizer.ggml.model", "no_vocab");
    uint64_t n_keys = keys.n + (o->tokenizer ? o->tokenizer->n : 0);
    gguf_put_raw(&head, "GGUF", 4);
    gguf_put_raw(&head, &version, sizeof version);
    gguf_put_raw(&head, &n, sizeof n);
    gguf_put_raw(&head, &n_keys, sizeof n_keys);
    strbuf_add(&head, keys.bytes.text, keys.bytes.length);
    if (o->tokenizer)
        strbuf_add(&head, o->tokenizer->bytes.text, o->tokenizer->bytes.length);
    for (int i = 0; i < n_rope; i++)
        put_tensor(&head, rope[i].name, 1, &rope[i].n, (OutType){.dtype = CVN_F32}, &at, rope[i].n);
    for (int i = 0; i < params->n; i++) {
        const Param *p = &params->param[i];
        const ParamTensor t = params_tensor(params, i, NAMING_GGUF);
        int64_t dims[PARAM_FILE_RANK];
        const int rank = param_gguf_dims(p, dims);
        dims[0] = t.n > 1 ? t.rows : dims[0];
        if (t.n)
            put_tensor(&head, t.name, rank, dims, gguf_type(p, m, o->type), &at, t.elements);
    }
    bool failed = keys.bytes.failed || head.failed;
    strbuf_free(&keys.bytes);
    out_file(out, o->file);
    out_text(out, &head);
    if (failed)
        return err_set(err, CVN_EMEM, "no memory for the header of a GGUF file");
    out->interleaved = model_gguf_interleaves(m);
    out->above_one = model_gguf_above_one(m);
    out_padding(out, 32);
    for (int i = 0; i < n_rope; i++) {
        out_bytes(out, rope[i].value, (size_t)rope[i].n * sizeof *rope[i].value);
        out_padding(out, 32);
    }
    for (int i = 0; i < params->n; i++) {
        const ParamTensor t = params_tensor(params, i, NAMING_GGUF);
        for (int k = 0; k < t.n; k++) /* in the type of the first */
            out_param(out, &params->param[t.member[k]], gguf_type(&params->param[i], m, o->type),
                      -1, 0, 1);
        out_padding(out, 32);
    }
    return CVN_OK;
}

/* ---- llama2.c ---- */

/* Cosines, then sines, of the angles of each position, which only version 0 has. */
static void put_angles(Out *out, const Model *m)
{
    const int64_t half = model_rope_pairs(m), n = model_context(m) * half;
    double *frequency = arena_array(out->arena, (size_t)half, sizeof *frequency);
    float *angle = arena_array(out->arena, (size_t)n, sizeof *angle);
    model_rope_frequencies(m, model_context(m), frequency);
    for (int sines = 0; sines < 2; sines++) {
        for (int64_t i = 0; i < n; i++) {
            double x = (double)(i / half) * frequency[i % half];
            angle[i] = (float)(sines ? sin(x) : cos(x));
        }
        out_bytes(out, angle, (size_t)n * sizeof *angle);
    }
}

static int write_llama2c(Out *out, const FormatOptions *o, int version, cvn_err *err)
{
    const Model *m = out->model->desc;
    const ModelShape c = model_shape(m);
    const ParamList *params = &out->model->params;
    json_t *json = model_json(m, err);
    if (!json)
        return CVN_EUNSUPPORTED;
    CLEANUP(json_release, json);
    const double eps = json_number_value(json_object_get(json, "rms_norm_eps"));
    const char *refused = !model_has_names(m, NAMING_META) ? "settings that Llama does not have"
                          : json_is_true(json_object_get(json, "attention_bias")) ||
                                  json_is_true(json_object_get(json, "mlp_bias"))
                              ? "biases"
                          : c.head_dim * c.heads != c.width ? "heads of another width"
                          : !json_is_null(json_object_get(json, "rope_scaling"))
                              ? "scaled rotary frequencies"
                          : json_number_value(json_object_get(json, "rope_theta")) != 10000
                              ? "another rotary base than 10000"
                          : eps < 0.9e-5 || eps > 1.1e-5 ? "another eps than 1e-5"
                                                         : NULL;
    if (refused)
        return err_set(err, CVN_EUNSUPPORTED, "a llama2.c file cannot express that '%s' has %s",
                       out->model->path, refused);
    if (o->type->block || o->type->quant.kind || o->type->dtype != CVN_F32)
        return refuse_type(o, "llama2.c files", "f32", err);
    uint8_t head[LLAMA2C_HEADER] = {0};
    const int32_t vocab = (int32_t)c.vocab;
    const int32_t numbers[9] = {LLAMA2C_MAGIC,       1,
                                (int32_t)c.width,    (int32_t)c.ffn,
                                (int32_t)c.layers,   (int32_t)c.heads,
                                (int32_t)c.kv_heads, version == 0 && !c.tied ? -vocab : vocab,
                                (int32_t)c.context};
    memcpy(head, numbers, sizeof numbers);
    head[sizeof numbers] = c.tied;
    out->interleaved = true;
    out_file(out, o->file);
    if (version == 0)
        out_bytes(out, numbers + 2, sizeof numbers - 2 * sizeof *numbers);
    else
        out_bytes(out, head, sizeof head);
    for (int k = 0; k < LLAMA2C_KINDS + 1 - version; k++) {
        if (llama2c_order[version][k] == PARAM_KIND_COUNT)
            put_angles(out, m);
        for (int i = 0; i < params->n; i++)
            if (params->param[i].kind == llama2c_order[version][k])
                out_param(out, &params->param[i], (OutType){.dtype = CVN_F32}, -1, 0, 1);
    }
    return CVN_OK;
}

int format_llama2c(Out *out, const FormatOptions *o, cvn_err *err)
{
    return write_llama2c(out, o, 1, err);
}

int format_llama2c_v0(Out *out, const FormatOptions *o, cvn_err *err)
{
    return write_llama2c(out, o, 0, err);
}
