/*
 * Attention of few queries over a cache with much room, as a loop over blocks of keys that ends behind the last key that any row has:
 * its time follows what is filled, where one product over all of the room would read all of it. With a window it begins
 * at the first key that some query sees.
 *
 *     %turns = (largest of start + length, 2047) / 2048
 *     %$7:5 = "stablehlo.while"(%y, %most, %sum, %turn, %turns) ({ %turn < %turns and %turn < blocks }, {
 *         2048 keys and values from 2048 %turn on = dynamic_slice(…)      %y, %most, %sum with these (graph/attention.h)
 *     })
 *
 * What comes before the loop, a turn, and what follows it are graphs, printed in their place. Keys are laid out by position, [batch,
 * kv_heads, context, head_dim], so that a block is one slice of each row and head. Where the room is no whole number of blocks the
 * last one begins earlier and ends with it, and its queries see no key that the block before had: of 5,200 keys the turns read
 * 0 to 2,047, 2,048 to 4,095 and 3,152 to 5,199, of which the last sees 4,096 and later.
 */
#include "base/num.h"
#include "graph/attention.h"
#include "graph/decompose.h"
#include "graph/stablehlo/stablehlo_impl.h"
#include "graph/steps.h"

#include <string.h>

/* Keys of a turn; the fewest that are worth a loop. */
enum { BLOCK = 2048, LEAST_KEYS = 2 * BLOCK };

/* The room is that of several blocks, and more than the queries could fill, as in training. */
bool hlo_is_ragged(const Op *op)
{
    if (op->kind != OP_ATTENTION)
        return false;
    int64_t queries = op->operand[0]->type.dim[1], keys = op->operand[1]->type.dim[2];
    if (attention_context(op) != keys)
        return false;
    double scores = (double)op->operand[0]->type.dim[0] * (double)op->operand[0]->type.dim[2] *
                    (double)queries * BLOCK;
    enum {
        SCORES_MOST = 1 << 24
    }; /* of a turn; of more they are made in blocks of queries (loops.c) */
    return keys >= LEAST_KEYS && queries * 2 <= keys && scores <= SCORES_MOST;
}

static cvn_value *whole(cvn_graph *g, int64_t n)
{
    return cvn_splat(g, cvn_scalar(CVN_I32), (double)n);
}

/* The operands of op as parameters of g: op in g. Those that are in blocks have so many keys. */
static Op op_in_graph(cvn_graph *g, const Op *op, cvn_value **operand, int64_t keys)
{
    Op inside = *op;
    int scales = attention_scales(op);
    for (int i = 0; i < op->n_operands; i++) {
        cvn_type type = op->operand[i]->type;
        if (i == 1 || i == 2 || (scales >= 0 && (i == scales || i == scales + 1)))
            type.dim[2] = keys;
        operand[i] = cvn_parameter(g, "operand", type);
    }
    inside.operand = operand;
    operand[4] = attention_length(g, &inside);
    return inside;
}

/* Of [rows] or [rows, queries] the largest, or smallest. */
static cvn_value *over_all(cvn_graph *g, cvn_reduce kind, cvn_value *x)
{
    return cvn_reduce_dims(g, kind, x, x->type.rank, (const int[]){0, 1});
}

/* From op's operands: y, most, sum, the first turn, how many there are; and the first key of each query, if it is not 0. */
static void begin(cvn_graph *g, const Op *op)
{
    cvn_value *operand[ATTENTION_MOST_OPERANDS];
    const int64_t keys = op->operand[1]->type.dim[2], queries = op->operand[0]->type.dim[1];
    const Op at = op_in_graph(g, op, operand, keys);
    AttentionSoFar none = attention_begin(g, &at);
    cvn_value *start = operand[3], *length = operand[4], *turn = whole(g, 0);
    cvn_value *some = cvn_compare_values(g, CVN_GT, length, like(g, length, 0));
    cvn_value *n = cvn_minimum(g, length, like(g, length, (double)queries));
    cvn_value *end = where(g, some, cvn_add(g, start, n));
    end = cvn_minimum(g, end, like(g, end, (double)keys)); /* so that no sum overflows below */
    cvn_value *turns = over_all(g, CVN_MAX, end);
    turns = cvn_add(g, turns, whole(g, BLOCK - 1));
    turns = cvn_divide(g, turns, whole(g, BLOCK));
    cvn_value *first = attention_first_keys(g, &at);
    if (first) {
        cvn_value *of_rows = spread(
            g, some, &(cvn_type){CVN_BOOL, 2, {first->type.dim[0], queries}}, (const int[]){0});
        cvn_value *seen = cvn_select(g, of_rows, first, like(g, first, (double)keys));
        turn = cvn_maximum(g, over_all(g, CVN_MIN, seen), turn);
        turn = cvn_divide(g, turn, whole(g, BLOCK));
    }
    cvn_value *const given[] = {none.y, none.most, none.sum, turn, turns, first};
    for (int i = 0; i < (first ? 6 : 5); i++)
        cvn_output(g, given[i]);
}

/* A block of keys of each row, from `place` on. */
static cvn_value *keys_of(cvn_graph *g, const Op *op, cvn_value *x, cvn_value *place)
{
    cvn_value *zero = whole(g, 0), *start[] = {zero, zero, place, zero};
    const int64_t size[] = {x->type.dim[0], x->type.dim[1], BLOCK, x->type.dim[3]};
    int slot = attention_slot_at(op);
    x = cvn_dynamic_slice(g, x, start, size);
    return slot < 0 ? x : attention_own(g, x, op->operand[slot], op->operand[slot + 1]);
}

/* Of y, most, sum, turn, turns; op's operands; and, if there are such, first keys, whose type is given. */
static void turn_of(cvn_graph *g, const Op *op, const cvn_graph *before)
{
    cvn_value *carried[5], *operand[ATTENTION_MOST_OPERANDS], *first = NULL;
    int scales = attention_scales(op);
    for (int i = 0; i < 5; i++)
        carried[i] = cvn_parameter(g, "carried", before->output[i].value->type);
    Op at = op_in_graph(g, op, operand, op->operand[1]->type.dim[2]);
    if (before->n_outputs > 5)
        first = cvn_parameter(g, "first", before->output[5].value->type);
    cvn_value *place = cvn_multiply(g, carried[3], whole(g, BLOCK));
    const cvn_type *q = &op->operand[0]->type;
    int64_t keys = op->operand[1]->type.dim[2];
    if (keys % BLOCK) {
        cvn_value *later = spread(g, place, &(cvn_type){CVN_I32, 2, {q->dim[0], q->dim[1]}}, NULL);
        first = first ? cvn_maximum(g, first, later) : later;
        place = cvn_minimum(g, place, whole(g, keys - BLOCK));
    }
    for (int i = 1; i < 3; i++) {
        operand[i] = keys_of(g, &at, operand[i], place);
        if (scales >= 0)
            operand[scales + i - 1] = keys_of(g, &at, operand[scales + i - 1], place);
    }
    AttentionSoFar now =
        attention_step(g, &at, first, place,
                       (AttentionSoFar){.y = carried[0], .most = carried[1], .sum = carried[2]});
    cvn_output(g, now.y);
    cvn_output(g, now.most);
    cvn_output(g, now.sum);
    cvn_output(g, cvn_add(g, carried[3], whole(g, 1)));
    cvn_output(g, carried[4]);
}

/* Of y, most, sum and op's operands: what op is. */
static void end(cvn_graph *g, const Op *op, const cvn_graph *before)
{
    cvn_value *so_far[3], *operand[ATTENTION_MOST_OPERANDS];
    for (int i = 0; i < 3; i++)
        so_far[i] = cvn_parameter(g, "all", before->output[i].value->type);
    const Op at = op_in_graph(g, op, operand, op->operand[1]->type.dim[2]);
    cvn_output(g, attention_end(g, &at, (AttentionSoFar){so_far[0], so_far[1], so_far[2]}));
}

void hlo_ragged(Hlo *h, const Op *op)
{
    const char *operand[HLO_LOOP_MOST] = {0}, *given[6] = {0}, *all[HLO_LOOP_MOST] = {0},
               *result[1];
    SCOPED(graph_release) cvn_graph *before = cvn_graph_new("begin", h->err);
    SCOPED(graph_release) cvn_graph *turn = cvn_graph_new("turn", h->err);
    SCOPED(graph_release) cvn_graph *after = cvn_graph_new("end", h->err);
    if (h->err->code || !before || !turn || !after)
        return;
    begin(before, op);
    turn_of(turn, op, before);
    end(after, op, before);
    for (int i = 0; i < 3; i++) {
        cvn_graph *g = i == 0 ? before : i == 1 ? turn : after;
        if (graph_decompose(g, NULL, NULL, NULL, h->err))
            return;
        hlo_more_rows(g, h->rows);
    }
    for (int i = 0; i < op->n_operands; i++)
        operand[i] = hlo_ref(h, op->operand[i]);
    hlo_put_graph(h, before, operand, given);
    operand[op->n_operands] = given[5];
    const char *loop =
        hlo_put_loop(h, turn, given, operand, num_pieces(op->operand[1]->type.dim[2], BLOCK));
    for (int i = 0; i < 3; i++)
        all[i] = arena_printf(&h->arena, "%s#%d", loop, i);
    memcpy(all + 3, operand, (size_t)op->n_operands * sizeof *operand);
    hlo_put_graph(h, after, all, result);
    hlo_name_results(h, op, result);
}
