/*
 * What becomes of a tile program's steps once all are written: pairs are joined, choices by a scalar turn into places, values
 * get registers, which are free again after their last reader, and places get numbers that depend on the steps alone, so
 * that programs which do the same have one hash (cpu/kernels/fusion_whole.h finds whole loops by it).
 *
 *     r1 = multiply a, b        r0 = mul_add a, b, c
 *     r2 = add r1, c       ->   y  = exponential r0
 *     y  = exponential r2
 */
#include "compile/tile_program_impl.h"

#include <string.h>

/* Which operands the result of step `at` may lie over: those of as many bytes whose elements no later step reads. */
static uint32_t overwrites(const TileWriter *w, int at)
{
    uint32_t some = 0, never = 0;
    for (int i = 0; i < w->n_steps; i++) {
        const TileStep *step = &w->step[i];
        const bool choice = step->code == TILE_SELECT;
        const int from[] = {step->a, step->b, choice ? -1 : step->c};
        for (int k = 0; k < 3; k++) {
            const TilePlace *place = from[k] < 0 ? NULL : &w->place[from[k]];
            if (!place || place->kind == PLACE_REGISTER || place->kind == PLACE_RESULT ||
                place->kind == PLACE_CONSTANT || place->kind == PLACE_ROW || place->data ||
                place->index < 0)
                continue;
            bool now = i < at || (i == at && (step->code != TILE_CALL ||
                                              w->call[step->op].kernel->in_place >> k & 1));
            bool good = place->kind == PLACE_OPERAND && now &&
                        place->bytes == w->place[w->step[at].out].bytes;
            *(good ? &some : &never) |= 1u << place->index;
        }
        if (choice)
            never |= 1u << step->c;
    }
    return some & ~never;
}

/* ---- pairs ---- */

/* How often a step reads a place. */
static int reads_of(const TileStep *step, int place)
{
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
static int only_for(const TileWriter *w, int at, int place)
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

static void join_pairs(TileWriter *w)
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
static bool disturbs(const TileWriter *w, const TileStep *step, const TileStep *choice, int k)
{
    bool same = step->code == TILE_SELECT && step->c == choice->c;
    const int place[] = {step->a, same ? -1 : step->b, step->code == TILE_SELECT ? -1 : step->c};
    for (int i = 0; i < 3; i++)
        if (place[i] >= 0 && w->place[place[i]].kind == PLACE_OPERAND &&
            w->place[place[i]].index >= 0 && w->over[k] >> w->place[place[i]].index & 1)
            return true;
    return false;
}

/* Where step `at` is a choice between what was there and a new value: the new one is computed where it goes. */
static void place_choice(TileWriter *w, int at)
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

static bool assign_registers(TileWriter *w)
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
        /* kernels may not do it in place, and what is widened must not be over what is still to be read */
        const bool apart = w->step[i].code == TILE_CALL || w->step[i].code == TILE_WIDEN;
        const int free = apart ? i - 1 : i;
        while (r < TILE_REGISTERS && until[r] > free)
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
static int numbered(TileWriter *w, int *number, TilePlace *kept, int *n, int place)
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
static void number_places(TileWriter *w)
{
    TilePlace kept[TILE_PLACES];
    int number[TILE_PLACES], n = 0;
    for (int i = 0; i < TILE_PLACES; i++)
        number[i] = -1;
    for (int i = 0; i < w->n_steps; i++) {
        TileStep *step = &w->step[i];
        step->a = numbered(w, number, kept, &n, step->a);
        step->b = numbered(w, number, kept, &n, step->b);
        if (step->code != TILE_SELECT)
            step->c = numbered(w, number, kept, &n, step->c);
        step->out = numbered(w, number, kept, &n, step->out);
    }
    memcpy(w->place, kept, (size_t)n * sizeof *kept);
    w->n_places = n;
}

static void add_to_hash(uint64_t *hash, const void *data, size_t n)
{
    for (size_t i = 0; i < n; i++) /* FNV-1a */
        *hash = (*hash ^ ((const uint8_t *)data)[i]) * 0x100000001b3;
}

/* By names of operations, whose numbers change with ops.def. */
static uint64_t hash_of(const TileWriter *w)
{
    uint64_t hash = 0xcbf29ce484222325;
    for (int i = 0; i < w->n_places; i++) {
        bool lies = w->place[i].kind == PLACE_OPERAND || w->place[i].kind == PLACE_RESULT;
        const int place[] = {w->place[i].kind, lies ? w->place[i].bytes : 0};
        add_to_hash(&hash, place, sizeof place);
    }
    for (int i = 0; i < w->n_steps; i++) {
        const TileStep *s = &w->step[i];
        const OpKind op = s->code == TILE_CALL ? w->call[s->op].op->kind : s->op;
        const int step[] = {s->code, s->a, s->b, s->code == TILE_SELECT ? 0 : s->c, s->out};
        add_to_hash(&hash, step, sizeof step);
        add_to_hash(&hash, op_info[op].name, strlen(op_info[op].name));
    }
    return hash;
}

bool tile_settle(TileWriter *w, uint64_t *hash)
{
    for (int i = 0; i < w->n_steps; i++)
        if (w->place[w->step[i].out].kind == PLACE_RESULT && w->step[i].code != TILE_KEEP)
            w->over[w->place[w->step[i].out].index] = overwrites(w, i);
    join_pairs(w);
    for (int i = 0; i < w->n_steps; i++)
        place_choice(w, i);
    if (!assign_registers(w))
        return false;
    number_places(w);
    *hash = hash_of(w);
    return true;
}
