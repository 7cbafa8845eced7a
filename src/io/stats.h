/* What the tensors of a model's files are like, for people: their types, and the numbers in them. */
#ifndef CVN_IO_STATS_H
#define CVN_IO_STATS_H

#include "base/strbuf.h"
#include "io/tensor.h"

/* Tensors of one element type. */
typedef struct IoTypeShare {
    const char *name; /* as the files spell it */
    size_t bytes;
} IoTypeShare;

enum { IO_MAX_TYPES = 48 };

/* The types of the files, that with the most bytes first; how many. */
int io_types(const IoTensors *list, IoTypeShare type[IO_MAX_TYPES]);

/* "Q4_K, Q6_K, F32" in that order. */
void io_types_text(const IoTensors *list, StrBuf *out);

typedef struct IoStats {
    double min, max, mean; /* of the finite elements; 0 where there are none */
    int64_t nan, infinite; /* how many */
} IoStats;

/* Reads all of a numeric tensor. */
IoStats io_stats(const IoTensor *tensor);

#endif
