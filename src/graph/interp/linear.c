/* What weights in blocks mean, plain and in panels; and products of whole numbers, which are exact. */
#include "graph/linear.h"
#include "graph/interp/interp_impl.h"

void interp_dequantize(const Op *op, const void *const *in, void *const *out)
{
    const BlockInfo *info = &block_info[op->attr.blocks];
    const bool panels = op->attr.axis > 0;
    const int64_t n = cvn_type_elements(op_out(op, 0));
    const LinearWeight w = panels ? dequantize_weight(op) : (LinearWeight){.k = n};
    const BlockChunk c = panels ? block_chunk(w.blocks, w.k) : (BlockChunk){0};
    const int64_t each = panels ? c.columns : info->elements;
    float element[BLOCK_MOST];
    for (int64_t i = 0; i < n; i += each) {
        const uint8_t *from = in[0];
        const int64_t row = i / w.k, column = i % w.k;
        if (panels)
            block_chunk_row(w.blocks, &c,
                            from + (row / PANEL_ROWS * w.units + column / each) * c.bytes,
                            (int)(row % PANEL_ROWS), element);
        else
            info->widen(from + i / each * info->bytes, element);
        for (int64_t j = 0; j < each; j++)
            element_set(op_out(op, 0)->dtype, out[0], i + j, (double)element[j]);
    }
}

void interp_linear_int8(const Op *op, const void *const *in, void *const *out)
{
    const LinearWeight w = linear_weight(op, 0);
    const int8_t *x = in[0];
    int64_t rows = cvn_type_elements(op_in(op, 1));
    for (int64_t at = 0; at < rows * w.n; at++) {
        int64_t m = at / w.n, n = at % w.n, sum = 0;
        for (int64_t k = 0; k < w.k; k++) {
            int64_t place = w.panels ? panel_index(w.dtype, w.units, n, k) : n * w.k + k;
            sum += x[m * w.k + k] * (int64_t)((const int8_t *)in[2])[place];
        }
        double scale = element_get(CVN_F32, in[3], n) * element_get(CVN_BF16, in[1], m);
        element_set(op_out(op, 0)->dtype, out[0], at, (double)sum * scale);
    }
}
