/* Files of torch.save and Meta folders: types, shards, and what must be refused. The small files are
 * made by tests/oracles/torch_files.py. */
#include "base/float16.h"
#include "io/meta.h"
#include "io/pickle.h"
#include "io/save.h"
#include "io/torch_file.h"
#include "io_support.h"
#include "model_make.h"
#include "whole_weights.h"

#include <math.h>

#define DATA CVN_TEST_DATA "/torch/"

typedef struct Read {
    Arena arena;
    IoTensors list;
    cvn_err err;
    int code;
} Read;

static Read read_image(const uint8_t *data, size_t n)
{
    Read read = {0};
    assert_int_equal(arena_init(&read.arena, NULL), CVN_OK);
    io_tensors_init(&read.list, &read.arena);
    read.code = torch_read(&read.list, "image", data, n, &read.err);
    assert_int_equal(read.code, read.err.code);
    if (read.code == CVN_OK)
        touch_tensors(&read.list);
    return read;
}

static Bytes must_load(const char *path)
{
    Bytes bytes = bytes_of_file(path);
    if (!bytes.data)
        fail_msg("%s is missing", path);
    return bytes;
}

static void every_element_type_and_slice_is_read(void **state)
{
    static const struct {
        const char *name, *type;
        size_t bytes;
        IoCoding coding;
    } want[] = {
        {"f32", "float32", 48, IO_PLAIN},   {"f16", "float16", 24, IO_PLAIN},
        {"bf16", "bfloat16", 24, IO_PLAIN}, {"f64", "float64", 96, IO_PLAIN},
        {"i64", "int64", 96, IO_OPAQUE},    {"i32", "int32", 48, IO_PLAIN},
        {"i16", "int16", 24, IO_OPAQUE},    {"i8", "int8", 12, IO_PLAIN},
        {"u8", "uint8", 12, IO_OPAQUE},     {"bool", "bool", 12, IO_PLAIN},
        {"scalar", "float32", 4, IO_PLAIN}, {"empty", "float32", 0, IO_PLAIN},
        {"slice", "float32", 16, IO_PLAIN}, {"parameter", "float32", 8, IO_PLAIN},
    };
    Bytes bytes = must_load(DATA "types.pth");
    Read read = read_image(bytes.data, bytes.n);
    assert_int_equal(read.code, CVN_OK);
    assert_int_equal(read.list.n, sizeof want / sizeof *want);
    for (size_t i = 0; i < read.list.n; i++) {
        const IoTensor *t = io_tensors_find(&read.list, want[i].name);
        assert_non_null(t);
        assert_string_equal(t->type, want[i].type);
        assert_int_equal(t->bytes, want[i].bytes);
        assert_int_equal(t->coding, want[i].coding);
    }
    float slice[4];
    memcpy(slice, io_tensors_find(&read.list, "slice")->data, 16);
    assert_memory_equal(slice, ((float[]){4, 5, 6, 7}), 16);
    assert_int_equal(io_tensors_find(&read.list, "scalar")->rank, 0);
    assert_int_equal(io_tensors_find(&read.list, "f32")->dims[1], 4);
    arena_free(&read.arena);
    free(bytes.data);
}

static void state_dicts_and_newer_pickles_are_read(void **state)
{
    Bytes bytes = must_load(DATA "state_dict.pth");
    Read read = read_image(bytes.data, bytes.n);
    assert_int_equal(read.code, CVN_OK);
    assert_int_equal(read.list.n, 2);
    assert_memory_equal(io_tensors_find(&read.list, "bias")->data, ((float[]){7, 8}), 8);
    arena_free(&read.arena);
    free(bytes.data);
    bytes = must_load(DATA "protocol4.pth");
    read = read_image(bytes.data, bytes.n);
    assert_int_equal(read.code, CVN_OK);
    assert_int_equal(io_tensors_find(&read.list, "a")->n, 12);
    arena_free(&read.arena);
    free(bytes.data);
}

static void what_is_no_dictionary_of_tensors_is_refused(void **state)
{
    static const struct {
        const char *file, *message;
    } cases[] = {
        {"bad_strides.pth", "'a' is not contiguous"},
        {"bad_nested.pth", "'a' is not a tensor"},
        {"bad_list.pth", "not contain a dictionary of tensors"},
        {"bad_module.pth", "calls 'torch.nn.modules.linear Linear'"},
        {"bad_legacy.pth", "is not a zip archive"},
        {"bad_evil.pth", "the pickle calls 'posix system'"},
        {"bad_compressed.pth", "is compressed"},
        {"bad_storage.pth", "missing or has the wrong size"},
        {"bad_byteorder.pth", "not written in little-endian"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char path[512];
        snprintf(path, sizeof path, "%s%s", DATA, cases[i].file);
        Bytes bytes = must_load(path);
        Read read = read_image(bytes.data, bytes.n);
        if (read.code == CVN_OK || !strstr(read.err.message, cases[i].message))
            fail_msg("%s: %s", cases[i].file, read.err.message);
        arena_free(&read.arena);
        free(bytes.data);
    }
}

static void a_cut_or_flipped_file_never_reads_outside(void **state)
{
    Bytes good = must_load(DATA "state_dict.pth");
    for (size_t n = 0; n < good.n; n++) {
        Bytes cut = bytes_copy(good.data, n);
        Read read = read_image(cut.data, cut.n);
        assert_true(read.code < 0);
        arena_free(&read.arena);
        free(cut.data);
    }
    size_t refused = 0;
    for (size_t bit = 0; bit < good.n * 8; bit++) {
        good.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
        Read read = read_image(good.data, good.n);
        refused += read.code != CVN_OK;
        arena_free(&read.arena);
        good.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    assert_true(refused > 1000);
    free(good.data);
}

/* Programs for the pickle machine, and part of the refusal. */
static void broken_pickles_are_refused(void **state)
{
    static const struct {
        const char *program;
        size_t n;
        const char *message;
    } cases[] = {
        {"", 0, "ends early"},
        {".", 1, "one value"},
        {"(.", 2, "one value"},
        {"NN.", 3, "one value"},
        {"t.", 2, "no mark"},
        {"u.", 2, "no mark"},
        {"\x85.", 2, "stack is empty"},
        {"(\x85.", 3, "a mark is in the way"},
        {"}(NNN(u.", 8, "takes none"},
        {"}(Nu.", 5, "takes none"},
        {"]NNs.", 5, "takes none"},
        {"Na.", 3, "stack is empty"},
        {"0.", 2, "stack is empty"},
        {"h\0.", 3, "empty memo slot"},
        {"Nr\xff\xff\xff\xff.", 7, "memo slot is out of range"},
        {"q\0.", 3, "memo slot is out of range"},
        {"X\xff\xff\xff\xff"
         "abc.",
         9, "ends early"},
        {"X\3\0\0\0a\0b.", 9, "contains a NUL"},
        {"\x8a\x09"
         "123456789.",
         12, "more than 64 bits"},
        {"cos\nsystem\n.", 12, "calls 'os system'"},
        {"cos\nsystem", 10, "is not terminated"},
        {"c\x1b[2J\nx\n.", 9, "calls '?[2J x'"},
        {"NN\x93.", 4, "not a string"},
        {"NNR.", 4, "not a name"},
        {"NNb.", 4, "attributes"},
        {"ccollections\nOrderedDict\nN\x85R.", 30, "from arguments"},
        {"i", 1, "opcode 0x69"},
        {"\x81", 1, "opcode 0x81"},
        {"\x82\x01.", 3, "opcode 0x82"},
        {"G\0\0\0", 4, "ends early"},
    };
    Arena arena;
    assert_int_equal(arena_init(&arena, NULL), CVN_OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Bytes bytes = bytes_copy(cases[i].program, cases[i].n);
        PickleValue value;
        cvn_err err = {0};
        int code = pickle_read(&value, "p", bytes.data, bytes.n, &arena, &err);
        if (code == CVN_OK || !strstr(err.message, cases[i].message))
            fail_msg("case %zu: %s", i, err.message);
        free(bytes.data);
    }
    PickleValue value;
    const char *good = "(K\7J\xff\xff\xff\xff\x8a\x02\0\x80G?\xf8\0\0\0\0\0\0\x88Nt.";
    assert_int_equal(pickle_read(&value, "p", (const uint8_t *)good, 26, &arena, NULL), CVN_OK);
    assert_int_equal(value.type, PICKLE_TUPLE);
    assert_int_equal(value.as.items->n, 6);
    assert_int_equal(value.as.items->value[1].as.integer, -1);
    assert_int_equal(value.as.items->value[2].as.integer, -32768);
    assert_true(value.as.items->value[3].as.real == 1.5);
    arena_free(&arena);
}

static void load(IoModel *model, WholeWeights *weights, const char *path, cvn_dtype dtype)
{
    cvn_err err = {0};
    must(io_open_model(model, path, &err), &err);
    whole_load(weights, model, dtype);
}

static void a_model_in_shards_is_the_model_in_one(void **state)
{
    IoModel whole, shards;
    WholeWeights a, b;
    load(&whole, &a, DATA "whole", CVN_BF16);
    assert_int_equal(whole.kind, IO_KIND_META);
    assert_int_equal(model_shape(whole.desc).ffn, 44);
    assert_int_equal(model_vocab(whole.desc), 24);
    assert_int_equal(model_dtype(whole.desc), CVN_BF16);
    assert_true(model_is_interleaved(whole.desc) && !model_shape(whole.desc).tied);
    const char *folders[] = {DATA "parts2", DATA "parts3"};
    for (int f = 0; f < 2; f++) {
        load(&shards, &b, folders[f], CVN_BF16);
        assert_int_equal(shards.n_maps, 2);
        assert_int_equal(a.n, b.n);
        for (int i = 0; i < a.n; i++)
            assert_memory_equal(a.data[i], b.data[i], a.bytes[i]);
        whole_free(&b);
        io_close_model(&shards);
    }
    whole_free(&a);
    io_close_model(&whole);
}

/* Any form saved as a Hugging Face folder: rotary pairs in the other order, all else equal. */
static void a_meta_model_is_saved_in_hugging_face_order(void **state)
{
    IoModel meta, hf;
    WholeWeights a, b;
    cvn_err err = {0};
    load(&meta, &a, DATA "parts2", CVN_F32);
    must(save_model(in_scratch("hf"), &meta, &(SaveOptions){.dtype = CVN_F32}, &err), &err);
    load(&hf, &b, in_scratch("hf"), CVN_F32);
    assert_false(model_is_interleaved(hf.desc));
    for (int i = 0; i < b.n; i++) {
        const Param *p = &hf.params.param[i];
        const float *x = b.data[i];
        const float *y = a.data[params_find(&meta.params, p->kind, p->layer) - meta.params.param];
        if (p->kind != PARAM_Q && p->kind != PARAM_K) {
            assert_memory_equal(x, y, b.bytes[i]);
            continue;
        }
        static const int row_of[4] = {0, 2, 1, 3}; /* head dimension 4 */
        for (int64_t row = 0; row < p->dims[0] * 4; row++)
            assert_memory_equal(x + row * 16, y + (row / 4 * 4 + row_of[row % 4]) * 16, 64);
    }
    whole_free(&a);
    whole_free(&b);
    io_close_model(&meta);
    io_close_model(&hf);
}

static void a_missing_or_foreign_shard_is_refused(void **state)
{
    IoModel model;
    cvn_err err = {0};
    Bytes params = must_load(DATA "parts2/params.json");
    Bytes shard0 = must_load(DATA "parts2/consolidated.00.pth");
    Bytes whole = must_load(DATA "whole/consolidated.00.pth");
    assert_int_equal(file_write(in_scratch("params.json"), params.data, params.n, NULL), CVN_OK);
    assert_true(io_open_model(&model, scratch, &err) < 0);
    assert_non_null(strstr(err.message, "consolidated.00.pth"));
    err = (cvn_err){0};
    assert_int_equal(file_write(in_scratch("consolidated.00.pth"), shard0.data, shard0.n, NULL),
                     CVN_OK);
    assert_int_equal(io_open_model(&model, scratch, &err), CVN_ESHAPE);
    err = (cvn_err){0};
    assert_int_equal(file_write(in_scratch("consolidated.01.pth"), whole.data, whole.n, NULL),
                     CVN_OK);
    assert_int_equal(io_open_model(&model, scratch, &err), CVN_ESHAPE);
    assert_non_null(strstr(err.message, "differs in shape"));
    Bytes columns = must_load(DATA "bad_columns.pth"); /* 2^62 columns in each shard */
    static const char *const shards[] = {"consolidated.00.pth", "consolidated.01.pth"};
    for (int i = 0; i < 2; i++)
        assert_int_equal(file_write(in_scratch(shards[i]), columns.data, columns.n, NULL), CVN_OK);
    assert_true(io_open_model(&model, scratch, NULL) < 0);
    free(columns.data);
    free(params.data);
    free(shard0.data);
    free(whole.data);
}

static void params_json_is_read_strictly(void **state)
{
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"{\"dim\":4096,\"multiple_of\":256,\"n_heads\":32,\"n_layers\":32,\"norm_eps\":1e-06,"
         "\"vocab_size\":-1}",
         "vocab"}, /* no embedding to take it from */
        {"{\"dim\":\"x\"}", "dim is \"x\", expected an integer"},
        {"{\"dim\":0}", "out of range"},
        {"{\"dim\":9223372036854775807}", "out of range"},
        {"{\"n_heads\":0}", "out of range"},
        {"{\"multiple_of\":0}", "out of range"},
        {"{\"ffn_dim_multiplier\":1e300}", "out of range"},
        {"{\"norm_eps\":true}", "norm_eps is true, expected a number"},
        {"{\"moe\":{\"num_experts\":8}}", "unknown setting 'moe'"},
        {"{\"quantization_args\":{}}", "unknown setting 'quantization_args'"},
        {"{\"lora_args\":null,\"vocab_size\":32000}", NULL},
    };
    Arena arena;
    IoTensors none;
    assert_int_equal(arena_init(&arena, NULL), CVN_OK);
    io_tensors_init(&none, &arena);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Model *m;
        cvn_err err = {0};
        json_t *json = json_loads(cases[i].text, 0, NULL);
        int code = meta_model(&m, "params.json", json, &none, &arena, &err);
        json_decref(json);
        if (cases[i].message ? code == CVN_OK || !strstr(err.message, cases[i].message)
                             : code != CVN_OK)
            fail_msg("%s: %s", cases[i].text, err.message);
    }
    arena_free(&arena);
}

/* params.json of published models, and what they must come to. */
static void published_models_are_inferred(void **state)
{
    static const struct {
        const char *text;
        int64_t ffn;
        double factor; /* of llama3 rope scaling, 0 where plain */
    } cases[] = {
        {"{\"dim\":4096,\"multiple_of\":256,\"n_heads\":32,\"n_layers\":32,\"norm_eps\":1e-06,"
         "\"vocab_size\":32000}",
         11008, 0},
        {"{\"dim\":8192,\"multiple_of\":4096,\"ffn_dim_multiplier\":1.3,\"n_heads\":64,"
         "\"n_kv_heads\":8,\"n_layers\":80,\"norm_eps\":1e-05,\"vocab_size\":32000}",
         28672, 0},
        {"{\"dim\":4096,\"n_layers\":32,\"n_heads\":32,\"n_kv_heads\":8,\"vocab_size\":128256,"
         "\"multiple_of\":1024,\"ffn_dim_multiplier\":1.3,\"norm_eps\":1e-05,"
         "\"rope_theta\":500000.0,\"use_scaled_rope\":true}",
         14336, 8},
        {"{\"dim\":2048,\"ffn_dim_multiplier\":1.5,\"multiple_of\":256,\"n_heads\":32,"
         "\"n_kv_heads\":8,\"n_layers\":16,\"norm_eps\":1e-05,\"rope_theta\":500000.0,"
         "\"use_scaled_rope\":true,\"vocab_size\":128256}",
         8192, 32},
    };
    Arena arena;
    IoTensors none;
    assert_int_equal(arena_init(&arena, NULL), CVN_OK);
    io_tensors_init(&none, &arena);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Model *c;
        cvn_err err = {0};
        json_t *json = json_loads(cases[i].text, 0, NULL);
        must(meta_model(&c, "params.json", json, &none, &arena, &err), &err);
        json_decref(json);
        assert_int_equal(model_shape(c).ffn, cases[i].ffn);
        assert_string_equal(model_rope_type(c), cases[i].factor > 0 ? "llama3" : "");
        if (cases[i].factor > 0)
            assert_true(model_says(c, "rope_scaling.factor") == cases[i].factor);
        assert_true(model_is_interleaved(c));
    }
    arena_free(&arena);
}

static void shared_samples_are_judged_rightly(void **state)
{
    need_shared_data();
    static const struct {
        const char *file;
        bool good;
    } cases[] = {{"test.pt", true}, {"test_with_key.pt", false}, {"fortran_tensor_3d.pth", false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char path[512];
        snprintf(path, sizeof path, "%s/formats/torch/%s", CVN_SHARED_DATA, cases[i].file);
        Bytes bytes = must_load(path);
        Read read = read_image(bytes.data, bytes.n);
        if ((read.code == CVN_OK) != cases[i].good)
            fail_msg("%s: %s", cases[i].file, read.err.message);
        arena_free(&read.arena);
        free(bytes.data);
    }
}

/* The trained checkpoint in all forms: the same numbers, up to the order of rotary pairs. */
static void every_format_holds_the_same_model(void **state)
{
    need_shared_data();
    IoModel hf, other;
    WholeWeights a, b;
    const char *paths[] = {CVN_SHARED_DATA "/checkpoints/stories260K-meta",
                           CVN_SHARED_DATA "/checkpoints/stories260K/stories260K.gguf",
                           CVN_SHARED_DATA "/checkpoints/stories260K/stories260K.bin",
                           CVN_SHARED_DATA "/checkpoints/stories260K/stories260K.v1.bin"};
    load(&hf, &a, CVN_SHARED_DATA "/checkpoints/stories260K-hf", CVN_F32);
    for (int p = 0; p < 4; p++) {
        load(&other, &b, paths[p], CVN_F32);
        assert_true(model_is_interleaved(other.desc) && model_shape(other.desc).tied == (p >= 2));
        assert_true(fabs(model_says(other.desc, "rms_norm_eps") - 1e-5) < 1e-10);
        for (int i = 0; i < hf.params.n; i++) {
            const Param *param = &hf.params.param[i];
            const Param *same = params_find(&other.params, param->kind, param->layer);
            const float *x = a.data[i], *y = b.data[same - other.params.param];
            assert_int_equal(param->n, same->n);
            if (param->kind != PARAM_Q && param->kind != PARAM_K) {
                assert_memory_equal(x, y, a.bytes[i]);
                continue;
            }
            int64_t half = param->dims[1] / 2, width = param->dims[2];
            for (int64_t h = 0; h < param->dims[0]; h++)
                for (int64_t d = 0; d < param->dims[1]; d++) {
                    int64_t pair = d % half * 2 + d / half; /* row d of half-split */
                    assert_memory_equal(x + (h * 2 * half + d) * width,
                                        y + (h * 2 * half + pair) * width, (size_t)width * 4);
                }
        }
        whole_free(&b);
        io_close_model(&other);
    }
    whole_free(&a);
    io_close_model(&hf);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_element_type_and_slice_is_read),
        cmocka_unit_test(state_dicts_and_newer_pickles_are_read),
        cmocka_unit_test(what_is_no_dictionary_of_tensors_is_refused),
        cmocka_unit_test(a_cut_or_flipped_file_never_reads_outside),
        cmocka_unit_test(broken_pickles_are_refused),
        cmocka_unit_test(a_model_in_shards_is_the_model_in_one),
        cmocka_unit_test(a_meta_model_is_saved_in_hugging_face_order),
        cmocka_unit_test(a_missing_or_foreign_shard_is_refused),
        cmocka_unit_test(params_json_is_read_strictly),
        cmocka_unit_test(published_models_are_inferred),
        cmocka_unit_test(shared_samples_are_judged_rightly),
        cmocka_unit_test(every_format_holds_the_same_model),
    };
    return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
