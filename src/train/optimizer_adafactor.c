/*
 * Adafactor without momentum (algorithms 4 and 5 of arXiv:1804.04235), as transformers computes it.
 *
 *   d  = 1 - t^-0.8
 *   matrices:  R = d R + (1 - d) mean over columns of (g^2 + 1e-30),   C likewise over rows
 *              u = g / sqrt(R C / mean(R))
 *   vectors:   V = d V + (1 - d) (g^2 + 1e-30),   u = g / sqrt(V)
 *   u = u / max(1, rms(u))                        clipping at d = 1
 *   a = max(1e-3, rms(w)) rho                     rho: the schedule's rate, or min(0.01, 1 / sqrt(t))
 *   w = w - a decay w - a u
 *
 * Scalars: rho, d, 1 - d.
 */
#include "train/optimizer.h"

#include <math.h>

static const double square_floor = 1e-30, scale_floor = 1e-3, decay_power = -0.8;

/* The logical axes that are columns in the file's matrix: the last, and with it what it was merged with. */
static int first_column_axis(const Param *param)
{
    int axis = param->rank - 1;
    while (axis > 0 && param->axis[axis] == AXIS_HEAD_DIM)
        axis--;
    return axis;
}

int optimizer_adafactor_slots(const Param *param, OptimizerSlot slot[OPTIMIZER_MAX_SLOTS])
{
    if (param->file_rank < 2) {
        slot[0] = (OptimizerSlot){"exp_avg_sq", cvn_type_make(CVN_F32, param->rank, param->dims)};
        return 1;
    }
    int columns = first_column_axis(param);
    slot[0] = (OptimizerSlot){"exp_avg_sq_row", cvn_type_make(CVN_F32, columns, param->dims)};
    slot[1] = (OptimizerSlot){"exp_avg_sq_col",
                              cvn_type_make(CVN_F32, param->rank - columns, param->dims + columns)};
    return 2;
}

void optimizer_adafactor_scalars(const OptimizerOptions *options, int64_t t, double factor,
                                 float *out)
{
    double rate = options->lr > 0 ? options->lr : fmin(1e-2, 1 / sqrt((double)t));
    double decay = 1 - pow((double)t, decay_power);
    out[0] = (float)(rate * factor);
    out[1] = (float)decay;
    out[2] = (float)(1 - decay);
}

/* decay * old + (1 - decay) * new */
static cvn_value *average(const OptimizerUpdate *u, cvn_value *old, cvn_value *new)
{
    cvn_graph *g = u->g;
    const cvn_type *type = cvn_value_type(old);
    cvn_value *kept = cvn_multiply(g, old, cvn_broadcast_to(g, u->scalar[1], type));
    return cvn_add(g, kept, cvn_multiply(g, new, cvn_broadcast_to(g, u->scalar[2], type)));
}

/* Mean over the axes first … first + n - 1; the last is summed first. */
static cvn_value *mean_over(cvn_graph *g, cvn_value *x, int first, int n)
{
    double count = 1;
    for (int axis = first + n - 1; axis >= first; axis--) {
        count *= (double)cvn_value_type(x)->dim[axis];
        x = cvn_reduce_dims(g, CVN_SUM, x, 1, &axis);
    }
    return cvn_multiply(g, x, cvn_splat(g, *cvn_value_type(x), 1 / count));
}

/* Stretches x over `type`, of which its axes are those from `first` on. */
static cvn_value *spread(cvn_graph *g, cvn_value *x, const cvn_type *type, int first)
{
    int dims[CVN_MAX_RANK];
    for (int i = 0; i < cvn_value_type(x)->rank; i++)
        dims[i] = first + i;
    return cvn_broadcast_in_dim(g, x, *type, dims);
}

/* Divides the gradient by the root of its averaged square, which is kept by rows and columns. */
static cvn_value *factored(OptimizerUpdate *u, cvn_value *square)
{
    cvn_graph *g = u->g;
    const cvn_type *type = cvn_value_type(u->weight);
    int columns = first_column_axis(u->param);
    cvn_value *row = average(u, u->state[0], mean_over(g, square, columns, type->rank - columns));
    cvn_value *column = average(u, u->state[1], mean_over(g, square, 0, columns));
    cvn_value *mean = mean_over(g, row, 0, columns);
    u->new_state[0] = row;
    u->new_state[1] = column;
    row = cvn_rsqrt(g, cvn_divide(g, row, cvn_broadcast_to(g, mean, cvn_value_type(row))));
    cvn_value *scale = spread(g, row, type, 0);
    scale = cvn_multiply(g, scale, spread(g, cvn_rsqrt(g, column), type, columns));
    return cvn_multiply(g, scale, u->gradient);
}

void optimizer_adafactor_update(OptimizerUpdate *u)
{
    cvn_graph *g = u->g;
    const cvn_type *type = cvn_value_type(u->weight);
    cvn_value *one = cvn_splat(g, cvn_scalar(CVN_F32), 1);
    cvn_value *square = cvn_multiply(g, u->gradient, u->gradient);
    square = cvn_add(g, square, cvn_splat(g, *type, square_floor));
    bool matrix = u->param->file_rank > 1;
    if (!matrix)
        u->new_state[0] = average(u, u->state[0], square);
    cvn_value *step =
        matrix ? factored(u, square) : cvn_multiply(g, cvn_rsqrt(g, u->new_state[0]), u->gradient);
    cvn_value *scale = optimizer_rms(g, u->weight);
    scale = cvn_maximum(g, scale, cvn_splat(g, cvn_scalar(CVN_F32), scale_floor));
    cvn_value *rate = cvn_multiply(g, u->scalar[0], scale);
    cvn_value *clipped = cvn_divide(g, rate, cvn_maximum(g, optimizer_rms(g, step), one));
    step = cvn_multiply(g, step, cvn_broadcast_to(g, clipped, type));
    cvn_value *w = u->weight;
    if (u->options->weight_decay > 0 && matrix) {
        cvn_value *decay = cvn_splat(g, cvn_scalar(CVN_F32), u->options->weight_decay);
        cvn_value *keep = cvn_subtract(g, one, cvn_multiply(g, rate, decay));
        w = cvn_multiply(g, w, cvn_broadcast_to(g, keep, type));
    }
    u->new_weight = cvn_subtract(g, w, step);
}
