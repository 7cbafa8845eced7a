/*
 * A back end that runs nothing and adds up: what a device of another back end would hold, compute and send.
 *
 *     RuntimeOptions options = {.backend = &counting_backend,
 *                               .mesh = "data=512,model=8",
 *                               .devices.described = backends[0]};
 *
 * Whatever runs graphs runs them on it unchanged. Graphs are compiled by the back end that it describes, which opens no
 * device for that. All devices of a mesh do the same and hold as much, so that one local device, the first, stands for them
 * all: nothing here grows with the mesh. Results read as 0.
 */
#ifndef CVN_SIM_BACKEND_H
#define CVN_SIM_BACKEND_H

#include "run/backend.h"
#include "sim/timing.h"

extern const Backend counting_backend;

/* Collectives of one kind over the same axes. */
typedef struct CountedCollective {
    OpKind kind;
    const char *axes; /* "model", "data*model" */
    int64_t devices;  /* in each group */
    int64_t count;
    /* That each device sends, by rings: (n - 1) / n of the whole tensor, twice for a sum. */
    double bytes;
} CountedCollective;

/* What one device has come to. */
typedef struct Counts {
    size_t bytes; /* allocated, and reserved for temporaries */
    size_t reserved;
    int64_t operations, steps; /* of all runs: of the graphs, and of what was compiled of them */
    double flops;
    double unseen_flops;           /* of these, of attention over keys that no query looks at */
    CountedCollective *collective; /* [n_collectives] in the order of first runs */
    int n_collectives;
    Timed timed; /* of the last run, when a chip was said */
} Counts;

/* Graphs that are compiled from now on are timed for this chip, when they are compiled by a back end that says its plan; borrowed;
   NULL: they are not. A run then takes as long as `timed` says, without taking it. */
void counting_time_for(Devices *devices, const TimedFor *chip);

/* Says that queries of graphs that are compiled from now on are at positions first … last of a text. */
void counting_positions(Devices *devices, int64_t first, int64_t last);

/* Until now; the devices'. */
const Counts *counting_counts(const Devices *devices);

#endif
