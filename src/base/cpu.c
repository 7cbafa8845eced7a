#include "base/cpu.h"

#include <string.h>

const char *cpu_feature_name(CpuFeature feature)
{
    static const char *const names[CPU_FEATURE_COUNT] = {
#define X(feature, name) [feature] = name,
        CPU_FEATURES(X)
#undef X
    };
    return feature >= 0 && feature < CPU_FEATURE_COUNT ? names[feature] : "?";
}

#if defined(__x86_64__)

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { EAX, EBX, ECX, EDX };

typedef struct CpuidBit {
    unsigned leaf, subleaf;
    int reg, bit;
    unsigned xcr0; /* bits that must all be set */
} CpuidBit;

#define YMM 0x6u
#define ZMM 0xe6u
#define TILES 0x60000u

static const CpuidBit cpuid_bits[CPU_FEATURE_COUNT] = {
    [CPU_FMA] = {1, 0, ECX, 12, YMM},        [CPU_F16C] = {1, 0, ECX, 29, YMM},
    [CPU_AVX2] = {7, 0, EBX, 5, YMM},        [CPU_AVX512F] = {7, 0, EBX, 16, ZMM},
    [CPU_AVX512DQ] = {7, 0, EBX, 17, ZMM},   [CPU_AVX512BW] = {7, 0, EBX, 30, ZMM},
    [CPU_AVX512VL] = {7, 0, EBX, 31, ZMM},   [CPU_AVX512_VNNI] = {7, 0, ECX, 11, ZMM},
    [CPU_AVX512_BF16] = {7, 1, EAX, 5, ZMM}, [CPU_AMX_TILE] = {7, 0, EDX, 24, TILES},
    [CPU_AMX_BF16] = {7, 0, EDX, 22, TILES}, [CPU_AMX_INT8] = {7, 0, EDX, 25, TILES},
    [CPU_AVX_VNNI] = {7, 1, EAX, 4, YMM},
};

uint32_t cpu_features(void)
{
    /* XCR0: which registers the system saves at a switch; 0 where xgetbv itself is not enabled. */
    unsigned xcr0 = 0, high, one[4];
    if (__get_cpuid(1, &one[EAX], &one[EBX], &one[ECX], &one[EDX]) && (one[ECX] >> 27 & 1))
        __asm__ volatile("xgetbv" : "=a"(xcr0), "=d"(high) : "c"(0));
    uint32_t features = 0;
    for (int i = 0; i < CPU_FEATURE_COUNT; i++) {
        const CpuidBit *want = &cpuid_bits[i];
        unsigned r[4] = {0};
        if (!want->leaf || (xcr0 & want->xcr0) != want->xcr0)
            continue;
        if (__get_cpuid_count(want->leaf, want->subleaf, &r[EAX], &r[EBX], &r[ECX], &r[EDX]))
            features |= (r[want->reg] >> want->bit & 1u) << i;
    }
    return features;
}

/* Palette 1: eight tiles of 16 rows of 64 bytes, which is what kernels are made for. */
static bool has_palette(void)
{
    unsigned r[4] = {0};
    return __get_cpuid_count(0x1d, 1, &r[EAX], &r[EBX], &r[ECX], &r[EDX]) &&
           (r[EBX] & 0xffff) >= 64 && r[EBX] >> 16 >= 8 && (r[ECX] & 0xffff) >= 16;
}

/* Refused where a thread has a stack for signals that has
   no room for tiles, or where the system is too old. */
bool cpu_request_amx(void)
{
#if defined(__linux__) && defined(SYS_arch_prctl)
    enum { ARCH_REQUEST_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
    return cpu_has(cpu_features(), CPU_AMX_TILE) && has_palette() &&
           syscall(SYS_arch_prctl, ARCH_REQUEST_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
#else
    return has_palette() && false;
#endif
}

const char *cpu_brand(char text[CPU_BRAND_SIZE])
{
    unsigned r[12] = {0};
    text[0] = '\0';
    if ((unsigned)__get_cpuid_max(0x80000000u, NULL) < 0x80000004u)
        return text;
    for (unsigned i = 0; i < 3; i++)
        __get_cpuid(0x80000002u + i, &r[4 * i], &r[4 * i + 1], &r[4 * i + 2], &r[4 * i + 3]);
    const char *brand = (const char *)r;
    size_t n = strnlen(brand, sizeof r);
    while (n && brand[0] == ' ')
        brand++, n--;
    while (n && brand[n - 1] == ' ')
        n--;
    memcpy(text, brand, n);
    text[n] = '\0';
    return text;
}

#else

#if defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>

static bool has_feature(CpuFeature feature)
{
    static const struct {
        unsigned long type, bit;
    } where[CPU_FEATURE_COUNT] = {[CPU_DOTPROD] = {AT_HWCAP, 20},
                                  [CPU_I8MM] = {AT_HWCAP2, 13},
                                  [CPU_ARM_BF16] = {AT_HWCAP2, 14}};
    return where[feature].type && getauxval(where[feature].type) >> where[feature].bit & 1;
}
#elif defined(__aarch64__) && defined(__APPLE__)
#include <sys/sysctl.h>

static bool has_feature(CpuFeature feature)
{
    static const char *const name[CPU_FEATURE_COUNT] = {
        [CPU_DOTPROD] = "hw.optional.arm.FEAT_DotProd",
        [CPU_I8MM] = "hw.optional.arm.FEAT_I8MM",
        [CPU_ARM_BF16] = "hw.optional.arm.FEAT_BF16"};
    int has = 0;
    size_t size = sizeof has;
    return name[feature] && sysctlbyname(name[feature], &has, &size, NULL, 0) == 0 && has;
}
#else
static bool has_feature(CpuFeature feature)
{
    (void)feature;
    return false;
}
#endif

uint32_t cpu_features(void)
{
    uint32_t features = 0;
#if defined(__aarch64__)
    features = UINT32_C(1) << CPU_NEON; /* of every such processor */
#endif
    for (int i = 0; i < CPU_FEATURE_COUNT; i++)
        features |= (uint32_t)has_feature((CpuFeature)i) << i;
    return features;
}

bool cpu_request_amx(void)
{
    return false;
}

const char *cpu_brand(char text[CPU_BRAND_SIZE])
{
    text[0] = '\0';
    return text;
}

#endif
