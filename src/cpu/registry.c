/*
 * Backends are put together once, on first use, from the tables in kernels/kernels.h.
 */
#include "cpu/registry.h"

#include "base/cpu.h"
#include "comm/comm.h"
#include "cpu/kernels/kernels.h"
#include "graph/interp/interp.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { KERNELS_MAX = 512, TABLES_MAX = 24 };

/* What the compiler assumes is NEON on 64-bit Arm. */
#if defined(__aarch64__)
#define BASELINE "neon"
#else
#define BASELINE "portable"
#endif

#define TABLE(table) table,
/* What a compiler or processor does not know is left out of the build (cmake/Kernels.cmake). */
#if defined(CVN_HAVE_AVX2)
#define TABLES_AVX2 KERNELS_OF(avx2, TABLE)
#else
#define TABLES_AVX2 NULL
#endif
#if defined(CVN_HAVE_AVX512)
#define TABLES_AVX512 KERNELS_OF(avx512, TABLE)
#define TABLES_AVX512_BF16                                                                         \
    linear_kernels_avx512_bf16, dot_kernels_avx512_bf16, attention_kernels_avx512_bf16,            \
        attention_kernels_avx512_bf16few, attention_backward_kernels_avx512_bf16,                  \
        fusion_kernels_avx512_bf16, row_kernels_avx512_bf16, rope_kernels_avx512_bf16,             \
        row_backward_kernels_avx512_bf16
#else
#define TABLES_AVX512 NULL
#define TABLES_AVX512_BF16 NULL
#endif
#if defined(CVN_HAVE_AMX)
#define TABLES_AMX                                                                                 \
    linear_kernels_amx, dot_kernels_amx, attention_kernels_amx, attention_backward_kernels_amx
#else
#define TABLES_AMX NULL
#endif

/* The tables that each level adds. */
static const struct {
    const char *name;
    const Kernel *table[TABLES_MAX];
} levels[CPU_ISA_COUNT] = {
    [CPU_ISA_PORTABLE] = {BASELINE,
                          {KERNELS_OF(portable, TABLE) copy_kernels, index_kernels, blocks_kernels,
                           sort_kernels, small_kernels, collective_kernels}},
    [CPU_ISA_AVX2] = {"avx2", {TABLES_AVX2}},
    [CPU_ISA_AVX512] = {"avx512", {TABLES_AVX512}},
    [CPU_ISA_AVX512_BF16] = {"avx512_bf16", {TABLES_AVX512_BF16}},
    [CPU_ISA_AMX] = {"amx", {TABLES_AMX}},
};

/* Written once, under `once`; constant afterwards. */
static struct {
    pthread_once_t once;
    CpuIsa best; /* of this machine */
    CpuIsa used; /* by cpu_kernels: best, or lower where the environment says so */
    KernelSet backend[CPU_ISA_COUNT];
    const Kernel *kernel[CPU_ISA_COUNT][KERNELS_MAX];
} registry = {.once = PTHREAD_ONCE_INIT};

static bool has_all(uint32_t features, const CpuFeature *wanted, int n)
{
    for (int i = 0; i < n; i++)
        if (!cpu_has(features, wanted[i]))
            return false;
    return true;
}

static CpuIsa detect(void)
{
    static const CpuFeature avx2[] = {CPU_AVX2, CPU_FMA, CPU_F16C};
    static const CpuFeature avx512[] = {CPU_AVX512F, CPU_AVX512BW, CPU_AVX512DQ, CPU_AVX512VL};
    static const CpuFeature amx[] = {CPU_AMX_BF16, CPU_AMX_INT8};
    uint32_t features = cpu_features();
    if (!has_all(features, avx2, 3))
        return CPU_ISA_PORTABLE;
    if (!has_all(features, avx512, 4))
        return CPU_ISA_AVX2;
    if (!cpu_has(features, CPU_AVX512_BF16) || !cpu_has(features, CPU_AVX512_VNNI))
        return CPU_ISA_AVX512;
    bool tiles = levels[CPU_ISA_AMX].table[0] && has_all(features, amx, 2) && cpu_request_amx();
    return tiles ? CPU_ISA_AMX : CPU_ISA_AVX512_BF16;
}

void cpu_fallback(const KernelArgs *args)
{
    if (args->thread == 0)
        interp_op(args->op, args->in, args->out);
}

static void init(void)
{
    registry.best = registry.used = detect();
    const char *wanted = getenv("CARAVAN_CPU");
    enum { TINY = 32 << 10 }; /* about a microsecond */
    for (int i = 0; i < CPU_ISA_COUNT; i++) {
        const Kernel **kernel = registry.kernel[i];
        int n = 0;
        for (int level = i; level >= 0; level--)
            for (int t = 0; t < TABLES_MAX && levels[level].table[t]; t++)
                for (const Kernel *k = levels[level].table[t]; k->name; k++) {
                    assert(n < KERNELS_MAX);
                    kernel[n++] = k;
                }
        registry.backend[i] = (KernelSet){.name = levels[i].name,
                                          .kernel = kernel,
                                          .n_kernels = n,
                                          .fallback = cpu_fallback,
                                          .tiny = TINY};
        if (wanted && strcmp(wanted, levels[i].name) == 0 && (CpuIsa)i < registry.best)
            registry.used = (CpuIsa)i;
    }
}

const KernelSet *cpu_kernels(void)
{
    pthread_once(&registry.once, init);
    return &registry.backend[registry.used];
}

const KernelSet *cpu_kernels_of(CpuIsa isa)
{
    pthread_once(&registry.once, init);
    return isa <= registry.best ? &registry.backend[isa] : NULL;
}

const char *cpu_isa_name(CpuIsa isa)
{
    return levels[isa].name;
}
