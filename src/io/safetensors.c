#include "io/safetensors.h"

#include "base/json_file.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Every element type of the format: its name, bits, and ours where we have it. */
static const struct {
    const char *name;
    int bits;
    int dtype; /* cvn_dtype, or -1 */
} st_dtypes[] = {
    {"F64", 64, CVN_F64}, {"F32", 32, CVN_F32}, {"BF16", 16, CVN_BF16}, {"F16", 16, CVN_F16},
    {"I32", 32, CVN_I32}, {"U32", 32, CVN_U32}, {"I8", 8, CVN_I8},      {"BOOL", 8, CVN_BOOL},
    {"I64", 64, -1},      {"U64", 64, -1},      {"I16", 16, -1},        {"U16", 16, -1},
    {"U8", 8, -1},        {"F8_E4M3", 8, -1},   {"F8_E5M2", 8, -1},     {"F8_E8M0", 8, -1},
    {"C64", 64, -1},      {"F6_E2M3", 6, -1},   {"F6_E3M2", 6, -1},     {"F4", 4, -1},
};
#define N_ST_DTYPES (sizeof st_dtypes / sizeof *st_dtypes)

const char *st_dtype_name(cvn_dtype dtype)
{
    for (size_t i = 0; i < N_ST_DTYPES; i++)
        if (st_dtypes[i].dtype == (int)dtype)
            return st_dtypes[i].name;
    return NULL;
}

/* One tensor's claim on the buffer, for the check that claims tile it. */
typedef struct Span {
    uint64_t begin, end;
    const char *name;
} Span;

static int span_order(const void *a, const void *b)
{
    const Span *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return x->end == y->end ? 0 : x->end < y->end ? -1 : 1;
}

static int check_tiling(const char *file, Span *span, size_t n, uint64_t size, cvn_err *err)
{
    uint64_t at = 0;
    if (n)
        qsort(span, n, sizeof *span, span_order);
    for (size_t i = 0; i < n; i++) {
        if (span[i].begin < at)
            return err_set(err, CVN_EFORMAT, "'%s': tensors '%s' and '%s' overlap", file,
                           span[i - 1].name, span[i].name);
        if (span[i].begin > at)
            return err_set(err, CVN_EFORMAT,
                           "'%s': bytes %" PRIu64 " to %" PRIu64
                           " of the data, before tensor '%s', do not belong to a tensor",
                           file, at, span[i].begin, span[i].name);
        at = span[i].end;
    }
    if (at != size)
        return err_set(err, CVN_EFORMAT,
                       "'%s': the file has %" PRIu64 " bytes of data but its tensors use %" PRIu64,
                       file, size, at);
    return CVN_OK;
}

static int read_dtype(IoTensor *tensor, int *bits, const json_t *value, cvn_err *err)
{
    const char *text = json_string_value(value);
    for (size_t i = 0; text && i < N_ST_DTYPES; i++) {
        if (strcmp(text, st_dtypes[i].name) != 0)
            continue;
        tensor->type = st_dtypes[i].name;
        tensor->coding = st_dtypes[i].dtype < 0 ? IO_OPAQUE : IO_PLAIN;
        tensor->dtype = st_dtypes[i].dtype < 0 ? CVN_I8 : (cvn_dtype)st_dtypes[i].dtype;
        *bits = st_dtypes[i].bits;
        return CVN_OK;
    }
    return err_set(err, CVN_EFORMAT, "'%s': tensor '%s' has the unknown dtype '%.40s'",
                   tensor->file, tensor->name, text ? text : "(not a string)");
}

static int read_shape(IoTensor *tensor, const json_t *value, cvn_err *err)
{
    if (!json_is_array(value))
        return err_set(err, CVN_EFORMAT, "'%s': tensor '%s' has no \"shape\" list", tensor->file,
                       tensor->name);
    size_t rank = json_array_size(value);
    if (rank > IO_MAX_RANK)
        return err_set(err, CVN_EFORMAT, "'%s': tensor '%s' has %zu dimensions; the maximum is %d",
                       tensor->file, tensor->name, rank, IO_MAX_RANK);
    tensor->rank = (int)rank;
    for (size_t i = 0; i < rank; i++) {
        const json_t *dim = json_array_get(value, i);
        if (!json_is_integer(dim) || json_integer_value(dim) < 0)
            return err_set(err, CVN_EFORMAT,
                           "'%s': dimension %zu of tensor '%s' is not a non-negative integer",
                           tensor->file, i, tensor->name);
        tensor->dims[i] = json_integer_value(dim);
    }
    return CVN_OK;
}

static int read_offsets(const IoTensor *tensor, Span *span, const json_t *value, cvn_err *err)
{
    const json_t *begin = json_array_get(value, 0), *end = json_array_get(value, 1);
    if (json_array_size(value) != 2 || !json_is_integer(begin) || !json_is_integer(end) ||
        json_integer_value(begin) < 0 || json_integer_value(end) < json_integer_value(begin))
        return err_set(err, CVN_EFORMAT,
                       "'%s': \"data_offsets\" of tensor '%s' must be two increasing integers",
                       tensor->file, tensor->name);
    *span = (Span){.begin = (uint64_t)json_integer_value(begin),
                   .end = (uint64_t)json_integer_value(end),
                   .name = tensor->name};
    return CVN_OK;
}

static int read_tensor(IoTensor *tensor, Span *span, const json_t *entry, const uint8_t *buffer,
                       uint64_t size, cvn_err *err)
{
    int code, bits = 0;
    if (!json_is_object(entry) || json_object_size(entry) != 3)
        return err_set(err, CVN_EFORMAT,
                       "'%s': tensor '%s' must have exactly dtype, shape and data_offsets",
                       tensor->file, tensor->name);
    if ((code = read_dtype(tensor, &bits, json_object_get(entry, "dtype"), err)) != CVN_OK ||
        (code = read_shape(tensor, json_object_get(entry, "shape"), err)) != CVN_OK ||
        (code = read_offsets(tensor, span, json_object_get(entry, "data_offsets"), err)) != CVN_OK)
        return code;
    char shape[128];
    io_shape_text(tensor->dims, tensor->rank, shape, sizeof shape);
    if (!io_shape_size(tensor->dims, tensor->rank, bits, &tensor->n, &tensor->bytes))
        return err_set(err, CVN_EFORMAT, "'%s': tensor '%s' of shape %s has no valid size in bytes",
                       tensor->file, tensor->name, shape);
    if (span->end - span->begin != tensor->bytes)
        return err_set(err, CVN_EFORMAT,
                       "'%s': tensor '%s', %s of shape %s, needs %zu bytes but has %" PRIu64,
                       tensor->file, tensor->name, tensor->type, shape, tensor->bytes,
                       span->end - span->begin);
    if (span->end > size)
        return err_set(err, CVN_EFORMAT,
                       "'%s': tensor '%s' ends at byte %" PRIu64 " of the data, but the file has "
                       "only %" PRIu64
                       "; the file was cut short or its header is wrong; download it again",
                       tensor->file, tensor->name, span->end, size);
    tensor->data = buffer + span->begin;
    return CVN_OK;
}

static int read_metadata(const char *file, const json_t *entry, Map *metadata, cvn_err *err)
{
    const char *key;
    json_t *value;
    if (!json_is_object(entry))
        return err_set(err, CVN_EFORMAT, "'%s': \"__metadata__\" is not an object", file);
    json_object_foreach((json_t *)(uintptr_t)entry, key, value)
    {
        if (!json_is_string(value))
            return err_set(err, CVN_EFORMAT, "'%s': metadata '%.60s' is not a string", file, key);
        if (metadata)
            *map_put(metadata, key, strlen(key), NULL) =
                (uint64_t)(uintptr_t)arena_string(metadata->arena, json_string_value(value));
    }
    return CVN_OK;
}

/* Finds the header, or says why there is none. */
static int find_header(const char *file, const uint8_t *data, size_t size, size_t *header_size,
                       cvn_err *err)
{
    uint64_t n = 0;
    if (size < 8)
        return err_set(err, CVN_EFORMAT,
                       "'%s' has %zu bytes; a safetensors file starts with 8 bytes of header size; "
                       "download it again",
                       file, size);
    memcpy(&n, data, 8);
    if (n > ST_HEADER_MAX)
        return err_set(err, CVN_EFORMAT,
                       "'%s' declares a header of %" PRIu64
                       " bytes; at most %zu are allowed, so this is %s, not a safetensors file; "
                       "download it again",
                       file, n, ST_HEADER_MAX, data[0] == '<' ? "a web page" : "something else");
    if (n > size - 8)
        return err_set(
            err, CVN_EFORMAT,
            "'%s' declares a header of %" PRIu64
            " bytes but has only %zu after its size: it was cut short; download it again",
            file, n, size - 8);
    if (n == 0 || data[8] != '{')
        return err_set(err, CVN_EFORMAT, "'%s': the header does not begin with '{'", file);
    *header_size = (size_t)n;
    return CVN_OK;
}

int st_read(IoTensors *list, const char *file, const uint8_t *data, size_t size, Map *metadata,
            cvn_err *err)
{
    size_t header_size = 0;
    int code = find_header(file, data, size, &header_size, err);
    if (code != CVN_OK)
        return code;
    const uint8_t *buffer = data + 8 + header_size;
    uint64_t buffer_size = size - 8 - header_size;
    Cleanup cleanup[2];
    const char *path = arena_string(list->arena, file);
    json_t *header = json_object_parse(file, data + 8, header_size, err);
    if (!header)
        return CVN_EFORMAT;
    cleanup_push(&cleanup[0], json_release, header);
    size_t n = 0;
    Span *span = calloc(json_object_size(header) + 1, sizeof *span);
    if (!span) {
        code = err_set(err, CVN_EMEM, "no memory for the header of '%s'", file);
        goto free_header;
    }
    cleanup_push(&cleanup[1], free, span);
    const char *name;
    json_t *entry;
    json_object_foreach(header, name, entry)
    {
        if (strcmp(name, "__metadata__") == 0) {
            if ((code = read_metadata(file, entry, metadata, err)) != CVN_OK)
                goto free_span;
            continue;
        }
        IoTensor tensor = {.name = name, .file = path};
        if (!io_name_is_clean(name)) {
            code =
                err_set(err, CVN_EFORMAT,
                        "'%s': the name of tensor %zu is empty, too long or has control characters",
                        file, n);
            goto free_span;
        }
        if ((code = read_tensor(&tensor, &span[n++], entry, buffer, buffer_size, err)) != CVN_OK ||
            (code = io_tensors_add(list, &tensor, err)) != CVN_OK)
            goto free_span;
    }
    code = check_tiling(file, span, n, buffer_size, err);
free_span:
    cleanup_run(&cleanup[1]);
free_header:
    cleanup_run(&cleanup[0]);
    return code;
}
