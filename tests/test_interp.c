/* The interpreter on whole graphs: devices in lockstep, outputs, memory, errors; and what XLA does
   differently. What single operations give is compared with XLA in test_interp_oracle.c, composites
   with their decompositions in test_decompose.c. */
#include "graph/interp/interp.h"
#include "unit.h"

#include <math.h>
#include <sys/resource.h>

static cvn_graph *new_graph(void)
{
    cvn_graph *g = cvn_graph_new("test", NULL);
    assert_non_null(g);
    return g;
}

static void free_all(void **buffers, int n)
{
    for (int i = 0; i < n; i++)
        free(buffers[i]);
}

static void an_output_may_be_a_parameter_or_come_twice(void **state)
{
    cvn_graph *g = new_graph();
    cvn_value *x = cvn_parameter(g, "x", CVN_TYPE(CVN_F32, 2));
    cvn_value *y = cvn_negate(g, cvn_add(g, x, x));
    cvn_output(g, x);
    cvn_output(g, y);
    cvn_output_into(g, y, x);
    float data[2] = {1, -3};
    void *out[3];
    assert_int_equal(interp_run_one(g, (const void *[]){data}, out, NULL), 0);
    for (int i = 0; i < 2; i++) {
        assert_true(((float *)out[0])[i] == data[i]);
        assert_true(((float *)out[1])[i] == -2 * data[i]);
        assert_true(((float *)out[2])[i] == -2 * data[i]);
    }
    assert_true(data[0] == 1 && data[1] == -3); /* into a parameter, but inputs are not written */
    free_all(out, 3);
    cvn_graph_free(g);
}

/* Four devices in two groups, (0, 2) and (3, 1): device d holds 10 d, 10 d + 1, …. */
enum { DEVICES = 4, SIZE = 4 };
static const int64_t groups[] = {0, 2, 3, 1};
static const int partner[] = {2, 3, 0, 1}, position[] = {0, 1, 1, 0};

static void run_devices(cvn_graph *g, void **out)
{
    int32_t data[DEVICES][SIZE];
    const void *in[DEVICES];
    for (int d = 0; d < DEVICES; d++) {
        for (int i = 0; i < SIZE; i++)
            data[d][i] = 10 * d + i;
        in[d] = data[d];
    }
    cvn_err err = {0};
    must(interp_run(g, DEVICES, in, out, &err), &err);
}

static void collectives_exchange_within_their_groups(void **state)
{
    cvn_graph *g = new_graph();
    cvn_value *x = cvn_parameter(g, "x", CVN_TYPE(CVN_I32, SIZE));
    cvn_output(g, cvn_all_reduce(g, x, CVN_SUM, 2, 2, groups));
    cvn_output(g, cvn_all_gather(g, x, 0, 2, 2, groups));
    cvn_output(g, cvn_reduce_scatter(g, x, CVN_MAX, 0, 2, 2, groups));
    cvn_output(g, cvn_all_to_all(g, x, 0, 0, 2, 2, groups));
    cvn_output(g, cvn_collective_permute(g, x, 3, (const int64_t[]){0, 1, 1, 2, 2, 0}));
    cvn_output(g, cvn_partition_id(g));
    enum { OUTPUTS = 6 };
    void *out[DEVICES * OUTPUTS];
    run_devices(g, out);
    for (int d = 0; d < DEVICES; d++) {
        int first = position[d] == 0 ? d : partner[d], second = position[d] == 0 ? partner[d] : d;
        int32_t **y = (int32_t **)(out + d * OUTPUTS);
        int larger = d > partner[d] ? d : partner[d];
        for (int i = 0; i < SIZE; i++) {
            assert_int_equal(y[0][i], 10 * (d + partner[d]) + 2 * i);
            assert_int_equal(y[1][i], 10 * first + i);
            assert_int_equal(y[1][SIZE + i], 10 * second + i);
            assert_int_equal(y[3][i],
                             10 * (i < SIZE / 2 ? first : second) + 2 * position[d] + i % 2);
            assert_int_equal(y[4][i], d == 3 ? 0 : 10 * ((d + 2) % 3) + i);
        }
        for (int i = 0; i < SIZE / 2; i++)
            assert_int_equal(y[2][i], 10 * larger + 2 * position[d] + i);
        assert_int_equal(y[5][0], d);
    }
    free_all(out, DEVICES * OUTPUTS);
    cvn_graph_free(g);
}

/* x [2, 4] with rows split over the columns' devices: all_to_all along (0 -> 1), then back. */
static void all_to_all_there_and_back_is_the_identity(void **state)
{
    cvn_graph *g = new_graph();
    cvn_value *x = cvn_parameter(g, "x", CVN_TYPE(CVN_I32, 2, 2));
    cvn_value *y = cvn_all_to_all(g, x, 0, 1, 2, 2, groups); /* [1, 4] */
    cvn_output(g, y);
    cvn_output(g, cvn_all_to_all(g, y, 1, 0, 2, 2, groups));
    void *out[DEVICES * 2];
    run_devices(g, out);
    for (int d = 0; d < DEVICES; d++) {
        int32_t **z = (int32_t **)(out + d * 2);
        int first = position[d] == 0 ? d : partner[d], second = position[d] == 0 ? partner[d] : d;
        for (int i = 0; i < SIZE; i++) {
            int sender = i < 2 ? first : second;
            assert_int_equal(z[0][i], 10 * sender + 2 * position[d] + i % 2);
            assert_int_equal(z[1][i], 10 * d + i);
        }
    }
    free_all(out, DEVICES * 2);
    cvn_graph_free(g);
}

static void a_device_without_a_group_is_an_error(void **state)
{
    cvn_graph *g = new_graph();
    cvn_value *x = cvn_parameter(g, "x", CVN_TYPE(CVN_I32, SIZE));
    cvn_output(g, cvn_all_reduce(g, x, CVN_SUM, 2, 2, groups));
    int32_t data[SIZE] = {0};
    const void *in[5] = {data, data, data, data, data};
    void *out[5];
    cvn_err few = {0}, many = {0}, none = {0};
    assert_int_equal(interp_run(g, 5, in, out, &few), CVN_EINVAL);
    assert_non_null(strstr(few.message, "each must be in one group"));
    assert_int_equal(interp_run(g, 3, in, out, &many), CVN_EINVAL);
    assert_non_null(strstr(many.message, "device 3"));
    assert_int_equal(interp_run(g, 0, in, out, &none), CVN_EINVAL);
    cvn_graph_free(g);
}

/* With AddressSanitizer too, memory that cannot be had is NULL and not the end of the process. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "allocator_may_return_null=1";
}

static void memory_that_cannot_be_had_is_an_error(void **state)
{
    cvn_graph *g = new_graph();
    cvn_value *x = cvn_splat(g, CVN_TYPE(CVN_F32, INT64_C(1) << 55), 1);
    cvn_output(g, x);
    void *out[1] = {g};
    cvn_err err = {0};
    int code = interp_run_one(g, NULL, out, &err);
    assert_int_equal(code, CVN_EMEM);
    assert_non_null(strstr(err.message, "f32["));
    assert_null(out[0]);
    cvn_graph_free(g);
}

static void errors_of_building_come_back_from_a_run(void **state)
{
    cvn_graph *g = new_graph();
    cvn_value *x = cvn_parameter(g, "x", CVN_TYPE(CVN_F32, 2));
    cvn_output(g, cvn_add(g, x, cvn_parameter(g, "y", CVN_TYPE(CVN_F32, 3))));
    void *out[1];
    cvn_err err = {0};
    assert_int_equal(interp_run_one(g, NULL, out, &err), CVN_ESHAPE);
    assert_non_null(strstr(err.message, "add"));
    cvn_graph_free(g);
}

/* XLA flushes subnormal numbers, so what they give is not in the stored cases. */
static void subnormal_numbers_are_numbers(void **state)
{
    cvn_graph *g = new_graph();
    cvn_value *x = cvn_parameter(g, "x", CVN_TYPE(CVN_F32, 2));
    cvn_value *b = cvn_parameter(g, "b", CVN_TYPE(CVN_BF16, 1));
    cvn_value *zero = cvn_splat(g, CVN_TYPE(CVN_F32, 2), 0);
    cvn_output(g, cvn_add(g, x, x));
    cvn_output(g, cvn_sign(g, x));
    cvn_output(g, cvn_floor(g, x));
    cvn_output(g, cvn_compare_values(g, CVN_GT, x, zero));
    cvn_output(g, cvn_convert(g, x, CVN_BOOL));
    cvn_output(g, cvn_add(g, b, b));
    float least[2] = {0x1p-149f, -0x1p-149f};
    uint16_t least_bf16 = 1;
    void *out[6];
    assert_int_equal(interp_run_one(g, (const void *[]){least, &least_bf16}, out, NULL), 0);
    for (int i = 0; i < 2; i++) {
        assert_true(((float *)out[0])[i] == 2 * least[i]);
        assert_true(((float *)out[1])[i] == (i ? -1 : 1));
        assert_true(((float *)out[2])[i] == (i ? -1 : 0));
        assert_int_equal(((uint8_t *)out[3])[i], i == 0);
        assert_int_equal(((uint8_t *)out[4])[i], 1);
    }
    assert_int_equal(((uint16_t *)out[5])[0], 2);
    free_all(out, 6);
    cvn_graph_free(g);
}

/* StableHLO's text: an update outside is skipped element by element. XLA drops the whole window. */
static void scatter_keeps_the_part_of_a_window_that_is_inside(void **state)
{
    cvn_graph *g = new_graph();
    cvn_value *x = cvn_parameter(g, "x", CVN_TYPE(CVN_I32, 4));
    cvn_value *at = cvn_parameter(g, "at", CVN_TYPE(CVN_I32, 2, 1));
    cvn_value *u = cvn_parameter(g, "u", CVN_TYPE(CVN_I32, 2, 3));
    const cvn_gather_dims dims = {
        .n_window = 1, .window = {1}, .n_index_map = 1, .index_map = {0}, .index_vector_dim = 1};
    cvn_output(g, cvn_scatter_add(g, x, at, u, &dims));
    int32_t x_data[4] = {0}, at_data[2] = {-1, 2}, u_data[6] = {1, 2, 3, 4, 5, 6};
    void *out[1];
    cvn_err err = {0};
    must(interp_run_one(g, (const void *[]){x_data, at_data, u_data}, out, &err), &err);
    const int32_t expected[4] = {2, 3, 4, 5};
    assert_memory_equal(out[0], expected, sizeof expected);
    free(out[0]);
    cvn_graph_free(g);
}

/* The padding nibble after an odd number of i4 is zero, whatever the memory held. */
static void the_last_nibble_of_odd_i4_is_zero(void **state)
{
    cvn_graph *g = new_graph();
    cvn_value *x = cvn_parameter(g, "x", CVN_TYPE(CVN_I4, 3));
    cvn_value *y = cvn_reverse(g, x, 1, (const int[]){0});
    uint8_t in[2] = {0x21, 0xf3}, out[2] = {0xff, 0xff};
    interp_op(y->def, (const void *[]){in}, (void *[]){out});
    assert_int_equal(out[0], 0x23);
    assert_int_equal(out[1], 0x01);
    cvn_graph_free(g);
}

/* A head wider than the pieces that the interpreter makes the result in. The second query's score is
   larger by ln 3 for key 1 than for key 0: weights 1/4 and 3/4. */
static void attention_of_wide_heads_is_made_in_pieces(void **state)
{
    enum { DIM = 600 };
    cvn_graph *g = new_graph();
    cvn_type cache = CVN_TYPE(CVN_F32, 1, 1, 2, DIM);
    cvn_value *q = cvn_parameter(g, "q", CVN_TYPE(CVN_F32, 1, 2, 1, DIM));
    cvn_value *k = cvn_parameter(g, "k", cache), *v = cvn_parameter(g, "v", cache);
    cvn_value *start = cvn_parameter(g, "start", CVN_TYPE(CVN_I32, 1));
    cvn_value *length = cvn_parameter(g, "length", CVN_TYPE(CVN_I32, 1));
    cvn_output(g, cvn_attention(g, q, k, v, start, length, &(cvn_attention_spec){.scale = 0.5}));
    float q_data[2 * DIM] = {0}, k_data[2 * DIM] = {0}, v_data[2 * DIM];
    q_data[2 * DIM - 1] = 2;
    k_data[2 * DIM - 1] = (float)log(3);
    for (int i = 0; i < DIM; i++) {
        v_data[i] = (float)i;
        v_data[DIM + i] = (float)(i + 4);
    }
    int32_t start_data = 0, length_data = 2;
    const void *in[] = {q_data, k_data, v_data, &start_data, &length_data};
    void *out[1];
    assert_int_equal(interp_run_one(g, in, out, NULL), 0);
    const float *y = out[0];
    for (int i = 0; i < DIM; i++) {
        assert_true(y[i] == (float)i); /* the first query sees one key */
        assert_true(fabsf(y[DIM + i] - (float)(i + 3)) < 1e-4f);
    }
    free(out[0]);
    cvn_graph_free(g);
}

/* The part of the cache behind a row's end may never have been written. */
static void attention_never_looks_at_keys_behind_the_query(void **state)
{
    cvn_graph *g = new_graph();
    cvn_type cache = CVN_TYPE(CVN_F32, 1, 1, 4, 2);
    cvn_value *q = cvn_parameter(g, "q", CVN_TYPE(CVN_F32, 1, 2, 1, 2));
    cvn_value *k = cvn_parameter(g, "k", cache), *v = cvn_parameter(g, "v", cache);
    cvn_value *start = cvn_parameter(g, "start", CVN_TYPE(CVN_I32, 1));
    cvn_value *length = cvn_parameter(g, "length", CVN_TYPE(CVN_I32, 1));
    cvn_output(g, cvn_attention(g, q, k, v, start, length, &(cvn_attention_spec){.scale = 1}));
    float q_data[4] = {0, 0, 0, 0}, k_data[8] = {1, 2, 3, 4, NAN, NAN, NAN, NAN};
    float v_data[8] = {1, 2, 3, 6, NAN, NAN, INFINITY, NAN};
    int32_t start_data = 1, length_data = 1;
    const void *in[] = {q_data, k_data, v_data, &start_data, &length_data};
    void *out[1];
    assert_int_equal(interp_run_one(g, in, out, NULL), 0);
    const float *y = out[0];
    assert_true(y[0] == 2 && y[1] == 4); /* equal scores: the mean of two values */
    assert_true(y[2] == 0 && y[3] == 0); /* a query of padding */
    free(out[0]);
    cvn_graph_free(g);
}

/* Two hundred tensors of a mebibyte one after the other never take more than a few at once. */
static void temporaries_are_freed_after_their_last_use(void **state)
{
    if (SANITIZED)
        skip(); /* AddressSanitizer keeps freed memory for a while */
    enum { BYTES = 1 << 20, STEPS = 200 };
    cvn_graph *g = new_graph();
    cvn_value *x = cvn_splat(g, CVN_TYPE(CVN_I8, BYTES), 1);
    for (int i = 0; i < STEPS; i++)
        x = cvn_negate(g, x);
    cvn_output(g, x);
    struct rusage before, after;
    void *out[1];
    getrusage(RUSAGE_SELF, &before);
    assert_int_equal(interp_run_one(g, NULL, out, NULL), 0);
    getrusage(RUSAGE_SELF, &after);
    assert_int_equal(((int8_t *)out[0])[BYTES - 1], 1);
    assert_true((after.ru_maxrss - before.ru_maxrss) * 1024 < 20 * BYTES);
    free(out[0]);
    cvn_graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_output_may_be_a_parameter_or_come_twice),
        cmocka_unit_test(collectives_exchange_within_their_groups),
        cmocka_unit_test(all_to_all_there_and_back_is_the_identity),
        cmocka_unit_test(a_device_without_a_group_is_an_error),
        cmocka_unit_test(memory_that_cannot_be_had_is_an_error),
        cmocka_unit_test(errors_of_building_come_back_from_a_run),
        cmocka_unit_test(subnormal_numbers_are_numbers),
        cmocka_unit_test(scatter_keeps_the_part_of_a_window_that_is_inside),
        cmocka_unit_test(the_last_nibble_of_odd_i4_is_zero),
        cmocka_unit_test(temporaries_are_freed_after_their_last_use),
        cmocka_unit_test(attention_of_wide_heads_is_made_in_pieces),
        cmocka_unit_test(attention_never_looks_at_keys_behind_the_query),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
