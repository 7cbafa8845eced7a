/* A fusion as a kernel: tile by tile, member by member. */
#include "compile/fusion.h"

#include "base/num.h"

#include <string.h>

/* Writes one value n times; bytes is 1, 2, 4 or 8. */
static void fill(char *out, const void *value, size_t bytes, int64_t n)
{
    uint64_t pattern = 0;
    memcpy(&pattern, value, bytes);
    if (bytes == 4)
        for (int64_t i = 0; i < n; i++)
            ((uint32_t *)(void *)out)[i] = (uint32_t)pattern;
    else if (bytes == 2)
        for (int64_t i = 0; i < n; i++)
            ((uint16_t *)(void *)out)[i] = (uint16_t)pattern;
    else if (bytes == 1)
        memset(out, (int)pattern, (size_t)n);
    else
        for (int64_t i = 0; i < n; i++)
            ((uint64_t *)(void *)out)[i] = pattern;
}

/* Elements begin … end - 1 of a spread: runs of one value, or of neighbours. */
static void spread(const Slot *slot, const char *from, int64_t begin, int64_t end, char *out)
{
    for (int64_t i = begin, n; i < end; i += n, out += (size_t)n * slot->bytes) {
        int64_t at = i / slot->inner % slot->size;
        if (slot->inner > 1) {
            n = slot->inner - i % slot->inner;
            n = n < end - i ? n : end - i;
            fill(out, from + (size_t)at * slot->bytes, slot->bytes, n);
        } else {
            n = slot->size - at;
            n = n < end - i ? n : end - i;
            memcpy(out, from + (size_t)at * slot->bytes, (size_t)n * slot->bytes);
        }
    }
}

/* The address that, with element `begin` counted from it, is the slot's. */
static void *slot_at(const KernelArgs *args, const Slot *slot, char *scratch, int64_t begin)
{
    switch (slot->kind) {
    case SLOT_OPERAND:
    case SLOT_WHOLE:
        return (void *)(uintptr_t)args->in[slot->index];
    case SLOT_RESULT:
        return args->out[slot->index];
    default:
        return (void *)((uintptr_t)(scratch + slot->scratch) - (uintptr_t)begin * slot->bytes);
    }
}

/* One value for all elements, which is written out once. */
static bool is_scalar(const Slot *slot)
{
    return slot->kind == SLOT_SPREAD && slot->size == 1;
}

static void run(const KernelArgs *args)
{
    const Fusion *f = args->op->fused->program;
    char *scratch = (char *)args->scratch + f->scratch * (size_t)args->thread;
    int tiles = (int)num_pieces(f->elements, FUSION_ELEMENTS);
    int64_t first, last, begin, end;
    kernel_share(tiles, 1, args->thread, args->n_threads, &first, &last);
    for (int i = 0; i < f->n_slots && first < last; i++) {
        const Slot *slot = &f->slot[i];
        if (slot->kind == SLOT_SPLAT || is_scalar(slot))
            fill(scratch + slot->scratch, slot->value ? slot->value : args->in[slot->index],
                 slot->bytes, FUSION_ELEMENTS);
    }
    for (int64_t tile = first; tile < last; tile++) {
        kernel_share(f->elements, KERNEL_GRAIN, (int)tile, tiles, &begin, &end);
        for (int i = 0; i < f->n_slots; i++)
            if (f->slot[i].kind == SLOT_SPREAD && !is_scalar(&f->slot[i]))
                spread(&f->slot[i], args->in[f->slot[i].index], begin, end,
                       scratch + f->slot[i].scratch);
        for (int i = 0; i < f->n_members; i++) {
            const Member *member = &f->member[i];
            const void *in[3] = {NULL};
            for (int k = 0; k < member->op->n_operands; k++)
                in[k] = slot_at(args, &f->slot[member->in[k]], scratch, begin);
            void *out = slot_at(args, &f->slot[member->out], scratch, begin);
            member->kernel->run(&(KernelArgs){
                .op = member->op, .in = in, .out = &out, .thread = (int)tile, .n_threads = tiles});
        }
    }
}

static size_t scratch(const Op *op, int n_threads)
{
    return op->fused->program->scratch * (size_t)n_threads;
}

bool kernel_overwrites(const Kernel *kernel, const Op *op, int k, int i)
{
    if (!kernel || i >= 32)
        return false;
    const Fused *fused = kernel_fused(op);
    if (fused->program && op->kind != OP_REDUCE)
        return fused->program->over[k] >> i & 1;
    if (op->kind == OP_ROPE && (fused->transposed == 1 || fused->transposed == 2))
        return false; /* it is elsewhere that elements go */
    return k == 0 && kernel->in_place >> i & 1;
}

const Kernel fusion_kernel = {.name = "region", .kind = OP_REGION, .scratch = scratch, .run = run};
