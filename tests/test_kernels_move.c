/* Kernels that move elements, and the small ones that sampling needs: exact, for every element size. */
#include "kernel_check.h"

static const cvn_dtype all[] = {CVN_F32, CVN_BF16, CVN_I8, CVN_F64, CVN_BOOL};
enum { ALL = sizeof all / sizeof *all };

static void finish(Check *c, cvn_value *v)
{
    check_inputs(c, v);
    check_kernels(c, 1);
    check_end(c);
}

static void broadcasts(void **state)
{
    for (int d = 0; d < ALL; d++) {
        Check c = check_begin();
        cvn_value *x = check_parameter(&c, cvn_scalar(all[d]));
        finish(&c, cvn_broadcast_in_dim(c.g, x, CVN_TYPE(all[d], 3, 131), NULL));
        c = check_begin();
        x = check_parameter(&c, CVN_TYPE(all[d], 17));
        finish(&c, cvn_broadcast_in_dim(c.g, x, CVN_TYPE(all[d], 5, 17, 3), (int[]){1}));
        c = check_begin();
        x = check_parameter(&c, CVN_TYPE(all[d], 3, 1, 7));
        finish(&c, cvn_broadcast_in_dim(c.g, x, CVN_TYPE(all[d], 3, 4, 1, 7), (int[]){0, 1, 3}));
        c = check_begin();
        x = check_parameter(&c, CVN_TYPE(all[d], 3, 1));
        finish(&c, cvn_broadcast_in_dim(c.g, x, CVN_TYPE(all[d], 3, 0), (int[]){0, 1}));
    }
}

static void transposes_of_every_order(void **state)
{
    static const int orders[][3] = {{0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    static const int64_t shapes[][3] = {{3, 17, 31}, {1, 33, 2}, {40, 5, 16}, {2, 0, 3}};
    for (int d = 0; d < ALL; d++)
        for (int o = 0; o < 5; o++)
            for (int s = 0; s < 4; s++) {
                Check c = check_begin();
                cvn_value *x =
                    check_parameter(&c, CVN_TYPE(all[d], shapes[s][0], shapes[s][1], shapes[s][2]));
                finish(&c, cvn_transpose(c.g, x, orders[o]));
            }
    Check c = check_begin();
    cvn_value *x = check_parameter(&c, CVN_TYPE(CVN_F32, 2, 3, 5, 7, 4));
    finish(&c, cvn_transpose(c.g, x, (int[]){3, 0, 4, 2, 1}));
}

static void slices_and_reverses(void **state)
{
    for (int d = 0; d < ALL; d++) {
        Check c = check_begin();
        cvn_value *x = check_parameter(&c, CVN_TYPE(all[d], 5, 17, 9));
        finish(&c, cvn_slice(c.g, x, (int64_t[]){1, 2, 0}, (int64_t[]){4, 17, 9},
                             (int64_t[]){1, 3, 2}));
        c = check_begin();
        x = check_parameter(&c, CVN_TYPE(all[d], 5, 17, 9));
        finish(&c, cvn_slice_axis(c.g, x, 1, 16, 17));
        c = check_begin();
        x = check_parameter(&c, CVN_TYPE(all[d], 5, 17, 9));
        finish(&c, cvn_slice_axis(c.g, x, 1, 3, 3));
        c = check_begin();
        x = check_parameter(&c, CVN_TYPE(all[d], 5, 17, 9));
        finish(&c, cvn_reverse(c.g, x, 2, (int[]){0, 2}));
    }
}

static void concatenations(void **state)
{
    for (int d = 0; d < ALL; d++)
        for (int axis = 0; axis < 3; axis++) {
            Check c = check_begin();
            cvn_value *x[4];
            for (int i = 0; i < 4; i++) {
                int64_t dim[3] = {3, 4, 5};
                dim[axis] = i * 3 % 5;
                x[i] = check_parameter(&c, cvn_type_make(all[d], 3, dim));
            }
            finish(&c, cvn_concatenate(c.g, 4, x, axis));
        }
}

static void pads_outside_between_and_negative(void **state)
{
    static const int64_t rows[][9] = {
        /* low, high, interior of three dimensions */
        {1, 0, 2, 0, 3, 1, 0, 0, 0},    {0, 0, 0, 0, 0, 0, 2, 1, 0},
        {-1, 2, -2, 1, -3, 0, 0, 1, 2}, {-5, 5, 0, 5, 0, 0, 0, 0, 0},
        {0, -2, -9, 0, 1, 12, 0, 0, 0},
    };
    for (int d = 0; d < ALL; d++)
        for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
            Check c = check_begin();
            cvn_value *x = check_parameter(&c, CVN_TYPE(all[d], 4, 5, 7));
            cvn_value *value = check_parameter(&c, cvn_scalar(all[d]));
            finish(&c, cvn_pad(c.g, x, value, rows[r], rows[r] + 3, rows[r] + 6));
        }
}

static void dynamic_slices_clamped_into_bounds(void **state)
{
    static const double starts[][2] = {{0, 0}, {2, 3}, {-7, 100}, {100, -1}};
    for (int d = 0; d < ALL; d++)
        for (int s = 0; s < 4; s++)
            for (int update = 0; update < 2; update++) {
                Check c = check_begin();
                cvn_value *x = check_parameter(&c, CVN_TYPE(all[d], 7, 33));
                cvn_value *u = update ? check_parameter(&c, CVN_TYPE(all[d], 3, 9)) : NULL;
                cvn_value *at[2] = {check_parameter(&c, cvn_scalar(CVN_I32)),
                                    check_parameter(&c, cvn_scalar(CVN_I32))};
                check_inputs(&c, update ? cvn_dynamic_update_slice(c.g, x, u, at)
                                        : cvn_dynamic_slice(c.g, x, at, (int64_t[]){3, 9}));
                for (int i = 0; i < 2; i++)
                    element_set(CVN_I32, c.in[1 + update + i].data, 0, starts[s][i]);
                check_kernels(&c, 1);
                check_end(&c);
            }
}

static void rows_of_a_table(void **state)
{
    for (int d = 0; d < ALL; d++)
        for (int rank = 0; rank < 3; rank++) {
            Check c = check_begin();
            cvn_value *table = check_parameter(&c, CVN_TYPE(all[d], 11, 17));
            cvn_type type = CVN_TYPE(CVN_I32, 4, 7);
            type.rank = rank;
            cvn_value *indices = check_parameter(&c, type);
            check_inputs(&c, cvn_take_rows(c.g, table, indices));
            check_fill(&type, c.in[1].data, -3, 15);
            check_kernels(&c, 1);
            check_end(&c);
        }
}

/* Windows in the middle, batch dimensions, index vectors of several components, clamped starts. */
static void gathers_of_every_form(void **state)
{
    static const struct {
        cvn_type x, indices;
        cvn_gather_dims dims;
        int64_t sizes[3];
    } rows[] = {
        {{CVN_F32, 3, {3, 11, 17}},
         {CVN_I32, 2, {3, 1}},
         {.n_window = 1,
          .window = {1},
          .n_collapsed = 1,
          .collapsed = {1},
          .n_operand_batch = 1,
          .operand_batch = {0},
          .n_index_batch = 1,
          .index_batch = {0},
          .n_index_map = 1,
          .index_map = {1},
          .index_vector_dim = 1},
         {1, 1, 17}},
        {{CVN_F32, 3, {5, 11, 7}},
         {CVN_I32, 3, {2, 4, 3}},
         {.n_window = 2,
          .window = {0, 2},
          .n_collapsed = 1,
          .collapsed = {0},
          .n_index_map = 2,
          .index_map = {1, 0},
          .index_vector_dim = 0},
         {1, 4, 7}},
        {{CVN_F32, 2, {5, 7}},
         {CVN_I32, 1, {6}},
         {.n_window = 2,
          .window = {0, 2},
          .n_index_map = 1,
          .index_map = {1},
          .index_vector_dim = 1},
         {3, 2}},
        {{CVN_F32, 2, {5, 7}},
         {CVN_I32, 2, {6, 0}},
         {.n_window = 2, .window = {1, 2}, .index_vector_dim = 1},
         {0, 2}},
    };
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
        for (int d = 0; d < ALL; d++) {
            Check c = check_begin();
            cvn_type type = rows[r].x;
            type.dtype = all[d];
            cvn_value *x = check_parameter(&c, type);
            cvn_value *indices = check_parameter(&c, rows[r].indices);
            check_inputs(&c, cvn_gather(c.g, x, indices, &rows[r].dims, rows[r].sizes));
            check_fill(&indices->type, c.in[1].data, -2, 12);
            check_kernels(&c, 1);
            check_end(&c);
        }
}

static void sums_into_rows(void **state)
{
    cvn_gather_dims dims = {
        .n_window = 1, .n_collapsed = 1, .n_index_map = 1, .window = {1}, .index_vector_dim = 1};
    for (int d = 0; d < 2; d++) {
        Check c = check_begin();
        cvn_value *x = check_parameter(&c, CVN_TYPE(all[d], 5, 67));
        cvn_value *indices = check_parameter(&c, CVN_TYPE(CVN_I32, 19));
        cvn_value *updates = check_parameter(&c, CVN_TYPE(all[d], 19, 67));
        check_inputs(&c, cvn_scatter_add(c.g, x, indices, updates, &dims));
        check_fill(&indices->type, c.in[1].data, -2, 7);
        check_kernels(&c, 1);
        check_end(&c);
    }
}

static void sorts_stably_in_both_directions(void **state)
{
    static const cvn_dtype keys[] = {CVN_F32, CVN_BF16, CVN_F16, CVN_I32, CVN_U32, CVN_I8};
    static const int64_t sizes[] = {0, 1, 3, 64, 65, 259, 4001};
    for (int d = 0; d < 6; d++)
        for (int s = 0; s < 7; s++)
            for (int kind = 0; kind < 8; kind++) { /* direction, with payload, lines apart */
                Check c = check_begin();
                int64_t apart = kind & 4 ? 5 : 1;
                cvn_value *x = check_parameter(&c, CVN_TYPE(keys[d], 3, sizes[s], apart)), *out[2];
                if (kind & 2) {
                    cvn_value *payload = check_parameter(&c, CVN_TYPE(CVN_I32, 3, sizes[s], apart));
                    cvn_sort_pair(c.g, x, payload, 1, kind & 1, out);
                } else {
                    out[0] = cvn_sort(c.g, x, 1, kind & 1);
                }
                check_inputs(&c, out[0]);
                check_fill(&x->type, c.in[0].data, -50, 50);
                for (int64_t i = 0; i < cvn_type_elements(&x->type); i += 5) /* equal ones */
                    element_set(keys[d], c.in[0].data, i, (double)(i % 4) - 1);
                if (kind & 2)
                    for (int64_t i = 0; i < cvn_type_elements(&x->type); i++)
                        ((int32_t *)c.in[1].data)[i] = (int32_t)i;
                check_kernels(&c, 1);
                check_end(&c);
            }
}

/* Fewer rows than threads; small ranges, so that some digits are all equal, and wide ones. */
static void long_rows_are_sorted_by_all_threads(void **state)
{
    static const cvn_dtype keys[] = {CVN_F32, CVN_I32, CVN_U32};
    for (int d = 0; d < 3; d++)
        for (int kind = 0; kind < 8; kind++) { /* direction, rows, range */
            Check c = check_begin();
            cvn_value *x = check_parameter(&c, CVN_TYPE(keys[d], 1 + (kind >> 1 & 1), 8192 + 301));
            double most = kind & 4 ? 1e6 : 3;
            check_inputs(&c, cvn_sort(c.g, x, 1, kind & 1));
            check_fill(&x->type, c.in[0].data, keys[d] == CVN_U32 ? 0 : -most, most);
            check_kernels(&c, 1);
            check_end(&c);
        }
}

static void counts_and_running_sums(void **state)
{
    static const cvn_dtype numbers[] = {CVN_F32, CVN_BF16, CVN_F16, CVN_I32,
                                        CVN_U32, CVN_F64,  CVN_I8};
    for (int d = 0; d < 7; d++)
        for (int axis = 0; axis < 3; axis++) {
            Check c = check_begin();
            finish(&c, cvn_iota(c.g, CVN_TYPE(numbers[d], 3, 571, 5), axis));
            c = check_begin();
            cvn_value *x = check_parameter(&c, CVN_TYPE(numbers[d], 3, 571, 5));
            c.relative = d == 0 ? 1e-6 : 0;
            check_inputs(&c, cvn_cumsum(c.g, x, axis));
            check_fill(&x->type, c.in[0].data, 0, 9);
            check_kernels(&c, 1);
            check_end(&c);
            c = check_begin();
            x = check_parameter(&c, CVN_TYPE(numbers[d], 3, 571, 5));
            c.relative = d == 0 ? 1e-6 : 0;
            check_inputs(&c, cvn_cumprod(c.g, x, axis));
            check_fill(&x->type, c.in[0].data, -3, 3);
            check_kernels(&c, 1);
            check_end(&c);
        }
    Check c = check_begin();
    cvn_value *x[4];
    for (int i = 0; i < 4; i++)
        x[i] = check_parameter(&c, CVN_TYPE(CVN_U32, 3, 127));
    check_inputs(&c, cvn_random_bits(c.g, x[0], x[1], x[2], x[3]));
    for (int i = 0; i < 4; i++)
        check_fill(&x[i]->type, c.in[i].data, 0, 4294967295.0);
    check_kernels(&c, 1);
    check_end(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(broadcasts),
        cmocka_unit_test(transposes_of_every_order),
        cmocka_unit_test(slices_and_reverses),
        cmocka_unit_test(concatenations),
        cmocka_unit_test(pads_outside_between_and_negative),
        cmocka_unit_test(dynamic_slices_clamped_into_bounds),
        cmocka_unit_test(rows_of_a_table),
        cmocka_unit_test(gathers_of_every_form),
        cmocka_unit_test(sums_into_rows),
        cmocka_unit_test(sorts_stably_in_both_directions),
        cmocka_unit_test(long_rows_are_sorted_by_all_threads),
        cmocka_unit_test(counts_and_running_sums),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
