/*
 * Types of tensors: an element type and sizes. All values of a graph have legal types (infer_types
 * sees to it), so that the products below do not overflow.
 */
#include "graph/graph.h"
#include "graph/strides.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

cvn_type cvn_type_make(cvn_dtype dtype, int rank, const int64_t *dim)
{
    cvn_type type = {.dtype = dtype, .rank = rank};
    for (int i = 0; i < rank && i < CVN_MAX_RANK; i++)
        type.dim[i] = dim[i];
    return type;
}

const char *type_fault(const cvn_type *type)
{
    _Static_assert(CVN_MAX_RANK == 8, "as the message says");
    if (type->rank < 0 || type->rank > CVN_MAX_RANK)
        return "has a rank outside 0 to 8";
    if ((unsigned)type->dtype >= CVN_DTYPE_COUNT)
        return "has no element type";
    int64_t n = 1;
    for (int i = 0; i < type->rank; i++) {
        if (type->dim[i] < 0)
            return "has a negative size";
        if (type->dim[i] != 0 &&
            (__builtin_mul_overflow(n, type->dim[i], &n) || n > INT64_C(1) << 58))
            return "is too large to address";
    }
    return NULL;
}

cvn_type cvn_scalar(cvn_dtype dtype)
{
    return (cvn_type){.dtype = dtype};
}

int64_t type_span(const cvn_type *type, int from, int to)
{
    int64_t n = 1;
    for (int d = from; d < to; d++)
        n *= type->dim[d];
    return n;
}

int64_t cvn_type_elements(const cvn_type *type)
{
    return type_span(type, 0, type->rank);
}

void type_strides(const cvn_type *type, int64_t stride[CVN_MAX_RANK])
{
    int64_t step = 1;
    for (int d = type->rank - 1; d >= 0; d--) {
        stride[d] = step;
        step *= type->dim[d];
    }
}

Lines type_lines(const cvn_type *type, int64_t axis)
{
    int d = (int)axis;
    return (Lines){type_span(type, 0, d), type->dim[d], type_span(type, d + 1, type->rank)};
}

size_t cvn_type_bytes(const cvn_type *type)
{
    return cvn_dtype_bytes(type->dtype, cvn_type_elements(type));
}

bool cvn_type_equal(const cvn_type *a, const cvn_type *b)
{
    return a->dtype == b->dtype && a->rank == b->rank &&
           memcmp(a->dim, b->dim, (size_t)a->rank * sizeof *a->dim) == 0;
}

const char *type_text(const cvn_type *type, char *buffer, size_t size)
{
    size_t n = 0;
    int wrote = snprintf(buffer, size, "%s[", cvn_dtype_name(type->dtype));
    n += wrote > 0 ? (size_t)wrote : 0;
    for (int i = 0; i < type->rank && n < size; i++) {
        wrote = snprintf(buffer + n, size - n, "%s%" PRId64, i ? "," : "", type->dim[i]);
        n += wrote > 0 ? (size_t)wrote : 0;
    }
    if (n < size)
        snprintf(buffer + n, size - n, "]");
    return buffer;
}

void type_print(StrBuf *buf, const cvn_type *type)
{
    char text[TYPE_TEXT * 2];
    strbuf_puts(buf, type_text(type, text, sizeof text));
}
