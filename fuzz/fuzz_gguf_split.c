/* A model in two GGUF files on arbitrary bytes: two of them say how long the first file is, the other is the rest. Both lie in a
 * folder in memory under the names that parts have. Every byte of accepted tensors is touched. */
#include "base/file.h"
#include "base/protect.h"
#include "io/gguf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct Parts {
    char first[256], second[256];
    Arena arena;
    FileMap *map; /* [n_maps] */
    size_t n_maps;
} Parts;

static char folder[64];

static void remove_parts(void)
{
    file_remove_folder(folder, NULL);
}

static void make_folder(void)
{
    snprintf(folder, sizeof folder, "%s/caravan-fuzz-split-XXXXXX",
             file_is_folder("/dev/shm") ? "/dev/shm" : "/tmp");
    if (!mkdtemp(folder))
        abort();
    atexit(remove_parts);
}

static void write_part(const char *path, const uint8_t *data, size_t n)
{
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(data, 1, n, file) != n || fclose(file))
        abort();
}

static int read_parts(void *of, cvn_err *err)
{
    Parts *p = of;
    Gguf gguf;
    Model *model;
    volatile uint8_t sink = 0;
    TRY(gguf_open(&gguf, &p->map, &p->n_maps, p->first, &p->arena, err));
    for (size_t i = 0; i < gguf.tensors.n; i++)
        for (size_t b = 0; b < gguf.tensors.tensor[i].bytes; b++)
            sink = (uint8_t)(sink ^ gguf.tensors.tensor[i].data[b]);
    return gguf_model(&model, &gguf, err);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    Parts p = {0};
    cvn_err err = {0};
    if (size < 2 || arena_init(&p.arena, NULL) != CVN_OK)
        return 0;
    if (!folder[0])
        make_folder();
    size_t length = (size_t)(data[0] | data[1] << 8);
    length = length < size - 2 ? length : size - 2;
    snprintf(p.first, sizeof p.first, "%s/m-00001-of-00002.gguf", folder);
    snprintf(p.second, sizeof p.second, "%s/m-00002-of-00002.gguf", folder);
    write_part(p.first, data + 2, length);
    write_part(p.second, data + 2 + length, size - 2 - length);
    int code = protect(read_parts, &p, "reading", &err);
    if ((code == CVN_OK) != (err.code == CVN_OK))
        abort();
    for (size_t i = 0; i < p.n_maps; i++)
        file_unmap(&p.map[i]);
    arena_free(&p.arena);
    return 0;
}
