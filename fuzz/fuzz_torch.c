/* The reader of torch.save files (zip and pickle) on arbitrary bytes. Bytes that do not begin as a
 * zip archive go to the pickle machine alone. */
#include "io/pickle.h"
#include "io/torch_file.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    Arena arena;
    if (arena_init(&arena, NULL) != CVN_OK)
        return 0;
    IoTensors list;
    PickleValue value;
    cvn_err err = {0};
    int code;
    io_tensors_init(&list, &arena);
    if (size >= 4 && memcmp(data, "PK", 2) == 0)
        code = torch_read(&list, "fuzz", data, size, &err);
    else
        code = pickle_read(&value, "fuzz", data, size, &arena, &err);
    if ((code == CVN_OK) != (err.code == CVN_OK))
        abort();
    volatile uint8_t sink = 0;
    for (size_t i = 0; code == CVN_OK && i < list.n; i++)
        for (size_t b = 0; b < list.tensor[i].bytes; b++)
            sink = (uint8_t)(sink ^ list.tensor[i].data[b]);
    arena_free(&arena);
    return 0;
}
