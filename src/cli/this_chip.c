#include "cli/this_chip.h"

#include "cpu/ceilings.h"
#include "cpu/steps.h"

#include <unistd.h>

int this_chip(Chip *chip, cvn_err *err)
{
    ReadProbe *probe = NULL;
    Pool *pool = pool_new(threads_available(), err);
    int code = pool ? read_probe_new(pool, &probe, err) : err->code;
    if (code == CVN_OK) {
        double reads = read_probe_run(probe, 0.3);
        *chip = (Chip){"this",
                       .about = "this machine, measured now",
                       .source = "measured: plain reads, and multiply-adds",
                       .bf16 = peak_run(pool, CVN_BF16, 0.2),
                       .int8 = peak_run(pool, CVN_I8, 0.2),
                       .memory = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE),
                       .bandwidth = reads,
                       .domain = threads_available(),
                       .link = reads / 2, /* what one reads, another has written */
                       .latency = 1e-6,
                       .net = 1e9,
                       .net_latency = 50e-6};
    }
    read_probe_free(probe);
    pool_free(pool);
    return code;
}

int this_clock(void *devices, const Plan *plan, int32_t at, double *seconds, cvn_err *err)
{
    return steps_measure(plan, *(const int *)devices, at, seconds, err);
}
