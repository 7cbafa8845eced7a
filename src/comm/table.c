#include "comm/table.h"

#include <stdio.h>
#include <string.h>

static void add_row(CommRow *to, const CommRow *row, int sign)
{
    to->count += sign * row->count;
    to->bytes += sign * row->bytes;
    to->seconds += sign * row->seconds;
    to->exposed += sign * row->exposed;
}

CommRow *comm_table_row(CommTable *table, OpKind kind, const char *axes)
{
    for (int i = 0; i < table->n; i++)
        if (table->row[i].kind == kind && strcmp(table->row[i].axes, axes) == 0)
            return &table->row[i];
    if (table->n == COMM_ROWS)
        return &table->row[COMM_ROWS - 1];
    CommRow *row = &table->row[table->n++];
    *row = (CommRow){.kind = kind};
    snprintf(row->axes, sizeof row->axes, "%s", axes);
    return row;
}

void comm_table_add(CommTable *sum, const CommTable *more)
{
    for (int i = 0; i < more->n; i++) {
        const CommRow *row = &more->row[i];
        add_row(comm_table_row(sum, row->kind, row->axes), row, 1);
    }
}

void comm_table_divide(CommTable *table, double n)
{
    for (int i = 0; i < table->n; i++) {
        CommRow *row = &table->row[i];
        row->count = (int64_t)((double)row->count / n);
        row->bytes /= n;
        row->seconds /= n;
        row->exposed /= n;
    }
}

void comm_table_since(CommTable *now, const CommTable *before)
{
    int kept = 0;
    for (int i = 0; i < now->n; i++) {
        CommRow row = now->row[i];
        for (int j = 0; j < before->n; j++) {
            const CommRow *old = &before->row[j];
            if (old->kind == row.kind && strcmp(old->axes, row.axes) == 0)
                add_row(&row, old, -1);
        }
        if (row.count > 0)
            now->row[kept++] = row;
    }
    now->n = kept;
}

CommRow comm_table_sum(const CommTable *table)
{
    CommRow sum = {0};
    for (int i = 0; i < table->n; i++)
        add_row(&sum, &table->row[i], 1);
    return sum;
}
