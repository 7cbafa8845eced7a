/* Weights in blocks as numbers: rows that are looked up in a table, and whatever no product takes as it is. */
#include "graph/blocks.h"
#include "cpu/kernels/kernels.h"
#include "cpu/kernels/tile.h"
#include "graph/linear.h"

static bool match(const Op *op)
{
    return op->attr.blocks && tile_dtype(op_out(op, 0)->dtype);
}

static void run_panels(const KernelArgs *args)
{
    const Op *op = args->op;
    const LinearWeight w = dequantize_weight(op);
    const BlockChunk c = block_chunk(w.blocks, w.k);
    float element[BLOCK_MOST];
    int64_t begin, end;
    kernel_share(w.n, 1, args->thread, args->n_threads, &begin, &end);
    for (int64_t row = begin; row < end; row++) {
        const uint8_t *panel =
            (const uint8_t *)args->in[0] + row / PANEL_ROWS * (int64_t)w.panel_bytes;
        for (int64_t i = 0; i < w.units; i++) {
            block_chunk_row(w.blocks, &c, panel + i * c.bytes, (int)(row % PANEL_ROWS), element);
            tile_write(op_out(op, 0)->dtype, args->out[0], row * w.k + i * c.columns, c.columns,
                       element);
        }
    }
}

static void run(const KernelArgs *args)
{
    const Op *op = args->op;
    const BlockInfo *info = &block_info[op->attr.blocks];
    const uint8_t *in = args->in[0];
    float element[BLOCK_MOST];
    int64_t begin, end;
    if (op->attr.axis) {
        run_panels(args);
        return;
    }
    /* An array of blocks, one after the other. */
    kernel_share(cvn_type_elements(op_out(op, 0)) / info->elements, 1, args->thread,
                 args->n_threads, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        info->widen(in + i * info->bytes, element);
        tile_write(op_out(op, 0)->dtype, args->out[0], i * info->elements, info->elements, element);
    }
}

const Kernel blocks_kernels[] = {
    {.name = "dequantize.blocks", .kind = OP_DEQUANTIZE, .match = match, .run = run},
    {0},
};
