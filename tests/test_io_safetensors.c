/* safetensors: what is written reads back; what breaks a rule is refused by name, in memory and
 * from files; nothing outside of the file is ever read. */
#include "io/safetensors.h"
#include "io_support.h"

#include <signal.h>
#include <sys/resource.h>

typedef struct Read {
    Arena arena;
    IoTensors list;
    Map metadata;
    cvn_err err;
    int code;
} Read;

/* Reads an image and touches every byte of what was accepted. */
static Read read_image(const uint8_t *data, size_t n)
{
    Read read = {0};
    assert_int_equal(arena_init(&read.arena, NULL), CVN_OK);
    io_tensors_init(&read.list, &read.arena);
    map_init(&read.metadata, &read.arena);
    read.code = st_read(&read.list, "image", data, n, &read.metadata, &read.err);
    assert_int_equal(read.code, read.err.code);
    if (read.code == CVN_OK)
        touch_tensors(&read.list);
    return read;
}

static int code_of_image(const uint8_t *data, size_t n)
{
    Read read = read_image(data, n);
    arena_free(&read.arena);
    return read.code;
}

static void the_shared_samples_are_judged_as_expected(void **state)
{
    need_shared_data();
    judge_samples("malformed-safetensors", "safetensors", code_of_image);
}

static void a_trained_checkpoint_is_read(void **state)
{
    need_shared_data();
    Bytes bytes = bytes_of_file(CVN_SHARED_DATA "/checkpoints/stories260K-hf/model.safetensors");
    Read read = read_image(bytes.data, bytes.n);
    assert_int_equal(read.code, CVN_OK);
    const IoTensor *down = io_tensors_find(&read.list, "model.layers.0.mlp.down_proj.weight");
    assert_non_null(down);
    assert_int_equal(down->rank, 2);
    assert_int_equal(down->dims[0], 64);
    assert_int_equal(down->dims[1], 172);
    assert_int_equal(down->n, 64 * 172);
    assert_int_equal(down->dtype, CVN_F32);
    assert_int_equal(down->coding, IO_PLAIN);
    uint64_t *format = map_get(&read.metadata, "format", 6);
    assert_non_null(format);
    assert_string_equal((const char *)(uintptr_t)*format, "pt");
    assert_null(io_tensors_find(&read.list, "__metadata__"));
    arena_free(&read.arena);
    free(bytes.data);
}

/* What the header says, how many data bytes follow, and what the refusal must speak of. */
static const struct {
    const char *header;
    size_t n;
    const char *message; /* part of it, or NULL when the file is good */
} headers[] = {
    {"{}", 0, NULL},
    {"{}   ", 0, NULL},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}", 4, NULL},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[0,7],\"data_offsets\":[0,0]}}", 0, NULL},
    {"{\"a\":{\"dtype\":\"F4\",\"shape\":[6],\"data_offsets\":[0,3]}}", 3, NULL},
    {"{\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[3,5]},"
     "\"z\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[3,3]},"
     "\"a\":{\"dtype\":\"I8\",\"shape\":[3],\"data_offsets\":[0,3]}}",
     5, NULL},
    {"{}", 1, "has 1 bytes of data but its tensors use 0"},
    {"[]", 0, "begin with '{'"},
    {" {}", 0, "begin with '{'"},
    {"{} x", 0, "not valid JSON"},
    {"{\"a\":1}", 0, "exactly dtype, shape and data_offsets"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"x\":1}}", 4, "exactly"},
    {"{\"a\":{\"dtype\":\"f32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "unknown dtype 'f32'"},
    {"{\"a\":{\"dtype\":7,\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "(not a string)"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":1,\"data_offsets\":[0,4]}}", 4, "no \"shape\" list"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}", 4, "dimension 0"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1.0],\"data_offsets\":[0,4]}}", 4, "dimension 0"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[true],\"data_offsets\":[0,4]}}", 4, "dimension 0"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[18446744073709551617],\"data_offsets\":[0,4]}}", 4,
     "too big"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]}}", 0,
     "no valid size"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296,0],\"data_offsets\":[0,0]}}", 0,
     "no valid size"},
    {"{\"a\":{\"dtype\":\"F64\",\"shape\":[1152921504606846976],\"data_offsets\":[0,0]}}", 0,
     "no valid size"},
    {"{\"a\":{\"dtype\":\"F4\",\"shape\":[5],\"data_offsets\":[0,3]}}", 3, "no valid size"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,1]}}", 1,
     "9 dimensions"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]}}", 4, "two increasing"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[-4,0]}}", 4, "two increasing"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,8]}}", 4, "two increasing"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":{}}}", 4, "two increasing"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,5]}}", 5, "needs 4 bytes"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 7, "cut short"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],"
     "\"data_offsets\":[9223372036854775803,9223372036854775807]}}",
     4, "cut short"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
     "\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[1,3]}}",
     3, "'a' and 'b' overlap"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
     "\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[3,5]}}",
     5, "before tensor 'b', do not belong to a tensor"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
     "\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}",
     2, "duplicate"},
    {"{\"__metadata__\":{\"a\":1}}", 0, "metadata 'a' is not a string"},
    {"{\"__metadata__\":[]}", 0, "not an object"},
    {"{\"a\\u0000b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1,
     "not valid JSON"},
    {"{\"\\u001b[2J\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "control"},
    {"{\"\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "is empty, too long"},
    {"{\"a\xff\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "not valid JSON"},
};

static void every_broken_rule_is_refused_by_name(void **state)
{
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++) {
        Bytes bytes = safetensors_of(headers[i].header, headers[i].n);
        Read read = read_image(bytes.data, bytes.n);
        bool good = headers[i].message ? read.code == CVN_EFORMAT &&
                                             strstr(read.err.message, headers[i].message) &&
                                             strstr(read.err.message, "'image'")
                                       : read.code == CVN_OK;
        if (!good)
            fail_msg("%s: %s", headers[i].header, read.err.message);
        arena_free(&read.arena);
        free(bytes.data);
    }
}

static void header_sizes_that_lie_are_refused(void **state)
{
    const uint64_t sizes[] = {0,         1, 3, 9, 99999999, 100000000, 100000001, UINT64_MAX - 7,
                              UINT64_MAX};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        Bytes bytes = safetensors_of("{}", 0);
        memcpy(bytes.data, &sizes[i], 8);
        assert_int_equal(code_of_image(bytes.data, bytes.n), CVN_EFORMAT);
        free(bytes.data);
    }
}

static void deep_nesting_is_refused_without_deep_recursion(void **state)
{
    size_t n = 2000000;
    char *header = malloc(n + 1);
    memset(header, '[', n);
    memcpy(header, "{\"a\":", 5);
    header[n] = '\0';
    Bytes bytes = safetensors_of(header, 0);
    assert_int_equal(code_of_image(bytes.data, bytes.n), CVN_EFORMAT);
    free(bytes.data);
    free(header);
}

/* A good file of several types, as the writer makes it. */
static Bytes good_image(void)
{
    cvn_err err = {0};
    const char *path = in_scratch("good.safetensors");
    StWriter writer;
    float f[6] = {0, 1, 2, 3, 4, 5};
    assert_int_equal(st_writer_open(&writer, path, &err), CVN_OK);
    assert_int_equal(st_writer_metadata(&writer, "format", "pt", &err), CVN_OK);
    assert_int_equal(st_writer_declare(&writer, "a.f", CVN_F32, 2, (int64_t[]){2, 3}, &err),
                     CVN_OK);
    assert_int_equal(st_writer_declare(&writer, "empty", CVN_F16, 1, (int64_t[]){0}, &err), CVN_OK);
    assert_int_equal(st_writer_declare(&writer, "s", CVN_BF16, 0, NULL, &err), CVN_OK);
    assert_int_equal(st_writer_declare(&writer, "i", CVN_I8, 1, (int64_t[]){3}, &err), CVN_OK);
    assert_int_equal(st_writer_begin(&writer, &err), CVN_OK);
    assert_int_equal(st_writer_data(&writer, 0, f, 10, &err), CVN_OK);
    assert_int_equal(st_writer_data(&writer, 0, (char *)f + 10, 14, &err), CVN_OK);
    assert_int_equal(st_writer_data(&writer, 2, "\x80\x3f", 2, &err), CVN_OK);
    assert_int_equal(st_writer_data(&writer, 3, "xyz", 3, &err), CVN_OK);
    assert_int_equal(st_writer_commit(&writer, &err), CVN_OK);
    st_writer_free(&writer);
    Bytes bytes = bytes_of_file(path);
    unlink(path);
    return bytes;
}

static void what_is_written_reads_back(void **state)
{
    Bytes bytes = good_image();
    Read read = read_image(bytes.data, bytes.n);
    assert_int_equal(read.code, CVN_OK);
    assert_int_equal(read.list.n, 4);
    const IoTensor *f = io_tensors_find(&read.list, "a.f");
    assert_memory_equal(f->data, ((float[]){0, 1, 2, 3, 4, 5}), 24);
    assert_int_equal((f->data - bytes.data) % 64, 0);
    assert_int_equal(io_tensors_find(&read.list, "empty")->n, 0);
    assert_int_equal(io_tensors_find(&read.list, "s")->rank, 0);
    assert_int_equal(io_tensors_find(&read.list, "s")->dtype, CVN_BF16);
    assert_memory_equal(io_tensors_find(&read.list, "i")->data, "xyz", 3);
    arena_free(&read.arena);
    free(bytes.data);
}

static void a_file_cut_short_anywhere_is_refused(void **state)
{
    Bytes good = good_image();
    for (size_t n = 0; n < good.n; n++) {
        Bytes cut = bytes_copy(good.data, n);
        assert_int_equal(code_of_image(cut.data, cut.n), CVN_EFORMAT);
        free(cut.data);
    }
    free(good.data);
}

static void a_flipped_bit_never_reads_outside(void **state)
{
    Bytes good = good_image();
    size_t refused = 0;
    for (size_t bit = 0; bit < good.n * 8; bit++) {
        good.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
        refused += code_of_image(good.data, good.n) != CVN_OK;
        good.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    assert_true(refused > 500);
    free(good.data);
}

static void the_writer_holds_the_stream_to_the_header(void **state)
{
    cvn_err err = {0};
    StWriter w;
    const char *path = in_scratch("w.safetensors");
    assert_int_equal(st_writer_open(&w, path, NULL), CVN_OK);
    assert_int_equal(st_writer_declare(&w, "a", CVN_F32, 1, (int64_t[]){2}, NULL), CVN_OK);
    assert_int_equal(st_writer_declare(&w, "b", CVN_F32, 1, (int64_t[]){1}, NULL), CVN_OK);
    assert_int_equal(st_writer_declare(&w, "a", CVN_F32, 1, (int64_t[]){1}, NULL), CVN_EINVAL);
    assert_int_equal(st_writer_declare(&w, "c", CVN_I4, 1, (int64_t[]){2}, NULL), CVN_EINVAL);
    assert_int_equal(st_writer_declare(&w, "c", CVN_F32, 1, (int64_t[]){-2}, NULL), CVN_EINVAL);
    assert_int_equal(st_writer_declare(&w, "c\xff", CVN_F32, 1, (int64_t[]){2}, NULL), CVN_EINVAL);
    assert_int_equal(st_writer_data(&w, 0, "12345678", 8, NULL), CVN_EINVAL);
    assert_int_equal(st_writer_begin(&w, NULL), CVN_OK);
    assert_int_equal(st_writer_data(&w, 1, "1234", 4, NULL), CVN_EINVAL);
    assert_int_equal(st_writer_data(&w, 0, "123456789", 9, NULL), CVN_EINVAL);
    assert_int_equal(st_writer_data(&w, 0, "12345678", 8, NULL), CVN_OK);
    assert_int_equal(st_writer_data(&w, 0, "1", 1, NULL), CVN_EINVAL);
    assert_int_equal(st_writer_data(&w, 2, "1", 1, NULL), CVN_EINVAL);
    assert_int_equal(st_writer_commit(&w, &err), CVN_EINVAL);
    assert_non_null(strstr(err.message, "8 of 12 bytes"));
    st_writer_free(&w);
    assert_int_equal(count_entries(scratch), 0);
}

static void a_full_disk_ends_the_writer_and_leaves_nothing(void **state)
{
    cvn_err err = {0};
    StWriter w;
    struct rlimit old, tiny;
    getrlimit(RLIMIT_FSIZE, &old);
    tiny = old;
    tiny.rlim_cur = 500000;
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &tiny);
    static const uint8_t piece[100000];
    assert_int_equal(st_writer_open(&w, in_scratch("full.safetensors"), &err), CVN_OK);
    assert_int_equal(st_writer_declare(&w, "a", CVN_I8, 1, (int64_t[]){1000000}, &err), CVN_OK);
    assert_int_equal(st_writer_begin(&w, &err), CVN_OK);
    int code = CVN_OK;
    for (int i = 0; i < 10 && code == CVN_OK; i++)
        code = st_writer_data(&w, 0, piece, sizeof piece, &err);
    if (code == CVN_OK)
        code = st_writer_commit(&w, &err);
    st_writer_free(&w);
    setrlimit(RLIMIT_FSIZE, &old);
    assert_int_equal(code, CVN_EIO);
    assert_non_null(strstr(err.message, "full.safetensors"));
    assert_int_equal(count_entries(scratch), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_shared_samples_are_judged_as_expected),
        cmocka_unit_test(a_trained_checkpoint_is_read),
        cmocka_unit_test(every_broken_rule_is_refused_by_name),
        cmocka_unit_test(header_sizes_that_lie_are_refused),
        cmocka_unit_test(deep_nesting_is_refused_without_deep_recursion),
        cmocka_unit_test(what_is_written_reads_back),
        cmocka_unit_test(a_file_cut_short_anywhere_is_refused),
        cmocka_unit_test(a_flipped_bit_never_reads_outside),
        cmocka_unit_test(the_writer_holds_the_stream_to_the_header),
        cmocka_unit_test(a_full_disk_ends_the_writer_and_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
