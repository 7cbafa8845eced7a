/*
 * Attention whose scores would be large, as a loop: a turn takes a block of queries of some rows, over a very long context of
 * some heads, and holds their scores only.
 *
 *     %$7:2 = "stablehlo.while"(%zeros, %0) ({…%i < turns…}, {
 *       ^bb0(%out, %i):  q block = dynamic_slice(q, …)    attention of it, decomposed    dynamic_update_slice(out, …)
 *     })
 *
 * What a turn does is a graph, built and decomposed as any other and printed into the loop. Its parameters are what is
 * carried, the number of the turn, and the operands of the attention. Gradients of keys and values are sums over blocks, in
 * f32, or f64 where the data are.
 */
#include "graph/attention.h"
#include "graph/decompose.h"
#include "graph/stablehlo/stablehlo_impl.h"
#include "graph/steps.h"
#include "graph/text/names.h"

#include <inttypes.h>

/* Bytes of scores that are worth a loop, and that a turn should hold; but so many queries it takes. Heads are taken apart where
   these would still hold more than that. */
enum { SCORES_MOST = 16 << 20, QUERIES_LEAST = 128, SCORES_OF_HEADS = 128 << 20 };

/* q [batch, seq, heads, dim] goes by blocks of so many rows and queries, and of the heads of so many KV heads. */
typedef struct AttentionBlocks {
    int64_t rows, queries, heads;
} AttentionBlocks;

/* What a tensor's dimensions are. */
typedef enum OperandDims {
    OF_ROWS,    /* [batch] */
    OF_FIRST,   /* [batch, seq] */
    OF_QUERIES, /* [batch, seq, heads, dim] */
    OF_KEYS,    /* [batch, kv_heads, context, …] */
    OF_SLOTS,   /* [pages, kv_heads, page, …]: all of them, which rows look at as they like */
    OF_TABLE,   /* [slots, n]: likewise */
    OF_HEADS    /* [heads] */
} OperandDims;

static int64_t largest_divisor(int64_t n, int64_t most)
{
    for (int64_t d = most < n ? most : n; d > 1; d--)
        if (n % d == 0)
            return d;
    return 1;
}

/* 128 queries or more, of one row where several would hold too much. */
static AttentionBlocks blocks_of(const Op *op)
{
    const int64_t *dim = op->operand[0]->type.dim;
    int64_t context = op->operand[1]->type.dim[2], heads = op->operand[1]->type.dim[1];
    double query = (double)dim[2] * (double)context * 4, row = query * (double)dim[1];
    if (row * (double)dim[0] <= SCORES_MOST)
        return (AttentionBlocks){dim[0], dim[1], heads};
    if (row <= SCORES_MOST)
        return (AttentionBlocks){largest_divisor(dim[0], (int64_t)(SCORES_MOST / row)), dim[1],
                                 heads};
    int64_t most =
        query * QUERIES_LEAST < SCORES_MOST ? (int64_t)(SCORES_MOST / query) : QUERIES_LEAST;
    int64_t queries = largest_divisor(dim[1], most);
    if (queries * 8 < most) /* a prime number is not worth it */
        queries = dim[1];
    double head = query * (double)queries / (double)heads;
    return (AttentionBlocks){1, queries, largest_divisor(heads, (int64_t)(SCORES_OF_HEADS / head))};
}

bool hlo_loops(const Op *op, void *unused)
{
    (void)unused;
    if (op->kind != OP_ATTENTION && op->kind != OP_ATTENTION_BACKWARD)
        return false;
    const int64_t *dim = op->operand[0]->type.dim;
    AttentionBlocks b = blocks_of(op);
    return hlo_is_ragged(op) || b.rows < dim[0] || b.queries < dim[1];
}

static cvn_value *whole_number(cvn_graph *g, int64_t n)
{
    return cvn_splat(g, cvn_scalar(CVN_I32), (double)n);
}

/* Where the block at row at[0], query at[1] and KV head at[2] begins in a tensor, and its size. */
static void place_of(cvn_graph *g, const cvn_type *type, OperandDims role, int64_t group,
                     AttentionBlocks b, cvn_value *const *at, cvn_value **start, int64_t *size)
{
    for (int d = 0; d < type->rank; d++) {
        bool rows = d == 0 && role != OF_SLOTS && role != OF_TABLE;
        size[d] = rows ? b.rows : type->dim[d];
        start[d] = rows ? at[0] : whole_number(g, 0);
    }
    if (role == OF_QUERIES || role == OF_HEADS) {
        int d = role == OF_HEADS ? 0 : 2;
        size[d] = b.heads * group;
        start[d] = cvn_multiply(g, at[2], whole_number(g, group));
    }
    if (role == OF_FIRST || role == OF_QUERIES) {
        size[1] = b.queries;
        start[1] = at[1];
    }
    if (role == OF_KEYS || role == OF_SLOTS) {
        size[1] = b.heads;
        start[1] = at[2];
    }
}

static cvn_value *block_of(cvn_graph *g, cvn_value *x, OperandDims role, int64_t group,
                           AttentionBlocks b, cvn_value *const *at)
{
    int64_t size[CVN_MAX_RANK];
    cvn_value *start[CVN_MAX_RANK];
    place_of(g, &x->type, role, group, b, at, start, size);
    return cvn_dynamic_slice(g, x, start, size);
}

/* Query heads of a KV head. */
static int64_t group_of(const Op *op)
{
    return op->operand[0]->type.dim[2] / op->operand[1]->type.dim[1];
}

/* What op is of a block: its first result. */
static cvn_value *op_of_block(cvn_graph *g, const Op *op, cvn_value *const *operand,
                              cvn_value *const *at, AttentionBlocks b)
{
    cvn_value *part[ATTENTION_MOST_OPERANDS];
    int slot = attention_slot_at(op);
    for (int i = 0; i < op->n_operands; i++) {
        bool queries = i == 0 || (op->kind == OP_ATTENTION_BACKWARD && i == 5);
        OperandDims role = i == attention_first_at(op)      ? OF_FIRST
                           : slot >= 0 && i == slot + 1     ? OF_TABLE
                           : i == attention_sinks(op)       ? OF_HEADS
                           : op->operand[i]->type.rank == 1 ? OF_ROWS
                           : queries                        ? OF_QUERIES
                           : slot >= 0                      ? OF_SLOTS
                                                            : OF_KEYS;
        part[i] = block_of(g, operand[i], role, group_of(op), b, at);
    }
    cvn_value *skipped = spread(g, at[1], &part[3]->type, NULL);
    part[3] = cvn_add(g, part[3], skipped);      /* where the first query of the block is */
    part[4] = cvn_subtract(g, part[4], skipped); /* how many of them are real */
    return graph_add(g, op->kind, &op->attr, op->n_operands, part, NULL);
}

/* The type in which result i is carried: sums over blocks are wide. */
static cvn_type carried_type(const Op *op, int i)
{
    cvn_type type = op->result[i]->type;
    if (i > 0)
        type.dtype = type.dtype == CVN_F64 ? CVN_F64 : CVN_F32;
    return type;
}

/* A turn. Its parameters: what is carried, the number of the turn, op's operands; its outputs: the first of these anew. */
static cvn_graph *turn_of(const Op *op, AttentionBlocks b, cvn_err *err)
{
    cvn_graph *g = cvn_graph_new("turn", err);
    if (!g)
        return NULL;
    cvn_value *carried[OP_MOST_RESULTS], *operand[ATTENTION_MOST_OPERANDS], *at[3];
    for (int i = 0; i < op->n_results; i++)
        carried[i] = cvn_parameter(g, "carried", carried_type(op, i));
    cvn_value *turn = cvn_parameter(g, "turn", cvn_scalar(CVN_I32));
    cvn_value *turns = cvn_parameter(g, "turns", cvn_scalar(CVN_I32));
    for (int i = 0; i < op->n_operands; i++)
        operand[i] = cvn_parameter(g, "operand", op->operand[i]->type);
    if (op->kind == OP_ATTENTION_BACKWARD) /* in the type of their sums */
        for (int i = 1; i < 3; i++)
            operand[i] = as(g, operand[i], carried_type(op, i).dtype);
    cvn_value *queries = whole_number(g, op->operand[0]->type.dim[1] / b.queries);
    cvn_value *heads = whole_number(g, op->operand[1]->type.dim[1] / b.heads);
    cvn_value *head = cvn_divide(g, turn, queries); /* of all rows */
    at[0] = cvn_divide(g, head, heads);
    at[1] = cvn_remainder(g, turn, queries);
    at[2] = cvn_remainder(g, head, heads);
    const int64_t size[] = {b.rows, b.queries, b.heads};
    for (int i = 0; i < 3; i++)
        at[i] = cvn_multiply(g, at[i], whole_number(g, size[i]));
    Op *part = op_of_block(g, op, operand, at, b)->def;
    for (int i = 0; i < op->n_results && !g->err.code; i++) {
        int64_t shape[CVN_MAX_RANK];
        cvn_value *start[CVN_MAX_RANK], *block = part->result[i];
        OperandDims role = i == 0 ? OF_QUERIES : i < 3 ? OF_KEYS : OF_HEADS;
        if (i > 0)
            block = cvn_add(g, block_of(g, carried[i], role, group_of(op), b, at), block);
        place_of(g, &carried[i]->type, role, group_of(op), b, at, start, shape);
        cvn_output(g, cvn_dynamic_update_slice(g, carried[i], block, start));
    }
    cvn_output(g, cvn_add(g, turn, whole_number(g, 1)));
    cvn_output(g, turns);
    if (graph_decompose(g, NULL, NULL, NULL, err)) {
        cvn_graph_free(g);
        return NULL;
    }
    return g;
}

void hlo_put_graph(Hlo *h, const cvn_graph *g, const char *const *argument, const char **output)
{
    char **name = names_choose(g, NULL, &h->arena);
    char **outside = h->name;
    const Fences fences = h->fences;
    const char *prefix = hlo_temp(h) + 1;
    for (uint32_t i = 0; i < g->n_values; i++)
        name[i] = arena_printf(&h->arena, "%s.%s", prefix, name[i] ? name[i] : "");
    for (int i = 0; i < g->n_parameters; i++)
        name[g->parameter[i]->id] = arena_string(&h->arena, argument[i] + 1);
    h->name = name;
    h->fences = (Fences){0};
    for (const Op *op = g->first; op; op = op->next)
        hlo_put_op(h, op);
    for (int i = 0; i < g->n_outputs; i++)
        output[i] = hlo_ref(h, g->output[i].value);
    h->name = outside;
    h->fences = fences;
}

/* "%a: tensor<2xf32>, %i: tensor<i32>" */
static const char *with_types(Hlo *h, const cvn_graph *g, const char *const *argument, int n)
{
    const char *list = "";
    for (int i = 0; i < n; i++)
        list = arena_printf(&h->arena, "%s%s%s: %s", list, i ? ", " : "", argument[i],
                            hlo_tensor(h, &g->parameter[i]->type));
    return list;
}

static const char *list_of(Hlo *h, const char *const *text, int n)
{
    const char *list = "";
    for (int i = 0; i < n; i++)
        list = arena_printf(&h->arena, "%s%s%s", list, i ? ", " : "", text[i]);
    return list;
}

/* Whether a < b: numbers of turns. */
static const char *put_less(Hlo *h, const char *a, const char *b)
{
    const char *less = hlo_temp(h), *const both[] = {a, b};
    hlo_call(h, &(HloCall){.result = less,
                           .name = "compare",
                           .operands = list_of(h, both, 2),
                           .operand_types = "tensor<i32>, tensor<i32>",
                           .attrs = "comparison_direction = #stablehlo<comparison_direction LT>, "
                                    "compare_type = #stablehlo<comparison_type SIGNED>",
                           .result_types = "tensor<i1>"});
    return less;
}

const char *hlo_put_loop(Hlo *h, const cvn_graph *turn, const char *const *begin,
                         const char *const *operand, int64_t most)
{
    enum { MOST = HLO_LOOP_MOST };
    const char *argument[MOST] = {0}, *output[MOST] = {0};
    const char *loop = hlo_temp(h);
    int n = turn->n_outputs;
    for (int i = 0; i < turn->n_parameters; i++)
        argument[i] = i < n ? hlo_temp(h) : operand[i - n];
    const char *types = hlo_types(h, turn->parameter, n);
    strbuf_printf(h->out, "    %s:%d = \"stablehlo.while\"(%s) ({\n    ^bb0(%s):\n", loop, n,
                  list_of(h, begin, n), with_types(h, turn, argument, n));
    const cvn_type number = cvn_scalar(CVN_I32);
    const char *more = put_less(h, argument[n - 2], argument[n - 1]);
    if (most) {
        const char *both[] = {more,
                              put_less(h, argument[n - 2], hlo_splat(h, &number, (double)most))};
        more = hlo_temp(h);
        hlo_call(h, &(HloCall){.result = more,
                               .name = "and",
                               .operands = list_of(h, both, 2),
                               .operand_types = "tensor<i1>, tensor<i1>",
                               .result_types = "tensor<i1>"});
    }
    strbuf_printf(h->out, "    \"stablehlo.return\"(%s) : (tensor<i1>) -> ()\n    }, {\n", more);
    for (int i = 0; i < n; i++) /* the same of the other region, under names of its own */
        argument[i] = hlo_temp(h);
    strbuf_printf(h->out, "    ^bb0(%s):\n", with_types(h, turn, argument, n));
    hlo_put_graph(h, turn, argument, output);
    strbuf_printf(h->out, "    \"stablehlo.return\"(%s) : (%s) -> ()\n    }) : (%s) -> (%s)\n",
                  list_of(h, output, n), types, types, types);
    return loop;
}

void hlo_name_results(Hlo *h, const Op *op, const char *const *result)
{
    const char *types = hlo_types(h, op->result, op->n_results);
    hlo_call(h, &(HloCall){.result = hlo_results(h, op),
                           .name = "optimization_barrier",
                           .operands = list_of(h, result, op->n_results),
                           .operand_types = types,
                           .result_types = types,
                           .n_results = op->n_results});
}

static void put_blocks(Hlo *h, const Op *op, const cvn_graph *turn, int64_t turns)
{
    const char *begin[HLO_LOOP_MOST] = {0}, *operand[HLO_LOOP_MOST] = {0},
               *result[OP_MOST_RESULTS] = {0};
    const cvn_type scalar = cvn_scalar(CVN_I32);
    int n = op->n_results;
    for (int i = 0; i <= n; i++)
        begin[i] = hlo_splat(h, &turn->parameter[i]->type, 0);
    begin[n + 1] = hlo_splat(h, &scalar, (double)turns);
    for (int i = 0; i < op->n_operands; i++)
        operand[i] = hlo_ref(h, op->operand[i]);
    const char *loop = hlo_put_loop(h, turn, begin, operand, 0);
    for (int i = 0; i < n; i++)
        result[i] = hlo_as(h, arena_printf(&h->arena, "%s#%d", loop, i), &turn->parameter[i]->type,
                           op->result[i]->type.dtype);
    hlo_name_results(h, op, result);
}

void hlo_attention(Hlo *h, const Op *op)
{
    const int64_t *dim = op->operand[0]->type.dim;
    AttentionBlocks b = blocks_of(op);
    if (hlo_is_ragged(op)) {
        hlo_ragged(h, op);
        return;
    }
    SCOPED(graph_release) cvn_graph *turn = h->err->code ? NULL : turn_of(op, b, h->err);
    if (turn)
        put_blocks(h, op, turn,
                   dim[0] / b.rows * (dim[1] / b.queries) *
                       (op->operand[1]->type.dim[1] / b.heads));
}

void hlo_attention_backward(Hlo *h, const Op *op)
{
    hlo_attention(h, op);
}
