/*
 * Where a machine has several memories, a page lies near the thread that wrote it first: so the thread that packs a panel of a
 * weight, or adds a position to a cache, has to be the one that reads it when the model runs. No such machine is needed to
 * see that both go by the same shares.
 */
#include "compile/fuse_linear.h"
#include "cpu/kernels/linear_loops.h"
#include "graph/simplify.h"
#include "model/llama.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

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
    LinearWeight weight[LINEAR_WEIGHTS];
    LinearLoops loops = {.weight = weight,
                         .weights = linear_weights(op),
                         .swiglu = op->attr.flag,
                         .m = m,
                         .span = 512,
                         .spans = 1,
                         .chunk = m,
                         .block = LINEAR_BLOCK,
                         .multiply = note_reader,
                         .work = readers,
                         .write = write_nothing};
    for (int i = 0; i < LINEAR_OPERANDS; i++)
        in[i] = data;
    for (int i = 0; i < loops.weights; i++) {
        weight[i] = linear_weight(op, i);
        loops.jobs += i && loops.swiglu ? 0 : weight[i].panels;
    }
    float *c = calloc((size_t)(2 * m * LINEAR_BLOCK * PANEL_ROWS), sizeof *c);
    memset(readers->of, -1, sizeof readers->of);
    for (int t = 0; t < nt; t++) {
        KernelArgs args = {.op = op, .in = in, .out = out, .thread = t, .n_threads = nt};
        readers->thread = t;
        loops.args = &args;
        loops.c = c;
        linear_loops_run(&loops);
    }
    free(c);
}

/* The parameter of the model that an operand is. */
static const Param *param_of(const cvn_graph *g, const ParamList *params, const cvn_value *v)
{
    for (int i = 0; i < params->n; i++)
        if (g->parameter[i] == v)
            return &params->param[i];
    fail_msg("a product of what is no parameter");
    return NULL;
}

/* Every panel of a product is read by the thread that param_share has write it. Returns how many shares are other than those
   of the weight by itself. */
static int check_product(const cvn_graph *g, const ParamList *params, const Op *op)
{
    int other = 0;
    for (int nt = 1; nt <= MOST_THREADS; nt++) {
        Readers few, many;
        find_readers(op, 1, nt, &few);
        find_readers(op, 65, nt, &many);
        assert_memory_equal(few.of, many.of, sizeof few.of);
        for (int i = 0; i < linear_weights(op); i++) {
            const Param *p = param_of(g, params, op->operand[linear_operand(op, i)]);
            int64_t begin, end, next = 0, alone, alone_end;
            for (int t = 0; t < nt; t++, next = end) {
                param_share(p, t, nt, &begin, &end);
                assert_true(begin == next && end >= begin);
                for (int64_t panel = begin; panel < end; panel++)
                    assert_int_equal(few.of[i][panel], t);
                panel_share(p->quant.panels, t, nt, &alone, &alone_end);
                other += alone != begin || alone_end != end;
                if (p->scale >= 0) {
                    param_share(&params->param[p->scale], t, nt, &alone, &alone_end);
                    assert_true(alone == begin && alone_end == end);
                }
            }
            assert_int_equal(next, p->quant.panels);
        }
    }
    return other;
}

/* All products of a step. */
static int check_step(const LlamaConfig *config, cvn_dtype dtype, bool int8_inputs)
{
    cvn_err err = {0};
    Arena arena;
    ParamList params;
    LlamaStep step = {.batch = 2,
                      .seq = 1,
                      .context = 32,
                      .compute = dtype,
                      .output = LLAMA_LAST,
                      .int8_inputs = int8_inputs};
    cvn_graph *g = llama_step(config, &step, &err);
    if (!g || graph_simplify(g, NULL, &err) || graph_fuse_linear(g, false, NULL, &err) ||
        arena_init(&arena, &err))
        fail_msg("%s", err.message);
    params_list(&params, config, &arena);
    int products = 0, other = 0, joined = 0;
    for (const Op *op = g->first; op; op = op->next) {
        if (op->kind != OP_LINEAR)
            continue;
        other += check_product(g, &params, op);
        joined += linear_weights(op) == 3;
        products++;
    }
    /* q, k and v are one, gate and up another; o, down; the head. */
    assert_int_equal(products, 4 * config->n_layers + 1);
    assert_int_equal(joined, config->n_layers);
    cvn_graph_free(g);
    arena_free(&arena);
    return other;
}

static void who_packs_a_panel_is_who_reads_it(void **state)
{
    (void)state;
    static const struct {
        int64_t heads, kv_heads, head_dim, ffn;
    } shapes[] = {{6, 3, 20, 70}, {4, 1, 16, 33}, {7, 7, 34, 127}, {8, 2, 64, 257}, {5, 1, 6, 16}};
    static const QuantScheme schemes[] = {{.kind = QUANT_PACKED, .dtype = CVN_F32},
                                          {.kind = QUANT_PACKED, .dtype = CVN_BF16},
                                          {.kind = QUANT_INT8},
                                          {.kind = QUANT_INT4, .group = 32}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (size_t j = 0; j < 2 * sizeof schemes / sizeof *schemes; j++) {
            LlamaConfig c = llama_config_default();
            c.dim = 64;
            c.n_layers = 2;
            c.n_heads = shapes[i].heads;
            c.n_kv_heads = shapes[i].kv_heads;
            c.head_dim = shapes[i].head_dim;
            c.ffn = shapes[i].ffn;
            c.vocab = 259;
            c.tied = j % 3 == 0;
            c.attention_bias = c.mlp_bias = j % 2;
            c.quant = schemes[j / 2];
            cvn_dtype dtype = c.quant.kind == QUANT_PACKED ? c.quant.dtype : CVN_BF16;
            assert_true(check_step(&c, dtype, c.quant.kind == QUANT_INT8 && j % 2) > 0);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_packs_a_panel_is_who_reads_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
