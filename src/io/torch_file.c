#include "io/torch_file.h"

#include "io/pickle.h"
#include "io/zip.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *global; /* as the pickle names the storage's type */
    const char *name;   /* for people */
    int bits;
    int dtype; /* cvn_dtype, or -1 */
} storages[] = {
    {"torch FloatStorage", "float32", 32, CVN_F32},
    {"torch HalfStorage", "float16", 16, CVN_F16},
    {"torch BFloat16Storage", "bfloat16", 16, CVN_BF16},
    {"torch DoubleStorage", "float64", 64, CVN_F64},
    {"torch IntStorage", "int32", 32, CVN_I32},
    {"torch CharStorage", "int8", 8, CVN_I8},
    {"torch BoolStorage", "bool", 8, CVN_BOOL},
    {"torch LongStorage", "int64", 64, -1},
    {"torch ShortStorage", "int16", 16, -1},
    {"torch ByteStorage", "uint8", 8, -1},
};

/* The file being read. */
typedef struct TorchFile {
    const char *file; /* in the list's arena */
    Zip zip;
    const char *prefix; /* "NAME/" */
    IoTensors *list;
    cvn_err *err;
} TorchFile;

static int bad(const TorchFile *f, const char *name, const char *what)
{
    return err_set(f->err, CVN_EFORMAT, "'%s': entry '%s' %s", f->file, name, what);
}

/* The n-th item of a container of the given type, if it is of the given type itself; else NULL. */
static const PickleValue *item(const PickleValue *container, PickleType type, size_t n,
                               PickleType item_type)
{
    if (!container || container->type != type || n >= container->as.items->n ||
        container->as.items->value[n].type != item_type)
        return NULL;
    return &container->as.items->value[n];
}

/* A tuple of non-negative integers into out; their number, or -1. */
static int read_dims(const PickleValue *tuple, int64_t *out)
{
    if (!tuple || tuple->as.items->n > IO_MAX_RANK)
        return -1;
    int rank = (int)tuple->as.items->n;
    for (int i = 0; i < rank; i++) {
        const PickleValue *dim = item(tuple, PICKLE_TUPLE, (size_t)i, PICKLE_INT);
        if (!dim || dim->as.integer < 0)
            return -1;
        out[i] = dim->as.integer;
    }
    return rank;
}

static bool is_row_major(const int64_t *dims, const int64_t *strides, int rank)
{
    int64_t expected = 1;
    for (int i = rank - 1; i >= 0; i--) {
        if (dims[i] != 1 && strides[i] != expected)
            return false;
        expected *= dims[i]; /* the product was checked */
    }
    return true;
}

/* Finds the storage's bytes and type: ("storage", type, key, device, elements). */
static int read_storage(TorchFile *f, const char *name, const PickleValue *id, IoTensor *tensor,
                        int *bits, int64_t *elements)
{
    const PickleValue *tuple = item(id, PICKLE_PERSISTENT, 0, PICKLE_TUPLE);
    const PickleValue *kind = item(tuple, PICKLE_TUPLE, 0, PICKLE_STRING);
    const PickleValue *type = item(tuple, PICKLE_TUPLE, 1, PICKLE_GLOBAL);
    const PickleValue *key = item(tuple, PICKLE_TUPLE, 2, PICKLE_STRING);
    const PickleValue *count = item(tuple, PICKLE_TUPLE, 4, PICKLE_INT);
    if (!kind || strcmp(kind->as.text, "storage") != 0 || !type || !key || !count)
        return bad(f, name, "has no valid storage");
    size_t i = 0, n = sizeof storages / sizeof *storages;
    while (i < n && strcmp(storages[i].global, type->as.text) != 0)
        i++;
    if (i == n)
        return bad(f, name, "has a storage of unknown type");
    tensor->type = storages[i].name;
    tensor->coding = storages[i].dtype < 0 ? IO_OPAQUE : IO_PLAIN;
    tensor->dtype = storages[i].dtype < 0 ? CVN_I8 : (cvn_dtype)storages[i].dtype;
    *bits = storages[i].bits;
    *elements = count->as.integer;
    const ZipEntry *entry =
        zip_find(&f->zip, arena_printf(f->list->arena, "%sdata/%.80s", f->prefix, key->as.text));
    int64_t checked;
    size_t bytes;
    if (!entry || !io_shape_size(elements, 1, *bits, &checked, &bytes) || bytes != entry->size)
        return bad(f, name, "has a storage that is missing or has the wrong size");
    tensor->data = entry->data;
    return CVN_OK;
}

static int read_tensor(TorchFile *f, const char *name, const PickleValue *value)
{
    const PickleValue *global = item(value, PICKLE_CALL, 0, PICKLE_GLOBAL);
    if (global && strcmp(global->as.text, "torch._utils _rebuild_parameter") == 0) {
        value = item(item(value, PICKLE_CALL, 1, PICKLE_TUPLE), PICKLE_TUPLE, 0, PICKLE_CALL);
        global = item(value, PICKLE_CALL, 0, PICKLE_GLOBAL);
    }
    if (!global || strcmp(global->as.text, "torch._utils _rebuild_tensor_v2") != 0)
        return bad(f, name, "is not a tensor; a plain dictionary of tensors is expected");
    const PickleValue *arguments = item(value, PICKLE_CALL, 1, PICKLE_TUPLE);
    const PickleValue *offset = item(arguments, PICKLE_TUPLE, 1, PICKLE_INT);
    IoTensor tensor = {.name = name, .file = f->file};
    int64_t strides[IO_MAX_RANK], elements = 0;
    int bits = 0;
    TRY(read_storage(f, name, item(arguments, PICKLE_TUPLE, 0, PICKLE_PERSISTENT), &tensor, &bits,
                     &elements));
    tensor.rank = read_dims(item(arguments, PICKLE_TUPLE, 2, PICKLE_TUPLE), tensor.dims);
    int n_strides = read_dims(item(arguments, PICKLE_TUPLE, 3, PICKLE_TUPLE), strides);
    if (!offset || offset->as.integer < 0 || tensor.rank < 0 || n_strides != tensor.rank ||
        !io_shape_size(tensor.dims, tensor.rank, bits, &tensor.n, &tensor.bytes))
        return bad(f, name, "has no valid shape");
    if (offset->as.integer > elements || tensor.n > elements - offset->as.integer)
        return bad(f, name, "is larger than its storage");
    if (tensor.n > 0 && !is_row_major(tensor.dims, strides, tensor.rank))
        return bad(f, name, "is not contiguous; save a contiguous() copy of it");
    tensor.data += (size_t)offset->as.integer * (size_t)bits / 8;
    return io_tensors_add(f->list, &tensor, f->err);
}

/* Finds NAME/data.pkl, and so the prefix. */
static const ZipEntry *find_pickle(TorchFile *f)
{
    for (size_t i = 0; i < f->zip.n; i++) {
        const char *name = f->zip.entry[i].name, *slash = strchr(name, '/');
        if (slash && strcmp(slash, "/data.pkl") == 0) {
            f->prefix = arena_stringn(f->list->arena, name, (size_t)(slash - name) + 1);
            return &f->zip.entry[i];
        }
    }
    err_set(f->err, CVN_EFORMAT, "'%s' has no data.pkl, so it was not written by torch.save",
            f->file);
    return NULL;
}

static int check_byte_order(const TorchFile *f)
{
    const ZipEntry *order =
        zip_find(&f->zip, arena_printf(f->list->arena, "%sbyteorder", f->prefix));
    if (order && (order->size != 6 || memcmp(order->data, "little", 6) != 0))
        return err_set(f->err, CVN_EUNSUPPORTED, "'%s' was not written in little-endian byte order",
                       f->file);
    return CVN_OK;
}

int torch_read(IoTensors *list, const char *file, const uint8_t *data, size_t size, cvn_err *err)
{
    TorchFile f = {.file = arena_string(list->arena, file), .list = list, .err = err};
    PickleValue root = {0};
    int code = zip_read(&f.zip, f.file, data, size, list->arena, err);
    if (code != CVN_OK)
        return code;
    const ZipEntry *pickle = find_pickle(&f);
    if (!pickle)
        return CVN_EFORMAT;
    if ((code = check_byte_order(&f)) != CVN_OK ||
        (code = pickle_read(&root, f.file, pickle->data, pickle->size, list->arena, err)) != CVN_OK)
        return code;
    if (root.type != PICKLE_DICT)
        return err_set(err, CVN_EFORMAT, "'%s' does not contain a dictionary of tensors", f.file);
    for (size_t i = 0; i < root.as.items->n; i += 2) {
        const PickleValue *pair = &root.as.items->value[i];
        if (pair[0].type != PICKLE_STRING || !io_name_is_clean(pair[0].as.text))
            return err_set(err, CVN_EFORMAT, "'%s': entry %zu has no printable name", f.file,
                           i / 2);
        if ((code = read_tensor(&f, pair[0].as.text, &pair[1])) != CVN_OK)
            return code;
    }
    return CVN_OK;
}
