/*
 * Which of the kernels of a product is taken, by the number of rows that share its weights: the table in choice.c.
 *
 * Each row more is as many multiply-adds for the same bytes of weights. With few rows memory is what limits, and the
 * best kernel is the one that only reads; with many it is arithmetic, and packing or filling tiles pays. Where one
 * ends and the other begins is a matter of the machine, and is measured:
 *
 *     ninja -C build benches && build/bench_kernels 2 choice
 *
 * times each kernel of the table beside the one that is taken in its place, and prints the table as it should be on
 * that machine. Results depend on it only where choice.c says so.
 */
#ifndef CVN_CPU_KERNELS_CHOICE_H
#define CVN_CPU_KERNELS_CHOICE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct RowChoice {
    const char *kernel;
    int64_t from, to; /* rows with which it is taken; to = INT64_MAX: all from there on */
} RowChoice;

extern const RowChoice row_choices[];
extern const int row_choices_count;

/* The row of a kernel, or NULL: it takes any number of rows. */
const RowChoice *choice_of(const char *kernel);

/* Whether a kernel is taken with that many rows. */
bool choice_takes(const char *kernel, int64_t rows);

#endif
