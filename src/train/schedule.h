/*
 * Learning-rate schedules: a factor from 0 to 1 of the peak for every step.
 *
 *   factor
 *     1 |    /‾‾‾‾‾‾‾‾‾\            constant   stays at 1 after the warm-up
 *       |   /            \          linear     falls on a line to `final` at the last step
 *       |  /               \        cosine     falls on half a cosine to `final` (Loshchilov and
 *       | /                  \                 Hutter 2017, arXiv:1608.03983)
 *     0 |/____________________ t    wsd        warm-up, stable, decay: 1, and over the last `decay`
 *        warm-up       decay                   steps a line to `final` (Hu et al. 2024, arXiv:2404.06395)
 *
 * Warm-up is a line from 0: step t = 1 … warmup has the factor t / warmup.
 */
#ifndef CVN_TRAIN_SCHEDULE_H
#define CVN_TRAIN_SCHEDULE_H

#include "base/err.h"

#include <stdint.h>

typedef enum ScheduleKind {
    SCHEDULE_COSINE,
    SCHEDULE_LINEAR,
    SCHEDULE_CONSTANT,
    SCHEDULE_WSD,
    SCHEDULE_COUNT
} ScheduleKind;

extern const char *const schedule_names[SCHEDULE_COUNT];

typedef struct Schedule {
    ScheduleKind kind;
    int64_t steps;  /* of the whole run, >= 1 */
    int64_t warmup; /* steps, 0 … steps */
    int64_t decay;  /* wsd: the last steps that fall, 0 … steps - warmup */
    double final;   /* factor at the last step, 0 to 1; unused by constant */
} Schedule;

int schedule_check(const Schedule *schedule, cvn_err *err);

/* The factor of step t = 1 … steps; steps after the last have its factor. */
double schedule_factor(const Schedule *schedule, int64_t t);

#endif
