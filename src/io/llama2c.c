#include "io/llama2c.h"

#include <inttypes.h>
#include <string.h>

const ParamKind llama2c_order[2][LLAMA2C_KINDS + 1] = {
    {PARAM_EMBED, PARAM_ATTN_NORM, PARAM_Q, PARAM_K, PARAM_V, PARAM_O, PARAM_MLP_NORM, PARAM_GATE,
     PARAM_DOWN, PARAM_UP, PARAM_FINAL_NORM, PARAM_KIND_COUNT, PARAM_LM_HEAD},
    {PARAM_ATTN_NORM, PARAM_MLP_NORM, PARAM_FINAL_NORM, PARAM_EMBED, PARAM_Q, PARAM_K, PARAM_V,
     PARAM_O, PARAM_GATE, PARAM_DOWN, PARAM_UP, PARAM_LM_HEAD, PARAM_LM_HEAD},
};

/* The header; *at becomes where the weights begin. */
static int read_header(Model *c, const char *file, const uint8_t *data, size_t size,
                       int32_t *version, size_t *at, cvn_err *err)
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
                       "; 0 and 1 are read, later ones are quantized",
                       file, *version);
    if (size < *at)
        return err_set(err, CVN_EFORMAT, "'%s' is too short for a header of llama2.c", file);
    n += *version ? 2 : 0;
    shared = *version ? data[36] != 0 : n[5] > 0;
    c->dim = n[0];
    c->ffn = n[1];
    c->n_layers = n[2];
    c->n_heads = n[3];
    c->n_kv_heads = n[4];
    c->vocab = n[5] < 0 ? -(int64_t)n[5] : n[5];
    c->max_context = n[6];
    if (c->n_heads < 1 || c->dim < 1 || c->dim % c->n_heads != 0)
        return err_set(err, CVN_EFORMAT,
                       "'%s' is no file of llama2.c: its header has a width of %" PRId64
                       " for %" PRId64 " heads",
                       file, c->dim, c->n_heads);
    c->head_dim = c->dim / c->n_heads;
    c->rms_eps = 1e-5;
    c->rope_interleaved = true;
    c->tied = shared;
    if (c->vocab <= 2)
        c->bos = c->eos = (SpecialIds){0};
    return model_check(c, file, err);
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

int llama2c_read(IoTensors *list, Model *config, const char *file, const uint8_t *data, size_t size,
                 cvn_err *err)
{
    Model c = model_default();
    int32_t version;
    size_t at;
    TRY(read_header(&c, file, data, size, &version, &at, err));
    /* Within the limits of a config no sum here overflows. */
    uint64_t want = at + (uint64_t)model_bytes(&c, CVN_F32);
    want += version ? 0 : (uint64_t)c.max_context * (uint64_t)c.head_dim * 4;
    if (want != size)
        return err_set(err, CVN_EFORMAT,
                       "'%s' has %zu bytes where its header, of llama2.c, asks for %" PRIu64, file,
                       size, want);
    ParamList params;
    params_list(&params, &c, list->arena);
    for (int k = 0; k < LLAMA2C_KINDS + 1 - version; k++) {
        ParamKind kind = llama2c_order[version][k];
        if (kind == PARAM_KIND_COUNT)
            at += (size_t)(c.max_context * c.head_dim) * 4;
        else
            TRY(add_kind(list, &params, kind, file, data, &at, err));
    }
    *config = c;
    return CVN_OK;
}
