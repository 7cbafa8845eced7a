/*
 * Tile programs (compile/tile_program.h), compiled once per instruction set.
 *
 * Every step is a loop over the vectors of a tile. What an operand is makes no difference to it: a pointer that moves on
 * by a vector, or, for one value, stays. Threads share the tiles.
 */
#include "compile/fused.h"
#include "cpu/kernels/fusion_whole.h"
#include "cpu/kernels/gemm.h"
#include "cpu/kernels/kernels.h"
#include "cpu/kernels/tile.h"
#include "cpu/kernels/vec_ops.h"

#include <assert.h>
#include <stdalign.h>

/* Where a place is: element i of the tensor at base + i advance; vectors of a tile are `step` floats apart. */
typedef struct View {
    char *base;
    int64_t advance; /* bytes; 0: what is in `Tiles` */
    int64_t step;    /* VN or 0 */
} View;

/* Registers, on the stack of a thread. A register begins where no other does in a page. */
typedef struct Tiles {
    alignas(64) float reg[TILE_REGISTERS][TILE_ELEMENTS + 16];
    alignas(64) float one[TILE_PLACES][VN]; /* of constants and scalars */
    View view[TILE_PLACES];
} Tiles;

static void narrow(uint16_t *out, const VecOperands *x)
{
    const float *a = x->a;
    int64_t i = 0;
    for (; i + VN <= x->n; i += VN, a += x->a_step)
        vf_store_bf16(out + i, vf_load(a));
    if (i < x->n)
        vf_store_bf16_part(out + i, vec_load_end(a, x->a_step, x->n - i), x->n - i);
}

/* Element `at` of x n times. */
VEC_INLINE void repeat(int bytes, const char *x, int64_t at, char *out, int64_t n)
{
    for (int64_t k = 0; k < n; k++)
        memcpy(out + k * bytes, x + at * bytes, (size_t)bytes);
}

/* Elements [begin, begin + n) of a spread: runs of one value, or of neighbours. */
static void spread(const TilePlace *place, const char *from, int64_t begin, char *out, int64_t n)
{
    const int bytes = place->bytes;
    for (int64_t i = begin, end = begin + n, length; i < end; i += length, out += length * bytes) {
        int64_t at = i / place->inner % place->size;
        length = place->inner > 1 ? place->inner - i % place->inner : place->size - at;
        length = length < end - i ? length : end - i;
        if (place->inner == 1)
            memcpy(out, from + at * bytes, (size_t)(length * bytes));
        else if (bytes == 4)
            repeat(4, from, at, out, length);
        else
            repeat(bytes, from, at, out, length);
    }
}

/* A step whose operands are found. */
static void run_code(const TileStep *step, const VecOperands *x)
{
    switch (step->code) {
    case TILE_UNARY:
    case TILE_BINARY:
        vec_tile(step->op, x);
        break;
#define PAIR(code, first, second, left, y)                                                         \
    case TILE_##code:                                                                              \
        vec_loop(TILE_##code, OP_##second, x);                                                     \
        break;
#include "compile/vector_ops.def"
    case TILE_ROUND:
        vec_loop(TILE_ROUND, OP_CONVERT, x);
        break;
    case TILE_WIDEN:
        tile_from_bf16(x->out, (const uint16_t *)(const void *)x->a, x->n);
        break;
    case TILE_NARROW:
        narrow((uint16_t *)(void *)x->out, x);
        break;
    default:
        vec_loop(TILE_COPY, OP_CONVERT, x);
        break;
    }
}

/* Element `at` of a place, and how far its vectors are apart; NULL: no place. */
static const float *place_at(const Tiles *tiles, int place, int64_t at, int64_t *step)
{
    if (place < 0)
        return NULL;
    const View *view = &tiles->view[place];
    *step = view->step;
    return (const float *)(const void *)(view->base + at * view->advance);
}

/* The kernel of an operation, on the tile at `at`. */
static void call(const TileProgram *program, const TileStep *step, const Tiles *tiles, int64_t at)
{
    const TileCall *call = &program->call[step->op];
    const int place[] = {step->out, step->a, step->b, step->c};
    void *data[4] = {NULL}; /* where element 0 would be */
    for (int i = 0; i <= call->op->n_operands; i++) {
        const View *view = &tiles->view[place[i]];
        const cvn_value *v = i == 0 ? call->op->result[0] : call->op->operand[i - 1];
        size_t back = view->advance ? 0 : (size_t)at * cvn_dtype_bytes(v->type.dtype, 1);
        data[i] = (void *)((uintptr_t)view->base - back);
    }
    call->kernel->run(&(KernelArgs){.op = call->op,
                                    .in = (const void *const *)data + 1,
                                    .out = data,
                                    .thread = (int)(at / TILE_ELEMENTS),
                                    .n_threads = (int)num_pieces(program->elements, TILE_ELEMENTS),
                                    .isa = call->kernel->isa});
}

/* Elements [at, at + n). */
static void run_step(const KernelArgs *args, const TileStep *step, const Tiles *tiles, int64_t at,
                     int64_t n)
{
    const TileProgram *program = args->op->fused->program;
    const View *out = &tiles->view[step->out];
    VecOperands x = {.out = (float *)(void *)(out->base + at * out->advance), .n = n};
    if (step->code == TILE_SPREAD) {
        spread(&program->place[step->a], tiles->view[step->a].base, at, (char *)x.out, n);
        return;
    }
    if (step->code == TILE_CALL) {
        call(program, step, tiles, at);
        return;
    }
    x.a = place_at(tiles, step->a, at, &x.a_step);
    x.b = place_at(tiles, step->b, at, &x.b_step);
    if (step->code != TILE_SELECT) {
        x.c = place_at(tiles, step->c, at, &x.c_step);
        run_code(step, &x);
        return;
    }
    bool first = *(const uint8_t *)args->in[step->c] != 0;
    x.a = first ? x.a : x.b;
    x.a_step = first ? x.a_step : x.b_step;
    if (x.a != x.out) /* else it was computed where it goes, or is there still */
        vec_loop(TILE_COPY, OP_CONVERT, &x);
}

/* Where the places are in this run. */
static void make_views(const KernelArgs *args, const TileProgram *program, Tiles *tiles)
{
    const void *const *in = args->in;
    for (int i = 0; i < program->n_places; i++) {
        const TilePlace *place = &program->place[i];
        View *view = &tiles->view[i];
        bool chosen = place->choice >= 0 && *(const uint8_t *)in[place->choice];
        float value = place->value;
        switch (place->kind) {
        case PLACE_REGISTER:
            *view = chosen ? (View){args->out[place->chosen], sizeof(float), VN}
                           : (View){(char *)tiles->reg[place->index], 0, VN};
            break;
        case PLACE_OPERAND:
        case PLACE_WHOLE:
        case PLACE_SPREAD:
            if (place->index != TILE_SUMS) /* they are elsewhere for each tile */
                *view = (View){(char *)(uintptr_t)(place->data ? place->data : in[place->index]),
                               place->bytes, VN};
            break;
        case PLACE_RESULT:
            *view = (View){args->out[place->index], place->bytes, VN};
            break;
        default:
            if (place->kind == PLACE_SCALAR)
                value = place->bytes == 2 ? bf16_to_f32(*(const uint16_t *)in[place->index])
                                          : *(const float *)in[place->index];
            vf_store(tiles->one[i], vf_splat(value));
            *view = (View){(char *)tiles->one[i], 0, 0};
            break;
        }
    }
}

/* ---- whole programs ---- */

/* Does something for each number from 0 up, with numbers that are constants: there are no loops to unroll. */
#define EACH(f, w, x)                                                                              \
    f(w, 0, x), f(w, 1, x), f(w, 2, x), f(w, 3, x), f(w, 4, x), f(w, 5, x), f(w, 6, x),            \
        f(w, 7, x), f(w, 8, x), f(w, 9, x), f(w, 10, x), f(w, 11, x), f(w, 12, x), f(w, 13, x),    \
        f(w, 14, x), f(w, 15, x)
#define EACH_PLACE(f, w, x)                                                                        \
    EACH(f, w, x), f(w, 16, x), f(w, 17, x), f(w, 18, x), f(w, 19, x), f(w, 20, x), f(w, 21, x),   \
        f(w, 22, x), f(w, 23, x), f(w, 24, x), f(w, 25, x), f(w, 26, x), f(w, 27, x)

/* One vector on its way: the value of every place. */
typedef struct Whole {
    vf value[WHOLE_PLACES];
    char *at[WHOLE_PLACES]; /* operands and results: where element 0 is */
    int64_t i;              /* the first element of the vector */
} Whole;

static_assert(WHOLE_PLACES == 28 && WHOLE_STEPS == 16, "what EACH counts");

VEC_INLINE void place_once(const WholeProgram *w, int p, Whole *x, const View *view)
{
    const char place = w->place[p];
    if (place == 's' || place == 'c')
        x->value[p] = vf_load((const float *)(const void *)view[p].base);
    else if (place && place != 'r')
        x->at[p] = view[p].base;
}

VEC_INLINE void place_read(const WholeProgram *w, int p, Whole *x)
{
    if (w->place[p] == 'O')
        x->value[p] = vf_load_bf16((const uint16_t *)(const void *)x->at[p] + x->i);
    else if (w->place[p] == 'o')
        x->value[p] = vf_load((const float *)(const void *)x->at[p] + x->i);
}

/* around: results in bf16 go past the caches. */
VEC_INLINE void place_write(const WholeProgram *w, int p, Whole *x, const bool around)
{
    if (w->place[p] == 'W' && around)
        vf_stream_bf16((uint16_t *)(void *)x->at[p] + x->i, x->value[p]);
    else if (w->place[p] == 'W')
        vf_store_bf16((uint16_t *)(void *)x->at[p] + x->i, x->value[p]);
    else if (w->place[p] == 'w')
        vf_store((float *)(void *)x->at[p] + x->i, x->value[p]);
}

VEC_INLINE void whole_step(const WholeProgram *w, int s, Whole *x)
{
    const TileStep *step = &w->step[s];
    const bool b = step->b >= 0, c = step->c >= 0;
    if (s < w->n_steps)
        x->value[step->out] = vec_apply(step->code, step->op, x->value[step->a],
                                        x->value[b ? step->b : 0], x->value[c ? step->c : 0]);
}

/* Elements [begin, end), whole vectors, of a program whose every choice is the first. */
VEC_INLINE void run_whole(const WholeProgram *w, const View *view, int64_t begin, int64_t end,
                          const bool around)
{
    Whole x = {.i = begin};
#define ONCE(w, p, x) place_once(w, p, x, view)
    EACH_PLACE(ONCE, w, &x);
#undef ONCE
#define WRITE(w, p, x) place_write(w, p, x, around)
    for (; x.i < end; x.i += VN) {
        EACH_PLACE(place_read, w, &x);
        EACH(whole_step, w, &x);
        EACH_PLACE(WRITE, w, &x);
    }
#undef WRITE
}

/* What an optimizer does: copies in bf16 are not read again before all other weights were, and need not stay in the caches. */
VEC_INLINE void run_update(const WholeProgram *w, const View *view, int64_t begin, int64_t end,
                           bool many)
{
    bool around = many;
    for (int p = 0; w->place[p]; p++)
        if (w->place[p] == 'W')
            around = around && ((uintptr_t)view[p].base + (uintptr_t)begin * 2) % 64 == 0;
    if (!around) {
        run_whole(w, view, begin, end, false);
        return;
    }
    run_whole(w, view, begin, end, true);
    vec_streamed();
}

/* The first of elements [begin, end) that is still to be done: all are, or less than a vector. */
static int64_t run_known(const KernelArgs *args, const TileProgram *program, const View *view,
                         int64_t begin, int64_t end)
{
    enum { MANY = 1 << 16 };
    const int64_t last = end - (end - begin) % VN;
    const bool many = args->op->fused->program->elements >= MANY;
    for (int i = 0; i < program->n_steps; i++) /* only where the first of two is chosen */
        if (program->step[i].code == TILE_SELECT && !*(const uint8_t *)args->in[program->step[i].c])
            return begin;
    switch (whole_find(program)) {
    case WHOLE_ADAMW:
        run_whole(&whole_programs[WHOLE_ADAMW], view, begin, last, false);
        return last;
    case WHOLE_ADAMW_ROUNDED:
        run_update(&whole_programs[WHOLE_ADAMW_ROUNDED], view, begin, last, many);
        return last;
    case WHOLE_ADAMW_HALF:
        run_update(&whole_programs[WHOLE_ADAMW_HALF], view, begin, last, many);
        return last;
    case WHOLE_SWIGLU: /* of products: exponentials are the limit, whichever way */
    case WHOLE_SWIGLU_BACKWARD:
    case WHOLE_COUNT:
        break;
    }
    return begin;
}

/* ---- terms of a sum ---- */

void ISA_NAME(fusion_prologue)(const KernelArgs *args, int64_t at, int64_t n, float *out)
{
    const TileProgram *program = args->op->fused->program;
    Tiles tiles;
    make_views(args, program, &tiles);
    for (int i = 0; i < program->n_places; i++)
        if (program->place[i].kind == PLACE_RESULT)
            tiles.view[i].base = (char *)((uintptr_t)out - (uintptr_t)at * sizeof *out);
    for (int i = 0; i < program->n_steps; i++)
        run_step(args, &program->step[i], &tiles, at, n);
}

/* ---- the epilogue of a product ---- */

void ISA_NAME(fusion_epilogue)(const KernelArgs *args, int64_t at, int64_t ld, const float *sum,
                               int64_t row, int64_t rows, int64_t n)
{
    const TileProgram *program = args->op->fused->program;
    const TilePlace *place = program->place;
    Tiles tiles;
    View *view = tiles.view;
    int sums = 0;
    make_views(args, program, &tiles);
    while (place[sums].kind != PLACE_OPERAND || place[sums].index != TILE_SUMS)
        sums++;
    view[sums] = (View){NULL, sizeof *sum, VN};
    for (int64_t i = 0; i < rows; i++, at += ld, sum += row) {
        view[sums].base = (char *)((uintptr_t)sum - (uintptr_t)at * sizeof *sum);
        if (program->epilogue == WHOLE_SWIGLU)
            run_whole(&whole_programs[WHOLE_SWIGLU], view, at, at + n, false);
        else
            run_whole(&whole_programs[WHOLE_SWIGLU_BACKWARD], view, at, at + n, false);
    }
}

static bool match(const Op *op)
{
    return kernel_fused(op)->program;
}

static void run(const KernelArgs *args)
{
    const TileProgram *program = args->op->fused->program;
    Tiles tiles;
    int64_t begin, end;
    make_views(args, program, &tiles);
    kernel_share(program->elements, KERNEL_GRAIN, args->thread, args->n_threads, &begin, &end);
    begin = run_known(args, program, tiles.view, begin, end);
    for (int64_t at = begin; at < end; at += TILE_ELEMENTS) {
        int64_t n = num_min(end - at, TILE_ELEMENTS);
        for (int i = 0; i < program->n_steps; i++)
            run_step(args, &program->step[i], &tiles, at, n);
    }
}

const Kernel ISA_NAME(fusion_kernels)[] = {
    {.name = "region." ISA, .kind = OP_REGION, .match = match, .run = run},
    {0},
};
