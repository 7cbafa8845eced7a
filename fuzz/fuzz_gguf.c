/* The GGUF reader and its config on arbitrary bytes; every byte of accepted tensors is touched. */
#include "io/gguf.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    Arena arena;
    if (arena_init(&arena, NULL) != CVN_OK)
        return 0;
    Gguf gguf;
    LlamaConfig config;
    cvn_err err = {0};
    int code = gguf_read(&gguf, "fuzz", data, size, &arena, &err);
    volatile uint8_t sink = 0;
    for (size_t i = 0; code == CVN_OK && i < gguf.tensors.n; i++)
        for (size_t b = 0; b < gguf.tensors.tensor[i].bytes; b++)
            sink = (uint8_t)(sink ^ gguf.tensors.tensor[i].data[b]);
    if (code == CVN_OK)
        code = gguf_config(&config, &gguf, &err);
    if ((code == CVN_OK) != (err.code == CVN_OK))
        abort();
    arena_free(&arena);
    return 0;
}
