/*
 * manifest.json: what makes a folder a whole checkpoint. It is written last, and says of every other
 * file how long it is and what its checksum is:
 *
 *   {
 *     "format": "caravan checkpoint",
 *     "version": 3,
 *     "step": 1000,                    steps done
 *     "tokens": 8192000,               tokens seen
 *     "position": 32000,               rows of data taken
 *     "seed": "42",                    unsigned 64-bit, as text: JSON's readers lose bits above 2^53
 *     "config": {…},                   the options of the run, as given
 *     "tensors": [{"name": "model.norm.weight", "dtype": "f32", "shape": [64]}, …],
 *     "files": [{"name": "model.safetensors", "bytes": 60816, "crc32c": "e3069283"}, …],
 *     "checksum": "c1d04330"           CRC-32C of every byte before the comma that precedes this key
 *   }
 *
 * The checksum is always the last key, alone on its line, in that spelling: its line can be cut off
 * without knowing JSON. A reader refuses what it does not know (another version, names with a slash), since a
 * checkpoint that is half understood is a wrong model. Shapes are those of the program: q is [heads, head_dim, embed].
 */
#ifndef CVN_TRAIN_CHECKPOINT_MANIFEST_H
#define CVN_TRAIN_CHECKPOINT_MANIFEST_H

#include "base/arena.h"
#include "caravan/graph.h"

#include <jansson.h>
#include <stdint.h>

#define MANIFEST_NAME "manifest.json"
enum { MANIFEST_VERSION = 3 };

typedef struct ManifestTensor {
    const char *name; /* in the files; the arena's */
    cvn_type type;
} ManifestTensor;

typedef struct ManifestFile {
    const char *name; /* in the checkpoint's folder; the arena's */
    uint64_t bytes;
    uint32_t crc32c;
} ManifestFile;

typedef struct Manifest {
    int64_t step;           /* steps done */
    int64_t tokens;         /* tokens seen */
    int64_t position;       /* rows of data taken */
    uint64_t seed;          /* of the run's random numbers */
    const char *config;     /* JSON object as text, or NULL; the arena's */
    ManifestTensor *tensor; /* [n_tensors]; the arena's */
    size_t n_tensors;
    ManifestFile *file; /* [n]; the arena's */
    size_t n;
} Manifest;

/* Writes FOLDER/manifest.json, beside and renamed. */
int manifest_write(const Manifest *manifest, const char *folder, cvn_err *err);

/* Reads the text of a manifest; `path` is for messages. What it holds lives in the arena. */
int manifest_parse(Manifest *manifest, const char *path, const void *text, size_t n, Arena *arena,
                   cvn_err *err);

/* Only the list of tensors of its object. */
int manifest_parse_tensors(Manifest *manifest, const char *path, const json_t *root, Arena *arena,
                           cvn_err *err);

int manifest_read(Manifest *manifest, const char *folder, Arena *arena, cvn_err *err);

#endif
