/*
 * Meshes and layouts that do a task best: all ways to split so many chips in `data` and `model`, the layouts that suit each, and for
 * training what the backward pass computes again, within a chip's memory.
 *
 *     Llama 2 70B, a training step of 512 rows of 1024 tokens on 128 v4: 52 ways, of which 31 fit
 *     -> data=32,model=4, fsdp+tp, remat selective, 10.2 s: 6 % waits for links
 *
 * Models have many layers that are alike: each way is planned with two layers and with four, which says what a layer takes; the best are
 * planned whole.
 */
#ifndef CVN_SIM_SEARCH_H
#define CVN_SIM_SEARCH_H

#include "sim/plan.h"

typedef enum SearchGoal { SEARCH_LATENCY, SEARCH_THROUGHPUT, SEARCH_COST, SEARCH_GOALS } SearchGoal;

extern const char *const search_goal_names[SEARCH_GOALS + 1]; /* then NULL */

typedef struct SearchAsk {
    SimAsk ask;    /* with a chip; mesh, layout and what is searched of the rest is not looked at */
    int64_t chips; /* 0: as few as do */
    SearchGoal goal;
    const char *layout; /* NULL: any */
    bool remat, batch;  /* are searched, too */
} SearchAsk;

typedef struct SearchWay {
    char mesh[48];
    const char *layout;
    RematPolicy remat;
    int64_t batch, chips;
    double seconds, memory; /* of a step; of a chip, bytes */
    double tokens;          /* of a step */
    double exposed;         /* seconds that it waits for links */
    double model_flops;
    Cost cost;
} SearchWay;

enum { SEARCH_BEST = 5 };

typedef struct SearchFound {
    SearchWay way[SEARCH_BEST];
    int n;
    int tried, fit; /* ways */
    double seconds; /* that it took */
} SearchFound;

/* A way to split `data` x `model` chips. */
SearchWay search_way(int64_t data, int64_t model, const char *layout, int64_t batch,
                     RematPolicy remat);
/* What a way takes, planned with `few` layers and with twice as many, which says what a layer takes. Where communication overlaps with
   more than its own layer, two are off by 1 %, four by 0.2 %. */
int search_try(const SimAsk *ask, SearchWay *way, int64_t few, cvn_err *err);

/* CVN_EINVAL when nothing fits, with how near the nearest came. */
int sim_search(const SearchAsk *ask, SearchFound *found, cvn_err *err);

#endif
