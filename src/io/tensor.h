/*
 * What every reader of weights makes, whatever the format: a list of named tensors that lie in
 * mapped files. Nothing is copied; a tensor's bytes are good until its file is unmapped.
 */
#ifndef CVN_IO_TENSOR_H
#define CVN_IO_TENSOR_H

#include "base/map.h"
#include "caravan/dtype.h"
#include "graph/blocks.h"

#define IO_MAX_RANK 8

/* How the elements lie in the file. */
typedef enum IoCoding {
    IO_PLAIN,  /* an array of `dtype` */
    IO_BLOCKS, /* an array of `block`s; `dtype` is f32 */
    IO_PACKED, /* a matrix that lies in several tensors, its parts, in a way of its own; `dtype` is f32 */
    IO_FILLED, /* in no file: given by a function; `dtype` is f32 */
    IO_VIEW,   /* some elements of another tensor, its only part; `dtype` is f32 */
    IO_OPAQUE, /* known size, but nothing here computes with it; `dtype` means nothing */
} IoCoding;

enum { IO_MAX_BLOCK = BLOCK_MOST };

/* Elements that are stored together, with what they share. */
typedef struct IoBlock {
    int elements; /* at most IO_MAX_BLOCK, and a divisor of the length of rows */
    int bytes;
    BlockKind kind; /* of IO_BLOCKS, or BLOCK_NONE: products read no such blocks, and they are */
    void (*widen)(const uint8_t *block, float *out); /* only widened, by this; else NULL */
} IoBlock;

struct Param; /* model/params.h */

/* Gives elements first .. first+n-1 of a parameter, row-major in its logical shape. Called from several threads at once, for
   different ranges. */
typedef void IoFill(void *context, const struct Param *param, int64_t first, int64_t n, float *out);

typedef struct IoFilled {
    IoFill *fill;
    void *context;
    const struct Param *param;
} IoFilled;

/* Matrices of experts among others: element [expert, row, column] is that of the part at begin + expert, row and column times
   these steps. */
typedef struct IoView {
    int64_t rows, columns; /* of a matrix */
    int64_t begin, expert, row, column;
} IoView;

/* A tensor that lies in parts (Meta's model-parallel files) has data NULL and its parts, equal in
 * shape, side by side along split_dim. Use io_decode, which knows all of this. */
typedef struct IoTensor {
    const char *name;          /* as in the file; in the list's arena */
    const char *type;          /* element type as the file spells it; static */
    const char *file;          /* path of the file, for messages; in the list's arena */
    const uint8_t *data;       /* [bytes], in the file's mapping, aligned to nothing */
    size_t bytes;              /* bytes in the file */
    int64_t dims[IO_MAX_RANK]; /* row-major, outermost first */
    int64_t n;                 /* elements: the product of dims, 1 for a scalar */
    int rank;                  /* dims used */
    IoCoding coding;
    cvn_dtype dtype;
    const IoBlock *block;          /* static; of tensors in GGUF files, else NULL */
    int split_dim;                 /* 0 or 1, where there are parts */
    int n_parts;                   /* 0 for a tensor in one piece */
    const struct IoTensor *part;   /* [n_parts], in the list's arena */
    const struct IoPacked *packed; /* of IO_PACKED: how (packed.h) */
    const IoFilled *filled;        /* of IO_FILLED: by what */
    const IoView *view;            /* of IO_VIEW: which */
    /* Added to the elements when they are read: -1 of norms that a file has above one. */
    float shift;
    /* Added likewise, or NULL (adapter.h). */
    const struct LoraProduct *adapter;
} IoTensor;

typedef struct IoTensors {
    Arena *arena;     /* borrowed: names, the array, the map */
    IoTensor *tensor; /* [n], in the order of the files' headers */
    size_t n;
    Map by_name; /* name -> index */
} IoTensors;

void io_tensors_init(IoTensors *list, Arena *arena);

/* Appends a copy of *tensor (its name is copied too); a name that is there already is an error. */
int io_tensors_add(IoTensors *list, const IoTensor *tensor, cvn_err *err);

/* Names go into messages: they must not be empty, move a terminal's cursor, or fill a screen. */
bool io_name_is_clean(const char *name);

bool io_ends_with(const char *text, const char *end);

/* NULL when there is none of that name. */
const IoTensor *io_tensors_find(const IoTensors *list, const char *name);

/* Elements and bytes of a shape, `bits` per element. False when a dimension is negative, a product
 * overflows, or the bits are no whole number of bytes. */
bool io_shape_size(const int64_t *dims, int rank, int bits, int64_t *n, size_t *bytes);

/* "[2, 3]" into text, for messages; cut when it does not fit. Returns text. */
const char *io_shape_text(const int64_t *dims, int rank, char *text, size_t size);

#endif
