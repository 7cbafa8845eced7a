/* caravan chips: what is known of chips that simulate can be asked about. */
#include "base/json_file.h"
#include "cli/common.h"
#include "cli/terminal.h"
#include "sim/chip.h"

enum { JSON };

static const Option *const options[] = {[JSON] = SHARED(JSON), NULL};

static int run(const Args *args, cvn_err *err)
{
    const char *name = args->n_operands > 0 ? args->operand[0] : NULL;
    if (name && !chip_find(name))
        return err_set(err, CVN_EINVAL, "unknown chip \"%s\"; `caravan chips` lists them", name);
    if (args->value[JSON].flag && name)
        return print_json(chip_json(chip_find(name)), err);
    if (args->value[JSON].flag) {
        json_t *list = json_array();
        for (size_t i = 0; i < chips_count(); i++)
            list = json_append(list, chip_json(chip_at(i)));
        return print_json(list, err);
    }
    printf("%-12s %6s %6s %6s %6s %6s %7s  %-8s %6s %6s %5s  %6s %7s\n", "chip", "bf16", "int8",
           "fp8", "fp4", "GB", "GB/s", "links", "GB/s", "reach", "net", "$/h", "3 years");
    for (size_t i = 0; i < chips_count(); i++) {
        const Chip *c = chip_at(i);
        if (name && c != chip_find(name))
            continue;
        const double peaks[] = {c->bf16, c->int8, c->fp8, c->fp4};
        printf("%-12s", c->name);
        for (int k = 0; k < 4; k++)
            peaks[k] > 0 ? printf(" %6.0f", peaks[k] / 1e12) : printf("      -");
        printf(" %6.0f %7.0f  ", c->memory / 1e9, c->bandwidth / 1e9);
        c->torus ? printf("torus %dD", c->torus) : printf("switch  ");
        printf(" %6.0f %6.0f %5.1f  ", c->link / 1e9, c->domain, c->net / 1e9);
        c->price > 0 ? printf("%6.2f ", c->price) : printf("     - ");
        c->committed > 0 ? printf("%7.2f  ", c->committed) : printf("      -  ");
        printf("%s\n", c->about);
    }
    printf("\nTFLOP/s of dense numbers; links and net: bytes sent by a chip, each way; $/h: list "
           "prices of large clouds, on demand\nand committed for three years.\n--json has clocks, "
           "latencies, whose prices they "
           "are and of when, and all other sources.\n");
    return EXIT_OK;
}

const Command command_chips = {
    "chips",
    .about = "list the chips that simulate supports",
    .usage = "[NAME] [options]",
    .examples = "chips\tpeak FLOP/s, memory and interconnect\n"
                "chips --json\tall data, with sources\n"
                "chips v5e --json >mine.json\ta template for simulate --chip mine.json\n",
    .operands = "NAME",
    .max_operands = 1,
    .options = options,
    .run = run,
};
