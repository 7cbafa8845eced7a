/* Factor rules of the composites, of their gradients, and of quantized weights. */
#include "base/num.h"
#include "graph/linear.h"
#include "shard/factors_impl.h"

#include <ctype.h>
#include <string.h>

/*
 * A rule in letters: for each tensor, operands and then results, its dimensions, of which those with the same letter are one
 * factor. A capital is a dimension of several of what the small letter is: of two factors, that and how many there are. "*" at
 * the beginning is all dimensions that have no letter, each a factor of its own, and "1" is one without.
 *
 *     bsKd,bkcd    q [batch, seq, heads, head_dim] and k [batch, kv_heads, context, head_dim]
 */
typedef struct Notation {
    const char *tensors;
    const char *whole, *reduce; /* letters of these kinds, or NULL; others pass */
    const char *index,
        *parts;     /* letters that are LOCAL_INDEX, LOCAL_PARTS, or NULL; others are plain */
    cvn_reduce how; /* of those that are reduced */
} Notation;

static const Notation notations[OP_COUNT] = {
    /* The mean over the last dimension is a reduction inside. */
    [OP_RMS_NORM] = {"*e,e,*e", .parts = "e"},
    /* Pairs of elements turn together. */
    [OP_ROPE] = {"bshd,bs,p,bshd", .whole = "dp"},
    [OP_CACHE_UPDATE] = {"bkcd,bskd,b,bkcd", .whole = "cs"},
    /* Reductions that are not one sum: the decomposition has a maximum and a sum in a row, each a small all-reduce, and logits
       are never gathered. */
    [OP_SOFTMAX_CROSS_ENTROPY] = {"*v,*,*,*", .reduce = "v", .parts = "v"},
    [OP_KEEP_LIKELIEST] = {"bv,b,b,b,bv", .whole = "v"},
    /* As argmax, of entries that know their number in the whole vocabulary. */
    [OP_CATEGORICAL] = {"bv,b,bw,b,b", .reduce = "v", .parts = "v", .whole = "w", .how = CVN_MAX},
    /* Each row needs the largest of all of it. */
    [OP_QUANTIZE_ROWS] = {"*e,*e,*1", .whole = "e"},
    /* dx is row by row; dweight is a sum over rows. */
    [OP_RMS_NORM_BACKWARD] = {"*e,e,*e,*e,e", .reduce = "*", .parts = "e"},
    /* A target outside of a device's part of the vocabulary is not outside of the vocabulary, which the operation on a shard
       could not tell: it is decomposed. */
    [OP_SOFTMAX_CROSS_ENTROPY_BACKWARD] = {"*v,*,*,*,*,*v", .parts = "v"},
};

/* The size of the first dimension with that letter. */
static int64_t size_of(const Op *op, const char *text, char letter)
{
    for (int t = 0; t < op->n_operands + op->n_results; t++, text += strcspn(text, ",") + 1) {
        const cvn_type *type = &factor_tensor(op, t)->type;
        const char *at = memchr(text, letter, strcspn(text, ","));
        if (at)
            return type->dim[type->rank - (int)strcspn(at, ",")];
    }
    return 1;
}

static bool has(const char *letters, char letter)
{
    return letters && strchr(letters, letter);
}

static int add_letter(Rule *rule, const Notation *n, char letter, int64_t size)
{
    bool reduced = has(n->reduce, letter);
    FactorKind kind = reduced ? FACTOR_REDUCE : has(n->whole, letter) ? FACTOR_WHOLE : FACTOR_PASS;
    int f = letter == '1' ? NONE : add(rule, size, kind);
    if (f == NONE)
        return f;
    if (has(n->index, letter))
        rule->factor[f].local = LOCAL_INDEX;
    if (has(n->parts, letter))
        rule->factor[f].local = LOCAL_PARTS;
    if (reduced)
        rule->factor[f].how = n->how;
    return f;
}

static void read_notation(const Op *op, Rule *rule, const Notation *n)
{
    enum { LETTERS = 128, UNMET = -2 };
    int factor[LETTERS + CVN_MAX_RANK]; /* of letters, and of the dimensions of "*" */
    const char *text = n->tensors;
    for (int i = 0; i < LETTERS + CVN_MAX_RANK; i++)
        factor[i] = UNMET;
    for (int t = 0; t < rule->n_tensors; t++, text += strcspn(text, ",") + 1) {
        const cvn_type *type = &factor_tensor(op, t)->type;
        int star = *text == '*', first = type->rank - (int)strcspn(text, ",") + star;
        for (int d = 0; d < type->rank; d++) {
            char letter = d < first ? '*' : text[star + d - first], small = (char)tolower(letter);
            int64_t size = type->dim[d];
            if (isupper(letter)) {
                int64_t each = size_of(op, n->tensors, small);
                if (factor[(int)small] == UNMET)
                    factor[(int)small] = add_letter(rule, n, small, each);
                put(rule, t, d, factor[(int)small]);
                size /= each;
            }
            int *f = &factor[d < first ? LETTERS + d : letter];
            if (*f == UNMET)
                *f = add_letter(rule, n, letter, size);
            put(rule, t, d, *f);
        }
    }
}

void factor_by_notation(const Op *op, Rule *rule)
{
    read_notation(op, rule, &notations[op->kind]);
}

/* Queries of a later shard of seq begin later: start and length are made relative. Heads are the KV heads times the
   group of each, so a split of heads beyond the KV heads splits the groups. */
void factor_attention(const Op *op, Rule *rule)
{
    static const char *const tensors[] = {"bsKd,bkcd,bkcd,b,b,bsKd", "bsKd,bkcd,bkcd,b,b,bs,bsKd",
                                          "bsKd,bkcd,bkcd,b,b,bkc1,bkc1,bsKd"};
    const Notation n = {tensors[op->n_operands - 5], .whole = "dc", .index = "s"};
    read_notation(op, rule, &n);
}

/* dk and dv are sums over the queries, and over the heads of a group. */
void factor_attention_backward(const Op *op, Rule *rule)
{
    static const char *const tensors[] = {"bsKd,bkcd,bkcd,b,b,bsKd,bsKd,bkcd,bkcd",
                                          "bsKd,bkcd,bkcd,b,b,bsKd,bs,bsKd,bkcd,bkcd"};
    const Notation n = {tensors[op->n_operands - 6], .whole = "dc", .index = "s", .reduce = "sK"};
    read_notation(op, rule, &n);
}

void factor_argmax(const Op *op, Rule *rule)
{
    int kept = 0;
    for (int d = 0; d < op_in(op, 0)->rank; d++) {
        bool gone = d == op->attr.axis;
        int f = add_local(rule, op_in(op, 0)->dim[d], gone ? FACTOR_REDUCE : FACTOR_PASS,
                          gone ? LOCAL_PARTS : LOCAL_PLAIN);
        if (gone && f != NONE)
            rule->factor[f].how = CVN_MAX;
        put(rule, 0, d, f);
        if (!gone)
            put(rule, 1, kept++, f);
    }
}

/* ---- quantized weights ---- */

/* Rows pass. Of columns as many parts as their outermost dimension and what is of several columns, a group that has a scale or
   a block, have in common; where a row has one scale, all.

       [rows …, (p a), b …]     q [rows …, (p a), b …]     scale [rows …, (p g)]     or blocks [rows …, (p g), bytes] */
void factor_dequantize(const Op *op, Rule *rule)
{
    int result = op->n_operands, last = result - 1;
    const cvn_type *type = op_out(op, 0), *groups = op_in(op, last);
    int rows = op->attr.blocks ? groups->rank - 2 : groups->rank - 1;
    if (op->attr.axis) /* in panels, which the graph of one device has: nothing is split */
        return;
    for (int d = 0; d < rows; d++)
        put_all(rule, d, add(rule, type->dim[d], FACTOR_PASS));
    int64_t size = type->dim[rows], n = groups->dim[rows];
    bool alone = !op->attr.blocks && n == 1; /* a scale of all columns */
    int64_t parts = alone ? size : num_gcd(n, size);
    int part = add(rule, parts, FACTOR_PASS), rest = add(rule, size / parts, FACTOR_WHOLE);
    for (int t = op->attr.blocks ? result : 0; t <= result; t += result) {
        put(rule, t, rows, part);
        put(rule, t, rows, rest);
    }
    put(rule, last, rows, alone ? NONE : part);
    put(rule, last, rows, add(rule, alone ? 1 : n / parts, FACTOR_WHOLE));
    if (op->attr.blocks)
        put(rule, 0, rows + 1, add(rule, groups->dim[rows + 1], FACTOR_WHOLE));
    for (int d = rows + 1; d < type->rank; d++) {
        int f = add(rule, type->dim[d], alone ? FACTOR_PASS : FACTOR_WHOLE);
        put(rule, result, d, f);
        if (!op->attr.blocks)
            put(rule, 0, d, f);
    }
}

void factor_linear_int8(const Op *op, Rule *rule)
{
    int lead = op_in(op, 0)->rank - 1, rank = op_out(op, 0)->rank;
    for (int d = 0; d < (op->attr.axis ? lead : rank); d++) { /* weights in panels are whole */
        int f = add(rule, op_out(op, 0)->dim[d], FACTOR_PASS);
        put(rule, 4, d, f);
        for (int t = 0; t < 2; t++)
            put(rule, d < lead ? t : 2 + t, d < lead ? d : d - lead, f);
    }
    for (int d = rank - lead; d < op_in(op, 2)->rank && !op->attr.axis; d++) {
        bool exact = op_out(op, 0)->dtype == CVN_F32; /* enough, of whole numbers and a scale */
        int f = add(rule, op_in(op, 2)->dim[d], exact ? FACTOR_REDUCE : FACTOR_WHOLE);
        put(rule, 0, lead, f);
        put(rule, 2, d, f);
    }
}

/* Of rows; weights are in panels, which the graph of one device has. */
void factor_linear(const Op *op, Rule *rule)
{
    int lead = op_in(op, 0)->rank - (int)op->attr.axis, residual = linear_residual(op);
    for (int d = 0; d < lead; d++) {
        int f = add(rule, op_in(op, 0)->dim[d], FACTOR_PASS);
        for (int t = 0; t < rule->n_tensors; t++)
            if (t == 0 || t >= op->n_operands || t == residual)
                put(rule, t, d, f);
    }
    for (int d = lead; d < op_in(op, 0)->rank; d++)
        put(rule, 0, d, add(rule, op_in(op, 0)->dim[d], FACTOR_WHOLE));
}
