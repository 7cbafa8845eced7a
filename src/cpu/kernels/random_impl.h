/*
 * random_bits: Threefry-2x32 (base/rng.h) on LANES elements at a time. Compiled once per instruction set; the bits are
 * the same everywhere, because there is nothing but 32-bit additions, rotations and exclusive ors.
 */
#include "cpu/kernels/kernels.h"
#include "cpu/kernels/vec.h"

#include <string.h>

enum { LANES = VN };

VEC_INLINE vu lanes_at(const void *words, int64_t i)
{
    vu x;
    memcpy(&x, (const uint32_t *)words + i, sizeof x);
    return x;
}

/* Four rounds, by rotations that are constants. */
#define ROUND(by)                                                                                  \
    x0 += x1;                                                                                      \
    x1 = (x1 << (by) | x1 >> (32 - (by))) ^ x0

/* The first word of each lane's pair. */
VEC_INLINE vu threefry(vu k0, vu k1, vu x0, vu x1)
{
    vu key[3] = {k0, k1, k0 ^ k1 ^ 0x1bd11bdau};
    x0 += key[0];
    x1 += key[1];
#pragma GCC unroll 5
    for (uint32_t group = 1; group <= 5; group++) {
        if (group % 2) {
            ROUND(13);
            ROUND(15);
            ROUND(26);
            ROUND(6);
        } else {
            ROUND(17);
            ROUND(29);
            ROUND(16);
            ROUND(24);
        }
        x0 += key[group % 3];
        x1 += key[(group + 1) % 3] + group;
    }
    return x0;
}

#undef ROUND

static void run(const KernelArgs *args)
{
    const void *const *in = args->in;
    uint32_t *out = args->out[0];
    int64_t n = cvn_type_elements(&args->op->result[0]->type), i, end;
    kernel_share(n, 64, args->thread, args->n_threads, &i, &end);
    for (; i + LANES <= end; i += LANES) {
        vu x = threefry(lanes_at(in[0], i), lanes_at(in[1], i), lanes_at(in[2], i),
                        lanes_at(in[3], i));
        memcpy(out + i, &x, sizeof x);
    }
    if (i < end) {
        vu x[4] = {0};
        for (int k = 0; k < 4; k++)
            memcpy(&x[k], (const uint32_t *)in[k] + i, (size_t)(end - i) * sizeof *out);
        x[0] = threefry(x[0], x[1], x[2], x[3]);
        memcpy(out + i, &x[0], (size_t)(end - i) * sizeof *out);
    }
}

const Kernel ISA_NAME(random_kernels)[] = {
    {.name = "random_bits." ISA, .kind = OP_RANDOM_BITS, .run = run, .in_place = 15},
    {0},
};
