/*
 * The tables of kernels, each ended by a row without a name. registry.c puts those together that a
 * machine can run. Tables of one instruction set end in its name; the others run everywhere.
 */
#ifndef CVN_CPU_KERNELS_KERNELS_H
#define CVN_CPU_KERNELS_KERNELS_H

#include "compile/kernel.h"

extern const Kernel dot_kernels_portable[];

#if defined(CVN_HAVE_AVX2)
extern const Kernel dot_kernels_avx2[];
#endif
#if defined(CVN_HAVE_AVX512)
extern const Kernel dot_kernels_avx512[], dot_kernels_avx512_bf16[];
#endif

#endif
