/*
 * einsum: a product of two tensors written with a letter per dimension, on top of dot_general.
 *
 * Each letter falls in one class by where it stands:
 *
 *     in lhs, rhs and result    batch        kept, multiplied index by index
 *     in lhs and rhs only       contracted   multiplied and summed
 *     in one operand and result free         kept
 *     in one operand only       summed       by a reduce of that operand, before the product
 *
 * dot_general lays its result out as batch letters, then the free letters of its first operand,
 * then those of its second. Batch letters are given in the result's order, so a transpose is needed
 * only when the result interleaves the three groups or orders the free letters unlike their
 * operand; and where swapping the operands gives the wanted order, they are swapped:
 *
 *     "bsd,nhd->bsnh"   x [b,s,d], w [n,h,d]: contract d            -> [b,s | n,h]     as wanted
 *     "vd,bsd->bsv"     lhs first gives [v | b,s], so swap          -> [b,s | v]
 *     "bsd,dnh->bnsh"   either order keeps s from n: [b,s | n,h], then transpose {0,2,1,3}
 */
#include "graph/graph.h"

#include <string.h>

/* One of "lhs", "rhs", "result" of an equation. */
typedef struct Term {
    int n;
    char letter[CVN_MAX_RANK + 1]; /* [n], NUL-terminated */
} Term;

typedef struct Equation {
    const char *text; /* the whole of it, for messages */
    Term lhs, rhs, out;
} Equation;

static int find(const Term *term, char letter)
{
    for (int i = 0; i < term->n; i++)
        if (term->letter[i] == letter)
            return i;
    return -1;
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* Reads letters up to the first character that is none; moves *at there. */
static bool parse_term(cvn_graph *g, const char *text, const char **at, const char *what,
                       Term *term)
{
    memset(term, 0, sizeof *term);
    for (; is_letter(**at); (*at)++) {
        if (find(term, **at) >= 0) {
            graph_fail(
                g, CVN_EINVAL,
                "einsum \"%s\": letter '%c' appears twice in the %s; diagonals are not supported",
                text, **at, what);
            return false;
        }
        if (term->n == CVN_MAX_RANK) {
            graph_fail(g, CVN_EINVAL, "einsum \"%s\": the %s has more than %d letters", text, what,
                       (int)CVN_MAX_RANK);
            return false;
        }
        term->letter[term->n++] = **at;
    }
    return true;
}

static bool parse(cvn_graph *g, const char *text, Equation *e)
{
    const char *at = text;
    e->text = text;
    if (!parse_term(g, text, &at, "left operand", &e->lhs))
        return false;
    if (*at++ != ',')
        goto malformed;
    if (!parse_term(g, text, &at, "right operand", &e->rhs))
        return false;
    if (*at++ != '-' || *at++ != '>')
        goto malformed;
    if (!parse_term(g, text, &at, "result", &e->out))
        return false;
    if (*at == '\0')
        return true;

malformed:
    graph_fail(g, CVN_EINVAL,
               "einsum \"%s\" is malformed; write letters as in \"bsd,vd->bsv\", without spaces",
               text);
    return false;
}

static bool check_rank(cvn_graph *g, const Equation *e, const Term *term, const cvn_type *type,
                       const char *what)
{
    char text[TYPE_TEXT];
    if (term->n == type->rank)
        return true;
    graph_fail(g, CVN_ESHAPE, "einsum \"%s\": the %s is %s, but has %d letters", e->text, what,
               type_text(type, text, sizeof text), term->n);
    return false;
}

/* Ranks and sizes agree with the letters, and the result's letters are known. */
static bool check(cvn_graph *g, const Equation *e, const cvn_type *lhs, const cvn_type *rhs)
{
    if (!check_rank(g, e, &e->lhs, lhs, "left operand") ||
        !check_rank(g, e, &e->rhs, rhs, "right operand"))
        return false;
    for (int i = 0; i < e->lhs.n; i++) {
        int j = find(&e->rhs, e->lhs.letter[i]);
        if (j >= 0 && lhs->dim[i] != rhs->dim[j]) {
            char a[TYPE_TEXT], b[TYPE_TEXT];
            graph_fail(g, CVN_ESHAPE,
                       "einsum \"%s\": letter '%c' is %lld in the left operand %s and %lld in the "
                       "right operand %s",
                       e->text, e->lhs.letter[i], (long long)lhs->dim[i],
                       type_text(lhs, a, sizeof a), (long long)rhs->dim[j],
                       type_text(rhs, b, sizeof b));
            return false;
        }
    }
    for (int i = 0; i < e->out.n; i++) {
        if (find(&e->lhs, e->out.letter[i]) < 0 && find(&e->rhs, e->out.letter[i]) < 0) {
            graph_fail(g, CVN_EINVAL, "einsum \"%s\": letter '%c' of the result is in no operand",
                       e->text, e->out.letter[i]);
            return false;
        }
    }
    return true;
}

/* Sums x over the letters that stand in neither `other` nor the result, and drops them from its
 * term. */
static cvn_value *sum_lonely(cvn_graph *g, cvn_value *x, Term *term, const Term *other,
                             const Term *out)
{
    int dims[CVN_MAX_RANK], n = 0;
    Term kept = {0};
    for (int i = 0; i < term->n; i++) {
        if (find(other, term->letter[i]) < 0 && find(out, term->letter[i]) < 0)
            dims[n++] = i;
        else
            kept.letter[kept.n++] = term->letter[i];
    }
    *term = kept;
    return n ? cvn_reduce_dims(g, CVN_SUM, x, n, dims) : x;
}

/* The letters of dot_general(a, b), and its dimension numbers; true when they are in the wanted
 * order. */
static bool plan_dot(const Term *a, const Term *b, const Term *out, Term *result,
                     cvn_dot_dims *dims)
{
    memset(result, 0, sizeof *result);
    memset(dims, 0, sizeof *dims);
    for (int i = 0; i < out->n; i++) {
        int ia = find(a, out->letter[i]), ib = find(b, out->letter[i]);
        if (ia >= 0 && ib >= 0) {
            dims->lhs_batch[dims->n_batch] = ia;
            dims->rhs_batch[dims->n_batch++] = ib;
            result->letter[result->n++] = out->letter[i];
        }
    }
    for (int i = 0; i < a->n; i++) {
        int ib = find(b, a->letter[i]);
        bool kept = find(out, a->letter[i]) >= 0;
        if (ib >= 0 && !kept) {
            dims->lhs_contract[dims->n_contract] = i;
            dims->rhs_contract[dims->n_contract++] = ib;
        } else if (ib < 0) {
            result->letter[result->n++] = a->letter[i];
        }
    }
    for (int i = 0; i < b->n; i++)
        if (find(a, b->letter[i]) < 0)
            result->letter[result->n++] = b->letter[i];
    return strcmp(result->letter, out->letter) == 0;
}

cvn_value *cvn_einsum_as(cvn_graph *g, const char *equation, cvn_value *lhs, cvn_value *rhs,
                         cvn_dtype dtype)
{
    Equation e;
    if (g->err.code || !parse(g, equation, &e) || !check(g, &e, &lhs->type, &rhs->type))
        return g->poison;
    Term lhs_term = e.lhs;
    lhs = sum_lonely(g, lhs, &e.lhs, &e.rhs, &e.out);
    rhs = sum_lonely(g, rhs, &e.rhs, &lhs_term, &e.out);

    Term got;
    cvn_dot_dims dims;
    if (plan_dot(&e.lhs, &e.rhs, &e.out, &got, &dims))
        return cvn_dot_general(g, lhs, rhs, &dims, dtype);
    if (plan_dot(&e.rhs, &e.lhs, &e.out, &got, &dims))
        return cvn_dot_general(g, rhs, lhs, &dims, dtype);
    plan_dot(&e.lhs, &e.rhs, &e.out, &got, &dims);
    int permutation[CVN_MAX_RANK];
    for (int i = 0; i < e.out.n; i++)
        permutation[i] = find(&got, e.out.letter[i]);
    return cvn_transpose(g, cvn_dot_general(g, lhs, rhs, &dims, dtype), permutation);
}

cvn_value *cvn_einsum(cvn_graph *g, const char *equation, cvn_value *lhs, cvn_value *rhs)
{
    return cvn_einsum_as(g, equation, lhs, rhs, lhs->type.dtype);
}
