/*
 * What the processor can do, as far as the operating system lets programs use it: a feature counts
 * only when cpuid has it and, on x86-64, the system saves the registers it needs (XCR0, read by
 * xgetbv). Which kernels run is decided from this at run time (cpu/registry.h).
 *
 *   feature                        cpuid leaf, register, bit    XCR0 bits
 *   fma, f16c                      1 ECX 12, 29                 1-2 (ymm)
 *   avx2                           7.0 EBX 5                    1-2
 *   avx_vnni                       7.1 EAX 4                    1-2
 *   avx512f, dq, bw, vl            7.0 EBX 16, 17, 30, 31       1-2, 5-7 (opmask, zmm)
 *   avx512_vnni                    7.0 ECX 11                   1-2, 5-7
 *   avx512_bf16                    7.1 EAX 5                    1-2, 5-7
 *   amx_bf16, amx_tile, amx_int8   7.0 EDX 22, 24, 25           17-18 (tiles)
 *
 * (Intel 64 and IA-32 Architectures Software Developer's Manual, CPUID and XGETBV.) On Arm the system says it: Linux by bits
 * of getauxval(AT_HWCAP and AT_HWCAP2), macOS by names of sysctlbyname (written from Apple's documentation, not tested).
 *
 *   feature    Linux                macOS
 *   dotprod    HWCAP  ASIMDDP 20    hw.optional.arm.FEAT_DotProd
 *   i8mm       HWCAP2 I8MM 13       hw.optional.arm.FEAT_I8MM
 *   bf16       HWCAP2 BF16 14       hw.optional.arm.FEAT_BF16
 */
#ifndef CVN_BASE_CPU_H
#define CVN_BASE_CPU_H

#include <stdbool.h>
#include <stdint.h>

/* enumerator, name in text */
#define CPU_FEATURES(X)                                                                            \
    X(CPU_FMA, "fma")                                                                              \
    X(CPU_F16C, "f16c")                                                                            \
    X(CPU_AVX2, "avx2")                                                                            \
    X(CPU_AVX_VNNI, "avx_vnni")                                                                    \
    X(CPU_AVX512F, "avx512f")                                                                      \
    X(CPU_AVX512DQ, "avx512dq")                                                                    \
    X(CPU_AVX512BW, "avx512bw")                                                                    \
    X(CPU_AVX512VL, "avx512vl")                                                                    \
    X(CPU_AVX512_VNNI, "avx512_vnni")                                                              \
    X(CPU_AVX512_BF16, "avx512_bf16")                                                              \
    X(CPU_AMX_TILE, "amx_tile")                                                                    \
    X(CPU_AMX_BF16, "amx_bf16")                                                                    \
    X(CPU_AMX_INT8, "amx_int8")                                                                    \
    X(CPU_NEON, "neon")                                                                            \
    X(CPU_DOTPROD, "dotprod")                                                                      \
    X(CPU_I8MM, "i8mm")                                                                            \
    X(CPU_ARM_BF16, "bf16")

typedef enum CpuFeature {
#define X(feature, name) feature,
    CPU_FEATURES(X)
#undef X
        CPU_FEATURE_COUNT
} CpuFeature;

/* The set of features: bit i stands for CpuFeature i. Asks the processor anew at each call. */
uint32_t cpu_features(void);

static inline bool cpu_has(uint32_t features, CpuFeature feature)
{
    return features >> feature & 1;
}

const char *cpu_feature_name(CpuFeature feature);

/* Linux hands out the AMX tile registers per process, on request. True when this process may use
 * them from now on; asking again does no harm. */
bool cpu_request_amx(void);

#define CPU_BRAND_SIZE 49

/* The processor's name for itself, "" where it has none to tell. Returns text. */
const char *cpu_brand(char text[CPU_BRAND_SIZE]);

#endif
