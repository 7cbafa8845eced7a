#include "sim/training.h"

#include <math.h>
#include <string.h>

static const SimStack stacks[] = {
#define STACK(...) {__VA_ARGS__},
#include "sim/stacks.def"
};

const SimStack *sim_stack_at(size_t i)
{
    return i < sizeof stacks / sizeof *stacks ? &stacks[i] : NULL;
}

const SimStack *sim_stack_find(const char *name)
{
    for (size_t i = 0; i < sizeof stacks / sizeof *stacks; i++)
        if (strcmp(stacks[i].name, name) == 0)
            return &stacks[i];
    return NULL;
}

double sim_shape_weights(const SimShape *s)
{
    double q = s->heads * s->head_dim, kv = s->kv_heads * s->head_dim;
    return s->layers * (s->dim * (2 * q + 2 * kv) + s->gates * s->dim * s->ffn) + s->vocab * s->dim;
}

double sim_shape_flops(const SimShape *s, double keys)
{
    return 6 * sim_shape_weights(s) + 12 * s->layers * s->heads * s->head_dim * keys;
}

/* A product in the forward pass, the share of it that is computed again, and its two gradients: of the input and of the weights. */
static void add_product(const SimTraining *a, ChipType type, double again, Cost *sum, double m,
                        double n, double k)
{
    Cost c = cost_product(a->chip, type, m, n, k);
    cost_add(sum, &c, 1 + again);
    c = cost_product(a->chip, type, m, k, n);
    cost_add(sum, &c, 1);
    c = cost_product(a->chip, type, fmin(n, k), fmax(n, k), m);
    cost_add(sum, &c, 1);
}

/* The cost on one chip of a layer for m tokens. */
static Cost layer_work(const SimTraining *a, double m)
{
    const SimShape *s = &a->shape;
    double q = s->heads * s->head_dim / a->tp, kv = fmax(s->kv_heads, a->tp) * s->head_dim / a->tp,
           ffn = s->ffn / a->tp;
    Cost all = {0}, c;
    add_product(a, a->type, a->again, &all, m, q + 2 * kv, s->dim);
    add_product(a, a->type, a->again, &all, m, s->dim, q);
    add_product(a, a->type, a->again, &all, m, (s->gates - 1) * ffn, s->dim);
    add_product(a, a->type, 0, &all, m, s->dim, ffn); /* nothing backward looks at its result */
    c = cost_prefill(a->chip, m, s->heads / a->tp, a->seq / 2, s->head_dim,
                     3.5 + a->attention_again);
    cost_add(&all, &c, 1);
    /* As in serving (of_tokens), and backward twice that. */
    double moved = 2 * m * (8 * s->dim + 3 * (q + 2 * kv) + s->gates * ffn);
    if (a->type != CHIP_BF16)
        moved += 3 * m * (2 * s->dim + q + ffn);
    c = cost_move(a->chip, moved, 5);
    cost_add(&all, &c, 3 + a->again);
    return all;
}

static Cost collective(const SimTraining *a, CostCollective kind, double n, double stride,
                       double bytes)
{
    return n > 1 ? cost_collective(a->chip, kind, n, stride, bytes) : (Cost){0};
}

int sim_train(const SimTraining *a, SimTrained *out, cvn_err *err)
{
    const SimShape *s = &a->shape;
    const Chip *chip = &a->chip->chip;
    double dp = a->chips / (a->tp * a->pp * a->cp);
    double own = a->rows / dp, micro = a->micro > 0 ? fmin(a->micro, own) : own,
           times = own / micro;
    if (!(dp >= 1) || !(own > 0) || !(a->seq >= 1) || a->pp > s->layers || a->tp > s->heads)
        return err_set(err, CVN_EINVAL,
                       "a batch of %g sequences of %g tokens cannot be divided into %g x %g x %g "
                       "shards on %g chips",
                       a->rows, a->seq, a->tp, a->pp, a->cp, a->chips);
    double m = micro * a->seq / a->cp, layers = s->layers / a->pp;
    double weights = sim_shape_weights(s), layer_bytes = 2 * weights / s->layers / a->tp;
    double wide = a->stack->gradient / 2; /* as gradients are to weights */
    /* On a torus weights are split within it, and only gradients leave it. */
    double spread = a->sharded ? (chip->torus ? fmin(dp, chip->domain / a->tp) : dp) * a->cp : 1;
    Cost work = layer_work(a, m), c;
    /* Sums of what parts of a layer have, each as a gather before and a scatter after where sequences are split. */
    Cost sums = collective(a, COST_ALL_REDUCE, a->tp, 1, 2 * m * s->dim);
    double between = sums.seconds * (4 + a->again); /* the last product's is not computed again */
    double ring = collective(a, COST_ALL_GATHER, a->cp, a->tp,
                             2 * m * a->cp * 2 * s->kv_heads / a->tp * s->head_dim)
                      .seconds *
                  3;
    double gathers = 2 * collective(a, COST_ALL_GATHER, spread, a->tp, layer_bytes).seconds +
                     collective(a, COST_REDUCE_SCATTER, spread, a->tp, wide * layer_bytes).seconds;
    const SimStack *stack = a->stack;
    double beside =
        ring + (stack->gathers_overlap ? gathers : 0) + (stack->sums_overlap ? between : 0);
    double exposed = fmax(0, beside - work.seconds) + (stack->gathers_overlap ? 0 : gathers) +
                     (stack->sums_overlap ? 0 : between);
    Cost micro_cost = {0}, head = {0};
    cost_add(&micro_cost, &work, layers);
    add_product(a, CHIP_BF16, 0, &head, m, s->vocab / a->tp, s->dim);
    c = cost_move(a->chip, 16 * m * s->vocab / a->tp, 8); /* the loss and its gradient, in f32 */
    cost_add(&head, &c, 1);
    cost_add(&micro_cost, &head, 1 / a->pp);
    exposed *= layers;
    double bubble = (a->pp - 1) / fmax(1, a->virtual_stages);
    *out = (SimTrained){0};
    cost_add(&out->cost, &micro_cost, times);
    out->exposed = exposed * times;
    out->seconds = (micro_cost.seconds + exposed) * (times + bubble);
    /* Gradients' sum over copies of the weights, beside the last backward pass. */
    double sum = collective(a, COST_ALL_REDUCE, dp * a->cp / spread, spread * a->tp,
                            2 * wide * weights / (spread * a->tp * a->pp))
                     .seconds;
    double waited = fmax(0, sum - 2.0 / 3 * micro_cost.seconds);
    /* AdamW: reads and writes weights and two averages in f32, reads gradients, writes weights in bf16. */
    c = cost_move(a->chip, 30 * weights / (fmax(spread, a->sharded ? 1 : dp) * a->tp * a->pp), 1);
    cost_add(&out->cost, &c, 1);
    out->exposed += waited;
    out->seconds += waited + c.seconds;
    out->cost.spent[COST_LINK] += out->seconds - out->cost.seconds;
    out->cost.seconds = out->seconds;
    return CVN_OK;
}
