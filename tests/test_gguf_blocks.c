/* Blocks of GGUF files are widened to the numbers that ggml-org's own code gives (tests/oracles/gguf_blocks.py; the
 * shared data), bit for bit, in any range; what cannot be read is refused with advice. */
#include "io/convert.h"
#include "io/gguf_blocks.h"
#include "io/model.h"
#include "io_support.h"

#include <ctype.h>

enum { NUMBERS = 64 }; /* of types; the table ends before */

static IoTensor tensor_of(const GgufElement *element, const Bytes *coded, size_t n)
{
    return (IoTensor){.name = "x",
                      .type = element->name,
                      .data = coded->data,
                      .bytes = coded->n,
                      .dims = {(int64_t)n},
                      .n = (int64_t)n,
                      .rank = 1,
                      .coding = element->coding,
                      .dtype = element->dtype,
                      .block = &element->block};
}

static void the_table_says_the_same_of_a_type_in_every_column(void **state)
{
    int n_blocks = 0;
    for (uint32_t i = 0; i < NUMBERS; i++) {
        const GgufElement *e = gguf_element(i);
        if (!e)
            continue;
        assert_in_range(e->block.elements, 1, IO_MAX_BLOCK);
        assert_true(e->block.bytes > 0);
        assert_int_equal(e->coding == IO_BLOCKS, (e->block.kind != BLOCK_NONE) + !!e->block.widen);
        if (e->coding == IO_PLAIN)
            assert_int_equal(cvn_dtype_bytes(e->dtype, 1), e->block.bytes);
        if (e->coding != IO_OPAQUE)
            assert_true(e->coding == IO_PLAIN || e->dtype == CVN_F32);
        if (e->block.elements == 1)
            assert_true(e->coding != IO_BLOCKS);
        n_blocks += e->coding == IO_BLOCKS;
        for (uint32_t j = 0; j < i; j++)
            assert_true(!gguf_element(j) || strcmp(gguf_element(j)->name, e->name) != 0);
    }
    assert_null(gguf_element(NUMBERS));
    assert_null(gguf_element(UINT32_MAX));
    /* Each type has two files, and the model has two. */
    assert_int_equal(count_entries(CVN_TEST_DATA "/gguf"), 2 * n_blocks + 2);
}

/* Every type in a folder's files, whole, by the element, and in ranges that begin and end anywhere. */
static void check_numbers(const GgufElement *element, const char *blocks, const char *numbers)
{
    Bytes coded = bytes_of_file(blocks), want = bytes_of_file(numbers);
    size_t n = want.n / sizeof(float);
    if (!coded.data || n == 0 ||
        coded.n != n / (size_t)element->block.elements * (size_t)element->block.bytes)
        fail_msg("%s and %s do not belong together", blocks, numbers);
    IoTensor tensor = tensor_of(element, &coded, n);
    float *got = malloc(want.n);
    assert_true(got && io_is_numeric(&tensor));
    io_decode(&tensor, 0, tensor.n, got);
    for (size_t i = 0; i < n; i++)
        if (memcmp(got + i, want.data + 4 * i, 4) != 0)
            fail_msg("%s: element %zu is %a", blocks, i, (double)got[i]);
    for (int64_t i = 0; i < tensor.n; i++)
        io_decode(&tensor, i, 1, got + i);
    assert_memory_equal(got, want.data, want.n);
    for (int64_t first = 1; first < tensor.n; first += 23) {
        int64_t piece = (tensor.n - first) * (first % 7 + 1) / 8;
        memset(got, 0x55, want.n);
        io_decode(&tensor, first, piece, got);
        assert_memory_equal(got, want.data + 4 * first, (size_t)piece * 4);
        if (piece < tensor.n) /* nothing is written past the range */
            assert_true(((uint8_t *)got)[4 * piece] == 0x55);
    }
    free(got);
    free(coded.data);
    free(want.data);
}

static void blocks_have_the_numbers_of_the_gguf_package(void **state)
{
    char blocks[512], numbers[512];
    for (uint32_t i = 0; i < NUMBERS; i++) {
        const GgufElement *e = gguf_element(i);
        if (!e || e->coding != IO_BLOCKS)
            continue;
        snprintf(blocks, sizeof blocks, "%s/gguf/%s.blocks", CVN_TEST_DATA, e->name);
        snprintf(numbers, sizeof numbers, "%s/gguf/%s.f32", CVN_TEST_DATA, e->name);
        check_numbers(e, blocks, numbers);
    }
}

static void blocks_that_ggml_made_have_its_numbers(void **state)
{
    need_shared_data();
    char blocks[512], numbers[512];
    int checked = 0;
    for (uint32_t i = 0; i < NUMBERS; i++) {
        const GgufElement *e = gguf_element(i);
        char name[16] = "";
        if (!e || e->coding != IO_BLOCKS)
            continue;
        for (size_t k = 0; e->name[k]; k++)
            name[k] = (char)(e->name[k] == 'K' ? 'K' : tolower((unsigned char)e->name[k]));
        snprintf(blocks, sizeof blocks, "%s/formats/ggml-quants/%s.q.bin", CVN_SHARED_DATA, name);
        snprintf(numbers, sizeof numbers, "%s/formats/ggml-quants/%s.deq.f32", CVN_SHARED_DATA,
                 name);
        if (!file_exists(blocks))
            continue;
        check_numbers(e, blocks, numbers);
        checked++;
    }
    assert_int_equal(checked, 11);
}

/* IQ3_S has blocks of the size of Q3_K's, and NVFP4 of Q4_K's: a file of the one becomes a file of the other by its number. */
static const char *file_of_another_type(const char *name, int was, int is)
{
    Bytes file = bytes_of_file(CVN_TEST_DATA "/gguf/mixed.gguf");
    assert_true(file.n > 0);
    uint8_t *at = memmem(file.data, file.n, name, strlen(name));
    assert_non_null(at);
    at += strlen(name) + 4 + 2 * 8; /* after the name: a rank, two dimensions */
    assert_int_equal(*at, was);
    *at = (uint8_t)is;
    const char *path = in_scratch("other.gguf");
    FILE *out = fopen(path, "wb");
    assert_true(out && fwrite(file.data, 1, file.n, out) == file.n && fclose(out) == 0);
    free(file.data);
    return path;
}

static void a_type_that_is_not_read_is_refused_by_name_with_what_to_do(void **state)
{
    (void)state;
    IoModel model;
    cvn_err err = {0};
    const char *path = file_of_another_type("blk.0.attn_q.weight", 12, 40);
    assert_int_equal(io_open_model(&model, path, &err), CVN_EUNSUPPORTED);
    if (!strstr(err.message,
                "tensor 'blk.0.attn_q.weight' is of type NVFP4, which is not supported; get the "
                "model in another quantization, such as Q4_K_M or Q6_K"))
        fail_msg("%s", err.message);
}

static void a_lattice_is_widened_and_said_to_be(void **state)
{
    (void)state;
    IoModel model;
    const char *path = file_of_another_type("blk.1.ffn_gate.weight", 11, 21);
    assert_int_equal(io_open_model(&model, path, NULL), CVN_OK);
    assert_non_null(
        strstr(model_warnings(model.desc), "has weights in IQ3_S, which no product reads"));
    io_keep_blocks(&model);
    const Param *gate = params_find(&model.params, PARAM_GATE, 1);
    assert_int_equal(gate->form, PARAM_PLAIN);
    assert_int_equal(params_find(&model.params, PARAM_GATE, 0)->form, PARAM_BLOCKS);
    io_close_model(&model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_table_says_the_same_of_a_type_in_every_column),
        cmocka_unit_test(blocks_have_the_numbers_of_the_gguf_package),
        cmocka_unit_test(blocks_that_ggml_made_have_its_numbers),
        cmocka_unit_test(a_type_that_is_not_read_is_refused_by_name_with_what_to_do),
        cmocka_unit_test(a_lattice_is_widened_and_said_to_be),
    };
    return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
