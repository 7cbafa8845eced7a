/*
 * GGUF, the container of llama.cpp, versions 2 and 3, little endian, read in place.
 *
 *   offset  bytes  what
 *   0       4      "GGUF"
 *   4       4      version
 *   8       8      number of tensors
 *   16      8      number of key-value pairs
 *   24      …      the pairs: key (8 bytes of length, text), type (4 bytes), value
 *                  value: a number, a byte that is 0 or 1, a string (8 bytes of length, text), or an
 *                  array (4 bytes of element type, 8 bytes of count, elements)
 *   …       …      the tensors: name (a string), number of dimensions (4 bytes), dimensions (8 bytes
 *                  each, innermost first), element type (4 bytes), offset in the data (8 bytes)
 *   …       …      zeros up to a multiple of general.alignment (32 unless given), then the data, each
 *                  tensor at the next multiple of the alignment after the one before it
 *
 * (Format: docs/gguf.md of ggml-org/ggml; element types: gguf_blocks.c.) Counts and lengths are held against the bytes that are
 * left before anything is allocated for them.
 */
#ifndef CVN_IO_GGUF_H
#define CVN_IO_GGUF_H

#include "base/file.h"
#include "io/tensor.h"
#include "model/model.h"

typedef enum GgufType {
    GGUF_U8,
    GGUF_I8,
    GGUF_U16,
    GGUF_I16,
    GGUF_U32,
    GGUF_I32,
    GGUF_F32,
    GGUF_BOOL,
    GGUF_STRING,
    GGUF_ARRAY,
    GGUF_U64,
    GGUF_I64,
    GGUF_F64,
    GGUF_TYPE_COUNT
} GgufType;

typedef struct GgufValue {
    GgufType type;
    GgufType element;    /* of an array; else equal to type */
    uint64_t n;          /* elements of an array; bytes of a string; else 1 */
    const uint8_t *data; /* the number, the text (not terminated) or the first element; unaligned */
    size_t bytes;        /* extent of data, all inside of the file */
} GgufValue;

typedef struct Gguf {
    const char *file;  /* in the arena */
    IoTensors tensors; /* dims row-major, so in the reverse of the file's order */
    GgufValue *value;  /* [n_values] */
    size_t n_values;
    Map by_key; /* key -> index into value */
} Gguf;

/* Reads the image of a file; everything points into data or lives in the arena. Errors begin with `file`; NULL: the caller says which file it is. */
int gguf_read(Gguf *gguf, const char *file, const uint8_t *data, size_t size, Arena *arena,
              cvn_err *err);

/* The file at `path`, mapped, and where it is the first of several all of them, as one. What was mapped is in (*map)[*n_maps],
   an array in the arena, also after an error: who calls unmaps it. */
int gguf_open(Gguf *gguf, FileMap **map, size_t *n_maps, const char *path, Arena *arena,
              cvn_err *err);

/* NULL when the key is absent. */
const GgufValue *gguf_find(const Gguf *gguf, const char *key);

/* Numbers of any integer or float type; false when the key is absent or no such number. */
bool gguf_int(const Gguf *gguf, const char *key, int64_t *out);
bool gguf_real(const Gguf *gguf, const char *key, double *out);
/* At most n elements of a list of integers or booleans; *length is how many it has. */
bool gguf_ints(const Gguf *gguf, const char *key, int64_t n, int64_t *out, int64_t *length);

/* A string value copied to the arena; NULL when the key is absent, no string, or holds a NUL. */
const char *gguf_string(const Gguf *gguf, const char *key, Arena *arena);

/* The model that the pairs describe, in the arena (model/gguf.h). A key of its architecture that is not known is refused by
 * name. */
int gguf_model(Model **model, const Gguf *gguf, cvn_err *err);

#endif
