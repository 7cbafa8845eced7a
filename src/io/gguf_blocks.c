/*
 * The element types of GGUF files by their numbers.
 *
 * Of the types that are not read only the sizes are known, so that files that hold them can be shown: IQ1, IQ2 and
 * IQ3 number the points of lattices, whose tables are larger than all that reads blocks; Q8_1 and Q8_K are only made while
 * computing.
 */
#include "io/gguf_blocks.h"

/* Those whose bytes graph/blocks.c knows. */
enum {
#define X(kind, name, elements, bytes) ELEMENTS_##kind = elements, BYTES_##kind = bytes,
    CVN_BLOCKS(X)
#undef X
};
#define BLOCKS(name, kind)                                                                         \
    {                                                                                              \
        name, {ELEMENTS_##kind, BYTES_##kind, BLOCK_##kind}, IO_BLOCKS, CVN_F32                    \
    }

/* By number; without a name where the number was withdrawn. */
static const GgufElement elements[] = {
    [0] = {"F32", {1, 4, BLOCK_NONE}, IO_PLAIN, CVN_F32},
    [1] = {"F16", {1, 2, BLOCK_NONE}, IO_PLAIN, CVN_F16},
    [2] = BLOCKS("Q4_0", Q4_0),
    [3] = BLOCKS("Q4_1", Q4_1),
    [6] = BLOCKS("Q5_0", Q5_0),
    [7] = BLOCKS("Q5_1", Q5_1),
    [8] = BLOCKS("Q8_0", Q8_0),
    [9] = {"Q8_1", {32, 36, BLOCK_NONE}, IO_OPAQUE, CVN_F32},
    [10] = BLOCKS("Q2_K", Q2_K),
    [11] = BLOCKS("Q3_K", Q3_K),
    [12] = BLOCKS("Q4_K", Q4_K),
    [13] = BLOCKS("Q5_K", Q5_K),
    [14] = BLOCKS("Q6_K", Q6_K),
    [15] = {"Q8_K", {256, 292, BLOCK_NONE}, IO_OPAQUE, CVN_F32},
    [16] = {"IQ2_XXS", {256, 66, BLOCK_NONE}, IO_OPAQUE, CVN_F32},
    [17] = {"IQ2_XS", {256, 74, BLOCK_NONE}, IO_OPAQUE, CVN_F32},
    [18] = {"IQ3_XXS", {256, 98, BLOCK_NONE}, IO_OPAQUE, CVN_F32},
    [19] = {"IQ1_S", {256, 50, BLOCK_NONE}, IO_OPAQUE, CVN_F32},
    [20] = BLOCKS("IQ4_NL", IQ4_NL),
    [21] = {"IQ3_S", {256, 110, BLOCK_NONE}, IO_OPAQUE, CVN_F32},
    [22] = {"IQ2_S", {256, 82, BLOCK_NONE}, IO_OPAQUE, CVN_F32},
    [23] = BLOCKS("IQ4_XS", IQ4_XS),
    [24] = {"I8", {1, 1, BLOCK_NONE}, IO_PLAIN, CVN_I8},
    [25] = {"I16", {1, 2, BLOCK_NONE}, IO_OPAQUE, CVN_F32},
    [26] = {"I32", {1, 4, BLOCK_NONE}, IO_PLAIN, CVN_I32},
    [27] = {"I64", {1, 8, BLOCK_NONE}, IO_OPAQUE, CVN_F32},
    [28] = {"F64", {1, 8, BLOCK_NONE}, IO_PLAIN, CVN_F64},
    [29] = {"IQ1_M", {256, 56, BLOCK_NONE}, IO_OPAQUE, CVN_F32},
    [30] = {"BF16", {1, 2, BLOCK_NONE}, IO_PLAIN, CVN_BF16},
    [34] = BLOCKS("TQ1_0", TQ1_0),
    [35] = BLOCKS("TQ2_0", TQ2_0),
    [39] = BLOCKS("MXFP4", MXFP4),
    [40] = {"NVFP4", {64, 36, BLOCK_NONE}, IO_OPAQUE, CVN_F32},
    [41] = {"Q1_0", {128, 18, BLOCK_NONE}, IO_OPAQUE, CVN_F32},
};

const GgufElement *gguf_element(uint32_t number)
{
    bool known = number < sizeof elements / sizeof *elements && elements[number].name;
    return known ? &elements[number] : NULL;
}
