/* What tests that compare with numbers of XLA share: the inputs, which are not stored, and how near a result must be. */
#ifndef CVN_TESTS_XLA_FIXTURE_H
#define CVN_TESTS_XLA_FIXTURE_H

#include "graph/graph.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* The same function as `inputs` of stablehlo.py: element k of parameter p on device d. */
static double input(uint64_t p, uint64_t d, uint64_t k, cvn_dtype dtype, int least)
{
    uint64_t z = (k + (p << 40) + (d << 32)) * 0x9e3779b97f4a7c15u + 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    int r = (int)((z ^ (z >> 31)) >> 56);
    switch (dtype) {
    case CVN_F64:
    case CVN_F32:
    case CVN_BF16:
    case CVN_F16:
        return (r - 128) / 64.0;
    case CVN_BOOL:
        return r % 2;
    case CVN_I4:
        return r % 16 - 8;
    case CVN_U32:
        return r % 12;
    default:
        return r % 12 + least;
    }
}

/* least: of i32 and i8. */
static void *make_input(int p, int d, const cvn_type *type, int least)
{
    void *data = calloc(cvn_type_bytes(type) + 8, 1);
    assert_non_null(data);
    for (int64_t k = 0, n = cvn_type_elements(type); k < n; k++)
        element_set(type->dtype, data, k,
                    input((uint64_t)p, (uint64_t)d, (uint64_t)k, type->dtype, least));
    return data;
}

static int hex_digit(char c)
{
    return c <= '9' ? c - '0' : c - 'a' + 10;
}

/* How far apart two results may be: relative to the larger, or to 1; those of f32, as said. */
static double tolerance(cvn_dtype dtype, double f32)
{
    switch (dtype) {
    case CVN_F64:
        return 1e-12;
    case CVN_F32:
        return f32;
    case CVN_BF16:
        return 0x1p-7;
    case CVN_F16:
        return 0x1p-9;
    default:
        return 0;
    }
}

static bool is_close(cvn_dtype dtype, double a, double b, double f32)
{
    if (isnan(a) || isnan(b))
        return isnan(a) && isnan(b);
    if (a == b)
        return true;
    return fabs(a - b) <= tolerance(dtype, f32) * fmax(1, fmax(fabs(a), fabs(b)));
}

static void compare_output(const char *name, int output, const cvn_type *type, const void *got,
                           const char *hex, double f32)
{
    size_t bytes = cvn_type_bytes(type);
    assert_int_equal(strlen(hex), 2 * bytes);
    unsigned char *expected = malloc(bytes + 8);
    assert_non_null(expected);
    for (size_t i = 0; i < bytes; i++)
        expected[i] = (unsigned char)(hex_digit(hex[2 * i]) << 4 | hex_digit(hex[2 * i + 1]));
    for (int64_t i = 0, n = cvn_type_elements(type); i < n; i++) {
        double a = element_get(type->dtype, got, i), b = element_get(type->dtype, expected, i);
        if (!is_close(type->dtype, a, b, f32))
            fail_msg("%s: output %d, element %lld is %.9g, but XLA gives %.9g", name, output,
                     (long long)i, a, b);
    }
    free(expected);
}

#endif
