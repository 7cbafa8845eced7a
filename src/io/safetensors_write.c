/* Writing safetensors: the header from what was declared, then a stream held to it. */
#include "base/heap.h"
#include "base/json_file.h"
#include "io/safetensors.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

int st_writer_open(StWriter *writer, const char *path, cvn_err *err)
{
    *writer = (StWriter){.file = {.fd = -1}};
    writer->header = json_object();
    if (!writer->header)
        return err_set(err, CVN_EMEM, "no memory to write '%s'", path);
    return file_writer_open(&writer->file, path, err);
}

int st_writer_metadata(StWriter *writer, const char *key, const char *value, cvn_err *err)
{
    json_t *metadata = json_object_get(writer->header, "__metadata__");
    if (!metadata) {
        metadata = json_object();
        json_object_set_new(writer->header, "__metadata__", metadata);
    }
    if (writer->begun || json_object_set_new(metadata, key, json_string(value)) != 0)
        return err_set(err, CVN_EINVAL, "'%s': cannot set metadata '%.60s'", writer->file.path,
                       key);
    return CVN_OK;
}

int st_writer_declare(StWriter *writer, const char *name, cvn_dtype dtype, int rank,
                      const int64_t *dims, cvn_err *err)
{
    const char *path = writer->file.path, *type = st_dtype_name(dtype);
    int64_t elements;
    size_t bytes;
    if (writer->begun || strcmp(name, "__metadata__") == 0 ||
        json_object_get(writer->header, name) || !type || rank < 0 || rank > IO_MAX_RANK ||
        !io_shape_size(dims, rank, cvn_dtype_bits(dtype), &elements, &bytes))
        return err_set(err, CVN_EINVAL,
                       "'%s': cannot declare tensor '%s' (%s, rank %d): name taken, type not in "
                       "safetensors, or size overflows",
                       path, name, cvn_dtype_name(dtype), rank);
    uint64_t *more = heap_more(writer->end, writer->n, sizeof *more);
    if (!more)
        return err_set(err, CVN_EMEM, "no memory for the header of '%s'", path);
    writer->end = more;
    uint64_t begin = writer->n ? writer->end[writer->n - 1] : 0, end;
    if (__builtin_add_overflow(begin, (uint64_t)bytes, &end) || end > INT64_MAX)
        return err_set(err, CVN_EINVAL, "'%s': tensor '%s' makes the file too large", path, name);
    json_t *shape = json_integers(dims, rank);
    json_t *entry = json_pack("{s:s, s:o, s:[I, I]}", "dtype", type, "shape", shape, "data_offsets",
                              (json_int_t)begin, (json_int_t)end);
    if (!entry || json_object_set_new(writer->header, name, entry) != 0)
        return err_set(err, CVN_EINVAL, "'%s': '%.60s' is not a valid UTF-8 tensor name", path,
                       name);
    writer->end[writer->n++] = end;
    return CVN_OK;
}

static int write_header(StWriter *writer, const char *text, size_t n, uint64_t padded, cvn_err *err)
{
    char spaces[64];
    memset(spaces, ' ', sizeof spaces);
    if (padded > ST_HEADER_MAX)
        return err_set(err, CVN_EINVAL,
                       "'%s': a header of %" PRIu64 " bytes is over the limit of %zu",
                       writer->file.path, padded, ST_HEADER_MAX);
    TRY(file_writer_write(&writer->file, &padded, 8, err));
    TRY(file_writer_write(&writer->file, text, n, err));
    return file_writer_write(&writer->file, spaces, padded - n, err);
}

int st_writer_begin(StWriter *writer, cvn_err *err)
{
    const char *path = writer->file.path;
    if (writer->begun)
        return err_set(err, CVN_EINVAL, "'%s': the header was written twice", path);
    char *text = json_dumps(writer->header, JSON_COMPACT);
    if (!text)
        return err_set(err, CVN_EMEM, "no memory for the header of '%s'", path);
    /* Spaces up to a multiple of 64, so that the data starts on a cache line of the mapping. */
    size_t n = strlen(text), padded = ((8 + n + 63) & ~(size_t)63) - 8;
    int code = write_header(writer, text, n, padded, err);
    free(text);
    writer->begun = code == CVN_OK;
    return code;
}

int st_writer_data(StWriter *writer, size_t index, const void *bytes, size_t n, cvn_err *err)
{
    bool mine = writer->begun && index < writer->n &&
                writer->at >= (index ? writer->end[index - 1] : 0) &&
                n <= writer->end[index] - writer->at;
    if (!mine)
        return err_set(err, CVN_EINVAL, "'%s': %zu bytes for tensor %zu are out of order",
                       writer->file.path, n, index);
    writer->at += n;
    return file_writer_write(&writer->file, bytes, n, err);
}

int st_writer_commit(StWriter *writer, cvn_err *err)
{
    uint64_t want = writer->n ? writer->end[writer->n - 1] : 0;
    if (!writer->begun || writer->at != want)
        return err_set(err, CVN_EINVAL, "'%s': %" PRIu64 " of %" PRIu64 " bytes were given",
                       writer->file.path, writer->at, want);
    return file_writer_commit(&writer->file, err);
}

void st_writer_release(void *writer)
{
    st_writer_free(writer);
}

void st_writer_free(StWriter *writer)
{
    file_writer_free(&writer->file);
    json_decref(writer->header);
    free(writer->end);
    *writer = (StWriter){.file = {.fd = -1}};
}
