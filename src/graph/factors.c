/* Rules that are written in the notation (factors.h), and what is asked of rules. */
#include "graph/factors.h"

#include "graph/record.h"

#include <ctype.h>
#include <string.h>

static Rule new_rule(int n_operands, int n_tensors, Arena *arena)
{
    return (Rule){.factor = arena_array(arena, FACTORS_MAX, sizeof(Factor)),
                  .n_operands = n_operands,
                  .n_tensors = n_tensors,
                  .dim = arena_array(arena, (size_t)n_tensors, sizeof(DimFactors[CVN_MAX_RANK]))};
}

/* ---- the notation ---- */

/* The dimensions of one tensor. */
typedef struct Letters {
    const char *letter; /* [n] of the last dimensions */
    int n;
    bool star, without; /* begins with * or *-@ */
} Letters;

/* Where the operands of a notation end; NULL: one tensor stands for all. */
static const char *arrow_of(const char *text)
{
    const char *arrow = strstr(text, "->");
    return arrow && arrow < text + strcspn(text, ";|") ? arrow : NULL;
}

static int commas(const char *text, const char *end)
{
    int n = 0;
    for (; text < end; text++)
        n += *text == ',';
    return n;
}

/* Of several notations the one for so many operands. */
static const char *notation_for(const char *text, int n_operands)
{
    for (;;) {
        const char *arrow = arrow_of(text);
        if (!arrow || commas(text, arrow) + 1 == n_operands)
            return text;
        text = strchr(text, '|');
        assert(text && "a notation lacks a number of operands");
        text++;
    }
}

static Letters letters_of(const char *text, int n_operands, int t)
{
    const char *arrow = arrow_of(text);
    if (arrow && t >= n_operands)
        text = arrow + 2;
    for (int skip = arrow ? t >= n_operands ? t - n_operands : t : 0; skip > 0; skip--)
        text = strchr(text, ',') + 1;
    text += strspn(text, " ");
    Letters l = {.star = *text == '*'};
    text += l.star;
    l.without = strncmp(text, "-@", 2) == 0;
    l.letter = text + 2 * l.without;
    l.n = (int)strcspn(l.letter, ", ;|");
    return l;
}

/* Whether it says this of the letter: "; whole de". */
static bool says(const char *text, const char *word, char letter)
{
    const char *end = text + strcspn(text, "|");
    size_t n = strlen(word);
    while ((text = memchr(text, ';', (size_t)(end - text)))) {
        text += 1 + strspn(text + 1, " ");
        if (strncmp(text, word, n) == 0 && text[n] == ' ' &&
            memchr(text + n + 1, letter, strcspn(text + n + 1, " ;|")))
            return true;
    }
    return false;
}

/* Whether the attribute dims, or axis where it has no such, names dimension d. */
static bool is_named(const Op *op, int d)
{
    for (const AttrInfo *row = op_info[op->kind].attrs; row->name; row++)
        if (row->offset == offsetof(OpAttr, dims))
            return ints_contain(&op->attr.dims, d);
    return op->attr.axis == d;
}

static int add_letter(const Op *op, Rule *rule, const char *text, char letter, int64_t size)
{
    bool sum = says(text, "sum", letter), max = says(text, "max", letter);
    bool by_attr = says(text, "reduce", letter);
    FactorKind kind = sum || max || by_attr         ? FACTOR_REDUCE
                      : says(text, "whole", letter) ? FACTOR_WHOLE
                      : says(text, "shift", letter) ? FACTOR_SHIFT
                                                    : FACTOR_PASS;
    int f = letter == '1' ? NO_FACTOR : rule_add(rule, size, kind);
    if (f == NO_FACTOR)
        return f;
    Factor *factor = &rule->factor[f];
    factor->local = says(text, "index", letter)   ? LOCAL_INDEX
                    : says(text, "parts", letter) ? LOCAL_PARTS
                                                  : LOCAL_PLAIN;
    factor->how = max ? CVN_MAX : by_attr ? op->attr.reduce : CVN_SUM;
    return f;
}

/* Dimension i of all tensors with a *; of those that are put together, the result's is the largest. */
static int64_t size_of_star(const Op *op, const char *text, int i)
{
    int64_t size = 0;
    for (int t = 0; t < op->n_operands + op->n_results; t++) {
        Letters l = letters_of(text, op->n_operands, t);
        const cvn_type *type = &factor_tensor(op, t)->type;
        if (l.star && !l.without && i < type->rank - l.n && type->dim[i] > size)
            size = type->dim[i];
    }
    return size;
}

/* The size of the first dimension with that letter. */
static int64_t size_of_letter(const Op *op, const char *text, char letter)
{
    for (int t = 0; t < op->n_operands + op->n_results; t++) {
        Letters l = letters_of(text, op->n_operands, t);
        const cvn_type *type = &factor_tensor(op, t)->type;
        const char *at = memchr(l.letter, letter, (size_t)l.n);
        if (at)
            return type->dim[type->rank - l.n + (at - l.letter)];
    }
    return 1;
}

/* What a rule is made of while its notation is read. */
typedef struct Reader {
    const Op *op;
    const char *text;
    Rule *rule;
    int of_letter[128], of_star[CVN_MAX_RANK]; /* factors, or UNMET */
} Reader;

enum { UNMET = -2 };

static int factor_of_letter(Reader *r, char letter, int64_t size)
{
    int *f = &r->of_letter[(int)letter];
    if (*f == UNMET)
        *f = add_letter(r->op, r->rule, r->text, letter, size);
    return *f;
}

static void read_star(Reader *r, int t, const Letters *l, int dims)
{
    for (int i = 0, d = 0; d < dims; i++) {
        bool named = (l->without || strchr(r->text, '@')) && is_named(r->op, i);
        if (l->without && named)
            continue;
        int *f = &r->of_star[i];
        if (*f == UNMET)
            *f = add_letter(r->op, r->rule, r->text, named ? '@' : '*',
                            size_of_star(r->op, r->text, i));
        rule_put(r->rule, t, d++, *f);
    }
}

static void read_notation(const Op *op, Rule *rule, const char *text)
{
    Reader r = {.op = op, .text = notation_for(text, op->n_operands), .rule = rule};
    for (int i = 0; i < 128; i++)
        r.of_letter[i] = UNMET;
    for (int i = 0; i < CVN_MAX_RANK; i++)
        r.of_star[i] = UNMET;
    for (int t = 0; t < rule->n_tensors; t++) {
        const cvn_type *type = &factor_tensor(op, t)->type;
        Letters l = letters_of(r.text, op->n_operands, t);
        int first = type->rank - l.n;
        if (l.star)
            read_star(&r, t, &l, first);
        for (int i = 0; i < l.n; i++) {
            char letter = l.letter[i], small = (char)tolower(letter);
            int64_t size = type->dim[first + i];
            if (letter != small) {
                int64_t each = size_of_letter(op, r.text, small);
                rule_put(rule, t, first + i, factor_of_letter(&r, small, each));
                size /= each;
            }
            rule_put(rule, t, first + i, factor_of_letter(&r, letter, size));
        }
    }
}

/* ---- rules ---- */

bool factor_is_transparent(OpKind kind)
{
    const char *notation = op_record[kind].notation;
    return (notation && strcmp(notation, "*") == 0) || kind == OP_RESHAPE || kind == OP_TRANSPOSE;
}

Rule factor_rule(const Op *op, Arena *arena)
{
    const OpRecord *record = &op_record[op->kind];
    Rule rule = new_rule(op->n_operands, op->n_operands + op->n_results, arena);
    if (record->factors)
        record->factors(op, &rule);
    else if (record->notation[0])
        read_notation(op, &rule, record->notation);
    return rule;
}

Rule factor_identity(const cvn_type *type, Arena *arena)
{
    Rule rule = new_rule(1, 2, arena);
    for (int d = 0; d < type->rank; d++)
        rule_put_all(&rule, d, rule_add(&rule, type->dim[d], FACTOR_PASS));
    return rule;
}

/* A copy of a list of sizes in which those that name the whole of a dimension follow its shard. */
static Ints follow(const Ints *list, const cvn_type *whole, const cvn_type *shard, Arena *arena)
{
    int64_t *v = arena_copy(arena, list->v, (size_t)list->n * sizeof *v);
    for (int i = 0; i < list->n; i++)
        if (v[i] == whole->dim[i])
            v[i] = shard->dim[i];
    return (Ints){list->n, v};
}

OpAttr factor_local_attr(const Op *op, const cvn_type *shard, Arena *arena)
{
    OpAttr attr = op->attr;
    if (op->kind == OP_SLICE)
        attr.limit = follow(&attr.limit, op_in(op, 0), shard, arena);
    if (op->kind == OP_DYNAMIC_SLICE || op->kind == OP_GATHER)
        attr.sizes = follow(&attr.sizes, op_in(op, 0), shard, arena);
    return attr;
}
