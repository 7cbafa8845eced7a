/*
 * How long the tasks of a step in stages take (train/stages.h): each stage takes its own in their order, one after the other, and each waits for
 * what it needs of its neighbours.
 *
 * Where all stages take f for a forward and b for a backward pass, S stages and M micro-batches take (M + S - 1) (f + b): of each, (S - 1) (f + b)
 * is waiting, the bubble.
 */
#ifndef CVN_SIM_STAGES_H
#define CVN_SIM_STAGES_H

/* Of a micro-batch. The last stage's forward pass is part of its gradient. */
typedef struct StageTimes {
    double forward, gradient;
} StageTimes;

/* Of n stages; `hop` is what it takes from one to the next. *bubble: the share of all stages' time in which they wait. Negative: no
   memory. */
double stages_seconds(int n, int micro, const StageTimes *times, double hop, double *bubble);

#endif
