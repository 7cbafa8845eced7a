/*
 * Where a machine has several memories, a page lies near the thread that wrote it first: so the thread that packs a panel of a
 * weight, or adds a position to a cache, has to be the one that reads it when the model runs. No such machine is needed to
 * see that both go by the same shares.
 */
#include "compile/pack.h"
#include "compile/pipeline.h"
#include "cpu/kernels/linear_loops.h"
#include "cpu/registry.h"
#include "model/forward.h"
#include "model_make.h"
#include "unit.h"

enum { PANELS = 64, MOST_THREADS = 5 };

/* Who multiplied what. */
typedef struct Readers {
    int thread;
    int8_t of[LINEAR_WEIGHTS][PANELS]; /* -1: nobody */
} Readers;

static void note_reader(const void *work, const LinearPiece *piece, float *c)
{
    Readers *readers = (void *)(uintptr_t)work;
    (void)c;
    for (int64_t i = 0; i < piece->panels->n; i++) {
        int64_t panel = piece->panels->first + i * piece->panels->stride;
        assert_true(panel < PANELS);
        assert_int_equal(readers->of[piece->weight][panel], -1);
        readers->of[piece->weight][panel] = (int8_t)readers->thread;
    }
}

static void write_nothing(const LinearOut *out)
{
    (void)out;
}

/* Runs the loops of a product of m rows on nt threads, one after the other, without multiplying. */
static void find_readers(const Op *op, int64_t m, int nt, Readers *readers)
{
    static char data[64];
    const void *in[LINEAR_OPERANDS];
    void *out[LINEAR_WEIGHTS] = {data, data, data};
    LinearLoops loops = linear_loops_of(op);
    loops.m = m;
    loops.span = 512;
    loops.spans = 1;
    loops.chunk = m;
    loops.block = LINEAR_BLOCK;
    loops.multiply = note_reader;
    loops.work = readers;
    loops.write = write_nothing;
    for (int i = 0; i < LINEAR_OPERANDS; i++)
        in[i] = data;
    float *c = calloc((size_t)(2 * m * LINEAR_BLOCK * PANEL_ROWS), sizeof *c);
    memset(readers->of, -1, sizeof readers->of);
    for (int t = 0; t < nt; t++) {
        KernelArgs args = {.op = op, .in = in, .out = out, .thread = t, .n_threads = nt};
        readers->thread = t;
        loops.args = &args;
        loops.c = c;
        linear_loops_run(&loops, NULL, NULL);
    }
    free(c);
}

/* Every panel of a product is read by the thread that pack_share has write it. Returns how many shares are other than those
   of the weight by itself. */
static int check_product(const Plan *plan, const ParamList *params, const Step *step)
{
    int other = 0;
    for (int nt = 1; nt <= MOST_THREADS; nt++) {
        Readers few, many;
        find_readers(step->op, 1, nt, &few);
        find_readers(step->op, 65, nt, &many);
        assert_memory_equal(few.of, many.of, sizeof few.of);
        for (int i = 0; i < linear_weights(step->op); i++) {
            int index = step->in[linear_operand(step->op, i)].parameter;
            const PlanParameter *p = &plan->parameter[index];
            const Param *param = &params->param[index];
            int64_t begin, end, next = 0, same, same_end;
            for (int t = 0; t < nt; t++, next = end) {
                pack_share(p, t, nt, &begin, &end);
                assert_true(begin == next && end >= begin);
                for (int64_t panel = begin; panel < end; panel++)
                    assert_int_equal(few.of[i][panel], t);
                panel_share(p->type.dim[0], t, nt, &same, &same_end);
                other += same != begin || same_end != end;
                if (param->form != PARAM_QUANTIZED)
                    continue;
                pack_share(&plan->parameter[param->scale], t, nt, &same, &same_end);
                assert_true(same == begin && same_end == end);
            }
            assert_int_equal(next, p->type.dim[0]);
        }
    }
    return other;
}

/* All products of a step. */
static int check_step(const Model *config, cvn_dtype dtype, bool int8_inputs)
{
    cvn_err err = {0};
    Arena arena;
    ParamList params;
    ModelStep step = {.batch = 2,
                      .seq = 1,
                      .context = 32,
                      .compute = dtype,
                      .output = STEP_LAST,
                      .int8_inputs = int8_inputs};
    cvn_graph *g = model_step(config, &step, &err);
    if (!g || arena_init(&arena, &err))
        fail_msg("%s", err.message);
    signed char *layout = arena_array(&arena, (size_t)g->n_parameters, sizeof *layout);
    memset(layout, PACK_FREE, (size_t)g->n_parameters);
    CompileOptions options = {.backend = cpu_kernels(), .n_threads = 1, .layout = layout};
    Plan *plan;
    must(compile_graph(g, &options, &plan, &err), &err);
    params_list(&params, config, &arena);
    int products = 0, other = 0, joined = 0;
    for (int i = 0; i < plan->n_steps; i++) {
        const Op *op = plan->step[i].op;
        if (op->kind != OP_LINEAR)
            continue;
        other += check_product(plan, &params, &plan->step[i]);
        joined += linear_weights(op) == 3;
        products++;
    }
    /* q, k and v are one, gate and up another; o, down; the head. */
    assert_int_equal(products, 4 * model_layers(config) + 1);
    assert_int_equal(joined, model_layers(config));
    plan_free(plan);
    cvn_graph_free(g);
    arena_free(&arena);
    return other;
}

static void who_packs_a_panel_is_who_reads_it(void **state)
{
    static const struct {
        int64_t heads, kv_heads, head_dim, ffn;
    } shapes[] = {{6, 3, 20, 70}, {4, 1, 16, 33}, {7, 7, 34, 127}, {8, 2, 64, 257}, {5, 1, 6, 16}};
    static const QuantScheme schemes[] = {{.kind = QUANT_NONE}, /* in f32 */
                                          {.kind = QUANT_NONE}, /* in bf16 */
                                          {.kind = QUANT_INT8},
                                          {.kind = QUANT_INT4, .group = 32}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (size_t j = 0; j < 2 * sizeof schemes / sizeof *schemes; j++) {
            Model *c = model_make(
                "'hidden_size': 64, 'num_hidden_layers': 2, 'num_attention_heads': %d, "
                "'num_key_value_heads': %d, 'head_dim': %d, 'intermediate_size': %d, 'vocab_size': "
                "259, 'tie_word_embeddings': %s, 'attention_bias': %s, 'mlp_bias': %s",
                (int)shapes[i].heads, (int)shapes[i].kv_heads, (int)shapes[i].head_dim,
                (int)shapes[i].ffn, (j % 3 == 0) ? "true" : "false", (j % 2) ? "true" : "false",
                (j % 2) ? "true" : "false");
            model_set_quant(c, schemes[j / 2]);
            cvn_dtype dtype = j / 2 == 0 ? CVN_F32 : CVN_BF16;
            assert_true(check_step(c, dtype, model_quant(c).kind == QUANT_INT8 && j % 2) > 0);
        }
}

/* Runs an operation's kernel on thread t of nt by itself: its results are whole only where t has its share. */
static void run_thread(const Op *op, const void *const *in, void *out, int t, int nt)
{
    const Kernel *kernel = kernel_find(cpu_kernels(), op);
    size_t bytes = kernel_scratch(kernel, op, nt);
    void *scratch = aligned_alloc(64, (size_t)num_padded(bytes + 1, 64));
    Barrier barrier;
    barrier_init(&barrier, 1);
    memset(scratch, 0, bytes);
    KernelArgs args = {.op = op,
                       .in = in,
                       .out = &out,
                       .scratch = scratch,
                       .barrier = &barrier,
                       .thread = t,
                       .n_threads = nt,
                       .isa = kernel->isa};
    kernel->run(&args);
    free(scratch);
}

enum { HEAD_DIM = 16, CONTEXT = 1024 };

static cvn_value *cache_of(cvn_graph *g, int rows, int kv_heads)
{
    return cvn_parameter(g, "cache", CVN_TYPE(CVN_F32, rows, kv_heads, CONTEXT, HEAD_DIM));
}

/* Which thread of nt adds to head h of row b of a cache: who[b * kv_heads + h]. */
static void find_writers(int rows, int kv_heads, int nt, int8_t *who)
{
    cvn_graph *g = cvn_graph_new("update", NULL);
    cvn_value *cache = cache_of(g, rows, kv_heads);
    cvn_value *update = cvn_parameter(g, "new", CVN_TYPE(CVN_F32, rows, 1, kv_heads, HEAD_DIM));
    const Op *op = cvn_cache_update(g, cache, update,
                                    cvn_parameter(g, "start", CVN_TYPE(CVN_I32, rows)), NULL, NULL)
                       ->def;
    int heads = rows * kv_heads;
    float *data = malloc(cvn_type_bytes(&cache->type));
    float *new = calloc((size_t)heads * HEAD_DIM, sizeof *new);
    int32_t *start = calloc((size_t)rows, sizeof *start);
    memset(who, -1, (size_t)heads);
    for (int t = 0; t < nt; t++) {
        memset(data, -1, cvn_type_bytes(&cache->type));
        run_thread(op, (const void *[]){data, new, start}, data, t, nt);
        for (int i = 0; i < heads; i++)
            if (data[(size_t)i * CONTEXT * HEAD_DIM] == 0) {
                assert_int_equal(who[i], -1);
                who[i] = (int8_t)t;
            }
    }
    free(data);
    free(new);
    free(start);
    cvn_graph_free(g);
}

/* Which thread of nt reads it when one position is added to rows of these lengths; of a head that several read, the one
   with its begin. */
static void find_cache_readers(int rows, int kv_heads, int nt, const int32_t *start, int8_t *who)
{
    enum { GROUP = 2 };
    cvn_graph *g = cvn_graph_new("attend", NULL);
    cvn_value *cache = cache_of(g, rows, kv_heads);
    cvn_value *q = cvn_parameter(g, "q", CVN_TYPE(CVN_F32, rows, 1, kv_heads * GROUP, HEAD_DIM));
    cvn_value *at = cvn_parameter(g, "start", CVN_TYPE(CVN_I32, rows));
    const Op *op =
        cvn_attention(g, q, cache, cache, at, at, &(cvn_attention_spec){.scale = 1})->def;
    int heads = rows * kv_heads, each = GROUP * HEAD_DIM;
    float *data = calloc(cvn_type_bytes(&cache->type), 1);
    float *in = calloc((size_t)(heads * each), sizeof *in),
          *out = malloc((size_t)(heads * each) * 4);
    int32_t *one = malloc((size_t)rows * sizeof *one);
    for (int b = 0; b < rows; b++)
        one[b] = 1;
    memset(who, -1, (size_t)heads);
    for (int t = 0; t < nt; t++) {
        memset(out, -1, (size_t)(heads * each) * 4);
        run_thread(op, (const void *[]){in, data, data, start, one}, out, t, nt);
        for (int i = 0; i < heads; i++)
            if (memcmp(&out[i * each], &(int32_t){-1}, 4) != 0) {
                assert_int_equal(who[i], -1);
                who[i] = (int8_t)t;
            }
    }
    free(data);
    free(in);
    free(out);
    free(one);
    cvn_graph_free(g);
}

/* Rows are filled one by one, as prompts, or together; they are read together. Heads that do not divide among the threads
   leave some that lie with two. */
static void who_adds_to_a_head_of_a_cache_is_who_reads_it(void **state)
{
    static const int32_t start[] = {700, 3, 0, 1000, 256};
    int others = 0;
    for (int rows = 1; rows <= 5; rows++)
        for (int kv_heads = 1; kv_heads <= 12; kv_heads++)
            for (int nt = 1; nt <= MOST_THREADS; nt++) {
                int8_t alone[12], together[60], reader[60];
                find_writers(1, kv_heads, nt, alone);
                find_writers(rows, kv_heads, nt, together);
                find_cache_readers(rows, kv_heads, nt, start, reader);
                for (int h = 0; h < kv_heads; h++) {
                    int thread = ((h + 1) * nt - 1) / kv_heads; /* that has the end of the head */
                    bool whole = h * nt / kv_heads == thread;
                    for (int b = 0; b < rows && whole; b++) {
                        assert_int_equal(alone[h], thread);
                        assert_int_equal(together[b * kv_heads + h], thread);
                        assert_int_equal(reader[b * kv_heads + h], thread);
                    }
                    others += !whole;
                }
            }
    assert_true(others > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_packs_a_panel_is_who_reads_it),
        cmocka_unit_test(who_adds_to_a_head_of_a_cache_is_who_reads_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
