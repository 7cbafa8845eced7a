/* Which kernel an operation gets, and the one thing that kernels call back for. */
#include "compile/kernel.h"

bool kernel_matches(const Kernel *kernel, const Op *op)
{
    if (kernel->kind != op->kind)
        return false;
    if (kernel->match_isa)
        return kernel->match_isa(kernel, op);
    return !kernel->match || kernel->match(op);
}

size_t kernel_scratch(const Kernel *kernel, const Op *op, int n_threads)
{
    if (kernel->scratch_isa)
        return kernel->scratch_isa(kernel, op, n_threads);
    return kernel->scratch ? kernel->scratch(op, n_threads) : 0;
}

const Kernel *kernel_find(const KernelSet *backend, const Op *op)
{
    for (int i = 0; i < backend->n_kernels; i++)
        if (kernel_matches(backend->kernel[i], op))
            return backend->kernel[i];
    return NULL;
}

void kernel_sync(const KernelArgs *args)
{
    if (args->n_threads > 1)
        barrier_wait(args->barrier);
}
