/*
 * Tables of questions: each row says in plain columns what is to be simulated, and may say what was measured of it.
 *
 *     id,ask,model,chip,precision,engine,tp,batch,input,output,ttft_ms,tpot_ms
 *     1,serve,llama3.1-70b,h200_sxm,fp8,trtllm,4,128,1024,1024,746,20.1
 *
 * `ask` is train, prefill, decode, generate (a batch of requests that begin and end together) or serve. The columns are those of rows.c:
 * a number, a name, or nothing, which stands for the default. A column that is none of them is a mistake. What tables of published
 * measurements say in words becomes such columns by tools/published_rows.py.
 */
#ifndef CVN_SIM_ROWS_H
#define CVN_SIM_ROWS_H

#include "run/backend.h"
#include "sim/csv.h"
#include "sim/training.h"
#include "train/optimizer.h"

/* What can be measured, and is simulated. */
typedef enum RowFigure {
    ROW_MFU,
    ROW_TOKENS, /* a second and chip */
    ROW_SECONDS,
    ROW_MILLISECONDS,
    ROW_STEPS, /* a second */
    ROW_TTFT,
    ROW_TPOT,
    ROW_DOLLARS, /* a million tokens */
    ROW_FIGURES
} RowFigure;

/* Their columns, and what they are called where people read. */
extern const char *const row_figure_columns[ROW_FIGURES];
extern const char *const row_figure_titles[ROW_FIGURES];

/* A row, read: only what its `ask` needs is filled. */
typedef struct RowQuestion {
    int ask; /* of rows.c */
    CostModel chip;
    SimTraining training;
    SimServing serving;
    double rows, context;    /* of a step; keys that a token looks at */
    double speed, bandwidth; /* what of the chip differs: rows.c */
    /* Training: of the program that is timed; "": what shapes say (sim/training.h). */
    const char *layout;
    OptimizerKind optimizer;
    /* Which compiles such programs: the caller's, borrowed. NULL: they are refused. */
    const Backend *device;
    double price; /* dollars per chip and hour; 0: the chip's list price */
} RowQuestion;

/* Whether the columns are known, and those that every question needs are there. */
int rows_check(const Csv *csv, const char *path, cvn_err *err);
/* CVN_EUNSUPPORTED, with why, when the row cannot be answered. */
int rows_ask(const Csv *csv, int64_t row, RowQuestion *question, cvn_err *err);
/* Answers a row's question; simulated: NAN where it does not have such a figure. */
int rows_answer(RowQuestion *question, double simulated[ROW_FIGURES], cvn_err *err);
/* NAN: it was not measured. */
double rows_measured(const Csv *csv, int64_t row, RowFigure figure);
/* The error that the row is held to; NAN: to none. */
double rows_within(const Csv *csv, int64_t row);

#endif
