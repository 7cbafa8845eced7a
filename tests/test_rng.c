/* Random numbers against JAX's, against their distribution, and slices against the whole. */
#include "base/rng.h"
#include "unit.h"

#include <jansson.h>
#include <math.h>

static void words_of(const json_t *row, const char *key, uint32_t out[2])
{
    const json_t *pair = json_object_get(row, key);
    for (size_t i = 0; i < 2; i++)
        out[i] = (uint32_t)json_integer_value(json_array_get(pair, i));
}

static void threefry_equals_jax(void **state)
{
    json_t *rows = json_load_file(CVN_TEST_DATA "/rng/threefry2x32.json", 0, NULL);
    assert_non_null(rows);
    assert_int_equal(json_array_size(rows), 32);
    size_t i;
    json_t *row;
    json_array_foreach(rows, i, row)
    {
        uint32_t key[2], counter[2], want[2], got[2];
        words_of(row, "key", key);
        words_of(row, "counter", counter);
        words_of(row, "out", want);
        rng_threefry2x32(key, counter, got);
        assert_int_equal(got[0], want[0]);
        assert_int_equal(got[1], want[1]);
    }
    json_decref(rows);
}

static void a_slice_holds_what_the_whole_holds(void **state)
{
    enum { N = 1500 };
    float whole[N], slice[N];
    RngKey key = rng_key(7, "model.embed_tokens.weight");
    uint64_t base = (UINT64_C(3) << 33) - 700; /* crosses a carry of the low counter word */
    rng_normal(key, base, N, whole);
    for (size_t first = 0; first < 9; first++) {
        for (size_t n = 0; n < N - first; n += 97) {
            rng_normal(key, base + first, n, slice);
            assert_memory_equal(slice, whole + first, n * sizeof *slice);
        }
    }
}

static void names_and_seeds_give_different_streams(void **state)
{
    RngKey a = rng_key(7, "a"), b = rng_key(7, "b"), c = rng_key(8, "a");
    assert_memory_not_equal(&a, &b, sizeof a);
    assert_memory_not_equal(&a, &c, sizeof a);
}

/* Pinned: changing the hash, the key schedule or the counter layout would change every init. */
static void the_numbers_stay_what_they_are(void **state)
{
    uint32_t bits[3];
    float normal[3];
    RngKey key = rng_key(1, "lm_head.weight");
    rng_bits(key, 5, 3, bits);
    rng_normal(key, 5, 3, normal);
    uint32_t want[3] = {0x57bc2028u, 0xd2656b55u, 0x2d743d02u};
    assert_memory_equal(bits, want, sizeof want);
    for (int i = 0; i < 3; i++) {
        double u = ((double)(bits[i] >> 8) + 0.5) * 0x1p-24;
        assert_true(fabs(0.5 * erfc(-(double)normal[i] / sqrt(2.0)) - u) < 1e-6);
    }
}

static void normals_are_normal(void **state)
{
    enum { N = 200000 };
    float *x = malloc(N * sizeof *x);
    assert_non_null(x);
    rng_normal(rng_key(3, "x"), 0, N, x);
    double sum = 0, square = 0, fourth = 0;
    size_t beyond = 0;
    for (size_t i = 0; i < N; i++) {
        double v = x[i];
        sum += v;
        square += v * v;
        fourth += v * v * v * v;
        beyond += fabs(v) > 1.959964;
        assert_true(fabs(v) < 5.5);
    }
    assert_true(fabs(sum / N) < 0.01);
    assert_true(fabs(square / N - 1) < 0.015);
    assert_true(fabs(fourth / N - 3) < 0.1);
    assert_true(fabs((double)beyond / N - 0.05) < 0.002);
    free(x);
}

static void uniforms_are_uniform(void **state)
{
    enum { N = 100000, BINS = 20 };
    float *x = malloc(N * sizeof *x);
    assert_non_null(x);
    size_t bin[BINS] = {0};
    rng_uniform(rng_key(3, "x"), 1, N, x);
    for (size_t i = 0; i < N; i++) {
        assert_true(x[i] >= 0 && x[i] < 1);
        bin[(size_t)((double)x[i] * BINS)]++;
    }
    for (size_t i = 0; i < BINS; i++)
        assert_true(bin[i] > N / BINS - 350 && bin[i] < N / BINS + 350);
    free(x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threefry_equals_jax),
        cmocka_unit_test(a_slice_holds_what_the_whole_holds),
        cmocka_unit_test(names_and_seeds_give_different_streams),
        cmocka_unit_test(the_numbers_stay_what_they_are),
        cmocka_unit_test(normals_are_normal),
        cmocka_unit_test(uniforms_are_uniform),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
