/*
 * Questions with several answers, of which one is right: how often a model finds the right one the likeliest.
 *
 *     {"context": "The sky is", "choices": ["blue", "a fish"], "answer": 0}
 *
 * A line is a question. The answer is the place of a choice, from 0, or its text. Between context and choice comes a space,
 * unless either has white space there. A choice's log-probability is the sum over its tokens, those that the whole text has
 * beyond the tokens of the context; of a text longer than the model's context the last tokens count. So lm-evaluation-harness
 * does it (output_type multiple_choice), and its numbers are these: "acc" by the sum, "acc_norm" by the sum per character of
 * the choice, "acc_bytes" per byte; the error of each is the standard error of a mean.
 */
#ifndef CVN_CLI_TASK_H
#define CVN_CLI_TASK_H

#include "cli/run_model.h"

typedef struct TaskChoice {
    TokenIds text;    /* owned: with the context before it */
    size_t begin;     /* of the choice in it */
    double length[2]; /* characters, bytes */
    double logprob;   /* found by task_score */
} TaskChoice;

typedef struct Question {
    TaskChoice *choice; /* [n_choices], owned */
    size_t n_choices, answer;
} Question;

enum { TASK_SUM, TASK_CHARACTERS, TASK_BYTES, TASK_RULES };

typedef struct Task {
    Question *question; /* [n], owned */
    size_t n;
    size_t longest;                                 /* tokens of a text */
    double accuracy[TASK_RULES], error[TASK_RULES]; /* found by task_score; NaN of one question */
} Task;

/* Reads and tokenises; starts as {0}, and is freed after a failure, too. */
int task_read(Task *task, const char *path, const cvn_model *model, unsigned encoding,
              cvn_err *err);
void task_free(Task *task);

/* With an engine for scoring, of this context. */
int task_score(Task *task, cvn_engine *engine, int64_t context, const volatile int *interrupt,
               cvn_err *err);

/* The choice that a rule finds likeliest. */
size_t task_choice(const Question *question, int rule);

/* "0.4500 ± 0.1141; by characters …"; malloc'ed, NULL without memory. */
char *task_text(const Task *task);

#endif
