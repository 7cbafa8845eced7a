/*
 * From members to steps: written down one by one, then joined in pairs, then choices by a scalar are turned into places,
 * and at last values get registers, which are free again after their last reader.
 */
#include "compile/tile_program.h"

#include "base/float16.h"
#include "compile/fusion.h"

#include <string.h>

typedef struct Writer {
    const Fusion *f;
    TilePlace place[TILE_PLACES];
    TileStep step[TILE_STEPS];
    int n_places, n_steps;
    int read[FUSION_SLOTS]; /* [f->n_slots] the place that has a slot as f32, or -1 */
    bool full;              /* it did not fit */
} Writer;

/* What tiles, which hold f32, are read from and written to. */
static bool is_tile_dtype(cvn_dtype dtype)
{
    return dtype == CVN_F32 || dtype == CVN_BF16;
}

static int add_place(Writer *w, TilePlace place)
{
    if (w->n_places == TILE_PLACES) {
        w->full = true;
        return 0;
    }
    w->place[w->n_places] = place;
    return w->n_places++;
}

static int add_register(Writer *w)
{
    return add_place(w, (TilePlace){.kind = PLACE_REGISTER, .choice = -1});
}

static int add_step(Writer *w, TileStep step)
{
    if (w->n_steps == TILE_STEPS)
        w->full = true;
    else
        w->step[w->n_steps++] = step;
    return step.out;
}

/* The place of a slot that no member computes, or -1. */
static int place_input(Writer *w, int index, cvn_dtype dtype)
{
    const Slot *slot = &w->f->slot[index];
    bool half = dtype == CVN_BF16;
    TilePlace place = {.index = slot->index, .half = half, .choice = -1};
    switch (slot->kind) {
    case SLOT_OPERAND:
        place.kind = PLACE_OPERAND;
        int at = add_place(w, place);
        return half ? add_step(w, (TileStep){TILE_WIDEN, OP_CONVERT, at, -1, -1, add_register(w)})
                    : at;
    case SLOT_SPLAT:
        place.kind = PLACE_CONSTANT;
        if (half)
            place.value = bf16_to_f32(*(const uint16_t *)slot->value);
        else
            memcpy(&place.value, slot->value, sizeof place.value);
        return add_place(w, place);
    case SLOT_SPREAD:
        place.kind = PLACE_SCALAR;
        if (slot->size == 1)
            return add_place(w, place);
        return half ? -1
                    : add_step(w, (TileStep){TILE_SPREAD, OP_BROADCAST_IN_DIM, index, -1, -1,
                                             add_register(w)});
    default:
        return -1;
    }
}

/* Operand k of a member as f32, or -1. */
static int read_operand(Writer *w, const Member *member, int k)
{
    cvn_dtype dtype = member->op->operand[k]->type.dtype;
    int slot = member->in[k];
    if (!is_tile_dtype(dtype))
        return -1;
    if (w->read[slot] < 0)
        w->read[slot] = place_input(w, slot, dtype);
    return w->read[slot];
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

/* The step of member i, all but where it goes; false where there is none. TILE_COPY: it changes nothing but the dtype. */
static bool make_step(Writer *w, int i, TileStep *step)
{
    const Member *member = &w->f->member[i];
    const Op *op = member->op;
    *step = (TileStep){TILE_COPY, op->kind, -1, -1, -1, -1};
    if (op->kind == OP_SELECT) {
        const Slot *slot = &w->f->slot[member->in[0]];
        step->code = TILE_SELECT;
        step->a = read_operand(w, member, 1);
        step->b = read_operand(w, member, 2);
        step->c = slot->index;
        return slot->kind == SLOT_WHOLE && op->operand[0]->type.rank == 0 && step->a >= 0 &&
               step->b >= 0;
    }
    step->a = read_operand(w, member, 0);
    if (has_vector_form(op->kind))
        step->code = op->n_operands == 2 ? TILE_BINARY : TILE_UNARY;
    else if (op->kind != OP_CONVERT)
        return false;
    if (step->code == TILE_BINARY)
        step->b = read_operand(w, member, 1);
    return step->a >= 0 && (step->code != TILE_BINARY || step->b >= 0);
}

static bool write_member(Writer *w, int i)
{
    const Member *member = &w->f->member[i];
    const Slot *slot = &w->f->slot[member->out];
    cvn_dtype dtype = member->op->result[0]->type.dtype;
    TilePlace result = {
        .kind = PLACE_RESULT, .index = slot->index, .half = dtype == CVN_BF16, .choice = -1};
    TileStep step;
    if (!is_tile_dtype(dtype) || !make_step(w, i, &step))
        return false;
    bool is_result = slot->kind == SLOT_RESULT;
    if (dtype == CVN_F32) {
        int at = step.a;
        if (is_result)
            at = add_step(w, (step.out = add_place(w, result), step));
        else if (step.code != TILE_COPY)
            at = add_step(w, (step.out = add_register(w), step));
        w->read[member->out] = at;
        return true;
    }
    int exact = step.code == TILE_COPY ? step.a : add_step(w, (step.out = add_register(w), step));
    if (is_result)
        add_step(w, (TileStep){TILE_NARROW, OP_CONVERT, exact, -1, -1, add_place(w, result)});
    bool read = false; /* by a later one */
    for (int m = i + 1; m < w->f->n_members; m++)
        for (int k = 0; k < w->f->member[m].op->n_operands; k++)
            read = read || w->f->member[m].in[k] == member->out;
    if (read)
        w->read[member->out] =
            add_step(w, (TileStep){TILE_ROUND, OP_CONVERT, exact, -1, -1, add_register(w)});
    return true;
}

/* ---- pairs ---- */

/* How often a step reads a place. */
static int reads_of(const TileStep *step, int place)
{
    if (step->code == TILE_SPREAD)
        return 0;
    return (step->a == place) + (step->b == place) +
           (step->code != TILE_SELECT && step->c == place);
}

/* What `first`, whose result only `second` reads, on its left or right, becomes together with it. */
static bool pair(OpKind first, OpKind second, bool left, TileCode *code)
{
    static const struct {
        OpKind first, second;
        int left; /* -1: either */
        TileCode code;
    } pairs[] = {
#define PAIR(code, first, second, left, y) {OP_##first, OP_##second, left, TILE_##code},
#include "compile/vector_ops.def"
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if (pairs[i].first == first && pairs[i].second == second &&
            (pairs[i].left < 0 || pairs[i].left == left)) {
            *code = pairs[i].code;
            return true;
        }
    return false;
}

/* The step that writes a register which nothing but one operand of step `at` reads, and that may be done as late as
   that: no result is written between, which could lie over what it reads. Or -1. */
static int only_for(const Writer *w, int at, int place)
{
    int reads = 0, from = -1;
    for (int i = 0; i < w->n_steps; i++) {
        reads += reads_of(&w->step[i], place);
        if (i < at && w->step[i].out == place)
            from = i;
    }
    if (w->place[place].kind != PLACE_REGISTER || from < 0 || reads != 1 ||
        w->step[from].code != TILE_BINARY)
        return -1;
    for (int i = from + 1; i < at; i++)
        if (w->place[w->step[i].out].kind == PLACE_RESULT)
            return -1;
    return from;
}

static void join_pairs(Writer *w)
{
    for (int i = 0; i < w->n_steps; i++)
        for (int left = 1; left >= 0 && w->step[i].code == TILE_BINARY; left--) {
            TileStep *second = &w->step[i];
            int from = only_for(w, i, left ? second->a : second->b);
            TileCode code;
            if (from < 0 || !pair(w->step[from].op, second->op, left, &code))
                continue;
            *second = (TileStep){.code = code,
                                 .op = second->op,
                                 .a = w->step[from].a,
                                 .b = w->step[from].b,
                                 .c = left ? second->b : second->a,
                                 .out = second->out};
            w->n_steps--;
            memmove(&w->step[from], &w->step[from + 1],
                    (size_t)(w->n_steps - from) * sizeof *w->step);
            i--;
        }
}

/* ---- choices ---- */

/* Does a step read what result k may lie over? Another choice by the same bool does not read what is not chosen. */
static bool disturbs(const Writer *w, const TileStep *step, const TileStep *choice, int k)
{
    bool same = step->code == TILE_SELECT && step->c == choice->c;
    const int place[] = {step->a, same || step->code == TILE_SPREAD ? -1 : step->b,
                         step->code == TILE_SELECT ? -1 : step->c};
    for (int i = step->code == TILE_SPREAD; i < 3; i++)
        if (place[i] >= 0 && w->place[place[i]].kind == PLACE_OPERAND &&
            w->place[place[i]].index >= 0 && w->f->over[k] >> w->place[place[i]].index & 1)
            return true;
    return false;
}

/* Where step `at` is a choice between what was there and a new value: the new one is computed where it goes. */
static void place_choice(Writer *w, int at)
{
    const TileStep *choice = &w->step[at];
    if (choice->code != TILE_SELECT || w->place[choice->out].kind != PLACE_RESULT ||
        w->place[choice->a].kind != PLACE_REGISTER || w->place[choice->a].choice >= 0)
        return;
    int k = w->place[choice->out].index, from = at - 1;
    while (from >= 0 && w->step[from].out != choice->a) {
        if (disturbs(w, &w->step[from], choice, k))
            return;
        from--;
    }
    w->place[choice->a].choice = choice->c;
    w->place[choice->a].chosen = k;
}

/* ---- registers ---- */

static bool assign_registers(Writer *w)
{
    int until[TILE_REGISTERS]; /* the last step that reads what lies there */
    for (int r = 0; r < TILE_REGISTERS; r++)
        until[r] = -1;
    for (int i = 0; i < w->n_steps; i++) {
        TilePlace *out = &w->place[w->step[i].out];
        if (out->kind != PLACE_REGISTER)
            continue;
        int last = i + 1, r = 0;
        for (int k = i + 1; k < w->n_steps; k++)
            last = reads_of(&w->step[k], w->step[i].out) ? k : last;
        while (r < TILE_REGISTERS && until[r] > i)
            r++;
        if (r == TILE_REGISTERS)
            return false;
        out->index = r;
        until[r] = last;
    }
    return true;
}

/* ---- numbers ---- */

/* The number of a place among those that steps have, in the order of the steps; `number` has those that were met, or -1. */
static int numbered(Writer *w, int *number, TilePlace *kept, int *n, int place)
{
    if (place < 0)
        return place;
    if (number[place] < 0) {
        kept[*n] = w->place[place];
        number[place] = (*n)++;
    }
    return number[place];
}

/* Places get the numbers of their first step's a, b, c and result; those that joined pairs left over are dropped. So the
   numbers depend on the steps alone. */
static void number_places(Writer *w)
{
    TilePlace kept[TILE_PLACES];
    int number[TILE_PLACES], n = 0;
    for (int i = 0; i < TILE_PLACES; i++)
        number[i] = -1;
    for (int i = 0; i < w->n_steps; i++) {
        TileStep *step = &w->step[i];
        if (step->code != TILE_SPREAD) {
            step->a = numbered(w, number, kept, &n, step->a);
            step->b = numbered(w, number, kept, &n, step->b);
        }
        if (step->code != TILE_SPREAD && step->code != TILE_SELECT)
            step->c = numbered(w, number, kept, &n, step->c);
        step->out = numbered(w, number, kept, &n, step->out);
    }
    memcpy(w->place, kept, (size_t)n * sizeof *kept);
    w->n_places = n;
}

TileProgram *tile_program_make(Arena *arena, const Fusion *f)
{
    Writer writer = {.f = f}, *w = &writer;
    for (int i = 0; i < f->n_slots; i++)
        w->read[i] = -1;
    for (int i = 0; i < f->n_members; i++)
        if (!write_member(w, i))
            return NULL;
    if (w->full)
        return NULL;
    join_pairs(w);
    for (int i = 0; i < w->n_steps; i++)
        place_choice(w, i);
    if (!assign_registers(w))
        return NULL;
    number_places(w);
    TileProgram *program = arena_alloc(arena, sizeof *program);
    *program =
        (TileProgram){.n_places = w->n_places,
                      .n_steps = w->n_steps,
                      .place = arena_copy(arena, w->place, (size_t)w->n_places * sizeof *w->place),
                      .step = arena_copy(arena, w->step, (size_t)w->n_steps * sizeof *w->step)};
    return program;
}
