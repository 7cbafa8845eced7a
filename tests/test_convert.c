/* caravan convert: round trips to the byte, attempts that end early, tokenizers in GGUF files, numbers in blocks. */
#include "base/crc32.h"
#include "base/float16.h"
#include "io/convert.h"
#include "io/encode.h"
#include "io/forms.h"
#include "io/save.h"
#include "io_support.h"
#include "model_make.h"
#include "shell.h"
#include "splitmix.h"
#include "text/gguf_write.h"
#include "text/token_ids.h"
#include "text/tokenizer.h"

#include <math.h>

/* Llama 3.2's way of rotating, three KV heads of 16, 2 layers. */
static Model *small_config(void)
{
    Model *c = model_make("'hidden_size': 96, 'num_hidden_layers': 2, 'num_attention_heads': 6, "
                          "'num_key_value_heads': 2, 'head_dim': 16, 'intermediate_size': 130, "
                          "'vocab_size': 50, 'rms_norm_eps': 1e-5");
    return c;
}

static const char *random_folder(const char *name, const Model *config, cvn_dtype dtype)
{
    const char *path = in_scratch(name);
    uint64_t seed = 3;
    cvn_err err = {0};
    const SaveOptions options = {.dtype = dtype, .threads = 1, .force = true};
    if (save_folder(path, config, &options, init_fill, &seed, &err))
        fail_msg("%s", err.message);
    return path;
}

/* There by `to` and back: the weights are the same file, and so is the config. */
static void round_trip(const char *name, cvn_dtype dtype, const char *to, const char *how)
{
    char line[1024];
    snprintf(line, sizeof line,
             "caravan convert %s %s %s && caravan convert %s back --type %s && "
             "cmp %s/model.safetensors back/model.safetensors && cmp %s/config.json "
             "back/config.json && rm -r back %s && echo same",
             name, to, how, to, cvn_dtype_name(dtype), name, name, to);
    expect(0, line, "same\n");
}

static void there_and_back_are_the_same_bytes(void **state)
{
    (void)state;
    Model *c = small_config();
    random_folder("f32", c, CVN_F32);
    round_trip("f32", CVN_F32, "m.gguf", "");
    round_trip("f32", CVN_F32, "m.bin", "");
    round_trip("f32", CVN_F32, "m.bin", "--to llama2c-v0");
    round_trip("f32", CVN_F32, "meta", "--to meta");
    c = model_with(c, "'rope_theta': 500000, 'tie_word_embeddings': true, 'rope_scaling': "
                      "{'rope_type': 'llama3', "
                      "'factor': 32, 'low_freq_factor': 1, 'high_freq_factor': 4, "
                      "'original_max_position_embeddings': 8192}");
    random_folder("bf16", c, CVN_BF16);
    round_trip("bf16", CVN_BF16, "m.gguf", "--type bf16");
    round_trip("bf16", CVN_BF16, "meta2", "--to meta --parts 2");
    c = model_with(c, "'num_attention_heads': 16, 'num_key_value_heads': 8, 'head_dim': 6, "
                      "'intermediate_size': 72");
    random_folder("f16", c, CVN_F16);
    round_trip("f16", CVN_F16, "meta8", "--to meta --parts 8");
    c = model_with(c, "'attention_bias': true, 'mlp_bias': true");
    random_folder("biases", c, CVN_BF16);
    round_trip("biases", CVN_BF16, "m.gguf", "");
    c = model_with(
        c, "'rope_scaling': {'rope_type': 'yarn', 'factor': 4, 'beta_slow': 0.5, 'beta_fast': 24, "
           "'original_max_position_embeddings': 8192}");
    random_folder("yarn", c, CVN_BF16);
    round_trip("yarn", CVN_BF16, "m.gguf", "");
}

static void what_a_form_cannot_say_is_refused(void **state)
{
    (void)state;
    Model *c = small_config();
    c = model_with(c, "'attention_bias': true");
    random_folder("said", c, CVN_F32);
    expect(1, "caravan convert said x.bin 2>&1", "cannot say that 'said' has biases");
    expect(1, "caravan convert said x --to meta 2>&1", "cannot say that 'said' has biases");
    expect(1, "caravan convert said x --type q4_0 2>&1", "q4_0 is no type of Hugging Face folders");
    expect(1, "caravan convert said x.gguf --type int8 --to gguf 2>&1", "int8 is no type of GGUF");
    expect(1, "caravan convert said said 2>&1", "is not empty");
    expect(0, "caravan convert said said.gguf 2>&1", "has no tokenizer");
    expect(1, "caravan convert said said.gguf 2>&1", "exists; give another name or --force");
    expect(0, "caravan convert said said.gguf --force --type q8_0", "in q8_0");
    expect(0, "ls", "said\nsaid.gguf\n");
    c = model_with(
        c, "'attention_bias': false, 'rope_scaling': {'rope_type': 'dynamic', 'factor': 4}");
    random_folder("longer", c, CVN_F32);
    expect(1, "caravan convert longer x.bin 2>&1", "cannot say that 'longer' has scaled rotary");
    expect(0, "caravan convert longer l.gguf 2>&1",
           "has dynamic rope scaling; within it it is the same");
    c = model_with(c, "'rope_scaling': {'rope_type': 'yarn', 'factor': 4, 'attention_factor': 1, "
                      "'original_max_position_embeddings': 16, 'truncate': false}");
    random_folder("ramp", c, CVN_F32);
    expect(1, "caravan convert ramp x.gguf 2>&1", "yarn scaling that is not truncated");
}

static const FormType *type_of(const char *name)
{
    const FormType *type = form_types;
    while (strcmp(type->name, name) != 0)
        type++;
    return type;
}

/* A folder that an attempt left, cut short anywhere or not as it should be, is gone on with to the same bytes. */
static void go_on_with(int (*make)(Out *, const FormOptions *, cvn_err *), const char *type,
                       const char *file)
{
    IoModel model;
    Arena arena;
    Model *c = small_config();
    const char *folder = in_scratch("parts");
    assert_int_equal(io_open_model(&model, random_folder("whole", c, CVN_BF16), NULL), CVN_OK);
    assert_int_equal(arena_init(&arena, NULL), CVN_OK);
    assert_int_equal(file_make_folder(folder, NULL), CVN_OK);
    const FormOptions options = {.type = type_of(type), .parts = 2};
    const char *path = in_scratch(file);
    Bytes want = {0};
    for (size_t cut = 1, turn = 0; turn == 0 || cut < want.n;
         cut = turn ? cut * 3 / 2 + 1 : 1, turn++) {
        cvn_err err = {0};
        Out out = {.arena = &arena, .model = &model, .threads = 2};
        if (make(&out, &options, &err) || out_write(&out, folder, &err))
            fail_msg("%s", err.message);
        Bytes got = bytes_of_file(path);
        if (turn == 0) {
            want = bytes_copy(got.data, got.n);
            cut = 1;
        }
        assert_int_equal(got.n, want.n);
        assert_memory_equal(got.data, want.data, want.n);
        free(got.data);
        if (turn % 3 == 2) { /* longer than it should be, or with another header */
            got = bytes_copy(want.data, want.n);
            got.data[5] ^= 1;
            assert_int_equal(file_write(path, got.data, got.n, NULL), CVN_OK);
            free(got.data);
        } else {
            assert_int_equal(truncate(path, (off_t)cut), 0);
        }
    }
    free(want.data);
    arena_free(&arena);
    io_close_model(&model);
    remove_folder(folder);
}

static void an_attempt_that_ended_early_is_gone_on_with(void **state)
{
    (void)state;
    go_on_with(form_meta, "bf16", "parts/consolidated.01.pth");
    go_on_with(form_hf, "int8", "parts/model.safetensors");
    go_on_with(form_hf, "int4:32", "parts/model.safetensors");
}

static void checksums_are_those_of_zip(void **state)
{
    (void)state;
    Crc32 c;
    crc32_init(&c);
    assert_int_equal(crc32(&c, 0, "123456789", 9), 0xcbf43926);
    assert_int_equal(crc32(&c, crc32(&c, 0, "12345678", 8), "9", 1), 0xcbf43926);
}

/* The root of the mean square of what rounding changes, for normal numbers, over theirs. */
static double loss_of(BlockKind kind, float shift)
{
    enum { N = 1 << 14 };
    static float x[N], y[N];
    static uint8_t blocks[N * 2];
    uint64_t seed = 7;
    double error = 0, square = 0;
    for (int i = 0; i < N; i++) {
        double sum = 0;
        for (int k = 0; k < 12; k++)
            sum += (double)(splitmix(&seed) >> 11) * 0x1p-53;
        x[i] = (float)(sum - 6) + shift;
    }
    block_encode(kind, x, N, blocks);
    for (int i = 0; i < N; i += block_info[kind].elements)
        block_info[kind].widen(blocks + i / block_info[kind].elements * block_info[kind].bytes,
                               y + i);
    for (int i = 0; i < N; i++) {
        error += pow((double)(x[i] - y[i]), 2);
        square += pow((double)(x[i] - shift), 2);
    }
    return sqrt(error / square);
}

static void numbers_in_blocks_are_near(void **state)
{
    (void)state;
    assert_true(loss_of(BLOCK_Q8_0, 0) < 0.0055);
    assert_true(loss_of(BLOCK_Q4_0, 0) < 0.08);
    assert_true(loss_of(BLOCK_Q6_K, 0) < 0.018);
    assert_true(loss_of(BLOCK_Q4_K, 0) < 0.075);
    assert_true(loss_of(BLOCK_Q4_K, -4) < 0.08); /* it has minima */
    /* What is no room for, and what is none at all, stays finite. */
    static const BlockKind kinds[] = {BLOCK_Q8_0, BLOCK_Q4_0, BLOCK_Q6_K, BLOCK_Q4_K};
    for (int k = 0; k < 4; k++)
        for (int what = 0; what < 3; what++) {
            float x[256] = {0}, y[256];
            uint8_t block[512];
            for (int i = 0; i < 256; i++)
                x[i] = what == 0 ? 0 : what == 1 ? 1e30f : i % 7 ? -3e-41f : 1e-39f;
            block_encode(kinds[k], x, block_info[kinds[k]].elements, block);
            block_info[kinds[k]].widen(block, y);
            for (int i = 0; i < block_info[kinds[k]].elements; i++)
                assert_true(isfinite(y[i]));
        }
}

static void expect_ids(const Tokenizer *a, const Tokenizer *b, const char *text, size_t n,
                       const char *what)
{
    TokenIds x = {0}, y = {0};
    unsigned flags = TOKENIZER_BOS | TOKENIZER_SPECIAL;
    assert_int_equal(tokenizer_encode(a, text, n, flags, &x, NULL), CVN_OK);
    assert_int_equal(tokenizer_encode(b, text, n, flags, &y, NULL), CVN_OK);
    if (x.n != y.n || memcmp(x.id, y.id, x.n * sizeof *x.id) != 0)
        fail_msg("%s: other ids for \"%.*s\"", what, (int)n, text);
    token_ids_free(&x);
    token_ids_free(&y);
}

/* A tokenizer written as keys of a GGUF file and read from there gives the ids that it gave. */
static void tokenizers_are_the_same_in_gguf_files(void **state)
{
    (void)state;
    static const char *const files[] = {
        CVN_SHARED_DATA "/tokenizers/llama2/tokenizer.model",
        CVN_SHARED_DATA "/tokenizers/llama2/tokenizer.json",
        CVN_SHARED_DATA "/tokenizers/llama3/tokenizer.model",
        CVN_SHARED_DATA "/tokenizers/llama3/tokenizer.json",
        CVN_SHARED_DATA "/tokenizers/tok512/tok512.model",
        CVN_TEST_DATA "/chat/tokenizer.json",
    };
    static const char mixed[] =
        "Once upon a time, there was a 12345-year-old \xc3\xa9l\xc3\xa8ve.\n\n  def "
        "f(x):\n\treturn x  "
        "\xf0\x9f\x98\x80 \xe4\xb8\x96\xe7\x95\x8c </s> <|eot_id|> don't WON'T aaaaaaaaa \xff\xfe";
    for (size_t f = 0; f < sizeof files / sizeof *files; f++) {
        Tokenizer *t, *again;
        cvn_err err = {0};
        GgufKeys keys = {0};
        StrBuf file = {0};
        uint32_t version = 3;
        uint64_t none = 0;
        if (!file_exists(files[f]))
            continue;
        if (tokenizer_open(files[f], &t, &err) || gguf_write_tokenizer(t, &keys, &err))
            fail_msg("%s: %s", files[f], err.message);
        gguf_key_u32(&keys, "tokenizer.ggml.bos_token_id", tokenizer_bos(t));
        gguf_put_raw(&file, "GGUF", 4);
        gguf_put_raw(&file, &version, sizeof version);
        gguf_put_raw(&file, &none, sizeof none);
        gguf_put_raw(&file, &keys.n, sizeof keys.n);
        gguf_put_raw(&file, keys.bytes.text, keys.bytes.length);
        if (tokenizer_read(file.text, file.length, &again, &err))
            fail_msg("%s: %s", files[f], err.message);
        assert_int_equal(tokenizer_vocab_size(again), tokenizer_vocab_size(t));
        expect_ids(t, again, mixed, sizeof mixed - 1, files[f]);
        uint64_t seed = 5;
        for (int i = 0; i < 500; i++) {
            char text[64];
            size_t n = splitmix(&seed) % sizeof text;
            for (size_t k = 0; k < n; k++)
                text[k] = (char)(splitmix(&seed) % 3 ? 'a' + splitmix(&seed) % 5
                                                     : ' ' + splitmix(&seed) % 95);
            expect_ids(t, again, text, n, files[f]);
        }
        strbuf_free(&file);
        strbuf_free(&keys.bytes);
        tokenizer_free(t);
        tokenizer_free(again);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(there_and_back_are_the_same_bytes),
        cmocka_unit_test(what_a_form_cannot_say_is_refused),
        cmocka_unit_test(an_attempt_that_ended_early_is_gone_on_with),
        cmocka_unit_test(checksums_are_those_of_zip),
        cmocka_unit_test(numbers_in_blocks_are_near),
        cmocka_unit_test(tokenizers_are_the_same_in_gguf_files),
    };
    return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
