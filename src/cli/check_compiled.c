#include "cli/check_compiled.h"

#include "run/backend.h"

#include <stdio.h>
#include <string.h>

/* The names that compilers have for chips of `caravan chips`; dims: of what a topology is written in. */
static const struct {
    const char *chip, *compiler;
    int dims;
} known[] = {{"v4", "v4", 3},         {"v5e", "v5e", 2},       {"v5p", "v5", 3},
             {"v6e", "v6e", 2},       {"a100_sxm", "a100", 1}, {"a100_sxm_40", "a100", 1},
             {"h100_sxm", "h100", 1}, {"h200_sxm", "h200", 1}};

/* As compactly as powers of two lie: 8 chips are 2x4, or 2x2x2. */
static int topology_of(const Chip *chip, int n, char *out, size_t size, cvn_err *err)
{
    size_t i = 0, count = sizeof known / sizeof *known;
    while (i < count && strcmp(known[i].chip, chip->name) != 0)
        i++;
    if (i == count)
        return err_set(err, CVN_EUNSUPPORTED, "--check: there is no compiler for %s", chip->name);
    if (known[i].dims == 1) {
        snprintf(out, size, "%s:%d", known[i].compiler, n);
        return CVN_OK;
    }
    if (n & (n - 1))
        return err_set(err, CVN_EUNSUPPORTED,
                       "--check: topologies of %s are powers of two; the mesh has %d devices",
                       chip->name, n);
    int side[3] = {1, 1, 1};
    for (int k = 0; n >> (k + 1); k++)
        side[known[i].dims == 2 ? 1 - k % 2 : k < 3 ? k : 2 - k % 3] *= 2;
    if (known[i].dims == 2)
        snprintf(out, size, "%s:%dx%d", known[i].compiler, side[0], side[1]);
    else
        snprintf(out, size, "%s:%dx%dx%d", known[i].compiler, side[0], side[1], side[2]);
    return CVN_OK;
}

int check_compiled(const SimAsk *ask, const char *device, int n_devices, CheckedStep *out,
                   cvn_err *err)
{
    char topology[64];
    SimAsk other = *ask;
    SCOPED(sim_answer_free) SimAnswer answer = {0};
    other.name = device;
    other.spans = false;
    other.clock = NULL;
    TRY(topology_of(ask->chip, n_devices, topology, sizeof topology, err));
    TRY(backend_find(device, &other.device, err));
    if (other.device == ask->device)
        return err_set(err, CVN_EINVAL, "--check takes tpu, cuda or pjrt:PLUGIN");
    other.topology = topology;
    TRY(sim_plan(&other, &answer, err));
    const Compiled *c = answer.compiled;
    if (!c)
        return err_set(err, CVN_EUNSUPPORTED,
                       "--check: %s reports no statistics of the compiled program", device);
    *out = (CheckedStep){.peak = (double)c->peak,
                         .cycles = c->cycles,
                         .seconds = c->clock > 0 ? c->cycles / c->clock : 0,
                         .took = answer.seconds};
    return CVN_OK;
}
