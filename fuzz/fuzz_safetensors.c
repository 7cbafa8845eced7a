/* The safetensors reader on arbitrary bytes. What it accepts must lie inside of the file, every
 * byte of it is touched so that a lie about a size is seen by the sanitizer. */
#include "io/safetensors.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    Arena arena;
    if (arena_init(&arena, NULL) != CVN_OK)
        return 0;
    IoTensors list;
    Map metadata;
    io_tensors_init(&list, &arena);
    map_init(&metadata, &arena);
    cvn_err err = {0};
    int code = st_read(&list, "fuzz", data, size, &metadata, &err);
    if ((code == CVN_OK) != (err.code == CVN_OK))
        abort();
    volatile uint8_t sink = 0;
    for (size_t i = 0; code == CVN_OK && i < list.n; i++)
        for (size_t b = 0; b < list.tensor[i].bytes; b++)
            sink = (uint8_t)(sink ^ list.tensor[i].data[b]);
    arena_free(&arena);
    return 0;
}
