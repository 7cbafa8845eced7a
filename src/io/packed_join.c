/*
 * Which format a folder's quantized matrices have, as config.json says, and the list of tensors in which each of them is one: pieces are
 * found by the ends of their names.
 */
#include "io/packed.h"
#include "io/packed_form.h"

#include "base/file.h"
#include "base/json_file.h"
#include "base/json_reader.h"

#include <inttypes.h>

/* One way to store matrices. */
typedef struct Reader {
    const char *method, *format; /* quant_method; "format" of compressed-tensors or NULL */
    const char *type;            /* what `inspect` says */
    const char *ending[ROLES];   /* of the tensors; CODES: those that end so are matrices */
    const char *scales_too;      /* another name of them, or NULL */
    int (*settings)(JsonReader *r, Settings *s);
    PackedLay *lay;
} Reader;

/* ---- what config.json says ---- */

static void refuse_setting(JsonReader *r, const char *key, const json_t *value)
{
    char text[80];
    if (r->code == CVN_OK)
        r->code = err_set(r->err, CVN_EUNSUPPORTED,
                          "'%s': %s = %s in quantization_config is not supported", r->file, key,
                          json_value_text(value, text, sizeof text));
}

/* Null, false, an empty list and an empty object switch nothing on. */
static void refuse_unless_off(JsonReader *r, const char *key)
{
    const json_t *value = json_get(r, key);
    bool off = !value || json_is_false(value) ||
               (json_is_object(value) && !json_object_size(value)) ||
               (json_is_array(value) && !json_array_size(value));
    if (!off)
        refuse_setting(r, key, value);
}

/* A string that must be one of two, or absent. */
static const char *one_of(JsonReader *r, const char *key, const char *a, const char *b)
{
    const char *text = json_get_string(r, key);
    if (!text || strcmp(text, a) == 0 || strcmp(text, b) == 0)
        return text;
    refuse_setting(r, key, json_get(r, key));
    return NULL;
}

static int check_bits(JsonReader *r, const Settings *s, bool eight)
{
    if (r->code == CVN_OK && s->bits != 4 && !(eight && s->bits == 8))
        r->code = err_set(r->err, CVN_EUNSUPPORTED,
                          "'%s': weights of %" PRId64 " bits are not supported; %s", r->file,
                          s->bits, eight ? "4 and 8 are" : "4 are");
    if (r->code == CVN_OK && s->group != -1 && s->group < 1)
        r->code = err_set(r->err, CVN_EFORMAT, "'%s': group_size is %" PRId64, r->file, s->group);
    return r->code;
}

static int read_gptq(JsonReader *r, Settings *s)
{
    json_get_int(r, "bits", &s->bits);
    json_get_int(r, "group_size", &s->group);
    const char *format = one_of(r, "checkpoint_format", "gptq", "gptq_v2");
    refuse_unless_off(r, "is_marlin_format");
    refuse_unless_off(r, "dynamic");
    s->zeros_less_one = !format || strcmp(format, "gptq") == 0;
    return check_bits(r, s, true);
}

static int read_awq(JsonReader *r, Settings *s)
{
    const json_t *zeros = json_get(r, "zero_point");
    json_get_int(r, "bits", &s->bits);
    json_get_int(r, "group_size", &s->group);
    one_of(r, "version", "gemm", "GEMM");
    if (zeros && !json_is_true(zeros))
        refuse_setting(r, "zero_point", zeros);
    return check_bits(r, s, false);
}

static int read_block(JsonReader *r, const char *key, Settings *s)
{
    const json_t *size = json_get(r, key);
    for (size_t i = 0; size && i < 2; i++) {
        const json_t *one = json_array_get(size, i);
        s->block[i] = json_integer_value(one);
        if (json_array_size(size) != 2 || s->block[i] < 1)
            json_wrong_type(r, key, size, "two sizes");
    }
    return r->code;
}

/* The weights of all groups of modules must be quantized alike. */
static int read_compressed(JsonReader *r, Settings *s)
{
    const json_t *groups = json_get(r, "config_groups");
    const json_t *weights = NULL;
    const char *key;
    json_t *group;
    refuse_unless_off(r, "transform_config");
    const json_t *sparsity = json_get(r, "sparsity_config");
    const char *sparse = json_string_value(json_object_get(sparsity, "format"));
    if (sparse && strcmp(sparse, "dense") != 0)
        refuse_setting(r, "sparsity_config", sparsity);
    json_object_foreach((json_t *)(uintptr_t)groups, key, group)
    {
        const json_t *of = json_object_get(group, "weights");
        if (weights && !json_equal(weights, of))
            refuse_setting(r, "config_groups", groups);
        weights = of;
    }
    if (!json_is_object(weights)) {
        json_wrong_type(r, "config_groups", groups, "groups with \"weights\"");
        return r->code;
    }
    JsonReader w = {r->file, weights, r->err, r->code};
    s->bits = 8;
    json_get_int(&w, "num_bits", &s->bits);
    json_get_int(&w, "group_size", &s->group);
    read_block(&w, "block_structure", s);
    return r->code = check_bits(&w, s, true);
}

static int read_fp8(JsonReader *r, Settings *s)
{
    const json_t *fmt = json_get(r, "fmt");
    const char *name = json_string_value(fmt);
    if (fmt && !(name && (strstr(name, "e4m3") || strstr(name, "e5m2"))))
        refuse_setting(r, "fmt", fmt); /* else each tensor says it */
    s->bits = 8;
    return read_block(r, "weight_block_size", s);
}

/* What is not in blocks is floats, whatever the file calls it. */
static int read_mxfp4(JsonReader *r, Settings *s)
{
    (void)r;
    s->bits = 4;
    return CVN_OK;
}

#define COMPRESSED(form, name)                                                                     \
    {                                                                                              \
        .method = "compressed-tensors", .format = form, .type = name,                              \
        .ending = {".weight", ".weight_scale", ".weight_zero_point", ".weight_g_idx"},             \
        .settings = read_compressed, .lay = packed_lay_bytes                                       \
    }

static const Reader readers[] = {
    {.method = "gptq",
     .type = "GPTQ",
     .ending = {".qweight", ".scales", ".qzeros", ".g_idx"},
     .settings = read_gptq,
     .lay = packed_lay_gptq},
    {.method = "awq",
     .type = "AWQ",
     .ending = {".qweight", ".scales", ".qzeros"},
     .settings = read_awq,
     .lay = packed_lay_awq},
    {.method = "compressed-tensors",
     .format = "pack-quantized",
     .type = "packed",
     .ending = {".weight_packed", ".weight_scale", ".weight_zero_point", ".weight_g_idx",
                ".weight_shape"},
     .settings = read_compressed,
     .lay = packed_lay_words},
    COMPRESSED("int-quantized", "I8 scaled"),
    COMPRESSED("float-quantized", "F8 scaled"),
    COMPRESSED("naive-quantized", "F8 scaled"),
    {.method = "fp8",
     .type = "F8 scaled",
     .ending = {".weight", ".weight_scale_inv"},
     .scales_too = ".weight_scale",
     .settings = read_fp8,
     .lay = packed_lay_bytes},
    {.method = "fbgemm_fp8",
     .type = "F8 scaled",
     .ending = {".weight", ".weight_scale"},
     .settings = read_fp8,
     .lay = packed_lay_bytes},
    {.method = "mxfp4",
     .type = "MXFP4",
     .ending = {"_blocks", "_scales"},
     .settings = read_mxfp4,
     .lay = packed_lay_mxfp4},
};

/* ---- joining ---- */

/* Numbers that belong to activations and caches, by the ends of their names. */
static const char *const beside[] = {
    ".input_scale", ".input_zero_point", ".output_scale", ".output_zero_point", ".input_scale_ub",
    ".k_scale",     ".v_scale",          ".weight_shape", ".activation_scale"};

/* The name without the ending; NULL when it ends otherwise. */
static const char *stem_of(const char *name, const char *ending, Arena *arena)
{
    if (!ending || !io_ends_with(name, ending))
        return NULL;
    return arena_stringn(arena, name, strlen(name) - strlen(ending));
}

static bool is_matrix(const Reader *reader, const IoTensor *t)
{
    bool bytes = strcmp(t->type, "F8_E4M3") == 0 || strcmp(t->type, "F8_E5M2") == 0 ||
                 strcmp(t->type, "I8") == 0;
    return io_ends_with(t->name, reader->ending[CODES]) &&
           (reader->lay != packed_lay_bytes || bytes);
}

static int join(IoTensors *list, const IoTensors *from, const Reader *reader, const Settings *s,
                const IoTensor *codes, cvn_err *err)
{
    Arena *arena = list->arena;
    PackedMatrix of = {.name = stem_of(codes->name, reader->ending[CODES], arena)};
    IoTensor joined = *codes;
    IoTensor *part = arena_array(arena, ROLES, sizeof *part);
    struct IoPacked *p = arena_alloc(arena, sizeof *p);
    joined.part = part;
    joined.bytes = 0;
    for (int role = 0; role < ROLES; role++) {
        if (!reader->ending[role])
            continue;
        of.piece[role] =
            io_tensors_find(from, arena_printf(arena, "%s%s", of.name, reader->ending[role]));
        if (role == SCALES && !of.piece[role] && reader->scales_too)
            of.piece[role] =
                io_tensors_find(from, arena_printf(arena, "%s%s", of.name, reader->scales_too));
        if (!of.piece[role])
            continue;
        part[joined.n_parts++] = *of.piece[role];
        joined.bytes += of.piece[role]->bytes;
    }
    if (!of.piece[SCALES])
        return err_set(err, CVN_EFORMAT, "'%s': '%s' has no tensor '%s%s'", codes->file,
                       codes->name, of.name, reader->ending[SCALES]);
    *p = (struct IoPacked){.rows = 1};
    TRY(reader->lay(p, joined.dims, &of, s, err));
    const bool experts = reader->lay == packed_lay_mxfp4; /* of all, by a whole name */
    joined.name = experts ? of.name : arena_printf(arena, "%s.weight", of.name);
    joined.type = reader->type;
    joined.data = NULL;
    joined.rank = experts ? 3 : 2;
    joined.n = joined.dims[0] * joined.dims[1]; /* of each there is a code in the file */
    joined.n *= experts ? joined.dims[2] : 1;
    joined.coding = IO_PACKED;
    joined.dtype = CVN_F32;
    joined.block = NULL;
    joined.packed = p;
    return io_tensors_add(list, &joined, err);
}

/* Whether a tensor is a piece of a matrix, or no weight at all. */
static bool is_piece(const IoTensors *from, const Reader *reader, const IoTensor *t, Arena *arena)
{
    const char *const ends[] = {reader->ending[SCALES], reader->ending[ZEROS],
                                reader->ending[ORDER], reader->scales_too};
    for (size_t i = 0; i < sizeof beside / sizeof *beside; i++)
        if (io_ends_with(t->name, beside[i]))
            return true;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        const char *stem = stem_of(t->name, ends[i], arena);
        if (stem && io_tensors_find(from, arena_printf(arena, "%s%s", stem, reader->ending[CODES])))
            return true;
    }
    return false;
}

/* GPTQ gives every matrix a bias, of zeros where the model has none. */
static bool is_empty_bias(const IoTensors *from, const Reader *reader, const IoTensor *t,
                          Arena *arena)
{
    const char *stem = reader->lay == packed_lay_gptq ? stem_of(t->name, ".bias", arena) : NULL;
    if (!stem || !io_tensors_find(from, arena_printf(arena, "%s%s", stem, reader->ending[CODES])))
        return false;
    for (size_t i = 0; i < t->bytes; i++)
        if (t->data[i])
            return false;
    return true;
}

static const Reader *find_reader(const char *file, const char *method, const char *format,
                                 cvn_err *err)
{
    for (size_t i = 0; i < sizeof readers / sizeof *readers; i++)
        if (strcmp(readers[i].method, method) == 0 &&
            (!readers[i].format || (format && strcmp(readers[i].format, format) == 0)))
            return &readers[i];
    err_set(err, CVN_EUNSUPPORTED,
            "'%s': weights quantized by '%.40s'%s%.40s are not supported; gptq, awq, fp8, "
            "fbgemm_fp8, mxfp4 and compressed-tensors (pack-, int-, float-quantized) are",
            file, method, format ? " as " : "", format ? format : "");
    return NULL;
}

/* The newer files of compressed-tensors say "mixed-precision" and give each group its own. */
static const char *format_of(const json_t *quantization)
{
    const char *format = json_string_value(json_object_get(quantization, "format"));
    json_t *groups = json_object_get(quantization, "config_groups"), *group;
    const char *key;
    json_object_foreach(groups, key, group)
    {
        const char *own = json_string_value(json_object_get(group, "format"));
        format = own ? own : format;
    }
    return format;
}

int packed_join_by(IoTensors *list, const char *file, const json_t *quantization, cvn_err *err)
{
    JsonReader r = {file, quantization, err, CVN_OK};
    const char *method = json_get_string(&r, "quant_method");
    if (!method || r.code)
        return r.code;
    const Reader *reader = find_reader(file, method, format_of(quantization), err);
    Settings settings = {.group = -1};
    if (!reader)
        return CVN_EUNSUPPORTED;
    TRY(reader->settings(&r, &settings));
    IoTensors from = *list;
    Arena *arena = list->arena;
    io_tensors_init(list, arena);
    for (size_t i = 0; i < from.n; i++) {
        const IoTensor *t = &from.tensor[i];
        if (is_matrix(reader, t))
            TRY(join(list, &from, reader, &settings, t, err));
        else if (!is_piece(&from, reader, t, arena) && !is_empty_bias(&from, reader, t, arena))
            TRY(io_tensors_add(list, t, err));
    }
    return CVN_OK;
}

int packed_join(IoTensors *list, const char *folder, cvn_err *err)
{
    const FilePath path = file_path(folder, "config.json");
    json_t *json = json_object_read(path.text, err);
    Cleanup cleanup;
    if (!json)
        return CVN_EFORMAT;
    cleanup_push(&cleanup, json_release, json);
    const json_t *quantization = json_object_get(json, "quantization_config");
    if (!quantization)
        quantization = json_object_get(json, "compression_config");
    const char *method = json_string_value(json_object_get(quantization, "quant_method"));
    int code = CVN_OK;
    if (json_is_object(quantization) && !(method && strcmp(method, "caravan") == 0))
        code = packed_join_by(list, path.text, quantization, err);
    cleanup_run(&cleanup);
    return code;
}
