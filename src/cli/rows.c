#include "cli/rows.h"

#include "base/json_file.h"
#include "cli/common.h"
#include "run/ceilings.h"
#include "sim/rows.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* A row's figures; NAN: no such one. */
typedef struct Answer {
    double simulated[ROW_FIGURES], measured[ROW_FIGURES];
} Answer;

/* What was measured is there in any case; simulated are all figures that there are. */
static int answer(const Csv *csv, int64_t row, Answer *a, cvn_err *err)
{
    RowQuestion question;
    for (int f = 0; f < ROW_FIGURES; f++) {
        a->measured[f] = rows_measured(csv, row, (RowFigure)f);
        a->simulated[f] = (double)NAN;
    }
    TRY(rows_ask(csv, row, &question, err));
    question.device = backends[0];
    return rows_answer(&question, a->simulated, err);
}

static double error_of(const Answer *a, int figure)
{
    return a->simulated[figure] / a->measured[figure] - 1;
}

/* {"id": …, "simulated": {"tpot_ms": …}, "measured": …}, or why the row is refused. */
static json_t *row_json(const Csv *csv, int64_t row)
{
    cvn_err why = {0};
    Answer a;
    json_t *o = json_pack("{s:s}", "id", csv_at(csv, row, "id"));
    if (answer(csv, row, &a, &why))
        return json_with(o, "refused", json_string(why.message));
    json_t *simulated = json_object(), *measured = json_object();
    for (int f = 0; f < ROW_FIGURES; f++) {
        if (isfinite(a.simulated[f]))
            simulated = json_with(simulated, row_figure_columns[f], json_real(a.simulated[f]));
        if (isfinite(a.measured[f]))
            measured = json_with(measured, row_figure_columns[f], json_real(a.measured[f]));
    }
    return json_with(json_with(o, "simulated", simulated), "measured", measured);
}

enum { MOST_KINDS = 24 };

/* How far what is simulated is from what was measured, by kinds of rows. */
typedef struct Errors {
    char name[64];
    double *of; /* [n] |simulated / measured - 1| */
    int64_t n;
} Errors;

typedef struct Page {
    const Csv *csv;
    Arena *arena;
    Errors kind[MOST_KINDS];
    int kinds;
} Page;

static void add_error(Page *p, const char *kind, const char *figure, double error)
{
    char name[sizeof p->kind->name];
    int i = 0;
    if (!*kind)
        return;
    snprintf(name, sizeof name, "%s, %s", kind, figure);
    while (i < p->kinds && strcmp(p->kind[i].name, name) != 0)
        i++;
    if (i == MOST_KINDS)
        return;
    Errors *e = &p->kind[i];
    if (i == p->kinds) {
        p->kinds++;
        memcpy(e->name, name, sizeof name);
        e->of = arena_array(p->arena, (size_t)p->csv->rows * ROW_FIGURES, sizeof *e->of);
    }
    e->of[e->n++] = fabs(error);
}

enum { FIGURE, MEASURED, SIMULATED, ERROR, CELLS };

/* Of each figure that was measured, and where none was, that there is, between bars: "746 / 20.1". */
static void print_cell(const Answer *a, int cell)
{
    const char *between = " ";
    bool some = false;
    for (int f = 0; f < ROW_FIGURES; f++)
        some |= isfinite(a->measured[f]);
    for (int f = 0; f < ROW_FIGURES; f++) {
        double number = cell == MEASURED ? a->measured[f] : a->simulated[f];
        if (!isfinite(some ? a->measured[f] : a->simulated[f]) ||
            (cell > FIGURE && !isfinite(number)) || (cell == ERROR && !some))
            continue;
        printf("%s", between);
        between = " / ";
        if (cell == FIGURE)
            printf("%s", row_figure_titles[f]);
        else if (cell == ERROR)
            printf("%+.0f %%", 100 * error_of(a, f));
        else /* four digits, or as many as are before the point */
            printf(fabs(number) < 1000 ? "%.4g" : "%.0f", number);
    }
}

static void add_row(Page *p, int64_t row)
{
    static const char *const shown[] = {"id", "ask", "model", "on", "how"};
    const Csv *csv = p->csv;
    const char *ask = csv_at(csv, row, "ask"), *why = csv_at(csv, row, "why");
    bool serves = strcmp(ask, "serve") == 0;
    cvn_err err = {0};
    Answer a;
    answer(csv, row, &a, &err);
    for (size_t i = 0; i < sizeof shown / sizeof *shown; i++)
        printf("| %s ", csv_at(csv, row, shown[i]));
    for (int cell = 0; cell < CELLS; cell++) {
        printf("|");
        print_cell(&a, cell);
        printf("%s", cell < ERROR ? " " : "");
    }
    if (isfinite(rows_within(csv, row)))
        printf(", held to %g %%", 100 * rows_within(csv, row));
    printf("%s%s%s%s |\n", *err.message ? " " : "", err.message, *why ? ": " : "", why);
    for (int f = 0; f < ROW_FIGURES; f++) {
        double error = error_of(&a, f);
        if (!isfinite(error))
            continue;
        add_error(p, serves ? csv_at(csv, row, "engine") : ask,
                  serves ? row_figure_titles[f] : "all", error);
        add_error(p, ask, row_figure_titles[f], error);
        add_error(p, csv_at(csv, row, "group"), row_figure_titles[f], error);
    }
}

static void print_table(const Csv *csv, Arena *arena)
{
    Page p = {.csv = csv, .arena = arena};
    printf("| row | ask | model | on | how | figure | measured | simulated | error |\n"
           "|---|---|---|---|---|---|---|---|---|\n");
    for (int64_t i = 0; i < csv->rows; i++)
        add_row(&p, i);
    if (p.kinds > 0)
        printf("\n| error | rows | median | p90 | worst |\n|---|---|---|---|---|\n");
    for (Errors *e = p.kind; e < p.kind + p.kinds; e++) {
        sort_numbers(e->of, (size_t)e->n);
        printf("| %s | %" PRId64 " | %.1f %% | %.1f %% | %.0f %% |\n", e->name, e->n,
               100 * e->of[e->n / 2], 100 * e->of[e->n * 9 / 10], 100 * e->of[e->n - 1]);
    }
}

int answer_rows(const char *path, bool json, cvn_err *err)
{
    SCOPED(arena_free) Arena arena = {0};
    Csv csv;
    TRY(arena_begin(&arena, err));
    TRY(csv_read(&csv, path, &arena, err));
    TRY(rows_check(&csv, path, err));
    if (!json)
        print_table(&csv, &arena);
    for (int64_t i = 0; json && i < csv.rows; i++)
        TRY(print_json(row_json(&csv, i), err));
    return CVN_OK;
}
