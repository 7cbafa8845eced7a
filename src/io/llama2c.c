#include "io/llama2c.h"

#include "base/json_file.h"

#include <inttypes.h>
#include <string.h>

const ParamKind llama2c_order[2][LLAMA2C_KINDS + 1] = {
    {PARAM_EMBED, PARAM_ATTN_NORM, PARAM_Q, PARAM_K, PARAM_V, PARAM_O, PARAM_MLP_NORM, PARAM_GATE,
     PARAM_DOWN, PARAM_UP, PARAM_FINAL_NORM, PARAM_KIND_COUNT, PARAM_LM_HEAD},
    {PARAM_ATTN_NORM, PARAM_MLP_NORM, PARAM_FINAL_NORM, PARAM_EMBED, PARAM_Q, PARAM_K, PARAM_V,
     PARAM_O, PARAM_GATE, PARAM_DOWN, PARAM_UP, PARAM_LM_HEAD, PARAM_LM_HEAD},
};

/* The header; *at becomes where the weights begin. */
static int read_header(Model **model, const char *file, const uint8_t *data, size_t size,
                       int32_t *version, size_t *at, Arena *arena, cvn_err *err)
{
    int32_t head[9] = {0};
    bool shared;
    memcpy(head, data, size < sizeof head ? size : sizeof head);
    const int32_t *n = head;
    *version = head[0] == LLAMA2C_MAGIC ? head[1] : 0;
    *at = *version ? LLAMA2C_HEADER : 7 * sizeof *head;
    if (head[0] == LLAMA2C_MAGIC && *version != 1)
        return err_set(err, CVN_EUNSUPPORTED,
                       "'%s' is a file of llama2.c of version %" PRId32
                       "; only 0 and 1 are supported",
                       file, *version);
    if (size < *at)
        return err_set(err, CVN_EFORMAT, "'%s' is too short for a header of llama2.c", file);
    n += *version ? 2 : 0;
    shared = *version ? data[36] != 0 : n[5] > 0;
    int64_t dim = n[0], heads = n[3], vocab = n[5] < 0 ? -(int64_t)n[5] : n[5];
    if (heads < 1 || dim < 1 || dim % heads != 0)
        return err_set(err, CVN_EFORMAT,
                       "'%s' is not a llama2.c file: its header has a width of %" PRId64
                       " for %" PRId64 " heads",
                       file, dim, heads);
    /* The header in the words of a config.json. */
    json_t *config =
        json_pack("{s:s, s:I, s:i, s:i, s:I, s:i, s:I, s:i, s:f, s:b}", "model_type", "llama",
                  "hidden_size", (json_int_t)dim, "intermediate_size", n[1], "num_hidden_layers",
                  n[2], "num_attention_heads", (json_int_t)heads, "num_key_value_heads", n[4],
                  "vocab_size", (json_int_t)vocab, "max_position_embeddings", n[6], "rms_norm_eps",
                  1e-5, "tie_word_embeddings", shared);
    if (vocab <= 2) {
        config = json_with(config, "bos_token_id", json_null());
        config = json_with(config, "eos_token_id", json_null());
    }
    if (!config)
        return err_set(err, CVN_EMEM, "no memory to read '%s'", file);
    CLEANUP(json_release, config);
    TRY(model_parse(model, file, config, NULL, arena, err));
    model_set_interleaved(*model, true);
    return CVN_OK;
}

static int add_kind(IoTensors *list, const ParamList *params, ParamKind kind, const char *file,
                    const uint8_t *data, size_t *at, cvn_err *err)
{
    for (int i = 0; i < params->n; i++) {
        const Param *p = &params->param[i];
        if (p->kind != kind)
            continue;
        IoTensor t = {.name = p->file_name[NAMING_META],
                      .type = "F32",
                      .file = file,
                      .data = data + *at,
                      .bytes = (size_t)p->n * 4,
                      .n = p->n,
                      .rank = p->file_rank,
                      .dtype = CVN_F32};
        memcpy(t.dims, p->file_dims, sizeof p->file_dims);
        *at += t.bytes;
        TRY(io_tensors_add(list, &t, err));
    }
    return CVN_OK;
}

int llama2c_read(IoTensors *list, Model **model, const char *file, const uint8_t *data, size_t size,
                 cvn_err *err)
{
    int32_t version;
    size_t at;
    TRY(read_header(model, file, data, size, &version, &at, list->arena, err));
    int64_t angles = model_context(*model) * model_rope_pairs(*model) * 2;
    /* Within the limits of a model no sum here overflows. */
    uint64_t want = at + (uint64_t)model_bytes(*model, CVN_F32);
    want += version ? 0 : (uint64_t)angles * 4;
    if (want != size)
        return err_set(err, CVN_EFORMAT,
                       "'%s' has %zu bytes where its llama2.c header requires %" PRIu64, file, size,
                       want);
    ParamList params;
    params_list(&params, *model, list->arena);
    for (int k = 0; k < LLAMA2C_KINDS + 1 - version; k++) {
        ParamKind kind = llama2c_order[version][k];
        if (kind == PARAM_KIND_COUNT)
            at += (size_t)angles * 4;
        else
            TRY(add_kind(list, &params, kind, file, data, &at, err));
    }
    return CVN_OK;
}
