/*
 * Bodies are matched by walking from the root to what reads it and to what it reads. Every operation of a body must be
 * accounted for, every output must be a result, and the back end must accept what was found (KernelSet.accepts).
 */
#include "compile/region_plan.h"

#include "compile/tile_program.h"
#include "graph/linear.h"
#include "graph/region.h"

#include <string.h>

/* A body being matched. */
typedef struct Match {
    const KernelSet *backend;
    const Op *region;
    const cvn_graph *body;
    const Op *root;
    const Op *owner; /* whose kernel runs it: the root, but of a loss with its gradient */
    Arena *arena;
    uint32_t *next_id;
    int64_t left;     /* operations that are not accounted for */
    unsigned covered; /* bit i: output i is a result */
    Op *plan;
    Fused *fused;
} Match;

/* ---- the body ---- */

static bool is_parameter(const cvn_value *v)
{
    return v->def->kind == OP_PARAMETER;
}

/* What is outside for a parameter. */
static cvn_value *outside(const Match *m, const cvn_value *v)
{
    return m->region->operand[v->id];
}

static bool is_returned(const Match *m, const cvn_value *v)
{
    for (int i = 0; i < m->body->n_outputs; i++)
        if (m->body->output[i].value == v)
            return true;
    return false;
}

static bool op_reads(const Op *op, const cvn_value *v)
{
    for (int i = 0; i < op->n_operands; i++)
        if (op->operand[i] == v)
            return true;
    return false;
}

/* How many operations read v; *reader is the last. But for `but`. */
static int readers_of(const Match *m, const cvn_value *v, const Op *but, const Op **reader)
{
    int n = 0;
    for (const Op *op = m->body->first; op; op = op->next)
        if (op != but && op_reads(op, v)) {
            *reader = op;
            n++;
        }
    return n;
}

/* The one operation that takes v, which is not returned; or NULL. */
static const Op *only_reader(const Match *m, const cvn_value *v, const Op *but)
{
    const Op *reader = NULL;
    return !is_returned(m, v) && readers_of(m, v, but, &reader) == 1 ? reader : NULL;
}

/* The other operand of a binary operation. */
static cvn_value *other_operand(const Op *op, const cvn_value *v)
{
    return op->operand[op->operand[0] == v];
}

static bool is_half(cvn_dtype dtype)
{
    return dtype == CVN_BF16 || dtype == CVN_F16;
}

static bool is_rounding(const Op *op)
{
    return op->kind == OP_CONVERT && op_in(op, 0)->dtype == CVN_F32 &&
           is_half(op_out(op, 0)->dtype);
}

static bool is_widening(const Op *op)
{
    return op->kind == OP_CONVERT && is_half(op_in(op, 0)->dtype) &&
           op_out(op, 0)->dtype == CVN_F32;
}

/* ---- the operation of the plan ---- */

static void begin_plan(Match *m, const Op *like, int n_operands, int n_results)
{
    Arena *arena = m->arena;
    m->fused = arena_alloc(arena, sizeof *m->fused);
    m->fused->body = m->body;
    m->plan = arena_alloc(arena, sizeof *m->plan);
    *m->plan = (Op){.kind = like->kind,
                    .n_operands = n_operands,
                    .n_results = n_results,
                    .operand = arena_array(arena, (size_t)n_operands + 1, sizeof(cvn_value *)),
                    .result = arena_array(arena, (size_t)n_results + 1, sizeof(cvn_value *)),
                    .attr = like->attr,
                    .fused = m->fused,
                    .file = m->region->file,
                    .line = m->region->line};
}

/* Result k of the plan's operation is v of the body: the region's, or one that nobody wants. */
static void put_result(Match *m, int k, const cvn_value *v)
{
    for (int i = 0; i < m->body->n_outputs; i++)
        if (m->body->output[i].value == v && !(m->covered >> i & 1)) {
            m->covered |= 1u << i;
            m->plan->result[k] = m->region->result[i];
            return;
        }
    cvn_value *unwanted = arena_alloc(m->arena, sizeof *unwanted);
    *unwanted = (cvn_value){.type = v->type, .id = (*m->next_id)++, .result = k, .def = m->plan};
    m->plan->result[k] = unwanted;
}

/* The root alone, on operands that are the region's: false where they are not. */
static bool begin_root(Match *m, const Op *root)
{
    for (int i = 0; i < root->n_operands; i++)
        if (!is_parameter(root->operand[i]))
            return false;
    begin_plan(m, root, root->n_operands, root->n_results);
    for (int i = 0; i < root->n_operands; i++)
        m->plan->operand[i] = outside(m, root->operand[i]);
    m->left--;
    return true;
}

static void add_operand(Match *m, cvn_value *v)
{
    Op *op = m->plan;
    cvn_value **more = arena_array(m->arena, (size_t)op->n_operands + 2, sizeof *more);
    memcpy(more, op->operand, (size_t)op->n_operands * sizeof *more);
    more[op->n_operands++] = v;
    op->operand = more;
}

static void add_result(Match *m, const cvn_value *v)
{
    Op *op = m->plan;
    cvn_value **more = arena_array(m->arena, (size_t)op->n_results + 2, sizeof *more);
    memcpy(more, op->result, (size_t)op->n_results * sizeof *more);
    op->result = more;
    put_result(m, op->n_results++, v);
}

/* ---- programs ---- */

/* The operand of a program that has the shape of the terms, by which a sum knows what it goes over; or n_operands. */
static int operand_like(const TileProgram *program, const cvn_value *v)
{
    int k = 0;
    for (; k < program->n_operands; k++) {
        cvn_type shape = program->operand[k]->type;
        shape.dtype = v->type.dtype;
        if (cvn_type_equal(&shape, &v->type))
            break;
    }
    return k;
}

/* Operand i of a program is operand number[i] of the plan. */
static void number_operands(TileProgram *program, const int *number)
{
    for (int i = 0; i < program->n_places; i++) {
        TilePlace *place = &program->place[i];
        bool operand = place->kind == PLACE_OPERAND || place->kind == PLACE_WHOLE ||
                       place->kind == PLACE_SCALAR || place->kind == PLACE_SPREAD;
        if (operand && !place->data && place->index >= 0)
            place->index = number[place->index];
        place->choice = place->choice < 0 ? -1 : number[place->choice];
    }
    for (int i = 0; i < program->n_steps; i++)
        if (program->step[i].code == TILE_SELECT)
            program->step[i].c = number[program->step[i].c];
}

/* Program `slot`; what it reads is behind the operands that there are, operand `first` of it before its others. */
static void put_program(Match *m, int slot, TileProgram *program, int first)
{
    int number[TILE_OPERANDS], base = m->plan->n_operands;
    for (int i = 0; i < program->n_operands; i++) {
        number[i] = base + (i == 0 ? first : i == first ? 0 : i);
        add_operand(m, outside(m, program->operand[i == 0 ? first : i == first ? 0 : i]));
    }
    number_operands(program, number);
    for (int i = 0; i < program->n_results; i++)
        program->over[i] <<= base;
    m->fused->program[slot] = program;
}

/* The result of the plan's operation that is output k of the body. */
static int result_of(const Match *m, int k)
{
    int i = 0;
    while (m->plan->result[i] != m->region->result[k])
        i++;
    return i;
}

/* Programs write the body's outputs, which are results now; and there is nothing in the body but root and programs. */
static void end_programs(Match *m)
{
    Fused *f = m->fused;
    f->over = arena_array(m->arena, (size_t)m->plan->n_results + 1, sizeof *f->over);
    for (int p = 0; p < FUSED_PROGRAMS; p++)
        for (int i = 0; f->program[p] && i < f->program[p]->n_places; i++) {
            TilePlace *place = &f->program[p]->place[i];
            if (place->kind == PLACE_RESULT) {
                const int result = result_of(m, place->index);
                f->over[result] = f->program[p]->over[place->index];
                place->index = result;
            }
            if (place->choice >= 0)
                place->chosen = result_of(m, place->chosen);
        }
    m->left = 0;
}

/* All outputs are results, in their order. */
static void put_outputs(Match *m)
{
    m->plan->n_results = 0;
    for (int i = 0; i < m->body->n_outputs; i++)
        add_result(m, m->body->output[i].value);
}

static bool match_chain(Match *m)
{
    TileProgram *program = tile_program_make(m->backend, m->arena, m->body, NULL);
    if (!program)
        return false;
    begin_plan(m, m->region, 0, 0);
    put_program(m, 0, program, 0);
    put_outputs(m);
    end_programs(m);
    return true;
}

/* Reductions along rows, and what is elementwise around them. */
static bool match_rows(Match *m)
{
    TileProgram *program = tile_program_rows(m->backend, m->arena, m->body, NULL);
    if (!program)
        return false;
    m->owner = NULL;
    begin_plan(m, m->region, 0, 0);
    put_program(m, 0, program, 0);
    put_outputs(m);
    end_programs(m);
    return true;
}

/* Of sums elementwise operations: what a product does with them before they are written. */
static bool match_epilogue(Match *m)
{
    const Op *root = m->root;
    const cvn_dtype dtype = op_out(root, 0)->dtype;
    if (cvn_type_elements(op_in(root, 0)) == 0 || root->attr.lhs_batch.n > 0 ||
        (dtype != CVN_F32 && dtype != CVN_BF16) || !begin_root(m, root))
        return false;
    TileProgram *program = tile_program_epilogue(m->backend, m->arena, m->body, root, 1);
    if (!program || program->n_calls > 0)
        return false;
    put_program(m, 0, program, 0);
    put_outputs(m);
    end_programs(m);
    return true;
}

/* ---- products ---- */

/* The reader of v that squares it for a sum down the columns, over the free dimensions of lhs: those that the result begins
   with. *sum is that. */
static const Op *column_squares(const Match *m, const Op *root, const Op **sum)
{
    const cvn_value *v = root->result[0];
    int n_rows = op_in(root, 0)->rank - root->attr.lhs_contract.n;
    for (const Op *op = m->body->first; op; op = op->next) {
        if (op->kind != OP_MULTIPLY || op->operand[0] != v || op->operand[1] != v)
            continue;
        const Op *reduce = only_reader(m, op->result[0], NULL);
        unsigned dims = 0;
        if (!reduce || reduce->kind != OP_REDUCE || reduce->attr.reduce != CVN_SUM ||
            v->type.dtype != CVN_F32 || root->attr.lhs_batch.n > 0)
            continue;
        for (int i = 0; i < reduce->attr.dims.n; i++)
            dims |= 1u << reduce->attr.dims.v[i];
        if (dims != (1u << n_rows) - 1)
            continue;
        *sum = reduce;
        return op;
    }
    return NULL;
}

static bool takes_transpose(const Op *root, const Op *transpose)
{
    int last = root->result[0]->type.rank - 1;
    return root->attr.lhs_batch.n == 0 && transpose->attr.dims.v[last] == last &&
           op_in(root, 1)->rank > root->attr.rhs_contract.n;
}

static bool match_product(Match *m)
{
    const Op *root = m->root, *sum = NULL;
    if (cvn_type_elements(op_in(root, 0)) == 0 || !begin_root(m, root))
        return false; /* a sum of nothing is written by itself */
    const cvn_value *v = root->result[0];
    const Op *squares = column_squares(m, root, &sum);
    if (squares)
        m->left -= 2;
    for (const Op *op; (op = only_reader(m, v, v == root->result[0] ? squares : NULL));) {
        const bool turns = op->kind == OP_TRANSPOSE && !squares && m->fused->dims.n == 0 &&
                           takes_transpose(root, op);
        if (turns)
            m->fused->dims = op->attr.dims;
        else if (v != root->result[0] || !is_rounding(op))
            return false;
        v = op->result[0];
        m->left--;
    }
    put_result(m, 0, v);
    if (squares)
        add_result(m, sum->result[0]);
    return true;
}

/* What a result is written as without a program: itself, or rounded; NULL: more is done with it. */
static const cvn_value *written_as(const Match *m, const cvn_value *v)
{
    const Op *op = NULL;
    const int readers = readers_of(m, v, NULL, &op);
    if (readers == 0)
        return v;
    const bool rounded = readers == 1 && is_rounding(op) && !is_returned(m, v);
    return rounded && readers_of(m, op->result[0], NULL, &op) == 0 ? op->result[0] : NULL;
}

static bool same_shape(const cvn_value *a, const cvn_value *b)
{
    cvn_type type = a->type;
    type.dtype = b->type.dtype;
    return cvn_type_equal(&type, &b->type);
}

static TileProgram *epilogue_of(const Match *m, unsigned of)
{
    TileProgram *program = tile_program_epilogue(m->backend, m->arena, m->body, m->root, of);
    return program && program->n_calls == 0 ? program : NULL;
}

/* The outputs that a program makes become results: the first of them result `at`, others behind all. */
static bool put_made(Match *m, const TileProgram *program, int at)
{
    int n = 0;
    for (int i = 0; i < program->n_places; i++) {
        const TilePlace *place = &program->place[i];
        if (place->kind != PLACE_RESULT)
            continue;
        const cvn_value *v = m->body->output[place->index].value;
        if (!same_shape(v, m->root->result[at]))
            return false;
        if (n++ == 0)
            put_result(m, at, v);
        else
            add_result(m, v);
    }
    return n > 0;
}

/* Every result of a linear by itself. */
static bool match_apart(Match *m)
{
    for (int i = 0; i < m->root->n_results; i++) {
        const cvn_value *v = written_as(m, m->root->result[i]);
        TileProgram *program = v ? NULL : epilogue_of(m, 1u << i);
        if (v)
            put_result(m, i, v);
        else if (!program || !put_made(m, program, i))
            return false;
        else
            put_program(m, i, program, 0);
    }
    end_programs(m);
    return true;
}

/* All results at once, which are of one shape. */
static bool match_together(Match *m)
{
    const Op *root = m->root;
    TileProgram *program = epilogue_of(m, (1u << root->n_results) - 1);
    bool good = program && root->n_results > 1;
    for (int i = 1; i < root->n_results && good; i++)
        good = same_shape(root->result[i], root->result[0]);
    for (int i = 0; i < m->body->n_outputs && good; i++)
        good = same_shape(m->body->output[i].value, root->result[0]);
    if (!good)
        return false;
    put_program(m, 0, program, 0);
    put_outputs(m);
    end_programs(m);
    m->fused->together = true;
    return true;
}

/* The root on the region's operands, but that its rows may be made of those of one that is like them. */
static bool begin_linear(Match *m)
{
    const Op *root = m->root;
    cvn_value *made = root->operand[0];
    m->covered = 0;
    if (is_parameter(made))
        return begin_root(m, root);
    TileProgram *rows = tile_program_rows(m->backend, m->arena, m->body, made);
    const int like = rows ? operand_like(rows, made) : 0;
    if (!rows || root->kind != OP_LINEAR || like == rows->n_operands ||
        rows->row != linear_weight(root, 0).k)
        return false;
    begin_plan(m, root, root->n_operands, root->n_results);
    m->plan->operand[0] = outside(m, rows->operand[like]);
    for (int i = 1; i < root->n_operands; i++) {
        if (!is_parameter(root->operand[i]))
            return false;
        m->plan->operand[i] = outside(m, root->operand[i]);
    }
    int number[TILE_OPERANDS];
    for (int i = 0; i < rows->n_operands; i++) {
        number[i] = i == like ? 0 : m->plan->n_operands;
        if (i != like)
            add_operand(m, outside(m, rows->operand[i]));
    }
    number_operands(rows, number);
    m->fused->rows = rows;
    m->fused->rows_dtype = made->type.dtype;
    return true;
}

/* A linear: what reduces its rows, as a norm does, before it, and elementwise operations behind each of its results, or behind all of them. */
static bool match_linear(Match *m)
{
    return begin_linear(m) && (match_apart(m) || (begin_linear(m) && match_together(m)));
}

/* ---- others ---- */

/* [batch, seq, heads, head_dim] to [batch, heads, seq, head_dim], or back. */
static bool is_swap(const Op *op)
{
    const int64_t *p = op->attr.dims.v;
    return op->kind == OP_TRANSPOSE && op->attr.dims.n == 4 && p[0] == 0 && p[1] == 2 &&
           p[2] == 1 && p[3] == 3;
}

/* A rope reads and writes any float dtype, computing in f32, and either order of its dimensions. */
static bool match_rope(Match *m)
{
    const Op *root = m->root;
    const cvn_value *x = root->operand[0], *y = root->result[0];
    begin_plan(m, root, root->n_operands, 1);
    m->left--;
    for (; !is_parameter(x); x = x->def->operand[0], m->left--) {
        const Op *op = x->def;
        bool swaps = is_swap(op) && !(m->fused->transposed & 1);
        if (!swaps && !is_widening(op))
            return false;
        m->fused->transposed |= swaps;
    }
    for (const Op *op; (op = only_reader(m, y, NULL)); y = op->result[0], m->left--) {
        bool swaps = is_swap(op) && !(m->fused->transposed & 2);
        if (!swaps && !is_rounding(op))
            return false;
        m->fused->transposed |= swaps ? 2u : 0u;
    }
    m->plan->operand[0] = outside(m, x);
    for (int i = 1; i < root->n_operands; i++) {
        if (!is_parameter(root->operand[i]))
            return false;
        m->plan->operand[i] = outside(m, root->operand[i]);
    }
    put_result(m, 0, y);
    return true;
}

static bool is_square(const cvn_value *v, const cvn_value *x)
{
    const Op *op = v->def;
    return op->kind == OP_MULTIPLY && op->operand[0] == x && op->operand[1] == x;
}

/* A sum of squares, or of what a program makes. */
static bool match_reduce(Match *m)
{
    const Op *root = m->root, *terms = root->operand[0]->def;
    const cvn_value *v = root->operand[0], *x = terms->n_operands > 0 ? terms->operand[0] : NULL;
    begin_plan(m, root, 0, 1);
    m->left--;
    put_result(m, 0, root->result[0]);
    if (x && is_square(v, x) && is_parameter(x) && root->attr.reduce == CVN_SUM &&
        v->type.dtype == CVN_F32) {
        add_operand(m, outside(m, x));
        m->left--;
        return true;
    }
    TileProgram *program = tile_program_make(m->backend, m->arena, m->body, v);
    int first = program ? operand_like(program, v) : 0;
    if (!program || program->n_calls > 0 || v->type.dtype != CVN_F32 || root != m->body->last ||
        first == program->n_operands)
        return false;
    put_program(m, 0, program, first);
    m->left = 0;
    return true;
}

/* The gradient of a norm, with what is added to it, and a copy of it in bf16. */
static bool match_norm(Match *m)
{
    const Op *root = m->root;
    const cvn_value *v = root->result[0];
    if (!begin_root(m, root))
        return false;
    const Op *op = only_reader(m, v, NULL);
    if (op && op->kind == OP_ADD && op->operand[0] != op->operand[1] &&
        is_parameter(other_operand(op, v)) && op_out(op, 0)->dtype == CVN_F32) {
        add_operand(m, outside(m, other_operand(op, v)));
        v = op->result[0];
        m->left--;
    }
    put_result(m, 0, v);
    put_result(m, 1, root->result[1]);
    if (readers_of(m, v, NULL, &op) == 1 && is_rounding(op) && op_out(op, 0)->dtype == CVN_BF16) {
        add_result(m, op->result[0]);
        m->left--;
    }
    return true;
}

/* The gradient of a loss, with the loss, where nothing of the loss's own gradient is computed: then one exponential is taken
   instead of two. Its logits may be widened, and what it makes rounded. */
static bool match_loss(Match *m)
{
    const Op *loss = m->root->kind == OP_SOFTMAX_CROSS_ENTROPY ? m->root : NULL, *root = NULL;
    for (const Op *op = m->body->first; op; op = op->next)
        root = op->kind == OP_SOFTMAX_CROSS_ENTROPY_BACKWARD ? op : root;
    if (!root)
        return false;
    m->owner = root;
    const cvn_value *x = root->operand[0], *y = root->result[0];
    bool widened = !is_parameter(x) && is_widening(x->def) && !loss;
    begin_plan(m, root, 0, 1);
    add_operand(m, outside(m, widened ? x->def->operand[0] : x));
    m->left -= 1 + widened;
    x = widened ? x->def->operand[0] : x;
    bool good = is_parameter(x) && is_parameter(root->operand[1]) &&
                is_parameter(root->operand[3]) && is_parameter(root->operand[4]);
    for (int i = 1; i < 5 && good; i++)
        if (!loss || i != 2)
            add_operand(m, outside(m, root->operand[i]));
    const Op *op = only_reader(m, y, NULL);
    if (op && is_rounding(op)) {
        y = op->result[0];
        m->left--;
    }
    put_result(m, 0, y);
    if (!loss)
        return good && is_parameter(root->operand[2]);
    m->left--;
    add_result(m, loss->result[0]);
    add_result(m, loss->result[1]);
    return good && root->operand[2] == loss->result[1] && loss->operand[0] == root->operand[0] &&
           loss->operand[1] == root->operand[1];
}

static bool is_zero(const cvn_value *v)
{
    const Op *op = v->def;
    return op->kind == OP_CONSTANT && op->attr.literal.splat && v->type.dtype == CVN_F32 &&
           element_get(CVN_F32, op->attr.literal.data, 0) == 0;
}

/* Rows that are added where they occur: to zeros, and that to a residual. What the squares of both are together may follow
   from those of the residual, an operand: fuse_rows.c. */
static bool match_scatter(Match *m)
{
    const Op *root = m->root, *sum = only_reader(m, root->result[0], NULL);
    if (!is_zero(root->operand[0]) || root->attr.combine != COMBINE_ADD ||
        !is_parameter(root->operand[1]) || !is_parameter(root->operand[2]) || !sum ||
        sum->kind != OP_ADD || !is_parameter(other_operand(sum, root->result[0])))
        return false;
    const cvn_value *x = other_operand(sum, root->result[0]), *y = sum->result[0];
    begin_plan(m, root, 0, 1);
    add_operand(m, outside(m, x));
    add_operand(m, outside(m, root->operand[1]));
    add_operand(m, outside(m, root->operand[2]));
    put_result(m, 0, y);
    m->left -= 3;
    const Op *norm = m->body->last;
    if (m->left == 0 || norm->kind != OP_MAXIMUM || !is_zero(norm->operand[1]))
        return true;
    const Op *more = norm->operand[0]->def;
    if (more->kind != OP_ADD || !is_parameter(more->operand[0]))
        return false;
    const Op *all = more->operand[1]->def;
    if (all->kind != OP_REDUCE || all->attr.reduce != CVN_SUM)
        return false;
    const Op *growth = all->operand[0]->def;
    if (growth->kind != OP_SUBTRACT || !is_square(growth->operand[0], y) ||
        !is_square(growth->operand[1], x))
        return false;
    add_operand(m, outside(m, more->operand[0]));
    add_result(m, norm->result[0]);
    m->left -= 7;
    return true;
}

/* ---- all ---- */

typedef bool MatchFn(Match *m);

static bool matches(Match *m, MatchFn *match)
{
    m->left = m->body->n_ops - m->body->n_parameters;
    m->covered = 0;
    m->owner = m->root;
    m->plan = NULL;
    return match(m) && m->left == 0 && m->covered == (1u << m->body->n_outputs) - 1;
}

Op *region_plan(const KernelSet *backend, const Op *region, Arena *arena, uint32_t *next_id)
{
    static MatchFn *const match[OP_COUNT] = {
        [OP_DOT_GENERAL] = match_product,
        [OP_LINEAR] = match_linear,
        [OP_GROUPED_LINEAR] = match_linear,
        [OP_ROPE] = match_rope,
        [OP_REDUCE] = match_reduce,
        [OP_RMS_NORM] = match_rows,
        [OP_RMS_NORM_BACKWARD] = match_norm,
        [OP_SOFTMAX_CROSS_ENTROPY] = match_loss,
        [OP_SOFTMAX_CROSS_ENTROPY_BACKWARD] = match_loss,
        [OP_SCATTER] = match_scatter,
    };
    Match m = {.backend = backend,
               .region = region,
               .body = region->attr.body,
               .arena = arena,
               .next_id = next_id};
    m.root = body_root(m.body);
    MatchFn *matching = m.root ? match[m.root->kind] : match_chain;
    if (!backend->accepts || !matching)
        return NULL;
    const bool found = matches(&m, matching) ||
                       (matching == match_product && matches(&m, match_epilogue)) ||
                       (m.root && op_row_of(m.root) > 0 && matches(&m, match_rows));
    if (!found)
        return NULL;
    return kernel_find(backend, m.plan) && backend->accepts(backend, m.owner, m.plan) ? m.plan
                                                                                      : NULL;
}

int region_plan_all(cvn_graph *g, const KernelSet *backend, cvn_err *err)
{
    for (Op *op = g->first, *next; op; op = next) {
        next = op->next;
        graph_resolve_op(op);
        if (op->kind != OP_REGION)
            continue;
        Op *plan = region_plan(backend, op, &g->arena, &g->n_values);
        if (plan) {
            graph_put_before(g, plan, op);
            for (int i = 0; i < plan->n_results; i++) {
                plan->result[i]->def = plan;
                plan->result[i]->result = i;
            }
        } else {
            region_dissolve(g, op);
        }
        graph_remove(g, op);
    }
    graph_resolve(g);
    return cvn_graph_check(g, err);
}
