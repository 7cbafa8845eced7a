#include "serve/synthetic.h"

#include "base/float16.h"
#include "io/encode.h"

#include <stdlib.h>
#include <string.h>

/* Uniform in ± sqrt(3) * std, from a multiplicative hash of the index: cheap, and good enough to be
   no special case (not all equal, not denormal). */
static float synthetic_value(const Param *p, int64_t i)
{
    if (p->init != INIT_NORMAL)
        return p->init == INIT_ONES ? 1.0f : 0.0f;
    uint32_t h = (uint32_t)i * 2654435761u ^ (uint32_t)((uint64_t)i >> 32);
    h ^= h >> 15;
    h *= 2246822519u;
    return ((float)(h >> 8) * 0x1p-23f - 1.0f) * 1.732f * (float)p->std;
}

/* Elements first … first + n - 1 of an array, to element `at` of another. */
static void fill(const Param *p, cvn_dtype dtype, int64_t first, int64_t n, void *out, int64_t at)
{
    if (p->form == PARAM_QUANTIZED) {
        int64_t begin = (int64_t)cvn_dtype_bytes(dtype, first);
        uint8_t *to = (uint8_t *)out + cvn_dtype_bytes(dtype, at);
        for (int64_t i = 0; i < (int64_t)cvn_dtype_bytes(dtype, n); i++) {
            /* any byte; scales give them about the spread they would have */
            uint32_t h = (uint32_t)(begin + i) * 2654435761u;
            h ^= h >> 15;
            to[i] = (uint8_t)(h * 2246822519u >> 24);
        }
        return;
    }
    float scale = 1.732f * (float)p->std / (p->quant.dtype == CVN_I4 ? 8.0f : 128.0f);
    for (int64_t i = 0; i < n; i++) {
        float x = p->form == PARAM_SCALES ? scale : synthetic_value(p, first + i);
        if (dtype == CVN_F32)
            ((float *)out)[at + i] = x;
        else
            ((uint16_t *)out)[at + i] = bf16_from_f32(x);
    }
}

/* Blocks, of which a few are made and are there again and again. */
static void fill_blocks(const Param *p, int64_t first, int64_t n, uint8_t *out)
{
    enum { MADE = 8 };
    const BlockInfo *info = &block_info[p->blocks];
    uint8_t made[MADE][BLOCK_MOST + BLOCK_MOST / 8];
    float x[BLOCK_MOST];
    for (int i = 0; i < MADE; i++) {
        for (int e = 0; e < info->elements; e++)
            x[e] = synthetic_value(p, (int64_t)i * info->elements + e);
        block_encode(p->blocks, x, NULL, info->elements, made[i]);
    }
    for (int64_t at = first / info->bytes; at < (first + n) / info->bytes; at++, out += info->bytes)
        memcpy(out, made[at % MADE], (size_t)info->bytes);
}

void synthetic_box(const Param *param, cvn_dtype dtype, const Box *box, void *out)
{
    const cvn_type type = param_type(param, dtype);
    for (BoxWalk w = box_of(box, &type); box_next(&w);)
        if (param->form == PARAM_BLOCKS)
            fill_blocks(param, w.a, w.n, (uint8_t *)out + w.b);
        else
            fill(param, type.dtype, w.a, w.n, out, w.b);
}

typedef struct Synthetic {
    cvn_model *m;
    const Model *desc;
} Synthetic;

static int list(void *of, cvn_err *err)
{
    const Synthetic *s = of;
    cvn_model *m = s->m;
    (void)err;
    m->io.desc = model_copy(s->desc, &m->io.arena);
    params_list(&m->io.params, m->io.desc, &m->io.arena);
    return CVN_OK;
}

int model_synthetic(const Model *config, cvn_dtype dtype, cvn_model **out, cvn_err *err)
{
    *out = NULL;
    if (dtype != CVN_F32 && dtype != CVN_BF16)
        return err_set(err, CVN_EUNSUPPORTED, "cannot compute in %s; use f32 or bf16",
                       cvn_dtype_name(dtype));
    cvn_model *m = calloc(1, sizeof *m);
    if (!m)
        return err_set(err, CVN_EMEM, "no memory for a model");
    if (arena_init(&m->io.arena, err)) {
        cvn_model_free(m);
        return err->code;
    }
    m->open = true;
    m->dtype = dtype;
    const Synthetic s = {m, config};
    int code = protect(list, (void *)(uintptr_t)&s, "listing the weights of a model", err);
    if (code)
        cvn_model_free(m);
    else
        *out = m;
    return code;
}
