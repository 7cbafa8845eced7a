/* What tests of kernels on emulated AMX tiles share: which machines and compilers they are for. */
#ifndef CVN_TESTS_EMULATED_AMX_H
#define CVN_TESTS_EMULATED_AMX_H

#include "kernel_check.h"

/* Tiles are emulated; what is around them runs on the processor itself. */
static inline void needs_level(CpuIsa level, const char *name)
{
    if (!cpu_backend_of(level)) {
        print_message("what is around the tiles needs %s, which this machine lacks\n", name);
        skip();
    }
}

static inline void needs_avx512_bf16(void)
{
    needs_level(CPU_ISA_AVX512_BF16, "AVX-512 with bf16");
}

/* All that is left of main where the kernels are not built. */
static inline int amx_is_unknown(void)
{
    print_message("this compiler does not know AMX: skipped\n");
    return 0;
}

#endif
