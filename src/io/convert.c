#include "io/convert.h"

#include "base/float16.h"
#include "io/packed.h"
#include "model/lora.h"

#include <assert.h>

bool io_is_numeric(const IoTensor *tensor)
{
    switch (tensor->coding) {
    case IO_BLOCKS:
    case IO_PACKED:
    case IO_FILLED:
    case IO_VIEW:
        return true;
    case IO_PLAIN:
        return tensor->dtype == CVN_F32 || tensor->dtype == CVN_BF16 || tensor->dtype == CVN_F16 ||
               tensor->dtype == CVN_F64;
    case IO_OPAQUE:
        break;
    }
    return false;
}

/* Data in files is aligned to nothing; memcpy is how such loads are said. */
static uint16_t load16(const uint8_t *p)
{
    uint16_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

/* Blocks that the range begins or ends in are widened whole, beside the output. */
static void decode_blocks(const IoTensor *tensor, int64_t first, int64_t n, float *out)
{
    const IoBlock *block = tensor->block;
    void (*widen)(const uint8_t *, float *) =
        block->widen ? block->widen : block_info[block->kind].widen;
    while (n > 0) {
        const uint8_t *at = tensor->data + first / block->elements * block->bytes;
        int64_t inside = first % block->elements;
        int64_t piece = block->elements - inside < n ? block->elements - inside : n;
        if (piece == block->elements) {
            widen(at, out);
        } else {
            float whole[IO_MAX_BLOCK];
            widen(at, whole);
            memcpy(out, whole + inside, (size_t)piece * sizeof *out);
        }
        first += piece;
        out += piece;
        n -= piece;
    }
}

static void decode_plain(cvn_dtype dtype, const uint8_t *in, int64_t n, float *out)
{
    switch (dtype) {
    case CVN_F32:
        memcpy(out, in, (size_t)n * 4);
        return;
    case CVN_BF16:
        for (int64_t i = 0; i < n; i++)
            out[i] = bf16_to_f32(load16(in + 2 * i));
        return;
    case CVN_F16:
        for (int64_t i = 0; i < n; i++)
            out[i] = f16_to_f32(load16(in + 2 * i));
        return;
    case CVN_F64:
        for (int64_t i = 0; i < n; i++) {
            double v;
            memcpy(&v, in + 8 * i, sizeof v);
            out[i] = (float)v;
        }
        return;
    default:
        assert(0 && "io_decode: not a numeric tensor");
    }
}

/* Parts side by side: along dim 0 they follow each other; along dim 1 each row is made of theirs. */
static void decode_parts(const IoTensor *tensor, int64_t first, int64_t n, float *out)
{
    const IoTensor *part = tensor->part;
    int64_t run = tensor->split_dim == 0 ? part->n : part->dims[1];
    while (n > 0) {
        int64_t at = first / run, inside = first % run; /* at: which run of the merged tensor */
        int64_t piece = run - inside < n ? run - inside : n;
        int64_t row = at / tensor->n_parts;
        io_decode(&part[at % tensor->n_parts], row * run + inside, piece, out);
        first += piece;
        out += piece;
        n -= piece;
    }
}

/* Rows whose columns lie side by side are read as they lie, others element by element. */
static void decode_view(const IoTensor *tensor, int64_t first, int64_t n, float *out)
{
    const IoView *v = tensor->view;
    while (n > 0) {
        const int64_t row = first / v->columns, column = first % v->columns;
        const int64_t run = v->columns - column < n ? v->columns - column : n;
        const int64_t at = v->begin + row / v->rows * v->expert + row % v->rows * v->row;
        if (v->column == 1)
            io_decode(tensor->part, at + column, run, out);
        for (int64_t i = 0; i < run && v->column != 1; i++)
            io_decode(tensor->part, at + (column + i) * v->column, 1, &out[i]);
        first += run;
        out += run;
        n -= run;
    }
}

void io_decode(const IoTensor *tensor, int64_t first, int64_t n, float *out)
{
    if (tensor->coding == IO_VIEW)
        decode_view(tensor, first, n, out);
    else if (tensor->coding == IO_PACKED)
        packed_decode(tensor, first, n, out);
    else if (tensor->coding == IO_FILLED)
        tensor->filled->fill(tensor->filled->context, tensor->filled->param, first, n, out);
    else if (tensor->n_parts > 0)
        decode_parts(tensor, first, n, out);
    else if (tensor->coding == IO_BLOCKS)
        decode_blocks(tensor, first, n, out);
    else if (n > 0)
        decode_plain(tensor->dtype, tensor->data + cvn_dtype_bytes(tensor->dtype, first), n, out);
    for (int64_t i = 0; tensor->shift != 0 && i < n; i++)
        out[i] += tensor->shift;
    if (tensor->adapter)
        lora_merge(tensor->adapter, first, n, out);
}

void io_encode(cvn_dtype dtype, const float *in, int64_t n, void *out)
{
    uint16_t *half = out;
    switch (dtype) {
    case CVN_F32:
        memcpy(out, in, (size_t)n * 4);
        return;
    case CVN_BF16:
        for (int64_t i = 0; i < n; i++)
            half[i] = bf16_from_f32(in[i]);
        return;
    case CVN_F16:
        for (int64_t i = 0; i < n; i++)
            half[i] = f16_from_f32(in[i]);
        return;
    default:
        assert(0 && "io_encode: weights are f32, bf16 or f16");
    }
}

int64_t io_convert(const IoTensor *tensor, int64_t first, int64_t n, cvn_dtype dtype, void *out)
{
    enum { PIECE = 2048 };
    float piece[PIECE];
    uint8_t *to = out;
    int64_t bad = 0;
    for (int64_t done = 0; done < n;) {
        int64_t m = n - done < PIECE ? n - done : PIECE;
        io_decode(tensor, first + done, m, piece);
        bad += io_count_nonfinite(CVN_F32, piece, m);
        io_encode(dtype, piece, m, to);
        to += cvn_dtype_bytes(dtype, m);
        done += m;
    }
    return bad;
}

int64_t io_count_nonfinite(cvn_dtype dtype, const void *data, int64_t n)
{
    const uint8_t *p = data;
    int64_t bad = 0;
    if (dtype == CVN_F64) {
        for (int64_t i = 0; i < n; i++) {
            uint64_t v;
            memcpy(&v, p + 8 * i, sizeof v);
            bad += (v >> 52 & 0x7ff) == 0x7ff;
        }
    } else if (dtype == CVN_F32) {
        for (int64_t i = 0; i < n; i++) {
            uint32_t v;
            memcpy(&v, p + 4 * i, sizeof v);
            bad += (v & 0x7f800000u) == 0x7f800000u;
        }
    } else {
        uint32_t exponent = dtype == CVN_BF16 ? 0x7f80u : 0x7c00u;
        for (int64_t i = 0; i < n; i++)
            bad += (load16(p + 2 * i) & exponent) == exponent;
    }
    return bad;
}
