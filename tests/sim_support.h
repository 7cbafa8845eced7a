/* What tests of the simulator ask for: the shape of a preset, and how an engine serves it. */
#ifndef CVN_TESTS_SIM_SUPPORT_H
#define CVN_TESTS_SIM_SUPPORT_H

#include "model/presets.h"
#include "sim/serving.h"
#include "unit.h"

static inline SimShape shape_of(const char *preset)
{
    cvn_err err = {0};
    ModelShape shape;
    must(preset_shape(preset, &shape, &err), &err);
    return sim_shape_of(&shape);
}

static inline SimServing serving(CostModel *chip, const char *name, int tp)
{
    cost_model(chip, chip_find(name));
    return (SimServing){.chip = chip,
                        .shape = shape_of("llama3.1-8b"),
                        .engine = *sim_engine_find("vllm"),
                        .tp = tp,
                        .pp = 1,
                        .in_flight = 8,
                        .input = 512,
                        .output = 64};
}

#endif
