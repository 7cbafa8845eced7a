/* The dtype table: names round-trip, sizes are those of the C types, i4 packs two per byte. */
#include "caravan/dtype.h"
#include "unit.h"

static void every_dtype_has_a_name_that_parses_back(void **state)
{
    for (int i = 0; i < CVN_DTYPE_COUNT; i++) {
        cvn_dtype back = CVN_DTYPE_COUNT;
        assert_true(cvn_dtype_parse(cvn_dtype_name((cvn_dtype)i), &back));
        assert_int_equal(back, i);
        assert_true(cvn_dtype_bits((cvn_dtype)i) > 0);
    }
    cvn_dtype untouched = CVN_I8;
    assert_false(cvn_dtype_parse("float32", &untouched));
    assert_false(cvn_dtype_parse("", &untouched));
    assert_int_equal(untouched, CVN_I8);
    assert_string_equal(cvn_dtype_name(CVN_DTYPE_COUNT), "?");
}

static void bytes_count_packed_and_refuse_overflow(void **state)
{
    assert_int_equal(cvn_dtype_bytes(CVN_F64, 3), 24);
    assert_int_equal(cvn_dtype_bytes(CVN_BF16, 3), 6);
    assert_int_equal(cvn_dtype_bytes(CVN_BOOL, 3), 3);
    assert_int_equal(cvn_dtype_bytes(CVN_I4, 0), 0);
    assert_int_equal(cvn_dtype_bytes(CVN_I4, 4), 2);
    assert_int_equal(cvn_dtype_bytes(CVN_I4, 5), 3);
    assert_int_equal(cvn_dtype_bytes(CVN_I4, INT64_MAX), (size_t)1 << 62);
    assert_true(cvn_dtype_bytes(CVN_F64, INT64_MAX) == SIZE_MAX);
    assert_true(cvn_dtype_bytes(CVN_F32, -1) == SIZE_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_dtype_has_a_name_that_parses_back),
        cmocka_unit_test(bytes_count_packed_and_refuse_overflow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
