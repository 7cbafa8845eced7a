/*
 * dot_general as kernels: for each row of the table of instruction sets one that packs and one for few rows, which are
 * read as they lie (choice.h); all the same code around it.
 */
#include "compile/fused.h"
#include "cpu/kernels/choice.h"
#include "cpu/kernels/gemm.h"
#include "cpu/kernels/kernels.h"

static bool result_fits(const Op *op)
{
    cvn_dtype out = op->result[0]->type.dtype;
    return out == CVN_F32 || out == CVN_BF16 || out == CVN_F16;
}

/* f16 is widened to f32 while packing. */
static bool match(const Kernel *kernel, const Op *op)
{
    const GemmIsa *isa = kernel->isa;
    cvn_dtype in = op->operand[0]->type.dtype;
    return (in == isa->source || (in == CVN_F16 && isa->source == CVN_F32)) && result_fits(op) &&
           choice_takes(kernel->name, gemm_from_op(op).m);
}

static size_t scratch(const Kernel *kernel, const Op *op, int n_threads)
{
    Gemm gemm = gemm_from_op(op);
    return gemm_scratch(kernel->isa, &gemm, n_threads);
}

static void run(const KernelArgs *args)
{
    Gemm gemm = gemm_from_op(args->op);
    gemm_run(args->isa, &gemm, args);
}

/* The same for few rows. */
static bool match_few(const Kernel *kernel, const Op *op)
{
    Gemm gemm = gemm_from_op(op);
    return result_fits(op) && !gemm.epilogue && !gemm.transposed && !gemm.squares &&
           gemm_few_match(kernel->isa, &gemm) && choice_takes(kernel->name, gemm.m);
}

static size_t scratch_few(const Kernel *kernel, const Op *op, int n_threads)
{
    Gemm gemm = gemm_from_op(op);
    return gemm_few_scratch(kernel->isa, &gemm, n_threads);
}

static void run_few(const KernelArgs *args)
{
    Gemm gemm = gemm_from_op(args->op);
    gemm_few_run(args->isa, &gemm, args);
}

#define DOT_ROW(text, of)                                                                          \
    {                                                                                              \
        .name = text, .kind = OP_DOT_GENERAL, .isa = &gemm_##of, .match_isa = match,               \
        .scratch_isa = scratch, .run = run, .fuses = true                                          \
    }
#define FEW_ROW(text, of)                                                                          \
    {                                                                                              \
        .name = text, .kind = OP_DOT_GENERAL, .isa = &gemm_##of, .match_isa = match_few,           \
        .scratch_isa = scratch_few, .run = run_few, .fuses = true                                  \
    }

#define DOT_ROWS(text, set)                                                                        \
    {                                                                                              \
        FEW_ROW("dot_general." text ".f32.few", f32_##set),                                        \
            DOT_ROW("dot_general." text ".f32", f32_##set),                                        \
            FEW_ROW("dot_general." text ".bf16.few", bf16_##set),                                  \
            DOT_ROW("dot_general." text ".bf16", bf16_##set),                                      \
        {                                                                                          \
            0                                                                                      \
        }                                                                                          \
    }

const Kernel dot_kernels_portable[] = DOT_ROWS("portable", portable);
const Kernel dot_kernels_portable_same[] = DOT_ROWS("portable.same", portable_same);

#if defined(CVN_HAVE_AVX2)
const Kernel dot_kernels_avx2[] = DOT_ROWS("avx2", avx2);
const Kernel dot_kernels_avx2_same[] = DOT_ROWS("avx2.same", avx2_same);
#endif

#if defined(CVN_HAVE_AVX512)
const Kernel dot_kernels_avx512[] = DOT_ROWS("avx512", avx512);
const Kernel dot_kernels_avx512_same[] = DOT_ROWS("avx512.same", avx512_same);

const Kernel dot_kernels_avx512_bf16[] = {
    FEW_ROW("dot_general.avx512.bf16dot.few", bf16_avx512_bf16),
    DOT_ROW("dot_general.avx512.bf16dot", bf16_avx512_bf16),
    {0},
};
#endif

#if defined(CVN_HAVE_AMX)
/* Tiles take whole panels; a few rows are read where they lie by the next level. */
const Kernel dot_kernels_amx[] = {
    DOT_ROW("dot_general.amx.bf16", bf16_amx),
    {0},
};
#endif
