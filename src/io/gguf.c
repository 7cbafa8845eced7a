#include "io/gguf.h"

#include "io/gguf_blocks.h"

#include <inttypes.h>
#include <string.h>

enum { MAX_DIMS = 4, MAX_KEY = 65535, MAX_NESTING = 4 };

/* The bytes that a value of each type takes; 0 for types of varying size. */
static const uint8_t value_bytes[GGUF_TYPE_COUNT] = {
    [GGUF_U8] = 1,  [GGUF_I8] = 1,  [GGUF_U16] = 2,  [GGUF_I16] = 2,    [GGUF_U32] = 4,
    [GGUF_I32] = 4, [GGUF_F32] = 4, [GGUF_BOOL] = 1, [GGUF_STRING] = 0, [GGUF_ARRAY] = 0,
    [GGUF_U64] = 8, [GGUF_I64] = 8, [GGUF_F64] = 8,
};

/* A position in the file that never passes its end. */
typedef struct Cursor {
    const uint8_t *data;
    size_t at, size;
    cvn_err *err;
} Cursor;

static int short_file(const Cursor *c)
{
    return err_set(c->err, CVN_EFORMAT,
                   "the header is cut short at byte %zu; download the file again", c->size);
}

/* The next n bytes, or NULL with an error. */
static const uint8_t *take(Cursor *c, uint64_t n)
{
    if (n > c->size - c->at) {
        short_file(c);
        return NULL;
    }
    c->at += (size_t)n;
    return c->data + c->at - n;
}

static int take_u32(Cursor *c, uint32_t *out)
{
    const uint8_t *p = take(c, 4);
    if (p)
        memcpy(out, p, 4);
    return p ? CVN_OK : CVN_EFORMAT;
}

static int take_u64(Cursor *c, uint64_t *out)
{
    const uint8_t *p = take(c, 8);
    if (p)
        memcpy(out, p, 8);
    return p ? CVN_OK : CVN_EFORMAT;
}

/* A name as a C string in the arena: at most `most` bytes, printable ASCII. NULL with an error. */
static const char *take_name(Cursor *c, size_t most, Arena *arena)
{
    uint64_t n = 0;
    if (take_u64(c, &n) != CVN_OK)
        return NULL;
    if (n == 0 || n > most) {
        err_set(c->err, CVN_EFORMAT, "there is a name of %" PRIu64 " bytes before byte %zu", n,
                c->at);
        return NULL;
    }
    const uint8_t *p = take(c, n);
    for (uint64_t i = 0; p && i < n; i++) {
        if (p[i] <= ' ' || p[i] >= 0x7f) {
            err_set(c->err, CVN_EFORMAT, "there is a name that is not printable before byte %zu",
                    c->at);
            return NULL;
        }
    }
    return p ? arena_stringn(arena, (const char *)p, (size_t)n) : NULL;
}

static int skip_elements(Cursor *c, GgufType type, uint64_t n, int depth);

/* Reads the head of an array and passes over its elements. */
static int take_array(Cursor *c, GgufValue *value, int depth)
{
    uint32_t element = 0;
    if (take_u32(c, &element) != CVN_OK || take_u64(c, &value->n) != CVN_OK)
        return CVN_EFORMAT;
    if (element >= GGUF_TYPE_COUNT || depth > MAX_NESTING)
        return err_set(c->err, CVN_EFORMAT, "there is an array of unknown type %u before byte %zu",
                       element, c->at);
    value->element = (GgufType)element;
    value->data = c->data + c->at;
    size_t start = c->at;
    int code = skip_elements(c, value->element, value->n, depth);
    value->bytes = c->at - start;
    return code;
}

static int skip_elements(Cursor *c, GgufType type, uint64_t n, int depth)
{
    if (value_bytes[type]) {
        if (n > (c->size - c->at) / value_bytes[type])
            return short_file(c);
        c->at += (size_t)n * value_bytes[type];
        return CVN_OK;
    }
    for (uint64_t i = 0; i < n; i++) { /* each takes at least 8 bytes, so this ends with the file */
        GgufValue inner = {0};
        uint64_t length = 0;
        if (type == GGUF_STRING ? take_u64(c, &length) != CVN_OK || !take(c, length)
                                : take_array(c, &inner, depth + 1) != CVN_OK)
            return CVN_EFORMAT;
    }
    return CVN_OK;
}

static int take_value(Cursor *c, const char *key, GgufValue *value)
{
    uint32_t type = 0;
    if (take_u32(c, &type) != CVN_OK)
        return CVN_EFORMAT;
    if (type >= GGUF_TYPE_COUNT)
        return err_set(c->err, CVN_EFORMAT, "key '%.100s' has the unknown type %u", key, type);
    *value = (GgufValue){.type = (GgufType)type, .element = (GgufType)type, .n = 1};
    if (type == GGUF_ARRAY)
        return take_array(c, value, 1);
    if (type == GGUF_STRING && take_u64(c, &value->n) != CVN_OK)
        return CVN_EFORMAT;
    uint64_t bytes = type == GGUF_STRING ? value->n : value_bytes[type];
    value->data = take(c, bytes);
    value->bytes = (size_t)bytes;
    if (value->data && type == GGUF_BOOL && *value->data > 1)
        return err_set(c->err, CVN_EFORMAT, "key '%.100s' is a bool of value %u", key,
                       *value->data);
    return value->data ? CVN_OK : CVN_EFORMAT;
}

static int read_values(Gguf *gguf, Cursor *c, uint64_t n, Arena *arena)
{
    if (n > (c->size - c->at) / 13) /* a key of one byte, a type, a value of one byte, less one */
        return err_set(c->err, CVN_EFORMAT,
                       "the header says %" PRIu64 " keys, more than the file can hold", n);
    gguf->value = arena_array(arena, (size_t)n + 1, sizeof *gguf->value);
    for (; gguf->n_values < n; gguf->n_values++) {
        bool added;
        const char *key = take_name(c, MAX_KEY, arena);
        if (!key || take_value(c, key, &gguf->value[gguf->n_values]) != CVN_OK)
            return CVN_EFORMAT;
        *map_put(&gguf->by_key, key, strlen(key), &added) = gguf->n_values;
        if (!added)
            return err_set(c->err, CVN_EFORMAT, "the key '%.100s' is there twice", key);
    }
    return CVN_OK;
}

/* One tensor's entry; its offset is returned and checked when the start of the data is known. */
static int read_tensor(Cursor *c, IoTensor *tensor, uint64_t *offset, Arena *arena)
{
    uint32_t rank = 0, type = 0;
    tensor->name = take_name(c, 256, arena);
    if (!tensor->name || take_u32(c, &rank) != CVN_OK)
        return CVN_EFORMAT;
    if (rank > MAX_DIMS)
        return err_set(c->err, CVN_EFORMAT, "tensor '%s' has %u dimensions; at most %d are allowed",
                       tensor->name, rank, MAX_DIMS);
    tensor->rank = (int)rank;
    for (uint32_t i = 0; i < rank; i++) {
        uint64_t dim = 0;
        if (take_u64(c, &dim) != CVN_OK)
            return CVN_EFORMAT;
        if (dim > INT64_MAX)
            return err_set(c->err, CVN_EFORMAT, "tensor '%s' has a negative dimension",
                           tensor->name);
        tensor->dims[rank - 1 - i] = (int64_t)dim;
    }
    if (take_u32(c, &type) != CVN_OK || take_u64(c, offset) != CVN_OK)
        return CVN_EFORMAT;
    const GgufElement *element = gguf_element(type);
    if (!element)
        return err_set(c->err, CVN_EFORMAT, "tensor '%s' has the unknown element type %u",
                       tensor->name, type);
    tensor->type = element->name;
    tensor->coding = element->coding;
    tensor->dtype = element->dtype;
    tensor->block = &element->block;
    int64_t each = element->block.elements, row = rank ? tensor->dims[rank - 1] : 1;
    if (row % each != 0)
        return err_set(c->err, CVN_EFORMAT,
                       "a row of tensor '%s' has %" PRId64
                       " elements and does not fit its type %s, whose blocks have %" PRId64,
                       tensor->name, row, tensor->type, each);
    size_t bytes = 0;
    if (!io_shape_size(tensor->dims, tensor->rank, 8, &tensor->n, &bytes) ||
        __builtin_mul_overflow((size_t)(tensor->n / each), (size_t)element->block.bytes,
                               &tensor->bytes))
        return err_set(c->err, CVN_EFORMAT, "the shape of tensor '%s' does not fit its type %s",
                       tensor->name, tensor->type);
    return CVN_OK;
}

/* The data begins after the header; each tensor at the next multiple of the alignment. */
static int place_tensors(Gguf *gguf, Cursor *c, const uint64_t *offset, uint64_t alignment)
{
    uint64_t padding = (alignment - c->at % alignment) % alignment, expected = 0;
    if (padding > c->size - c->at) {
        if (gguf->tensors.n == 0)
            return CVN_OK;
        return short_file(c);
    }
    const uint8_t *data = c->data + c->at + padding;
    uint64_t size = c->size - c->at - padding;
    for (size_t i = 0; i < gguf->tensors.n; i++) {
        IoTensor *tensor = &gguf->tensors.tensor[i];
        if (offset[i] != expected)
            return err_set(c->err, CVN_EFORMAT,
                           "tensor '%s' is at byte %" PRIu64 " of the data where the tensors "
                           "before it and the alignment of %" PRIu64 " put it at %" PRIu64,
                           tensor->name, offset[i], alignment, expected);
        if (expected > size || tensor->bytes > size - expected)
            return err_set(c->err, CVN_EFORMAT,
                           "tensor '%s' runs past the end of the file, which was cut short; "
                           "download it again",
                           tensor->name);
        tensor->data = data + expected;
        expected += tensor->bytes; /* both at most size */
        expected += (alignment - expected % alignment) % alignment;
    }
    return CVN_OK;
}

static int read_alignment(const Gguf *gguf, uint64_t *alignment, cvn_err *err)
{
    const GgufValue *value = gguf_find(gguf, "general.alignment");
    *alignment = 32;
    if (!value)
        return CVN_OK;
    uint32_t given = 0;
    if (value->type == GGUF_U32)
        memcpy(&given, value->data, 4);
    if (given < 8 || given > 1 << 20 || (given & (given - 1)) != 0)
        return err_set(err, CVN_EFORMAT,
                       "general.alignment is %u; a power of two from 8 to 2^20 is expected", given);
    *alignment = given;
    return CVN_OK;
}

static int read_header(Cursor *c, uint64_t *n_tensors, uint64_t *n_values)
{
    uint32_t version = 0;
    if (c->size < 4 || memcmp(c->data, "GGUF", 4) != 0)
        return err_set(c->err, CVN_EFORMAT, "the first four bytes are not \"GGUF\"");
    c->at = 4;
    if (take_u32(c, &version) != CVN_OK || take_u64(c, n_tensors) != CVN_OK ||
        take_u64(c, n_values) != CVN_OK)
        return CVN_EFORMAT;
    if (version != 2 && version != 3)
        return err_set(c->err, CVN_EUNSUPPORTED, "GGUF version %u%s; 2 and 3 are read", version,
                       (version & 0xffff) == 0 ? " (big endian?)" : "");
    return CVN_OK;
}

static int read_all(Gguf *gguf, const uint8_t *data, size_t size, Arena *arena, cvn_err *err)
{
    uint64_t n_tensors = 0, n_values = 0, alignment = 0;
    Cursor c = {.data = data, .size = size, .err = err};
    io_tensors_init(&gguf->tensors, arena);
    map_init(&gguf->by_key, arena);
    int code = read_header(&c, &n_tensors, &n_values);
    if (code != CVN_OK || (code = read_values(gguf, &c, n_values, arena)) != CVN_OK ||
        (code = read_alignment(gguf, &alignment, err)) != CVN_OK)
        return code;
    if (n_tensors > (size - c.at) / 25) /* a name of one byte and no dimensions */
        return err_set(err, CVN_EFORMAT,
                       "the header says %" PRIu64 " tensors, more than the file can hold",
                       n_tensors);
    uint64_t *offset = arena_array(arena, (size_t)n_tensors + 1, sizeof *offset);
    for (uint64_t i = 0; i < n_tensors; i++) {
        IoTensor tensor = {.file = gguf->file};
        if ((code = read_tensor(&c, &tensor, &offset[i], arena)) != CVN_OK)
            return code;
        if (io_tensors_find(&gguf->tensors, tensor.name))
            return err_set(err, CVN_EFORMAT, "the tensor '%s' is there twice", tensor.name);
        TRY(io_tensors_add(&gguf->tensors, &tensor, err));
    }
    return place_tensors(gguf, &c, offset, alignment);
}

int gguf_read(Gguf *gguf, const char *file, const uint8_t *data, size_t size, Arena *arena,
              cvn_err *err)
{
    *gguf = (Gguf){.file = file ? arena_string(arena, file) : NULL};
    int code = read_all(gguf, data, size, arena, err);
    if (code && file)
        err_prefix(err, "'%s'", file);
    return code;
}
