/* Elementwise kernels: every operation, dtype and instruction set, at odd sizes and special values. */
#include "kernel_check.h"

typedef cvn_value *Unary(cvn_graph *g, cvn_value *x);
typedef cvn_value *Binary(cvn_graph *g, cvn_value *a, cvn_value *b);

/* Sizes around vectors and tiles. */
static const int64_t sizes[] = {0, 1, 3, 15, 16, 17, 31, 127, 512, 1031};
enum { SIZES = sizeof sizes / sizeof *sizes };

static const cvn_dtype ints[] = {CVN_I32, CVN_U32, CVN_I8};
static const cvn_dtype floats[] = {CVN_F32, CVN_BF16, CVN_F16, CVN_F64};

/* Vector functions are within 2 ulp of f32; the store to 16 bits may then round the other way. */
static void set_tolerance(Check *c, cvn_dtype dtype)
{
    c->relative = dtype == CVN_BF16  ? 0x1.01p-7
                  : dtype == CVN_F16 ? 0x1.01p-10
                  : dtype == CVN_F64 ? 1e-15
                                     : 3e-7;
    c->absolute = dtype == CVN_F64 ? 0 : 1e-37;
}

/* Which kinds were checked as floats, and which as whole numbers. */
static bool checked[2][OP_COUNT];

/* Every row of ops.def of a class that takes floats (or whole numbers) is among what a test goes through. */
static void assert_all_checked(OpClass class_, bool whole)
{
    OpDTypes others = whole ? DTYPES_F : DTYPES_I;
    for (int kind = 0; kind < OP_COUNT; kind++) {
        const OpInfo *info = &op_info[kind];
        if (info->class_ == class_ && info->dtypes != others && info->dtypes != DTYPES_A &&
            !checked[whole][kind])
            fail_msg("nothing checks the kernels of %s", info->name);
    }
}

/* Values that go wrong first. */
static void put_special(const cvn_type *type, void *data)
{
    static const double special[] = {
        0.0,     -0.0,    INFINITY, -INFINITY, NAN,    1.0,  -1.0,         88.0,  89.5,
        -87.0,   -103.0,  -150.0,   0.625,     -0.625, 1e-6, -1e-6,        1e-39, 5e-324,
        65504.0, -65504., 3e38,     0.999999,  1.5,    -2.5, 2147483648.0, 1e10};
    int64_t n = cvn_type_elements(type);
    int count = (int)(sizeof special / sizeof *special);
    for (int64_t i = 0; i < n && i < count; i++)
        element_set(type->dtype, data, (i * 7) % n, special[i]);
}

static void check_unary(Unary *build, cvn_dtype dtype, int64_t n, double low, double high)
{
    Check c = check_begin();
    check_inputs(&c, build(c.g, check_parameter(&c, CVN_TYPE(dtype, n))));
    checked[!dtype_is_float(dtype)][c.op->kind] = true;
    check_fill(&c.op->operand[0]->type, c.in[0].data, low, high);
    if (n > 100)
        put_special(&c.op->operand[0]->type, c.in[0].data);
    set_tolerance(&c, c.op->result[0]->type.dtype);
    check_kernels(&c, 1);
    check_end(&c);
}

static void functions_of_one_float(void **state)
{
    static const struct {
        Unary *build;
        double low, high;
    } rows[] = {
        {cvn_negate, -9, 9},        {cvn_abs, -9, 9},         {cvn_sign, -2, 2},
        {cvn_exponential, -90, 90}, {cvn_log, 0, 50},         {cvn_log_plus_one, -1, 5},
        {cvn_sqrt, 0, 90},          {cvn_rsqrt, 0.01, 90},    {cvn_exponential_minus_one, -5, 5},
        {cvn_tanh, -4, 4},          {cvn_logistic, -20, 20},  {cvn_sine, -9, 9},
        {cvn_cosine, -9, 9},        {cvn_floor, -9, 9},       {cvn_is_finite, -9, 9},
        {cvn_log, 0.9, 1.1},        {cvn_exponential, -1, 1},
    };
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
        for (int d = 0; d < 4; d++)
            for (int s = 0; s < SIZES; s++)
                check_unary(rows[r].build, floats[d], sizes[s], rows[r].low, rows[r].high);
    assert_all_checked(CLASS_UNARY, false);
}

static void functions_of_one_integer(void **state)
{
    static Unary *const rows[] = {cvn_negate, cvn_abs, cvn_sign, cvn_not};
    for (size_t r = 0; r < 4; r++)
        for (int d = 0; d < 3; d++)
            check_unary(rows[r], ints[d], 1031, -3e9, 5e9);
    check_unary(cvn_not, CVN_BOOL, 127, 0, 2);
    assert_all_checked(CLASS_UNARY, true);
}

static void conversions_between_all_dtypes(void **state)
{
    static const cvn_dtype all[] = {CVN_F32, CVN_BF16, CVN_F16,  CVN_I32,
                                    CVN_U32, CVN_I8,   CVN_BOOL, CVN_F64};
    for (int from = 0; from < 8; from++)
        for (int to = 0; to < 8; to++)
            for (int s = 0; s < SIZES; s++) {
                Check c = check_begin();
                cvn_value *x = check_parameter(&c, CVN_TYPE(all[from], sizes[s]));
                check_inputs(&c, cvn_convert(c.g, x, all[to]));
                if (c.op->kind == OP_CONVERT) {
                    check_fill(&x->type, c.in[0].data, -300, 300);
                    if (sizes[s] > 100)
                        put_special(&x->type, c.in[0].data);
                    check_kernels(&c, 1);
                }
                check_end(&c);
            }
}

static void check_binary(Binary *build, cvn_dtype dtype, int64_t n, double low, double high)
{
    Check c = check_begin();
    cvn_value *a = check_parameter(&c, CVN_TYPE(dtype, n));
    check_inputs(&c, build(c.g, a, check_parameter(&c, CVN_TYPE(dtype, n))));
    checked[!dtype_is_float(dtype)][c.op->kind] = true;
    for (int i = 0; i < 2; i++) {
        const cvn_type *type = &c.op->operand[i]->type;
        check_fill(type, c.in[i].data, low, high);
        if (n > 100 && i == (int)(n % 2))
            put_special(type, c.in[i].data);
    }
    set_tolerance(&c, c.op->result[0]->type.dtype);
    check_kernels(&c, 1);
    check_end(&c);
}

static void functions_of_two(void **state)
{
    static Binary *const arithmetic[] = {cvn_add,     cvn_subtract, cvn_multiply, cvn_divide,
                                         cvn_maximum, cvn_minimum,  cvn_remainder};
    static Binary *const bits[] = {cvn_and, cvn_or, cvn_xor, cvn_shift_left,
                                   cvn_shift_right_logical};
    for (size_t r = 0; r < 7; r++)
        for (int s = 0; s < SIZES; s++) {
            for (int d = 0; d < 4; d++)
                check_binary(arithmetic[r], floats[d], sizes[s], -4, 4);
            for (int d = 0; d < 3; d++)
                check_binary(arithmetic[r], ints[d], sizes[s], -40, 40);
        }
    for (int s = 0; s < SIZES; s++) {
        for (int d = 0; d < 4; d++)
            check_binary(cvn_power, floats[d], sizes[s], 0, 3);
        for (size_t r = 0; r < 5; r++)
            for (int d = 0; d < 3; d++)
                check_binary(bits[r], ints[d], sizes[s], -5, 40);
        for (size_t r = 0; r < 3; r++)
            check_binary(bits[r], CVN_BOOL, sizes[s], 0, 2);
    }
    assert_all_checked(CLASS_BINARY, false);
    assert_all_checked(CLASS_BINARY, true);
}

static void comparisons(void **state)
{
    static const cvn_dtype all[] = {CVN_F32, CVN_BF16, CVN_F16,  CVN_I32,
                                    CVN_U32, CVN_I8,   CVN_BOOL, CVN_F64};
    for (int direction = 0; direction < COMPARE_COUNT; direction++)
        for (int d = 0; d < 8; d++)
            for (int s = 0; s < SIZES; s++) {
                Check c = check_begin();
                cvn_value *a = check_parameter(&c, CVN_TYPE(all[d], sizes[s]));
                cvn_value *b = check_parameter(&c, CVN_TYPE(all[d], sizes[s]));
                check_inputs(&c, cvn_compare_values(c.g, (cvn_compare)direction, a, b));
                for (int i = 0; i < 2; i++)
                    check_fill(&a->type, c.in[i].data, -3, 3);
                if (sizes[s] > 100)
                    put_special(&a->type, c.in[0].data);
                check_kernels(&c, 1);
                check_end(&c);
            }
}

static void select_by_mask_and_by_scalar(void **state)
{
    static const cvn_dtype all[] = {CVN_F32, CVN_BF16, CVN_I32, CVN_U32, CVN_I8, CVN_BOOL, CVN_F64};
    for (int d = 0; d < 7; d++)
        for (int s = 0; s < SIZES; s++)
            for (int scalar = 0; scalar < 2; scalar++) {
                Check c = check_begin();
                cvn_value *p = check_parameter(&c, scalar ? cvn_scalar(CVN_BOOL)
                                                          : CVN_TYPE(CVN_BOOL, sizes[s]));
                cvn_value *a = check_parameter(&c, CVN_TYPE(all[d], sizes[s]));
                cvn_value *b = check_parameter(&c, CVN_TYPE(all[d], sizes[s]));
                check_inputs(&c, cvn_select(c.g, p, a, b));
                check_kernels(&c, 1);
                check_end(&c);
            }
}

static void clamp_between_tensors_and_scalars(void **state)
{
    static const cvn_dtype all[] = {CVN_F32, CVN_BF16, CVN_F16, CVN_I32, CVN_U32, CVN_F64, CVN_I8};
    for (int d = 0; d < 7; d++)
        for (int s = 0; s < SIZES; s++)
            for (int scalar = 0; scalar < 4; scalar++) {
                cvn_type whole = CVN_TYPE(all[d], sizes[s]), one = cvn_scalar(all[d]);
                Check c = check_begin();
                cvn_value *low = check_parameter(&c, scalar & 1 ? one : whole);
                cvn_value *x = check_parameter(&c, whole);
                cvn_value *high = check_parameter(&c, scalar & 2 ? one : whole);
                check_inputs(&c, cvn_clamp(c.g, low, x, high));
                check_fill(&low->type, c.in[0].data, -9, 3);
                check_fill(&x->type, c.in[1].data, -20, 20);
                check_fill(&high->type, c.in[2].data, 1, 9);
                check_kernels(&c, 1);
                check_end(&c);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(functions_of_one_float),
        cmocka_unit_test(functions_of_one_integer),
        cmocka_unit_test(conversions_between_all_dtypes),
        cmocka_unit_test(functions_of_two),
        cmocka_unit_test(comparisons),
        cmocka_unit_test(select_by_mask_and_by_scalar),
        cmocka_unit_test(clamp_between_tensors_and_scalars),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
