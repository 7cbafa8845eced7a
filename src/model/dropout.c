#include "model/dropout.h"

#include "graph/dropout.h"
#include "graph/graph.h"

#define G CVN_HERE(g)

cvn_value *dropout(cvn_graph *g, cvn_value *x, const ModelDropout *d, double rate, int64_t site)
{
    const cvn_type *shape = cvn_value_type(x);
    int64_t place[CVN_MAX_RANK] = {0}, head[CVN_MAX_RANK] = {0}, stride = 1;
    if (!d->key || rate <= 0)
        return x;
    for (int i = shape->rank - 1; i > 0; stride *= shape->dim[i--])
        place[i] = stride;
    return dropout_places(G, x, d->key, rate, site, place, head);
}
