/* Matrices that other programs have quantized: the first line of the input is quantization_config, the rest a file of
 * tensors; the numbers of all that is accepted are read. */
#include "base/json_file.h"
#include "io/convert.h"
#include "io/packed.h"
#include "io/safetensors.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct Input {
    Arena arena;
    const uint8_t *data;
    size_t size;
    json_t *settings;
} Input;

static int read_all(void *of, cvn_err *err)
{
    Input *in = of;
    IoTensors list;
    io_tensors_init(&list, &in->arena);
    TRY(st_read(&list, "fuzz", in->data, in->size, NULL, err));
    TRY(packed_join_by(&list, "config.json", in->settings, err));
    for (size_t i = 0; i < list.n; i++) {
        enum { PIECE = 100 };
        float piece[PIECE];
        const IoTensor *t = &list.tensor[i];
        for (int64_t first = 0; io_is_numeric(t) && first < t->n; first += PIECE)
            io_decode(t, first, t->n - first < PIECE ? t->n - first : PIECE, piece);
        BlockKind kind = t->coding == IO_PACKED ? packed_kind(t) : BLOCK_NONE;
        uint8_t block[64];
        for (int64_t at = 0; kind && at < t->n / 32; at++)
            packed_blocks(t, kind, at, 1, block);
    }
    return CVN_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *end = memchr(data, '\n', size);
    cvn_err err = {0};
    Input in = {.data = end ? end + 1 : NULL};
    if (!end || arena_init(&in.arena, NULL) != CVN_OK)
        return 0;
    in.size = size - (size_t)(in.data - data);
    in.settings = json_object_parse("settings", data, (size_t)(end - data), NULL);
    if (in.settings) {
        int code = protect(read_all, &in, "reading", &err);
        if ((code == CVN_OK) != (err.code == CVN_OK))
            abort();
    }
    json_decref(in.settings);
    arena_free(&in.arena);
    return 0;
}
