/* What tests of kernels of AMX stand on where there is none: each tile instruction does what the manual says (amx_trap.h). On
   a machine with AMX the same is asked of the processor. */
#include "amx_check.h"

#if defined(CVN_HAVE_AMX)

#include "amx_trap.h"
#include "base/float16.h"

#include <sys/wait.h>

#define WITH_TILES __attribute__((noinline, target("amx-tile,amx-bf16,amx-int8")))

enum { ROWS = 16, ROW_BYTES = 64, FAR = 4096 };

typedef struct Config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} Config;

typedef unsigned char Bytes[ROWS][ROW_BYTES];

static void configure(const Config *config)
{
    __asm__ volatile("ldtilecfg %0" ::"m"(*config));
}

static void configure_whole(void)
{
    Config c = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        c.row_bytes[i] = ROW_BYTES;
        c.rows[i] = ROWS;
    }
    configure(&c);
}

static void release(void)
{
    __asm__ volatile("tilerelease" ::: "memory");
}

#define LOAD(tile, p, stride)                                                                      \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #tile ::"r"(p), "r"((long)(stride)) : "memory")
#define STORE(tile, p, stride)                                                                     \
    __asm__ volatile("tilestored %%tmm" #tile ", (%0,%1,1)" ::"r"(p), "r"((long)(stride))          \
                     : "memory")

/* Rows from `from`, `stride` apart, are what a tile holds; the text of an operand is part of the instruction. */
#define CHECK_LOAD(operand, base, index, from, stride)                                             \
    do {                                                                                           \
        memset(got, 0x5a, sizeof got);                                                             \
        __asm__ volatile("tilezero %%tmm5\n\ttileloadd " operand ", %%tmm5" ::base(memory + FAR),  \
                         index                                                                     \
                         : "memory");                                                              \
        STORE(5, got, ROW_BYTES);                                                                  \
        for (int r = 0; r < ROWS; r++)                                                             \
            assert_memory_equal(got[r], memory + FAR + (from) + r * (stride), ROW_BYTES);          \
    } while (0)

/* All forms of an address: both lengths of displacements, scales, registers that need a fourth bit, and no index. */
WITH_TILES static void operands_are_found_wherever_they_lie(void **state)
{
    static unsigned char memory[4 * FAR + ROWS * ROW_BYTES];
    Bytes got;
    needs_amx();
    for (size_t i = 0; i < sizeof memory; i++)
        memory[i] = (unsigned char)(check_uniform() * 256);
    configure_whole();
    CHECK_LOAD("(%0,%1,1)", "r", "r"(80L), 0, 80);
    CHECK_LOAD("(%0,%1,8)", "r", "r"(10L), 0, 80);
    CHECK_LOAD("64(%0,%1,1)", "r", "r"(64L), 64, 64);
    CHECK_LOAD("-64(%0,%1,2)", "r", "r"(64L), -64, 128);
    CHECK_LOAD("4096(%0,%1,4)", "r", "r"(16L), 4096, 64);
    CHECK_LOAD("(%0,%1,1)", "r", "r"(-72L), 0, -72);
    CHECK_LOAD("(%0,%1,1)", "a", "d"(96L), 0, 96);
    CHECK_LOAD("8(%0)", "S", "i"(0), 8, 0);
    {
        register long r12 __asm__("r12") = 100, r13 __asm__("r13") = 100;
        CHECK_LOAD("(%0,%1,1)", "D", "r"(r12), 0, 100);
        CHECK_LOAD("(%0,%1,2)", "D", "r"(r13), 0, 200);
    }
    register const unsigned char *base12 __asm__("r12") = memory, *base13 __asm__("r13") = memory;
    __asm__ volatile(
        "tileloaddt1 (%0,%2,1), %%tmm3\n\ttileloaddt1 1(%1,%2,1), %%tmm4" ::"r"(base12),
        "r"(base13), "c"(68L)
        : "memory");
    STORE(3, got, ROW_BYTES);
    assert_memory_equal(got[15], memory + 15 * 68, ROW_BYTES);
    STORE(4, got, ROW_BYTES);
    assert_memory_equal(got[15], memory + 1 + 15 * 68, ROW_BYTES);
    release();
}

static void fill_bf16(uint16_t x[ROWS][32], int exponent)
{
    for (int i = 0; i < ROWS * 32; i++) {
        double v = ldexp(check_uniform() - 0.5, (int)(check_uniform() * 12) + exponent);
        x[i / 32][i % 32] = bf16_from_f32((float)v);
    }
}

static float flush(float x)
{
    return fabsf(x) < 0x1p-126f ? copysignf(0, x) : x;
}

/* Denormals are zeros in and out; even and odd products are summed apart, each rounded once. */
static float product_of(float c, const uint16_t a[32], uint16_t b[ROWS][32], int j, int pairs)
{
    float sum[2] = {0, 0};
    for (int k = 0; k < pairs; k++)
        for (int o = 0; o < 2; o++) {
            float x = flush(bf16_to_f32(a[2 * k + o])), y = flush(bf16_to_f32(b[k][2 * j + o]));
            sum[o] = flush(fmaf(x, y, sum[o]));
        }
    return flush(flush(c) + flush(sum[0] + sum[1]));
}

WITH_TILES static void products_of_bf16_have_the_bits_of_the_manual(void **state)
{
    uint16_t a[ROWS][32], b[ROWS][32];
    float before[ROWS][16], got[ROWS][16];
    needs_amx();
    configure_whole();
    /* ordinary numbers; products that are denormals; operands that are */
    static const int exponents[][2] = {{-5, -5}, {-70, -65}, {-134, 10}, {60, 50}};
    for (int t = 0; t < 4; t++) {
        fill_bf16(a, exponents[t][0]);
        fill_bf16(b, exponents[t][1]);
        for (int i = 0; i < ROWS * 16; i++)
            before[i / 16][i % 16] =
                ldexpf((float)check_uniform() - 0.5f, exponents[t][0] + exponents[t][1]);
        LOAD(0, before, ROW_BYTES);
        LOAD(7, a, ROW_BYTES);
        LOAD(2, b, ROW_BYTES);
        __asm__ volatile("tdpbf16ps %%tmm2, %%tmm7, %%tmm0" ::: "memory");
        STORE(0, got, ROW_BYTES);
        for (int i = 0; i < ROWS * 16; i++) {
            float want = product_of(before[i / 16][i % 16], a[i / 16], b, i % 16, ROWS);
            assert_memory_equal(&got[i / 16][i % 16], &want, sizeof want);
        }
    }
    release();
}

WITH_TILES static void products_of_8_bits_are_exact(void **state)
{
    int8_t a[ROWS][ROW_BYTES], b[ROWS][ROW_BYTES];
    int32_t got[ROWS][16];
    needs_amx();
    configure_whole();
    for (int i = 0; i < ROWS * ROW_BYTES; i++) {
        a[i / 64][i % 64] = (int8_t)(i < 64 ? -128 : (int)(check_uniform() * 256) - 128);
        b[i / 64][i % 64] = (int8_t)(i % 64 < 4 ? -128 : (int)(check_uniform() * 256) - 128);
    }
    LOAD(1, a, ROW_BYTES);
    LOAD(6, b, ROW_BYTES);
    __asm__ volatile("tilezero %%tmm4\n\ttdpbssd %%tmm6, %%tmm1, %%tmm4" ::: "memory");
    __asm__ volatile("tdpbssd %%tmm6, %%tmm1, %%tmm4" ::: "memory");
    STORE(4, got, ROW_BYTES);
    for (int i = 0; i < ROWS * 16; i++) {
        int32_t want = 0;
        for (int k = 0; k < ROW_BYTES; k++)
            want += a[i / 16][k] * b[k / 4][i % 16 * 4 + k % 4];
        assert_int_equal(got[i / 16][i % 16], 2 * want);
    }
    release();
}

/* 5 rows of 3 sums, of 2 pairs each: what is around them is neither read nor written. */
WITH_TILES static void tiles_are_as_large_as_configured(void **state)
{
    const Config config = {.palette = 1, .row_bytes = {12, 8, 12}, .rows = {5, 5, 2}};
    uint16_t a[ROWS][32], b[ROWS][32];
    float got[ROWS][16];
    needs_amx();
    fill_bf16(a, 0);
    fill_bf16(b, 0);
    b[0][6] = b[2][0] = a[0][4] = 0x7fc0; /* a NaN outside */
    memset(got, 0, sizeof got);
    configure(&config);
    LOAD(1, a, ROW_BYTES);
    LOAD(2, b, ROW_BYTES);
    __asm__ volatile("tilezero %%tmm0\n\ttdpbf16ps %%tmm2, %%tmm1, %%tmm0" ::: "memory");
    STORE(0, got, ROW_BYTES);
    release();
    for (int i = 0; i < ROWS * 16; i++) {
        float want = i / 16 < 5 && i % 16 < 3 ? product_of(0, a[i / 16], b, i % 16, 2) : 0;
        assert_memory_equal(&got[i / 16][i % 16], &want, sizeof want);
    }
}

static void without_configuration(void)
{
    __asm__ volatile("tilezero %%tmm0" ::: "memory");
}

static void after_release(void)
{
    configure_whole();
    release();
    __asm__ volatile("tdpbssd %%tmm6, %%tmm1, %%tmm4" ::: "memory");
}

static void of_one_tile(void)
{
    configure_whole();
    __asm__ volatile(".byte 0xc4, 0xe2, 0x7b, 0x5e, 0xc0" ::
                         : "memory"); /* tdpbssd tmm0, tmm0, tmm0 */
}

static void of_shapes_that_differ(void)
{
    const Config config = {.palette = 1, .row_bytes = {12, 8, 12}, .rows = {5, 4, 2}};
    configure(&config);
    __asm__ volatile("tdpbf16ps %%tmm2, %%tmm1, %%tmm0" ::: "memory");
}

static void of_no_kind_that_is_known(void)
{
    __asm__ volatile("ud2");
}

static void what_an_amx_refuses_ends_the_program(void **state)
{
    static void (*const wrong[])(void) = {without_configuration, after_release, of_one_tile,
                                          of_shapes_that_differ, of_no_kind_that_is_known};
    needs_amx();
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        pid_t child = fork();
        if (child == 0) {
            close(STDERR_FILENO); /* where it would say why */
            wrong[i]();
            _exit(0);
        }
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(operands_are_found_wherever_they_lie),
        cmocka_unit_test(products_of_bf16_have_the_bits_of_the_manual),
        cmocka_unit_test(products_of_8_bits_are_exact),
        cmocka_unit_test(tiles_are_as_large_as_configured),
        cmocka_unit_test(what_an_amx_refuses_ends_the_program),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

int main(void)
{
    return amx_is_unknown();
}

#endif
