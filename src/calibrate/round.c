#include "calibrate/round.h"

#include "base/cpu.h"
#include "base/float16.h"
#include "base/num.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { LANES = 16 /* rows of a matrix that are rounded together */, BLOCK = 32, SWEEPS = 2 };

/* Of the mean of the diagonal, added to it. */
#define DAMPING 0.01

/* A column of such rows; and as many neighbours in a row of floats. */
typedef float Lanes __attribute__((vector_size(LANES * sizeof(float))));
typedef float Run
    __attribute__((vector_size(LANES * sizeof(float)), aligned(sizeof(float)), may_alias));

#define INLINE inline __attribute__((always_inline))

/* Work of several threads, compiled for wider registers, too: the same operations in the same order, hence the same numbers. */
#ifdef __x86_64__
#define WIDE(name, body)                                                                           \
    __attribute__((target("avx512f"))) static void name##_512(void *context, int thread, int n)    \
    {                                                                                              \
        body(context, thread, n);                                                                  \
    }                                                                                              \
    __attribute__((target("avx2"))) static void name##_256(void *context, int thread, int n)       \
    {                                                                                              \
        body(context, thread, n);                                                                  \
    }                                                                                              \
    static void name(void *context, int thread, int n)                                             \
    {                                                                                              \
        const uint32_t features = cpu_features();                                                  \
        if (cpu_has(features, CPU_AVX512F))                                                        \
            name##_512(context, thread, n);                                                        \
        else if (cpu_has(features, CPU_AVX2))                                                      \
            name##_256(context, thread, n);                                                        \
        else                                                                                       \
            body(context, thread, n);                                                              \
    }
#else
#define WIDE(name, body)                                                                           \
    static void name(void *context, int thread, int n)                                             \
    {                                                                                              \
        body(context, thread, n);                                                                  \
    }
#endif

/* to[r] += the sum over i of h[r * stride + i] x[i], for some rows r: four at a time. */
static INLINE void add_products(Lanes *to, const float *h, int64_t stride, int64_t rows,
                                const Lanes *x, int64_t n)
{
    int64_t r = 0;
    for (; r + 4 <= rows; r += 4) {
        const float *a = h + r * stride, *b = a + stride, *c = b + stride, *d = c + stride;
        Lanes p = to[r], q = to[r + 1], s = to[r + 2], t = to[r + 3];
        for (int64_t i = 0; i < n; i++) {
            p += a[i] * x[i];
            q += b[i] * x[i];
            s += c[i] * x[i];
            t += d[i] * x[i];
        }
        to[r] = p;
        to[r + 1] = q;
        to[r + 2] = s;
        to[r + 3] = t;
    }
    for (; r < rows; r++)
        for (int64_t i = 0; i < n; i++)
            to[r] += h[r * stride + i] * x[i];
}

/* to[i] += the sum over some rows r of h[r][i] by[r], for i from `first` to below `end`. */
static INLINE void add_rows(Lanes *to, int64_t first, int64_t end, const float *const *h,
                            const Lanes *by, int64_t rows)
{
    int64_t r = 0;
    for (; r + 4 <= rows; r += 4) {
        const float *a = h[r], *b = h[r + 1], *c = h[r + 2], *d = h[r + 3];
        const Lanes p = by[r], q = by[r + 1], s = by[r + 2], t = by[r + 3];
        for (int64_t i = first; i < end; i++)
            to[i] += a[i] * p + b[i] * q + c[i] * s + d[i] * t;
    }
    for (; r < rows; r++)
        for (int64_t i = first; i < end; i++)
            to[i] += h[r][i] * by[r];
}

/* ---- the inputs ---- */

typedef struct Column {
    float size;
    int32_t at;
} Column;

static int by_size(const void *a, const void *b)
{
    const Column *x = a, *y = b;
    if (x->size != y->size)
        return x->size < y->size ? -1 : 1;
    return (x->at > y->at) - (x->at < y->at);
}

typedef struct Factoring {
    float *u;              /* [n, n] */
    int64_t n, first, end; /* rows of the panel that is done */
} Factoring;

/* Takes what rows first … end - 1, which hold D_p U_p, explain off row r behind them. */
static INLINE void subtract_panel(const Factoring *f, int64_t r, int64_t first, int64_t end)
{
    float *row = f->u + r * f->n;
    float by[BLOCK];
    const float *other = f->u + first * f->n;
    for (int64_t p = first; p < end; p++)
        by[p - first] = f->u[p * f->n + r] / f->u[p * f->n + p];
    int64_t i = r;
    for (; i + LANES <= f->n; i += LANES) {
        Run sum = *(const Run *)(row + i);
        for (int64_t p = 0; p < end - first; p++)
            sum -= by[p] * *(const Run *)(other + p * f->n + i);
        *(Run *)(row + i) = sum;
    }
    for (; i < f->n; i++)
        for (int64_t p = 0; p < end - first; p++)
            row[i] -= by[p] * other[p * f->n + i];
}

static INLINE void subtract_panels(void *context, int thread, int n_threads)
{
    const Factoring *f = context;
    for (int64_t r = f->end + thread; r < f->n; r += n_threads)
        subtract_panel(f, r, f->first, f->end);
}

WIDE(subtract_panels_wide, subtract_panels)

/* Of the sums in u, on and above the diagonal, U. */
static void factor(float *u, int64_t n, Pool *pool)
{
    Factoring f = {.u = u, .n = n};
    for (f.first = 0; f.first < n; f.first = f.end) {
        f.end = num_min(f.first + BLOCK, n);
        for (int64_t r = f.first + 1; r < f.end; r++)
            subtract_panel(&f, r, f.first, r);
        pool_run(pool, subtract_panels_wide, &f);
    }
    for (int64_t r = 0; r < n; r++)
        for (int64_t i = r + 1; i < n; i++)
            u[r * n + i] /= u[r * n + r];
}

int inputs_open(RoundInputs *in, const float *sums, int64_t n, Pool *pool, cvn_err *err)
{
    const size_t bytes = (size_t)(n * n) * sizeof *sums;
    double mean = 0;
    *in = (RoundInputs){.n = n};
    in->sums = malloc(bytes);
    in->upper = malloc(bytes);
    in->order = malloc((size_t)n * sizeof *in->order);
    Column *column = malloc((size_t)n * sizeof *column);
    if (!in->sums || !in->upper || !in->order || !column) {
        free(column);
        inputs_close(in);
        return err_set(err, CVN_EMEM, "no memory to calibrate a matrix of %lld columns",
                       (long long)n);
    }
    for (int64_t i = 0; i < n; i++) {
        column[i] = (Column){.size = sums[i * n + i], .at = (int32_t)i};
        mean += (double)sums[i * n + i] / (double)n;
    }
    qsort(column, (size_t)n, sizeof *column, by_size);
    for (int64_t i = 0; i < n; i++)
        in->order[i] = column[i].at;
    free(column);
    for (int64_t r = 0; r < n; r++)
        for (int64_t i = 0; i < n; i++)
            in->sums[r * n + i] = sums[(int64_t)in->order[r] * n + in->order[i]];
    for (int64_t i = 0; i < n; i++)
        in->sums[i * n + i] += (float)(mean > 0 ? DAMPING * mean : 1);
    memcpy(in->upper, in->sums, bytes);
    factor(in->upper, n, pool);
    return CVN_OK;
}

void inputs_close(RoundInputs *in)
{
    free(in->sums);
    free(in->upper);
    free(in->order);
    *in = (RoundInputs){0};
}

/* ---- a matrix ---- */

/* Some rows of one, columns in the order of the inputs. */
typedef struct Rows {
    Lanes *error, *code, *pull; /* [k] e; the numbers; e H */
    Lanes *scale;               /* [groups] */
    float *importance;          /* [k] diagonal of H, columns in their own order */
    void *memory;               /* owned: all of it */
} Rows;

typedef struct Rounding {
    const RoundInputs *in;
    const QuantForm *form;
    const float *w;
    uint8_t *q;
    uint16_t *scale;
    int32_t *group;  /* [k] of each place */
    int32_t *member; /* [groups, k / groups] places */
    Rows *rows;      /* [threads] */
    atomic_llong next;
} Rounding;

static INLINE float to_code(float x, float scale)
{
    float y = scale != 0 ? rintf(x / scale) : 0;
    return y > 7 ? 7 : y < -8 ? -8 : y;
}

static INLINE int64_t group_of(const Rounding *r, int64_t place)
{
    return r->group[place];
}

/* The scales of groups that are best while all else stays, one group after the other. */
static INLINE void refit_scales(const Rounding *r, Rows *rows)
{
    const RoundInputs *in = r->in;
    const int64_t n = in->n;
    const int64_t size = n / r->form->groups;
    for (int64_t g = 0; g < r->form->groups; g++) {
        const int32_t *place = r->member + g * size;
        Lanes up = {0}, down = {0}, change;
        for (int64_t a = 0; a < size; a++) {
            const float *h = in->sums + place[a] * n;
            Lanes sum = {0};
            for (int64_t b = 0; b < size; b++)
                sum += h[place[b]] * rows->code[place[b]];
            up += rows->code[place[a]] * rows->pull[place[a]];
            down += rows->code[place[a]] * sum;
        }
        for (int l = 0; l < LANES; l++) {
            float s = rows->scale[g][l];
            float better = down[l] > 0 ? s + up[l] / down[l] : s;
            float rounded = bf16_to_f32(bf16_from_f32(better));
            change[l] = isnormal(rounded) && isfinite(1 / rounded) ? rounded - s : 0;
        }
        rows->scale[g] += change;
        for (int64_t a = 0; a < size; a++)
            rows->error[place[a]] -= change * rows->code[place[a]];
        for (int64_t a = 0; a < size; a += BLOCK) {
            const float *row[BLOCK];
            Lanes by[BLOCK];
            const int64_t m = num_min(BLOCK, size - a);
            for (int64_t b = 0; b < m; b++) {
                row[b] = in->sums + place[a + b] * n;
                by[b] = -change * rows->code[place[a + b]];
            }
            add_rows(rows->pull, 0, n, row, by, m);
        }
    }
}

static INLINE bool refit_codes(const Rounding *r, Rows *rows)
{
    const RoundInputs *in = r->in;
    const int64_t n = in->n;
    bool any = false;
    for (int64_t end = n, begin; end > 0; end = begin) {
        const float *row[BLOCK];
        Lanes change[BLOCK];
        int64_t changes = 0;
        begin = end > BLOCK ? end - BLOCK : 0;
        for (int64_t j = end - 1; j >= begin; j--) {
            const Lanes scale = rows->scale[group_of(r, j)];
            const float inverse = 1 / in->sums[j * n + j];
            Lanes now = {0};
            bool some = false;
            for (int l = 0; l < LANES; l++) {
                float v = rows->code[j][l] * scale[l] + rows->pull[j][l] * inverse;
                float c = to_code(v, scale[l]);
                if (c != rows->code[j][l]) {
                    now[l] = (rows->code[j][l] - c) * scale[l];
                    rows->code[j][l] = c;
                    some = true;
                }
            }
            if (!some)
                continue;
            rows->error[j] += now;
            row[changes] = in->sums + j * n;
            change[changes] = now;
            add_rows(rows->pull, begin, end, &row[changes], &change[changes], 1);
            changes++;
        }
        any |= changes > 0;
        add_rows(rows->pull, 0, begin, row, change, changes);
        add_rows(rows->pull, end, n, row, change, changes);
    }
    return any;
}

static INLINE void round_rows(const Rounding *r, Rows *rows, int64_t first, int64_t n_rows)
{
    const RoundInputs *in = r->in;
    const int64_t k = in->n, groups = r->form->groups, group = k / groups;
    memset(rows->error, 0, (size_t)k * sizeof *rows->error);
    memset(rows->scale, 0, (size_t)groups * sizeof *rows->scale);
    for (int64_t i = 0; i < k; i++)
        rows->importance[in->order[i]] = in->sums[i * k + i];
    for (int64_t l = 0; l < n_rows; l++) {
        const float *w = r->w + (first + l) * k;
        for (int64_t g = 0; g < groups; g++)
            rows->scale[g][l] =
                bf16_to_f32(quant_scale(w + g * group, rows->importance + g * group, group));
        for (int64_t j = 0; j < k; j++)
            rows->error[j][l] = w[in->order[j]];
    }
    Lanes *more = rows->pull; /* [k] what errors behind add to a column */
    memset(more, 0, (size_t)k * sizeof *more);
    for (int64_t end = k, begin; end > 0; end = begin) {
        begin = end > BLOCK ? end - BLOCK : 0;
        for (int64_t j = end - 1; j >= begin; j--) {
            const Lanes scale = rows->scale[group_of(r, j)], wanted = rows->error[j];
            add_products(&more[j], in->upper + j * k + j + 1, k, 1, rows->error + j + 1,
                         end - j - 1);
            for (int l = 0; l < LANES; l++)
                rows->code[j][l] = to_code(wanted[l] + more[j][l], scale[l]);
            rows->error[j] = wanted - rows->code[j] * scale;
        }
        add_products(more, in->upper + begin, k, begin, rows->error + begin, end - begin);
    }
    memset(rows->pull, 0, (size_t)k * sizeof *rows->pull);
    add_products(rows->pull, in->sums, k, k, rows->error, k);
    for (int t = 0; t < SWEEPS; t++) {
        refit_scales(r, rows);
        if (!refit_codes(r, rows))
            break;
    }
    for (int64_t l = 0; l < n_rows; l++) {
        uint8_t *q = r->q + (first + l) * k / 2;
        for (int64_t g = 0; g < groups; g++)
            r->scale[(first + l) * groups + g] = bf16_from_f32(rows->scale[g][l]);
        memset(q, 0, (size_t)k / 2);
        for (int64_t j = 0; j < k; j++) {
            int64_t at = in->order[j];
            q[at / 2] |= (uint8_t)(((int)rows->code[j][l] & 15) << at % 2 * 4);
        }
    }
}

static INLINE void round_some(void *context, int thread, int n_threads)
{
    Rounding *r = context;
    (void)n_threads;
    for (;;) {
        int64_t first = LANES * atomic_fetch_add(&r->next, 1);
        if (first >= r->form->n)
            return;
        round_rows(r, &r->rows[thread], first, num_min(LANES, r->form->n - first));
    }
}

WIDE(round_wide, round_some)

static bool rows_open(Rows *rows, const QuantForm *f)
{
    size_t lanes = (size_t)(3 * f->k + f->groups) * sizeof(Lanes);
    size_t bytes = num_padded(lanes + (size_t)f->k * sizeof(float), sizeof(Lanes));
    rows->memory = aligned_alloc(sizeof(Lanes), bytes);
    rows->error = rows->memory;
    if (!rows->memory)
        return false;
    rows->code = rows->error + f->k;
    rows->pull = rows->code + f->k;
    rows->scale = rows->pull + f->k;
    rows->importance = (float *)(rows->scale + f->groups);
    return true;
}

int round_matrix(const RoundInputs *in, const QuantForm *form, const float *w, uint8_t *q,
                 uint16_t *scale, Pool *pool, cvn_err *err)
{
    Rounding r = {.in = in, .form = form, .w = w, .q = q, .scale = scale};
    const int threads = pool_threads(pool);
    const int64_t size = form->k / form->groups;
    r.group = malloc((size_t)form->k * sizeof *r.group);
    r.member = malloc((size_t)form->k * sizeof *r.member);
    r.rows = calloc((size_t)threads, sizeof *r.rows);
    int32_t *used = calloc((size_t)form->groups, sizeof *used);
    bool room = r.group && r.member && r.rows && used;
    for (int64_t j = 0; room && j < form->k; j++) {
        const int64_t g = in->order[j] / size;
        r.group[j] = (int32_t)g;
        r.member[g * size + used[g]++] = (int32_t)j;
    }
    free(used);
    for (int t = 0; room && t < threads; t++)
        room = rows_open(&r.rows[t], form);
    if (room)
        pool_run(pool, round_wide, &r);
    for (int t = 0; r.rows && t < threads; t++)
        free(r.rows[t].memory);
    free(r.rows);
    free(r.group);
    free(r.member);
    return room ? CVN_OK : err_set(err, CVN_EMEM, "no memory to round a matrix");
}

double round_error(const RoundInputs *in, const QuantForm *f, const float *w, const uint8_t *q,
                   const uint16_t *scale)
{
    double sum = 0;
    const int64_t k = f->k, group = k / f->groups;
    float *e = malloc((size_t)k * sizeof *e);
    for (int64_t r = 0; e && r < f->n; r++) {
        for (int64_t j = 0; j < k; j++) {
            int64_t at = in->order[j];
            int code = q[(r * k + at) / 2] >> at % 2 * 4 & 15;
            e[j] = w[r * k + at] -
                   (float)(code - (code & 8) * 2) * bf16_to_f32(scale[r * f->groups + at / group]);
        }
        for (int64_t j = 0; j < k; j++) {
            float pull = 0;
            for (int64_t i = 0; i < k; i++)
                pull += in->sums[j * k + i] * e[i];
            sum += (double)(pull * e[j]);
        }
    }
    free(e);
    return sum;
}
