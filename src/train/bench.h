/*
 * How fast a training step runs, and what share of the machine that is.
 *
 * The step is what `caravan train` runs, on random tokens: forward, backward and the optimizer's update as one
 * plan, products in bf16 (or f32) from f32 master weights. MFU is the operations of the model (6 per weight that
 * enters products and per token, and 12 per channel for each pair of a query and a key that it sees; nothing
 * for what is computed twice) over the peak of the products' type, measured in turns with the steps, because neighbours
 * change it within seconds.
 */
#ifndef CVN_TRAIN_BENCH_H
#define CVN_TRAIN_BENCH_H

#include "train/trainer.h"

typedef struct TrainBench {
    const Model *config;
    TrainerOptions trainer; /* but clip and schedule, which are the bench's own */
    int repeats;            /* steps that are measured, after one that is not */
    const char *profile;    /* where to write what every thread did when, or NULL */
    /* Before step i = 1 … n: a step takes so many seconds, the first one at least so many; or NULL */
    void (*step)(int i, int n, double seconds);
} TrainBench;

typedef struct TrainFigure {
    double seconds; /* median of a step */
    double tokens_per_second;
    double peak;             /* of all devices, for the products' type, in turns with the steps */
    double mfu;              /* of that peak */
    double flops;            /* of a step */
    double loss[2];          /* of the first and the last step */
    size_t peak_memory;      /* bytes: weights, optimizer state, temporaries; of this process */
    Ceilings ceilings;       /* of all devices together */
    int devices;             /* in all processes */
    CommTable communication; /* of a step, per device */
    DeviceMemory memory;     /* of a device */
} TrainFigure;

int train_bench(const TrainBench *bench, TrainFigure *out, cvn_err *err);

/* Operations per second of all of a trainer's devices together, of the type it computes in, measured on all at the same
   time; none, or less, where it can't be measured. */
double train_peak(const Trainer *trainer);

/* Operations of a step, as MFU counts them. */
double train_flops(const Model *config, int64_t batch, int64_t seq);

#endif
