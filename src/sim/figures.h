/* What a step or serving comes to in the figures that people compare: utilisation, bandwidth, cost. */
#ifndef CVN_SIM_FIGURES_H
#define CVN_SIM_FIGURES_H

#include "sim/cost.h"

typedef struct SimFigures {
    const char *model, *task;
    const Chip *chip; /* with the price that counts */
    double chips;
    double seconds;     /* a step; of serving, all of it */
    double tokens;      /* in that time, of all chips */
    double model_flops; /* in that time: MFU is of them */
    /* Bytes that are read at least, once, by all chips together; 0: no such figure. */
    double weights;
    double exposed; /* seconds of it that chips wait for links */
    Cost cost;      /* of one chip */
} SimFigures;

/* Dollars; the chip has a price. */
static inline double figures_per_million(const SimFigures *f)
{
    return f->chip->price * f->chips / 3600 * f->seconds / f->tokens * 1e6;
}

static inline double figures_mfu(const SimFigures *f)
{
    return f->model_flops / (f->seconds * f->chips * f->chip->bf16);
}

/* The share of the memory's bandwidth that is used. */
static inline double figures_mbu(const SimFigures *f)
{
    return f->cost.bytes / (f->seconds * f->chip->bandwidth);
}

/* The same as if every chip read its share of the weights and nothing else. */
static inline double figures_mbu_nominal(const SimFigures *f)
{
    return f->weights / (f->seconds * f->chips * f->chip->bandwidth);
}

#endif
