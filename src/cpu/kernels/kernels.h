/*
 * The tables of kernels, each ended by a row without a name. registry.c puts those together that a machine can run, the best
 * instruction set first. compile/kernel.h is the contract of a kernel. Tables of one instruction set end in its name; the
 * others run everywhere.
 *
 *     copy, index, sort, small, blocks                   what moves or orders elements; walk.h moves a box of them
 *     elementwise, rows, rope, random,
 *     norm, fusion, attention                     *_impl.h, on the vectors of vec.h
 *     any                                         sums of f64, whole numbers and dimensions that lie apart, on wide.h
 *     dot_general, gemm*                          products of two tensors, in any layout; gemm_tiles.c for AMX
 *     linear*                                     products with weights in panels: loops (linear_loops.h) around tiles (linear.h);
 *                                                 of quantized ones linear_codes_impl.h, on the vectors of vec_codes.h
 *     grouped                                     products of rows with the matrices of their groups, on gemm and linear
 *     choice, share                               how many rows each kernel of a product takes; which thread computes what of it
 *
 * A new kernel is a row in a table of its file, with all that kernel.h asks for; a new table is declared here and listed in
 * registry.c. A body that every instruction set is to have is a *_impl.h, of which cmake/Kernels.cmake makes a source for each.
 *
 * A new instruction set is a folder for what only it has, its flags and bodies in cmake/Kernels.cmake, a level in registry.h,
 * and in registry.c its tables and what a processor must have for it. What it leaves out, the levels below it do. Every test
 * of kernels then runs for it, too.
 */
#ifndef CVN_CPU_KERNELS_KERNELS_H
#define CVN_CPU_KERNELS_KERNELS_H

#include "base/num.h"
#include "compile/kernel.h"

extern const Kernel
    copy_kernels[]; /* broadcast_in_dim, transpose, slice, reverse, concatenate, pad, … */
extern const Kernel index_kernels[];  /* gather, scatter, cache_update */
extern const Kernel blocks_kernels[]; /* dequantize, of blocks */
extern const Kernel sort_kernels[];   /* sort */
extern const Kernel small_kernels[];  /* iota, cumsum, cumprod */

/* The tables that every set of vectors has: f(table) of each. Those of the second line are the same with VEC_SAME. */
#define KERNELS_OF(isa, f)                                                                         \
    KERNELS_OWN(isa, f)                                                                            \
    f(random_kernels_##isa) f(any_kernels_##isa)
#define KERNELS_OWN(isa, f)                                                                        \
    f(linear_kernels_##isa) f(dot_kernels_##isa) f(grouped_kernels_##isa)                          \
        f(elementwise_kernels_##isa) f(fusion_kernels_##isa) f(row_kernels_##isa)                  \
            f(rope_kernels_##isa) f(attention_kernels_##isa) f(attention_backward_kernels_##isa)   \
                f(row_backward_kernels_##isa) f(likeliest_kernels_##isa)
#define KERNELS_DECLARE(table) extern const Kernel table[];
KERNELS_OF(portable, KERNELS_DECLARE)
KERNELS_OF(avx2, KERNELS_DECLARE)
KERNELS_OF(avx512, KERNELS_DECLARE)
KERNELS_OWN(portable_same, KERNELS_DECLARE)
KERNELS_OWN(avx2_same, KERNELS_DECLARE)
KERNELS_OWN(avx512_same, KERNELS_DECLARE)
extern const Kernel random_kernels_portable_same[];

extern const Kernel linear_kernels_dotprod[], linear_kernels_i8mm[], linear_kernels_avx_vnni[],
    linear_kernels_avx512_vnni[], linear_kernels_dotprod_same[], linear_kernels_i8mm_same[],
    linear_kernels_avx_vnni_same[], linear_kernels_avx512_vnni_same[];
extern const Kernel linear_kernels_avx512_bf16[], dot_kernels_avx512_bf16[],
    grouped_kernels_avx512_bf16[], attention_kernels_avx512_bf16[],
    attention_backward_kernels_avx512_bf16[];
/* The same as those of avx512, and the same bits, but for the instruction that rounds. */
extern const Kernel fusion_kernels_avx512_bf16[], row_kernels_avx512_bf16[],
    rope_kernels_avx512_bf16[], row_backward_kernels_avx512_bf16[];

extern const Kernel linear_kernels_amx[], dot_kernels_amx[], attention_kernels_amx[],
    attention_backward_kernels_amx[];

/* The next piece of scratch, on lines of the cache of its own; only counts where there is no base. */
static inline void *scratch_take(char *base, size_t *used, int64_t bytes)
{
    void *at = base ? base + *used : NULL;
    *used += (size_t)num_round_up(bytes, CACHE_LINE);
    return at;
}

#endif
