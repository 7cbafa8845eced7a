/* The kernels that plans need of themselves, whatever the backend: copying, and filling with one value. */
#ifndef CVN_COMPILE_MOVES_H
#define CVN_COMPILE_MOVES_H

#include "compile/kernel.h"

extern const Kernel move_copy; /* operand 0 to result 0, byte by byte: types of equal size */
extern const Kernel move_fill; /* a splat constant's value all over its result */

/* A splat of n elements written out: bytes begin … end - 1 of cvn_dtype_bytes(dtype, n). `element` is one packed
   element. begin is a multiple of 8. */
void move_splat(void *to, cvn_dtype dtype, int64_t n, const void *element, size_t begin,
                size_t end);

#endif
