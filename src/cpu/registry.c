/*
 * Backends are put together once, on first use, from the tables in kernels/kernels.h.
 */
#include "cpu/registry.h"

#include "base/cpu.h"
#include "base/strbuf.h"
#include "comm/comm.h"
#include "compile/fused.h"
#include "cpu/kernels/kernels.h"
#include "graph/interp/interp.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { KERNELS_MAX = 512, TABLES_MAX = 24, NUMERICS = 2 };

/* What the compiler assumes is NEON on 64-bit Arm. */
#if defined(__aarch64__)
#define BASELINE "neon"
#else
#define BASELINE "portable"
#endif

#define TABLE(table) table,
#define NO_TABLES                                                                                  \
    {NULL},                                                                                        \
    {                                                                                              \
        NULL                                                                                       \
    }
// clang-format off
/* What a compiler or processor does not know is left out of the build (cmake/Kernels.cmake). */
#if defined(CVN_HAVE_DOTPROD)
#define TABLES_DOTPROD {linear_kernels_dotprod}, {linear_kernels_dotprod_same}
#else
#define TABLES_DOTPROD NO_TABLES
#endif
#if defined(CVN_HAVE_I8MM)
#define TABLES_I8MM {linear_kernels_i8mm}, {linear_kernels_i8mm_same}
#else
#define TABLES_I8MM NO_TABLES
#endif
#if defined(CVN_HAVE_AVX2)
#define TABLES_AVX2 {KERNELS_OF(avx2, TABLE)}, {KERNELS_OWN(avx2_same, TABLE) random_kernels_avx2, any_kernels_avx2}
#else
#define TABLES_AVX2 NO_TABLES
#endif
#if defined(CVN_HAVE_AVX_VNNI)
#define TABLES_AVX_VNNI {linear_kernels_avx_vnni}, {linear_kernels_avx_vnni_same}
#else
#define TABLES_AVX_VNNI NO_TABLES
#endif
#if defined(CVN_HAVE_AVX512)
#define TABLES_AVX512 {KERNELS_OF(avx512, TABLE)}, {KERNELS_OWN(avx512_same, TABLE) random_kernels_avx512, any_kernels_avx512}
#define TABLES_AVX512_VNNI {linear_kernels_avx512_vnni}, {linear_kernels_avx512_vnni_same}
#define TABLES_AVX512_BF16 {                                                                       \
    linear_kernels_avx512_bf16, dot_kernels_avx512_bf16, grouped_kernels_avx512_bf16,              \
        attention_kernels_avx512_bf16, attention_backward_kernels_avx512_bf16,                     \
        fusion_kernels_avx512_bf16, row_kernels_avx512_bf16, rope_kernels_avx512_bf16,             \
        row_backward_kernels_avx512_bf16}, {NULL}
#else
#define TABLES_AVX512 NO_TABLES
#define TABLES_AVX512_VNNI NO_TABLES
#define TABLES_AVX512_BF16 NO_TABLES
#endif
#if defined(CVN_HAVE_AMX)
#define TABLES_AMX {                                                                               \
    linear_kernels_amx, dot_kernels_amx, attention_kernels_amx, attention_backward_kernels_amx}, {NULL}
#else
#define TABLES_AMX NO_TABLES
#endif
#define TABLES_ALL copy_kernels, index_kernels, blocks_kernels, sort_kernels, small_kernels, collective_kernels

/* What each level needs of a processor, and the tables that it adds to those of the levels below; and to those that have the
   same bits on all levels. */
enum { NEEDS_MAX = 4 };
static const struct {
    const char *name;
    int n_needs;
    CpuFeature needs[NEEDS_MAX];
    const Kernel *table[TABLES_MAX], *same[TABLES_MAX];
} levels[CPU_ISA_COUNT] = {
    [CPU_ISA_PORTABLE] = {BASELINE, 0, {0}, {KERNELS_OF(portable, TABLE) TABLES_ALL},
        {KERNELS_OWN(portable_same, TABLE) random_kernels_portable_same, any_kernels_portable, TABLES_ALL}},
    [CPU_ISA_DOTPROD] = {"dotprod", 1, {CPU_DOTPROD}, TABLES_DOTPROD},
    [CPU_ISA_I8MM] = {"i8mm", 2, {CPU_I8MM, CPU_ARM_BF16}, TABLES_I8MM},
    [CPU_ISA_AVX2] = {"avx2", 3, {CPU_AVX2, CPU_FMA, CPU_F16C}, TABLES_AVX2},
    [CPU_ISA_AVX_VNNI] = {"avx_vnni", 1, {CPU_AVX_VNNI}, TABLES_AVX_VNNI},
    [CPU_ISA_AVX512] = {"avx512", 4, {CPU_AVX512F, CPU_AVX512BW, CPU_AVX512DQ, CPU_AVX512VL}, TABLES_AVX512},
    [CPU_ISA_AVX512_VNNI] = {"avx512_vnni", 1, {CPU_AVX512_VNNI}, TABLES_AVX512_VNNI},
    [CPU_ISA_AVX512_BF16] = {"avx512_bf16", 1, {CPU_AVX512_BF16}, TABLES_AVX512_BF16},
    [CPU_ISA_AMX] = {"amx", 2, {CPU_AMX_BF16, CPU_AMX_INT8}, TABLES_AMX},
};
// clang-format on

/* Written once, under `once`; constant afterwards. */
static struct {
    pthread_once_t once;
    CpuIsa best; /* of this machine */
    CpuIsa used; /* by cpu_kernels: best, or lower where the environment says so */
    bool has[CPU_ISA_COUNT];
    KernelSet backend[NUMERICS][CPU_ISA_COUNT];
    const Kernel *kernel[NUMERICS][CPU_ISA_COUNT][KERNELS_MAX];
} registry = {.once = PTHREAD_ONCE_INIT};

/* Whether the machine has what a level adds. AVX-VNNI is a branch of its own: some of the levels above it come without. */
static bool has_level(CpuIsa isa, uint32_t features)
{
    for (int i = 0; i < levels[isa].n_needs; i++)
        if (!cpu_has(features, levels[isa].needs[i]))
            return false;
    return levels[isa].table[0] && (isa != CPU_ISA_AMX || cpu_request_amx());
}

/* Sets registry.has and returns the best level. */
static CpuIsa detect(void)
{
    const uint32_t features = cpu_features();
    CpuIsa best = CPU_ISA_PORTABLE;
    for (int i = 0; i < CPU_ISA_COUNT; i++) {
        registry.has[i] = has_level((CpuIsa)i, features);
        if (registry.has[i])
            best = (CpuIsa)i;
        else if (levels[i].table[0] && i != CPU_ISA_AVX_VNNI)
            break;
    }
    return best;
}

void cpu_fallback(const KernelArgs *args)
{
    if (args->thread == 0)
        interp_op(args->op, args->in, args->out);
}

/* What stands beside a root is done where the kernel that is best for the root alone does it. */
static bool accepts(const KernelSet *backend, const Op *root, const Op *plan)
{
    const Kernel *alone = root ? kernel_find(backend, root) : NULL;
    return !root || (alone && alone->fuses && kernel_find(backend, plan) == alone);
}

/* The kernels of a level, best first. */
static void collect(CpuIsa isa, bool same)
{
    enum { TINY = 32 << 10 }; /* about a microsecond */
    const Kernel **kernel = registry.kernel[same][isa];
    int n = 0;
    for (int level = (int)isa; level >= 0; level--)
        for (int t = 0; t < TABLES_MAX && registry.has[level]; t++) {
            const Kernel *k = same ? levels[level].same[t] : levels[level].table[t];
            for (; k && k->name; k++) {
                assert(n < KERNELS_MAX);
                kernel[n++] = k;
            }
        }
    registry.backend[same][isa] = (KernelSet){.name = levels[isa].name,
                                              .kernel = kernel,
                                              .n_kernels = n,
                                              .fallback = cpu_fallback,
                                              .accepts = accepts,
                                              .tiny = TINY};
}

static void init(void)
{
    registry.best = registry.used = detect();
    const char *wanted = getenv("CARAVAN_CPU");
    for (int i = 0; i < CPU_ISA_COUNT; i++) {
        collect((CpuIsa)i, false);
        collect((CpuIsa)i, true);
        if (wanted && strcmp(wanted, levels[i].name) == 0 && (CpuIsa)i < registry.best &&
            registry.has[i])
            registry.used = (CpuIsa)i;
    }
}

const KernelSet *cpu_kernels_as(bool same)
{
    pthread_once(&registry.once, init);
    return &registry.backend[same][registry.used];
}

const KernelSet *cpu_kernels(void)
{
    return cpu_kernels_as(false);
}

const KernelSet *cpu_kernels_of_as(CpuIsa isa, bool same)
{
    pthread_once(&registry.once, init);
    return registry.has[isa] ? &registry.backend[same][isa] : NULL;
}

const KernelSet *cpu_kernels_of(CpuIsa isa)
{
    return cpu_kernels_of_as(isa, false);
}

void cpu_why_not_more(StrBuf *out)
{
    pthread_once(&registry.once, init);
    const uint32_t features = cpu_features();
    if (registry.used < registry.best)
        strbuf_printf(out, "%s without CARAVAN_CPU", levels[registry.best].name);
    for (int i = registry.best + 1; i < CPU_ISA_COUNT && registry.used == registry.best; i++) {
        if (levels[i].table[0])
            strbuf_printf(out, "%s%s with", out->length ? "; " : "", levels[i].name);
        for (int k = 0; levels[i].table[0] && k < levels[i].n_needs; k++)
            if (!cpu_has(features, levels[i].needs[k]))
                strbuf_printf(out, " %s", cpu_feature_name(levels[i].needs[k]));
    }
}

bool cpu_chunk_invariant(void)
{
    pthread_once(&registry.once, init);
    return registry.used < CPU_ISA_AMX;
}

const char *cpu_isa_name(CpuIsa isa)
{
    return levels[isa].name;
}
