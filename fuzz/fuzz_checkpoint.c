/* What a run reads of its own folder when it goes on, from arbitrary bytes: a manifest (the checksum line
 * is put right, or nothing would ever pass it) and a name of a checkpoint. What is accepted keeps inside of
 * the folder. */
#include "base/crc32c.h"
#include "train/checkpoint/folder.h"
#include "train/checkpoint/manifest.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char name[64], tail[64];
    Arena arena;
    Manifest manifest;
    cvn_err err = {0};
    snprintf(name, sizeof name, "%.*s", (int)(size < 60 ? size : 60), (const char *)data);
    if (size > 0 && checkpoint_step_of(name) < -1)
        abort();
    int n = snprintf(tail, sizeof tail, ",\n  \"checksum\": \"%08" PRIx32 "\"\n}\n",
                     crc32c(0, data, size));
    char *text = malloc(size + (size_t)n);
    if (!text || arena_init(&arena, NULL) != CVN_OK)
        abort();
    if (size > 0)
        memcpy(text, data, size);
    memcpy(text + size, tail, (size_t)n);
    int code = manifest_parse(&manifest, "manifest.json", text, size + (size_t)n, &arena, &err);
    if ((code == CVN_OK) != (err.code == CVN_OK))
        abort();
    for (size_t i = 0; code == CVN_OK && i < manifest.n; i++)
        if (manifest.file[i].name[0] == '.' || strchr(manifest.file[i].name, '/'))
            abort();
    if (code == CVN_OK && (manifest.step < 0 || manifest.tokens < 0 || manifest.position < 0))
        abort();
    manifest_parse(&manifest, "manifest.json", data, size, &arena, NULL);
    arena_free(&arena);
    free(text);
    return 0;
}
