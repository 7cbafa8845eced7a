/*
 * The forms in which weights lie in panels: sizes of a panel, and the kinds of blocks as data. panels.h and blocks.h say what it
 * all means. It stands apart, and knows nothing of graphs, because kernels that are compiled once for each form take long, and
 * need nothing else.
 */
#ifndef CVN_GRAPH_PANEL_FORM_H
#define CVN_GRAPH_PANEL_FORM_H

#include <stdbool.h>
#include <stdint.h>

enum {
    PANEL_ROWS = 16, /* of a panel */
    PANEL_QUAD = 4,  /* neighbours in k that lie together */
    PANEL_BYTES = 64 /* of a unit */
};

/* Kinds of blocks in which weights are stored: name, elements and bytes of one. Codes are whole numbers, or floats. */
#define CVN_BLOCKS_WHOLE(X)                                                                        \
    X(Q4_0, q4_0, 32, 18)                                                                          \
    X(Q4_1, q4_1, 32, 20)                                                                          \
    X(Q5_0, q5_0, 32, 22)                                                                          \
    X(Q5_1, q5_1, 32, 24)                                                                          \
    X(Q8_0, q8_0, 32, 34)                                                                          \
    X(Q2_K, q2_k, 256, 84)                                                                         \
    X(Q3_K, q3_k, 256, 110)                                                                        \
    X(Q4_K, q4_k, 256, 144)                                                                        \
    X(Q5_K, q5_k, 256, 176)                                                                        \
    X(Q6_K, q6_k, 256, 210)                                                                        \
    X(IQ4_NL, iq4_nl, 32, 18)                                                                      \
    X(IQ4_XS, iq4_xs, 256, 136)                                                                    \
    X(TQ1_0, tq1_0, 256, 54)                                                                       \
    X(TQ2_0, tq2_0, 256, 66)                                                                       \
    X(MXFP4, mxfp4, 32, 17)
#define CVN_BLOCKS_FLOATS(X)                                                                       \
    X(F8_E4M3, f8_e4m3, 128, 132)                                                                  \
    X(F8_E5M2, f8_e5m2, 128, 132)
#define CVN_BLOCKS(X) CVN_BLOCKS_WHOLE(X) CVN_BLOCKS_FLOATS(X)

typedef enum BlockKind {
    BLOCK_NONE, /* not in blocks */
#define X(kind, name, elements, bytes) BLOCK_##kind,
    CVN_BLOCKS(X)
#undef X
        BLOCK_KINDS
} BlockKind;

enum {
    BLOCK_MOST = 256,       /* elements of a block, and columns of a chunk */
    BLOCK_LEAST_GROUP = 16, /* columns that share a scale */
    BLOCK_LEAST_CHUNK = 32,
    BLOCK_GROUPS = BLOCK_MOST / BLOCK_LEAST_GROUP
};

/* How scales (and minima) are kept. */
typedef enum BlockScale {
    BLOCK_F16, /* of each group a float */
    BLOCK_BF16,
    BLOCK_F32,
    BLOCK_WHOLE,  /* of each group a whole number, signed, in a byte */
    BLOCK_NIBBLES /* scale and minimum, without sign, in one */
} BlockScale;

typedef struct BlockForm {
    int base; /* low bits of a code that lie in units of i4 or i8: 0, 4 or 8 */
    int two,
        one; /* the bits of a code from which on the planes of two bits and of one have theirs; or NO_PLANE */
    int offset;          /* taken off codes */
    const int8_t *table; /* [16] what codes of 4 bits stand for; or NULL */
    int fraction;        /* of codes that are floats (base/float8.h): bits of it; else 0 */
    int group;           /* columns that share a scale */
    BlockScale scale;
    bool minimum;
} BlockForm;

enum { NO_PLANE = -1 };

extern const int8_t block_iq4_step[16], block_mxfp4_number[16]; /* blocks.c */

/* The form of each kind, for what is compiled for one. */
#define BLOCK_HALF .base = 4, .two = NO_PLANE, .one = NO_PLANE
#define BLOCK_FORM_q4_0                                                                            \
    {                                                                                              \
        BLOCK_HALF, .offset = 8, .group = 32                                                       \
    }
#define BLOCK_FORM_q4_1                                                                            \
    {                                                                                              \
        BLOCK_HALF, .group = 32, .minimum = true                                                   \
    }
#define BLOCK_FORM_q5_0                                                                            \
    {                                                                                              \
        .base = 4, .two = NO_PLANE, .one = 4, .offset = 16, .group = 32                            \
    }
#define BLOCK_FORM_q5_1                                                                            \
    {                                                                                              \
        .base = 4, .two = NO_PLANE, .one = 4, .group = 32, .minimum = true                         \
    }
#define BLOCK_FORM_q8_0                                                                            \
    {                                                                                              \
        .base = 8, .two = NO_PLANE, .one = NO_PLANE, .offset = 128, .group = 32                    \
    }
#define BLOCK_FORM_q2_k                                                                            \
    {                                                                                              \
        .one = NO_PLANE, .group = 16, .scale = BLOCK_NIBBLES, .minimum = true                      \
    }
#define BLOCK_FORM_q3_k                                                                            \
    {                                                                                              \
        .one = 2, .offset = 4, .group = 16, .scale = BLOCK_WHOLE                                   \
    }
#define BLOCK_FORM_q4_k                                                                            \
    {                                                                                              \
        BLOCK_HALF, .group = 32, .scale = BLOCK_WHOLE, .minimum = true                             \
    }
#define BLOCK_FORM_q5_k                                                                            \
    {                                                                                              \
        .base = 4, .two = NO_PLANE, .one = 4, .group = 32, .scale = BLOCK_WHOLE, .minimum = true   \
    }
#define BLOCK_FORM_q6_k                                                                            \
    {                                                                                              \
        .base = 4, .two = 4, .one = NO_PLANE, .offset = 32, .group = 16, .scale = BLOCK_WHOLE      \
    }
#define BLOCK_FORM_iq4_nl                                                                          \
    {                                                                                              \
        BLOCK_HALF, .table = block_iq4_step, .group = 32                                           \
    }
#define BLOCK_FORM_iq4_xs                                                                          \
    {                                                                                              \
        BLOCK_HALF, .table = block_iq4_step, .group = 32, .scale = BLOCK_WHOLE                     \
    }
#define BLOCK_FORM_tq1_0                                                                           \
    {                                                                                              \
        .one = NO_PLANE, .offset = 1, .group = BLOCK_MOST                                          \
    }
#define BLOCK_FORM_tq2_0 BLOCK_FORM_tq1_0
#define BLOCK_FORM_mxfp4                                                                           \
    {                                                                                              \
        BLOCK_HALF, .table = block_mxfp4_number, .group = 32, .scale = BLOCK_BF16                  \
    }

#define BLOCK_FORM_f8_e4m3                                                                         \
    {                                                                                              \
        .base = 8, .two = NO_PLANE, .one = NO_PLANE, .fraction = 3, .group = 128,                  \
        .scale = BLOCK_F32                                                                         \
    }
#define BLOCK_FORM_f8_e5m2                                                                         \
    {                                                                                              \
        .base = 8, .two = NO_PLANE, .one = NO_PLANE, .fraction = 2, .group = 128,                  \
        .scale = BLOCK_F32                                                                         \
    }

/* How a chunk of a panel lies. Offsets are bytes from its beginning. */
typedef struct BlockChunk {
    int64_t columns, groups;
    int64_t two, one, scale, minimum, d, m;
    int64_t bytes;
} BlockChunk;

#endif
