/*
 * What takes the place of base/cpu.h's answers in programs that are to believe in an AMX (amx_trap.h); and of cpu/ceilings.h's:
 * measuring the peak of a unit that is not there takes minutes, so a round number is given.
 */
#include "amx_trap.h"
#include "base/cpu.h"
#include "cpu/ceilings.h"

#include <stdatomic.h>

uint32_t __real_cpu_features(void); /* NOLINT: these names are the linker's */
uint32_t __wrap_cpu_features(void); /* NOLINT */
bool __real_cpu_request_amx(void);  /* NOLINT */
bool __wrap_cpu_request_amx(void);  /* NOLINT */
double __real_peak_run(Pool *pool, cvn_dtype dtype, double seconds); /* NOLINT */
double __wrap_peak_run(Pool *pool, cvn_dtype dtype, double seconds); /* NOLINT */

/* Tiles are carried out by traps: set when kernels are chosen, before anything is run. */
static atomic_bool trapped;

uint32_t __wrap_cpu_features(void) /* NOLINT */
{
    const uint32_t tiles = 1u << CPU_AMX_TILE | 1u << CPU_AMX_BF16 | 1u << CPU_AMX_INT8;
    uint32_t features = __real_cpu_features();
    return features | (cpu_has(features, CPU_AVX512BW) ? tiles : 0);
}

bool __wrap_cpu_request_amx(void) /* NOLINT */
{
    bool native = __real_cpu_request_amx();
    trapped = !native && amx_trap_begin();
    return native || trapped;
}

double __wrap_peak_run(Pool *pool, cvn_dtype dtype, double seconds) /* NOLINT */
{
    const double round_number = 1e12;
    return trapped ? round_number : __real_peak_run(pool, dtype, seconds);
}
