/* Tables of RFC 4180: fields between commas, in quotes where they have commas, quotes or line ends, a quote doubled. The first line
   names the columns. Lines with fewer fields have empty ones; with more, they are refused. */
#ifndef CVN_SIM_CSV_H
#define CVN_SIM_CSV_H

#include "base/arena.h"

#include <stdint.h>

typedef struct Csv {
    int columns;
    const char **name;  /* [columns] */
    const char **field; /* [rows * columns], never NULL */
    int64_t rows;
} Csv;

/* Columns, lines and bytes of a table, at most. */
enum { CSV_MAX_COLUMNS = 64, CSV_MAX_ROWS = 1 << 20 };
#define CSV_MAX_BYTES ((size_t)64 << 20)

/* Everything goes into the arena. `file` is for messages. */
int csv_parse(Csv *csv, const char *file, const char *text, size_t n, Arena *arena, cvn_err *err);
int csv_read(Csv *csv, const char *path, Arena *arena, cvn_err *err);

bool csv_has(const Csv *csv, const char *column);
/* The field of a column by its name; "" where there is no such column. */
const char *csv_at(const Csv *csv, int64_t row, const char *column);
/* The same as a number; `none` where it is empty; NAN where it is none. */
double csv_number(const Csv *csv, int64_t row, const char *column, double none);

#endif
