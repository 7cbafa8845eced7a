/*
 * Models on their way into other files. A file is a row of pieces whose sizes are known before any is written: bytes as they
 * are (headers, padding), and weights, of which a run of rows and columns is read, turned, encoded and written a little at a
 * time, by all threads.
 *
 *     consolidated.01.pth     [zip header] [pickle] [header] [wq rows 64-127] [checksum] … [directory]
 *
 * What is written is the same each time, so a folder of files that an earlier attempt left is gone on with: bytes are compared,
 * and weights that are whole are passed over.
 *
 * A parameter may be one that the model lacks in this form: a quantized one is made of its floats, the head of a tied model of the
 * embedding.
 */
#ifndef CVN_IO_OUT_H
#define CVN_IO_OUT_H

#include "base/strbuf.h"
#include "io/model.h"

/* Elements as they are stored. */
typedef struct OutType {
    cvn_dtype dtype; /* f32, bf16 or f16 */
    BlockKind block; /* or, if not BLOCK_NONE, these blocks (io/encode.h) */
    bool apart;      /* of blocks of floats: the codes of all rows, then all scales */
} OutType;

typedef struct OutPiece {
    uint8_t *bytes; /* [n], arena; or NULL, and then a weight: */
    /* bytes in the file; of what is quantized (Param.quant), its scales follow its numbers */
    uint64_t n;
    const Param *param;
    OutType type;
    int64_t row, rows, column, columns; /* of it as a matrix; one row of what is none */
    /* or all of this, which experts share, as a matrix [experts and rows, columns] */
    const ParamTensor *shared;
    const Param *params; /* that its members are among, the arena's */
    uint8_t *crc[2];     /* where the CRC-32 of these bytes goes, in pieces behind; or NULL */
} OutPiece;

typedef struct OutFile {
    const char *name; /* in the folder */
    OutPiece *piece;  /* [n] */
    size_t n;
    uint64_t bytes;
} OutFile;

/* What the square of an error in each column of a parameter counts, [columns]; NULL: all alike. */
typedef const float *OutImportance(void *context, const Param *param);

/* Gives the numbers and scales of a quantized parameter, rows as the model has them, in place of quant_row. `known`: they are
   there, from an earlier attempt. */
typedef int OutRound(void *context, const Param *param, bool known, uint8_t *q, void *scale,
                     cvn_err *err);

typedef struct Out {
    Arena *arena;         /* borrowed: all below is in it */
    const IoModel *model; /* opened and audited */
    bool interleaved;     /* order of rotary pairs that is written */
    bool above_one;       /* norms are written as what is multiplied by (Param.above_one) */
    OutFile *file;        /* [n_files] */
    size_t n_files;
    bool resumes; /* what an interrupt leaves is gone on with by the same command */
    int threads;  /* 0: as many as the machine has */
    const volatile int *interrupt;
    OutRound *round; /* called for each quantized parameter, in the order of the pieces; or NULL */
    OutImportance *importance; /* asked for by encoders of blocks; or NULL */
    void *context;             /* of both */
    int64_t too_large;         /* numbers that became infinite in f16 */
} Out;

/* Adds a file, and pieces to the one added last. */
void out_file(Out *out, const char *name);
uint8_t *out_bytes(Out *out, const void *bytes, size_t n); /* copied; where they are */
void out_text(Out *out, StrBuf *text);                     /* the same, and frees it */
void out_padding(Out *out, uint64_t multiple);
/* A whole parameter, or shard `shard` of `shards` along `dim` of its matrix. */
OutPiece *out_param(Out *out, const Param *param, OutType type, int dim, int shard, int shards);

/* All parameters of a tensor. */
void out_tensor(Out *out, const ParamList *params, const ParamTensor *tensor, OutType type);

/* The bytes that n elements, and a parameter with its scales, take when stored so; the row of a block type must divide into blocks. */
uint64_t out_type_bytes(OutType type, int64_t n);
uint64_t out_param_bytes(const Param *param, OutType type);

/* Writes all files into a folder that exists, or goes on where another attempt ended. */
int out_write(Out *out, const char *folder, cvn_err *err);

#endif
