/* Walks that move elements; see walk.h. */
#include "cpu/kernels/walk.h"

#include "base/num.h"
#include "compile/kernel.h"

#include <string.h>

void walk_add(Walk *w, int64_t size, int64_t from_stride, int64_t to_stride)
{
    int last = w->n - 1;
    if (size == 1)
        return;
    if (last >= 0 && w->from_stride[last] == from_stride * size &&
        w->to_stride[last] == to_stride * size) {
        w->size[last] *= size;
        w->from_stride[last] = from_stride;
        w->to_stride[last] = to_stride;
        return;
    }
    w->size[w->n] = size;
    w->from_stride[w->n] = from_stride;
    w->to_stride[w->n++] = to_stride;
}

bool walk_share(Walk *w, int64_t grain, int thread, int n_threads)
{
    int longest = 0;
    for (int i = 0; i < w->n; i++) {
        if (w->size[i] == 0)
            return false;
        if (w->size[i] > w->size[longest])
            longest = i;
    }
    if (w->n == 0)
        return thread == 0;
    int64_t begin, end;
    kernel_share(w->size[longest], longest == w->n - 1 ? grain : 1, thread, n_threads, &begin,
                 &end);
    w->from += begin * w->from_stride[longest];
    w->to += begin * w->to_stride[longest];
    w->size[longest] = end - begin;
    return end > begin;
}

/* n elements at strides, in bytes. One loop per size, so that each move is one instruction. */
static void move_strided(size_t size, char *to, int64_t to_step, const char *from,
                         int64_t from_step, int64_t n)
{
    switch (size) {
    case 1:
        for (int64_t i = 0; i < n; i++)
            to[i * to_step] = from[i * from_step];
        break;
    case 2:
        for (int64_t i = 0; i < n; i++)
            memcpy(to + i * to_step, from + i * from_step, 2);
        break;
    case 4:
        for (int64_t i = 0; i < n; i++)
            memcpy(to + i * to_step, from + i * from_step, 4);
        break;
    default:
        for (int64_t i = 0; i < n; i++)
            memcpy(to + i * to_step, from + i * from_step, 8);
        break;
    }
}

/* The innermost dimension. */
static void move_row(size_t size, char *to, int64_t to_stride, const char *from,
                     int64_t from_stride, int64_t n)
{
    if (to_stride == 1 && from_stride == 1) {
        memmove(to, from, (size_t)n * size);
    } else if (to_stride == 1 &&
               from_stride == 0) { /* one element n times, by doubling what is there */
        memmove(to, from, size);
        for (int64_t done = 1; done < n; done *= 2)
            memcpy(to + done * (int64_t)size, to, (size_t)num_min(n - done, done) * size);
    } else {
        move_strided(size, to, to_stride * (int64_t)size, from, from_stride * (int64_t)size, n);
    }
}

/* Rows and columns exchanged: by blocks, so that neither side walks over more lines than the cache holds. */
static void move_blocks(size_t size, char *to, const char *from, const Walk *w, int outer)
{
    enum { BLOCK = 16 };
    int inner = w->n - 1;
    int64_t bytes = (int64_t)size, rows = w->size[outer], columns = w->size[inner];
    for (int64_t r = 0; r < rows; r += BLOCK)
        for (int64_t c = 0; c < columns; c += BLOCK)
            for (int64_t i = r; i < rows && i < r + BLOCK; i++)
                move_strided(size, to + (i * w->to_stride[outer] + c * w->to_stride[inner]) * bytes,
                             w->to_stride[inner] * bytes,
                             from + (i * w->from_stride[outer] + c * w->from_stride[inner]) * bytes,
                             w->from_stride[inner] * bytes,
                             columns - c < BLOCK ? columns - c : BLOCK);
}

void walk_run(const Walk *w, size_t size, void *to_data, const void *from_data)
{
    char *to = (char *)to_data + w->to * (int64_t)size;
    const char *from = (const char *)from_data + w->from * (int64_t)size;
    if (w->n == 0) {
        memmove(to, from, size);
        return;
    }
    int inner = w->n - 1,
        outer = inner; /* outer: the dimension that is contiguous in the operand */
    for (int i = 0; i < inner; i++)
        if (w->from_stride[i] == 1 && w->from_stride[inner] != 1)
            outer = i;
    int64_t at[CVN_MAX_RANK] = {0};
    for (;;) {
        int64_t t = walk_offset(w->to_stride, inner, at);
        int64_t f = walk_offset(w->from_stride, inner, at);
        if (outer != inner)
            move_blocks(size, to + t * (int64_t)size, from + f * (int64_t)size, w, outer);
        else
            move_row(size, to + t * (int64_t)size, w->to_stride[inner], from + f * (int64_t)size,
                     w->from_stride[inner], w->size[inner]);
        int d = inner - 1;
        for (; d >= 0; d--) {
            if (d == outer)
                continue;
            if (++at[d] < w->size[d])
                break;
            at[d] = 0;
        }
        if (d < 0)
            return;
    }
}
