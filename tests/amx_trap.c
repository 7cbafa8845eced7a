/*
 * Tile instructions, decoded and carried out (Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, and
 * volume 1, 18: tiles). All of them begin with three bytes of VEX:
 *
 *     C4   R X B 0 0 0 1 0   W vvvv L pp   opcode   ModRM   SIB   displacement
 *          R, X, B, vvvv inverted; the fourth bits of ModRM.reg, SIB.index, and ModRM.rm or SIB.base; W = L = 0
 *
 *     opcode  pp   ModRM
 *     49      -    memory, 0     LDTILECFG         4B      F2   memory with SIB   TILELOADD
 *     49      66   memory, 0     STTILECFG         4B      66   memory with SIB   TILELOADDT1
 *     49      -    C0            TILERELEASE       4B      F3   memory with SIB   TILESTORED
 *     49      F2   11 reg 000    TILEZERO          5C      F3   11 reg rm         TDPBF16PS reg, rm, vvvv
 *                                                  5E      F2   11 reg rm         TDPBSSD reg, rm, vvvv
 *
 * Row r of a tile in memory begins at base + displacement + r * (index << scale).
 */
#include "amx_trap.h"

#include <immintrin.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>
#include <unistd.h>

enum { TILES = 8, ROWS = 16, ROW_BYTES = 64 };

/* As LDTILECFG reads and STTILECFG writes it. */
typedef struct Config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} Config;

_Static_assert(sizeof(Config) == 64, "what LDTILECFG reads");

typedef unsigned char Tile[ROWS][ROW_BYTES];

/* Of one thread. What lies outside a tile's rows and columns is 0, as in the processor. */
static _Thread_local struct {
    Config config; /* palette 0: not configured */
    Tile tile[TILES] __attribute__((aligned(64)));
} state;

static atomic_long configured, products, held;

/* An instruction that was met. */
typedef struct Met {
    const unsigned char *code;
    const char *name;
    int reg, rm, vvvv;
    bool memory, sib;
    uintptr_t address; /* of its operand in memory */
    int64_t stride;    /* of its rows, bytes */
    size_t length;     /* of the instruction */
} Met;

static _Noreturn void refuse(const Met *m, const char *why)
{
    char bytes[3 * 15 + 1] = "";
    for (size_t i = 0; i < 12; i++)
        snprintf(bytes + 3 * i, 4, " %02x", m->code[i]);
    dprintf(STDERR_FILENO, "amx_trap: %s at %p (%s): %s\n", m->name, (const void *)m->code,
            bytes + 1, why);
    abort();
}

/* Addresses and strides are numbers of the interrupted code. */
static void *row_at(const Met *m, int row)
{
    return (void *)(m->address + (uintptr_t)(m->stride * row)); /* NOLINT */
}

static int rows_of(int tile)
{
    return state.config.rows[tile];
}

static size_t row_bytes_of(int tile)
{
    return state.config.row_bytes[tile];
}

static void need(const Met *m, int tile)
{
    if (state.config.palette == 0)
        refuse(m, "this thread has not configured its tiles");
    if (tile >= TILES || rows_of(tile) == 0)
        refuse(m, "the tile is not configured");
}

/* ---- configuration ---- */

static void release(const Met *m)
{
    (void)m;
    if (state.config.palette)
        atomic_fetch_sub(&held, 1);
    memset(&state, 0, sizeof state);
}

static void load_config(const Met *m)
{
    Config c;
    memcpy(&c, row_at(m, 0), sizeof c);
    release(m);
    if (c.palette == 0)
        return;
    bool good =
        c.palette == 1 && c.start_row == 0; /* rows after a fault begin elsewhere: none here */
    for (int i = 0; i < 14; i++)
        good &= c.reserved[i] == 0;
    for (int i = 0; i < 16; i++)
        good &= i < TILES ? c.rows[i] <= ROWS && c.row_bytes[i] <= ROW_BYTES &&
                                !c.rows[i] == !c.row_bytes[i]
                          : c.rows[i] == 0 && c.row_bytes[i] == 0;
    if (!good)
        refuse(m, "the configuration is none of palette 1");
    state.config = c;
    atomic_fetch_add(&configured, 1);
    atomic_fetch_add(&held, 1);
}

static void store_config(const Met *m)
{
    memcpy(row_at(m, 0), &state.config, sizeof state.config);
}

/* ---- memory ---- */

static void zero(const Met *m)
{
    need(m, m->reg);
    memset(state.tile[m->reg], 0, sizeof state.tile[0]);
}

static void load(const Met *m)
{
    need(m, m->reg);
    memset(state.tile[m->reg], 0, sizeof state.tile[0]);
    for (int r = 0; r < rows_of(m->reg); r++)
        memcpy(state.tile[m->reg][r], row_at(m, r), row_bytes_of(m->reg));
}

static void store(const Met *m)
{
    need(m, m->reg);
    for (int r = 0; r < rows_of(m->reg); r++)
        memcpy(row_at(m, r), state.tile[m->reg][r], row_bytes_of(m->reg));
}

/* ---- products ---- */

/* c = reg, a = rm, b = vvvv; of both, elements of 4 bytes belong together. */
static void need_product(const Met *m)
{
    need(m, m->reg);
    need(m, m->rm);
    need(m, m->vvvv);
    if (m->reg == m->rm || m->reg == m->vvvv || m->rm == m->vvvv)
        refuse(m, "its tiles must be three");
    if (rows_of(m->reg) != rows_of(m->rm) || row_bytes_of(m->reg) != row_bytes_of(m->vvvv) ||
        row_bytes_of(m->rm) != 4 * (size_t)rows_of(m->vvvv) || row_bytes_of(m->reg) % 4)
        refuse(m, "the shapes of its tiles do not match");
    atomic_fetch_add(&products, 1);
}

/* Elements of a row of the result. */
static __mmask16 columns_of(int tile)
{
    return (__mmask16)((1u << (row_bytes_of(tile) / 4)) - 1);
}

/* The sums of even products and those of odd ones, each in the order of k, then both at once. With MXCSR as set by
   on_unknown: to the nearest even, denormals are 0. */
__attribute__((noinline, target("avx512f"))) static void add_bf16(const Met *m)
{
    const __m512i upper = _mm512_set1_epi32(-0x10000);
    const __mmask16 columns = columns_of(m->reg);
    const int pairs = rows_of(m->vvvv);
    __m512 even[ROWS], odd[ROWS];
    for (int k = 0; k < pairs; k++) {
        __m512i b = _mm512_load_si512(state.tile[m->vvvv][k]);
        even[k] = _mm512_castsi512_ps(_mm512_slli_epi32(b, 16));
        odd[k] = _mm512_castsi512_ps(_mm512_and_si512(b, upper));
    }
    for (int r = 0; r < rows_of(m->reg); r++) {
        __m512 sum[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
        for (int k = 0; k < pairs; k++) {
            int32_t pair;
            memcpy(&pair, &state.tile[m->rm][r][4 * k], sizeof pair);
            __m512i a = _mm512_set1_epi32(pair);
            sum[0] =
                _mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_slli_epi32(a, 16)), even[k], sum[0]);
            sum[1] =
                _mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_and_si512(a, upper)), odd[k], sum[1]);
        }
        void *c = state.tile[m->reg][r];
        __m512 before = _mm512_load_ps(c);
        _mm512_mask_store_ps(c, columns, _mm512_add_ps(before, _mm512_add_ps(sum[0], sum[1])));
    }
}

/* Bytes 0 and 2, and 1 and 3, of four, widened. */
__attribute__((target("avx512f,avx512bw"))) static inline __m512i widen(__m512i x, bool odd)
{
    return _mm512_srai_epi16(odd ? x : _mm512_slli_epi16(x, 8), 8);
}

__attribute__((noinline, target("avx512f,avx512bw"))) static void add_s8(const Met *m)
{
    const __mmask16 columns = columns_of(m->reg);
    const int quads = rows_of(m->vvvv);
    for (int r = 0; r < rows_of(m->reg); r++) {
        void *c = state.tile[m->reg][r];
        __m512i sum = _mm512_load_si512(c);
        for (int k = 0; k < quads; k++) {
            int32_t quad;
            memcpy(&quad, &state.tile[m->rm][r][4 * k], sizeof quad);
            __m512i a = _mm512_set1_epi32(quad), b = _mm512_load_si512(state.tile[m->vvvv][k]);
            sum = _mm512_add_epi32(sum, _mm512_madd_epi16(widen(a, false), widen(b, false)));
            sum = _mm512_add_epi32(sum, _mm512_madd_epi16(widen(a, true), widen(b, true)));
        }
        _mm512_mask_store_epi32(c, columns, sum);
    }
}

static void product_bf16(const Met *m)
{
    enum { NEAREST_DENORMALS_ARE_ZERO = 0x9fc0 }; /* and nothing is trapped */
    need_product(m);
    unsigned before = _mm_getcsr();
    _mm_setcsr(NEAREST_DENORMALS_ARE_ZERO);
    add_bf16(m);
    _mm_setcsr(before);
}

static void product_s8(const Met *m)
{
    need_product(m);
    add_s8(m);
}

/* ---- decoding ---- */

enum { PP_NONE, PP_66, PP_F3, PP_F2 };
enum {
    HAS_MEMORY = 1,
    HAS_SIB = 2,
    HAS_REG = 4,
    HAS_RM = 8,
    HAS_VVVV = 16
}; /* else all must be 0 */

static const struct {
    const char *name;
    int opcode, pp, form;
    void (*run)(const Met *m);
} instructions[] = {
    {"LDTILECFG", 0x49, PP_NONE, HAS_MEMORY, load_config},
    {"STTILECFG", 0x49, PP_66, HAS_MEMORY, store_config},
    {"TILERELEASE", 0x49, PP_NONE, 0, release},
    {"TILEZERO", 0x49, PP_F2, HAS_REG, zero},
    {"TILELOADD", 0x4b, PP_F2, HAS_MEMORY | HAS_SIB | HAS_REG, load},
    {"TILELOADDT1", 0x4b, PP_66, HAS_MEMORY | HAS_SIB | HAS_REG, load},
    {"TILESTORED", 0x4b, PP_F3, HAS_MEMORY | HAS_SIB | HAS_REG, store},
    {"TDPBF16PS", 0x5c, PP_F3, HAS_REG | HAS_RM | HAS_VVVV, product_bf16},
    {"TDPBSSD", 0x5e, PP_F2, HAS_REG | HAS_RM | HAS_VVVV, product_s8},
};

static const int general[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP,
                                REG_RSI, REG_RDI, REG_R8,  REG_R9,  REG_R10, REG_R11,
                                REG_R12, REG_R13, REG_R14, REG_R15};

/* The operand in memory, of ModRM and what follows it. */
static void decode_memory(Met *m, const greg_t *reg, int mode, int base_high, int index_high)
{
    const unsigned char *at = m->code + 5;
    int base = m->rm & 7, scale = 0, index = 4; /* 4: there is none */
    int8_t narrow = 0;
    int32_t wide = 0;
    m->sib = base == 4;
    if (m->sib) {
        base = *at & 7;
        index = (*at >> 3 & 7) + index_high;
        scale = *at++ >> 6;
    }
    bool from_nothing =
        mode == 0 &&
        base == 5; /* but a displacement of 4 bytes; without SIB, from the next instruction */
    if (mode == 1)
        memcpy(&narrow, at++, 1);
    if (mode == 2 || from_nothing) {
        memcpy(&wide, at, 4);
        at += 4;
    }
    m->length = (size_t)(at - m->code);
    greg_t from = from_nothing ? (m->sib ? 0 : reg[REG_RIP] + (greg_t)m->length)
                               : reg[general[base + base_high]];
    m->address = (uintptr_t)(from + narrow + wide);
    m->stride = index == 4 ? 0 : (int64_t)((uint64_t)reg[general[index]] << scale);
}

static bool begins_as_tiles_do(const unsigned char *code)
{
    return code[0] == 0xc4 && (code[1] & 0x1f) == 2 && (code[2] & 0x84) == 0;
}

static Met decode(const unsigned char *code, const greg_t *reg)
{
    Met m = {.code = code, .name = "an instruction", .length = 5};
    int mode = code[4] >> 6, b = code[1] & 0x20 ? 0 : 8, x = code[1] & 0x40 ? 0 : 8;
    m.memory = mode != 3;
    m.reg = (code[4] >> 3 & 7) + (code[1] & 0x80 ? 0 : 8);
    m.rm = (code[4] & 7) + b;
    m.vvvv = ~code[2] >> 3 & 15;
    if (m.memory) {
        decode_memory(&m, reg, mode, b, x);
        m.rm = 0;
    }
    return m;
}

/* Carries out the instruction at RIP, if it is one of the table. */
static bool carry_out(greg_t *reg)
{
    const unsigned char *code = (const unsigned char *)reg[REG_RIP]; /* NOLINT */
    if (!begins_as_tiles_do(code))
        return false;
    Met m = decode(code, reg);
    for (size_t i = 0; i < sizeof instructions / sizeof *instructions; i++) {
        int form = instructions[i].form;
        if (instructions[i].opcode != code[3] || instructions[i].pp != (code[2] & 3) ||
            !(form & HAS_MEMORY) != !m.memory || ((form & HAS_SIB) && !m.sib))
            continue;
        m.name = instructions[i].name;
        if ((!(form & HAS_REG) && m.reg) || (!(form & HAS_RM) && m.rm) ||
            (!(form & HAS_VVVV) && m.vvvv))
            refuse(&m, "it has operands that it cannot have");
        instructions[i].run(&m);
        reg[REG_RIP] += (greg_t)m.length;
        return true;
    }
    return false;
}

/* Carries out what was stopped at and the tile instructions right behind it, and goes on after them. */
static void on_unknown(int number, siginfo_t *info, void *context)
{
    greg_t *reg = ((ucontext_t *)context)->uc_mcontext.gregs;
    Met unknown = {.code = info->si_addr, .name = "SIGILL"};
    (void)number;
    if (!carry_out(reg))
        refuse(&unknown, "it is no instruction that is carried out here");
    while (carry_out(reg))
        ;
}

/* ---- setting up ---- */

/* cmocka asks for SIGILL around every test, to call it a failure: it stays with on_unknown, which names what is none of its.
   A program's own definition goes before the C library's. */
__sighandler_t signal(int number, __sighandler_t handler)
{
    struct sigaction now = {.sa_flags = SA_RESTART}, before;
    now.sa_handler = handler;
    if (number == SIGILL)
        return SIG_DFL;
    return sigaction(number, &now, &before) == 0 ? before.sa_handler : SIG_ERR;
}

AmxTrapCounts amx_trap_counts(void)
{
    return (AmxTrapCounts){atomic_load(&configured), atomic_load(&products), atomic_load(&held)};
}

static void report(void)
{
    AmxTrapCounts n = amx_trap_counts();
    dprintf(STDERR_FILENO,
            "amx_trap: tiles configured %ld times, %ld products, %ld threads hold them\n",
            n.configured, n.products, n.held);
}

bool amx_trap_begin(void)
{
    static atomic_bool begun;
    struct sigaction act = {.sa_flags = SA_SIGINFO | SA_NODEFER};
    act.sa_sigaction = on_unknown;
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw"))
        return false;
    if (!atomic_exchange(&begun, true) && getenv("AMX_TRAP_REPORT"))
        atexit(report);
    return sigaction(SIGILL, &act, NULL) == 0;
}
