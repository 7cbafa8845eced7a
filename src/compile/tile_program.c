/*
 * From operations to steps, which are written down one by one: what a step reads is there, or gets a place; what it makes gets
 * a register, or the place of a result. What becomes of all of them then is said in tile_settle.c.
 */
#include "compile/tile_program_impl.h"

#include "base/float16.h"
#include "graph/region.h"
#include "graph/strides.h"

#include <string.h>

/* ---- what is read ---- */

bool tile_is_view(const Op *op)
{
    size_t offset;
    return op_is_view(op, &offset) && offset == 0 &&
           cvn_type_bytes(&op->result[0]->type) == cvn_type_bytes(&op->operand[0]->type);
}

cvn_value *tile_root_of(cvn_value *v)
{
    while (tile_is_view(v->def))
        v = v->def->operand[0];
    return v;
}

bool tile_is_splat(const cvn_value *v)
{
    return v->def->kind == OP_CONSTANT && v->def->attr.literal.splat;
}

bool tile_is_spread(const cvn_value *v, int64_t *inner)
{
    const Op *op = v->def;
    if (op->kind != OP_BROADCAST_IN_DIM)
        return false;
    const cvn_type *from = &op->operand[0]->type, *to = &v->type;
    *inner = cvn_type_elements(to);
    if (cvn_type_elements(from) == 1)
        return true;
    int first = (int)op->attr.dims.v[0], last = first + from->rank - 1;
    for (int i = 0; i < from->rank; i++)
        if (op->attr.dims.v[i] != first + i || from->dim[i] != to->dim[first + i])
            return false;
    *inner = type_span(to, last + 1, to->rank);
    return true;
}

bool tile_is_widened(const cvn_value *v)
{
    const Op *op = v->def;
    return op->kind == OP_CONVERT && v->type.dtype == CVN_F32 && op_in(op, 0)->dtype == CVN_BF16;
}

/* What tiles, which hold f32, are read from and written to. */
static bool is_tile_dtype(cvn_dtype dtype)
{
    return dtype == CVN_F32 || dtype == CVN_BF16;
}

static bool has_vector_form(OpKind kind)
{
    switch (kind) {
#define UNARY(kind, y) case OP_##kind:
#define BINARY(kind, y) case OP_##kind:
#include "compile/vector_ops.def"
        return true;
    default:
        return false;
    }
}

/* Whether vectors of f32 do it. */
static bool has_step(const Op *op)
{
    const bool choice = op->kind == OP_SELECT;
    bool has =
        choice ? op_in(op, 0)->rank == 0 : op->kind == OP_CONVERT || has_vector_form(op->kind);
    for (int i = choice; i < op->n_operands; i++)
        has = has && is_tile_dtype(op_in(op, i)->dtype);
    return has && is_tile_dtype(op_out(op, 0)->dtype);
}

/* Registers have what kernels read and write but bf16. */
static bool has_call(const Op *op)
{
    bool has = op->n_operands >= 1 && op->n_operands <= 3;
    for (int i = 0; i <= op->n_operands && has; i++) {
        const cvn_type *type = i < op->n_operands ? op_in(op, i) : op_out(op, 0);
        const int bits = cvn_dtype_bits(type->dtype);
        has = bits >= 8 && bits <= 32 && type->dtype != CVN_BF16 &&
              (type->rank == 0 || cvn_type_elements(type) == cvn_type_elements(op_out(op, 0)));
    }
    return has;
}

static bool has_form(const KernelSet *backend, const Op *op)
{
    if (!class_is_elementwise(op_info[op->kind].class_) || op->n_results != 1 ||
        !(has_step(op) || has_call(op)))
        return false;
    const Kernel *kernel = kernel_find(backend, op);
    return kernel && kernel->elementwise;
}

bool tile_takes(const KernelSet *backend, const Op *op)
{
    return op->n_results == 1 && cvn_type_elements(op_out(op, 0)) >= TILE_LEAST &&
           has_form(backend, op);
}

static int add_place(TileWriter *w, TilePlace place)
{
    if (w->n_places == TILE_PLACES) {
        w->full = true;
        return 0;
    }
    place.choice = -1;
    w->place[w->n_places] = place;
    return w->n_places++;
}

static int add_register(TileWriter *w)
{
    return add_place(w, (TilePlace){.kind = PLACE_REGISTER});
}

static int add_step(TileWriter *w, TileStep step)
{
    if (w->n_steps == TILE_STEPS)
        w->full = true;
    else
        w->step[w->n_steps++] = step;
    return step.out;
}

/* The number of an operand, which is added if it is not there; where v is no parameter, there is none. */
static int operand_of(TileWriter *w, cvn_value *v)
{
    for (int i = 0; i < w->n_operands; i++)
        if (w->operand[i] == v)
            return i;
    if (w->n_operands == TILE_OPERANDS || v->def->kind != OP_PARAMETER) {
        w->full = true;
        return 0;
    }
    w->operand[w->n_operands] = v;
    return w->n_operands++;
}

static int element_bytes(const cvn_value *v)
{
    return cvn_dtype_bits(v->type.dtype) / 8;
}

static int widen(TileWriter *w, int at)
{
    return add_step(w, (TileStep){TILE_WIDEN, OP_CONVERT, at, -1, -1, add_register(w)});
}

/* By rows: whether an operation of the program computes it. */
static bool is_made(const cvn_value *v)
{
    return class_is_elementwise(op_info[v->def->kind].class_) || v->def->kind == OP_RMS_NORM ||
           v->def->kind == OP_REDUCE;
}

static int read_value(TileWriter *w, cvn_value *v);
static void write_of_rows(TileWriter *w, const Op *op);

/* The place that has what no operation of the program computes. */
static int place_input(TileWriter *w, cvn_value *v)
{
    const bool tile = is_tile_dtype(v->type.dtype);
    bool half = v->type.dtype == CVN_BF16;
    TilePlace place = {.kind = PLACE_CONSTANT, .bytes = element_bytes(v), .size = 1};
    const bool whole = v->type.rank == 0 && w->elements > 1;
    if (!whole && tile_is_splat(v)) {
        place.data = v->def->attr.literal.data;
        place.inner = w->elements;
        if (half)
            place.value = bf16_to_f32(*(const uint16_t *)place.data);
        else if (tile)
            memcpy(&place.value, place.data, sizeof place.value);
        if (tile)
            return add_place(w, place);
    } else if (!whole && tile_is_spread(v, &place.inner)) {
        cvn_value *from = tile_root_of(v->def->operand[0]);
        if (w->rows.n && is_made(from)) { /* a value for each row, or for each column */
            w->full = w->full || place.inner != (w->rows.has_one[from->id] ? w->rows.n : 1);
            return read_value(w, from);
        }
        if (tile_is_widened(from)) {
            from = tile_root_of(from->def->operand[0]);
            place.bytes = element_bytes(from);
            half = true;
        }
        place.size = cvn_type_elements(&from->type);
        place.index = operand_of(w, from);
        place.kind = PLACE_SCALAR;
        if (place.size == 1 && tile)
            return add_place(w, place);
    } else if (w->rows.n &&
               cvn_type_elements(&v->type) != w->elements) { /* a value of each column */
        w->full = w->full || cvn_type_elements(&v->type) != w->rows.n;
        place.inner = 1;
        place.size = w->rows.n;
        place.index = operand_of(w, v);
    } else {
        place.kind = whole ? PLACE_WHOLE : PLACE_OPERAND;
        place.index = operand_of(w, v->def->result[v->result]);
        int at = add_place(w, place);
        return half ? widen(w, at) : at;
    }
    place.kind = PLACE_SPREAD;
    int at = add_place(w, place);
    at = add_step(w, (TileStep){TILE_SPREAD, OP_BROADCAST_IN_DIM, at, -1, -1, add_register(w)});
    return half ? widen(w, at) : at;
}

static int read_value(TileWriter *w, cvn_value *v)
{
    if (w->read[v->id] < 0 && w->rows.n && is_made(v))
        write_of_rows(w, v->def);
    if (w->read[v->id] < 0)
        w->read[v->id] = place_input(w, v);
    return w->read[v->id];
}

/* Operand k of an operation, bf16 as f32. */
static int read_operand(TileWriter *w, const Op *op, int k)
{
    cvn_value *v = tile_root_of(op->operand[k]);
    w->full =
        w->full || (v->type.rank > 0 && !w->rows.n && cvn_type_elements(&v->type) != w->elements);
    return read_value(w, v);
}

/* ---- what is written ---- */

/* The place of a value that is a result, or -1. */
static int place_result(TileWriter *w, const cvn_value *v)
{
    const int n = w->rows.n && !w->rows.ended ? 0 : w->only ? w->only == v : w->body->n_outputs;
    for (int k = 0; k < n; k++) {
        if (!w->only && w->body->output[k].value != v)
            continue;
        w->full = w->full || k >= TILE_RESULTS;
        w->n_results++;
        return add_place(w,
                         (TilePlace){.kind = PLACE_RESULT, .index = k, .bytes = element_bytes(v)});
    }
    return -1;
}

static bool is_read(const TileWriter *w, const cvn_value *v)
{
    for (const Op *op = w->body->first; op; op = op->next)
        for (int i = 0; i < op->n_operands && !tile_is_view(op); i++)
            if (tile_root_of(op->operand[i]) == v)
                return true;
    return false;
}

/* v is what lies at a place as f32, rounded. */
static void write_half(TileWriter *w, const cvn_value *v, int exact)
{
    int result = place_result(w, v);
    if (result >= 0)
        add_step(w, (TileStep){TILE_NARROW, OP_CONVERT, exact, -1, -1, result});
    if (is_read(w, v))
        w->read[v->id] =
            add_step(w, (TileStep){TILE_ROUND, OP_CONVERT, exact, -1, -1, add_register(w)});
}

/* Elements of their own, one for each of the tile. */
static int read_tile(TileWriter *w, const Op *op, int k)
{
    int at = k < op->n_operands ? read_operand(w, op, k) : -1;
    if (at < 0 || (w->place[at].kind != PLACE_CONSTANT && w->place[at].kind != PLACE_SCALAR &&
                   w->place[at].kind != PLACE_ROW))
        return at;
    return add_step(w, (TileStep){TILE_COPY, OP_CONVERT, at, -1, -1, add_register(w)});
}

static void write_call(TileWriter *w, const Op *op)
{
    const cvn_value *v = op->result[0];
    TileStep step = {.code = TILE_CALL, .op = (OpKind)w->n_calls};
    step.a = read_tile(w, op, 0);
    step.b = read_tile(w, op, 1);
    step.c = read_tile(w, op, 2);
    step.out = place_result(w, v);
    w->call[w->n_calls++] = (TileCall){op, kernel_find(w->backend, op)};
    if (step.out < 0)
        step.out = add_register(w);
    w->read[v->id] = add_step(w, step);
}

static void write_op(TileWriter *w, const Op *op)
{
    const cvn_value *v = op->result[0];
    const bool choice = op->kind == OP_SELECT, copy = op->kind == OP_CONVERT;
    TileStep step = {TILE_COPY, op->kind, -1, -1, -1, -1};
    step.a = read_operand(w, op, choice);
    if (choice)
        step.code = TILE_SELECT;
    else if (!copy)
        step.code = op->n_operands == 2 ? TILE_BINARY : TILE_UNARY;
    if (choice || step.code == TILE_BINARY)
        step.b = read_operand(w, op, 1 + choice);
    if (choice)
        step.c = operand_of(w, tile_root_of(op->operand[0]));
    if (v->type.dtype == CVN_BF16) {
        if (!copy)
            step.out = add_register(w);
        write_half(w, v, copy ? step.a : add_step(w, step));
        return;
    }
    step.out = place_result(w, v);
    if (step.out < 0 && !copy)
        step.out = add_register(w);
    w->read[v->id] = step.out < 0 ? step.a : add_step(w, step);
}

/* Which results of the root each value of the body is made of. */
static void find_reads(TileWriter *w, Arena *arena)
{
    w->reads = arena_array(arena, w->body->n_values + (size_t)1, sizeof *w->reads);
    w->before = arena_array(arena, w->body->n_values + (size_t)1, sizeof *w->before);
    for (const Op *op = w->root; op; op = op->prev)
        for (int i = 0; i < op->n_operands && (op == w->root || w->before[op->result[0]->id]); i++)
            w->before[op->operand[i]->id] = true;
    for (const Op *op = w->body->first; op; op = op->next)
        for (int k = 0; k < op->n_results; k++) {
            unsigned *reads = &w->reads[op->result[k]->id];
            *reads = op == w->root ? 1u << k : 0;
            for (int i = 0; i < op->n_operands && op != w->root; i++)
                *reads |= w->reads[op->operand[i]->id];
        }
}

/* Whether what an operation makes is for the epilogue of other results, or before the root. */
static bool is_of_others(const TileWriter *w, const cvn_value *v)
{
    return w->root && (w->reads[v->id] ? !(w->reads[v->id] & w->of) : w->before[v->id]);
}

/* The root's results, which are read as they are, and may be returned like that, too; products round them. */
static void write_sums(TileWriter *w)
{
    int n = 0;
    for (int i = 0; w->root && i < w->root->n_results; i++) {
        const cvn_value *v = w->root->result[i];
        if (!(w->of >> i & 1))
            continue;
        const int at = add_place(
            w,
            (TilePlace){.kind = PLACE_OPERAND, .index = TILE_SUMS - n++, .bytes = sizeof(float)});
        if (v->type.dtype == CVN_BF16) {
            write_half(w, v, at);
            continue;
        }
        const int result = place_result(w, v);
        if (result >= 0)
            add_step(w, (TileStep){TILE_COPY, OP_CONVERT, at, -1, -1, result});
        w->read[v->id] = at;
        w->full = w->full || v->type.dtype != CVN_F32;
    }
}

/* What is widened to be broadcast, which is read as it is where that is. */
static bool is_spread_only(const TileWriter *w, const cvn_value *v)
{
    for (const Op *op = w->body->first; op; op = op->next)
        for (int i = 0; i < op->n_operands && !tile_is_view(op); i++)
            if (tile_root_of(op->operand[i]) == v && op->kind != OP_BROADCAST_IN_DIM)
                return false;
    return tile_is_widened(v) && tile_root_of(v->def->operand[0])->def->kind == OP_PARAMETER;
}

/* Outputs of the body that the program makes. */
static int results_of(const TileWriter *w)
{
    int n = 0;
    for (int i = 0; i < w->body->n_outputs; i++)
        n += !is_of_others(w, w->body->output[i].value);
    return w->only ? 1 : n;
}

/* ---- by rows ---- */

/* Parts begin with nothing but what is there once a row. */
static void begin_part(TileWriter *w)
{
    for (uint32_t i = 0; i < w->body->n_values; i++)
        w->read[i] = w->rows.has_one[i] ? w->read[i] : -1;
}

static int add_row(TileWriter *w, int reduce, double eps)
{
    return add_place(w, (TilePlace){.kind = PLACE_ROW, .index = reduce, .value = (float)eps});
}

/* What operand 0 is over a row, made by a part. */
static void write_sum(TileWriter *w, const Op *op)
{
    const cvn_value *v = op->result[0];
    const bool norm = op->kind == OP_RMS_NORM;
    begin_part(w);
    w->full = w->full || op_row_of(op) != w->rows.n ||
              cvn_type_elements(op_in(op, 0)) != w->elements ||
              !is_tile_dtype(op_in(op, 0)->dtype) || !is_tile_dtype(v->type.dtype);
    TileStep step = {TILE_SUM, op->kind, read_tile(w, op, 0), -1, -1, -1};
    step.out = add_row(w, norm ? -1 : (int)op->attr.reduce, norm ? op->attr.eps : 0);
    w->rows.has_one[v->id] = !norm;
    *(norm ? &w->rows.scale[v->id] : &w->read[v->id]) = add_step(w, step);
}

static bool is_once(const TileWriter *w, int place)
{
    return place < 0 || w->place[place].kind == PLACE_ROW || w->place[place].kind == PLACE_CONSTANT;
}

/* Once a row, of what is there once a row. */
static void write_once(TileWriter *w, const Op *op)
{
    const cvn_value *v = op->result[0];
    const bool two = op->n_operands == 2;
    TileStep step = {two ? TILE_BINARY : TILE_UNARY, op->kind, -1, -1, -1, -1};
    step.a = read_operand(w, op, 0);
    step.b = two ? read_operand(w, op, 1) : -1;
    w->full = w->full || !has_vector_form(op->kind) || v->type.dtype != CVN_F32 ||
              !is_once(w, step.a) || !is_once(w, step.b);
    step.out = add_row(w, 0, 0);
    w->rows.has_one[v->id] = true;
    w->read[v->id] = add_step(w, step);
}

/* x times its scale times the weight, as the norm's own kernel does it. */
static void write_norm(TileWriter *w, const Op *op)
{
    const cvn_value *v = op->result[0];
    const bool half = v->type.dtype == CVN_BF16;
    w->full = w->full || !is_tile_dtype(op_in(op, 1)->dtype);
    TileStep step = {TILE_BINARY,          OP_MULTIPLY, read_operand(w, op, 0),
                     w->rows.scale[v->id], -1,          -1};
    step.out = add_register(w);
    step.a = add_step(w, step);
    step.b = read_operand(w, op, 1);
    step.out = half ? -1 : place_result(w, v);
    step.out = step.out < 0 ? add_register(w) : step.out;
    const int made = add_step(w, step);
    if (half)
        write_half(w, v, made);
    else
        w->read[v->id] = made;
}

static void write_of_rows(TileWriter *w, const Op *op)
{
    const int64_t elements = cvn_type_elements(op_out(op, 0));
    w->full = w->full || (elements != w->elements && elements != w->rows.n);
    if (op->kind == OP_RMS_NORM)
        write_norm(w, op);
    else if (has_form(w->backend, op) && has_step(op) && op->kind != OP_SELECT)
        write_op(w, op);
    else
        w->full = true;
}

/* Whether an operation makes one value a row of others. */
static bool is_of_row(const TileWriter *w, const Op *op)
{
    bool of_row = false;
    for (int i = 0; i < op->n_operands; i++)
        of_row = of_row || w->rows.has_one[tile_root_of(op->operand[i])->id];
    return of_row && class_is_elementwise(op_info[op->kind].class_);
}

static void write_rows(TileWriter *w, Arena *arena)
{
    const cvn_graph *body = w->body;
    w->rows.has_one = arena_array(arena, body->n_values + (size_t)1, sizeof *w->rows.has_one);
    w->rows.scale = arena_array(arena, body->n_values + (size_t)1, sizeof *w->rows.scale);
    for (const Op *op = body->first; op && !w->full; op = op->next) {
        if (op_row_of(op) > 0)
            write_sum(w, op);
        else if (is_of_row(w, op))
            write_once(w, op);
        if (w->only && op == w->only->def)
            break;
    }
    begin_part(w);
    w->rows.ended = true;
    const int n = w->only ? 1 : body->n_outputs;
    for (int i = 0; i < 2 * n && !w->full; i++) { /* first those of a value a row */
        const cvn_value *v = w->only ? w->only : body->output[i % n].value;
        if (w->rows.has_one[v->id] != (i < n))
            continue;
        if (!is_made(v) || w->n_results == TILE_RESULTS ||
            (!w->rows.has_one[v->id] && cvn_type_elements(&v->type) != w->elements))
            w->full = true;
        else if (w->rows.has_one[v->id])
            add_step(w,
                     (TileStep){TILE_KEEP, OP_CONVERT, w->read[v->id], -1, -1, place_result(w, v)});
        else if (w->read[v->id] < 0)
            write_of_rows(w, v->def);
    }
}

/* All of it once for each element. */
static bool write_chain(TileWriter *w)
{
    int n = 0;
    write_sums(w);
    for (const Op *op = w->body->first; op && !w->full; op = op->next) {
        if (op->kind == OP_PARAMETER || !class_is_elementwise(op_info[op->kind].class_) ||
            is_of_others(w, op->result[0]) || is_spread_only(w, op->result[0]))
            continue;
        const int64_t elements = cvn_type_elements(op_out(op, 0));
        if (!(w->root ? has_form(w->backend, op) : tile_takes(w->backend, op)) ||
            (n > 0 && elements != w->elements) || ++n > TILE_OPS)
            return false;
        w->elements = elements;
        if (has_step(op))
            write_op(w, op);
        else
            write_call(w, op);
        if (w->only && op->result[0] == w->only)
            break;
    }
    return n > 0;
}

static TileProgram *make(TileWriter *w, Arena *arena)
{
    const cvn_graph *body = w->body;
    w->read = arena_array(arena, body->n_values + (size_t)1, sizeof *w->read);
    memset(w->read, -1, body->n_values * sizeof *w->read);
    if (w->rows.n)
        write_rows(w, arena);
    else if (!write_chain(w))
        return NULL;
    if (w->full || w->n_steps == 0 || w->n_results != results_of(w))
        return NULL;
    uint64_t hash;
    if (!tile_settle(w, &hash))
        return NULL;
    TileProgram *program = arena_alloc(arena, sizeof *program);
    *program = (TileProgram){
        .elements = w->elements,
        .row = w->rows.n,
        .n_places = w->n_places,
        .n_steps = w->n_steps,
        .n_operands = w->n_operands,
        .n_results = w->n_results,
        .n_calls = w->n_calls,
        .hash = hash,
        .place = arena_copy(arena, w->place, (size_t)w->n_places * sizeof *w->place),
        .step = arena_copy(arena, w->step, (size_t)w->n_steps * sizeof *w->step),
        .call = arena_copy(arena, w->call, (size_t)w->n_calls * sizeof *w->call),
        .operand = arena_copy(arena, w->operand, (size_t)w->n_operands * sizeof *w->operand),
        .over = arena_copy(arena, w->over, sizeof w->over),
    };
    return program;
}

TileProgram *tile_program_make(const KernelSet *backend, Arena *arena, const cvn_graph *body,
                               const cvn_value *only)
{
    TileWriter writer = {.backend = backend, .body = body, .only = only};
    return make(&writer, arena);
}

TileProgram *tile_program_epilogue(const KernelSet *backend, Arena *arena, const cvn_graph *body,
                                   const Op *root, unsigned of)
{
    TileWriter writer = {.backend = backend, .body = body, .root = root, .of = of};
    find_reads(&writer, arena);
    return make(&writer, arena);
}

TileProgram *tile_program_rows(const KernelSet *backend, Arena *arena, const cvn_graph *body,
                               const cvn_value *only)
{
    TileWriter writer = {.backend = backend, .body = body, .only = only};
    for (const Op *op = body->first; op && writer.rows.n == 0; op = op->next) {
        writer.rows.n = op_row_of(op);
        writer.elements = writer.rows.n ? cvn_type_elements(op_in(op, 0)) : 0;
    }
    return writer.rows.n > 1 ? make(&writer, arena) : NULL;
}
