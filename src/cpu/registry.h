/*
 * Which kernels a machine runs: for each level of instruction set a backend, made of the tables of
 * that level and all levels below it, best first.
 */
#ifndef CVN_CPU_REGISTRY_H
#define CVN_CPU_REGISTRY_H

#include "base/strbuf.h"
#include "compile/kernel.h"

typedef enum CpuIsa {
    CPU_ISA_PORTABLE,    /* what the compiler assumes: SSE2 on x86-64, NEON on Arm */
    CPU_ISA_DOTPROD,     /* NEON and dotprod */
    CPU_ISA_I8MM,        /* and i8mm and bf16 */
    CPU_ISA_AVX2,        /* AVX2, FMA, F16C */
    CPU_ISA_AVX_VNNI,    /* and AVX-VNNI */
    CPU_ISA_AVX512,      /* AVX2 and AVX-512 F, BW, DQ, VL; AVX-VNNI only where there is it, too */
    CPU_ISA_AVX512_VNNI, /* and VNNI */
    CPU_ISA_AVX512_BF16, /* and BF16 */
    CPU_ISA_AMX,         /* and tiles of bf16 and int8, which the system must allow */
    CPU_ISA_COUNT
} CpuIsa;

/* The best kernels of this machine; the environment variable CARAVAN_CPU (portable, avx2, avx_vnni,
   avx512, avx512_vnni, avx512_bf16, amx; on Arm neon, dotprod, i8mm) lowers it. Read once, on the first call. */
const KernelSet *cpu_kernels(void);

/* Those of one level; NULL where this machine lacks it. */
const KernelSet *cpu_kernels_of(CpuIsa isa);

/* The same; or, where `same`, those whose bits are the same on every level (--numerics portable): sums have a written order,
   and no instruction is used that rounds like no other (VEC_SAME in kernels/vec.h). */
const KernelSet *cpu_kernels_as(bool same);
const KernelSet *cpu_kernels_of_as(CpuIsa isa, bool same);

const char *cpu_isa_name(CpuIsa isa);

/* Whether cpu_kernels() give a text the same bits however it is cut into runs: weights in panels and attention sum a row alike
   however many there are (kernels/attention_impl.h), but on tiles of AMX attention of many rows does not. */
bool cpu_chunk_invariant(void);

/* Appends why cpu_kernels() are not those of a higher level: "amx with amx_bf16 amx_int8", what of it the processor or the
   system lacks, level by level; or that CARAVAN_CPU lowers them. Nothing where there is no higher level. */
void cpu_why_not_more(StrBuf *out);

/* The last resort of all of them, slow, but there for every operation: the interpreter, on thread 0. Results may not overlap
   operands. Operations between devices work only where a device is alone; a plan takes them from src/comm. */
void cpu_fallback(const KernelArgs *args);

#endif
