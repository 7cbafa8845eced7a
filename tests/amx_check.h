/* What tests of kernels of AMX share: which machines and compilers they are for. Programs of this name are linked with
   amx_trap.h, so that the kernels' own machine code runs on machines without AMX, too. */
#ifndef CVN_TESTS_AMX_CHECK_H
#define CVN_TESTS_AMX_CHECK_H

#include "kernel_check.h"

static inline void needs_amx(void)
{
    if (!cpu_kernels_of(CPU_ISA_AMX)) {
        print_message(
            "what is around the tiles needs AVX-512 with bf16, which this machine lacks\n");
        skip();
    }
}

/* All that is left of main where the kernels are not built. */
static inline int amx_is_unknown(void)
{
    print_message("this compiler does not know AMX: skipped\n");
    return 0;
}

#endif
