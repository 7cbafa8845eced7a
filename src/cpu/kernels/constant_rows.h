/*
 * Calls of functions that are compiled once for each number of rows: their first parameter is a constant, so that loops over it
 * are unrolled and its sums stay in registers.
 *
 *     CONSTANT_ROWS_4(t->rows, rows_i8, t);        rows_i8(1, t) … rows_i8(4, t); of other numbers, nothing
 */
#ifndef CVN_CPU_KERNELS_CONSTANT_ROWS_H
#define CVN_CPU_KERNELS_CONSTANT_ROWS_H

#define ROWS_CASE(n, f, ...)                                                                       \
    case n:                                                                                        \
        f(n, __VA_ARGS__);                                                                         \
        break;
#define ROWS_TO_4(f, ...)                                                                          \
    ROWS_CASE(1, f, __VA_ARGS__)                                                                   \
    ROWS_CASE(2, f, __VA_ARGS__) ROWS_CASE(3, f, __VA_ARGS__) ROWS_CASE(4, f, __VA_ARGS__)
#define ROWS_TO_8(f, ...)                                                                          \
    ROWS_TO_4(f, __VA_ARGS__)                                                                      \
    ROWS_CASE(5, f, __VA_ARGS__)                                                                   \
    ROWS_CASE(6, f, __VA_ARGS__) ROWS_CASE(7, f, __VA_ARGS__) ROWS_CASE(8, f, __VA_ARGS__)
#define ROWS_TO_12(f, ...)                                                                         \
    ROWS_TO_8(f, __VA_ARGS__)                                                                      \
    ROWS_CASE(9, f, __VA_ARGS__)                                                                   \
    ROWS_CASE(10, f, __VA_ARGS__) ROWS_CASE(11, f, __VA_ARGS__) ROWS_CASE(12, f, __VA_ARGS__)

#define CONSTANT_ROWS(rows, cases)                                                                 \
    switch (rows) {                                                                                \
        cases default : break;                                                                     \
    }
#define CONSTANT_ROWS_4(rows, f, ...) CONSTANT_ROWS(rows, ROWS_TO_4(f, __VA_ARGS__))
#define CONSTANT_ROWS_8(rows, f, ...) CONSTANT_ROWS(rows, ROWS_TO_8(f, __VA_ARGS__))
#define CONSTANT_ROWS_12(rows, f, ...) CONSTANT_ROWS(rows, ROWS_TO_12(f, __VA_ARGS__))

#endif
