/*
 * Published measurements as questions: what was measured of whole models by others, and what is simulated of the same.
 *
 * A table of serving has the columns id, backend, backend_version, model, system, precision, gemm_quant, isl, osl, batch, tp, pp,
 * and where they are known ttft_ms and tpot_ms, which are not looked at to answer. `batch` requests are in flight on one replica
 * of tp x pp chips; an empty precision is bf16.
 *
 * Other tables say in words what was measured, in the columns id, kind, hardware, chips, model, parallelism, batch, seq, precision,
 * metric, value, unit, source, notes, and have one figure in each row: of training, prefills, decoding or serving.
 */
#ifndef CVN_SIM_PUBLISHED_H
#define CVN_SIM_PUBLISHED_H

#include "sim/csv.h"
#include "sim/serving.h"

/* The question that a row of serving puts; CVN_EUNSUPPORTED, with why, when it cannot be answered. The cost model is the
   caller's, filled in. */
int published_ask(const Csv *csv, int64_t row, SimServing *ask, CostModel *chip, cvn_err *err);

/* How such rows were measured: lengths, caches, the engine's options. versioned: the table names the engine's version. */
void published_protocol(SimServing *ask, bool versioned);

/* Of a table in words: what was printed, and the same simulated. */
typedef struct PublishedFigure {
    double published, simulated;
} PublishedFigure;

bool published_worded(const Csv *csv);
int published_figure(const Csv *csv, int64_t row, PublishedFigure *out, cvn_err *err);

/* Whether `batch` is what the row's client had in flight. It is not known to be of rows with a version and a date: those are of
   deployments (AIConfigurator's silicon_sample.csv, of which silicon.csv is a part, names their images), for which that table has
   another concurrency than the batch (416 for 13, 288 for 144, 2 for 1), or none, and does not say how many replicas shared it. */
bool published_clients_known(const Csv *csv, int64_t row);

#endif
