/* Random regions: of an operation of the graph and some of what it is made of, as a body that computes the same again. */
#ifndef TESTS_RANDOM_REGION_H
#define TESTS_RANDOM_REGION_H

#include "graph/region.h"
#include "random_operand.h"

enum { RANDOM_MEMBERS = 8, RANDOM_BODY = 64 };

/* What stands in the body for values outside of it. */
typedef struct RandomBody {
    cvn_graph *g;
    const Op *member[RANDOM_MEMBERS]; /* [n_members] */
    int n_members;
    cvn_value *from[RANDOM_BODY], *to[RANDOM_BODY]; /* [n] */
    int n;
    cvn_value *operand[RANDOM_BODY]; /* [n_operands] outside */
    int n_operands;
} RandomBody;

static inline bool random_is_member(const RandomBody *b, const Op *op)
{
    for (int i = 0; i < b->n_members; i++)
        if (b->member[i] == op)
            return true;
    return false;
}

static inline bool random_may_join(const Op *op)
{
    return op->kind != OP_PARAMETER && op->kind != OP_REGION && op->n_operands < 8 &&
           op_info[op->kind].class_ != CLASS_COLLECTIVE && op->kind != OP_OPTIMIZATION_BARRIER;
}

static inline void random_collect(RandomGraph *r, RandomBody *b, const Op *op)
{
    b->member[b->n_members++] = op;
    for (int i = 0; i < op->n_operands; i++) {
        const Op *def = op->operand[i]->def;
        if (b->n_members < RANDOM_MEMBERS && !random_is_member(b, def) && random_may_join(def) &&
            random_chance(r, 60))
            random_collect(r, b, def);
    }
}

static inline cvn_value *random_inside(RandomBody *b, cvn_value *v)
{
    for (int i = 0; i < b->n; i++)
        if (b->from[i] == v)
            return b->to[i];
    char name[8] = {(char)('a' + b->n_operands / 26), (char)('a' + b->n_operands % 26)};
    b->operand[b->n_operands++] = v;
    b->from[b->n] = v;
    return b->to[b->n++] = cvn_parameter(b->g, name, v->type);
}

static inline cvn_value *random_region(RandomGraph *r, OpKind kind)
{
    (void)kind;
    cvn_value *last = r->n ? r->value[random_below(r, r->n)] : NULL;
    if (!last || !random_may_join(last->def))
        return NULL;
    RandomBody body = {.g = cvn_graph_new("body", NULL)}, *b = &body;
    random_collect(r, b, last->def);
    for (const Op *op = r->g->first; op; op = op->next) { /* in their order */
        cvn_value *in[RANDOM_BODY];
        if (!random_is_member(b, op))
            continue;
        for (int i = 0; i < op->n_operands; i++)
            in[i] = random_inside(b, op->operand[i]);
        const Op *copy = graph_add_like(b->g, op, in)->def;
        for (int i = 0; i < op->n_results; i++) {
            copy->result[i]->spec = NULL;
            b->from[b->n] = op->result[i];
            b->to[b->n++] = copy->result[i];
            if (op == last->def || (b->g->n_outputs < 4 && random_chance(r, 20)))
                cvn_output(b->g, copy->result[i]);
        }
    }
    OpAttr attr = {.body = body_copy(r->g, b->g)};
    bool legal = b->g->n_outputs <= OP_MOST_RESULTS && !body_fault(attr.body);
    cvn_graph_free(b->g);
    return legal ? graph_add(r->g, OP_REGION, &attr, b->n_operands, b->operand, NULL) : NULL;
}

#endif
