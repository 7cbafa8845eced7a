/* Who gives the numbers of what is saved. */
#ifndef CVN_IO_SAVE_FILL_H
#define CVN_IO_SAVE_FILL_H

#include "model/params.h"

/* Gives elements first .. first+n-1 of a parameter, row-major in its logical shape, as f32. Called from
 * several threads at once, for different ranges. */
typedef int (*SaveFill)(void *context, const Param *param, int64_t first, int64_t n, float *out,
                        cvn_err *err);

#endif
