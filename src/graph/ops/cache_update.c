/*
 * cache_update: new keys or values go into a cache, each row's at its own position; of a cache in pages, into those that a table says a
 * row's slot has. Slot 1 with the table [[4, 7, 2], [5, 0, -1]] and pages of 64: position 70 is position 6 of page 0.
 */
#include "graph/attention.h"
#include "graph/ops/ops.h"

int attention_check_rows(const Op *op, int i, int64_t batch, const char *name, cvn_err *err)
{
    const cvn_type *t = op_in(op, i);
    if (t->dtype != CVN_I32 || t->rank != 1 || t->dim[0] != batch)
        return infer_fail(op, err, "%s must be i32 [batch]", name);
    return CVN_OK;
}

bool attention_slots_whole(cvn_graph *g, const cvn_value *slot, const cvn_value *table)
{
    if (!slot == !table)
        return true;
    graph_fail(g, CVN_EINVAL, "slots and the table of their pages come together; %s is missing",
               slot ? "the table" : "slot");
    return false;
}

cvn_value *cvn_cache_update(cvn_graph *g, cvn_value *cache, cvn_value *update, cvn_value *start,
                            cvn_value *slot, cvn_value *table)
{
    if (!attention_slots_whole(g, slot, table))
        return g->poison;
    cvn_value *operand[] = {cache, update, start, slot, table};
    return graph_add(g, OP_CACHE_UPDATE, NULL, slot ? 5 : 3, operand, NULL);
}

int attention_check_table(const Op *op, int i, cvn_err *err)
{
    const cvn_type *t = op_in(op, i);
    if (t->dtype != CVN_I32 || t->rank != 2)
        return infer_fail(op, err, "the table of pages must be i32 [slots, n]");
    return CVN_OK;
}

int infer_cache_update(const Op *op, cvn_type *type, cvn_err *err)
{
    const cvn_type *cache = op_in(op, 0), *update = op_in(op, 1);
    bool pages = op->n_operands == 5;
    if (op->n_operands == 4)
        return infer_fail(op, err, "slots and the table of their pages come together");
    if (pages)
        TRY(attention_check_table(op, 4, err));
    if (cache->rank != 4 || update->rank != 4 || cache->dtype != update->dtype ||
        cache->dtype == CVN_I4)
        return infer_fail(op, err, "cache and update must be of one dtype and rank 4");
    if ((!pages && cache->dim[0] != update->dim[0]) || cache->dim[1] != update->dim[2] ||
        cache->dim[3] != update->dim[3])
        return infer_fail(op, err,
                          "cache is [batch, kv_heads, context, head_dim], or [pages, kv_heads, "
                          "page, head_dim], and update "
                          "[batch, seq, kv_heads, head_dim]");
    if (update->dim[1] > cache->dim[2] * (pages ? op_in(op, 4)->dim[1] : 1))
        return infer_fail(op, err, "the update is longer than the cache");
    TRY(attention_check_rows(op, 2, update->dim[0], "start", err));
    if (pages)
        TRY(attention_check_rows(op, 3, update->dim[0], "slot", err));
    type[0] = *cache;
    return CVN_OK;
}

/* A cache_update as a scatter: of the cache [rows or pages, heads, positions, …], indices [batch, seq, heads, 3] name the first three.
   Each head is written by itself: for windows over several heads libtpu lays out caches of 8 bits anew, and back, and of heads
   that are a dimension of batches it makes a loop. */
static const cvn_gather_dims by_place = {.n_window = 1,
                                         .window = {3},
                                         .n_collapsed = 3,
                                         .collapsed = {0, 1, 2},
                                         .n_index_map = 3,
                                         .index_map = {0, 1, 2},
                                         .index_vector_dim = 3};

cvn_value *attention_slot_there(cvn_graph *g, cvn_value *slot, int64_t slots)
{
    cvn_value *first = cvn_compare_values(g, CVN_GE, slot, like(g, slot, 0));
    return cvn_and(g, first, cvn_compare_values(g, CVN_LT, slot, like(g, slot, (double)slots)));
}

/* The page of a position [batch, seq], as the table says: -1 where position or slot is not there. */
static cvn_value *page_of(cvn_graph *g, const Op *op, cvn_value *position)
{
    const cvn_type *table = op_in(op, 4);
    const cvn_type rows = position->type;
    int64_t page = op_in(op, 0)->dim[2], n = table->dim[1];
    cvn_value *there = attention_slot_there(g, op->operand[3], table->dim[0]);
    there =
        spread(g, there, &(cvn_type){CVN_BOOL, 2, {rows.dim[0], rows.dim[1]}}, (const int[]){0});
    there = cvn_and(g, there, cvn_compare_values(g, CVN_GE, position, like(g, position, 0)));
    cvn_value *end = like(g, position, (double)(n * page));
    there = cvn_and(g, there, cvn_compare_values(g, CVN_LT, position, end));
    cvn_value *at = spread(g, op->operand[3], &rows, (const int[]){0});
    at = cvn_multiply(g, at, like(g, at, (double)n));
    at = cvn_add(g, at, cvn_divide(g, position, like(g, position, (double)page)));
    const int64_t all = table->dim[0] * n;
    cvn_value *pages = cvn_reshape(g, op->operand[4], 1, &all);
    at = cvn_take_rows(g, pages, where(g, there, at));
    return cvn_select(g, there, at, like(g, at, -1));
}

/* Where update[b, s, h] goes: head h of position start[b] + s of row b, or of slot[b]. */
static cvn_value *places(cvn_graph *g, const Op *op)
{
    const cvn_type *update = op_in(op, 1);
    const int64_t batch = update->dim[0], seq = update->dim[1], heads = update->dim[2];
    const cvn_type rows = CVN_TYPE(CVN_I32, batch, seq);
    const cvn_type each = CVN_TYPE(CVN_I32, batch, seq, heads, 1);
    cvn_value *start = spread(g, op->operand[2], &rows, (const int[]){0});
    cvn_value *position = cvn_add(g, count_along(g, &rows, 1), start);
    cvn_value *place[3] = {count_along(g, &rows, 0), NULL, position};
    place[1] = count_along(g, &each, 2);
    if (op->n_operands == 5) {
        place[0] = page_of(g, op, position);
        place[2] = cvn_remainder(g, position, like(g, position, (double)op_in(op, 0)->dim[2]));
    }
    for (int i = 0; i < 3; i += 2)
        place[i] = spread(g, place[i], &each, (const int[]){0, 1});
    return cvn_concatenate(g, 3, place, 3);
}

/* One factor is the rows of the update, the slots of the table and the pages of the cache, of which there may be fewer or more: a
   row's slot and its pages lie in the shard that the row lies in, and are made relative to it. */
void factors_cache_update(const Op *op, Rule *rule)
{
    const cvn_type *cache = op_in(op, 0), *update = op_in(op, 1);
    bool by_slots = op->n_operands == 5, one = by_slots && op_in(op, 4)->dim[0] == 1;
    int batch = rule_add_local(rule, update->dim[0], one ? FACTOR_WHOLE : FACTOR_PASS,
                               by_slots ? LOCAL_INDEX : LOCAL_PLAIN);
    int slots = batch;
    if (by_slots && batch == NO_FACTOR) /* one row, of which all shards take what is theirs */
        slots = rule_add_local(rule, cache->dim[0], FACTOR_PASS, LOCAL_INDEX);
    int kv = rule_add(rule, cache->dim[1], FACTOR_PASS);
    int context = rule_add(rule, cache->dim[2], FACTOR_WHOLE);
    int seq = rule_add(rule, update->dim[1], FACTOR_WHOLE);
    int dim = rule_add(rule, cache->dim[3], FACTOR_PASS);
    const int of_cache[] = {one ? NO_FACTOR : slots, kv, context, dim};
    const int of_update[] = {batch, seq, kv, dim};
    for (int d = 0; d < 4; d++) {
        rule_put(rule, 0, d, of_cache[d]);
        rule_put(rule, 1, d, of_update[d]);
        rule_put(rule, op->n_operands, d, of_cache[d]);
    }
    for (int t = 2; t < op->n_operands && t < 4; t++)
        rule_put(rule, t, 0, batch);
    if (!by_slots)
        return;
    rule_put(rule, 4, 0, one ? NO_FACTOR : slots);
    rule_put(rule, 4, 1, rule_add(rule, op_in(op, 4)->dim[1], FACTOR_WHOLE));
}

void decompose_cache_update(cvn_graph *g, const Op *op, cvn_value **out)
{
    out[0] = cvn_scatter_assign(g, op->operand[0], places(g, op), op->operand[1], &by_place);
}

/* The gradient is that of a scatter that assigns: what was overwritten has none; the update has that of the places
   it was written to, 0 where they are outside. Places are never written twice. */
void grad_cache_update(Grad *d, const Op *op)
{
    cvn_graph *g = d->g;
    cvn_value *dy = grad_of(d, op, 0), *none = like(g, op->operand[1], 0);
    cvn_value *kept = cvn_scatter_assign(g, dy, places(g, op), none, &by_place);
    grad_give(d, op, 0, kept);
    if (grad_wants(d, op, 1) && !g->err.code)
        grad_give(d, op, 1, grad_gather_updates(g, kept->def, dy));
}
