/*
 * Warnings of a run that leaves its way: a value far above those of the steps before it.
 *
 * The mean and the standard deviation are those of the last steps, at most OUTLIER_WINDOW, and the new
 * value is compared before it joins them. Falling is no reason to warn.
 */
#ifndef CVN_TRAIN_OUTLIER_H
#define CVN_TRAIN_OUTLIER_H

#include <stdbool.h>

enum { OUTLIER_WINDOW = 128, OUTLIER_LEAST = 32 };

typedef struct Outlier {
    double value[OUTLIER_WINDOW]; /* ring of the last n */
    int n, next;
} Outlier;

/* Whether x is more than 6 standard deviations above the mean of at least OUTLIER_LEAST values before it;
 * *mean is set then. What is not finite is neither. */
bool outlier_add(Outlier *o, double x, double *mean);

#endif
