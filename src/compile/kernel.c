/* Which kernel an operation gets, and the one thing that kernels call back for. */
#include "compile/kernel.h"

const Kernel *kernel_find(const KernelSet *backend, const Op *op)
{
    for (int i = 0; i < backend->n_kernels; i++) {
        const Kernel *kernel = backend->kernel[i];
        if (kernel->kind == op->kind && (!kernel->match || kernel->match(op)))
            return kernel;
    }
    return NULL;
}

bool kernel_fuses(const KernelSet *backend, const Op *op, KernelFuses what)
{
    const Kernel *kernel = kernel_find(backend, op);
    return kernel && kernel->fuses & what;
}

void kernel_sync(const KernelArgs *args)
{
    if (args->n_threads > 1)
        barrier_wait(args->barrier);
}
