/*
 * quantize_rows: rows in 8 bits, each by its largest element. Compiled once per instruction set.
 *
 * A row is read twice, the second time from the cache. Every step is one that all instruction sets round alike (a
 * maximum, a division, a rounding to the nearest whole number), so that they give the interpreter's bits: as with all
 * that is written into a KV cache, a row then has the same bits wherever it was made.
 */
#include "cpu/kernels/kernels.h"
#include "cpu/kernels/rows8_impl.h"

static bool match(const Op *op)
{
    return tile_dtype(op->operand[0]->type.dtype);
}

static void run(const KernelArgs *args)
{
    const cvn_type *x = &args->op->operand[0]->type; /* [..., d] */
    int64_t d = x->dim[x->rank - 1], begin, end;
    int8_t *q = args->out[0];
    uint16_t *scales = args->out[1]; /* bf16 */
    float from[TILE];
    kernel_share(cvn_type_elements(x) / d, 1, args->thread, args->n_threads, &begin, &end);
    for (int64_t row = begin; row < end; row++) {
        int32_t bits = 0;
        for (int64_t at = 0; at < d; at += TILE) {
            int64_t n = d - at < TILE ? d - at : TILE;
            bits = largest(tile_read(x->dtype, args->in[0], row * d + at, n, from), n, bits);
        }
        scales[row] = step_of(bits);
        float scale = bf16_to_f32(scales[row]);
        if (!step_usable(scale)) {
            memset(q + row * d, 0, (size_t)d);
            continue;
        }
        for (int64_t at = 0; at < d; at += TILE) {
            int64_t n = d - at < TILE ? d - at : TILE;
            const float *y = tile_read(x->dtype, args->in[0], row * d + at, n, from);
            steps_of(q + row * d + at, y, scale, n);
        }
    }
}

const Kernel ISA_NAME(quantize_kernels)[] = {
    {.name = "quantize_rows." ISA, .kind = OP_QUANTIZE_ROWS, .match = match, .run = run},
    {0},
};
