/*
 * Tile programs that are compiled whole: every value of a vector stays in a register from the operands to the results, so
 * that nothing is stored and loaded between steps, and square roots and divisions go on while memory is waited for.
 *
 * A program is a row of the list below, in the numbers that tile_program_make gives to places: those of its first steps
 * first, a, b, c and the result of each. What a row says is a constant for the compiler, which makes one loop of it
 * (run_whole in fusion_impl.h); a program that is no row is taken step by step, with the same bits. Rows are worth it
 * where a program is long and its tensors are larger than the caches; and of epilogues of products (compile/region_plan.h)
 * only rows are taken, because it comes in pieces as small as a tile of sums. tests/test_fusion_whole.c holds that the
 * optimizer's programs are rows, tests/test_fuse_products.c that those of SwiGLU are.
 */
#ifndef CVN_CPU_KERNELS_FUSION_WHOLE_H
#define CVN_CPU_KERNELS_FUSION_WHOLE_H

#include "compile/kernel.h"
#include "compile/tile_program.h"

enum { WHOLE_PLACES = 28, WHOLE_STEPS = 16 };

typedef enum WholeKind {
    WHOLE_ADAMW,         /* of f32 alone */
    WHOLE_ADAMW_ROUNDED, /* writes the weight in bf16, too */
    WHOLE_ADAMW_HALF,    /* and reads a gradient in bf16 */
    WHOLE_SWIGLU,        /* epilogue of a product */
    WHOLE_SWIGLU_BACKWARD,
    WHOLE_COUNT
} WholeKind;

typedef struct WholeProgram {
    /* A letter each: r a register, o an operand, w a result, s a scalar, c a constant; capitals are of bf16. */
    char place[WHOLE_PLACES + 1];
    int n_steps;
    TileStep step[WHOLE_STEPS]; /* c of a TILE_SELECT does not count */
} WholeProgram;

/* train/optimizer_adamw.c, behind the scaling of the gradient and before the choice not to step: on s (the scale), m, v and
   w; the gradient g stands before it. What follows the new weight differs: it may be rounded, too.
   Their places, in turn: s, gs; 4 of m; 2 of g^2; 3 of v; 4 up to the root; 3 of the step; 4 of w. */
#define ADAMW_PLACES "srocrrcrocrrscrrsrosrw"

/* g: the number of the gradient as f32; the others follow it. */
#define ADAMW_STEPS(g)                                                                             \
    {TILE_BINARY, OP_MULTIPLY, g, g + 1, -1, g + 2},               /* gs = g s */                  \
        {TILE_MINUS_MUL, OP_MULTIPLY, g + 2, g + 3, g + 4, g + 5}, /* (gs - m) (1 - beta1) */      \
        {TILE_BINARY, OP_ADD, g + 3, g + 5, -1, g + 6},            /* m' */                        \
        {TILE_MUL_MUL, OP_MULTIPLY, g + 2, g + 2, g + 7, g + 8},   /* gs gs (1 - beta2) */         \
        {TILE_MUL_ADD, OP_ADD, g + 9, g + 10, g + 8, g + 11},      /* v' = v beta2 + … */        \
        {TILE_UNARY, OP_SQRT, g + 11, -1, -1, g + 12},                                             \
        {TILE_MUL_ADD, OP_ADD, g + 12, g + 13, g + 14, g + 15},      /* root correction + eps */   \
        {TILE_BINARY, OP_DIVIDE, g + 6, g + 15, -1, g + 16},         /* m' / … */                \
        {TILE_BINARY, OP_MULTIPLY, g + 17, g + 16, -1, g + 18},      /* times the step */          \
        {TILE_MUL_SUB, OP_SUBTRACT, g + 19, g + 20, g + 18, g + 21}, /* w' = w keep - … */       \
    {                                                                                              \
        TILE_SELECT, OP_SELECT, g + 21, g + 19, -1, g + 22                                         \
    }

/* Then w rounded, and the choices of m and v. */
#define ADAMW_ROUNDED_STEPS(g)                                                                     \
    ADAMW_STEPS(g), {TILE_NARROW, OP_CONVERT, g + 22, -1, -1, g + 23},                             \
        {TILE_SELECT, OP_SELECT, g + 6, g + 3, -1, g + 24},                                        \
    {                                                                                              \
        TILE_SELECT, OP_SELECT, g + 11, g + 9, -1, g + 25                                          \
    }

static const WholeProgram whole_programs[WHOLE_COUNT] = {
    [WHOLE_ADAMW] = {"o" ADAMW_PLACES "ww",
                     13,
                     {ADAMW_STEPS(0),
                      {TILE_SELECT, OP_SELECT, 6, 3, -1, 23},
                      {TILE_SELECT, OP_SELECT, 11, 9, -1, 24}}},
    [WHOLE_ADAMW_ROUNDED] = {"o" ADAMW_PLACES "Www", 14, {ADAMW_ROUNDED_STEPS(0)}},
    [WHOLE_ADAMW_HALF] = {"Or" ADAMW_PLACES "Www",
                          15,
                          {{TILE_WIDEN, OP_CONVERT, 0, -1, -1, 1}, ADAMW_ROUNDED_STEPS(1)}},
    /* The epilogue of the product that makes up: of the sums and gate, up rounded and silu(gate) up. */
    [WHOLE_SWIGLU] = {"oWrOrrrW",
                      6,
                      {{TILE_NARROW, OP_CONVERT, 0, -1, -1, 1},
                       {TILE_ROUND, OP_CONVERT, 0, -1, -1, 2},
                       {TILE_WIDEN, OP_CONVERT, 3, -1, -1, 4},
                       {TILE_UNARY, OP_LOGISTIC, 4, -1, -1, 5},
                       {TILE_MUL_MUL, OP_MULTIPLY, 4, 5, 2, 6},
                       {TILE_NARROW, OP_CONVERT, 6, -1, -1, 7}}},
    /* The epilogue of the product that makes the gradient d of silu(gate) up: of the sums, up and gate, d silu(gate), and
       d up (s + gate (1 - s) s), s = logistic(gate). */
    [WHOLE_SWIGLU_BACKWARD] = {"orOrrOrrrWcrrrW",
                               11,
                               {{TILE_ROUND, OP_CONVERT, 0, -1, -1, 1},
                                {TILE_WIDEN, OP_CONVERT, 2, -1, -1, 3},
                                {TILE_BINARY, OP_MULTIPLY, 1, 3, -1, 4},
                                {TILE_WIDEN, OP_CONVERT, 5, -1, -1, 6},
                                {TILE_UNARY, OP_LOGISTIC, 6, -1, -1, 7},
                                {TILE_MUL_MUL, OP_MULTIPLY, 6, 7, 1, 8},
                                {TILE_NARROW, OP_CONVERT, 8, -1, -1, 9},
                                {TILE_MINUS_MUL, OP_MULTIPLY, 10, 7, 7, 11},
                                {TILE_MUL_MUL, OP_MULTIPLY, 4, 6, 11, 12},
                                {TILE_MUL_ADD, OP_ADD, 4, 7, 12, 13},
                                {TILE_NARROW, OP_CONVERT, 13, -1, -1, 14}}},
};

/* The row that a program is, or WHOLE_COUNT. */
WholeKind whole_find(const TileProgram *program);

/* Elements [at, at + n), n <= TILE_ELEMENTS, of what is to be summed (fusion_impl.h). */
typedef void FusionPrologue(const KernelArgs *args, int64_t at, int64_t n, float *out);
FusionPrologue fusion_prologue_portable, fusion_prologue_avx2, fusion_prologue_avx512,
    fusion_prologue_avx512_bf16, fusion_prologue_portable_same, fusion_prologue_avx2_same,
    fusion_prologue_avx512_same;

/* Whether a program is a row for products, whose number it keeps then (TileProgram.epilogue). */
bool whole_is_epilogue(TileProgram *program);

#endif
