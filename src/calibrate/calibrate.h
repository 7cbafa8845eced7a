/*
 * Calibration: a model's matrices in 4 bits, rounded by what enters them (round.h).
 *
 * A text goes through the model layer by layer. What enters the matrices of a layer is what the layers before it, quantized
 * already, make of the text, so that they make up for each other's errors; within a layer, likewise, o sees the quantized v, and down
 * the quantized gate and up. Of the inputs only the sums of products are kept, and of the model one layer:
 *
 *     states [tokens, dim]     of all tokens, between two layers
 *     weights                  of one layer, f32, those that are rounded being replaced
 *     sums [columns, columns]  of the inputs that are looked at, and their factor
 */
#ifndef CVN_CALIBRATE_CALIBRATE_H
#define CVN_CALIBRATE_CALIBRATE_H

#include "calibrate/layers.h"

typedef struct Calibration Calibration;

typedef struct CalibrationOptions {
    const IoModel *model; /* borrowed; opened, its matrices floats */
    /* [n] the text, at least two tokens; borrowed until calibration_open returns */
    const int32_t *id;
    int64_t n;
    QuantScheme scheme; /* int4, whose matrices may be chosen; none: only importance is wanted */
    int threads;        /* 0: as many as the machine has */
    const volatile int *interrupt;
} CalibrationOptions;

int calibration_open(Calibration **out, const CalibrationOptions *options, cvn_err *err);
/* NULL is allowed. */
void calibration_close(Calibration *c);

/* What enters a matrix of the model: [columns] the sums of squares (importance.h); NULL of what is no matrix. */
const float *calibration_importance(void *calibration, const Param *param);

/* The matrices that are kept in 8 bits where the weights of layers have so many bits each at most (importance.h). */
const bool *calibration_choose(const Calibration *c, QuantScheme scheme, double bits, Arena *arena);

/* The numbers and scales of a parameter of the quantized model, in the order of its table: first of layer 0, last of the head.
   `known`: they are there already, from an earlier attempt, and only looked at. */
int calibration_round(void *calibration, const Param *param, bool known, uint8_t *q, void *scale,
                      cvn_err *err);

#endif
