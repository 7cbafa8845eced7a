#include "train/outlier.h"

#include <math.h>

static const double most_deviations = 6;

bool outlier_add(Outlier *o, double x, double *mean)
{
    if (!isfinite(x))
        return false;
    double sum = 0, square = 0;
    for (int i = 0; i < o->n; i++)
        sum += o->value[i];
    double m = o->n ? sum / o->n : 0;
    for (int i = 0; i < o->n; i++)
        square += (o->value[i] - m) * (o->value[i] - m);
    double deviation = o->n ? sqrt(square / o->n) : 0;
    /* A hundredth of the mean keeps a curve that is flat from warning of nothing. */
    double limit = m + most_deviations * fmax(deviation, fabs(m) / 100);
    bool far = o->n >= OUTLIER_LEAST && x > limit;
    *mean = m;
    o->value[o->next] = x;
    o->next = (o->next + 1) % OUTLIER_WINDOW;
    o->n += o->n < OUTLIER_WINDOW;
    return far;
}
