/* caravan simulate: how long a model takes on chips that are not here. */
#include "base/json_file.h"
#include "cli/common.h"
#include "cli/terminal.h"
#include "sim/published.h"

enum { ROWS, JSON };

static const Option *const options[] = {
    [ROWS] = &(const Option){"rows", .kind = ARG_INPUT, .required = true, .group = 1,
                             .value = "FILE.csv",
                             .help = "serving as each row of a table says: id, model, system, "
                                     "precision, isl, osl, batch, tp, pp, "
                                     "backend"},
    [JSON] = SHARED(JSON),
    NULL,
};

static json_t *row_json(const Csv *csv, int64_t row)
{
    cvn_err err = {0};
    CostModel chip;
    SimServing ask;
    SimServed served;
    const char *id = csv_at(csv, row, "id");
    if (published_ask(csv, row, &ask, &chip, &err) || sim_serve(&ask, &served, &err))
        return json_pack("{s:s,s:s}", "id", id, "refused", err.message);
    return json_pack("{s:s,s:f,s:f}", "id", id, "ttft_ms", 1e3 * served.ttft, "tpot_ms",
                     1e3 * served.tpot);
}

static int answer_rows(const char *path, bool json)
{
    cvn_err err = {0};
    Arena arena;
    Csv csv;
    if (arena_init(&arena, &err))
        return fail(&err);
    int exit_code = csv_read(&csv, path, &arena, &err) ? fail(&err) : EXIT_OK;
    if (exit_code == EXIT_OK && !json)
        printf("%-10s %12s %12s\n", "row", "TTFT, ms", "TPOT, ms");
    for (int64_t i = 0; exit_code == EXIT_OK && i < csv.rows; i++) {
        json_t *o = row_json(&csv, i);
        if (json || !o) {
            exit_code = print_json(o);
            continue;
        }
        const char *refused = json_string_value(json_object_get(o, "refused"));
        if (refused)
            printf("%-10s refused: %s\n", csv_at(&csv, i, "id"), refused);
        else
            printf("%-10s %12.2f %12.3f\n", csv_at(&csv, i, "id"),
                   json_real_value(json_object_get(o, "ttft_ms")),
                   json_real_value(json_object_get(o, "tpot_ms")));
        json_decref(o);
    }
    arena_free(&arena);
    return exit_code;
}

static int run(const Args *args)
{
    return answer_rows(args->value[ROWS].text, args->value[JSON].flag);
}

const Command command_simulate = {
    "simulate",
    .about = "how long a model takes on chips that are not here",
    .usage = "--rows FILE.csv [options]",
    .examples = "simulate --rows published.csv --json\tserving as a table says, a line per row\n",
    .options = options,
    .run = run,
};
