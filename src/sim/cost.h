/*
 * How long a chip takes for one operation: a roofline, with the shares of the peaks that its fit says (sim/chip.h).
 *
 *     a product of 64 x 8192 and 8192 x 28672 in bf16 on an H100: 470 MB of weights at 0.836 of 3.35 TB/s, 168 us;
 *     its 30 GFLOP alone would take 38 us
 *
 * Every time comes with its bounds: what it would take if there were nothing but computing, memory, links or starting. The time
 * is at least the largest of them.
 */
#ifndef CVN_SIM_COST_H
#define CVN_SIM_COST_H

#include "sim/chip.h"

#include <stdint.h>

/* What time was lost to. */
typedef enum CostBound { COST_COMPUTE, COST_MEMORY, COST_LINK, COST_HOST, COST_BOUNDS } CostBound;

extern const char *const cost_bound_names[COST_BOUNDS];

typedef struct Cost {
    double seconds;
    double flops, bytes, sent; /* operations; of memory; over links */
    double bound[COST_BOUNDS]; /* seconds of each alone, at the full peak */
    /* Seconds of each operation, by its largest bound: together `seconds`. */
    double spent[COST_BOUNDS];
    double reading; /* seconds that it would be sooner, had memory been read before */
} Cost;

typedef struct CostModel {
    Chip chip;
    ChipFit fit;
    double stretch; /* of every operation's time */
} CostModel;

/* How much longer steps of training take than their operations by themselves: collectives in the way of products, launches of
   optimizers, input, stragglers. The median over nine sources of published steps of each one's median (tools/left_out.py, which also
   says how far off a source is that the median has not seen: docs/FORESIGHT.md). */
#define COST_TRAINING 1.099

void cost_model(CostModel *model, const Chip *chip);
/* The same for training, where products follow products for minutes. */
void cost_sustained(CostModel *model);

Cost cost_product(const CostModel *model, ChipType type, double m, double n, double k);
/* One new token of each row, that look at as many keys and values as `bytes` are; narrow: in 8 bits. */
Cost cost_decode(const CostModel *model, double bytes, bool narrow);
/* `rows` x `heads` queries of a prompt (all new tokens), each looking at `keys` on average, of `dim` numbers; `times` 1 forward,
   2.5 backward. */
Cost cost_prefill(const CostModel *model, double rows, double heads, double keys, double dim,
                  double times);
/* Reads and writes `bytes`, in `launches` operations. */
Cost cost_move(const CostModel *model, double bytes, double launches);

typedef enum CostCollective {
    COST_ALL_REDUCE,
    COST_ALL_GATHER,
    COST_REDUCE_SCATTER,
    COST_ALL_TO_ALL,
    COST_PERMUTE
} CostCollective;

/* Among n chips; bytes are of the whole tensor: what every chip has before a sum or after a gather. `stride`: consecutive members
   are so many chips apart, so that with n it says how many domains the group reaches over. */
Cost cost_collective(const CostModel *model, CostCollective kind, double n, double stride,
                     double bytes);

/* Seconds of reading that go on while so many are waited for links, where programs read ahead. */
double cost_ahead(const CostModel *model, double waited);

void cost_add(Cost *sum, const Cost *more, double times);

#endif
