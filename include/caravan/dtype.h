/*
 * Element types of tensors. One table says everything about them: name in text, bits per stored
 * element, meaning.
 *
 * Storage: i4 is packed two elements per byte, the element with the even index in the low nibble,
 * two's complement, a last odd element padded with a zero nibble; bool is one byte, 0 or 1; all
 * others are little endian.
 */
#ifndef CARAVAN_DTYPE_H
#define CARAVAN_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* enumerator, name in text, bits per stored element */
#define CVN_DTYPES(X)                                                                              \
    X(CVN_F64, "f64", 64)                                                                          \
    X(CVN_F32, "f32", 32)                                                                          \
    X(CVN_BF16, "bf16", 16)                                                                        \
    X(CVN_F16, "f16", 16)                                                                          \
    X(CVN_I32, "i32", 32)                                                                          \
    X(CVN_U32, "u32", 32)                                                                          \
    X(CVN_I8, "i8", 8)                                                                             \
    X(CVN_I4, "i4", 4)                                                                             \
    X(CVN_BOOL, "i1", 8)

typedef enum cvn_dtype {
#define X(dtype, name, bits) dtype,
    CVN_DTYPES(X)
#undef X
        CVN_DTYPE_COUNT
} cvn_dtype;

/* "f32", "bf16", ...; "?" for a value that is no dtype. */
const char *cvn_dtype_name(cvn_dtype dtype);

/* Finds a dtype by its name; false, and *out untouched, when there is none. */
bool cvn_dtype_parse(const char *text, cvn_dtype *out);

/* Bits per stored element; 0 for a value that is no dtype. */
int cvn_dtype_bits(cvn_dtype dtype);

/* Bytes of n contiguous elements; SIZE_MAX when n is negative or the bytes do not fit a size_t. */
size_t cvn_dtype_bytes(cvn_dtype dtype, int64_t n);

#ifdef __cplusplus
}
#endif
#endif
