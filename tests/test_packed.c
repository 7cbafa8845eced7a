/* Checkpoints that other programs have quantized (tests/oracles/quantized.py): read to the bit, run, refused by name. */
#include "io/packed.h"

#include "base/json_file.h"
#include "caravan/engine.h"
#include "io/convert.h"
#include "io/model.h"
#include "io/safetensors.h"
#include "io_support.h"

#include <math.h>

static const char *const cases[] = {"gptq4-act",       "gptq8",   "awq",  "w4a16",
                                    "w4a16-zeros-act", "w8a16",   "int8", "fp8-tensor",
                                    "fp8-block",       "fp8-rows"};
enum { CASES = sizeof cases / sizeof *cases, MATRICES = 7 };

static const char *case_path(const char *name, const char *file)
{
    static char path[2][512];
    static int next;
    next = !next;
    snprintf(path[next], sizeof path[next], "%s/quantized/%s%s%s", CVN_TEST_DATA, name,
             file ? "/" : "", file ? file : "");
    return path[next];
}

static void matrices_are_the_numbers_that_they_stand_for(void **state)
{
    for (int c = 0; c < CASES; c++) {
        IoModel model;
        IoTensors meant;
        FileMap map;
        cvn_err err = {0};
        if (io_open_model(&model, case_path(cases[c], NULL), &err))
            fail_msg("%s: %s", cases[c], err.message);
        assert_int_equal(file_map(&map, case_path(cases[c], "numbers.safetensors"), NULL), CVN_OK);
        io_tensors_init(&meant, &model.arena);
        assert_int_equal(st_read(&meant, "numbers", map.data, map.size, NULL, NULL), CVN_OK);
        assert_int_equal(meant.n, MATRICES);
        for (size_t i = 0; i < meant.n; i++) {
            const IoTensor *want = &meant.tensor[i];
            const IoTensor *got = io_tensors_find(&model.tensors, want->name);
            assert_true(got && got->coding == IO_PACKED && got->n == want->n);
            float a[512], b[512];
            io_decode(want, 0, want->n, a);
            for (int64_t first = 0, n = 1; first < want->n; first += n, n = n % 37 + 5) {
                n = first + n > want->n ? want->n - first : n;
                io_decode(got, first, n, b + first);
            }
            if (memcmp(a, b, (size_t)want->n * sizeof *a) != 0)
                fail_msg("%s: %s", cases[c], want->name);
        }
        file_unmap(&map);
        io_close_model(&model);
    }
}

/* Log-probabilities of some tokens. */
static void score(const char *name, const char *quantize, const char *mesh, float logprob[4])
{
    cvn_model *model = NULL;
    cvn_engine *engine = NULL;
    cvn_err err = {0};
    cvn_model_options open = {.dtype = CVN_F32, .quantize = quantize, .no_tokenizer = true};
    cvn_engine_options options = {
        .threads = 1, .slots = 1, .scoring = true, .mesh = mesh, .layout = mesh ? "tp" : NULL};
    const int32_t token[4] = {1, 5, 9, 3};
    int32_t argmax[4];
    if (cvn_model_open(case_path(name, NULL), &open, &model, &err) ||
        cvn_engine_new(model, &options, &engine, &err) ||
        cvn_engine_score(engine, token, 4, logprob, argmax, &err))
        fail_msg("%s: %s", name, err.message);
    assert_string_equal(cvn_engine_warnings(engine), "");
    cvn_engine_free(engine, NULL);
    cvn_model_free(model);
}

static void they_run_and_can_be_quantized(void **state)
{
    for (int c = 0; c < CASES; c++) {
        float whole[4], rounded[4];
        score(cases[c], NULL, NULL, whole);
        score(cases[c], "int8", NULL, rounded);
        assert_true(isfinite(whole[3]) && whole[3] < 0 && isfinite(rounded[3]));
    }
}

/* Where blocks have room for the same numbers, products read these. */
static void what_fits_into_blocks_runs_in_blocks(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        BlockKind kind;
    } wide[] = {{"wide-gptq4", BLOCK_Q4_0},       {"wide-w4a16", BLOCK_Q4_0},
                {"wide-int8", BLOCK_Q8_0},        {"wide-awq", BLOCK_Q5_0},
                {"wide-gptq4-zeros", BLOCK_Q5_0}, {"wide-w4a16-zeros", BLOCK_Q5_0}};
    for (size_t w = 0; w < sizeof wide / sizeof *wide; w++) {
        IoModel model;
        assert_int_equal(io_open_model(&model, case_path(wide[w].name, NULL), NULL), CVN_OK);
        for (size_t i = 0; i < model.tensors.n; i++) {
            const IoTensor *t = &model.tensors.tensor[i];
            float a[2048], b[2048];
            uint8_t blocks[4096];
            if (t->coding != IO_PACKED)
                continue;
            BlockKind kind = packed_kind(t);
            assert_int_equal(kind, wide[w].kind);
            io_decode(t, 0, t->n, a);
            packed_blocks(t, kind, 0, t->n / 32, blocks);
            for (int64_t k = 0; k < t->n / 32; k++)
                block_info[kind].widen(blocks + k * block_info[kind].bytes, b + 32 * k);
            assert_memory_equal(a, b, (size_t)t->n * sizeof *a);
        }
        io_keep_blocks(&model);
        assert_true(model_in_blocks(model.desc));
        io_close_model(&model);
        float want[4], got[4], split[4];
        score(wide[w].name, "none", NULL, want);
        score(wide[w].name, NULL, NULL, got);
        score(wide[w].name, NULL, "model=2", split);
        for (int i = 1; i < 4; i++)
            assert_true(fabsf(got[i] - want[i]) < 2e-5f && fabsf(split[i] - want[i]) < 2e-5f);
    }
    /* Others are widened: act-order. */
    IoModel model;
    assert_int_equal(io_open_model(&model, case_path("gptq4-act", NULL), NULL), CVN_OK);
    io_keep_blocks(&model);
    assert_false(model_in_blocks(model.desc));
    io_close_model(&model);
}

/* What is said of a case's tensors with other settings. */
static void expect_refusal(const char *name, const char *settings, const char *message)
{
    Arena arena;
    IoTensors list;
    FileMap map;
    cvn_err err = {0};
    assert_int_equal(arena_init(&arena, NULL), CVN_OK);
    assert_int_equal(file_map(&map, case_path(name, "model.safetensors"), NULL), CVN_OK);
    io_tensors_init(&list, &arena);
    assert_int_equal(st_read(&list, "model", map.data, map.size, NULL, NULL), CVN_OK);
    json_t *json = json_object_parse("settings", settings, strlen(settings), NULL);
    assert_non_null(json);
    int code = packed_join_by(&list, "config.json", json, &err);
    if (code == CVN_OK || !strstr(err.message, message))
        fail_msg("%s: %s", settings, err.message);
    json_decref(json);
    file_unmap(&map);
    arena_free(&arena);
}

static void what_does_not_fit_is_refused_by_name(void **state)
{
#define GPTQ "{\"quant_method\": \"gptq\", "
    static const struct {
        const char *name, *settings, *message;
    } refused[] = {
        {"gptq4-act", "{\"quant_method\": \"hqq\"}", "quantized by 'hqq' are not supported"},
        {"w4a16", "{\"quant_method\": \"compressed-tensors\", \"format\": \"marlin-24\"}",
         "'compressed-tensors' as marlin-24"},
        {"gptq4-act", GPTQ "\"bits\": 3, \"group_size\": 8}",
         "weights of 3 bits are not supported"},
        {"gptq4-act", GPTQ "\"bits\": 4, \"group_size\": 0}", "group_size is 0"},
        {"gptq4-act", GPTQ "\"bits\": 8, \"group_size\": 8}", "where F16, BF16 or F32 [1, 16]"},
        {"gptq4-act", GPTQ "\"bits\": 4, \"group_size\": 4}", "where F16, BF16 or F32 [4, 16]"},
        {"gptq4-act", GPTQ "\"bits\": 4, \"checkpoint_format\": \"marlin\"}", "checkpoint_format"},
        {"gptq4-act", GPTQ "\"bits\": 4, \"dynamic\": {\"-:.*\": {}}}", "dynamic"},
        {"awq", "{\"quant_method\": \"awq\", \"bits\": 4, \"version\": \"gemv\"}", "version"},
        {"awq", GPTQ "\"bits\": 4, \"group_size\": 8}", "scales"},
        {"fp8-block", "{\"quant_method\": \"fp8\", \"weight_block_size\": [16]}", "two sizes"},
        {"fp8-block", "{\"quant_method\": \"fp8\", \"weight_block_size\": [8, 8]}", "F32 [2, 2]"},
        {"fp8-block", "{\"quant_method\": \"fp8\"}", "F32 [16, 1]"},
        {"w4a16", "{\"quant_method\": \"compressed-tensors\", \"format\": \"pack-quantized\"}",
         "config_groups"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        expect_refusal(refused[i].name, refused[i].settings, refused[i].message);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matrices_are_the_numbers_that_they_stand_for),
        cmocka_unit_test(they_run_and_can_be_quantized),
        cmocka_unit_test(what_fits_into_blocks_runs_in_blocks),
        cmocka_unit_test(what_does_not_fit_is_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
