#include "model/sample.h"

#include "graph/signature.h"
#include "graph/steps.h"

#include <math.h>

static cvn_value *input(cvn_graph *g, Role role, const char *name, cvn_type type)
{
    return graph_role(cvn_parameter(g, name, type), role, 0);
}

cvn_value *sample_tokens(cvn_graph *g, SampleMode mode, cvn_value *logits, cvn_value *position)
{
    const cvn_type *shape = cvn_value_type(logits);
    int64_t batch = shape->dim[0];
    if (mode == SAMPLE_GREEDY)
        return cvn_argmax(g, logits, 1);
    cvn_value *temperature = input(g, ROLE_TEMPERATURE, "temperature", CVN_TYPE(CVN_F32, batch));
    cvn_value *key = input(g, ROLE_KEY, "key", CVN_TYPE(CVN_U32, batch, 2));
    cvn_value *greedy = cvn_compare_values(g, CVN_LE, temperature, like(g, temperature, 0));
    cvn_value *divisor = cvn_select(g, greedy, like(g, temperature, 1), temperature);
    cvn_value *scaled = cvn_divide(g, logits, along_rows(g, divisor, shape));
    cvn_type row = CVN_TYPE(CVN_F32, batch), row_int = CVN_TYPE(CVN_I32, batch);
    cvn_value *top_k = input(g, ROLE_TOP_K, "top_k", row_int);
    cvn_value *top_p = input(g, ROLE_TOP_P, "top_p", row);
    cvn_value *min_p = input(g, ROLE_MIN_P, "min_p", row);
    scaled = cvn_keep_likeliest(g, scaled, top_k, top_p, min_p);
    return cvn_categorical(g, scaled, greedy, key, position);
}

cvn_value *sample_bias(cvn_graph *g, cvn_value *logits)
{
    cvn_value *bias = input(g, ROLE_BIAS, "bias", with_dtype(*cvn_value_type(logits), CVN_F32));
    cvn_value *mask = input(g, ROLE_MASK, "mask", with_dtype(*cvn_value_type(logits), CVN_BOOL));
    logits = cvn_add(g, logits, bias);
    return cvn_select(g, mask, logits, like(g, logits, -INFINITY));
}

cvn_value *sample_penalty(cvn_graph *g, cvn_value *logits)
{
    const cvn_type *shape = cvn_value_type(logits);
    cvn_value *penalty = input(g, ROLE_PENALTY, "penalty", CVN_TYPE(CVN_F32, shape->dim[0]));
    cvn_value *seen = input(g, ROLE_SEEN, "seen", with_dtype(*shape, CVN_BOOL));
    penalty = along_rows(g, penalty, shape);
    cvn_value *positive = cvn_compare_values(g, CVN_GT, logits, like(g, logits, 0));
    cvn_value *divided = cvn_divide(g, logits, penalty);
    cvn_value *less = cvn_select(g, positive, divided, cvn_multiply(g, logits, penalty));
    return cvn_select(g, seen, less, logits);
}
