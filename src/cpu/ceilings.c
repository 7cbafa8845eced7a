/* Ceilings: loops that do nothing but load, and nothing but multiply and add. */
#include "cpu/ceilings.h"

#include "cpu/kernels/amx/config.h"
#include "cpu/registry.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

enum { VECTOR = 64, HUGE_PAGE = 2 << 20 };

/* Larger than the caches of any machine this runs on. */
static const size_t READ_BYTES = (size_t)256 << 20;

typedef uint64_t Words __attribute__((vector_size(VECTOR)));

/* Pieces of a thread's share that have been read in this pass; alone in its cache line. */
typedef struct Taken {
    alignas(VECTOR) atomic_int pieces;
} Taken;

struct ReadProbe {
    Pool *pool;   /* borrowed */
    char *data;   /* owned, READ_BYTES */
    Words *sum;   /* owned [threads]: keeps the loads */
    Taken *taken; /* owned [threads] */
};

/* A piece is read in as many streams as memory likes best: one alone is 5 to 12% slower on an AMD EPYC (Zen 4), eight
   are no faster. */
enum { STREAMS = 4, AHEAD = 4096, PIECE = 2 << 20 };

static void read_piece(const char *data, Words *total)
{
    enum { LENGTH = PIECE / STREAMS };
    Words sum[STREAMS] = {{0}};
    for (int at = 0; at < LENGTH; at += VECTOR)
        for (int i = 0; i < STREAMS; i++) {
            __builtin_prefetch(data + i * LENGTH + at + AHEAD, 0, 2);
            sum[i] += *(const Words *)(const void *)(data + i * LENGTH + at);
        }
    *total += sum[0] + sum[1] + sum[2] + sum[3];
}

/* Each thread its share, and then what others have not come to: who is held up does not hold up all, as in products. */
static void read_memory(void *context, int thread, int n_threads)
{
    ReadProbe *p = context;
    for (int i = 0; i < n_threads; i++) {
        int owner = (thread + i) % n_threads;
        int64_t begin, end, piece;
        kernel_share((int64_t)(READ_BYTES / PIECE), 1, owner, n_threads, &begin, &end);
        while ((piece = begin + atomic_fetch_add(&p->taken[owner].pieces, 1)) < end)
            read_piece(p->data + piece * PIECE, &p->sum[thread]);
    }
}

/* Each thread the part that it will read, so that it lies near. */
static void touch_memory(void *context, int thread, int n_threads)
{
    const ReadProbe *p = context;
    int64_t begin, end;
    kernel_share((int64_t)READ_BYTES, PIECE, thread, n_threads, &begin, &end);
    memset(p->data + begin, 1, (size_t)(end - begin));
}

int read_probe_new(Pool *pool, ReadProbe **out, cvn_err *err)
{
    ReadProbe *p = *out = calloc(1, sizeof *p);
    if (p) {
        p->pool = pool;
        p->data = aligned_alloc(HUGE_PAGE, READ_BYTES);
        p->sum = aligned_alloc(VECTOR, (size_t)pool_threads(pool) * VECTOR);
        p->taken = aligned_alloc(VECTOR, (size_t)pool_threads(pool) * sizeof *p->taken);
    }
    if (!p || !p->data || !p->sum || !p->taken) {
        read_probe_free(p);
        *out = NULL;
        return err_set(err, CVN_EMEM, "no memory to measure the read bandwidth");
    }
    madvise(p->data, READ_BYTES, MADV_HUGEPAGE); /* as weights have them */
    pool_run(pool, touch_memory, p);
    memset(p->sum, 0, (size_t)pool_threads(pool) * VECTOR);
    return CVN_OK;
}

void read_probe_free(ReadProbe *p)
{
    if (!p)
        return;
    free(p->data);
    free(p->sum);
    free(p->taken);
    free(p);
}

double read_probe_run(ReadProbe *p, double seconds)
{
    int64_t begin = clock_ns();
    double passed = 0, bytes = 0;
    while (bytes == 0 || passed < seconds) {
        for (int i = 0; i < pool_threads(p->pool); i++)
            atomic_store(&p->taken[i].pieces, 0);
        pool_run(p->pool, read_memory, p);
        bytes += (double)READ_BYTES;
        passed = (double)(clock_ns() - begin) * 1e-9;
    }
    return bytes / passed;
}

/* A peak: the loop, and the operations of one turn of it. */
typedef struct Peak {
    void (*run)(float *sink, int loops);
    double operations;
    atomic_int *left; /* pieces that nobody has taken */
} Peak;

enum { PIECE_LOOPS = 20000, PIECES = 100, CHAINS = 12 }; /* a piece takes about 0.1 ms */

/* As in read_memory: who is held up does not hold up all. */
static void run_peak(void *context, int thread, int n_threads)
{
    (void)thread;
    (void)n_threads;
    const Peak *peak = context;
    while (atomic_fetch_sub(peak->left, 1) > 0) {
        alignas(VECTOR) float sink[16];
        peak->run(sink, PIECE_LOOPS);
        __asm__ volatile("" : : "r"(sink) : "memory"); /* results are used */
    }
}

/* What compilers may not do half of for all chains first: there are not enough registers for that. */
#if defined(__x86_64__)
#define IN_ORDER(sum) __asm__("" : "+v"(sum))
#elif defined(__aarch64__)
#define IN_ORDER(sum) __asm__("" : "+w"(sum))
#else
#define IN_ORDER(sum)
#endif

/* A loop over chains of sums: what chain i starts with, and what comes of a sum and x each time. */
#define PEAK(name, features, vector, factor, start, more)                                          \
    features static void peak_##name(float *sink, int loops)                                       \
    {                                                                                              \
        const vector x = factor;                                                                   \
        vector chain[CHAINS];                                                                      \
        for (int i = 0; i < CHAINS; i++)                                                           \
            chain[i] = start;                                                                      \
        for (int n = 0; n < loops; n++)                                                            \
            _Pragma("GCC unroll 12") for (int i = 0; i < CHAINS; i++)                              \
            {                                                                                      \
                vector sum = chain[i];                                                             \
                sum = more;                                                                        \
                IN_ORDER(sum);                                                                     \
                chain[i] = sum;                                                                    \
            }                                                                                      \
        for (int i = 1; i < CHAINS; i++)                                                           \
            chain[0] += chain[i];                                                                  \
        memcpy(sink, &chain[0], sizeof chain[0]);                                                  \
    }
/* Four independent sums, as products have them; tiles of zeros take as long as any. */
#define PEAK_TILES(name, features, multiply)                                                       \
    features static void peak_amx_##name(float *sink, int loops)                                   \
    {                                                                                              \
        _tile_loadconfig(&tile_config);                                                            \
        for (int n = 0; n < loops / 4; n++) {                                                      \
            multiply(0, 4, 6);                                                                     \
            multiply(1, 4, 7);                                                                     \
            multiply(2, 5, 6);                                                                     \
            multiply(3, 5, 7);                                                                     \
        }                                                                                          \
        _tile_release();                                                                           \
        *sink = 0;                                                                                 \
    }
#define WITH(features) __attribute__((target(features)))

typedef float Four __attribute__((vector_size(16)));

PEAK(portable, , Four, (Four){0} + 0.5f, (Four){0} + (float)i, sum *x + x)
#if defined(__x86_64__)
/* Bytes widened to 16 bits, two products each added in 32 (kernels/vec_codes.h). */
typedef short Eight __attribute__((vector_size(16)));
typedef int FourWhole __attribute__((vector_size(16)));
PEAK(portable_bytes, , FourWhole, (FourWhole){0} + 0x00010001, (FourWhole){0} + i,
     (FourWhole)__builtin_ia32_pmaddwd128((Eight)x, (Eight)sum) + x)
PEAK(avx2, WITH("avx2,fma"), __m256, _mm256_set1_ps(0.5f), _mm256_set1_ps((float)i),
     _mm256_fmadd_ps(sum, x, x))
/* Bytes: two products each in 16 bits, added up there, as codes of few bits are (kernels/vec_codes.h). */
PEAK(avx2_bytes, WITH("avx2"), __m256i, _mm256_set1_epi8(1), _mm256_set1_epi32(i),
     _mm256_add_epi16(_mm256_maddubs_epi16(x, sum), x))
#if defined(CVN_HAVE_AVX_VNNI)
PEAK(avx_vnni, WITH("avx2,avxvnni"), __m256i, _mm256_set1_epi8(1), _mm256_set1_epi32(i),
     _mm256_dpbusd_avx_epi32(sum, x, x))
#endif
PEAK(avx512, WITH("avx512f"), __m512, _mm512_set1_ps(0.5f), _mm512_set1_ps((float)i),
     _mm512_fmadd_ps(sum, x, x))
PEAK(avx512_bf16, WITH("avx512f,avx512bf16"), __m512, (__m512)_mm512_set1_epi32(0x3f003f00),
     _mm512_set1_ps((float)i), _mm512_dpbf16_ps(sum, (__m512bh)x, (__m512bh)x))
PEAK(avx512_vnni, WITH("avx512f,avx512vnni"), __m512i, _mm512_set1_epi8(1), _mm512_set1_epi32(i),
     _mm512_dpbusd_epi32(sum, x, x))
#if defined(CVN_HAVE_AMX)
PEAK_TILES(bf16, WITH("amx-tile,amx-bf16"), _tile_dpbf16ps)
PEAK_TILES(int8, WITH("amx-tile,amx-int8"), _tile_dpbssd)
#endif
#elif defined(__aarch64__)
PEAK(neon, , float32x4_t, vdupq_n_f32(0.5f), vdupq_n_f32((float)i), vfmaq_f32(x, sum, x))
/* Bytes widened to 16 bits, two products each added in 32 (kernels/vec_codes.h). */
PEAK(neon_bytes, , int32x4_t, vdupq_n_s32(0x00010001), vdupq_n_s32(i),
     vpaddq_s32(vmull_s16(vget_low_s16((int16x8_t)x), vget_low_s16((int16x8_t)sum)),
                vmull_high_s16((int16x8_t)x, (int16x8_t)sum)) +
         x)
#if defined(CVN_HAVE_DOTPROD)
PEAK(dotprod, WITH("arch=armv8.2-a+dotprod"), int32x4_t, vdupq_n_s32(0x01010101), vdupq_n_s32(i),
     vdotq_s32(sum, (int8x16_t)x, (int8x16_t)x))
#endif
#if defined(CVN_HAVE_I8MM)
PEAK(i8mm, WITH("arch=armv8.2-a+i8mm"), int32x4_t, vdupq_n_s32(0x01010101), vdupq_n_s32(i),
     vmmlaq_s32(sum, (int8x16_t)x, (int8x16_t)x))
PEAK(arm_bf16, WITH("arch=armv8.2-a+bf16"), float32x4_t, (float32x4_t)vdupq_n_s32(0x3f013f01),
     vdupq_n_f32((float)i), vbfmmlaq_f32(sum, (bfloat16x8_t)x, (bfloat16x8_t)x))
#endif
#endif

/* Multiply-adds count as two operations. The last row for a level of kernels and a dtype holds. */
static Peak peak_of(cvn_dtype dtype)
{
    static const struct {
        const char *level; /* or NULL: all */
        cvn_dtype dtype;   /* CVN_DTYPE_COUNT: any */
        Peak peak;
    } rows[] = {
        {NULL, CVN_DTYPE_COUNT, {.run = peak_portable, .operations = 2.0 * 4 * CHAINS}},
#if defined(__x86_64__)
        {"portable", CVN_I8, {.run = peak_portable_bytes, .operations = 2.0 * 8 * CHAINS}},
        {"avx2", CVN_DTYPE_COUNT, {.run = peak_avx2, .operations = 2.0 * 8 * CHAINS}},
        {"avx2", CVN_I8, {.run = peak_avx2_bytes, .operations = 2.0 * 32 * CHAINS}},
        {"avx_vnni", CVN_DTYPE_COUNT, {.run = peak_avx2, .operations = 2.0 * 8 * CHAINS}},
#if defined(CVN_HAVE_AVX_VNNI)
        {"avx_vnni", CVN_I8, {.run = peak_avx_vnni, .operations = 2.0 * 32 * CHAINS}},
#endif
        {"avx512", CVN_DTYPE_COUNT, {.run = peak_avx512, .operations = 2.0 * 16 * CHAINS}},
        {"avx512_vnni", CVN_DTYPE_COUNT, {.run = peak_avx512, .operations = 2.0 * 16 * CHAINS}},
        {"avx512_vnni", CVN_I8, {.run = peak_avx512_vnni, .operations = 2.0 * 64 * CHAINS}},
        {"avx512_bf16", CVN_DTYPE_COUNT, {.run = peak_avx512, .operations = 2.0 * 16 * CHAINS}},
        {"avx512_bf16", CVN_BF16, {.run = peak_avx512_bf16, .operations = 2.0 * 32 * CHAINS}},
        {"avx512_bf16", CVN_I8, {.run = peak_avx512_vnni, .operations = 2.0 * 64 * CHAINS}},
        {"amx", CVN_DTYPE_COUNT, {.run = peak_avx512, .operations = 2.0 * 16 * CHAINS}},
#if defined(CVN_HAVE_AMX)
        {"amx", CVN_BF16, {.run = peak_amx_bf16, .operations = 2.0 * 16 * 16 * 32}},
        {"amx", CVN_I8, {.run = peak_amx_int8, .operations = 2.0 * 16 * 16 * 64}},
#endif
#elif defined(__aarch64__)
        {NULL, CVN_DTYPE_COUNT, {.run = peak_neon, .operations = 2.0 * 4 * CHAINS}},
        {"neon", CVN_I8, {.run = peak_neon_bytes, .operations = 2.0 * 8 * CHAINS}},
#if defined(CVN_HAVE_DOTPROD)
        {"dotprod", CVN_I8, {.run = peak_dotprod, .operations = 2.0 * 16 * CHAINS}},
#endif
#if defined(CVN_HAVE_I8MM)
        {"i8mm", CVN_I8, {.run = peak_i8mm, .operations = 2.0 * 32 * CHAINS}},
        {"i8mm", CVN_BF16, {.run = peak_arm_bf16, .operations = 2.0 * 16 * CHAINS}},
#endif
#endif
    };
    Peak peak = rows[0].peak;
    for (size_t i = 1; i < sizeof rows / sizeof *rows; i++)
        if ((!rows[i].level || strcmp(rows[i].level, cpu_kernels()->name) == 0) &&
            (rows[i].dtype == CVN_DTYPE_COUNT || rows[i].dtype == dtype))
            peak = rows[i].peak;
    return peak;
}

double peak_run(Pool *pool, cvn_dtype dtype, double seconds)
{
    Peak peak = peak_of(dtype);
    int pieces = PIECES * pool_threads(pool);
    int64_t begin = clock_ns();
    double passed = 0, operations = 0;
    while (operations == 0 || passed < seconds) {
        atomic_int left = pieces;
        peak.left = &left;
        pool_run(pool, run_peak, &peak);
        operations += peak.operations * PIECE_LOOPS * pieces;
        passed = (double)(clock_ns() - begin) * 1e-9;
    }
    return operations / passed;
}
