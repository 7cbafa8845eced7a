/*
 * Muon (Jordan 2024, kellerjordan.github.io/posts/muon), as torch.optim.Muon computes it: a matrix moves by the orthogonal
 * matrix that is nearest to its momentum. Only matrices of the layers do; embedding, head, norms and biases follow AdamW.
 *
 *   m = m + (1 - momentum) (g - m)
 *   X = g + momentum (m - g)                          Nesterov
 *   X = X / |X|,  5 times  X = a X + (b G + c G G) X  with G = X X^T: all singular values come near to 1
 *   w = w (1 - lr decay) - lr 0.2 sqrt(max(rows, columns)) X
 *
 * The last factor makes steps as long as AdamW's (Liu et al. 2025, arXiv:2502.16982, section 2.2; "match_rms_adamw" in
 * torch), so that one learning rate serves both. A weight of experts is a stack of matrices, each of which moves as it would
 * alone. Products take what the step's products take, and are summed in f32.
 */
#include "train/optimizer.h"

#include <math.h>

static const double coefficient[] = {3.4445, -4.7750, 2.0315}; /* Jordan's, for 5 iterations */
static const double length_floor = 1e-7, adamw_rms = 0.2;
enum { ITERATIONS = 5 };

static bool takes(const Param *param)
{
    return param->file_rank == 2 && param->kind != PARAM_EMBED && param->kind != PARAM_LM_HEAD;
}

int optimizer_muon_slots(const Param *param, OptimizerSlot slot[OPTIMIZER_MAX_SLOTS])
{
    if (!takes(param))
        return optimizer_adamw_slots(param, slot);
    slot[0] = (OptimizerSlot){"momentum_buffer", cvn_type_make(CVN_F32, param->rank, param->dims)};
    return 1;
}

/* Interpolates: x + t (y - x). */
static cvn_value *between(cvn_graph *g, cvn_value *x, cvn_value *y, double t)
{
    cvn_value *way = cvn_subtract(g, y, x);
    return cvn_add(g, x, cvn_multiply(g, way, cvn_splat(g, *cvn_value_type(way), t)));
}

static cvn_value *times(cvn_graph *g, cvn_value *x, double factor)
{
    return cvn_multiply(g, x, cvn_splat(g, *cvn_value_type(x), factor));
}

static cvn_value *matmul(const OptimizerUpdate *u, const char *equation, cvn_value *x, cvn_value *y)
{
    cvn_value *l = cvn_convert(u->g, x, u->compute);
    cvn_value *r = cvn_convert(u->g, y, u->compute);
    return cvn_einsum_as(u->g, equation, l, r, CVN_F32);
}

/* Brings the singular values of x [rows, columns] near 1. The Gram matrix is that of the shorter side. */
static cvn_value *orthogonal(const OptimizerUpdate *u, cvn_value *x)
{
    cvn_graph *g = u->g;
    const cvn_type *type = cvn_value_type(x);
    bool wide = type->dim[0] <= type->dim[1];
    cvn_value *length = cvn_sqrt(g, optimizer_sum_of_squares(g, x));
    length = cvn_maximum(g, length, cvn_splat(g, cvn_scalar(CVN_F32), length_floor));
    x = cvn_divide(g, x, cvn_broadcast_to(g, length, type));
    for (int i = 0; i < ITERATIONS; i++) {
        cvn_value *gram = matmul(u, wide ? "ik,jk->ij" : "ki,kj->ij", x, x);
        cvn_value *square = matmul(u, "ik,kj->ij", gram, gram);
        cvn_value *sum = times(g, gram, coefficient[1]);
        sum = cvn_add(g, sum, times(g, square, coefficient[2]));
        cvn_value *rest = wide ? matmul(u, "ik,kj->ij", sum, x) : matmul(u, "ik,kj->ij", x, sum);
        x = cvn_add(g, rest, times(g, x, coefficient[0]));
    }
    return x;
}

/* Brings the singular values of each of the matrices x [matrices, rows, columns] near 1. The Gram matrix is that of the shorter side. */
static cvn_value *orthogonal_stack(const OptimizerUpdate *u, cvn_value *x)
{
    cvn_graph *g = u->g;
    const cvn_type type = *cvn_value_type(x);
    const bool wide = type.dim[1] <= type.dim[2];
    cvn_value *length = cvn_reduce_dims(g, CVN_SUM, cvn_multiply(g, x, x), 1, (int[]){2});
    length = cvn_sqrt(g, cvn_reduce_dims(g, CVN_SUM, length, 1, (int[]){1}));
    length = cvn_maximum(g, length, cvn_splat(g, *cvn_value_type(length), length_floor));
    x = cvn_divide(g, x, cvn_broadcast_in_dim(g, length, type, (int[]){0}));
    for (int i = 0; i < ITERATIONS; i++) {
        cvn_value *gram = matmul(u, wide ? "eik,ejk->eij" : "eki,ekj->eij", x, x);
        cvn_value *square = matmul(u, "eik,ekj->eij", gram, gram);
        cvn_value *sum = times(g, gram, coefficient[1]);
        sum = cvn_add(g, sum, times(g, square, coefficient[2]));
        cvn_value *rest =
            wide ? matmul(u, "eik,ekj->eij", sum, x) : matmul(u, "eik,ekj->eij", x, sum);
        x = cvn_add(g, rest, times(g, x, coefficient[0]));
    }
    return x;
}

void optimizer_muon_update(OptimizerUpdate *u)
{
    cvn_graph *g = u->g;
    const OptimizerOptions *o = u->options;
    const Param *p = u->param;
    if (!takes(p)) {
        optimizer_adamw_update(u);
        return;
    }
    cvn_value *m = between(g, u->state[0], u->gradient, 1 - o->momentum);
    cvn_value *x = between(g, u->gradient, m, o->momentum);
    const int64_t rows = p->file_dims[0] / (p->experts ? p->experts : 1), columns = p->file_dims[1];
    x = p->experts
            ? orthogonal_stack(u, cvn_reshape(g, x, 3, (int64_t[]){p->experts, rows, columns}))
            : orthogonal(u, cvn_reshape(g, x, 2, p->file_dims));
    x = cvn_reshape(g, x, p->rank, p->dims);
    double scale = adamw_rms * sqrt(fmax((double)rows, (double)columns));
    const cvn_type *type = cvn_value_type(u->weight);
    cvn_value *rate = cvn_broadcast_to(g, times(g, u->scalar[0], scale), type);
    cvn_value *w = optimizer_decayed(u);
    u->new_weight = cvn_subtract(g, w, cvn_multiply(g, rate, x));
    u->new_state[0] = m;
}
