/* Each thread takes a contiguous part, in units of a cache line. */
#include "compile/moves.h"

#include <string.h>

void move_splat(void *to, cvn_dtype dtype, int64_t n, const void *element, size_t begin, size_t end)
{
    unsigned char pattern[8];
    size_t size = (size_t)(cvn_dtype_bits(dtype) + 7) / 8;
    for (size_t i = 0; i < sizeof pattern; i += size)
        memcpy(pattern + i, element, size);
    if (dtype == CVN_I4)
        for (size_t i = 0; i < sizeof pattern; i++)
            pattern[i] = (unsigned char)((pattern[i] & 15) * 17);
    unsigned char *bytes = to;
    size_t i = begin;
    for (; i + sizeof pattern <= end; i += sizeof pattern)
        memcpy(bytes + i, pattern, sizeof pattern);
    if (i < end)
        memcpy(bytes + i, pattern, end - i);
    if (dtype == CVN_I4 && n % 2 && end > begin && end == cvn_dtype_bytes(dtype, n))
        bytes[end - 1] &= 15; /* the unused half of the last byte is zero */
}

static void run_copy(const KernelArgs *args)
{
    int64_t begin, end, n = (int64_t)cvn_type_bytes(&args->op->result[0]->type);
    kernel_share(n, 64, args->thread, args->n_threads, &begin, &end);
    if (begin < end)
        memcpy((char *)args->out[0] + begin, (const char *)args->in[0] + begin,
               (size_t)(end - begin));
}

static void run_fill(const KernelArgs *args)
{
    const cvn_type *type = &args->op->result[0]->type;
    int64_t begin, end, n = (int64_t)cvn_type_bytes(type);
    kernel_share(n, 64, args->thread, args->n_threads, &begin, &end);
    move_splat(args->out[0], type->dtype, cvn_type_elements(type), args->op->attr.literal.data,
               (size_t)begin, (size_t)end);
}

const Kernel move_copy = {
    .name = "copy", .kind = OP_OPTIMIZATION_BARRIER, .match = NULL, .run = run_copy};
const Kernel move_fill = {.name = "fill", .kind = OP_CONSTANT, .match = NULL, .run = run_fill};
