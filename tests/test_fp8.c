/* Checkpoints in FP8 (tests/oracles/float8.py): they stay as they lie, say what transformers says of their numbers, come back from
   files as the same bytes, and are refused by name where they are broken. test_blocks holds the products to the interpreter. */
#include "base/float8.h"
#include "caravan/engine.h"
#include "io/convert.h"
#include "io/model.h"
#include "io/packed.h"
#include "io/safetensors.h"
#include "io_support.h"
#include "shell.h"

#include <math.h>

#define FP8 CVN_TEST_DATA "/fp8"

static const char *const cases[] = {"block", "tensor", "channel", "e5m2"};
enum { CASES = sizeof cases / sizeof *cases, MATRICES = 7, MOST = 16 };

static const char *case_path(const char *name)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/%s", FP8, name);
    return path;
}

/* ---- the formats ---- */

static void numbers_and_codes_are_each_other(void **state)
{
    (void)state;
    const int fractions[] = {F8_E4M3, F8_E5M2};
    for (int f = 0; f < 2; f++) {
        const int fraction = fractions[f];
        for (int code = 0; code < 256; code++)
            if (f8_is_finite(fraction, (uint8_t)code))
                assert_int_equal(f8_from_f32(fraction, f8_to_f32(fraction, (uint8_t)code)), code);
        /* Between neighbours the nearer one, half way the even one. */
        for (int code = 0; code < f8_largest(fraction); code++) {
            const float a = f8_to_f32(fraction, (uint8_t)code);
            const float b = f8_to_f32(fraction, (uint8_t)(code + 1)), middle = (a + b) / 2;
            assert_int_equal(f8_from_f32(fraction, middle), code + code % 2);
            assert_int_equal(f8_from_f32(fraction, nextafterf(middle, 0)), code);
            assert_int_equal(f8_from_f32(fraction, -nextafterf(middle, 1e9f)), 0x80 | (code + 1));
        }
        assert_int_equal(f8_from_f32(fraction, 1e9f), f8_largest(fraction));
        assert_false(f8_is_finite(fraction, f8_from_f32(fraction, NAN)));
    }
    assert_true(f8_to_f32(F8_E4M3, 0x7e) == 448 && f8_to_f32(F8_E5M2, 0x7b) == 57344);
    assert_true(f8_to_f32(F8_E4M3, 0x3e) == 1.75f && f8_to_f32(F8_E5M2, 0x01) == 0x1p-16f);
    assert_true(isinf(f8_to_f32(F8_E5M2, 0xfc)) && isnan(f8_to_f32(F8_E4M3, 0xff)));
}

/* ---- models ---- */

/* Tokens and the log-probability of each, by logits that are in a file. */
static int reference(const char *name, int32_t token[MOST], float logprob[MOST])
{
    char path[512];
    Arena arena;
    IoTensors list;
    FileMap map;
    snprintf(path, sizeof path, "%s/%s/logits.safetensors", FP8, name);
    assert_int_equal(arena_init(&arena, NULL), CVN_OK);
    assert_int_equal(file_map(&map, path, NULL), CVN_OK);
    io_tensors_init(&list, &arena);
    assert_int_equal(st_read(&list, path, map.data, map.size, NULL, NULL), CVN_OK);
    const IoTensor *tokens = io_tensors_find(&list, "tokens");
    const IoTensor *logits = io_tensors_find(&list, "logits");
    const int n = (int)tokens->n;
    const int64_t vocab = logits->dims[1];
    memcpy(token, tokens->data, (size_t)n * sizeof *token);
    for (int i = 1; i < n; i++) {
        float row[64];
        memcpy(row, logits->data + (size_t)(i - 1) * (size_t)vocab * sizeof *row,
               (size_t)vocab * sizeof *row);
        assert_int_equal(cvn_logprobs(row, vocab, token[i], &logprob[i], NULL, NULL, 0), 0);
    }
    file_unmap(&map);
    arena_free(&arena);
    return n;
}

static cvn_engine_stats score(const char *path, const char *quantize, const char *mesh,
                              cvn_dtype dtype, int n, const int32_t *token, float *logprob)
{
    cvn_model *model = NULL;
    cvn_engine *engine = NULL;
    cvn_err err = {0};
    int32_t argmax[MOST];
    cvn_model_options open = {.dtype = dtype, .quantize = quantize, .no_tokenizer = true};
    cvn_engine_options options = {
        .threads = 1, .slots = 1, .scoring = true, .mesh = mesh, .layout = mesh ? "tp" : NULL};
    if (cvn_model_open(path, &open, &model, &err) ||
        cvn_engine_new(model, &options, &engine, &err) ||
        cvn_engine_score(engine, token, n, logprob, argmax, &err))
        fail_msg("%s: %s", path, err.message);
    assert_string_equal(cvn_engine_warnings(engine), "");
    const cvn_engine_stats stats = cvn_engine_get_stats(engine);
    cvn_engine_free(engine, NULL);
    cvn_model_free(model);
    return stats;
}

static void expect_near(const char *what, int n, const float *got, const float *want, double most)
{
    for (int i = 1; i < n; i++)
        if (!(fabsf(got[i] - want[i]) <= most))
            fail_msg("%s: token %d has %g where %g is expected", what, i, (double)got[i],
                     (double)want[i]);
}

static void checkpoints_say_what_transformers_says(void **state)
{
    (void)state;
    for (int c = 0; c < CASES; c++) {
        int32_t token[MOST];
        float want[MOST], got[MOST];
        const int n = reference(cases[c], token, want);
        const char *path = case_path(cases[c]);
        const uint64_t kept = score(path, NULL, NULL, CVN_F32, n, token, got).weight_bytes;
        expect_near(cases[c], n, got, want, 2e-5);
        score(path, NULL, "model=2", CVN_F32, n, token, got);
        expect_near("on a mesh", n, got, want, 2e-5);
        score(path, NULL, NULL, CVN_BF16, n, token, got);
        expect_near("in bf16", n, got, want, 0.1);
        /* Widened it says the same, in nearly four times the bytes. */
        const uint64_t widened = score(path, "none", NULL, CVN_F32, n, token, got).weight_bytes;
        expect_near("widened", n, got, want, 2e-5);
        assert_true(kept * 3 < widened);
    }
}

static void what_lies_in_fp8_stays_so(void **state)
{
    (void)state;
    for (int c = 0; c < CASES; c++) {
        const BlockKind kind = c == 3 ? BLOCK_F8_E5M2 : BLOCK_F8_E4M3;
        const BlockInfo *info = &block_info[kind];
        IoModel model;
        int n = 0;
        assert_int_equal(io_open_model(&model, case_path(cases[c]), NULL), CVN_OK);
        for (size_t i = 0; i < model.tensors.n; i++) {
            const IoTensor *t = &model.tensors.tensor[i];
            if (t->coding != IO_PACKED)
                continue;
            float *want = malloc((size_t)t->n * sizeof *want), got[BLOCK_MOST];
            uint8_t block[256];
            assert_int_equal(packed_kind(t), kind);
            io_decode(t, 0, t->n, want);
            for (int64_t b = 0; b < t->n / info->elements; b++) {
                packed_blocks(t, kind, b, 1, block);
                info->widen(block, got);
                assert_memory_equal(got, want + b * info->elements,
                                    (size_t)info->elements * sizeof *got);
            }
            free(want);
            n++;
        }
        assert_int_equal(n, MATRICES);
        io_close_model(&model);
    }
}

/* A checkpoint written in FP8 again is the same numbers, whatever shared a scale; one that is quantized says what it says when it is
   quantized while it is loaded. */
static void files_in_fp8_are_written(void **state)
{
    (void)state;
    int32_t token[MOST];
    float want[MOST], got[MOST];
    const int n = reference("block", token, want);
    expect(0, "caravan convert " FP8 "/block again --type fp8", "in fp8");
    expect(0, "caravan convert again twice --type fp8", "in fp8");
    expect(0, "cmp again/model.safetensors twice/model.safetensors && echo same", "same");
    expect(0,
           "caravan convert again wide --type f32 && caravan convert " FP8
           "/block wide2 --type f32",
           "in f32");
    expect(0, "cmp wide/model.safetensors wide2/model.safetensors && echo same", "same");
    score(in_scratch("again"), NULL, NULL, CVN_F32, n, token, got);
    expect_near("written again", n, got, want, 2e-5);
    score(in_scratch("wide"), "fp8", NULL, CVN_F32, n, token, want);
    expect(0, "caravan quantize wide small --to fp8", "in fp8");
    score(in_scratch("small"), NULL, NULL, CVN_F32, n, token, got);
    expect_near("quantized before", n, got, want, 0);
    expect(0, "caravan inspect small", "F8 scaled");
    expect(0, "caravan convert wide parts --type fp8 --shard-size 60K && caravan inspect parts",
           "files");
    expect(0, "grep -c weight_scale_inv parts/model.safetensors.index.json", "7");
    score(in_scratch("parts"), NULL, NULL, CVN_F32, n, token, got);
    expect_near("in several files", n, got, want, 0);
    expect(1, "caravan convert wide x.gguf --type fp8 2>&1", "fp8 does not exist in GGUF files");
}

/* ---- what is broken ---- */

/* A folder with this config's quantization, and of a model's file the bytes from `from` to `to` replaced by others of as many. */
static void expect_refusal(const char *from, const char *to, const char *message)
{
    char line[1024];
    snprintf(line, sizeof line,
             "rm -rf broken && cp -r %s/block broken && sed -i 's/%s/%s/' broken/config.json "
             "broken/model.safetensors && caravan inspect broken 2>&1",
             FP8, from, to);
    expect(1, line, message);
}

static void broken_files_are_refused(void **state)
{
    (void)state;
    expect_refusal("\"e4m3\"", "\"e3m4\"",
                   "fmt = \"e3m4\" in quantization_config is not supported");
    expect_refusal("k_proj.weight_scale_inv", "k_proj.weight_scale_xyz",
                   "has no tensor 'model.layers.0.self_attn.k_proj.weight_scale_inv'");
    expect_refusal("\"weight_block_size\": \\[", "\"weight_block_size\": [1,", "two sizes");
    expect_refusal("    128$", "    64", "is expected");
}

/* Codes that are no numbers: said when a model is loaded. */
static void codes_that_are_no_numbers_are_warned_of(void **state)
{
    (void)state;
    IoModel io;
    cvn_err err = {0};
    cvn_model *model = NULL;
    cvn_engine *engine = NULL;
    expect(0, "rm -rf nan && cp -r " FP8 "/block nan && echo copied", "copied");
    Bytes file = bytes_of_file(in_scratch("nan/model.safetensors"));
    assert_int_equal(io_open_model(&io, in_scratch("nan"), NULL), CVN_OK);
    const IoTensor *t = io_tensors_find(&io.tensors, "model.layers.0.mlp.up_proj.weight");
    const IoTensor *codes = &t->part[0];
    const size_t at = (size_t)(codes->data - io.map->data) + 77;
    io_close_model(&io);
    file.data[at] = 0xff;
    assert_int_equal(file_write(in_scratch("nan/model.safetensors"), file.data, file.n, NULL),
                     CVN_OK);
    if (cvn_model_open(in_scratch("nan"),
                       &(cvn_model_options){.dtype = CVN_BF16, .no_tokenizer = true}, &model,
                       &err) ||
        cvn_engine_new(model, &(cvn_engine_options){.threads = 1, .slots = 1}, &engine, &err))
        fail_msg("%s", err.message);
    assert_non_null(strstr(cvn_engine_warnings(engine), "up_proj.weight' are NaN"));
    cvn_engine_free(engine, NULL);
    cvn_model_free(model);
    free(file.data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_and_codes_are_each_other),
        cmocka_unit_test(what_lies_in_fp8_stays_so),
        cmocka_unit_test(checkpoints_say_what_transformers_says),
        cmocka_unit_test(files_in_fp8_are_written),
        cmocka_unit_test(broken_files_are_refused),
        cmocka_unit_test(codes_that_are_no_numbers_are_warned_of),
    };
    return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
