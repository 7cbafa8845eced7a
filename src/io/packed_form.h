/*
 * What a quantized matrix of another program is inside: grids of numbers in the mapping of its file, codes, scales and zeros, which
 * packed.c reads element by element, packed_lay.c makes of the tensors of each format, and packed_join.c chooses by config.json.
 */
#ifndef CVN_IO_PACKED_FORM_H
#define CVN_IO_PACKED_FORM_H

#include "io/tensor.h"

#include <string.h>

typedef enum GridKind {
    GRID_BITS,
    GRID_I4,
    GRID_I8,
    GRID_E2M1,
    GRID_E4M3,
    GRID_E5M2,
    GRID_E8M0,
    GRID_F16,
    GRID_BF16,
    GRID_F32
} GridKind;

/* Numbers in rows and columns. Words are of 2^row_shift neighbouring rows or of 2^column_shift columns. */
typedef struct Grid {
    const uint8_t *data; /* in the file's mapping; NULL: there is none */
    GridKind kind;
    int bits; /* of a number, of GRID_BITS, whose words are of 32 */
    int row_shift, column_shift;
    int64_t row_step, column_step; /* words from one to the next; 0 where all share one */
    bool shuffled;                 /* AWQ's order of numbers in a word */
} Grid;

struct IoPacked {
    Grid code, scale, zero;
    float offset;            /* added to zeros; the zero where there are none */
    int64_t rows, columns;   /* neighbours that share a scale */
    const uint8_t *group_of; /* I32 [k], or NULL: neighbours */
};

/* What config.json says of all matrices. */
typedef struct Settings {
    int64_t bits, group; /* group -1: a scale for all of a row */
    int64_t block[2];    /* rows and columns that share a scale, or 0 */
    bool zeros_less_one; /* GPTQ's first format */
} Settings;

enum { CODES, SCALES, ZEROS, ORDER, SHAPE, ROLES };

/* The tensors of one matrix, by role; NULL where it has none. */
typedef struct PackedMatrix {
    const char *name; /* of the matrix, without ".weight" */
    const IoTensor *piece[ROLES];
} PackedMatrix;

/* The grids of a matrix of each format. dims are [rows, columns] already of what lies so; of experts there are three. */
typedef int PackedLay(struct IoPacked *p, int64_t *dims, const PackedMatrix *of, const Settings *s,
                      cvn_err *err);
PackedLay packed_lay_gptq, packed_lay_awq, packed_lay_words, packed_lay_bytes, packed_lay_mxfp4;

static inline uint32_t load32(const uint8_t *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline uint16_t load16(const uint8_t *p)
{
    uint16_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

#endif
