/*
 * dot_general as kernels: for each row of the table of instruction sets one that packs and one for few rows, which are
 * read as they lie (choice.h); all the same code around it.
 */
#include "cpu/kernels/choice.h"
#include "cpu/kernels/fusion_whole.h"
#include "cpu/kernels/gemm.h"
#include "cpu/kernels/kernels.h"

static bool result_fits(const Op *op)
{
    cvn_dtype out = op->result[0]->type.dtype;
    return out == CVN_F32 || out == CVN_BF16 || out == CVN_F16;
}

/* f16 is widened to f32 while packing. */
static bool match_f32(const Op *op)
{
    cvn_dtype in = op->operand[0]->type.dtype;
    return (in == CVN_F32 || in == CVN_F16) && result_fits(op);
}

static bool match_bf16(const Op *op)
{
    return op->operand[0]->type.dtype == CVN_BF16 && result_fits(op);
}

static Gemm gemm_of(const Op *op)
{
    Gemm gemm;
    gemm_from_op(op, &gemm);
    return gemm;
}

static bool match_few(const GemmIsa *isa, const char *name, const Op *op)
{
    Gemm gemm = gemm_of(op);
    return result_fits(op) && !gemm.residual && !gemm.transposed && gemm_few_match(isa, &gemm) &&
           choice_takes(name, gemm.m);
}

/* The functions of an instruction set, all or for few rows: a kernel has no other way to carry it. And its row of a table. */
#define FUNCTIONS(isa, few)                                                                        \
    static size_t scratch##few##_##isa(const Op *op, int n_threads)                                \
    {                                                                                              \
        Gemm gemm = gemm_of(op);                                                                   \
        return gemm##few##_scratch(&gemm_##isa, &gemm, n_threads);                                 \
    }                                                                                              \
    static void run##few##_##isa(const KernelArgs *args)                                           \
    {                                                                                              \
        Gemm gemm = gemm_of(args->op);                                                             \
        gemm##few##_run(&gemm_##isa, &gemm, args);                                                 \
    }
#define DOT_FUNCTIONS(isa) FUNCTIONS(isa, )
#define DOT_ROW(text, isa, matches)                                                                \
    {                                                                                              \
        .name = text, .kind = OP_DOT_GENERAL, .match = matches, .scratch = scratch_##isa,          \
        .run = run_##isa, .in_place = 4, .epilogue = whole_epilogue,                               \
        .fuses =                                                                                   \
            EPILOGUE_CONVERT | EPILOGUE_RESIDUAL | EPILOGUE_TRANSPOSE | EPILOGUE_COLUMN_SQUARES    \
    }

/* The same for few rows. */
#define FEW_FUNCTIONS(isa, text)                                                                   \
    static bool match_few_##isa(const Op *op)                                                      \
    {                                                                                              \
        return match_few(&gemm_##isa, text, op);                                                   \
    }                                                                                              \
    FUNCTIONS(isa, _few)
#define FEW_ROW(text, isa)                                                                         \
    {                                                                                              \
        .name = text, .kind = OP_DOT_GENERAL, .match = match_few_##isa,                            \
        .scratch = scratch_few_##isa, .run = run_few_##isa, .fuses = EPILOGUE_CONVERT              \
    }

DOT_FUNCTIONS(portable_f32)
FEW_FUNCTIONS(portable_f32, "dot_general.portable.f32.few")
DOT_FUNCTIONS(portable_bf16)
FEW_FUNCTIONS(portable_bf16, "dot_general.portable.bf16.few")

const Kernel dot_kernels_portable[] = {
    FEW_ROW("dot_general.portable.f32.few", portable_f32),
    DOT_ROW("dot_general.portable.f32", portable_f32, match_f32),
    FEW_ROW("dot_general.portable.bf16.few", portable_bf16),
    DOT_ROW("dot_general.portable.bf16", portable_bf16, match_bf16),
    {0},
};

#if defined(CVN_HAVE_AVX2)
DOT_FUNCTIONS(avx2_f32)
FEW_FUNCTIONS(avx2_f32, "dot_general.avx2.f32.few")
DOT_FUNCTIONS(avx2_bf16)
FEW_FUNCTIONS(avx2_bf16, "dot_general.avx2.bf16.few")

const Kernel dot_kernels_avx2[] = {
    FEW_ROW("dot_general.avx2.f32.few", avx2_f32),
    DOT_ROW("dot_general.avx2.f32", avx2_f32, match_f32),
    FEW_ROW("dot_general.avx2.bf16.few", avx2_bf16),
    DOT_ROW("dot_general.avx2.bf16", avx2_bf16, match_bf16),
    {0},
};
#endif

#if defined(CVN_HAVE_AVX512)
DOT_FUNCTIONS(avx512_f32)
FEW_FUNCTIONS(avx512_f32, "dot_general.avx512.f32.few")
DOT_FUNCTIONS(avx512_bf16)
FEW_FUNCTIONS(avx512_bf16, "dot_general.avx512.bf16.few")
DOT_FUNCTIONS(avx512_bf16dot)
FEW_FUNCTIONS(avx512_bf16dot, "dot_general.avx512.bf16dot.few")

const Kernel dot_kernels_avx512[] = {
    FEW_ROW("dot_general.avx512.f32.few", avx512_f32),
    DOT_ROW("dot_general.avx512.f32", avx512_f32, match_f32),
    FEW_ROW("dot_general.avx512.bf16.few", avx512_bf16),
    DOT_ROW("dot_general.avx512.bf16", avx512_bf16, match_bf16),
    {0},
};

const Kernel dot_kernels_avx512_bf16[] = {
    FEW_ROW("dot_general.avx512.bf16dot.few", avx512_bf16dot),
    DOT_ROW("dot_general.avx512.bf16dot", avx512_bf16dot, match_bf16),
    {0},
};
#endif

#if defined(CVN_HAVE_AMX)
DOT_FUNCTIONS(amx_bf16)

/* Tiles take whole panels; a few rows are read where they lie by the next level. */
static bool match_amx_bf16(const Op *op)
{
    return match_bf16(op) && choice_takes("dot_general.amx.bf16", gemm_of(op).m);
}

const Kernel dot_kernels_amx[] = {
    DOT_ROW("dot_general.amx.bf16", amx_bf16, match_amx_bf16),
    {0},
};
#endif
