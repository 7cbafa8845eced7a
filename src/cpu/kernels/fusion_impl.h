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
#include "cpu/kernels/norm_impl.h"
#include "cpu/kernels/reduce_impl.h"
#include "cpu/kernels/tile.h"
#include "cpu/kernels/vec_ops.h"

#include <assert.h>
#include <stdalign.h>

/* Where a place is: element i of the tensor at base + i advance; vectors of a tile are `step` floats apart. */
typedef struct View {
    char *base;
    int64_t advance; /* bytes; 0: what is in `Tiles` */
    int64_t step;    /* VN or 0 */
    int64_t row;     /* bytes from row to row of a tile of several */
} View;

/* A tile: elements [at, at + n), and of the rows behind it, which are ld elements apart. */
typedef struct Span {
    int64_t at, n, rows, ld;
} Span;

/* Registers, on the stack of a thread. A register begins where no other does in a page. */
typedef struct Tiles {
    alignas(64) float reg[TILE_REGISTERS][TILE_ELEMENTS + 16];
    alignas(64) float one[TILE_PLACES][VN]; /* of constants and scalars */
    View view[TILE_PLACES];
} Tiles;

static void narrow(const VecOperands *x)
{
    for (int64_t r = 0; r <= x->more_rows; r++) {
        const float *a = vec_row(x->a, x->a_row, r);
        uint16_t *out = (uint16_t *)(uintptr_t)vec_row(x->out, x->out_row, r);
        int64_t i = 0;
        for (; i + VN <= x->n; i += VN, a += x->a_step)
            vf_store_bf16(out + i, vf_load(a));
        if (i < x->n)
            vf_store_bf16_part(out + i, vec_load_end(a, x->a_step, x->n - i), x->n - i);
    }
}

static void widen(const VecOperands *x)
{
    for (int64_t r = 0; r <= x->more_rows; r++)
        tile_from_bf16((float *)(uintptr_t)vec_row(x->out, x->out_row, r),
                       vec_row(x->a, x->a_row, r), x->n);
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
        widen(x);
        break;
    case TILE_NARROW:
        narrow(x);
        break;
    default:
        vec_loop(TILE_COPY, OP_CONVERT, x);
        break;
    }
}

/* Element `at` of a place, and how far its vectors and rows are apart; NULL: no place. */
static const float *place_at(const Tiles *tiles, int place, int64_t at, int64_t *step, int64_t *row)
{
    if (place < 0)
        return NULL;
    const View *view = &tiles->view[place];
    *step = view->step;
    *row = view->row;
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

/* Rows of floats that lie one behind the other, wherever they are, are one. */
static void join_rows(VecOperands *x)
{
    const int64_t row = x->n * (int64_t)sizeof *x->out;
    if (x->more_rows > 0 && x->out_row == row && x->a_row == (x->a_step ? row : 0) &&
        x->b_row == (x->b_step ? row : 0) && x->c_row == (x->c_step ? row : 0)) {
        x->n *= 1 + x->more_rows;
        x->more_rows = 0;
    }
}

static void run_step(const KernelArgs *args, const TileProgram *program, const TileStep *step,
                     const Tiles *tiles, Span t)
{
    const View *out = &tiles->view[step->out];
    VecOperands x = {.out = (float *)(void *)(out->base + t.at * out->advance),
                     .n = t.n,
                     .more_rows = t.rows - 1,
                     .out_row = out->row};
    if (step->code == TILE_SPREAD) {
        for (int64_t r = 0; r < t.rows; r++)
            spread(&program->place[step->a], tiles->view[step->a].base, t.at + r * t.ld,
                   (char *)x.out + r * x.out_row, t.n);
        return;
    }
    if (step->code == TILE_CALL) {
        call(program, step, tiles, t.at);
        return;
    }
    x.a = place_at(tiles, step->a, t.at, &x.a_step, &x.a_row);
    x.b = place_at(tiles, step->b, t.at, &x.b_step, &x.b_row);
    if (step->code != TILE_SELECT) {
        x.c = place_at(tiles, step->c, t.at, &x.c_step, &x.c_row);
        if (step->code != TILE_WIDEN && step->code != TILE_NARROW)
            join_rows(&x);
        run_code(step, &x);
        return;
    }
    bool first = *(const uint8_t *)args->in[step->c] != 0;
    x.a = first ? x.a : x.b;
    x.a_step = first ? x.a_step : x.b_step;
    x.a_row = first ? x.a_row : x.b_row;
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
            *view = chosen ? (View){args->out[place->chosen], sizeof(float), VN, 0}
                           : (View){(char *)tiles->reg[place->index], 0, VN, 0};
            break;
        case PLACE_OPERAND:
        case PLACE_WHOLE:
        case PLACE_SPREAD:
            if (place->data || place->index >= 0) /* they are elsewhere for each tile */
                *view = (View){(char *)(uintptr_t)(place->data ? place->data : in[place->index]),
                               place->bytes, VN, 0};
            break;
        case PLACE_RESULT:
            *view = (View){args->out[place->index], place->bytes, VN, 0};
            break;
        case PLACE_ROW:
            *view = (View){(char *)tiles->one[i], 0, 0, 0};
            break;
        default:
            if (place->kind == PLACE_SCALAR)
                value = place->bytes == 2 ? bf16_to_f32(*(const uint16_t *)in[place->index])
                                          : *(const float *)in[place->index];
            vf_store(tiles->one[i], vf_splat(value));
            *view = (View){(char *)tiles->one[i], 0, 0, 0};
            break;
        }
    }
}

/* ---- whole programs ---- */

static char *element_at(const View *view, int64_t i)
{
    return view->base + i * view->advance;
}

/* Elements [begin, end), whole vectors, of train/optimizer_adamw.c, behind the scaling of the gradient, where the choice is
   to step. Places are those of the program's steps in turn. around: the copies in bf16 go past the caches. */
VEC_INLINE void run_adamw(const View *view, int64_t begin, int64_t end, const bool half,
                          const bool rounded, const bool around)
{
    const View *p = view + half; /* of the gradient as f32, and what follows it */
    enum {
        SCALE = 1,
        M = 3,
        M_PART,
        V_PART = 7,
        V = 9,
        V_KEPT,
        CORRECTION = 13,
        EPS,
        RATE = 17,
        W = 19,
        W_KEPT,
        NEW_W = 22,
        NEXT
    };
#define ONE(place) vf_load((const float *)(const void *)p[place].base)
#define AT(place) (float *)(void *)element_at(&p[place], i)
    const vf scale = ONE(SCALE), m_part = ONE(M_PART), v_part = ONE(V_PART), v_kept = ONE(V_KEPT);
    const vf correction = ONE(CORRECTION), eps = ONE(EPS), rate = ONE(RATE), w_kept = ONE(W_KEPT);
    for (int64_t i = begin; i < end; i += VN) {
        const void *gradient = element_at(view, i);
        vf g = (half ? vf_load_bf16(gradient) : vf_load(gradient)) * scale;
        vf m = vf_load(AT(M)), v = vf_load(AT(V)), w = vf_load(AT(W));
        m = m + (g - m) * m_part;
        v = v * v_kept + (g * g) * v_part;
        w = w * w_kept - rate * (m / (vf_sqrt(v) * correction + eps));
        vf_store(AT(NEW_W), w);
        if (rounded && around)
            vf_stream_bf16((uint16_t *)(void *)AT(NEXT), w);
        else if (rounded)
            vf_store_bf16((uint16_t *)(void *)AT(NEXT), w);
        vf_store(AT(NEXT + rounded), m);
        vf_store(AT(NEXT + 1 + rounded), v);
    }
#undef ONE
#undef AT
    if (around)
        vec_streamed();
}

/* Copies are not read again before all other weights were, and need not stay in the caches. */
VEC_INLINE void run_rounded(const View *view, int64_t begin, int64_t end, const bool half,
                            bool many)
{
    const View *copy = &view[half + 23];
    if (many && (uintptr_t)element_at(copy, begin) % 64 == 0)
        run_adamw(view, begin, end, half, true, true);
    else
        run_adamw(view, begin, end, half, true, false);
}

/* The first of elements [begin, end) that is still to be done: all are, or less than a vector. */
static int64_t run_known(const KernelArgs *args, const TileProgram *program, const View *view,
                         int64_t begin, int64_t end)
{
    enum { MANY = 1 << 16 };
    const int64_t last = end - (end - begin) % VN;
    const bool many = program->elements >= MANY;
    const WholeKind kind = whole_find(program);
    for (int i = 0; i < program->n_steps; i++) /* only where the first of two is chosen */
        if (program->step[i].code == TILE_SELECT && !*(const uint8_t *)args->in[program->step[i].c])
            return begin;
    if (kind == WHOLE_ADAMW)
        run_adamw(view, begin, last, false, false, false);
    else if (kind == WHOLE_ADAMW_ROUNDED)
        run_rounded(view, begin, last, false, many);
    else if (kind == WHOLE_ADAMW_HALF)
        run_rounded(view, begin, last, true, many);
    return kind == WHOLE_COUNT ? begin : last;
}

/* ---- terms of a sum ---- */

void ISA_NAME(fusion_prologue)(const KernelArgs *args, int64_t at, int64_t n, float *out)
{
    const TileProgram *program = args->op->fused->program[0];
    Tiles tiles;
    make_views(args, program, &tiles);
    for (int i = 0; i < program->n_places; i++)
        if (program->place[i].kind == PLACE_RESULT)
            tiles.view[i].base = (char *)((uintptr_t)out - (uintptr_t)at * sizeof *out);
    for (int i = 0; i < program->n_steps; i++)
        run_step(args, program, &program->step[i], &tiles, (Span){at, n, 1, 0});
}

/* ---- the epilogue of a product ---- */

/* One row for all, such as a bias, is read where it lies. */
static bool read_row(const TileProgram *program, const TileStep *step, Tiles *tiles, Span t)
{
    const TilePlace *place = step->code == TILE_SPREAD ? &program->place[step->a] : NULL;
    if (!place || place->inner != 1 || place->size != t.ld || place->bytes != sizeof(float))
        return false;
    tiles->view[step->out] =
        (View){tiles->view[step->a].base + t.at % t.ld * place->bytes, 0, VN, 0};
    return true;
}

/* A tile of registers at a time: as many rows as they hold. */
void ISA_NAME(fusion_epilogue)(const KernelArgs *args, const TileProgram *program,
                               const EpilogueTile *tile)
{
    Tiles tiles;
    make_views(args, program, &tiles);
    for (int64_t j = 0; j < tile->n; j += TILE_ELEMENTS) {
        Span t = {.n = num_min(tile->n - j, TILE_ELEMENTS), .ld = tile->ld};
        const int64_t most = TILE_ELEMENTS / t.n;
        for (int64_t i = 0; i < tile->rows; i += most) {
            t.rows = num_min(most, tile->rows - i);
            t.at = tile->at + i * t.ld + j;
            for (int p = 0; p < program->n_places; p++) {
                const TilePlace *place = &program->place[p];
                View *view = &tiles.view[p];
                if (place->kind == PLACE_OPERAND && place->index <= TILE_SUMS) {
                    const float *first =
                        tile->sum + (TILE_SUMS - place->index) * tile->apart + i * tile->row + j;
                    *view = (View){(char *)((uintptr_t)first - (uintptr_t)t.at * sizeof *first),
                                   sizeof *first, VN, tile->row * (int64_t)sizeof *first};
                } else {
                    view->row = view->advance ? t.ld * view->advance : view->step ? t.n * 4 : 0;
                }
            }
            for (int s = 0; s < program->n_steps; s++)
                if (!read_row(program, &program->step[s], &tiles, t))
                    run_step(args, program, &program->step[s], &tiles, t);
        }
    }
}

/* ---- along rows ---- */

VEC_INLINE float sum_of(cvn_reduce kind, VecSum *sum)
{
    float out = 0;
    OF_KIND(kind, out = combine_lanes, sum)
    return out;
}

static void add_to_sum(VecSum *sum, int reduce, const float *x, int64_t n)
{
    if (reduce < 0)
        add_squares(sum, x, n);
    else
        OF_KIND((cvn_reduce)reduce, add_terms, sum, x, n)
}

/* A part: steps [s, end) over the row that begins at element `at`. The last may be a sum. */
static void run_part(const KernelArgs *args, const TileProgram *program, Tiles *tiles, int64_t at,
                     int s, int end)
{
    const TileStep *last = &program->step[end - 1];
    const TilePlace *place = last->code == TILE_SUM ? &program->place[last->out] : NULL;
    const int reduce = place ? place->index : 0;
    VecSum sum = reduce < 0 ? vec_sum_zero() : no_terms((cvn_reduce)reduce);
    for (int64_t i = 0; i < program->row; i += TILE_ELEMENTS) {
        const Span t = {at + i, num_min(program->row - i, TILE_ELEMENTS), 1, program->row};
        for (int k = s; k < end - (place != NULL); k++)
            if (!read_row(program, &program->step[k], tiles, t))
                run_step(args, program, &program->step[k], tiles, t);
        if (place) {
            int64_t step, row;
            add_to_sum(&sum, reduce, place_at(tiles, last->a, t.at, &step, &row), t.n);
        }
    }
    if (place)
        vf_store(tiles->one[last->out],
                 vf_splat(reduce < 0 ? norm_of_squares(&sum, program->row, place->value)
                                     : sum_of((cvn_reduce)reduce, &sum)));
}

/* The row that begins at element `at`. */
static void run_row(const KernelArgs *args, const TileProgram *program, Tiles *tiles, int64_t at)
{
    for (int s = 0, end; s < program->n_steps; s = end) {
        const TileStep *step = &program->step[s];
        end = s + 1;
        if (step->code != TILE_SUM && program->place[step->out].kind == PLACE_ROW) {
            run_step(args, program, step, tiles, (Span){0, VN, 1, 0});
            continue;
        }
        if (step->code == TILE_KEEP) {
            ((float *)args->out[program->place[step->out].index])[at / program->row] =
                tiles->one[step->a][0];
            continue;
        }
        while (end < program->n_steps && program->step[end - 1].code != TILE_SUM &&
               program->step[end].code != TILE_KEEP)
            end++;
        run_part(args, program, tiles, at, s, end);
    }
}

/* Results lie in `out`, whichever row it is. */
void ISA_NAME(fusion_row)(const KernelArgs *args, const TileProgram *program, int64_t row,
                          void *out)
{
    const int64_t at = row * program->row;
    Tiles tiles;
    make_views(args, program, &tiles);
    for (int i = 0; i < program->n_places; i++) {
        const TilePlace *place = &program->place[i];
        if (place->kind == PLACE_RESULT)
            tiles.view[i].base = (char *)((uintptr_t)out - (uintptr_t)(at * place->bytes));
    }
    run_row(args, program, &tiles, at);
}

static void run_rows(const KernelArgs *args, const TileProgram *program, Tiles *tiles)
{
    int64_t begin, end;
    kernel_share(program->elements / program->row, 1, args->thread, args->n_threads, &begin, &end);
    for (int64_t row = begin; row < end; row++)
        run_row(args, program, tiles, row * program->row);
}

static bool match(const Op *op)
{
    return kernel_fused(op)->program[0];
}

static void run(const KernelArgs *args)
{
    const TileProgram *program = args->op->fused->program[0];
    Tiles tiles;
    int64_t begin, end;
    make_views(args, program, &tiles);
    if (program->row) {
        run_rows(args, program, &tiles);
        return;
    }
    kernel_share(program->elements, KERNEL_GRAIN, args->thread, args->n_threads, &begin, &end);
    begin = run_known(args, program, tiles.view, begin, end);
    for (int64_t at = begin; at < end; at += TILE_ELEMENTS) {
        int64_t n = num_min(end - at, TILE_ELEMENTS);
        for (int i = 0; i < program->n_steps; i++)
            run_step(args, program, &program->step[i], &tiles, (Span){at, n, 1, 0});
    }
}

const Kernel ISA_NAME(fusion_kernels)[] = {
    {.name = "region." ISA, .kind = OP_REGION, .match = match, .run = run},
    {0},
};
