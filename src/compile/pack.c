/* Which weights come in panels, and the graph that reads them so. */
#include "compile/pack.h"

#include "base/num.h"
#include "compile/fuse_linear.h"
#include "compile/fused.h"
#include "graph/blocks.h"
#include "graph/linear.h"
#include "graph/strides.h"

#include <stdlib.h>
#include <string.h>

enum { OTHER_USE = -1 };

/* What a parameter holds, as what reads it says. */
typedef enum FormKind { FORM_FLOATS, FORM_BLOCKS, FORM_QUANTIZED, FORM_SCALES } FormKind;

typedef struct WeightForm {
    FormKind kind;
    BlockKind blocks; /* of FORM_BLOCKS */
} WeightForm;

/* A parameter, or what was moved of one. */
typedef struct Weight {
    int parameter;
    cvn_type type;     /* of its rows; of blocks, of these */
    cvn_value *panels; /* where it is packed */
    cvn_value *rows;   /* brought back from those, where something wants them; or NULL */
} Weight;

typedef struct Pack {
    cvn_graph *g;
    uint32_t n;      /* values at the start */
    Weight **weight; /* [n] by the ids of values; NULL: it is none */
    signed char *layout;
    WeightForm *form; /* [parameters] */
    bool changed;
} Pack;

static Weight *weight_of(const Pack *p, const cvn_value *v)
{
    return v->id < p->n ? p->weight[v->id] : NULL;
}

static void add_weight(Pack *p, const cvn_value *v, int parameter)
{
    Weight *w = arena_alloc(&p->g->arena, sizeof *w);
    *w = (Weight){.parameter = parameter, .type = v->type};
    p->weight[v->id] = w;
}

/* Whether a weight may be another device's in what the operation gives. */
static bool moves(const Op *op)
{
    return op->kind == OP_ALL_GATHER || op->kind == OP_ALL_TO_ALL;
}

/* The operand that a quantized weight is of an operation that reads it as it lies, the scale being behind it; or -1. */
static int scaled_operand(const Op *op)
{
    if (op->attr.axis || op->n_operands < 2 || op->attr.blocks)
        return -1;
    return op->kind == OP_DEQUANTIZE ? 0 : op->kind == OP_LINEAR_INT8 ? 2 : -1;
}

/* The first operation that reads each value goes into reader[n_values], of NULL. */
static void find_readers(const cvn_graph *g, const Op **reader)
{
    for (const Op *op = g->first; op; op = op->next)
        for (int k = 0; k < op->n_operands; k++)
            if (!reader[op->operand[k]->id])
                reader[op->operand[k]->id] = op;
}

/* What v holds, by the first that reads it. */
static WeightForm form_of(const Op **reader, const cvn_value *v)
{
    const Op *op = reader[v->id];
    for (; op && moves(op); op = reader[v->id])
        v = op->result[0];
    int k = 0, q = op ? scaled_operand(op) : -1;
    while (op && op->operand[k] != v)
        k++;
    if (op && op->kind == OP_DEQUANTIZE && op->attr.blocks)
        return (WeightForm){FORM_BLOCKS, op->attr.blocks};
    return (WeightForm){q < 0 || k < q ? FORM_FLOATS
                        : k == q       ? FORM_QUANTIZED
                                       : FORM_SCALES,
                        BLOCK_NONE};
}

static void find_weights(Pack *p)
{
    cvn_graph *g = p->g;
    p->n = g->n_values;
    p->form = arena_array(&g->arena, (size_t)g->n_parameters + 1, sizeof *p->form);
    p->weight = arena_array(&g->arena, (size_t)p->n + 1, sizeof *p->weight);
    const Op **reader = arena_array(&g->arena, (size_t)g->n_values + 1, sizeof(const Op *));
    find_readers(g, reader);
    for (int i = 0; i < g->n_parameters; i++) {
        add_weight(p, g->parameter[i], i);
        p->form[i] = form_of(reader, g->parameter[i]);
    }
    for (const Op *op = g->first; op; op = op->next)
        if (moves(op) && weight_of(p, op->operand[0]))
            add_weight(p, op->result[0], weight_of(p, op->operand[0])->parameter);
}

/* Whether a weight of floats of this type can be in panels at all, its first dimensions being rows. */
static bool is_packable(const cvn_type *type, int rows)
{
    return panel_dtype(type->dtype) && !panel_scaled(type->dtype) && rows >= 1 &&
           rows < type->rank && cvn_type_elements(type) > 0;
}

static bool is_one(const Ints *list, int64_t x)
{
    return list->n == 1 && list->v[0] == x;
}

/* Operand k is a table [vocab, embed], and the result has its rows, whole, in its last dimension. */
static bool is_look_up(const Op *op, int k, const cvn_type *table)
{
    const OpAttr *a = &op->attr;
    return k == 0 && op->kind == OP_GATHER && table->rank == 2 && a->operand_batch.n == 0 &&
           is_one(&a->collapsed, 0) && is_one(&a->index_map, 0) &&
           is_one(&a->window, op_out(op, 0)->rank - 1) &&
           a->index_vector_dim >= op_out(op, 0)->rank - 1 && a->sizes.v[1] == table->dim[1] &&
           (op_in(op, 1)->dtype == CVN_I32 || op_in(op, 1)->dtype == CVN_U32);
}

/* The dimension of panels that so many pieces of a weight lie along that lie along `axis` of its rows; -1 where they
   are not of whole panels or units. */
static int64_t panel_axis(const cvn_type *type, WeightForm form, int rows, int64_t axis,
                          int64_t pieces)
{
    int64_t n = type_span(type, 0, rows), k = type_span(type, rows, type->rank);
    bool even;
    if (axis == 0)
        return n % (pieces * PANEL_ROWS) == 0 ? 0 : -1;
    if (form.kind == FORM_BLOCKS) { /* chunks of the pieces are those of the whole */
        int64_t whole = type->dim[rows] * block_info[form.blocks].elements;
        even = whole % pieces == 0 && block_chunk(form.blocks, whole).columns ==
                                          block_chunk(form.blocks, whole / pieces).columns;
    } else {
        even = form.kind == FORM_SCALES || k % (pieces * panel_unit(type->dtype)) == 0;
    }
    return axis == rows && even ? 1 : -1;
}

/* An operation that moves a weight, as it moves the panels; false where it cannot. */
static bool move_panels(const Op *op, WeightForm form, int rows, OpAttr *attr)
{
    bool gather = op->kind == OP_ALL_GATHER;
    int64_t size = op->attr.group_size, joined = gather ? op->attr.axis : op->attr.concat_axis;
    int64_t to = panel_axis(op_out(op, 0), form, rows, joined, size);
    int64_t from = gather ? to : panel_axis(op_in(op, 0), form, rows, op->attr.axis, size);
    *attr = op->attr;
    attr->axis = from;
    attr->concat_axis = gather ? 0 : to;
    return from >= 0 && to >= 0;
}

/* Of what makes numbers with so many dimensions of rows: these, if nothing but products reads them; else OTHER_USE. */
static int use_of_numbers(const Pack *p, const Op *op, int rows)
{
    bool read = false;
    for (const Op *use = op->next; use; use = use->next)
        for (int k = 0; k < use->n_operands; k++) {
            if (use->operand[k] != op->result[0])
                continue;
            if (k != 1 || fuse_product_rows(use) != rows)
                return OTHER_USE;
            read = true;
        }
    for (int i = 0; i < p->g->n_outputs; i++)
        if (p->g->output[i].value == op->result[0])
            return OTHER_USE;
    return read && rows >= 1 ? rows : OTHER_USE;
}

/* Of what reads a quantized weight, operand q, and its scale. */
static int use_of_scaled(const Pack *p, const Op *op, int q)
{
    const cvn_type *type = op_in(op, q), *scale = op_in(op, q + 1);
    int rows = scale->rank - 1;
    int64_t groups = scale->dim[rows], k = type_span(type, rows, type->rank);
    if (cvn_type_elements(type) == 0 ||
        ((groups > 1 || type->dtype == CVN_I4) && k % (groups * panel_unit(type->dtype))))
        return OTHER_USE;
    return op->kind == OP_DEQUANTIZE ? use_of_numbers(p, op, rows) : rows;
}

/* What operand k, which is w, says of it: how many dimensions are rows; 0: nothing, it may lie anyhow. */
static int use_of(const Pack *p, const Op *op, int k, const Weight *w)
{
    WeightForm form = p->form[w->parameter];
    int q = scaled_operand(op), rows = k == 1 ? fuse_product_rows(op) : 0;
    if (form.kind == FORM_BLOCKS && op->kind == OP_DEQUANTIZE && op->attr.axis == 0)
        return use_of_numbers(p, op, op_in(op, 0)->rank - 2);
    if (q >= 0 && k >= q && form.kind == (k == q ? FORM_QUANTIZED : FORM_SCALES))
        return use_of_scaled(p, op, q);
    if (form.kind == FORM_FLOATS && rows && is_packable(&w->type, rows))
        return rows;
    bool looked_up = form.kind == FORM_FLOATS && is_look_up(op, k, &w->type);
    return moves(op) || looked_up ? 0 : OTHER_USE;
}

static void note_use(const Pack *p, const cvn_value *v, int use, signed char *seen)
{
    const Weight *w = v ? weight_of(p, v) : NULL;
    if (!w || use == 0)
        return;
    signed char *at = &seen[w->parameter];
    *at = (signed char)(*at == 0 || *at == use ? use : OTHER_USE);
}

/* A quantized weight and its scale are in panels both or not at all. Whether any is not that was. */
static bool part_with(const Pack *p, signed char *seen)
{
    bool changed = false;
    for (const Op *op = p->g->first; op; op = op->next) {
        int q = scaled_operand(op);
        const Weight *w[2] = {q >= 0 ? weight_of(p, op->operand[q]) : NULL,
                              q >= 0 ? weight_of(p, op->operand[q + 1]) : NULL};
        for (int i = 0; i < 2 && q >= 0; i++)
            if (w[i] && seen[w[i]->parameter] > 0 && p->layout[w[i]->parameter] == PACK_FREE &&
                (!w[1 - i] || seen[w[1 - i]->parameter] != seen[w[i]->parameter])) {
                seen[w[i]->parameter] = OTHER_USE;
                changed = true;
            }
    }
    return changed;
}

/* Looks at all uses. */
static void choose(Pack *p)
{
    cvn_graph *g = p->g;
    signed char *seen = arena_array(&g->arena, (size_t)g->n_parameters + 1, sizeof *seen);
    for (const Op *op = g->first; op; op = op->next)
        for (int k = 0; k < op->n_operands; k++)
            if (weight_of(p, op->operand[k]))
                note_use(p, op->operand[k], use_of(p, op, k, weight_of(p, op->operand[k])), seen);
    for (int i = 0; i < g->n_outputs; i++) {
        note_use(p, g->output[i].value, OTHER_USE, seen);
        note_use(p, g->output[i].into, OTHER_USE, seen);
    }
    for (const Op *op = g->first; op; op = op->next) {
        const Weight *w = moves(op) ? weight_of(p, op->operand[0]) : NULL;
        OpAttr attr;
        if (w && seen[w->parameter] > 0 &&
            !move_panels(op, p->form[w->parameter], seen[w->parameter], &attr))
            seen[w->parameter] = OTHER_USE;
    }
    for (int i = 0; i < g->n_parameters; i++)
        seen[i] = p->layout[i] == PACK_FREE ? seen[i] : p->layout[i];
    while (part_with(p, seen)) {
    }
    for (int i = 0; i < g->n_parameters; i++)
        if (p->layout[i] == PACK_FREE)
            p->layout[i] = seen[i] > 0 ? seen[i] : PACK_PLAIN;
}

/* ---- the graph that reads them ---- */

/* Makes the parameters what they are now. */
static void retype(Pack *p)
{
    cvn_graph *g = p->g;
    for (int i = 0; i < g->n_parameters; i++) {
        cvn_value *v = g->parameter[i];
        Weight *w = p->weight[v->id];
        int rows = p->layout[i];
        const WeightForm form = p->form[i];
        bool floats = form.kind == FORM_FLOATS, written = false;
        for (int o = 0; o < g->n_outputs; o++)
            written = written || g->output[o].into == v;
        if (rows <= 0 || (panel_scaled(w->type.dtype) && floats)) /* or nothing reads it here */
            continue;
        if (written || (floats && !is_packable(&w->type, rows))) {
            char text[TYPE_TEXT];
            graph_fail(g, CVN_EINVAL,
                       "parameter '%s' of %s cannot lie in panels of its first %d dimensions",
                       v->def->attr.name, type_text(&w->type, text, sizeof text), rows);
            return;
        }
        w->panels = v;
        int64_t n = type_span(&w->type, 0, rows);
        if (form.kind == FORM_BLOCKS)
            v->type = block_panel_type(form.blocks, n,
                                       w->type.dim[rows] * block_info[form.blocks].elements);
        else if (form.kind == FORM_SCALES)
            v->type = panel_scale_type(w->type.dtype, n, w->type.dim[rows]);
        else
            v->type = panel_type(w->type.dtype, n, type_span(&w->type, rows, w->type.rank));
        v->spec = NULL;
        p->changed = true;
    }
}

/* A quantized weight or its scales in rows, by plain operations. */
static cvn_value *plain_rows(Pack *p, const Weight *w)
{
    static const int order[][5] = {{0, 2, 1}, {0, 2, 1, 3}, {0, 2, 1, 4, 3}};
    int rows = p->layout[w->parameter];
    const int64_t none[2] = {0, 0};
    const int64_t size[2] = {type_span(&w->type, 0, rows), type_span(&w->type, rows, w->type.rank)};
    const cvn_type *panels = &w->panels->type;
    const int64_t whole[2] = {panels->dim[0] * PANEL_ROWS,
                              cvn_type_elements(panels) / panels->dim[0] / PANEL_ROWS};
    cvn_value *x = cvn_transpose(p->g, w->panels, order[panels->rank - 3]);
    x = cvn_slice(p->g, cvn_reshape(p->g, x, 2, whole), none, size, NULL);
    return cvn_reshape(p->g, x, w->type.rank, w->type.dim);
}

/* The weight in rows, made where it is wanted first. */
static cvn_value *rows_of(Pack *p, Weight *w)
{
    if (!w->rows)
        w->rows = p->form[w->parameter].kind == FORM_FLOATS
                      ? panel_dequantize(p->g, w->panels, NULL, w->type, p->layout[w->parameter])
                      : plain_rows(p, w);
    return w->rows;
}

/* Whether what reads a quantized weight and its scale reads them in panels now. */
static bool read_scaled(const Pack *p, Op *op)
{
    int q = scaled_operand(op);
    const Weight *w = q >= 0 ? weight_of(p, op->operand[q]) : NULL;
    const Weight *scale = q >= 0 ? weight_of(p, op->operand[q + 1]) : NULL;
    if (!w || !scale || !w->panels || !scale->panels)
        return false;
    op->operand[q] = w->panels;
    op->operand[q + 1] = scale->panels;
    op->attr.axis = p->layout[w->parameter];
    return true;
}

/* A look-up in panels [panels, units, 16, unit]. Row t is row t % 16 of panel t / 16: a box of it. */
static cvn_value *look_up(cvn_graph *g, const Op *op, const Weight *w)
{
    const cvn_type *y = op_out(op, 0), *panels = &w->panels->type;
    const cvn_type *grid = op_in(op, 1);
    int last = y->rank - 1;
    int64_t pair[CVN_MAX_RANK] = {0}, none[CVN_MAX_RANK] = {0};
    cvn_value *least = cvn_splat(g, *grid, 0), *at[2];
    cvn_value *most = cvn_splat(g, *grid, (double)(w->type.dim[0] - 1));
    cvn_value *row = cvn_clamp(g, least, op->operand[1], most);
    _Static_assert(PANEL_ROWS == 1 << 4, "a shift by 4 divides by them");
    at[0] = cvn_shift_right_logical(g, row, cvn_splat(g, *grid, 4));
    at[1] = cvn_and(g, row, cvn_splat(g, *grid, PANEL_ROWS - 1));
    memcpy(pair, y->dim, (size_t)last * sizeof *pair);
    pair[last] = 1;
    for (int i = 0; i < 2; i++)
        at[i] = cvn_reshape(g, at[i], y->rank, pair);
    cvn_gather_dims dims = {.n_window = 2,
                            .window = {last, last + 1},
                            .n_collapsed = 2,
                            .collapsed = {0, 2},
                            .n_index_map = 2,
                            .index_map = {0, 2},
                            .index_vector_dim = last};
    int64_t sizes[] = {1, panels->dim[1], 1, panels->dim[3]};
    cvn_value *x = cvn_gather(g, w->panels, cvn_concatenate(g, 2, at, last), &dims, sizes);
    cvn_type wide = *y; /* rows with what fills their last unit */
    wide.dim[last] = panels->dim[1] * panels->dim[3];
    x = cvn_reshape(g, x, wide.rank, wide.dim);
    return wide.dim[last] == y->dim[last] ? x : cvn_slice(g, x, none, y->dim, NULL);
}

/* Blocks whose panels cannot be moved as such: their numbers are, [rows …, columns]. */
static void move_numbers(Pack *p, const Op *op, const Weight *w, Weight *moved)
{
    int rows = p->layout[w->parameter];
    cvn_type type = w->type;
    type.dtype = CVN_F32; /* or what the blocks that are moved are brought to */
    for (const Op *reader = op->next; reader; reader = reader->next)
        if (reader->kind == OP_DEQUANTIZE && reader->operand[0] == op->result[0]) {
            type.dtype = op_out(reader, 0)->dtype;
            break;
        }
    type.rank = rows + 1;
    const BlockKind blocks = p->form[w->parameter].blocks;
    type.dim[rows] *= block_info[blocks].elements;
    const OpAttr attr = {.axis = rows, .blocks = blocks};
    cvn_value *panels = w->panels, *numbers = w->rows;
    if (!numbers)
        numbers = graph_add(p->g, OP_DEQUANTIZE, &attr, 1, &panels, &type);
    moved->rows = graph_add(p->g, op->kind, &op->attr, 1, &numbers, NULL);
}

/* Numbers of blocks in panels, or that were moved. */
static void read_blocks(Pack *p, Op *op, const Weight *w)
{
    cvn_graph *g = p->g;
    const cvn_type *type = op_out(op, 0);
    if (op->kind != OP_DEQUANTIZE) {
        graph_fail(g, CVN_EUNSUPPORTED,
                   "'%s' lies in panels, and %s would read its blocks; use another layout",
                   g->parameter[w->parameter]->def->attr.name, op_info[op->kind].name);
        return;
    }
    const OpAttr attr = {.axis = p->layout[w->parameter], .blocks = op->attr.blocks};
    cvn_value *panels = w->panels;
    cvn_value *numbers = panels ? graph_add(g, OP_DEQUANTIZE, &attr, 1, &panels, type)
                                : cvn_reshape(g, w->rows, type->rank, type->dim);
    if (numbers->type.dtype != type->dtype)
        numbers = cvn_convert(g, numbers, type->dtype);
    graph_replace(op->result[0], numbers);
}

/* Operand k, which is w, in panels. */
static void read_panels(Pack *p, Op *op, int k, Weight *w)
{
    cvn_graph *g = p->g;
    const WeightForm form = p->form[w->parameter];
    graph_insert_before(g, op);
    cvn_at(g, op->file, op->line);
    if (moves(op)) {
        Weight *moved = p->weight[op->result[0]->id];
        OpAttr attr;
        if (w->panels && move_panels(op, form, p->layout[w->parameter], &attr)) {
            moved->panels = graph_add(g, op->kind, &attr, 1, &w->panels, NULL);
            return;
        }
        if (form.kind == FORM_BLOCKS) {
            move_numbers(p, op, w, moved);
            return;
        }
        p->weight[op->result[0]->id] = NULL;
    }
    if (form.kind == FORM_BLOCKS) {
        read_blocks(p, op, w);
        return;
    }
    if (form.kind == FORM_FLOATS && is_look_up(op, k, &w->type))
        graph_replace(op->result[0], look_up(g, op, w));
    else
        op->operand[k] = rows_of(p, w);
}

static void rewrite(Pack *p)
{
    cvn_graph *g = p->g;
    for (Op *op = g->first; op && !g->err.code; op = op->next)
        for (int k = 0; k < op->n_operands && !read_scaled(p, op); k++) {
            Weight *w = weight_of(p, op->operand[k]);
            if (w && (w->panels || (p->form[w->parameter].kind == FORM_BLOCKS && w->rows)))
                read_panels(p, op, k, w);
        }
    graph_insert_before(g, NULL);
    for (int i = 0; i < g->n_outputs; i++) {
        Weight *w = weight_of(p, g->output[i].value);
        if (w && w->panels)
            g->output[i].value = rows_of(p, w);
    }
    graph_resolve(g);
    graph_remove_dead(g);
}

int graph_pack(cvn_graph *g, signed char *layout, bool *changed, cvn_err *err)
{
    const char *file = g->file;
    int line = g->line;
    Pack p = {.g = g, .layout = layout};
    find_weights(&p);
    choose(&p);
    retype(&p);
    if (p.changed && !g->err.code)
        rewrite(&p);
    cvn_at(g, file, line);
    *changed = p.changed;
    return cvn_graph_check(g, err);
}

/* ---- the plan ---- */

/* The weights of a product, panels counted through those that its threads share. Gate and up of a SwiGLU are taken
   side by side, each thread the same panels of both. */
static void describe_product(Plan *plan, const Step *step)
{
    const Op *op = step->op;
    const bool together = kernel_fused(op)->together;
    int64_t joined = 0, before = 0;
    for (int i = 0; i < linear_weights(op); i++)
        joined += linear_weight(op, i).panels;
    for (int i = 0; i < linear_weights(op); i++) {
        int64_t own = linear_weight(op, i).panels;
        int first = linear_operand(op, i), end = first + linear_each(op);
        for (int k = first; k < end; k++) {
            PlanParameter *parameter = &plan->parameter[step->in[k].parameter];
            if (step->in[k].space != SPACE_PARAMETER || parameter->panels_joined)
                continue;
            parameter->panels_joined = together ? own : joined;
            parameter->panels_before = together ? 0 : before;
        }
        before += own;
    }
}

int pack_describe(Plan *plan, const cvn_graph *g, const signed char *layout, cvn_err *err)
{
    for (int i = 0; i < plan->n_steps; i++)
        if (plan->step[i].op->kind == OP_LINEAR || plan->step[i].op->kind == OP_LINEAR_INT8)
            describe_product(plan, &plan->step[i]);
    const Op **reader = calloc((size_t)g->n_values + 1, sizeof(const Op *));
    if (!reader)
        return err_set(err, CVN_EMEM, "no memory to describe a plan of %u values", g->n_values);
    find_readers(g, reader);
    for (int i = 0; i < plan->n_parameters; i++) {
        PlanParameter *parameter = &plan->parameter[i];
        parameter->plain = g->parameter[i]->type;
        parameter->rows = layout && layout[i] > 0 ? layout[i] : 0;
        if (!parameter->rows)
            continue;
        parameter->n = type_span(&parameter->plain, 0, parameter->rows);
        parameter->k = type_span(&parameter->plain, parameter->rows, parameter->plain.rank);
        const WeightForm form = form_of(reader, g->parameter[i]);
        parameter->blocks = form.blocks;
        parameter->scales = form.kind == FORM_SCALES;
        if (parameter->blocks)
            parameter->k =
                parameter->plain.dim[parameter->rows] * block_info[parameter->blocks].elements;
        if (!parameter->panels_joined)
            parameter->panels_joined = parameter->type.dim[0];
    }
    free(reader);
    return CVN_OK;
}

void pack_share(const PlanParameter *parameter, int t, int nt, int64_t *begin, int64_t *end)
{
    int64_t own = parameter->type.dim[0], before = parameter->panels_before;
    panel_share(parameter->panels_joined, t, nt, begin, end);
    *begin = num_min(num_max(*begin - before, 0), own);
    *end = num_min(num_max(*end - before, 0), own);
}
