/*
 * sort along one dimension: a least-significant-digit radix sort, stable, O(n). Keys of f64 are left to the fallback.
 *
 * Keys become unsigned integers that order as the elements do: the bits of a float with the sign flipped, or all
 * of them where it is negative; complemented when descending. Each key carries its place, from which the
 * payload is taken at the end; where there is no payload, keys are sorted alone, and the elements are made of them
 * again. Three passes of 11 bits order 32; a pass whose digits are all equal is skipped. Rows are shared over the
 * threads; where there are fewer long rows than threads, as of the logits of one text, all threads sort each together:
 *
 *     every thread counts the first digits of its part of the keys
 *     the digits are shared out, so that each thread gets about as many keys
 *     every thread takes its own out of all keys, and sorts them alone
 */
#include "cpu/kernels/kernels.h"
#include "graph/strides.h"

#include <string.h>

enum { DIGIT = 11, BUCKETS = 1 << DIGIT, PASSES = 3 };

typedef struct Item {
    uint32_t key;
    uint32_t place; /* in the row */
} Item;

static bool match(const Op *op)
{
    const cvn_type *x = op_in(op, 0);
    cvn_dtype key = x->dtype;
    if (x->rank < 1 || x->dim[op->attr.axis] > UINT32_MAX)
        return false;
    for (int i = 0; i < op->n_operands; i++)
        if (cvn_dtype_bits(op_in(op, i)->dtype) < 8)
            return false;
    return key != CVN_F64;
}

static size_t scratch(const Op *op, int n_threads)
{
    return 2 * sizeof(Item) * (size_t)op_in(op, 0)->dim[op->attr.axis] * (size_t)n_threads;
}

static uint32_t key_of(cvn_dtype dtype, const void *data, int64_t i)
{
    uint32_t bits;
    switch (dtype) {
    case CVN_BF16:
    case CVN_F16:
        bits = (uint32_t)((const uint16_t *)data)[i] << 16;
        return bits ^ (bits >> 31 ? 0xffff0000u : 0x80000000u);
    case CVN_F32:
        bits = ((const uint32_t *)data)[i];
        return bits ^ (bits >> 31 ? 0xffffffffu : 0x80000000u);
    case CVN_I32:
        return ((const uint32_t *)data)[i] ^ 0x80000000u;
    case CVN_I8:
        return (uint32_t)((const int8_t *)data)[i] ^ 0x80000000u;
    default:
        return ((const uint32_t *)data)[i];
    }
}

/* Sorts n items of so many words, a constant, by their first, from one buffer to the other and back; returns where they are in
   the end. */
static inline __attribute__((always_inline)) uint32_t *sort_words(const int words, uint32_t *item,
                                                                  uint32_t *other, int64_t n)
{
    uint32_t count[PASSES][BUCKETS] = {0};
    for (int64_t i = 0; i < n; i++)
        for (int pass = 0; pass < PASSES; pass++)
            count[pass][item[i * words] >> pass * DIGIT & (BUCKETS - 1)]++;
    for (int pass = 0; pass < PASSES; pass++) {
        uint32_t *at = count[pass], sum = 0;
        int shift = pass * DIGIT;
        if (at[item[0] >> shift & (BUCKETS - 1)] == n)
            continue;
        for (int d = 0; d < BUCKETS; d++) {
            uint32_t here = at[d];
            at[d] = sum;
            sum += here;
        }
        for (int64_t i = 0; i < n; i++) {
            const uint32_t *from = item + i * words;
            memcpy(other + (int64_t)at[*from >> shift & (BUCKETS - 1)]++ * words, from,
                   (size_t)words * sizeof *from);
        }
        uint32_t *swap = item;
        item = other;
        other = swap;
    }
    return item;
}

/* Returns where the sorted items are: in one of the two buffers. */
static const Item *sort_items(Item *item, Item *other, int64_t n)
{
    if (n > 64)
        return (const Item *)sort_words(2, &item->key, &other->key, n);
    for (int64_t i = 1; i < n; i++) { /* by insertion, without counting */
        Item x = item[i];
        int64_t j = i;
        for (; j > 0 && item[j - 1].key > x.key; j--)
            item[j] = item[j - 1];
        item[j] = x;
    }
    return item;
}

/* The element whose key it is: the inverse of key_of, for 32-bit elements. */
static uint32_t element_of(cvn_dtype dtype, uint32_t key)
{
    switch (dtype) {
    case CVN_F32:
        return key ^ (key >> 31 ? 0x80000000u : 0xffffffffu);
    case CVN_I32:
        return key ^ 0x80000000u;
    default:
        return key;
    }
}

enum {
    LONG = 8192,
    FIRST = 32 - DIGIT
}; /* keys of a row worth meeting for; the first digit's place */

/* What a thread has in scratch for a row that all sort: half of what two Items for each key take. */
typedef struct Part {
    uint32_t *key, *other; /* [n] each */
    uint32_t *count;       /* [BUCKETS] of first digits */
} Part;

static Part part_of(const KernelArgs *args, int thread, int64_t n)
{
    uint32_t *key = (uint32_t *)((Item *)args->scratch + 2 * n * thread);
    return (Part){key, key + n, key + 2 * n};
}

/* The first digits [*low, *high) that a thread sorts, and how many keys come before them. */
static int64_t digits_of(const KernelArgs *args, int64_t n, uint32_t *low, uint32_t *high)
{
    int64_t sum = 0, before = 0, from = n * args->thread / args->n_threads,
            to = n * (args->thread + 1) / args->n_threads;
    *low = *high = BUCKETS;
    for (uint32_t d = 0; d < BUCKETS; d++) {
        if (sum >= from && *low == BUCKETS) {
            *low = d;
            before = sum;
        }
        if (sum >= to && *high == BUCKETS)
            *high = d;
        for (int t = 0; t < args->n_threads; t++)
            sum += part_of(args, t, n).count[d];
    }
    return before;
}

/* Of a row of 32-bit elements without payload those whose first digit is in [low, high), in their order, to `to`. */
static void sort_part(const Part *part, cvn_dtype dtype, const uint32_t *from, uint32_t *to,
                      int64_t n, uint32_t flip, uint32_t low, uint32_t high)
{
    int64_t mine = 0;
    for (int64_t i = 0; i < n; i++) {
        uint32_t key = key_of(dtype, from, i) ^ flip;
        part->key[mine] = key;
        mine += (key >> FIRST) - low < high - low; /* unsigned: low <= digit < high */
    }
    const uint32_t *sorted = mine ? sort_words(1, part->key, part->other, mine) : part->key;
    for (int64_t i = 0; i < mine; i++)
        to[i] = element_of(dtype, sorted[i] ^ flip);
}

/* The same row by all threads. */
static void sort_together(const KernelArgs *args, cvn_dtype dtype, const uint32_t *from,
                          uint32_t *to, int64_t n, uint32_t flip)
{
    Part part = part_of(args, args->thread, n);
    int64_t begin, end;
    uint32_t low, high;
    memset(part.count, 0, BUCKETS * sizeof *part.count);
    kernel_share(n, 16, args->thread, args->n_threads, &begin, &end);
    for (int64_t i = begin; i < end; i++)
        part.count[(key_of(dtype, from, i) ^ flip) >> FIRST]++;
    kernel_sync(args);
    to += digits_of(args, n, &low, &high);
    sort_part(&part, dtype, from, to, n, flip, low, high);
    kernel_sync(args); /* counts are still read */
}

/* Elements of operand t in the order of the items, `step` apart from `base` on. */
static void place(const KernelArgs *args, int t, const Item *sorted, int64_t n, int64_t base,
                  int64_t step)
{
    const size_t size = (size_t)cvn_dtype_bits(op_in(args->op, t)->dtype) / 8;
    const char *from = (const char *)args->in[t] + (size_t)base * size;
    char *to = (char *)args->out[t] + (size_t)base * size;
    if (size == 4)
        for (int64_t i = 0; i < n; i++)
            memcpy(to + i * step * 4, from + sorted[i].place * step * 4, 4);
    else
        for (int64_t i = 0; i < n; i++)
            memcpy(to + (size_t)(i * step) * size, from + (size_t)(sorted[i].place * step) * size,
                   size);
}

static void run(const KernelArgs *args)
{
    const Op *op = args->op;
    const cvn_type *x = op_in(op, 0);
    const Lines lines = type_lines(x, op->attr.axis);
    int64_t n = lines.n, step = lines.inner, begin, end;
    if (cvn_type_elements(x) == 0)
        return;
    Item *item = (Item *)args->scratch + 2 * n * args->thread, *other = item + n;
    uint32_t flip = op->attr.flag ? UINT32_MAX : 0;
    int64_t rows = cvn_type_elements(x) / n;
    kernel_share(rows, 1, args->thread, args->n_threads, &begin, &end);
    bool keys_only = op->n_operands == 1 && cvn_dtype_bits(x->dtype) == 32 && n > 64 && step == 1;
    if (keys_only && n >= LONG && rows < args->n_threads) {
        for (int64_t row = 0; row < rows; row++)
            sort_together(args, x->dtype, (const uint32_t *)args->in[0] + row * n,
                          (uint32_t *)args->out[0] + row * n, n, flip);
        return;
    }
    for (int64_t row = begin; row < end; row++) {
        int64_t base = row / step * n * step + row % step;
        if (keys_only) {
            const Part part = part_of(args, args->thread, n);
            sort_part(&part, x->dtype, (const uint32_t *)args->in[0] + base,
                      (uint32_t *)args->out[0] + base, n, flip, 0, BUCKETS);
            continue;
        }
        for (int64_t i = 0; i < n; i++)
            item[i] = (Item){key_of(x->dtype, args->in[0], base + i * step) ^ flip, (uint32_t)i};
        const Item *sorted = sort_items(item, other, n);
        for (int t = 0; t < op->n_operands; t++)
            place(args, t, sorted, n, base, step);
    }
}

const Kernel sort_kernels[] = {
    {.name = "sort", .kind = OP_SORT, .match = match, .scratch = scratch, .run = run},
    {0},
};
