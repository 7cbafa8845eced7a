/* Visits the values that a schema leads to, so that what is not supported is refused when the constraint is made and not later. */
#ifndef CVN_CONSTRAIN_EXPLORE_H
#define CVN_CONSTRAIN_EXPLORE_H

#include "constrain/formula.h"

enum { EXPLORE_VALUES = 4000 }; /* formulas of values that are looked at */

void explore(Solver *e, Formula f);

#endif
