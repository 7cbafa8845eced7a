/* The checkpoint of a mesh, from arbitrary bytes: what a manifest says of its tensors, up to a zero byte, and behind it
 * the file of a device. What is accepted has every element once, and is put together, whole and in pieces. */
#include "base/json_file.h"
#include "io/safetensors.h"
#include "train/checkpoint/shards.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_all(const CheckpointWhole *whole)
{
    int64_t n = cvn_type_elements(&whole->type);
    size_t bytes = cvn_type_bytes(&whole->type), element = cvn_dtype_bytes(whole->type.dtype, 1);
    char *at_once = malloc(bytes + 1), *piece = malloc(bytes + 1);
    if (!at_once || !piece)
        abort();
    Box box = box_whole(&whole->type);
    BoxArray all = box_packed(&box);
    checkpoint_whole_copy(whole, &all, at_once);
    for (int64_t first = 0; first < n; first += 7)
        checkpoint_whole_range(whole, first, n - first < 7 ? n - first : 7,
                               piece + (size_t)first * element);
    if (memcmp(at_once, piece, bytes) != 0)
        abort();
    free(at_once);
    free(piece);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    Arena arena;
    CheckpointWholes wholes;
    cvn_err err = {0};
    const uint8_t *end = size ? memchr(data, 0, size) : NULL;
    if (!end || arena_init(&arena, NULL) != CVN_OK)
        return 0;
    size_t text = (size_t)(end - data) + 1;
    Manifest manifest = {0};
    json_t *json = json_object_parse("run", data, text - 1, &err);
    int code = json ? manifest_parse_tensors(&manifest, "run", json, &arena, &err) : err.code;
    json_decref(json);
    if (code == CVN_OK)
        code = checkpoint_wholes_init(&wholes, "run", &manifest, &arena, &err);
    /* Of exactly its size, so that a sanitizer sees what is read beside it. */
    uint8_t *file = malloc(size - text + 1);
    if (!file)
        abort();
    memcpy(file, data + text, size - text);
    if (code == CVN_OK)
        code = checkpoint_wholes_add(&wholes, "run/shard", file, size - text, &arena, &err);
    if (code == CVN_OK)
        code = checkpoint_wholes_check(&wholes, "run", &err);
    if ((code == CVN_OK) != (err.code == CVN_OK))
        abort();
    for (int i = 0; code == CVN_OK && i < wholes.n; i++)
        read_all(&wholes.whole[i]);
    free(file);
    arena_free(&arena);
    return 0;
}
