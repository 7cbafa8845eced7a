/* Tables of what communication came to, as comm/account.h makes
   them: added up, divided, and told apart from others. */
#ifndef CVN_COMM_TABLE_H
#define CVN_COMM_TABLE_H

#include "graph/graph.h"

enum { COMM_AXES_SIZE = 64, COMM_ROWS = 48 };

typedef struct CommRow {
    OpKind kind;
    char axes[COMM_AXES_SIZE]; /* "data", "data*model"; "_": a permutation, or nobody said */
    int64_t count;             /* per device */
    double bytes;              /* that each device sends */
    double seconds;            /* in flight, per device, added up also where collectives overlap */
    double exposed;            /* of these, that the device did nothing else */
} CommRow;

/* Rows stand in the order in which a device first ran them. When there are more kinds than rows,
   the last row has all that are left, of whatever kind. */
typedef struct CommTable {
    CommRow row[COMM_ROWS]; /* [n] */
    int n;
} CommTable;

/* The row of a kind along axes, which is made when it is not there yet. */
CommRow *comm_table_row(CommTable *table, OpKind kind, const char *axes);

/* now -= before: what came between two looks at the same Comm. Rows in which nothing came go. */
void comm_table_since(CommTable *now, const CommTable *before);
/* sum += more, row by row. */
void comm_table_add(CommTable *sum, const CommTable *more);
/* Everything divided by n: of one step, where n were run. */
void comm_table_divide(CommTable *table, double n);
/* All rows together; axes and kind mean nothing. */
CommRow comm_table_sum(const CommTable *table);

#endif
