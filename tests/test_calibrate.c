/* Calibrated rounding: products with the inputs that were seen change less than by rounding to the nearest, and numbers do not depend
   on the number of threads; and what convert --calibrate makes of models. */
#include "base/float16.h"
#include "calibrate/round.h"
#include "io/save.h"
#include "io_support.h"
#include "model_make.h"
#include "shell.h"
#include "splitmix.h"

#include <math.h>

enum { N = 40, K = 128, GROUP = 32, TOKENS = 600 };

static float uniform(uint64_t *seed)
{
    return (float)(splitmix(seed) >> 40) * 0x1p-23f - 1;
}

/* Weights, and the sums of inputs whose columns go together, some of them larger than others. */
static void draw_case(float *w, float *sums, uint64_t seed)
{
    static float x[TOKENS][K];
    for (int i = 0; i < N * K; i++)
        w[i] = uniform(&seed);
    memset(sums, 0, K * K * sizeof *sums);
    for (int t = 0; t < TOKENS; t++) {
        float hidden[8];
        for (int h = 0; h < 8; h++)
            hidden[h] = uniform(&seed);
        for (int j = 0; j < K; j++)
            x[t][j] = (hidden[j % 8] + hidden[j % 5] + 0.2f * uniform(&seed)) * (j % 11 ? 1 : 6);
        for (int i = 0; i < K; i++)
            for (int j = 0; j < K; j++)
                sums[i * K + j] += x[t][i] * x[t][j];
    }
}

static void products_change_less_than_by_rounding_to_the_nearest(void **state)
{
    static float w[N * K], sums[K * K];
    static uint8_t q[2][N * K / 2];
    static uint16_t scale[2][N * K / GROUP];
    const QuantForm f = quant_form((QuantScheme){.kind = QUANT_INT4, .group = GROUP}, N, K);
    (void)state;
    for (uint64_t seed = 1; seed < 4; seed++) {
        Pool *pool = pool_new(1, NULL);
        RoundInputs in;
        draw_case(w, sums, seed);
        assert_int_equal(inputs_open(&in, sums, K, pool, NULL), CVN_OK);
        for (int r = 0; r < N; r++)
            quant_row(&f, w + r * K, K, q[0] + r * K / 2, scale[0] + r * K / GROUP);
        assert_int_equal(round_matrix(&in, &f, w, q[1], scale[1], pool, NULL), CVN_OK);
        double plain = round_error(&in, &f, w, q[0], scale[0]);
        double calibrated = round_error(&in, &f, w, q[1], scale[1]);
        if (!(calibrated < 0.5 * plain))
            fail_msg("%g calibrated, %g plain", calibrated, plain);
        inputs_close(&in);
        pool_free(pool);
    }
}

static void numbers_are_the_same_for_any_number_of_threads(void **state)
{
    static float w[N * K], sums[K * K];
    static uint8_t q[2][N * K / 2];
    static uint16_t scale[2][N * K / GROUP];
    const QuantForm f = quant_form((QuantScheme){.kind = QUANT_INT4, .group = GROUP}, N, K);
    (void)state;
    draw_case(w, sums, 9);
    for (int threads = 1; threads < 6; threads++) {
        Pool *pool = pool_new(threads, NULL);
        RoundInputs in;
        const int i = threads > 1;
        assert_int_equal(inputs_open(&in, sums, K, pool, NULL), CVN_OK);
        assert_int_equal(round_matrix(&in, &f, w, q[i], scale[i], pool, NULL), CVN_OK);
        assert_memory_equal(q[0], q[i], sizeof q[0]);
        assert_memory_equal(scale[0], scale[i], sizeof scale[0]);
        inputs_close(&in);
        pool_free(pool);
    }
}

/* Inputs that are all 0, as of a text of one token, and weights of 0. */
static void zeros_are_rounded_to_zeros(void **state)
{
    static float w[N * K], sums[K * K];
    static uint8_t q[N * K / 2];
    static uint16_t scale[N * K / GROUP];
    const QuantForm f = quant_form((QuantScheme){.kind = QUANT_INT4, .group = GROUP}, N, K);
    Pool *pool = pool_new(1, NULL);
    RoundInputs in;
    (void)state;
    assert_int_equal(inputs_open(&in, sums, K, pool, NULL), CVN_OK);
    assert_int_equal(round_matrix(&in, &f, w, q, scale, pool, NULL), CVN_OK);
    for (size_t i = 0; i < sizeof q; i++)
        assert_int_equal(q[i], 0);
    inputs_close(&in);
    pool_free(pool);
}

/* A model with `how` in its config.json, whose columns differ in importance as those of trained models do. */
static void fill_uneven(void *seed, const Param *param, int64_t first, int64_t n, float *out)
{
    const int64_t columns = param->dims[param->rank - 1];
    init_fill(seed, param, first, n, out);
    for (int64_t i = 0; i < n; i++)
        out[i] *= param->rank == 1 ? ((first + i) % 7 ? 1 : 4) : (first + i) % columns % 5 ? 2 : 4;
}

static void make_folder(const char *name, const char *how)
{
    uint64_t seed = 3;
    cvn_err err = {0};
    Model *c = model_make("'hidden_size': 128, 'num_hidden_layers': 3, 'num_attention_heads': 4, "
                          "'num_key_value_heads': 2, 'intermediate_size': 192, 'vocab_size': 80, "
                          "'max_position_embeddings': 64%s",
                          how);
    const SaveOptions options = {.dtype = CVN_F32, .threads = 1, .force = true};
    if (save_folder(in_scratch(name), c, &options, fill_uneven, &seed, &err))
        fail_msg("%s", err.message);
}

/* How far the log-probabilities of some tokens are from those of the model itself, squared. */
static double distance(const char *model)
{
    char command[512];
    double sum = 0;
    int n = 0;
    const char *const of[] = {"floats", model};
    char *text[2];
    for (int i = 0; i < 2; i++) {
        snprintf(
            command, sizeof command,
            "caravan score -m %s --dtype f32 --json --tokens "
            "1,2,3,4,5,6,7,8,9,10,40,30,20,10,60,70,75,74,73,22,33,44,55,66,77,11,21,31 >scores",
            of[i]);
        expect(0, command, "");
        Bytes scores = bytes_of_file(in_scratch("scores"));
        text[i] = calloc(scores.n + 1, 1);
        memcpy(text[i], scores.data, scores.n);
        free(scores.data);
    }
    char *a = strstr(text[0], "\"logprobs\""), *b = strstr(text[1], "\"logprobs\"");
    assert_non_null(a);
    assert_non_null(b);
    for (a = strchr(a, '[') + 1, b = strchr(b, '[') + 1; *a != ']' && *b != ']';) {
        char *p, *q;
        double d = strtod(a, &p) - strtod(b, &q);
        if (p == a) { /* null, of the first token */
            p = a + strcspn(a, ",]");
            q = b + strcspn(b, ",]");
            d = 0;
        }
        sum += d * d;
        n++;
        a = p + strspn(p, ", \n");
        b = q + strspn(q, ", \n");
    }
    free(text[0]);
    free(text[1]);
    assert_int_equal(n, 28);
    return sum;
}

/* caravan convert, as it should go. */
static void convert(const char *from, const char *to, const char *how)
{
    char text[512];
    snprintf(text, sizeof text, "caravan convert %s %s %s%s --force 2>/dev/null", from, to, how,
             strstr(how, "--calibrate") ? " --calibration-tokens 1024" : "");
    expect(0, text, to);
}

/* By a text that the model makes itself: a folder in int4 and a GGUF file are nearer to the model than without, and each is the same
   for any number of threads. */
static void calibrated_models_are_nearer(void **state)
{
    (void)state;
    make_folder("floats", "");
    convert("floats", "plain", "--type int4:64");
    convert("floats", "one", "--type int4:64 --bits 4.25 -t 1 --calibrate");
    convert("floats", "three", "--type int4:64 --bits 4.25 -t 3 --calibrate");
    expect(0, "diff -r one three && ! grep int8 one/config.json && echo none", "none\n");
    convert("floats", "plain.gguf", "--type q4_0");
    convert("floats", "one.gguf", "--type q4_0 -t 1 --calibrate");
    convert("floats", "three.gguf", "--type q4_0 -t 3 --calibrate");
    expect(0, "cmp one.gguf three.gguf && ! cmp -s one.gguf plain.gguf && echo others", "others\n");
    const double plain = distance("plain"), one = distance("one");
    const double blocks = distance("plain.gguf"), better = distance("one.gguf");
    if (!(one < 0.7 * plain) || !(better < blocks))
        fail_msg("int4 %g, calibrated %g; q4_0 %g, calibrated %g", plain, one, blocks, better);
}

/* Matrices are kept in 8 bits as far as the bits that are allowed reach, and the folder says which. */
static void the_most_sensitive_matrices_stay_in_8_bits(void **state)
{
    (void)state;
    make_folder("floats", "");
    convert("floats", "few", "--type int4:64 --bits 4.25 --calibrate");
    convert("floats", "more", "--type int4:64 --bits 5.5 --calibrate");
    convert("floats", "all", "--type int4:64 --bits 9 --calibrate");
    expect(1, "grep modules_in_int8 few/config.json", "");
    expect(0, "grep -c 'model.layers' all/config.json", "21\n");
    expect(0,
           "n=$(grep -c 'model.layers' more/config.json); test $n -gt 2 && test $n -lt 15 && echo "
           "some",
           "some\n");
    const double few = distance("few"), more = distance("more"), all = distance("all");
    if (!(all < 0.3 * more && more < 0.5 * few))
        fail_msg("%g, with some in 8 bits %g, with all %g", few, more, all);
    convert("more", "wide", "--type f32");
    assert_true(fabs(distance("wide") / more - 1) < 0.01);
    expect(0,
           "sed -i 's/model.layers.[0-9].[a-z_.]*/model.layers.0.mlp.left_proj/' more/config.json",
           "");
    expect(1, "caravan inspect -m more 2>&1",
           "'more/config.json': modules_in_int8 is \"model.layers.0.mlp.left_proj\"");
}

/* The head is the last matrix, whose errors nothing makes good: in int4 it has 8 bits. */
static void the_head_of_int4_is_in_8_bits(void **state)
{
    (void)state;
    make_folder("floats", ", 'tie_word_embeddings': true");
    convert("floats", "four", "--type int4");
    expect(0, "caravan inspect -m four --tensors | grep lm_head", "80, 128");
    expect(0, "grep group_size four/config.json", "32");
}

static void what_calibration_is_not_for_is_refused(void **state)
{
    (void)state;
    make_folder("floats", "");
    expect(1, "caravan convert floats x --type int8 --calibrate 2>&1",
           "--calibrate works with the types");
    expect(1, "caravan convert floats x.gguf --type q4_0 --calibrate --bits 5 2>&1",
           "--bits works with the types int4");
    expect(2, "caravan convert floats x --type int4 --bits 5 2>&1", "--calibrate");
    expect(1, "caravan convert floats x --type int4 --calibrate nowhere.txt 2>&1", "nowhere.txt");
    expect(2, "caravan convert floats x --type int4 --calibrate= 2>&1", "--calibrate is empty");
    expect(0, "! ls | grep ^x && echo nothing", "nothing\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_change_less_than_by_rounding_to_the_nearest),
        cmocka_unit_test(numbers_are_the_same_for_any_number_of_threads),
        cmocka_unit_test(zeros_are_rounded_to_zeros),
        cmocka_unit_test(calibrated_models_are_nearer),
        cmocka_unit_test(the_most_sensitive_matrices_stay_in_8_bits),
        cmocka_unit_test(the_head_of_int4_is_in_8_bits),
        cmocka_unit_test(what_calibration_is_not_for_is_refused),
    };
    return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
