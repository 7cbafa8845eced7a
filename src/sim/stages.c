#include "sim/stages.h"

#include "base/num.h"
#include "train/stages.h"

#include <math.h>
#include <stdlib.h>

double stages_seconds(int n, int micro, const StageTimes *times, double hop, double *bubble)
{
    size_t m = (size_t)micro, tasks = (size_t)n * m;
    SCOPED(scoped_free) StageTask *task = calloc(2 * tasks, sizeof *task);
    SCOPED(scoped_free) double *end = calloc(2 * tasks, sizeof *end); /* of forward, of gradient */
    SCOPED(scoped_free) int *at = calloc(2 * (size_t)n, sizeof *at);
    SCOPED(scoped_free) double *free_at = calloc((size_t)n, sizeof *free_at);
    double seconds = 0, busy = 0;
    if (!task || !end || !at || !free_at)
        return -1;
    for (size_t i = 0; i < 2 * tasks; i++)
        end[i] = (double)INFINITY;
    for (int s = 0; s < n; s++)
        at[n + s] = stage_tasks(s, n, micro, task + 2 * m * (size_t)s);
    double *forward = end, *gradient = end + tasks;
    for (bool moved = true; moved;) {
        moved = false;
        for (int s = 0; s < n; s++)
            while (at[s] < at[n + s]) {
                const StageTask *t = &task[2 * m * (size_t)s + (size_t)at[s]];
                bool last = s == n - 1, back = t->kind == TRAIN_GRADIENT;
                size_t own = (size_t)s * m + (size_t)t->micro;
                double there = free_at[s];
                if (s > 0 && (!back || last))
                    there = fmax(there, forward[own - m] + hop);
                if (back && !last)
                    there = fmax(there, gradient[own + m] + hop);
                if (isinf(there))
                    break;
                double takes = back ? times[s].gradient : times[s].forward;
                free_at[s] = there + takes;
                (back ? gradient : forward)[own] = free_at[s];
                busy += takes;
                seconds = fmax(seconds, free_at[s]);
                at[s]++;
                moved = true;
            }
    }
    *bubble = seconds > 0 ? 1 - busy / (seconds * n) : 0;
    return seconds;
}
