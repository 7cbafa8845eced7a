#include "train/step.h"

#include "grad/grad.h"
#include "graph/graph.h"
#include "graph/signature.h"
#include "train/kept.h"

#include <inttypes.h>
#include <stdio.h>

/* What is known of each parameter that is trained, [params.n] each. */
typedef struct StepParams {
    cvn_value **weight, **gradient, **accumulator;
    cvn_value **rounded; /* NULL where a weight has no rounded copy */
    cvn_value **slot;    /* [n][OPTIMIZER_MAX_SLOTS] of the optimizer's state */
} StepParams;

/* Sums over tokens: f32 scalars of this graph's, or of the accumulated. */
typedef struct StepSums {
    cvn_value *total; /* f32 [TRAIN_TOTALS], of all micro-batches so far; NULL without them */
    /* f32 [TRAIN_TOTALS + 1], of all stages: the same, and the sum of squares; NULL: there is but one */
    cvn_value *given;
    cvn_value *sum, *count, *z;
} StepSums;

typedef struct StepBuilder {
    cvn_graph *g;
    TrainGraph kind;
    const Model *config;
    const TrainStepOptions *options;
    const Optimizer *optimizer;
    ModelPart part;     /* of the model */
    ParamList params;   /* what is trained: the model's parameters, or the adapters */
    ParamList model;    /* the model's */
    LoraParams lora;    /* list.n = 0 without LoRA */
    cvn_value **frozen; /* [model.n]: with LoRA */
    StepParams of;
    ModelBatch batch;                   /* the inputs */
    cvn_value *boundary[STAGE_TENSORS]; /* those that the graph has */
    cvn_value *reference;               /* f32 [batch]: of pairs, or NULL */
    cvn_value *scalar[OPTIMIZER_MAX_SCALARS];
    StepSums sums;
} StepBuilder;

#define G CVN_HERE(b->g)

static bool has_batch(const StepBuilder *b)
{
    return b->kind != TRAIN_UPDATE && b->kind != TRAIN_SQUARES;
}

static bool is_last(const StepBuilder *b)
{
    return model_part_is_last(&b->part, b->config);
}

bool train_stage_shares(const TrainStepOptions *o, const Model *model)
{
    return o->stages > 1 && o->lora.rank == 0 && model_shape(model).tied &&
           (o->stage == 0 || o->stage == o->stages - 1);
}

/* Of what is trained, or of the model. */
static bool has(const StepBuilder *b, const Param *param)
{
    return model_part_has(&b->part, b->config, param);
}

bool train_drops(const TrainStepOptions *o)
{
    return o->dropout.attention > 0 || o->dropout.hidden > 0 ||
           (o->lora.rank > 0 && o->lora.dropout > 0);
}

static bool has_update(const StepBuilder *b)
{
    return b->kind == TRAIN_STEP || b->kind == TRAIN_UPDATE;
}

static bool has_accumulators(const StepBuilder *b)
{
    return b->kind == TRAIN_GRADIENT || b->kind == TRAIN_UPDATE || b->kind == TRAIN_SQUARES;
}

static cvn_value *number(StepBuilder *b, double value)
{
    return cvn_splat(G, cvn_scalar(CVN_F32), value);
}

static cvn_type type_of(const Param *p)
{
    return cvn_type_make(CVN_F32, p->rank, p->dims);
}

bool train_rounds(const Param *p, const ParamList *list, const TrainStepOptions *options)
{
    bool looked_up = p->kind == PARAM_EMBED && params_find(list, PARAM_LM_HEAD, -1);
    return options->compute == CVN_BF16 && options->lora.rank == 0 && p->file_rank > 1 &&
           !looked_up;
}

static cvn_value *add_boundary(StepBuilder *b, StageTensor which)
{
    static const char *const names[STAGE_TENSORS] = {"enters", "leaves", "gradient_enters",
                                                     "gradient_leaves"};
    const TrainStepOptions *o = b->options;
    const cvn_type type = CVN_TYPE(CVN_F32, o->batch, o->seq, model_width(b->config));
    b->boundary[which] =
        graph_role(cvn_parameter(G, names[which], type), ROLE_BOUNDARY, (int)which);
    return b->boundary[which];
}

static void add_parameters(StepBuilder *b)
{
    const TrainStepOptions *o = b->options;
    int n = b->params.n;
    for (int i = 0; i < n && b->kind != TRAIN_SQUARES; i++) {
        const Param *p = &b->params.param[i];
        Role role = o->lora.rank > 0 ? ROLE_ADAPTER : ROLE_TRAINED;
        if (!has(b, p))
            continue;
        b->of.weight[i] = graph_role(cvn_parameter(G, p->name, type_of(p)), role, i);
    }
    for (int i = 0; i < n && has_update(b); i++) {
        OptimizerSlot slot[OPTIMIZER_MAX_SLOTS];
        int n_slots = optimizer_slots(&o->optimizer, &b->params.param[i], slot);
        for (int k = 0; k < n_slots && b->of.weight[i]; k++) {
            const char *name =
                arena_printf(&b->g->arena, "%s.%s", slot[k].name, b->params.param[i].name);
            int at = i * OPTIMIZER_MAX_SLOTS + k;
            b->of.slot[at] = graph_role(cvn_parameter(G, name, slot[k].type), ROLE_SLOT, at);
        }
    }
    for (int i = 0; i < n; i++) {
        const Param *p = &b->params.param[i];
        if (!b->of.weight[i] || !train_rounds(p, &b->params, o))
            continue;
        const char *name = arena_printf(&b->g->arena, PARAM_ROUNDED "%s", p->name);
        cvn_type type = cvn_type_make(o->compute, p->rank, p->dims);
        b->of.rounded[i] = graph_role(cvn_parameter(G, name, type), ROLE_ROUNDED, i);
    }
    for (int i = 0; i < n && has_accumulators(b); i++) {
        const Param *p = &b->params.param[i];
        const char *name = arena_printf(&b->g->arena, "sum.%s", p->name);
        if (has(b, p))
            b->of.accumulator[i] = graph_role(cvn_parameter(G, name, type_of(p)), ROLE_SUM, i);
    }
    if (has_accumulators(b) && is_last(b))
        b->sums.total =
            graph_role(cvn_parameter(G, "total", CVN_TYPE(CVN_F32, TRAIN_TOTALS)), ROLE_TOTAL, 0);
    if (has_batch(b)) {
        cvn_type grid = CVN_TYPE(CVN_I32, o->batch, o->seq);
        if (model_part_is_first(&b->part))
            b->batch.tokens = graph_role(cvn_parameter(G, "tokens", grid), ROLE_TOKENS, 0);
        else
            b->batch.entering = add_boundary(b, STAGE_ENTERS);
        if (is_last(b))
            b->batch.targets = graph_role(cvn_parameter(G, "targets", grid), ROLE_TARGETS, 0);
        b->batch.starts = graph_role(cvn_parameter(G, "starts", grid), ROLE_STARTS, 0);
        b->batch.exact = o->exact;
        b->batch.part = b->part;
        if (b->kind == TRAIN_GRADIENT && !is_last(b))
            add_boundary(b, STAGE_GRADIENT_ENTERS);
        if (b->kind == TRAIN_GRADIENT && b->batch.entering)
            add_boundary(b, STAGE_GRADIENT_LEAVES);
    }
    if ((b->kind == TRAIN_STEP || b->kind == TRAIN_GRADIENT || b->kind == TRAIN_FORWARD) &&
        train_drops(o)) {
        const cvn_type keys = CVN_TYPE(CVN_U32, o->batch, 2);
        b->batch.dropout =
            (ModelDropout){.key = graph_role(cvn_parameter(G, "key", keys), ROLE_KEY, 0),
                           .attention = o->dropout.attention,
                           .hidden = o->dropout.hidden,
                           .adapters = o->lora.dropout};
    }
    if (has_batch(b) && o->beta > 0 && b->kind != TRAIN_SCORE)
        b->reference = graph_role(cvn_parameter(G, "reference", CVN_TYPE(CVN_F32, o->batch)),
                                  ROLE_REFERENCE, 0);
    for (int i = 0; i < b->optimizer->n_scalars && has_update(b); i++)
        b->scalar[i] = graph_role(cvn_parameter(G, b->optimizer->scalar[i], cvn_scalar(CVN_F32)),
                                  ROLE_SCALAR, i);
    if (b->kind == TRAIN_UPDATE && o->stages > 1)
        b->sums.given =
            graph_role(cvn_parameter(G, "sums", CVN_TYPE(CVN_F32, TRAIN_TOTALS + 1)), ROLE_SUMS, 0);
    for (int i = 0; i < b->model.n && b->lora.list.n > 0 && has_batch(b); i++) {
        const Param *p = &b->model.param[i];
        cvn_type type = cvn_type_make(o->compute, p->rank, p->dims);
        if (has(b, p))
            b->frozen[i] = graph_role(cvn_parameter(G, p->name, type), ROLE_WEIGHT, i);
    }
}

/* Scalars side by side: f32 [n]. */
static cvn_value *vector(StepBuilder *b, int n, cvn_value *const *x)
{
    cvn_value **one = arena_array(&b->g->arena, (size_t)n, sizeof *one);
    for (int i = 0; i < n; i++)
        one[i] = cvn_reshape(G, x[i], 1, (int64_t[]){1});
    return cvn_concatenate(G, n, one, 0);
}

static cvn_value *element(StepBuilder *b, cvn_value *x, int64_t i)
{
    return cvn_reshape(G, cvn_slice_axis(G, x, 0, i, i + 1), 0, NULL);
}

/* The loss of the model as it is trained: whole, or with adapters beside what is frozen. */
static int add_loss(StepBuilder *b, ModelLoss *loss, cvn_err *err)
{
    const TrainStepOptions *o = b->options;
    if (b->lora.list.n == 0)
        return model_loss(b->g, b->config, o->compute, b->of.weight, &b->batch, loss, err);
    size_t n = (size_t)b->model.n;
    cvn_value **lower = arena_array(&b->g->arena, n, sizeof(cvn_value *));
    cvn_value **upper = arena_array(&b->g->arena, n, sizeof(cvn_value *));
    for (size_t i = 0; i < n; i++) {
        int a = b->lora.a[i];
        lower[i] = a < 0 ? NULL : b->of.weight[a];
        upper[i] = a < 0 ? NULL : b->of.weight[a + 1];
    }
    ModelAdapters adapters = {lower, upper, o->lora.alpha / (double)o->lora.rank};
    return model_loss_adapted(b->g, b->config, o->compute, b->frozen, &adapters, &b->batch, loss,
                              err);
}

/* What was a conversion of a weight reads the copy. (Gradients were taken before, of the weights themselves.) */
static void use_rounded(StepBuilder *b)
{
    for (Op *op = b->g->first; op; op = op->next)
        for (int i = 0; op->kind == OP_CONVERT && i < b->params.n; i++)
            if (b->of.rounded[i] && op->operand[0] == b->of.weight[i])
                graph_replace(op->result[0], b->of.rounded[i]);
    graph_resolve(b->g);
}

/* Sums x, f32 [batch, seq], over each row. */
static cvn_value *of_rows(StepBuilder *b, cvn_value *x)
{
    return cvn_reduce_dims(G, CVN_SUM, x, 1, (int[]){1});
}

/* Takes of x, f32 [batch], the rows 2 i, or 2 i + 1: [batch / 2]. */
static cvn_value *of_pairs(StepBuilder *b, cvn_value *x, int64_t which)
{
    int64_t n = b->options->batch / 2;
    x = cvn_slice_axis(G, cvn_reshape(G, x, 2, (int64_t[]){n, 2}), 1, which, which + 1);
    return cvn_reshape(G, x, 1, &n);
}

static cvn_value *sum_pairs(StepBuilder *b, cvn_value *x)
{
    return cvn_reduce_dims(G, CVN_SUM, x, 1, (int[]){0});
}

/* Preferences in place of cross-entropy. Pairs of which an answer was cut off altogether do not count. */
static void add_preferences(StepBuilder *b, const ModelLoss *loss)
{
    const cvn_type pairs = CVN_TYPE(CVN_F32, b->options->batch / 2);
    cvn_value *none = cvn_splat(G, pairs, 0), *one = cvn_splat(G, pairs, 1);
    cvn_value *gain = cvn_subtract(G, b->reference, of_rows(b, loss->entropy));
    cvn_value *better = of_pairs(b, gain, 0);
    cvn_value *margin = cvn_subtract(G, better, of_pairs(b, gain, 1));
    cvn_value *learned = of_rows(b, loss->known);
    cvn_value *first = of_pairs(b, learned, 0);
    learned = cvn_minimum(G, first, of_pairs(b, learned, 1));
    cvn_value *counts = cvn_compare_values(G, CVN_GT, learned, none);
    /* -log sigmoid(x) = max(-x, 0) + log(1 + exp(-|x|)) */
    cvn_value *x = cvn_multiply(G, margin, cvn_splat(G, pairs, b->options->beta));
    cvn_value *small = cvn_exponential(G, cvn_negate(G, cvn_abs(G, x)));
    cvn_value *cost = cvn_maximum(G, cvn_negate(G, x), none);
    cost = cvn_add(G, cost, cvn_log(G, cvn_add(G, one, small)));
    cvn_value *right = cvn_and(G, counts, cvn_compare_values(G, CVN_GT, margin, none));
    b->sums.sum = sum_pairs(b, cvn_select(G, counts, cost, none));
    b->sums.count = sum_pairs(b, cvn_convert(G, counts, CVN_F32));
    b->sums.z = sum_pairs(b, cvn_convert(G, right, CVN_F32));
}

/* Of all weights that there are, and of what enters a stage. */
static int add_gradients(StepBuilder *b, cvn_value *loss, cvn_err *err)
{
    size_t most = (size_t)b->params.n + 1;
    cvn_value **of = arena_array(&b->g->arena, most, sizeof *of);
    cvn_value **gradient = arena_array(&b->g->arena, most, sizeof *gradient);
    int n = 0, at = 0;
    for (int i = 0; i < b->params.n; i++)
        if (b->of.weight[i])
            of[n++] = b->of.weight[i];
    int weights = n;
    if (b->batch.entering)
        of[n++] = b->batch.entering;
    TRY(graph_gradient(b->g, loss, n, of, gradient, err));
    for (int i = 0; i < b->params.n; i++)
        if (b->of.weight[i])
            b->of.gradient[i] = gradient[at++];
    if (b->batch.entering && b->kind == TRAIN_GRADIENT)
        cvn_output_into(G, gradient[weights], b->boundary[STAGE_GRADIENT_LEAVES]);
    return CVN_OK;
}

/* What has the gradient for x that the next stage gives; where only the forward pass is wanted, any. */
static cvn_value *with_gradient(StepBuilder *b, cvn_value *x)
{
    cvn_value *given = b->boundary[STAGE_GRADIENT_ENTERS];
    cvn_value *product = cvn_multiply(G, x, given ? given : cvn_splat(G, *cvn_value_type(x), 0));
    return cvn_reduce_dims(G, CVN_SUM, product, 3, (int[]){0, 1, 2});
}

/* What is minimised and the routers' terms, which are means, for each of what is counted. */
static cvn_value *with_routers(StepBuilder *b, cvn_value *whole, const ModelLoss *loss)
{
    const RouterOptions *o = &b->options->routers;
    cvn_value *const term[] = {loss->balance, loss->router_z};
    const double coefficient[] = {o->balance, o->z};
    for (int i = 0; i < 2; i++)
        if (term[i]) {
            cvn_value *each = cvn_multiply(G, term[i], number(b, coefficient[i]));
            whole = cvn_add(G, whole, cvn_multiply(G, each, b->sums.count));
        }
    return loss->load ? cvn_add(G, whole, loss->load) : whole;
}

/* The forward pass and, unless only evaluating, the gradient of the sum over tokens. */
static int add_passes(StepBuilder *b, cvn_err *err)
{
    const TrainStepOptions *o = b->options;
    ModelLoss loss;
    if (b->kind != TRAIN_EVALUATE && b->kind != TRAIN_SCORE)
        b->batch.routers =
            (RouterTerms){.balance = o->routers.balance > 0
                                         ? o->routers.by_sequence ? BALANCE_SEQUENCE : BALANCE_BATCH
                                         : BALANCE_NONE,
                          .z = o->routers.z > 0,
                          .load = o->routers.bias > 0};
    TRY(add_loss(b, &loss, err));
    cvn_value *leaves = is_last(b) ? NULL : loss.block[loss.n_blocks];
    b->sums.sum = loss.sum;
    b->sums.count = loss.count;
    b->sums.z = loss.z;
    if (b->reference)
        add_preferences(b, &loss);
    if (b->kind == TRAIN_SCORE) {
        cvn_output(G, of_rows(b, loss.entropy));
        graph_output_role(G, ROLE_REPORT, 0);
    }
    if (leaves && b->kind != TRAIN_GRADIENT)
        cvn_output_into(G, leaves, add_boundary(b, STAGE_LEAVES));
    if (b->kind == TRAIN_EVALUATE || b->kind == TRAIN_SCORE) {
        use_rounded(b);
        return CVN_OK;
    }
    cvn_value *whole = b->sums.sum;
    if (leaves)
        whole = with_gradient(b, leaves);
    else if (o->z_loss > 0)
        whole = cvn_add(G, whole, cvn_multiply(G, loss.z, number(b, o->z_loss)));
    whole = with_routers(b, whole, &loss);
    Op *last = b->g->last;
    TRY(add_gradients(b, whole, err));
    if (o->remat != REMAT_NONE)
        TRY(graph_remat(b->g, o->remat, loss.n_blocks, loss.block, last->next, err));
    use_rounded(b);
    const cvn_value *text = b->batch.entering ? b->batch.entering : b->batch.tokens;
    return leaves ? kept_cut(b->g, last, text, o->remat, b->kind == TRAIN_FORWARD, err) : CVN_OK;
}

/* Keeps what was there where the step is not to be. Returns what is there afterwards. */
static cvn_value *put(StepBuilder *b, cvn_value *updated, cvn_value *new, cvn_value *old)
{
    cvn_value *kept = cvn_select(G, updated, new, old);
    cvn_output_into(G, kept, old);
    return kept;
}

static cvn_value *in_type(StepBuilder *b, cvn_value *x, cvn_dtype dtype)
{
    return cvn_value_type(x)->dtype == dtype ? x : cvn_convert(G, x, dtype);
}

/* Whether a weight is moved by how many tokens chose each expert, which is then what its gradient is. */
static bool is_moved(const StepBuilder *b, int i)
{
    return b->options->routers.bias > 0 && b->params.param[i].kind == PARAM_CORRECTION;
}

/* Towards experts that fewer tokens than the mean chose, and away from those that more did. */
static void move_one(StepBuilder *b, int i, cvn_value *updated)
{
    cvn_value *load = b->of.gradient[i], *weight = b->of.weight[i];
    const cvn_type *type = cvn_value_type(load);
    cvn_value *mean = cvn_reduce_dims(G, CVN_SUM, load, 1, (int[]){0});
    mean = cvn_multiply(G, mean, number(b, 1 / (double)type->dim[0]));
    cvn_value *way = cvn_sign(G, cvn_subtract(G, cvn_broadcast_to(G, mean, type), load));
    way = cvn_multiply(G, way, cvn_splat(G, *type, b->options->routers.bias));
    put(b, updated, cvn_add(G, weight, way), weight);
}

static void update_one(StepBuilder *b, int i, cvn_value *scale, cvn_value *updated)
{
    cvn_value **slot = &b->of.slot[i * OPTIMIZER_MAX_SLOTS];
    cvn_value *gradient = b->of.gradient[i];
    bool product = b->of.rounded[i] && b->params.param[i].kind != PARAM_EMBED;
    if (b->kind == TRAIN_STEP && product) /* it waited in the type of products */
        gradient = cvn_convert(G, cvn_convert(G, gradient, b->options->compute), CVN_F32);
    cvn_value *factor = cvn_broadcast_to(G, scale, cvn_value_type(gradient));
    OptimizerUpdate u = {.g = b->g,
                         .options = &b->options->optimizer,
                         .param = &b->params.param[i],
                         .compute = b->options->compute,
                         .scalar = b->scalar,
                         .weight = b->of.weight[i],
                         .gradient = cvn_multiply(G, gradient, factor)};
    for (int k = 0; k < OPTIMIZER_MAX_SLOTS && slot[k]; k++)
        u.state[k] = in_type(b, slot[k], CVN_F32);
    b->optimizer->update(&u);
    cvn_value *weight = put(b, updated, u.new_weight, b->of.weight[i]);
    if (b->of.rounded[i])
        cvn_output_into(G, cvn_convert(G, weight, b->options->compute), b->of.rounded[i]);
    for (int k = 0; k < OPTIMIZER_MAX_SLOTS && slot[k]; k++)
        put(b, updated, in_type(b, u.new_state[k], b->options->optimizer.state), slot[k]);
}

/* Clips and updates; gradients are those of sums, so that the mean's scale is part of the clipping's. */
static void add_update(StepBuilder *b)
{
    cvn_value *square = number(b, 0), *one = number(b, 1);
    for (int i = 0; i < b->params.n && !b->sums.given; i++)
        if (!is_moved(b, i))
            square = cvn_add(G, square, optimizer_sum_of_squares(b->g, b->of.gradient[i]));
    if (b->sums.given)
        square = element(b, b->sums.given, TRAIN_TOTALS);
    cvn_value *mean = cvn_divide(G, one, cvn_maximum(G, b->sums.count, one));
    cvn_value *norm = cvn_multiply(G, cvn_sqrt(G, square), mean);
    cvn_value *updated = cvn_is_finite(G, cvn_add(G, b->sums.sum, norm));
    cvn_value *scale = mean;
    if (b->options->clip > 0) {
        cvn_value *room = cvn_add(G, norm, number(b, 1e-6));
        cvn_value *clip = cvn_divide(G, number(b, b->options->clip), room);
        scale = cvn_multiply(G, mean, cvn_minimum(G, clip, one));
    }
    for (int i = 0; i < b->params.n; i++)
        if (is_moved(b, i))
            move_one(b, i, updated);
        else if (b->of.weight[i])
            update_one(b, i, scale, updated);
    cvn_value *report[] = {b->sums.sum, b->sums.count, b->sums.z, norm,
                           cvn_convert(G, updated, CVN_F32)};
    for (int i = 0; i < b->params.n; i++) /* the accumulators begin again */
        if (b->of.accumulator[i])
            cvn_output_into(G, cvn_splat(G, type_of(&b->params.param[i]), 0), b->of.accumulator[i]);
    if (b->sums.total)
        cvn_output_into(G, cvn_splat(G, CVN_TYPE(CVN_F32, TRAIN_TOTALS), 0), b->sums.total);
    cvn_output(G, vector(b, TRAIN_REPORT_COUNT, report));
    graph_output_role(G, ROLE_REPORT, 0);
}

/* See TRAIN_SQUARES. */
static void add_norm(StepBuilder *b)
{
    const int embed = b->params.first[PARAM_EMBED];
    cvn_value **square = arena_array(&b->g->arena, (size_t)b->params.n, sizeof *square);
    int n = 0;
    for (int i = 0; i < b->params.n; i++) {
        cvn_value *sum = b->of.accumulator[i];
        if (sum && train_stage_shares(b->options, b->config) && i == embed) {
            cvn_value *peer = cvn_parameter(G, "peer.embed", *cvn_value_type(sum));
            cvn_value *both = cvn_add(G, sum, graph_role(peer, ROLE_PEER, i));
            cvn_output_into(G, both, sum);
            sum = both;
        }
        if (sum)
            square[n++] = optimizer_sum_of_squares(b->g, sum);
    }
    cvn_output(G, vector(b, n, square));
    graph_output_role(G, ROLE_REPORT, 0);
    if (b->sums.total) {
        cvn_output(G, b->sums.total);
        graph_output_role(G, ROLE_REPORT, 1);
    }
}

static int build(StepBuilder *b, cvn_err *err)
{
    add_parameters(b);
    TRY(has_batch(b) ? add_passes(b, err) : CVN_OK);
    if (b->kind == TRAIN_SQUARES)
        add_norm(b);
    if (b->kind == TRAIN_EVALUATE && is_last(b)) {
        cvn_output(G,
                   vector(b, TRAIN_TOTALS, (cvn_value *[]){b->sums.sum, b->sums.count, b->sums.z}));
        graph_output_role(G, ROLE_REPORT, 0);
    }
    for (int i = 0; i < b->params.n && b->kind == TRAIN_GRADIENT; i++) {
        if (!b->of.accumulator[i])
            continue;
        cvn_value *sum = cvn_add(G, b->of.accumulator[i], b->of.gradient[i]);
        cvn_output_into(G, sum, b->of.accumulator[i]);
    }
    if (b->kind == TRAIN_GRADIENT && is_last(b)) {
        cvn_value *here =
            vector(b, TRAIN_TOTALS, (cvn_value *[]){b->sums.sum, b->sums.count, b->sums.z});
        cvn_output_into(G, cvn_add(G, b->sums.total, here), b->sums.total);
    }
    if (b->kind == TRAIN_UPDATE) { /* of all micro-batches */
        cvn_value *sums = b->sums.given ? b->sums.given : b->sums.total;
        b->of.gradient = b->of.accumulator;
        b->sums.sum = element(b, sums, TRAIN_SUM);
        b->sums.count = element(b, sums, TRAIN_COUNT);
        b->sums.z = element(b, sums, TRAIN_Z);
    }
    if (has_update(b))
        add_update(b);
    return cvn_graph_check(b->g, err);
}

cvn_graph *train_graph(TrainGraph kind, const Model *config, const TrainStepOptions *options,
                       cvn_err *err)
{
    static const char *const names[] = {"train_step",     "train_gradient", "train_update",
                                        "train_evaluate", "train_score",    "train_forward",
                                        "train_norm"};
    char name[96], stage[32] = "";
    const RouterOptions *routers = &options->routers;
    if (options->stages > 1 && (routers->balance > 0 || routers->z > 0 || routers->bias > 0)) {
        err_set(
            err, CVN_EUNSUPPORTED,
            "router-loss, router-z-loss and router-bias count tokens of all layers, which lie in "
            "several stages; give a mesh without an axis stage");
        return NULL;
    }
    if (options->stages > 1)
        snprintf(stage, sizeof stage, "_stage%d", options->stage);
    snprintf(name, sizeof name, "%s%s_b%" PRId64 "_s%" PRId64, names[kind], stage, options->batch,
             options->seq);
    StepBuilder builder = {.g = cvn_graph_new(name, err),
                           .kind = kind,
                           .config = config,
                           .options = options,
                           .part = model_part(config, options->stage, options->stages),
                           .optimizer = &optimizers[options->optimizer.kind]};
    StepBuilder *b = &builder;
    if (!b->g)
        return NULL;
    Arena *arena = &b->g->arena;
    params_list(&b->model, config, arena);
    b->params = b->model;
    if (options->lora.rank > 0) {
        lora_params(&b->lora, &b->model, &options->lora, arena);
        b->params = b->lora.list;
        b->frozen = arena_array(arena, (size_t)b->model.n, sizeof *b->frozen);
    }
    size_t n = (size_t)b->params.n;
    b->of.weight = arena_array(arena, n, sizeof *b->of.weight);
    b->of.gradient = arena_array(arena, n, sizeof *b->of.gradient);
    b->of.accumulator = arena_array(arena, n, sizeof *b->of.accumulator);
    b->of.rounded = arena_array(arena, n, sizeof *b->of.rounded);
    b->of.slot = arena_array(arena, n * OPTIMIZER_MAX_SLOTS, sizeof *b->of.slot);
    if (build(b, err) == CVN_OK)
        return b->g;
    cvn_graph_free(b->g);
    return NULL;
}
