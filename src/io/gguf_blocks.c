/*
 * The element types of GGUF files by their numbers.
 *
 * Of the types that are not read only the sizes are known, so that files that hold them can be shown: Q8_1 and Q8_K are only
 * made while computing.
 */
#include "io/gguf_blocks.h"

#include "io/gguf_lattices.h"

/* Those whose bytes graph/blocks.c knows. */
enum {
#define X(kind, name, elements, bytes) ELEMENTS_##kind = elements, BYTES_##kind = bytes,
    CVN_BLOCKS_WHOLE(X)
#undef X
};
#define BLOCKS(name, type)                                                                         \
    {                                                                                              \
        name, {.elements = ELEMENTS_##type, .bytes = BYTES_##type, .kind = BLOCK_##type},          \
            IO_BLOCKS, CVN_F32                                                                     \
    }

#define LATTICE(name, of, size)                                                                    \
    {                                                                                              \
        name, {.elements = BLOCK_MOST, .bytes = size, .widen = lattice_##of}, IO_BLOCKS, CVN_F32   \
    }

/* The types of elements by their numbers; one without a name was withdrawn. */
static const GgufElement elements[] = {
    [0] = {"F32", {.elements = 1, .bytes = 4}, IO_PLAIN, CVN_F32},
    [1] = {"F16", {.elements = 1, .bytes = 2}, IO_PLAIN, CVN_F16},
    [2] = BLOCKS("Q4_0", Q4_0),
    [3] = BLOCKS("Q4_1", Q4_1),
    [6] = BLOCKS("Q5_0", Q5_0),
    [7] = BLOCKS("Q5_1", Q5_1),
    [8] = BLOCKS("Q8_0", Q8_0),
    [9] = {"Q8_1", {.elements = 32, .bytes = 36}, IO_OPAQUE, CVN_F32},
    [10] = BLOCKS("Q2_K", Q2_K),
    [11] = BLOCKS("Q3_K", Q3_K),
    [12] = BLOCKS("Q4_K", Q4_K),
    [13] = BLOCKS("Q5_K", Q5_K),
    [14] = BLOCKS("Q6_K", Q6_K),
    [15] = {"Q8_K", {.elements = 256, .bytes = 292}, IO_OPAQUE, CVN_F32},
    [16] = LATTICE("IQ2_XXS", iq2_xxs, 66),
    [17] = LATTICE("IQ2_XS", iq2_xs, 74),
    [18] = LATTICE("IQ3_XXS", iq3_xxs, 98),
    [19] = LATTICE("IQ1_S", iq1_s, 50),
    [20] = BLOCKS("IQ4_NL", IQ4_NL),
    [21] = LATTICE("IQ3_S", iq3_s, 110),
    [22] = LATTICE("IQ2_S", iq2_s, 82),
    [23] = BLOCKS("IQ4_XS", IQ4_XS),
    [24] = {"I8", {.elements = 1, .bytes = 1}, IO_PLAIN, CVN_I8},
    [25] = {"I16", {.elements = 1, .bytes = 2}, IO_OPAQUE, CVN_F32},
    [26] = {"I32", {.elements = 1, .bytes = 4}, IO_PLAIN, CVN_I32},
    [27] = {"I64", {.elements = 1, .bytes = 8}, IO_OPAQUE, CVN_F32},
    [28] = {"F64", {.elements = 1, .bytes = 8}, IO_PLAIN, CVN_F64},
    [29] = LATTICE("IQ1_M", iq1_m, 56),
    [30] = {"BF16", {.elements = 1, .bytes = 2}, IO_PLAIN, CVN_BF16},
    [34] = BLOCKS("TQ1_0", TQ1_0),
    [35] = BLOCKS("TQ2_0", TQ2_0),
    [39] = BLOCKS("MXFP4", MXFP4),
    [40] = {"NVFP4", {.elements = 64, .bytes = 36}, IO_OPAQUE, CVN_F32},
    [41] = {"Q1_0", {.elements = 128, .bytes = 18}, IO_OPAQUE, CVN_F32},
};

const GgufElement *gguf_element(uint32_t number)
{
    bool known = number < sizeof elements / sizeof *elements && elements[number].name;
    return known ? &elements[number] : NULL;
}
