/* The GGUF reader and its config on arbitrary bytes; every byte of accepted tensors is touched, and their numbers
 * are read. */
#include "io/convert.h"
#include "io/gguf.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_all(const IoTensor *tensor)
{
    enum { PIECE = 700 }; /* not a number of blocks */
    float piece[PIECE];
    uint16_t half[PIECE];
    volatile uint8_t sink = 0;
    for (size_t b = 0; b < tensor->bytes; b++)
        sink = (uint8_t)(sink ^ tensor->data[b]);
    if (!io_is_numeric(tensor))
        return;
    for (int64_t first = 0; first < tensor->n; first += PIECE) {
        int64_t n = tensor->n - first < PIECE ? tensor->n - first : PIECE;
        io_decode(tensor, first, n, piece);
        int64_t bad = io_convert(tensor, first + n / 2, n - n / 2, CVN_BF16, half);
        if (bad != io_count_nonfinite(CVN_F32, piece + n / 2, n - n / 2))
            abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    Arena arena;
    if (arena_init(&arena, NULL) != CVN_OK)
        return 0;
    Gguf gguf;
    Model *model;
    cvn_err err = {0};
    int code = gguf_read(&gguf, "fuzz", data, size, &arena, &err);
    for (size_t i = 0; code == CVN_OK && i < gguf.tensors.n; i++)
        read_all(&gguf.tensors.tensor[i]);
    if (code == CVN_OK)
        code = gguf_model(&model, &gguf, &err);
    if ((code == CVN_OK) != (err.code == CVN_OK))
        abort();
    arena_free(&arena);
    return 0;
}
