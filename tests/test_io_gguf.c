/* GGUF: the shared samples, a file made here and broken in every way, values. */
#include "base/float16.h"
#include "io/convert.h"
#include "io/gguf.h"
#include "io_support.h"
#include "model_make.h"
#include "whole_weights.h"

#include <math.h>

/* Builds a GGUF image piece by piece. */
typedef struct Builder {
    uint8_t data[1 << 16];
    size_t n;
} Builder;

static void put(Builder *b, const void *bytes, size_t n)
{
    assert_true(b->n + n <= sizeof b->data);
    memcpy(b->data + b->n, bytes, n);
    b->n += n;
}

static void put_u32(Builder *b, uint32_t v)
{
    put(b, &v, 4);
}

static void put_u64(Builder *b, uint64_t v)
{
    put(b, &v, 8);
}

static void put_string(Builder *b, const char *text)
{
    put_u64(b, strlen(text));
    put(b, text, strlen(text));
}

static void put_u32_pair(Builder *b, const char *key, uint32_t v)
{
    put_string(b, key);
    put_u32(b, GGUF_U32);
    put_u32(b, v);
}

static void put_f32_pair(Builder *b, const char *key, float v)
{
    put_string(b, key);
    put_u32(b, GGUF_F32);
    put(b, &v, 4);
}

static void put_string_pair(Builder *b, const char *key, const char *v)
{
    put_string(b, key);
    put_u32(b, GGUF_STRING);
    put_string(b, v);
}

/* A llama without weights but with an embedding of 8 tokens: width 16, 2 heads of 8. `extra` adds
 * n_extra pairs; `factors`, where not NULL, becomes rope_freqs.weight. */
static void build(Builder *b, void (*extra)(Builder *), uint64_t n_extra, const float factors[4])
{
    b->n = 0;
    put(b, "GGUF", 4);
    put_u32(b, 3);
    put_u64(b, factors ? 2 : 1);
    put_u64(b, 7 + n_extra);
    put_string_pair(b, "general.architecture", "llama");
    put_u32_pair(b, "llama.embedding_length", 16);
    put_u32_pair(b, "llama.block_count", 1);
    put_u32_pair(b, "llama.feed_forward_length", 24);
    put_u32_pair(b, "llama.attention.head_count", 2);
    put_u32_pair(b, "llama.context_length", 64);
    put_f32_pair(b, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    if (extra)
        extra(b);
    put_string(b, "token_embd.weight");
    put_u32(b, 2);
    put_u64(b, 16);
    put_u64(b, 8);
    put_u32(b, 1); /* F16 */
    put_u64(b, 0);
    if (factors) {
        put_string(b, "rope_freqs.weight");
        put_u32(b, 1);
        put_u64(b, 4);
        put_u32(b, 0); /* F32 */
        put_u64(b, 256);
    }
    while (b->n % 32 != 0)
        put(b, "", 1);
    for (int i = 0; i < 256; i++)
        put(b, &(uint8_t){(uint8_t)i}, 1);
    if (factors)
        put(b, factors, 16);
}

typedef struct Read {
    Arena arena;
    Gguf gguf;
    Model *model; /* the arena's */
    cvn_err err;
    int code; /* of gguf_read, then of gguf_model */
} Read;

static Read read_image(const uint8_t *data, size_t n, bool config)
{
    Read read = {0};
    Bytes copy = bytes_copy(data, n);
    assert_int_equal(arena_init(&read.arena, NULL), CVN_OK);
    read.code = gguf_read(&read.gguf, "image", copy.data, copy.n, &read.arena, &read.err);
    if (read.code == CVN_OK)
        touch_tensors(&read.gguf.tensors);
    if (read.code == CVN_OK && config)
        read.code = gguf_model(&read.model, &read.gguf, &read.err);
    assert_int_equal(read.code, read.err.code);
    free(copy.data);
    return read;
}

static int code_of_image(const uint8_t *data, size_t n)
{
    Read read = read_image(data, n, false);
    arena_free(&read.arena);
    return read.code;
}

static void the_shared_samples_are_judged_as_expected(void **state)
{
    (void)state;
    need_shared_data();
    judge_samples("malformed-gguf", "gguf", code_of_image);
}

static void a_config_is_read_from_the_keys(void **state)
{
    (void)state;
    static Builder b;
    build(&b, NULL, 0, NULL);
    Read read = read_image(b.data, b.n, true);
    if (read.code != CVN_OK)
        fail_msg("%s", read.err.message);
    assert_int_equal(model_width(read.model), 16);
    assert_int_equal(model_shape(read.model).head_dim, 8);
    assert_int_equal(model_shape(read.model).kv_heads, 2);
    assert_int_equal(model_vocab(read.model), 8);
    assert_true(model_shape(read.model).tied && model_is_interleaved(read.model));
    assert_int_equal(model_ends(read.model)->n, 0);
    const IoTensor *embed = io_tensors_find(&read.gguf.tensors, "token_embd.weight");
    assert_int_equal(embed->dims[0], 8);
    assert_int_equal(embed->dims[1], 16);
    arena_free(&read.arena);
}

static void put_tokens(Builder *b)
{
    put_u32_pair(b, "tokenizer.ggml.bos_token_id", 1);
    put_u32_pair(b, "tokenizer.ggml.eos_token_id", 2);
    put_u32_pair(b, "tokenizer.ggml.eot_token_id", 5);
    put_u32_pair(b, "tokenizer.ggml.padding_token_id", 4294967295u);
    put_string(b, "tokenizer.ggml.tokens");
    put_u32(b, GGUF_ARRAY);
    put_u32(b, GGUF_STRING);
    put_u64(b, 3);
    put_string(b, "a");
    put_string(b, "");
    put_string(b, "xyz");
    put_string(b, "tokenizer.ggml.scores");
    put_u32(b, GGUF_ARRAY);
    put_u32(b, GGUF_F32);
    put_u64(b, 2);
    put(b, (float[]){-1.5f, 3}, 8);
    put_u32_pair(b, "llama.expert_count", 0);
}

static void values_of_every_shape_are_found(void **state)
{
    (void)state;
    static Builder b;
    build(&b, put_tokens, 7, NULL);
    Bytes copy = bytes_copy(b.data, b.n);
    Arena arena;
    Gguf gguf;
    Model *model;
    assert_int_equal(arena_init(&arena, NULL), CVN_OK);
    assert_int_equal(gguf_read(&gguf, "image", copy.data, copy.n, &arena, NULL), CVN_OK);
    assert_int_equal(gguf_model(&model, &gguf, NULL), CVN_OK);
    assert_int_equal(model_begins(model)->id[0], 1);
    assert_int_equal(model_ends(model)->n, 2);
    assert_int_equal(model_ends(model)->id[1], 5);
    assert_int_equal(model_pad(model), -1);
    const GgufValue *tokens = gguf_find(&gguf, "tokenizer.ggml.tokens");
    assert_true(tokens && tokens->type == GGUF_ARRAY && tokens->element == GGUF_STRING);
    assert_int_equal(tokens->n, 3);
    int64_t integer = 0;
    double real = 0;
    assert_true(gguf_int(&gguf, "llama.block_count", &integer) && integer == 1);
    assert_true(gguf_real(&gguf, "llama.block_count", &real) && real == 1);
    assert_false(gguf_int(&gguf, "general.architecture", &integer));
    assert_false(gguf_int(&gguf, "no.such.key", &integer));
    assert_string_equal(gguf_string(&gguf, "general.architecture", &arena), "llama");
    assert_null(gguf_string(&gguf, "llama.block_count", &arena));
    arena_free(&arena);
    free(copy.data);
}

static void put_turns(Builder *b)
{
    static const char *const texts[] = {"a", "<|endoftext|>", "<|im_end|>", "<|im_end|> "};
    put_u32_pair(b, "tokenizer.ggml.eos_token_id", 2);
    put_string(b, "tokenizer.ggml.tokens");
    put_u32(b, GGUF_ARRAY);
    put_u32(b, GGUF_STRING);
    put_u64(b, 4);
    for (int i = 0; i < 4; i++)
        put_string(b, texts[i]);
}

static void what_ends_a_turn_is_known_by_its_text(void **state)
{
    (void)state;
    static Builder b;
    build(&b, put_turns, 2, NULL);
    Read read = read_image(b.data, b.n, true);
    assert_int_equal(read.code, CVN_OK);
    assert_int_equal(model_ends(read.model)->n, 2);
    assert_int_equal(model_ends(read.model)->id[0], 2);
    assert_int_equal(model_ends(read.model)->id[1], 1);
    arena_free(&read.arena);
}

static void put_first_shard(Builder *b)
{
    put_u32_pair(b, "split.no", 0);
    put_u32_pair(b, "split.count", 2);
    put_u32_pair(b, "split.tensors.count", 2);
}

/* The second of two files, whose header says so (or lies): output_norm.weight, four numbers. */
static void write_second_shard(Builder *b, const char *path, uint32_t no, uint32_t count)
{
    b->n = 0;
    put(b, "GGUF", 4);
    put_u32(b, 3);
    put_u64(b, 1);
    put_u64(b, 2);
    put_u32_pair(b, "split.no", no);
    put_u32_pair(b, "split.count", count);
    put_string(b, "output_norm.weight");
    put_u32(b, 1);
    put_u64(b, 4);
    put_u32(b, 0);
    put_u64(b, 0);
    while (b->n % 32 != 0)
        put(b, "", 1);
    put(b, (float[]){1, 2, 3, 4}, 16);
    assert_int_equal(file_write(path, b->data, b->n, NULL), CVN_OK);
}

static void expect_open(const char *path, const char *message)
{
    IoModel model;
    cvn_err err = {0};
    int code = io_open_as(&model, path, IO_SHOWN, &err);
    if (code == CVN_OK || !strstr(err.message, message))
        fail_msg("%s: %s", message, err.message);
}

static void files_that_are_shards_are_one_model(void **state)
{
    (void)state;
    static Builder b;
    const char *first = in_scratch("m-00001-of-00002.gguf");
    const char *second = in_scratch("m-00002-of-00002.gguf");
    build(&b, put_first_shard, 3, NULL);
    assert_int_equal(file_write(first, b.data, b.n, NULL), CVN_OK);
    assert_int_equal(file_write(in_scratch("other.gguf"), b.data, b.n, NULL), CVN_OK);
    expect_open(first, "m-00002-of-00002.gguf");
    expect_open(in_scratch("other.gguf"), "ends with '-00001-of-00002.gguf'");
    write_second_shard(&b, second, 1, 3);
    expect_open(first, "says that it is shard 2 of 3 where shard 2 of 2 is expected");
    write_second_shard(&b, second, 1, 2);
    expect_open(second, "give the first");
    IoModel model;
    float out[4];
    assert_int_equal(io_open_as(&model, first, IO_SHOWN, NULL), CVN_OK);
    assert_int_equal(model.n_maps, 2);
    assert_int_equal(model.tensors.n, 2);
    io_decode(io_tensors_find(&model.tensors, "output_norm.weight"), 0, 4, out);
    assert_true(out[0] == 1 && out[3] == 4);
    io_close_model(&model);
}

static void put_experts(Builder *b)
{
    put_u32_pair(b, "llama.expert_count", 8);
}

static void put_partial_rope(Builder *b)
{
    put_u32_pair(b, "llama.rope.dimension_count", 4);
}

static void put_longrope(Builder *b)
{
    put_string_pair(b, "llama.rope.scaling.type", "longrope");
}

static void put_yarn(Builder *b)
{
    put_string_pair(b, "llama.rope.scaling.type", "yarn");
    put_f32_pair(b, "llama.rope.scaling.factor", 4);
    put_u32_pair(b, "llama.rope.scaling.original_context_length", 16);
    put_f32_pair(b, "llama.rope.scaling.yarn_beta_fast", 24);
}

static void put_half_yarn(Builder *b)
{
    put_yarn(b);
    put_f32_pair(b, "llama.rope.scaling.yarn_ext_factor", 0.5f);
}

static void put_odd_kv(Builder *b)
{
    put_u32_pair(b, "llama.attention.head_count_kv", 3);
}

static void put_kv_string(Builder *b)
{
    put_string_pair(b, "llama.attention.head_count_kv", "2");
}

static void put_linear(Builder *b)
{
    put_string_pair(b, "llama.rope.scaling.type", "linear");
    put_f32_pair(b, "llama.rope.scaling.factor", 2.5f);
}

static void settings_are_refused_by_name(void **state)
{
    (void)state;
    static const struct {
        void (*extra)(Builder *);
        uint64_t n;
        const char *message;
    } cases[] = {
        {put_experts, 1, "the key 'llama.expert_used_count' is missing"}, /* Mixtral's */
        {put_partial_rope, 1, "rope.dimension_count is 4 where what it repeats is 8"},
        {put_longrope, 1, "rope scaling 'longrope'"},
        {put_half_yarn, 5, "yarn_ext_factor is 0.5"},
        {put_odd_kv, 1, "2 heads cannot share 3"},
        {put_kv_string, 1, "head_count_kv' is missing or not of type integer"},
        {put_linear, 2, NULL},
    };
    static Builder b;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        build(&b, cases[i].extra, cases[i].n, NULL);
        Read read = read_image(b.data, b.n, true);
        if (cases[i].message ? read.code == CVN_OK || !strstr(read.err.message, cases[i].message)
                             : read.code != CVN_OK)
            fail_msg("case %zu: %s", i, read.err.message);
        if (!cases[i].message)
            assert_true(strcmp(model_rope_type(read.model), "linear") == 0 &&
                        model_says(read.model, "rope_scaling.factor") == 2.5);
        arena_free(&read.arena);
    }
}

static void yarn_is_read(void **state)
{
    (void)state;
    static Builder b;
    build(&b, put_yarn, 4, NULL);
    Read read = read_image(b.data, b.n, true);
    if (read.code != CVN_OK)
        fail_msg("%s", read.err.message);
    const Model *m = read.model;
    assert_string_equal(model_rope_type(m), "yarn");
    assert_true(model_says(m, "rope_scaling.original_max_position_embeddings") == 16);
    assert_true(model_says(m, "rope_scaling.factor") == 4 &&
                model_says(m, "rope_scaling.beta_slow") == 1 &&
                model_says(m, "rope_scaling.beta_fast") == 24);
    assert_true(model_says(m, "rope_scaling.truncate") == 1 &&
                model_says(m, "rope_scaling.attention_factor") == 1 + 0.1 * log(4));
    arena_free(&read.arena);
}

static void put_theta(Builder *b)
{
    put_f32_pair(b, "llama.rope.freq_base", 500000);
}

static void factors_stand_for_a_llama3_scaling(void **state)
{
    (void)state;
    static Builder b;
    double plain[4], scaled[4];
    float factors[4];
    const Model *c = model_make("'head_dim': 8, 'rope_theta': 500000");
    model_rope_frequencies(c, 8192, plain);
    c = model_with(c, "'rope_scaling': {'rope_type': 'llama3', 'factor': 32, 'low_freq_factor': 1, "
                      "'high_freq_factor': 4, 'original_max_position_embeddings': 8192}");
    model_rope_frequencies(c, 8192, scaled);
    for (int i = 0; i < 4; i++)
        factors[i] = (float)(plain[i] / scaled[i]);
    build(&b, put_theta, 1, factors);
    Read read = read_image(b.data, b.n, true);
    if (read.code != CVN_OK)
        fail_msg("%s", read.err.message);
    assert_string_equal(model_rope_type(read.model), "llama3");
    assert_true(model_says(read.model, "rope_scaling.factor") == 32);
    arena_free(&read.arena);
    factors[3] *= 1.01f;
    build(&b, put_theta, 1, factors);
    read = read_image(b.data, b.n, true);
    assert_int_equal(read.code, CVN_EUNSUPPORTED);
    arena_free(&read.arena);
}

static void a_cut_or_flipped_file_never_reads_outside(void **state)
{
    (void)state;
    static Builder b;
    build(&b, put_tokens, 7, (float[]){1, 1, 1, 1});
    for (size_t n = 0; n < b.n; n++) {
        Read read = read_image(b.data, n, false);
        assert_true(read.code < 0);
        arena_free(&read.arena);
    }
    size_t refused = 0;
    for (size_t bit = 0; bit < b.n * 8; bit++) {
        b.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
        Read read = read_image(b.data, b.n, true);
        refused += read.code != CVN_OK;
        arena_free(&read.arena);
        b.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    assert_true(refused > 1000);
}

static void shapes_that_overflow_are_refused(void **state)
{
    (void)state;
    static const struct {
        uint64_t dims[4];
        uint32_t rank, type;
        const char *message;
    } cases[] = {
        {{UINT64_C(1) << 62, 4}, 2, 0, "does not fit"},
        {{UINT64_C(1) << 63, 1}, 2, 0, "negative dimension"},
        {{UINT64_C(1) << 32, UINT64_C(1) << 32, 0}, 3, 0, "does not fit"},
        {{UINT64_C(1) << 60}, 1, 0, "does not fit"},
        {{33}, 1, 8, "'x' has 33 elements and does not fit its type Q8_0, whose blocks have 32"},
        {{128, 2}, 2, 12, "does not fit its type Q4_K, whose blocks have 256"},
        {{0}, 0, 12, "has 1 elements and does not fit its type Q4_K"},
        {{256}, 1, 12, "runs past the end"},
        {{UINT64_C(1) << 62}, 1, 9, "does not fit its type Q8_1"},
        {{32, UINT64_C(1) << 58}, 2, 39, "does not fit"},
        {{1, 1, 1, 1}, 5, 0, "5 dimensions"},
        {{1}, 1, 4, "unknown element type 4"},
        {{1}, 1, 4000000000u, "unknown element type"},
        {{64}, 1, 0, "runs past the end"},
        {{4}, 1, 0, NULL},
        {{0}, 1, 0, NULL},
    };
    static Builder b;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        b.n = 0;
        put(&b, "GGUF", 4);
        put_u32(&b, 3);
        put_u64(&b, 1);
        put_u64(&b, 0);
        put_string(&b, "x");
        put_u32(&b, cases[i].rank);
        for (uint32_t d = 0; d < cases[i].rank && d < 4; d++)
            put_u64(&b, cases[i].dims[d]);
        put_u32(&b, cases[i].type);
        put_u64(&b, 0);
        while (b.n % 32 != 0)
            put(&b, "", 1);
        put_u64(&b, 0);
        put_u64(&b, 0);
        Read read = read_image(b.data, b.n, false);
        if (cases[i].message ? read.code == CVN_OK || !strstr(read.err.message, cases[i].message)
                             : read.code != CVN_OK)
            fail_msg("case %zu: %s", i, read.err.message);
        arena_free(&read.arena);
    }
}

static void a_quantized_checkpoint_is_near_the_whole_one(void **state)
{
    (void)state;
    need_shared_data();
    IoModel whole, quantized;
    WholeWeights a, b;
    assert_int_equal(
        io_open_model(&whole, CVN_SHARED_DATA "/checkpoints/stories260K/stories260K.gguf", NULL),
        CVN_OK);
    assert_int_equal(io_open_model(&quantized,
                                   CVN_SHARED_DATA "/checkpoints/stories260K/stories260K.q8_0.gguf",
                                   NULL),
                     CVN_OK);
    whole_load(&a, &whole, CVN_F32);
    whole_load(&b, &quantized, CVN_F32);
    assert_int_equal(a.n, b.n);
    for (int i = 0; i < a.n; i++) {
        const float *x = a.data[i], *y = b.data[i];
        float most = 0;
        for (int64_t e = 0; e < whole.params.param[i].n; e++)
            most = fmaxf(most, fabsf(x[e]));
        for (int64_t e = 0; e < whole.params.param[i].n; e++)
            assert_true(fabsf(x[e] - y[e]) <= most / 127 * 0.55f);
    }
    whole_free(&a);
    whole_free(&b);
    io_close_model(&whole);
    io_close_model(&quantized);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_shared_samples_are_judged_as_expected),
        cmocka_unit_test(a_config_is_read_from_the_keys),
        cmocka_unit_test(values_of_every_shape_are_found),
        cmocka_unit_test(what_ends_a_turn_is_known_by_its_text),
        cmocka_unit_test(files_that_are_shards_are_one_model),
        cmocka_unit_test(settings_are_refused_by_name),
        cmocka_unit_test(yarn_is_read),
        cmocka_unit_test(factors_stand_for_a_llama3_scaling),
        cmocka_unit_test(a_cut_or_flipped_file_never_reads_outside),
        cmocka_unit_test(shapes_that_overflow_are_refused),
        cmocka_unit_test(a_quantized_checkpoint_is_near_the_whole_one),
    };
    return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
