#include "sim/timing.h"

#include "graph/attention.h"
#include "graph/linear.h"

#include <math.h>

typedef struct Flight {
    const Op *op;
    double end;
} Flight;

enum { MOST_FLIGHTS = 64 };

typedef struct Timer {
    const TimedFor *chip;
    Arena *arena;
    Timed *out;
    double now, link; /* when the device, and when its links, have done all that they were given */
    Flight flight[MOST_FLIGHTS];
    int flights;
    double ahead; /* seconds of reading that were done while it waited */
} Timer;

static double elements(const cvn_value *v)
{
    double n = 1;
    for (int d = 0; d < v->type.rank; d++)
        n *= (double)v->type.dim[d];
    return n;
}

static ChipType type_of(cvn_dtype weights, bool int8_inputs)
{
    switch (weights) {
    case CVN_I8:
        return int8_inputs ? CHIP_INT8 : CHIP_WEIGHT8;
    case CVN_I4:
        return CHIP_WEIGHT4;
    default:
        return CHIP_BF16;
    }
}

static Cost of_linear(const CostModel *m, const Op *op)
{
    Cost all = {0};
    for (int i = 0; i < linear_weights(op); i++) {
        LinearWeight w = linear_weight(op, i);
        Cost c = cost_product(m, type_of(w.dtype, op->kind == OP_LINEAR_INT8),
                              (double)linear_rows(op), (double)w.n, (double)w.k);
        cost_add(&all, &c, 1);
    }
    return all;
}

static Cost of_dot(const CostModel *m, const Op *op)
{
    double k = 1, left = elements(op->operand[0]), right = elements(op->operand[1]),
           result = elements(op->result[0]);
    for (int i = 0; i < op->attr.lhs_contract.n; i++)
        k *= (double)op->operand[0]->type.dim[op->attr.lhs_contract.v[i]];
    /* left = b m k, right = b n k, result = b m n */
    double batch = fmax(1, left * right / (k * k * result));
    double rows = left / (batch * k), columns = right / (batch * k);
    bool int8 = op->operand[0]->type.dtype == CVN_I8 && op->operand[1]->type.dtype == CVN_I8;
    /* The larger side fills the chip, as a maker's library turns products. */
    return cost_product(m, int8 ? CHIP_INT8 : CHIP_BF16, fmin(rows, columns),
                        fmax(rows, columns) * batch, k);
}

static Cost of_attention(const TimedFor *chip, const Op *op)
{
    const cvn_type *q = &op->operand[0]->type, *keys = &op->operand[1]->type;
    double dim = (double)q->dim[q->rank - 1];
    double seen = attention_mean_keys(chip->first, chip->last, attention_reach(op));
    if (op->kind == OP_ATTENTION &&
        elements(op->operand[0]) <= 16 * elements(op->operand[1]) / fmax(1, (double)keys->dim[2])) {
        /* With few queries the time is that of reading keys and values. */
        double bytes = 2 * (double)cvn_type_bytes(keys) * (seen / (double)keys->dim[2]);
        bytes *= (double)q->dim[0] / (double)keys->dim[0]; /* of the slots that are looked at */
        return cost_decode(&chip->model, bytes, keys->dtype == CVN_I8);
    }
    return cost_prefill(&chip->model, elements(op->operand[0]) / dim, 1, seen, dim,
                        op->kind == OP_ATTENTION ? 1 : 2.5);
}

static Cost of_collective(const CostModel *m, const Op *op)
{
    static const struct {
        OpKind kind;
        CostCollective as;
        bool result; /* the whole tensor is what comes out */
    } kinds[] = {{OP_ALL_REDUCE, COST_ALL_REDUCE, false},
                 {OP_ALL_GATHER, COST_ALL_GATHER, true},
                 {OP_REDUCE_SCATTER, COST_REDUCE_SCATTER, false},
                 {OP_ALL_TO_ALL, COST_ALL_TO_ALL, false},
                 {OP_COLLECTIVE_PERMUTE, COST_PERMUTE, false}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (kinds[i].kind == op->kind) {
            const cvn_value *whole = kinds[i].result ? op->result[0] : op->operand[0];
            double n = op->kind == OP_COLLECTIVE_PERMUTE ? 2 : (double)op->attr.group_size;
            double stride = op->attr.groups.n > 1
                                ? fabs((double)(op->attr.groups.v[1] - op->attr.groups.v[0]))
                                : 1;
            double bytes = (double)cvn_type_bytes(&whole->type);
            return cost_collective(m, kinds[i].as, n, stride,
                                   op->kind == OP_ALL_TO_ALL ? bytes * n : bytes);
        }
    return (Cost){0};
}

static Cost of_step(const TimedFor *chip, const Step *step)
{
    const Op *op = step->op;
    size_t offset;
    switch (op->kind) {
    case OP_LINEAR:
    case OP_LINEAR_INT8:
        return of_linear(&chip->model, op);
    case OP_DOT_GENERAL:
        return of_dot(&chip->model, op);
    case OP_ATTENTION:
    case OP_ATTENTION_BACKWARD:
        return of_attention(chip, op);
    default:
        break;
    }
    if (op_info[op->kind].class_ == CLASS_COLLECTIVE)
        return of_collective(&chip->model, op);
    if (op->n_results > 0 && op_is_view(op, &offset))
        return (Cost){0};
    return cost_move(&chip->model, (double)step->bytes, 1);
}

static void span(Timer *t, const Op *op, double begin, double seconds, bool link)
{
    if (!t->chip->spans || seconds <= 0)
        return;
    t->out->span =
        arena_more(t->arena, t->out->span, (size_t)t->out->n_spans, sizeof *t->out->span);
    t->out->span[t->out->n_spans++] = (TimedSpan){op_info[op->kind].name, begin, seconds, link};
}

/* The device waits until then. */
static void wait_until(Timer *t, double end)
{
    double waited = fmax(0, end - t->now);
    t->out->exposed += waited;
    t->out->cost.spent[COST_LINK] += waited;
    t->out->cost.seconds += waited;
    t->now += waited;
    t->ahead = cost_ahead(&t->chip->model, t->ahead + waited);
}

/* What was measured goes to what the step is thought to lose most to. Where collectives are measured, devices do them. */
static void take_measured(Timer *t, const Step *step, double seconds)
{
    Cost c = of_step(t->chip, step);
    CostBound most = COST_COMPUTE;
    for (int b = 0; b < COST_BOUNDS; b++)
        if (c.spent[b] > c.spent[most])
            most = (CostBound)b;
    for (int b = 0; b < COST_BOUNDS; b++)
        c.spent[b] = b == (int)most ? seconds : 0;
    c.seconds = seconds;
    if (most == COST_LINK)
        t->out->exposed += seconds;
    span(t, step->op, t->now, seconds, most == COST_LINK);
    cost_add(&t->out->cost, &c, 1);
    t->now += seconds;
}

static void take(Timer *t, const Step *step)
{
    bool collective =
        op_info[step->op->kind].class_ == CLASS_COLLECTIVE && step->op->kind != OP_PARTITION_ID;
    if (step->phase == STEP_DONE) {
        for (int i = 0; i < t->flights; i++)
            if (t->flight[i].op == step->op) {
                wait_until(t, t->flight[i].end);
                t->flight[i] = t->flight[--t->flights];
            }
        return;
    }
    Cost c = of_step(t->chip, step);
    if (!collective) {
        double read = fmin(t->ahead, c.reading);
        t->ahead -= read;
        c.seconds -= read;
        c.spent[c.spent[COST_MEMORY] > 0 ? COST_MEMORY : COST_COMPUTE] -= read;
        span(t, step->op, t->now, c.seconds, false);
        cost_add(&t->out->cost, &c, 1);
        t->now += c.seconds;
        return;
    }
    double begin = fmax(t->now, t->link);
    t->link = begin + c.seconds;
    t->out->in_flight += c.seconds;
    t->out->cost.sent += c.sent;
    t->out->cost.bound[COST_LINK] += c.bound[COST_LINK];
    span(t, step->op, begin, c.seconds, true);
    if (step->phase == STEP_WHOLE || t->flights == MOST_FLIGHTS)
        wait_until(t, t->link);
    else
        t->flight[t->flights++] = (Flight){step->op, t->link};
}

int timing_of_plan(const TimedFor *chip, const Plan *plan, Arena *arena, Timed *out, cvn_err *err)
{
    Timer t = {.chip = chip, .arena = arena, .out = out};
    *out = (Timed){0};
    double *seconds =
        chip->clock ? arena_array(arena, (size_t)plan->n_steps + 1, sizeof *seconds) : NULL;
    if (seconds && chip->clock->seconds(chip->clock->context, plan, chip->at, seconds, err))
        return err->code;
    for (int i = 0; i < plan->n_steps; i++)
        if (seconds)
            take_measured(&t, &plan->step[i], seconds[i]);
        else
            take(&t, &plan->step[i]);
    out->seconds = t.now;
    return CVN_OK;
}
