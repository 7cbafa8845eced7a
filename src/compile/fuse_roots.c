/*
 * What stands beside a root becomes part of its region, one operation after the other:
 *
 *     add(dot_general(x, w), r)              a residual, or a gradient's sum, is added as the product is written; of
 *                                            linear, too
 *     silu(linear(x, w)) * linear(x, u)      whatever is elementwise behind a linear, however small
 *     linear(rms_norm(x, 1 + w), …)          a product lays its rows out anyway, and what reduces rows, a norm of any kind, is
 *                                            done there if no other takes it
 *     transpose(dot_general(x, w))           heads in front of positions
 *     transpose(rope(convert(x)))            and turned as they are read and written
 *     reduce(multiply(p, p)), p a product    squares are summed down the columns of the sums that are there
 *     add(rms_norm_backward(x, w, dy), r)    and a rounded copy of that
 *     add(r, rms_norm(x, w))                 a norm behind a part, and whatever else stands behind it
 *     add(r, scatter(zeros, …))              rows that occur, and no others
 *     softmax_cross_entropy, and its gradient, where nothing of the loss's own gradient is computed: one exponential
 *                                            instead of two
 *
 * Any elementwise operation that reads or is read by a root alone is offered to the back end, which knows what it can do. A
 * sum of two products is the later one's, for there both are known. What is made much later, as an activation is that the
 * backward pass makes again, stays there where it would only wait beside all that the root makes.
 *
 * Of m rows of d elements a norm alone reads 4 m d bytes and writes 2 m d, and a product reads 2 m d and writes its layout,
 * 2 m d; together they are 4 m d in and 2 m d out, 6 instead of 10. For 512 rows of 2,048 that is 4 MB of a prompt's step, 0.1 ms
 * beside products of 0.9 (q, k, v) and 5 ms (gate, up) on AMX. For one row it is no bytes that count, but one step with its meeting
 * of the threads: each of them normalises the row for itself.
 */
#include "compile/fuse_impl.h"
#include "graph/region.h"

/* The root of an operation or a region, or NULL. */
static const Op *root_of(const Op *op)
{
    return op->kind == OP_REGION ? body_root(op->attr.body) : op;
}

/* The operations of a region that is to be. */
typedef struct Parts {
    Op *op[4];
    int n;
} Parts;

static void add_part(const Fuse *f, Parts *parts, Op *op)
{
    int i = parts->n++;
    int64_t position = f->position[op->result[0]->id];
    for (; i > 0 && f->position[parts->op[i - 1]->result[0]->id] > position; i--)
        parts->op[i] = parts->op[i - 1];
    parts->op[i] = op;
}

/* What a region at that place reads must be there; constants can be brought. */
static bool has_operands(const Fuse *f, const Op *region, const Op *place)
{
    int64_t position = f->position[place->result[0]->id];
    for (int i = 0; i < region->n_operands; i++)
        if (f->position[region->operand[i]->id] >= position &&
            region->operand[i]->def->kind != OP_CONSTANT)
            return false;
    return true;
}

static void bring_constants(Fuse *f, const Op *region, Op *place)
{
    int64_t position = f->position[place->result[0]->id];
    for (int i = 0; i < region->n_operands; i++) {
        Op *op = region->operand[i]->def;
        if (op->kind != OP_CONSTANT || f->position[op->result[0]->id] < position)
            continue;
        graph_remove(f->g, op);
        graph_put_before(f->g, op, place);
        f->position[op->result[0]->id] = position - 1;
    }
}

static bool is_linear(const Op *root)
{
    return root->kind == OP_LINEAR || root->kind == OP_GROUPED_LINEAR;
}

/* Whether a root is computed where the other operation was: rows that are summed must be known before something is added to
   them, and a linear waits for what is added to it, unless that is another one, which is made later. */
static bool waits_for(const Op *root, const Op *other)
{
    if (root->kind == OP_SCATTER || root_of(root)->kind != OP_LINEAR || other->kind != OP_ADD)
        return root->kind == OP_SCATTER;
    const Op *more = root_of(other->operand[other->operand[0]->def == root]->def);
    return !more || more->kind != OP_LINEAR;
}

/* Whether all that an operation makes is still written by the region that it became part of. */
static bool writes_all(const Op *region, const Op *op)
{
    int n = 0;
    for (int i = 0; i < op->n_results; i++)
        for (int k = 0; k < region->n_results; k++)
            n += region->result[k] == op->result[i];
    return n == op->n_results;
}

/* Whether any program may stand behind it. */
static bool has_program(const Op *root)
{
    return root->kind == OP_DOT_GENERAL || root->kind == OP_RMS_NORM;
}

/* Whether what such a root's reader makes would wait in memory if it were made by the root, beside all that this makes: there
   is a further root between the two. */
static bool waits_in_memory(const Fuse *f, const Op *region, const Op *root, const Op *reader)
{
    const int64_t position = f->position[reader->result[0]->id];
    if (!has_program(root_of(root)) || !writes_all(region, root))
        return false;
    for (const Op *op = root->next; op && f->position[op->result[0]->id] < position; op = op->next)
        if (op_may_be_root(op) || (op->kind == OP_REGION && root_of(op)))
            return true;
    return false;
}

/* Whether one of a root's results is read before that place. */
static bool is_read_before(const Fuse *f, const Op *root, const Op *place)
{
    for (int i = 0; i < root->n_results; i++)
        for (const Reader *r = f->reader[root->result[i]->id]; r; r = r->next)
            if (f->position[r->of->id] < f->position[place->result[0]->id])
                return true;
    return false;
}

/* One region of the root and others, at the place of the root or of the last of them. NULL where it cannot be. */
static Op *merge(Fuse *f, Op *root, Op *other, Op *third)
{
    Parts parts = {.n = 0};
    add_part(f, &parts, root);
    add_part(f, &parts, other);
    if (third)
        add_part(f, &parts, third);
    Op *place = parts.op[parts.n - 1];
    if (!waits_for(root, other) || is_read_before(f, root, place))
        place = root;
    Op *region = fuse_region(f, parts.op, parts.n, NULL, false);
    if (!region || !has_operands(f, region, place) ||
        (waits_in_memory(f, region, root, other) && !third))
        return NULL;
    bring_constants(f, region, place);
    fuse_put_region(f, region, parts.op, parts.n, NULL, place);
    return region;
}

static Op *only_reader(const Fuse *f, const cvn_value *v)
{
    const Reader *r = f->reader[v->id];
    return r && !r->next ? r->of->def : NULL;
}

/* What writes more than it reads is better part of what reads it. */
static bool widens(const Op *op)
{
    return cvn_type_bytes(op_out(op, 0)) > cvn_type_bytes(op_in(op, 0));
}

/* Whether v is there where a root is: what is broadcast or widened is, if what it is made of is, for the region does that. */
static bool is_there(const Fuse *f, const Op *root, cvn_value *v)
{
    const cvn_value *of = tile_root_of(v);
    const Op *op = of->def;
    if (op->kind == OP_CONSTANT || f->position[of->id] < f->position[root->result[0]->id])
        return true;
    const bool made = op->kind == OP_BROADCAST_IN_DIM || tile_is_widened(of);
    return made && is_there(f, root, op->operand[0]);
}

/* A linear takes later what can be done where it is, with all that is behind that; here only what comes to be known after it. */
static bool is_for_later(const Fuse *f, const Op *op, const Op *reader)
{
    bool there = true;
    for (int i = 0; i < reader->n_operands; i++)
        there = there && (reader->operand[i]->def == op || is_there(f, op, reader->operand[i]));
    return is_linear(root_of(op)) && (there || reader->kind != OP_ADD);
}

/* Takes one of those that read a result; NULL: there is none. */
static Op *take_reader(Fuse *f, Op *op, bool chains)
{
    for (int i = 0; i < op->n_results; i++) {
        const cvn_value *v = op->result[i];
        for (const Reader *r = f->reader[v->id]; r; r = r->next) {
            Op *reader = r->of->def, *merged = NULL, *third = NULL;
            OpKind kind = reader->kind;
            bool squares =
                kind == OP_MULTIPLY && reader->operand[0] == v && reader->operand[1] == v;
            if (reader == op || (!chains && is_for_later(f, op, reader)))
                continue;
            if (squares)
                third = only_reader(f, reader->result[0]);
            third = third && third->kind == OP_REDUCE ? third : NULL;
            if (chains ? (kind == OP_REGION && !root_of(reader)) || tile_takes(f->backend, reader)
                       : (kind == OP_CONVERT && !widens(reader)) || kind == OP_ADD ||
                             kind == OP_TRANSPOSE || kind == OP_SOFTMAX_CROSS_ENTROPY_BACKWARD ||
                             third)
                merged = merge(f, op, reader, third);
            if (merged)
                return merged;
        }
    }
    return NULL;
}

/* Takes one of those that make an operand which nothing else reads. */
static Op *take_producer(Fuse *f, Op *op)
{
    for (int i = 0; i < op->n_operands; i++) {
        Op *from = op->operand[i]->def;
        bool squares = from->kind == OP_MULTIPLY && from->operand[0] == from->operand[1];
        const Op *root = root_of(op);
        const bool first = op == root || root->operand[0]->def->kind == OP_PARAMETER;
        const bool rows = i == 0 && first && root->kind == OP_LINEAR && root_of(from) &&
                          op_row_of(root_of(from)) > 0;
        if (f->uses[op->operand[i]->id] != 1 ||
            (op->kind == OP_REDUCE
                 ? !squares
                 : from->kind != OP_CONVERT && from->kind != OP_TRANSPOSE && !rows))
            continue;
        Op *merged = merge(f, op, from, NULL);
        if (merged)
            return merged;
    }
    return NULL;
}

/* ---- all that stands around a linear, or a reduction along rows ---- */

/* The root and others, in their order. */
typedef struct Around {
    const Fuse *f;
    const Op *root;
    int64_t row; /* elements that the root reduces, or 0 */
    bool *left;  /* [n_values] what such a root does not take */
    Op *op[FUSE_MOST];
    int n;
} Around;

static bool has_op(const Around *a, const Op *op)
{
    for (int i = 0; i < a->n; i++)
        if (a->op[i] == op)
            return true;
    return false;
}

/* Whether v is there, or made of what the operations make and of what is there: broadcast, or, along rows, elementwise. */
static bool is_known(const Around *a, cvn_value *v, int depth)
{
    Op *op = tile_root_of(v)->def;
    if (has_op(a, op) || is_there(a->f, a->root, v))
        return true;
    bool known = depth > 0 && op->n_operands > 0 &&
                 (op->kind == OP_BROADCAST_IN_DIM ||
                  (a->row && class_is_elementwise(op_info[op->kind].class_)));
    for (int i = 0; i < op->n_operands && known; i++)
        known = is_known(a, op->operand[i], depth - 1);
    return known;
}

static bool can_join(const Around *a, const Op *op)
{
    enum { DEPTH = 4 };
    const OpClass class_ = op_info[op->kind].class_;
    bool good = a->n < FUSE_MOST && !has_op(a, op) &&
                (op->kind == OP_REGION ? !a->row && !root_of(op)
                 : class_is_elementwise(class_)
                     ? true
                     : a->row && (op_row_of(op) == a->row || op->kind == OP_BROADCAST_IN_DIM));
    for (int i = 0; i < op->n_operands && good; i++)
        good = is_known(a, op->operand[i], DEPTH);
    return good;
}

static void put_around(Around *a, Op *op)
{
    const int64_t *position = a->f->position;
    int i = a->n++;
    for (; i > 0 && position[a->op[i - 1]->result[0]->id] > position[op->result[0]->id]; i--)
        a->op[i] = a->op[i - 1];
    a->op[i] = op;
}

/* Adds those that read v, or a view of it, and could be behind the root; says whether there were any. */
static bool add_readers(Around *a, const cvn_value *v)
{
    bool any = false;
    for (const Reader *r = a->f->reader[v->id]; r; r = r->next) {
        Op *reader = r->of->def;
        const bool spread = a->row && reader->kind == OP_BROADCAST_IN_DIM;
        if (tile_is_view(reader) || spread) {
            const bool more = add_readers(a, reader->result[0]);
            if (more && spread && can_join(a, reader))
                put_around(a, reader);
            any = any || more;
        } else if (can_join(a, reader)) {
            put_around(a, reader);
            any = true;
        }
    }
    return any;
}

/* How often the operations use v. */
static uint32_t uses_around(const Around *a, const cvn_value *v)
{
    uint32_t n = 0;
    for (int i = 0; i < a->n; i++)
        for (int k = 0; k < a->op[i]->n_operands; k++)
            n += tile_root_of(a->op[i]->operand[k]) == v;
    return n;
}

/* Whether it can stand behind a product instead. */
static bool is_behind_product(const Op *op)
{
    bool behind = false;
    for (int i = 0; i < op->n_operands; i++) {
        const Op *root = root_of(tile_root_of(op->operand[i])->def);
        behind = behind || (root && (has_program(root) || is_linear(root)));
    }
    return behind && !widens(op);
}

/* Adds what nothing else reads: of a linear, what is widened as large as all, which over one row a bias is; along rows, all that
   is elementwise. */
static void add_producers(Around *a, cvn_value *of, const Op *reader)
{
    cvn_value *v = tile_root_of(of);
    Op *op = v->def;
    const bool some = a->row ? !is_behind_product(op)
                             : (tile_is_widened(v) && cvn_type_elements(&v->type) ==
                                                          cvn_type_elements(op_out(reader, 0)));
    if (some && op->kind != OP_REGION && can_join(a, op) && uses_around(a, v) == a->f->uses[v->id])
        put_around(a, op);
}

/* Whether what an operation makes is for sums alone that go another way: it is made where these are (fuse_reduce.c), not written. */
static bool is_for_sums(const Around *a, const Op *op)
{
    const cvn_value *v = op->result[0];
    uint32_t n = 0;
    for (const Reader *r = a->f->reader[v->id]; r; r = r->next) {
        const Op *reader = r->of->def;
        if (has_op(a, reader) || (reader->kind != OP_REDUCE && !a->left[r->of->id]))
            return false;
        for (int i = 0; i < reader->n_operands; i++)
            n += reader->operand[i] == v;
    }
    return n == a->f->uses[v->id];
}

/* Leaves that to them. */
static void leave_to_sums(Around *a)
{
    a->left = arena_array(a->f->arena, a->f->g->n_values + (size_t)1, sizeof *a->left);
    for (int i = a->n - 1; i >= 0; i--) {
        if (a->op[i] == a->root || !is_for_sums(a, a->op[i]))
            continue;
        a->left[a->op[i]->result[0]->id] = true;
        a->n--;
        for (int k = i; k < a->n; k++)
            a->op[k] = a->op[k + 1];
    }
}

/* Whether threads have rows enough, which stay in the cache meanwhile. */
static bool has_rows(const Op *op)
{
    enum { LONGEST = 1 << 14, ROWS = 16, SMALL = 1 << 15 };
    const int64_t row = op_row_of(op), elements = cvn_type_elements(op_in(op, 0));
    return row > 1 && row <= LONGEST && (elements / row >= ROWS || elements <= SMALL);
}

/* All that can be done where the root is, however small it is: of one row it is not the bytes that count, but steps. Where they
   are too many, as many as it can take. */
static void take_around(Fuse *f, Op *root)
{
    Around a = {.f = f, .root = root, .row = op_row_of(root), .op = {root}, .n = 1};
    for (bool more = root->kind != OP_RMS_NORM; more;) {
        more = false;
        for (int i = 0; i < a.n; i++)
            for (int k = 0; k < a.op[i]->n_results; k++)
                more = add_readers(&a, a.op[i]->result[k]) || more;
    }
    const bool bare =
        root->kind == OP_REDUCE && a.n == 1; /* fuse_reduce.c makes its terms there, too */
    for (int n = 0; n != a.n && !bare;) {
        n = a.n;
        for (int i = 0; i < a.n; i++)
            for (int k = 0; k < a.op[i]->n_operands && (a.row || a.op[i] != root); k++)
                add_producers(&a, a.op[i]->operand[k], a.op[i]);
    }
    if (a.row)
        leave_to_sums(&a);
    for (bool last = a.n == 1; !last; a.n--) {
        last = a.n == 2 || a.op[a.n - 1] == root;
        Op *region = fuse_region(f, a.op, a.n, NULL, true);
        if (!region || !has_operands(f, region, root) || is_read_before(f, region, root))
            continue;
        bring_constants(f, region, root);
        fuse_put_region(f, region, a.op, a.n, NULL, root);
        return;
    }
}

void fuse_around(Fuse *f, bool rows)
{
    fuse_begin(f, true);
    Op **list = arena_array(f->arena, (size_t)f->g->n_ops + 1, sizeof *list);
    int64_t n = 0;
    for (Op *op = f->g->first; op; op = op->next)
        if (rows ? op_row_of(op) > 0 && has_rows(op) : root_of(op) && is_linear(root_of(op)))
            list[n++] = op;
    for (int64_t i = 0; i < n; i++)
        if (list[i]->result[0]->def == list[i]) /* else it is part of another one by now */
            take_around(f, list[i]);
    graph_remove_dead(f->g);
}

void fuse_roots(Fuse *f, bool chains)
{
    fuse_begin(f, chains);
    Op **list = arena_array(f->arena, (size_t)f->g->n_ops + 1, sizeof *list);
    int64_t n = 0;
    for (Op *op = f->g->first; op; op = op->next) {
        const Op *root = root_of(op);
        if (chains ? root && has_program(root)
                   : op->kind != OP_REGION && op_may_be_root(op) && kernel_find(f->backend, op))
            list[n++] = op;
    }
    for (int64_t i = 0; i < n; i++) {
        Op *op = list[i];
        if (op->result[0]->def != op)
            continue; /* it is part of another one by now */
        for (Op *more;
             (more = take_reader(f, op, chains)) || (!chains && (more = take_producer(f, op)));)
            op = more;
    }
    graph_remove_dead(f->g);
}
