/* Files of llama2.c on arbitrary bytes; the numbers of what is accepted are read. */
#include "io/convert.h"
#include "io/llama2c.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct Input {
    Arena arena;
    const uint8_t *data;
    size_t size;
} Input;

static int read_all(void *of, cvn_err *err)
{
    Input *in = of;
    IoTensors list;
    Model *model;
    io_tensors_init(&list, &in->arena);
    TRY(llama2c_read(&list, &model, "fuzz", in->data, in->size, err));
    for (size_t i = 0; i < list.n; i++) {
        const IoTensor *t = &list.tensor[i];
        float *all = malloc((size_t)t->n * sizeof *all);
        if (all)
            io_decode(t, 0, t->n, all);
        free(all);
    }
    return CVN_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    cvn_err err = {0};
    Input in = {.data = data, .size = size};
    if (arena_init(&in.arena, NULL) != CVN_OK)
        return 0;
    int code = protect(read_all, &in, "reading", &err);
    if ((code == CVN_OK) != (err.code == CVN_OK))
        abort();
    arena_free(&in.arena);
    return 0;
}
