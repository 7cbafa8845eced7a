/*
 * Published measurements as questions: what was measured of whole models by others, and what is simulated of the same.
 *
 * A table of serving has the columns id, backend, backend_version, model, system, precision, gemm_quant, isl, osl, batch, tp, pp,
 * and where they are known ttft_ms and tpot_ms, which are not looked at to answer. `batch` requests are in flight on one replica
 * of tp x pp chips; an empty precision is bf16.
 */
#ifndef CVN_SIM_PUBLISHED_H
#define CVN_SIM_PUBLISHED_H

#include "sim/csv.h"
#include "sim/serving.h"

/* The question that a row of serving puts; CVN_EUNSUPPORTED, with why, when it cannot be answered. The cost model is the
   caller's, filled in. */
int published_ask(const Csv *csv, int64_t row, SimServing *ask, CostModel *chip, cvn_err *err);

#endif
