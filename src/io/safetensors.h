/*
 * safetensors, read in place and written as a stream.
 *
 *   offset  bytes  what
 *   0       8      N, little endian: bytes of the header, at most 100,000,000
 *   8       N      the header: JSON object, first byte '{', may be padded with spaces
 *                  { "name": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [begin, end]}, …,
 *                    "__metadata__": {"key": "value", …} }
 *   8+N     rest   the buffer: tensors row-major, little endian; the [begin, end) of all tensors
 *                  cover it without overlap and without holes, in any order
 *
 * A tensor of shape [] is a scalar; a zero in the shape makes an empty one. (Format: the README of
 * huggingface/safetensors.) The reader refuses, by name, whatever breaks one of these rules: a file
 * that lies about a size never leads to a read outside of it.
 */
#ifndef CVN_IO_SAFETENSORS_H
#define CVN_IO_SAFETENSORS_H

#include "base/file.h"
#include "io/tensor.h"

#include <jansson.h>

#define ST_HEADER_MAX ((size_t)100000000)

/* Adds the tensors of a file image to `list`; they point into data. `metadata` (may be NULL) gets
 * the file's metadata: key -> (const char *) in the list's arena. */
int st_read(IoTensors *list, const char *file, const uint8_t *data, size_t size, Map *metadata,
            cvn_err *err);

/* Writing: open, declare every tensor, begin, give each tensor's bytes in the order of declaration
 * and in pieces of any size, commit. Any failure is final: free the writer, nothing is left behind. */
typedef struct StWriter {
    FileWriter file;
    json_t *header; /* owned: what was declared */
    uint64_t *end;  /* owned, heap: [n] where in the buffer each tensor ends */
    size_t n;       /* tensors declared */
    uint64_t at;    /* bytes of the buffer given so far */
    bool begun;     /* the header is written */
} StWriter;

int st_writer_open(StWriter *writer, const char *path, cvn_err *err);
int st_writer_metadata(StWriter *writer, const char *key, const char *value, cvn_err *err);

/* Declare wide element types first where types are mixed: the format has no padding between
 * tensors. */
int st_writer_declare(StWriter *writer, const char *name, cvn_dtype dtype, int rank,
                      const int64_t *dims, cvn_err *err);
int st_writer_begin(StWriter *writer, cvn_err *err);

/* The next n bytes of tensor `index` (0 is the first declared). */
int st_writer_data(StWriter *writer, size_t index, const void *bytes, size_t n, cvn_err *err);
int st_writer_commit(StWriter *writer, cvn_err *err);
void st_writer_free(StWriter *writer);
void st_writer_release(void *writer); /* the same as a cleanup (base/protect.h) */

/* "BF16" for CVN_BF16; NULL for what safetensors cannot hold (i4). */
const char *st_dtype_name(cvn_dtype dtype);

#endif
