/* caravan convert: round trips to the byte, attempts that end early, tokenizers in GGUF files, numbers in blocks. */
#include "base/crc32.h"
#include "base/float16.h"
#include "io/convert.h"
#include "io/encode.h"
#include "io/formats.h"
#include "io/save.h"
#include "io/torch_file.h"
#include "io_support.h"
#include "model_make.h"
#include "shell.h"
#include "splitmix.h"
#include "text/gguf_write.h"
#include "text/token_ids.h"
#include "text/tokenizer.h"

#include <ctype.h>
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
    round_trip("bf16", CVN_BF16, "meta2", "--to meta --shards 2");
    c = model_with(c, "'num_attention_heads': 16, 'num_key_value_heads': 8, 'head_dim': 6, "
                      "'intermediate_size': 96");
    random_folder("f16", c, CVN_F16);
    round_trip("f16", CVN_F16, "meta8", "--to meta --shards 8");
    round_trip("f16", CVN_F16, "meta16", "--to meta --shards 16"); /* more than KV heads */
    expect(1, "caravan convert f16 meta12 --to meta --shards 12 2>&1",
           "cannot be divided into 12 shards");
    c = model_with(c, "'attention_bias': true, 'mlp_bias': true");
    random_folder("biases", c, CVN_BF16);
    round_trip("biases", CVN_BF16, "m.gguf", "");
    c = model_with(
        c, "'rope_scaling': {'rope_type': 'yarn', 'factor': 4, 'beta_slow': 0.5, 'beta_fast': 24, "
           "'original_max_position_embeddings': 8192}");
    random_folder("yarn", c, CVN_BF16);
    round_trip("yarn", CVN_BF16, "m.gguf", "");
}

/* The rows of a parameter in a part of Meta's, in the arena. */
static const IoTensor *in_part(const char *folder, int part, const char *name, Arena *arena)
{
    cvn_err err = {0};
    FileMap *map = arena_alloc(arena, sizeof *map);
    IoTensors *tensors = arena_alloc(arena, sizeof *tensors);
    const char *file = arena_printf(arena, "%s/consolidated.%02d.pth", folder, part);
    io_tensors_init(tensors, arena);
    if (file_map(map, file, &err) || torch_read(tensors, file, map->data, map->size, &err))
        fail_msg("%s", err.message);
    return io_tensors_find(tensors, name);
}

static void parts_beyond_the_kv_heads_have_copies_of_a_head(void **state)
{
    (void)state;
    enum { KV_HEADS = 4, PARTS = 8, HEAD = 12, WIDTH = 96 };
    Arena arena;
    assert_int_equal(arena_init(&arena, NULL), CVN_OK);
    random_folder("few",
                  model_with(small_config(), "'num_attention_heads': 8, 'head_dim': 12, "
                                             "'num_key_value_heads': 4, "
                                             "'intermediate_size': 128, 'vocab_size': 64"),
                  CVN_F32);
    round_trip("few", CVN_F32, "eight", "--to meta --shards 8");
    expect(0, "caravan convert few eight --to meta --shards 8", "in f32");
    for (int part = 0; part < PARTS; part++) {
        const char *const names[] = {"layers.1.attention.wk.weight",
                                     "layers.1.attention.wv.weight"};
        for (int i = 0; i < 2; i++) {
            const IoTensor *t = in_part(in_scratch("eight"), part, names[i], &arena);
            const IoTensor *first = in_part(in_scratch("eight"), part / 2 * 2, names[i], &arena);
            const IoTensor *other =
                in_part(in_scratch("eight"), (part + 2) % PARTS, names[i], &arena);
            assert_int_equal(t->dims[0], HEAD);
            assert_int_equal(t->bytes, HEAD * WIDTH * sizeof(float));
            assert_memory_equal(t->data, first->data, t->bytes);
            assert_memory_not_equal(t->data, other->data, t->bytes);
        }
    }
    arena_free(&arena);
}

static void what_a_format_cannot_say_is_refused(void **state)
{
    (void)state;
    Model *c = small_config();
    c = model_with(c, "'attention_bias': true");
    random_folder("said", c, CVN_F32);
    expect(1, "caravan convert said x.bin 2>&1", "cannot express that 'said' has biases");
    expect(1, "caravan convert said x --to meta 2>&1", "cannot express that 'said' has biases");
    expect(1, "caravan convert said x --type q4_0 2>&1",
           "q4_0 does not exist in Hugging Face folders");
    expect(1, "caravan convert said x.gguf --type int8 --to gguf 2>&1",
           "int8 does not exist in GGUF");
    expect(1, "caravan convert said said 2>&1", "is not empty");
    expect(0, "caravan convert said said.gguf 2>&1", "has no tokenizer");
    expect(1, "caravan convert said said.gguf 2>&1", "exists; give another name or --force");
    expect(0, "caravan convert said said.gguf --force --type q8_0", "in q8_0");
    expect(0, "ls", "said\nsaid.gguf\n");
    c = model_with(
        c, "'attention_bias': false, 'rope_scaling': {'rope_type': 'dynamic', 'factor': 4}");
    random_folder("longer", c, CVN_F32);
    expect(1, "caravan convert longer x.bin 2>&1",
           "cannot express that 'longer' has scaled rotary");
    expect(0, "caravan convert longer l.gguf 2>&1",
           "has dynamic rope scaling; up to that length the model is the same");
    c = model_with(c, "'rope_scaling': {'rope_type': 'yarn', 'factor': 4, 'attention_factor': 1, "
                      "'original_max_position_embeddings': 16, 'truncate': false}");
    random_folder("ramp", c, CVN_F32);
    expect(1, "caravan convert ramp x.gguf 2>&1", "yarn scaling that is not truncated");
}

/* A folder that an attempt left, cut short anywhere or not as it should be, is gone on with to the same bytes. */
static void go_on_with(int (*make)(Out *, const FormatOptions *, cvn_err *), const char *type,
                       const char *file)
{
    IoModel model;
    Arena arena;
    Model *c = small_config();
    const char *folder = in_scratch("parts");
    assert_int_equal(io_open_model(&model, random_folder("whole", c, CVN_BF16), NULL), CVN_OK);
    assert_int_equal(arena_init(&arena, NULL), CVN_OK);
    assert_int_equal(file_make_folder(folder, NULL), CVN_OK);
    const FormatOptions options = {.type = weight_type_find(type), .shards = 2};
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
    go_on_with(format_meta, "bf16", "parts/consolidated.01.pth");
    go_on_with(format_hf, "int8", "parts/model.safetensors");
    go_on_with(format_hf, "int4:32", "parts/model.safetensors");
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
    block_encode(kind, x, NULL, N, blocks);
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
    for (int k = 1; k < BLOCK_KINDS; k++)
        for (int what = 0; what < 3 && block_encodes((BlockKind)k); what++) {
            float x[256] = {0}, y[256];
            uint8_t block[512];
            for (int i = 0; i < 256; i++)
                x[i] = what == 0 ? 0 : what == 1 ? 1e30f : i % 7 ? -3e-41f : 1e-39f;
            block_encode((BlockKind)k, x, NULL, block_info[k].elements, block);
            block_info[k].widen(block, y);
            for (int i = 0; i < block_info[k].elements; i++)
                assert_true(isfinite(y[i]));
        }
}

/* Numbers that ggml's own code read from blocks of a type (tests/oracles/gguf_blocks.py) come back from blocks of that type: the
   encoder puts codes, scales and minima where ggml looks for them. */
static void numbers_that_blocks_hold_come_back(void **state)
{
    int n_types = 0;
    (void)state;
    for (int k = 1; k < BLOCK_KINDS; k++) {
        char path[256], name[16] = "";
        if (!block_encodes((BlockKind)k))
            continue;
        for (int i = 0; block_info[k].name[i]; i++)
            name[i] = (char)toupper(block_info[k].name[i]);
        snprintf(path, sizeof path, CVN_TEST_DATA "/%s/%s.f32",
                 block_info[k].form.fraction ? "fp8" : "gguf", name);
        Bytes want = bytes_of_file(path);
        const int64_t n = (int64_t)(want.n / sizeof(float)), each = block_info[k].elements;
        assert_true(n > 0);
        n_types++;
        for (int64_t at = 0; at < n; at += each) {
            float x[BLOCK_MOST], y[BLOCK_MOST];
            uint8_t block[BLOCK_MOST * 2];
            double error = 0, square = 0;
            memcpy(x, want.data + (size_t)at * sizeof *x, (size_t)each * sizeof *x);
            for (int64_t i = 0; i < each; i++)
                square += (double)x[i] * (double)x[i];
            if (!(square > 1e-6 && square < 1e9)) /* special scales */
                continue;
            block_encode((BlockKind)k, x, NULL, each, block);
            block_info[k].widen(block, y);
            for (int64_t i = 0; i < each; i++)
                error += pow((double)(x[i] - y[i]), 2);
            if (!(error < 2e-3 * square))
                fail_msg("%s at %lld: %g of %g", name, (long long)at, error, square);
        }
        free(want.data);
    }
    assert_int_equal(n_types, 10);
}

/* The same numbers, rounded by ggml and by us: ours lose no more, of K types at most a fiftieth more. */
static void blocks_lose_hardly_more_than_those_of_ggml(void **state)
{
    (void)state;
    const char *folder = CVN_SHARED_DATA "/formats/ggml-quants";
    char path[512];
    snprintf(path, sizeof path, "%s/src.f32", folder);
    if (!file_exists(path)) {
        print_message("skipped: there is no %s\n", path);
        skip();
    }
    Bytes from = bytes_of_file(path);
    const int64_t n = (int64_t)(from.n / sizeof(float));
    float *x = (float *)from.data, y[BLOCK_MOST];
    for (int k = 1; k < BLOCK_KINDS; k++) {
        double ours = 0, theirs = 0;
        snprintf(path, sizeof path, "%s/%s.deq.f32", folder, block_info[k].name);
        for (char *c = strrchr(path, '/'); *c; c++)
            *c = *c == 'k' && c[-1] == '_' ? 'K' : *c;
        if (!block_encodes((BlockKind)k) || !file_exists(path))
            continue;
        Bytes other = bytes_of_file(path);
        for (int64_t at = 0; at < n; at += block_info[k].elements) {
            uint8_t block[BLOCK_MOST * 2];
            block_encode((BlockKind)k, x + at, NULL, block_info[k].elements, block);
            block_info[k].widen(block, y);
            for (int64_t i = 0; i < block_info[k].elements; i++) {
                ours += pow((double)(x[at + i] - y[i]), 2);
                theirs += pow((double)(x[at + i] - ((float *)other.data)[at + i]), 2);
            }
        }
        if (!(ours <= (block_info[k].elements == BLOCK_MOST ? 1.02 : 1.0001) * theirs))
            fail_msg("%s: %g, ggml %g", block_info[k].name, ours, theirs);
        free(other.data);
    }
    free(from.data);
}

/* What counts more is nearer, and what counts nothing does not matter. */
static void important_elements_are_nearer(void **state)
{
    (void)state;
    for (int k = 1; k < BLOCK_KINDS; k++) {
        float x[BLOCK_MOST], y[BLOCK_MOST], importance[BLOCK_MOST];
        uint8_t block[BLOCK_MOST * 2];
        uint64_t seed = (uint64_t)k;
        double with = 0, without = 0;
        if (!block_encodes((BlockKind)k))
            continue;
        for (int turn = 0; turn < 400; turn++)
            for (int weighed = 0; weighed < 2; weighed++) {
                uint64_t now = seed + (uint64_t)turn * 1000;
                for (int i = 0; i < BLOCK_MOST; i++) {
                    x[i] = (float)(splitmix(&now) >> 40) * 0x1p-23f - 1;
                    importance[i] = i % 5 ? 0.01f : 1;
                }
                block_encode((BlockKind)k, x, weighed ? importance : NULL, block_info[k].elements,
                             block);
                block_info[k].widen(block, y);
                for (int i = 0; i < block_info[k].elements; i++)
                    *(weighed ? &with : &without) +=
                        (double)importance[i] * pow((double)(x[i] - y[i]), 2);
            }
        if (k == BLOCK_Q8_0 || block_info[k].form.fraction ? with != without : !(with < without))
            fail_msg("%s: %g, and %g without", block_info[k].name, with, without);
    }
}

/* Every name of a type, in any case, is the name of one type. */
static void names_of_types_are_read_in_any_case(void **state)
{
    static const struct {
        const char *said, *name;
        int gguf;
    } names[] = {{"Q4_K_M", "q4_k_m", 15}, {"q4_k", "q4_k_m", 15},   {"Q5_K", "q5_k_m", 17},
                 {"Q4_K_S", "q4_k_s", 14}, {"q5_K_s", "q5_k_s", 16}, {"Q4_1", "q4_1", 3},
                 {"Q5_0", "q5_0", 8},      {"Q5_1", "q5_1", 9},      {"MXFP4", "mxfp4", 38},
                 {"BF16", "bf16", 32},     {"Q8_0", "q8_0", 7},      {"INT4:32", "int4:32", 0}};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const WeightType *t = weight_type_find(names[i].said);
        assert_non_null(t);
        assert_string_equal(t->name, names[i].name);
        assert_int_equal(t->gguf, names[i].gguf);
        assert_string_equal(weight_type_alias(names[i].said), names[i].name);
    }
    assert_null(weight_type_find("q4_2"));
    assert_string_equal(weight_type_alias("q4_2"), "q4_2");
    for (const WeightType *t = weight_types; t->name; t++)
        assert_ptr_equal(weight_type_find(t->name), t);
}

/* What score prints of a model. */
static Bytes scores_of(const char *model, const char *how)
{
    char command[512];
    snprintf(command, sizeof command,
             "caravan score -m %s --tokens 1,2,3,4,5,6,7,8,9 --dtype f32 --json %s >scores", model,
             how);
    expect(0, command, "");
    return bytes_of_file(in_scratch("scores"));
}

static double mean_of(const Bytes *scores)
{
    const char *at = strstr((const char *)scores->data, "\"mean_logprob\":");
    assert_non_null(at);
    return strtod(at + strlen("\"mean_logprob\":"), NULL);
}

/* --quantize takes the types of GGUF files: blocks of the type asked for are those of the file, others are made. */
static void blocks_are_made_while_loading(void **state)
{
    (void)state;
    Model *c = model_with(small_config(), "'intermediate_size': 160");
    random_folder("made", c, CVN_F32);
    Bytes floats = scores_of("made", "");
    static const char *const types[] = {"q8_0", "Q6_K", "q5_k_m", "Q5_1", "q4_k_s", "MXFP4"};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        char text[128];
        snprintf(text, sizeof text, "caravan convert made m.gguf --force --type %s 2>/dev/null",
                 types[i]);
        expect(0, text, "");
        snprintf(text, sizeof text, "--quantize %s", types[i]);
        Bytes file = scores_of("m.gguf", ""), again = scores_of("m.gguf", text);
        Bytes made = scores_of("made", text);
        assert_int_equal(file.n, again.n);
        assert_memory_equal(file.data, again.data, file.n);
        assert_true(fabs(mean_of(&made) - mean_of(&floats)) < 0.1);
        assert_true(mean_of(&made) != mean_of(&floats));
        free(file.data);
        free(again.data);
        free(made.data);
    }
    free(floats.data);
    expect(1, "caravan convert made x --type int8 --calibrate scores 2>&1",
           "--calibrate works with");
    expect(0, "caravan convert m.gguf named --type f32 2>/dev/null && cat named/README.md",
           "# made");
    expect(0, "caravan convert m.gguf n.gguf --type f32 && grep -c made n.gguf", "1\n");
    expect(0, "caravan plan -p llama3.2-1b -q Q4_K_M", "");
    expect(0, "caravan simulate -p llama3.2-1b -q q5_0 --chip rtx4090", "");
    expect(2, "caravan plan -p llama3.2-1b -q q4_2 2>&1", "did you mean q4_");
}

/* There by GGUF and back: the card of a folder is the keys of a file, and they are a card again. */
static void names_and_licences_stay(void **state)
{
    (void)state;
    random_folder("carded", small_config(), CVN_F32);
    expect(0,
           "printf '%s\\n' --- 'language: en' 'license: \"apache-2.0\"' 'license_link: ./LICENSE' "
           "--- '' "
           "'# Camel 1' 'text' '# more' >carded/README.md && "
           "caravan convert carded carded.gguf 2>/dev/null && "
           "strings carded.gguf | grep -A1 -E 'general.(name|license)'",
           "Camel 1");
    expect(0, "caravan convert carded.gguf again 2>/dev/null && cat again/README.md",
           "---\nlicense: apache-2.0\nlicense_link: ./LICENSE\n---\n# Camel 1\n");
    expect(0,
           "rm carded/README.md && caravan convert carded carded.gguf --force 2>/dev/null && "
           "caravan convert carded.gguf plain 2>/dev/null && cat plain/README.md",
           "# carded\n");
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

/* Ctrl-C says how to go on, and the same command does. (Who is quicker than the signal is asked again.) */
static void an_interrupted_conversion_says_how_to_go_on(void **state)
{
    expect(0, "caravan init -p stories15m -o slow 2>&1 >/dev/null", "");
    expect(0,
           "for i in 1 2 3 4 5 6 7 8; do rm -rf fast fast.part; " CVN_BINARY
           " convert slow fast --type int4 -t 1 >log 2>notes & "
           "for j in $(seq 3000); do [ -s fast.part/model.safetensors ] || [ -e fast ] && break; "
           "sleep 0.01; done; kill -INT $!; wait $!; s=$?; [ $s = 130 ] && break; done; "
           "echo status $s; cat notes",
           "status 130\ncaravan: interrupted while writing 'fast.part/model.safetensors'; repeat "
           "the command to resume\n");
    expect(0, "test ! -e fast && caravan convert slow fast --type int4 -t 1 2>&1", ", resumed\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(there_and_back_are_the_same_bytes),
        cmocka_unit_test(parts_beyond_the_kv_heads_have_copies_of_a_head),
        cmocka_unit_test(what_a_format_cannot_say_is_refused),
        cmocka_unit_test(an_attempt_that_ended_early_is_gone_on_with),
        cmocka_unit_test(checksums_are_those_of_zip),
        cmocka_unit_test(numbers_in_blocks_are_near),
        cmocka_unit_test(numbers_that_blocks_hold_come_back),
        cmocka_unit_test(blocks_lose_hardly_more_than_those_of_ggml),
        cmocka_unit_test(important_elements_are_nearer),
        cmocka_unit_test(blocks_are_made_while_loading),
        cmocka_unit_test(names_of_types_are_read_in_any_case),
        cmocka_unit_test(names_and_licences_stay),
        cmocka_unit_test(tokenizers_are_the_same_in_gguf_files),
        cmocka_unit_test(an_interrupted_conversion_says_how_to_go_on),
    };
    return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
