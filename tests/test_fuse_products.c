/*
 * What products, sums, norms and losses take over from the operations beside them, and what is made again instead of kept:
 * fewer steps and fewer bytes, the same bits.
 */
#include "fuse_support.h"

#include "grad/grad.h"
#include "train/optimizer.h"

#include <math.h>

static KernelSet plain;

static int make_plain(void **state)
{
    plain = plain_of(cpu_kernels());
    return 0;
}

/* Along rows, down columns, and of all: without a step for the squares. */
static void a_sum_of_squares_has_no_step_of_products(void **state)
{
    static const int dims[] = {1, 0, 1}; /* {1}, {0}, {0, 1} */
    for (int i = 0; i < 3; i++) {
        cvn_graph *g = cvn_graph_new("squares", NULL);
        cvn_value *x = cvn_parameter(g, "x", CVN_TYPE(CVN_F32, 67, 129));
        cvn_output(g,
                   cvn_reduce_dims(g, CVN_SUM, cvn_multiply(g, x, x), 1 + i / 2, dims + (i > 0)));
        Ran apart = run(g, &plain, 2), joined = run(g, cpu_kernels(), 3);
        assert_int_equal(joined.n_steps, apart.n_steps - 1);
        assert_memory_equal(apart.data, joined.data, joined.bytes);
        free(apart.data);
        free(joined.data);
        cvn_graph_free(g);
    }
}

/* x [tokens, dim] times w [rows, dim], as a training step keeps it: rounded, read in f32. */
static cvn_value *kept_product(cvn_graph *g, cvn_value *x, cvn_value *w)
{
    cvn_value *y = cvn_einsum_as(g, "td,fd->tf", x, cvn_convert(g, w, CVN_BF16), CVN_F32);
    return cvn_convert(g, cvn_convert(g, y, CVN_BF16), CVN_F32);
}

/* SwiGLU of tokens, and the gradients of what it is made of. */
static cvn_graph *swiglu_graph(int64_t tokens, int64_t dim, int64_t ffn)
{
    cvn_graph *g = cvn_graph_new("swiglu", NULL);
    cvn_value *w[] = {cvn_parameter(g, "x", CVN_TYPE(CVN_F32, tokens, dim)),
                      cvn_parameter(g, "gate", CVN_TYPE(CVN_F32, ffn, dim)),
                      cvn_parameter(g, "up", CVN_TYPE(CVN_F32, ffn, dim)),
                      cvn_parameter(g, "down", CVN_TYPE(CVN_F32, dim, ffn))};
    cvn_value *x = cvn_convert(g, w[0], CVN_BF16), *dw[4];
    cvn_value *gate = kept_product(g, x, w[1]), *up = kept_product(g, x, w[2]);
    cvn_value *silu = cvn_multiply(g, gate, cvn_logistic(g, gate));
    cvn_value *inner = cvn_convert(g, cvn_multiply(g, silu, up), CVN_BF16);
    cvn_value *y = cvn_einsum_as(g, "tf,df->td", inner, cvn_convert(g, w[3], CVN_BF16), CVN_F32);
    cvn_value *loss = cvn_reduce_dims(g, CVN_SUM, cvn_multiply(g, y, y), 2, (const int[]){0, 1});
    assert_int_equal(graph_gradient(g, loss, 4, w, dw, NULL), CVN_OK);
    for (int i = 0; i < 4; i++)
        cvn_output(g, dw[i]);
    return g;
}

/* SwiGLU and its gradient: neither pass writes floats of all tokens and channels, nor keeps any for the other. */
static void what_is_kept_for_the_backward_pass_is_the_products(void **state)
{
    enum { TOKENS = 40, DIM = 24, FFN = 264 };
    for (int threads = 1; threads <= 3; threads++) {
        cvn_graph *g = swiglu_graph(TOKENS, DIM, FFN);
        Ran apart = run(g, &plain, threads), fused = run(g, cpu_kernels(), threads);
        assert_memory_equal(apart.data, fused.data, fused.bytes);
        assert_int_equal(apart.floats, TOKENS * FFN);
        assert_int_equal(fused.floats, FFN * DIM);
        assert_true(fused.n_epilogues >= 2); /* columns are no multiple of a vector */
        free(apart.data);
        free(fused.data);
        cvn_graph_free(g);
    }
}

static void two_epilogues(const void *context, const char *isa, const Ran *apart, const Ran *fused)
{
    const int64_t *tokens = context;
    assert_int_equal(apart->n_epilogues, 0);
    if (fused->n_epilogues < 2 && *tokens >= 32)
        fail_msg("%s: %d products have epilogues", isa, fused->n_epilogues);
}

/* SwiGLU and its gradient are made of the sums of products, on every instruction set, with the same bits, whatever tiles and
   threads are left over; few rows are products of another kind. */
static void elementwise_operations_are_the_epilogue_of_a_product(void **state)
{
    static const struct {
        int64_t tokens, dim, ffn;
    } shapes[] = {{40, 24, 272}, {131, 40, 528}, {50, 800, 112}, {7, 24, 1008}};
    for (int i = 0; i < 4; i++) {
        cvn_graph *g = swiglu_graph(shapes[i].tokens, shapes[i].dim, shapes[i].ffn);
        check_fused(g, two_epilogues, &shapes[i].tokens);
        cvn_graph_free(g);
    }
}

/* What something else than fusions reads late, or the caller, is not computed again. */
static void what_lies_in_memory_anyway_is_computed_once(void **state)
{
    for (int i = 0; i < 3; i++) {
        cvn_graph *g = cvn_graph_new("once", NULL);
        cvn_value *x = cvn_parameter(g, "x", CVN_TYPE(CVN_F32, 72, 72));
        cvn_value *a = cvn_add(g, x, x), *b = cvn_exponential(g, a);
        cvn_value *c = cvn_einsum_as(g, "ab,cb->ac", b, a, CVN_F32);
        cvn_value *d =
            i == 0 ? cvn_multiply(g, c, b) : cvn_einsum_as(g, "ab,cb->ac", c, b, CVN_F32);
        cvn_output(g, cvn_multiply(g, cvn_multiply(g, d, a), b));
        if (i == 2)
            cvn_output(g, b);
        Ran apart = run(g, &plain, 2), fused = run(g, cpu_kernels(), 2);
        assert_memory_equal(apart.data, fused.data, fused.bytes);
        assert_int_equal(fused.n_steps, i == 0 ? 2 : 3);
        free(apart.data);
        free(fused.data);
        cvn_graph_free(g);
    }
}

static void fewer_steps(const void *context, const char *isa, const Ran *apart, const Ran *fused)
{
    if (apart->n_steps - fused->n_steps != *(const int *)context)
        fail_msg("%s: %d steps instead of %d", isa, fused->n_steps, apart->n_steps);
}

/* The same bits, and `fewer` steps less. */
static void the_same_in_fewer_steps(const cvn_graph *g, int fewer)
{
    check_fused(g, fewer_steps, &fewer);
}

/* A residual in f32; and gradients in bf16, of which each sum is rounded: whichever comes first. */
static void sums_of_products_are_made_as_they_are_written(void **state)
{
    enum { TOKENS = 45, DIM = 50 };
    cvn_graph *g = cvn_graph_new("sums", NULL);
    cvn_value *x = cvn_parameter(g, "x", CVN_TYPE(CVN_F32, TOKENS, DIM)), *dot[4];
    for (int i = 0; i < 4; i++) {
        char name[] = {'w', (char)('0' + i), 0};
        cvn_value *w = cvn_parameter(g, name, CVN_TYPE(CVN_F32, DIM, DIM));
        cvn_value *half = cvn_convert(g, i ? x : cvn_negate(g, x), CVN_BF16);
        dot[i] = cvn_einsum_as(g, "td,ed->te", half, cvn_convert(g, w, CVN_BF16),
                               i ? CVN_BF16 : CVN_F32);
    }
    cvn_output(g, cvn_add(g, x, dot[0]));
    cvn_output(g, cvn_add(g, cvn_add(g, dot[2], dot[1]), dot[3]));
    the_same_in_fewer_steps(g, 3);
    cvn_graph_free(g);

    g = cvn_graph_new(
        "apart", NULL); /* what something else reads, or added to itself, is not part of a sum */
    x = cvn_parameter(g, "x", CVN_TYPE(CVN_F32, TOKENS, DIM));
    cvn_value *y = cvn_einsum_as(g, "td,ed->te", x, x, CVN_F32);
    cvn_value *z = cvn_einsum_as(g, "td,ed->te", y, y, CVN_F32);
    cvn_output(g, cvn_add(g, y, z)); /* z can take y */
    cvn_output(g, cvn_add(g, y, y));
    the_same_in_fewer_steps(g, 1);
    cvn_graph_free(g);
}

/* Keys and values, and the gradient of keys: heads before positions, without a step that moves them. */
static void heads_are_written_where_they_belong(void **state)
{
    enum { BATCH = 2, SEQ = 37, HEADS = 3, WIDTH = 34 };
    for (int interleaved = 0; interleaved < 2; interleaved++) {
        static const int swap[] = {0, 2, 1, 3};
        cvn_graph *g = cvn_graph_new("heads", NULL);
        cvn_value *x = cvn_parameter(g, "x", CVN_TYPE(CVN_F32, BATCH, SEQ, WIDTH));
        cvn_value *w = cvn_parameter(g, "w", CVN_TYPE(CVN_F32, HEADS, WIDTH, WIDTH));
        cvn_value *freq = cvn_parameter(g, "freq", CVN_TYPE(CVN_F32, WIDTH / 2));
        cvn_value *position = cvn_iota(g, CVN_TYPE(CVN_I32, BATCH, SEQ), 1);
        cvn_value *v = cvn_einsum_as(g, "bse,khe->bskh", cvn_convert(g, x, CVN_BF16),
                                     cvn_convert(g, w, CVN_BF16), CVN_F32);
        cvn_value *k = cvn_rope(g, cvn_einsum_as(g, "bse,khe->bskh", x, w, CVN_F32), position, freq,
                                interleaved);
        cvn_value *keys = cvn_transpose(g, cvn_convert(g, k, CVN_BF16), swap);
        cvn_output(g, keys);
        cvn_output(g, cvn_transpose(g, cvn_convert(g, v, CVN_BF16), swap));
        cvn_value *back = cvn_transpose(g, cvn_multiply(g, keys, keys), swap);
        cvn_output(g, cvn_rope(g, back, position, freq, interleaved));
        /* columns before rows, and rows of several dimensions apart */
        cvn_value *p = cvn_einsum_as(g, "bse,khe->bskh", x, cvn_add(g, w, w), CVN_F32);
        cvn_output(g, cvn_transpose(g, p, (const int[]){2, 1, 0, 3}));
        the_same_in_fewer_steps(g, 2 + 2 + 1 + 1);
        cvn_graph_free(g);
    }
}

/* One token of each sequence, as when text is generated: where it stands is a view of where its sequence begins. */
static void a_token_is_turned_and_rounded_in_one_step(void **state)
{
    cvn_graph *g = cvn_graph_new("token", NULL);
    cvn_value *x = cvn_parameter(g, "x", CVN_TYPE(CVN_F32, 3, 1, 4, 64));
    cvn_value *freq = cvn_parameter(g, "freq", CVN_TYPE(CVN_F32, 32));
    cvn_value *start = cvn_iota(g, CVN_TYPE(CVN_I32, 3), 0);
    cvn_value *position = cvn_reshape(g, start, 2, (const int64_t[]){3, 1});
    cvn_output(g, cvn_convert(g, cvn_rope(g, x, position, freq, false), CVN_BF16));
    the_same_in_fewer_steps(g, 1);
    cvn_graph_free(g);
}

/* The gradient of a norm, the one that went by it, and both together for the product below. */
static void the_gradient_of_a_norm_takes_the_one_beside_it(void **state)
{
    for (int half = 0; half < 2; half++) {
        cvn_graph *g = cvn_graph_new("norm", NULL);
        cvn_type type = CVN_TYPE(CVN_F32, 70, 65);
        cvn_value *x = cvn_parameter(g, "x", type), *dy = cvn_parameter(g, "dy", type);
        cvn_value *w = cvn_parameter(g, "w", CVN_TYPE(CVN_F32, 65)), *out[2];
        cvn_value *beside = cvn_parameter(g, "beside", type);
        cvn_rms_norm_backward(g, x, w, half ? cvn_convert(g, dy, CVN_BF16) : dy, 1e-5, out);
        cvn_value *sum = cvn_add(g, beside, out[0]);
        cvn_output(g, sum);
        cvn_output(g, out[1]);
        cvn_output(g, cvn_convert(g, sum, CVN_BF16));
        the_same_in_fewer_steps(g, 2);
        cvn_graph_free(g);
    }
}

/* The rows of update [n, dim] added up in a table [rows, dim]: row i at i i % 307 - 3, some often, some outside. */
static cvn_value *gradient_of_table(cvn_graph *g, cvn_value *update, int64_t rows)
{
    const cvn_type type = CVN_TYPE(CVN_I32, update->type.dim[0]);
    cvn_gather_dims dims = {
        .n_window = 1, .window = {1}, .n_collapsed = 1, .n_index_map = 1, .index_vector_dim = 1};
    cvn_value *i = cvn_iota(g, type, 0);
    i = cvn_remainder(g, cvn_multiply(g, i, i), cvn_splat(g, type, 307));
    i = cvn_subtract(g, i, cvn_splat(g, type, 3));
    cvn_value *zeros = cvn_splat(g, CVN_TYPE(CVN_F32, rows, update->type.dim[1]), 0);
    return cvn_scatter_add(g, zeros, i, update, &dims);
}

/* The gradient of a tied embedding. */
static void rows_are_added_to_where_they_occur(void **state)
{
    enum { ROWS_OF = 300, DIM = 70, N = 90 };
    cvn_graph *g = cvn_graph_new("rows", NULL);
    cvn_value *x = cvn_parameter(g, "x", CVN_TYPE(CVN_F32, ROWS_OF, DIM));
    cvn_value *update = cvn_parameter(g, "update", CVN_TYPE(CVN_F32, N, DIM));
    cvn_value *rows = gradient_of_table(g, update, ROWS_OF);
    cvn_value *y = cvn_multiply(g, x, x);
    cvn_output_into(g, cvn_add(g, y, rows), x);
    the_same_in_fewer_steps(g, 1);
    cvn_graph_free(g);
}

/* The gradient of a tied table, and its squares, which nothing reads it for. */
static void squares_of_a_product_with_rows_are_summed_where_both_are_made(void **state)
{
    enum { ROWS_OF = 300, DIM = 70, N = 90, TOKENS = 40 };
    cvn_graph *g = cvn_graph_new("table", NULL);
    cvn_value *x = cvn_parameter(g, "x", CVN_TYPE(CVN_F32, TOKENS, ROWS_OF));
    cvn_value *y = cvn_parameter(g, "y", CVN_TYPE(CVN_F32, TOKENS, DIM));
    cvn_value *update = cvn_parameter(g, "update", CVN_TYPE(CVN_F32, N, DIM));
    cvn_value *table = cvn_einsum_as(g, "tv,td->vd", cvn_convert(g, x, CVN_BF16),
                                     cvn_convert(g, y, CVN_BF16), CVN_F32);
    table = cvn_add(g, table, gradient_of_table(g, update, ROWS_OF));
    cvn_output(g, optimizer_sum_of_squares(g, table));
    cvn_output(g, table);
    for (int isa = 0; isa < CPU_ISA_COUNT; isa++) {
        const KernelSet *backend = cpu_kernels_of((CpuIsa)isa);
        if (!backend)
            continue;
        KernelSet apart_of = plain_of(backend);
        Ran apart = run(g, &apart_of, 1), one = run(g, backend, 1);
        const float *a = (const void *)apart.data, *b = (const void *)one.data;
        assert_int_equal(one.n_steps, apart.n_steps - 3);
        if (!(fabsf(a[0] - b[0]) <= 1e-5f * a[0]))
            fail_msg("%s: squares %g, and where both are made %g", cpu_isa_name((CpuIsa)isa),
                     (double)a[0], (double)b[0]);
        for (int k = 1; k <= ROWS_OF * DIM; k++)
            assert_true(a[k] == b[k]);
        for (int threads = 2; threads <= 4; threads++) {
            Ran more = run(g, backend, threads);
            assert_memory_equal(one.data, more.data, one.bytes);
            free(more.data);
        }
        free(apart.data);
        free(one.data);
    }
    cvn_graph_free(g);
}

/* A product [heads, width, columns] and the sum of its squares; `rounded`: of bf16; `waits`: it is wanted in bf16. */
static cvn_graph *product_graph(int64_t heads, int64_t width, int64_t columns, bool rounded,
                                bool waits)
{
    enum { TOKENS = 70 };
    cvn_graph *g = cvn_graph_new("product", NULL);
    cvn_value *x = cvn_parameter(g, "x", CVN_TYPE(CVN_F32, TOKENS, heads, width));
    cvn_value *y = cvn_parameter(g, "y", CVN_TYPE(CVN_F32, TOKENS, columns));
    if (rounded) {
        x = cvn_convert(g, x, CVN_BF16);
        y = cvn_convert(g, y, CVN_BF16);
    }
    cvn_value *product = cvn_einsum_as(g, "tnh,te->nhe", x, y, CVN_F32);
    cvn_output(g, optimizer_sum_of_squares(g, product));
    cvn_output(g, waits ? cvn_convert(g, product, CVN_BF16) : product);
    return g;
}

/* Whatever the blocks of rows and columns are, and however many threads. */
static void squares_of_a_product_are_summed_where_it_is_made(void **state)
{
    static const struct {
        int64_t heads, width, columns;
    } shapes[] = {{3, 11, 40}, {2, 64, 33}, {5, 51, 300}, {1, 1031, 17}, {13, 60, 96}};
    for (int i = 0; i < 20; i++) {
        bool waits = i >= 10;
        cvn_graph *g = product_graph(shapes[i / 2 % 5].heads, shapes[i / 2 % 5].width,
                                     shapes[i / 2 % 5].columns, i % 2, waits);
        the_same_in_fewer_steps(g, 2 + waits);
        cvn_graph_free(g);
    }
}

/* A gradient's squares by rows and columns, and the square of its scaled self, as Adafactor sums them. */
static cvn_graph *sums_graph(cvn_dtype dtype, int64_t heads, int64_t rows, int64_t columns)
{
    cvn_graph *g = cvn_graph_new("sums", NULL);
    cvn_type type = CVN_TYPE(CVN_F32, heads, rows, columns);
    cvn_value *x = cvn_parameter(g, "x", CVN_TYPE(dtype, heads, rows, columns));
    cvn_value *scale = cvn_parameter(g, "scale", cvn_scalar(CVN_F32));
    x = cvn_multiply(g, cvn_convert(g, x, CVN_F32), cvn_broadcast_to(g, scale, &type));
    cvn_value *square = cvn_add(g, cvn_multiply(g, x, x), cvn_splat(g, type, 1e-3));
    cvn_value *row = cvn_reduce_dims(g, CVN_SUM, square, 1, (const int[]){2});
    cvn_value *column = cvn_reduce_dims(g, CVN_SUM, square, 1, (const int[]){1});
    cvn_value *u = cvn_multiply(g, cvn_broadcast_in_dim(g, row, type, (const int[]){0, 1}), x);
    u = cvn_multiply(g, u, cvn_broadcast_in_dim(g, scale, type, NULL));
    cvn_output(g, row);
    cvn_output(g, column);
    cvn_output(g, optimizer_sum_of_squares(g, u));
    return g;
}

static void less_is_written(const void *context, const char *isa, const Ran *apart,
                            const Ran *fused)
{
    assert_int_equal(apart->floats, *(const int64_t *)context);
    if (fused->floats >= apart->floats)
        fail_msg("%s: the terms are written", isa);
}

/* No tensor as large as x is written for its sums, and they have the same bits, along rows and down columns. */
static void terms_of_a_sum_are_made_where_they_are_summed(void **state)
{
    static const int64_t shapes[][3] = {{1, 37, 256}, {3, 50, 301}, {2, 150, 1030}, {1, 5, 2048}};
    for (int i = 0; i < 8; i++) {
        const int64_t *shape = shapes[i / 2];
        int64_t elements = shape[0] * shape[1] * shape[2];
        cvn_graph *g = sums_graph(i % 2 ? CVN_BF16 : CVN_F32, shape[0], shape[1], shape[2]);
        check_fused(g, less_is_written, &elements);
        cvn_graph_free(g);
    }
}

static float half_at(const char *data, size_t i)
{
    uint16_t half;
    memcpy(&half, data + 2 * i, sizeof half);
    return bf16_to_f32(half);
}

/* But for a loss with its gradient. */
static bool accepts_no_forward(const KernelSet *backend, const Op *root, const Op *plan)
{
    const bool both = plan->kind == OP_SOFTMAX_CROSS_ENTROPY_BACKWARD && plan->n_results > 1;
    return !both && cpu_kernels()->accepts(backend, root, plan);
}

/* The loss's region brings along the constants that its gradient reads; one that something before it reads, too, stays. */
static void a_constant_of_a_loss_stays_before_what_reads_it(void **state)
{
    enum { N = 48, VOCAB = 640 };
    (void)state;
    cvn_graph *g = cvn_graph_new("constants", NULL);
    cvn_type rows = CVN_TYPE(CVN_F32, N);
    cvn_value *logits = cvn_parameter(g, "logits", CVN_TYPE(CVN_F32, N, VOCAB)), *loss[2];
    cvn_value *i = cvn_iota(g, CVN_TYPE(CVN_I32, N), 0), *one = cvn_splat(g, rows, 1);
    cvn_value *scale = cvn_add(g, cvn_log_plus_one(g, cvn_convert(g, i, CVN_F32)), one);
    cvn_output(g, scale);
    scale = cvn_broadcast_in_dim(g, scale, logits->type, (int[]){0});
    logits = cvn_multiply(g, logits, scale);
    cvn_softmax_cross_entropy(g, logits, i, loss);
    cvn_output(g, loss[0]);
    cvn_output(g, cvn_softmax_cross_entropy_backward(g, logits, i, loss[1], one,
                                                     cvn_splat(g, rows, 0.25)));
    for (int isa = 0; isa < CPU_ISA_COUNT; isa++) {
        const KernelSet *backend = cpu_kernels_of((CpuIsa)isa);
        if (!backend)
            continue;
        KernelSet apart_of = plain_of(backend);
        apart_of.accepts = accepts_no_forward;
        Ran apart = run(g, &apart_of, 2), joined = run(g, backend, 1 + isa % 3);
        assert_int_equal(joined.n_steps, apart.n_steps - 1);
        assert_memory_equal(apart.data, joined.data, 2 * N * sizeof(float));
        free(apart.data);
        free(joined.data);
    }
    cvn_graph_free(g);
}

/* The loss and its gradient, which is rounded otherwise: over the logits, in one step. Rows with no target, with a
   target outside, and with logits that are not finite. */
static void a_loss_and_its_gradient_are_one_step(void **state)
{
    enum { N = 9, VOCAB = 1037 };
    cvn_graph *g = cvn_graph_new("loss", NULL);
    cvn_type rows = CVN_TYPE(CVN_F32, N);
    cvn_value *x = cvn_parameter(g, "x", CVN_TYPE(CVN_F32, N, VOCAB));
    cvn_value *scale = cvn_parameter(g, "scale", rows); /* row 0 becomes infinite */
    cvn_value *i = cvn_iota(g, CVN_TYPE(CVN_I32, N), 0), *entropy[2];
    cvn_value *first = cvn_compare_values(g, CVN_EQ, i, cvn_splat(g, i->type, 0));
    scale = cvn_select(g, first, cvn_splat(g, rows, INFINITY), cvn_splat(g, rows, 9));
    cvn_value *logits = cvn_multiply(g, x, cvn_broadcast_in_dim(g, scale, x->type, (int[]){0}));
    logits = cvn_convert(g, logits, CVN_BF16);
    cvn_value *target = cvn_multiply(g, cvn_subtract(g, i, cvn_splat(g, i->type, 2)),
                                     cvn_splat(g, i->type, 200)); /* -400 … 1200 */
    cvn_softmax_cross_entropy(g, logits, target, entropy);
    cvn_output(g, entropy[0]);
    cvn_output(g, entropy[1]);
    cvn_value *gradient = cvn_softmax_cross_entropy_backward(
        g, logits, target, entropy[1], cvn_splat(g, rows, 1.5), cvn_splat(g, rows, 0.25));
    cvn_output(g, gradient);
    for (int isa = 0; isa < CPU_ISA_COUNT; isa++) {
        const KernelSet *backend = cpu_kernels_of((CpuIsa)isa);
        if (!backend)
            continue;
        KernelSet apart_of = plain_of(backend);
        apart_of.accepts = accepts_no_forward;
        Ran apart = run(g, &apart_of, 2), joined = run(g, backend, 1 + isa % 3);
        assert_int_equal(joined.n_steps, apart.n_steps - 1);
        size_t sums = 2 * N * sizeof(float);
        assert_memory_equal(apart.data, joined.data, sums);
        for (size_t k = 0; k < (size_t)N * VOCAB; k++) {
            float a = half_at(apart.data + sums, k), b = half_at(joined.data + sums, k);
            if (a != b && !(fabsf(a - b) <= 0x1p-7f * fabsf(a)) && !(isnan(a) && isnan(b)))
                fail_msg("%s: element %zu is %g instead of %g", cpu_isa_name((CpuIsa)isa), k, b, a);
        }
        free(apart.data);
        free(joined.data);
    }
    cvn_graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sum_of_squares_has_no_step_of_products),
        cmocka_unit_test(what_is_kept_for_the_backward_pass_is_the_products),
        cmocka_unit_test(elementwise_operations_are_the_epilogue_of_a_product),
        cmocka_unit_test(what_lies_in_memory_anyway_is_computed_once),
        cmocka_unit_test(sums_of_products_are_made_as_they_are_written),
        cmocka_unit_test(heads_are_written_where_they_belong),
        cmocka_unit_test(a_token_is_turned_and_rounded_in_one_step),
        cmocka_unit_test(the_gradient_of_a_norm_takes_the_one_beside_it),
        cmocka_unit_test(rows_are_added_to_where_they_occur),
        cmocka_unit_test(squares_of_a_product_are_summed_where_it_is_made),
        cmocka_unit_test(squares_of_a_product_with_rows_are_summed_where_both_are_made),
        cmocka_unit_test(terms_of_a_sum_are_made_where_they_are_summed),
        cmocka_unit_test(a_constant_of_a_loss_stays_before_what_reads_it),
        cmocka_unit_test(a_loss_and_its_gradient_are_one_step),
    };
    return cmocka_run_group_tests(tests, make_plain, NULL);
}
