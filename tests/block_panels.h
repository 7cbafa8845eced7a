/* Random panels of weights in blocks, for tests of kernels. */
#ifndef CVN_TESTS_BLOCK_PANELS_H
#define CVN_TESTS_BLOCK_PANELS_H

#include "base/float8.h"
#include "graph/blocks.h"
#include "kernel_check.h"

static inline void put_floats(uint8_t *at, int64_t n, BlockScale scale, double most)
{
    const cvn_dtype dtype = scale == BLOCK_BF16 ? CVN_BF16 : scale == BLOCK_F32 ? CVN_F32 : CVN_F16;
    for (int64_t i = 0; i < n; i++)
        element_set(dtype, at, i, (2 * check_uniform() - 1) * most);
}

/* Any codes that are finite and whole numbers; floats that make elements of about 1. */
static inline void fill_panels(BlockKind kind, int64_t k, const cvn_type *type, uint8_t *data)
{
    const BlockForm *f = &block_info[kind].form;
    const BlockChunk c = block_chunk(kind, k);
    const double codes = f->fraction ? (double)f8_to_f32(f->fraction, f8_largest(f->fraction))
                         : f->base == 8 || f->table ? 128
                         : f->base == 4             ? 32
                                                    : 4;
    check_fill(type, data, -128, 128);
    for (int64_t i = 0; i < cvn_type_elements(type) && f->fraction; i++)
        data[i] = f8_is_finite(f->fraction, data[i]) ? data[i] : 0;
    for (int64_t i = 0; i < type->dim[0] * type->dim[1]; i++, data += c.bytes) {
        bool whole = f->scale >= BLOCK_WHOLE, nibbles = f->scale == BLOCK_NIBBLES;
        double most = 1 / codes / (nibbles ? 16 : whole ? 128 : 1);
        put_floats(data + (whole ? c.d : c.scale), (whole ? 1 : c.groups) * 16, f->scale, most);
        if (f->minimum)
            put_floats(data + (whole ? c.m : c.minimum), (whole ? 1 : c.groups) * 16, BLOCK_F16,
                       1.0 / (nibbles ? 16
                              : whole ? 128
                                      : 1));
    }
}

/* x [m, k] in bf16 times a weight of n rows in blocks; its panels are yet to be filled, by fill_panels. */
static inline Check blocks_begin(BlockKind kind, bool int8, int64_t m, int64_t k, int64_t n)
{
    Check c = check_begin();
    cvn_linear_spec spec = {.contract = 1,
                            .n_weights = 1,
                            .int8 = int8,
                            .blocks = block_names[kind],
                            .type = {CVN_TYPE(CVN_F32, m, n)}};
    cvn_value *x = check_parameter(&c, CVN_TYPE(CVN_BF16, m, k)), *out[3];
    spec.q[0] = check_parameter(&c, block_panel_type(kind, n, k));
    cvn_linear(c.g, x, &spec, out);
    check_inputs(&c, out[0]);
    return c;
}

#endif
