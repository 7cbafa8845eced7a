/*
 * Calibrated rounding: the numbers of a quantized matrix are chosen so that its products with the inputs that it meets change
 * least, not its elements.
 *
 * Of inputs x, one for each token, a matrix need only know the sums H = sum x x^T [columns, columns]: what rounding w to v
 * changes in the squared products of a row is e H e^T, with e = w - v. With H = U^T D U, U of ones on its diagonal and zeros
 * below it,
 *
 *     e H e^T = sum over j of D_j (e_j + sum over i > j of U_ji e_i)^2
 *
 * so that columns are rounded from the last to the first, each to what is nearest to w_j + sum over i > j of U_ji e_i: errors that
 * were made are made good by what is still to be rounded. That is GPTQ (Frantar et al. 2022, arXiv:2210.17323) in the form that QuIP
 * (Chee et al. 2023, arXiv:2307.13304) gives it. The columns whose inputs are largest are rounded first. A share of the mean of
 * the diagonal is added to it, so that U exists however few tokens there were.
 *
 * What follows is descent: in turns each group's scale, and each number, is set to what is best while all others stay,
 * which never adds to e H e^T.
 */
#ifndef CVN_CALIBRATE_ROUND_H
#define CVN_CALIBRATE_ROUND_H

#include "base/threads.h"
#include "model/quantize.h"

/* What all matrices of the same inputs share. */
typedef struct RoundInputs {
    int64_t n;      /* columns */
    float *sums;    /* [n, n] H, rows and columns in `order`; owned */
    float *upper;   /* [n, n] U, above its diagonal; owned */
    int32_t *order; /* [n] the column that stands at each place; owned */
} RoundInputs;

/* sums [n, n]: H as it was added up. */
int inputs_open(RoundInputs *inputs, const float *sums, int64_t n, Pool *pool, cvn_err *err);
/* Safe on {0}. */
void inputs_close(RoundInputs *inputs);

/* Rounds w [form->n, form->k] to 4 bits: q and scale as in model/quantize.h. Same numbers for any number of threads. */
int round_matrix(const RoundInputs *inputs, const QuantForm *form, const float *w, uint8_t *q,
                 uint16_t *scale, Pool *pool, cvn_err *err);

/* e H e^T, summed over rows, of what q and scale make of w. */
double round_error(const RoundInputs *inputs, const QuantForm *form, const float *w,
                   const uint8_t *q, const uint16_t *scale);

#endif
