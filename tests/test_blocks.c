/* Weights in blocks: panels hold a file's numbers bit for bit, in hardly more bytes; every instruction set multiplies them as the
   interpreter does; a model that keeps its blocks says what it says widened, on any mesh. */
#include "kernel_check.h"
#include "linear_around.h"

#include "base/num.h"
#include "block_panels.h"
#include "caravan/engine.h"
#include "graph/blocks.h"
#include "graph/decompose.h"
#include "graph/interp/interp.h"
#include "graph/panels.h"
#include "io/model.h"
#include "io_support.h"

#include <ctype.h>

enum { KINDS = BLOCK_KINDS };

/* tests/data/gguf/Q4_0.blocks, … (tests/oracles/gguf_blocks.py); of floats fp8/F8_E4M3.blocks (float8.py) */
static Bytes data_of(BlockKind kind, const char *what)
{
    char path[512], name[16];
    size_t n = strlen(block_names[kind]);
    for (size_t i = 0; i <= n; i++)
        name[i] = (char)toupper((unsigned char)block_names[kind][i]);
    snprintf(path, sizeof path, "%s/%s/%s.%s", CVN_TEST_DATA,
             block_info[kind].form.fraction ? "fp8" : "gguf", name, what);
    return bytes_of_file(path);
}

static void panels_hold_the_numbers_of_the_file(void **state)
{
    for (int kind = 1; kind < KINDS; kind++) {
        const BlockInfo *info = &block_info[kind];
        Bytes blocks = data_of((BlockKind)kind, "blocks"), want = data_of((BlockKind)kind, "f32");
        int64_t elements = (int64_t)(want.n / sizeof(float));
        /* Rows of several lengths, so that there are chunks of every size. */
        for (int64_t k = info->elements; k <= elements && k <= 1024; k += info->elements) {
            const BlockChunk c = block_chunk((BlockKind)kind, k);
            int64_t n = num_min(elements / k, 37);
            cvn_type type = block_panel_type((BlockKind)kind, n, k);
            size_t row = (size_t)(k / info->elements * info->bytes);
            size_t panel = (size_t)(type.dim[1] * type.dim[2]);
            uint8_t *out = malloc(panel * (size_t)type.dim[0]);
            for (int64_t p = 0; p < type.dim[0]; p++)
                block_pack((BlockKind)kind, k, blocks.data + (size_t)(p * PANEL_ROWS) * row, row,
                           num_min(n - p * PANEL_ROWS, PANEL_ROWS), out + (size_t)p * panel);
            double most = kind == BLOCK_TQ1_0 ? 1.23 : kind == BLOCK_MXFP4 ? 1.06 : 1.04;
            assert_true((double)panel <= most * 16 * (double)row);
            for (int64_t r = 0; r < n; r++)
                for (int64_t i = 0; i < type.dim[1]; i++) {
                    float got[BLOCK_MOST];
                    const uint8_t *at = out + (size_t)(r / 16) * panel + (size_t)(i * c.bytes);
                    block_chunk_row((BlockKind)kind, &c, at, (int)(r % 16), got);
                    if (memcmp(got, want.data + 4 * (size_t)(r * k + i * c.columns),
                               4 * (size_t)c.columns) != 0)
                        fail_msg("%s: rows of %d: row %d, chunk %d", info->name, (int)k, (int)r,
                                 (int)i);
                }
            free(out);
        }
        free(blocks.data);
        free(want.data);
    }
}

/* ---- kernels ---- */

typedef struct Shape {
    BlockKind kind;
    int64_t m, k;
    int n_weights;
    int64_t n;
    bool swiglu, residual, norm, int8;
    cvn_dtype x, out;
} Shape;

static void check_linear(const Shape *s)
{
    Check c = check_begin();
    cvn_linear_spec spec = {
        .contract = 1, .n_weights = s->n_weights, .int8 = s->int8, .blocks = block_names[s->kind]};
    cvn_value *x = check_parameter(&c, CVN_TYPE(s->x, s->m, s->k)), *out[3];
    const bool around = s->residual || s->swiglu;
    for (int i = 0; i < s->n_weights; i++) {
        spec.q[i] = check_parameter(&c, block_panel_type(s->kind, s->n, s->k));
        spec.type[i] = CVN_TYPE(around ? CVN_F32 : s->out, s->m, s->n);
    }
    if (s->norm)
        x = around_norm(c.g, x, check_parameter(&c, CVN_TYPE(CVN_BF16, s->k)), CVN_I8);
    cvn_linear(c.g, x, &spec, out);
    if (s->residual)
        out[0] = cvn_add(c.g, out[0], check_parameter(&c, CVN_TYPE(CVN_F32, s->m, s->n)));
    if (s->swiglu)
        out[0] = around_swiglu(c.g, out[0], out[1]);
    const int results = s->swiglu ? 1 : s->n_weights;
    for (int i = 0; i < results && around; i++)
        out[i] = around_rounded(c.g, out[i], s->out);
    check_inputs_of(&c, out, results);
    for (int i = 1; i <= s->n_weights; i++)
        fill_panels(s->kind, s->k, &c.op->operand[i]->type, c.in[i].data);
    /* Sums of f32, and of x in bf16 its rounding to 16 bits; of 8 bits what a norm puts into another step. */
    double each = s->int8 && s->norm ? 3e-4 : s->x == CVN_F32 || s->int8 ? 4e-7 : 8e-5;
    if (s->norm && !s->int8)
        each = 8e-5;
    c.absolute =
        each * (s->norm ? 4 : 1) * sqrt((double)s->k) * (s->swiglu ? sqrt((double)s->k) : 1);
    c.relative = s->out == CVN_BF16 ? 0x1p-7 : 2e-5;
    check_kernels(&c, 1);
    check_end(&c);
}

/* Floats are not multiplied in integers. */
static bool takes(int kind, bool int8)
{
    return !int8 || !block_info[kind].form.fraction;
}

static void multiply_every_kind(bool int8)
{
    static const int64_t ms[] = {1, 2, 3, 4, 5, 7, 8, 9, 15, 17, 33};
    for (int kind = 1; kind < KINDS; kind++)
        for (int i = 0; i < 11 && takes(kind, int8); i++) {
            int64_t least = block_info[kind].elements;
            Shape s = {.kind = (BlockKind)kind,
                       .m = ms[i],
                       .k = least * (i % 3 == 0   ? 256 / least
                                     : i % 3 == 1 ? 3
                                                  : 2),
                       .n_weights = 1 + i % 3,
                       .n = i % 2 ? 37 : 130,
                       .int8 = int8,
                       .x = i % 2 ? CVN_F32 : CVN_BF16,
                       .out = i % 4 == 1 ? CVN_BF16 : CVN_F32};
            s.residual = s.n_weights == 1;
            s.swiglu = s.n_weights == 2;
            s.norm = s.n_weights == 3;
            check_linear(&s);
        }
}

static void every_kind_is_multiplied_everywhere(void **state)
{
    multiply_every_kind(false);
}

static void rows_of_8_bits_are_multiplied_everywhere(void **state)
{
    multiply_every_kind(true);
}

static void spans_and_many_rows(void **state)
{
    static const BlockKind kinds[] = {BLOCK_Q4_0, BLOCK_Q8_0, BLOCK_Q4_K,
                                      BLOCK_Q6_K, BLOCK_Q5_1, BLOCK_F8_E4M3};
    for (int i = 0; i < 12; i++)
        for (int64_t m = 1; m < 300 && takes(kinds[i / 2], i % 2); m *= 6)
            check_linear(&(Shape){.kind = kinds[i / 2],
                                  .int8 = i % 2,
                                  .m = m,
                                  .k = m == 36 ? 1536 : 768,
                                  .n_weights = 1,
                                  .n = 70,
                                  .x = i / 2 % 2 ? CVN_F32 : CVN_BF16,
                                  .out = CVN_F32});
}

/* Row 0 of y for m rows, by the fastest kernel of this machine. */
static void first_row(BlockKind kind, bool int8, int64_t m, float *y, int64_t n)
{
    enum { K = 768 };
    Check c = blocks_begin(kind, int8, m, K, n);
    const cvn_type row = CVN_TYPE(CVN_BF16, K);
    check_state =
        8; /* the same weights and the same first row each time; the others differ with m */
    fill_panels(kind, K, &c.op->operand[1]->type, c.in[1].data);
    check_fill(&row, c.in[0].data, -1, 1);
    const void *in[] = {c.in[0].data, c.in[1].data};
    float *all = malloc((size_t)(m * n) * sizeof *all);
    void *outs[] = {all};
    const Kernel *kernel = NULL;
    for (int isa = CPU_ISA_COUNT - 1; isa >= 0 && !kernel; isa--) {
        const KernelSet *set = cpu_kernels_of((CpuIsa)isa);
        for (int i = 0; set && i < set->n_kernels && !kernel; i++)
            if (kernel_matches(set->kernel[i], c.op))
                kernel = set->kernel[i];
    }
    check_run(&c, kernel, check_pool(2), in, outs);
    memcpy(y, all, (size_t)n * sizeof *y);
    free(all);
    check_end(&c);
}

static void a_row_has_the_same_bits_in_any_batch(void **state)
{
    enum { N = 37 };
    static const int64_t ms[] = {2, 5, 8, 13, 64, 243};
    for (int kind = 1; kind < KINDS; kind++)
        for (int int8 = 0; int8 < 2 && takes(kind, int8); int8++) {
            float alone[N], among[N];
            first_row((BlockKind)kind, int8, 1, alone, N);
            for (int m = 0; m < 6; m++) {
                first_row((BlockKind)kind, int8, ms[m], among, N);
                if (memcmp(alone, among, sizeof alone) != 0)
                    fail_msg("%s: %d rows", block_names[kind], (int)ms[m]);
            }
        }
}

static void blocks_become_numbers(void **state)
{
    for (int kind = 1; kind < KINDS; kind++)
        for (int panels = 0; panels < 2; panels++) {
            Check c = check_begin();
            const cvn_type type = CVN_TYPE(kind % 2 ? CVN_F32 : CVN_BF16, 3, 7, 512);
            Bytes blocks = data_of((BlockKind)kind, "blocks");
            cvn_type from = panels ? block_panel_type((BlockKind)kind, 21, 512)
                                   : block_type((BlockKind)kind, &type, 2);
            const OpAttr attr = {.axis = panels ? 2 : 0, .blocks = (BlockKind)kind};
            cvn_value *w = check_parameter(&c, from);
            check_inputs(&c, graph_add(c.g, OP_DEQUANTIZE, &attr, 1, &w, &type));
            if (panels)
                fill_panels((BlockKind)kind, 512, &from, c.in[0].data);
            for (size_t i = 0; i < c.in[0].bytes && !panels; i++)
                ((uint8_t *)c.in[0].data)[i] = blocks.data[i % blocks.n];
            check_kernels(&c, 1);
            check_end(&c);
            free(blocks.data);
        }
}

/* Of the kinds that have such a form: plain operations on bytes give the file's numbers, bit for bit. */
static void plain_operations_read_blocks(void **state)
{
    int n = 0;
    (void)state;
    for (int kind = 1; kind < KINDS; kind++) {
        const BlockInfo *info = &block_info[kind];
        Bytes blocks = data_of((BlockKind)kind, "blocks"), want = data_of((BlockKind)kind, "f32");
        int64_t elements = (int64_t)(want.n / sizeof(float)) / info->elements * info->elements;
        const cvn_type type = CVN_TYPE(CVN_F32, 1, elements);
        const OpAttr attr = {.blocks = (BlockKind)kind};
        cvn_err err = {0};
        cvn_graph *g = cvn_graph_new("blocks", &err);
        cvn_value *w = cvn_parameter(g, "w", block_type((BlockKind)kind, &type, 1));
        cvn_output(g, graph_add(g, OP_DEQUANTIZE, &attr, 1, &w, &type));
        int code = graph_decompose(g, NULL, NULL, NULL, &err);
        if (code) {
            assert_non_null(strstr(err.message, "use the model with --quantize none"));
        } else {
            const void *in[] = {blocks.data};
            void *out[1];
            assert_int_equal(interp_run_one(g, in, out, &err), CVN_OK);
            const float *got = out[0];
            for (int64_t i = 0; i < elements; i++)
                if (memcmp(got + i, want.data + 4 * i, 4) != 0)
                    fail_msg("%s: element %d is %g", info->name, (int)i, (double)got[i]);
            free(out[0]);
            n++;
        }
        cvn_graph_free(g);
        free(blocks.data);
        free(want.data);
    }
    assert_int_equal(n, 10);
}

/* ---- a model ---- */

enum { TOKENS = 40 };

static void score(const char *quantize, const char *activations, const char *mesh,
                  const char *layout, cvn_dtype dtype, float *logprob)
{
    cvn_err err = {0};
    cvn_model *model;
    cvn_engine *engine;
    cvn_model_options open = {.dtype = dtype, .quantize = quantize, .no_tokenizer = true};
    cvn_engine_options options = {.threads = 1,
                                  .slots = 1,
                                  .scoring = true,
                                  .activations = activations,
                                  .mesh = mesh,
                                  .layout = layout};
    int32_t token[TOKENS], argmax[TOKENS];
    must(cvn_model_open(CVN_TEST_DATA "/gguf/mixed.gguf", &open, &model, &err), &err);
    must(cvn_engine_new(model, &options, &engine, &err), &err);
    for (int i = 0; i < TOKENS; i++)
        token[i] = (int32_t)((i * i * 7 + i * 3) % cvn_model_vocab(model));
    must(cvn_engine_score(engine, token, TOKENS, logprob, argmax, &err), &err);
    cvn_engine_free(engine, NULL);
    cvn_model_free(model);
}

static double difference(const float *a, const float *b)
{
    double most = 0;
    for (int i = 1; i < TOKENS; i++)
        most = fmax(most, fabs((double)a[i] - (double)b[i]));
    return most;
}

static void a_model_in_blocks_says_what_it_says_widened(void **state)
{
    static const char *const meshes[][2] = {
        {NULL, NULL}, {"model=2", "tp"}, {"data=2", "fsdp"}, {"data=2,model=2", "2d"}};
    float want[TOKENS], got[TOKENS];
    for (int d = 0; d < 2; d++) {
        score("none", NULL, NULL, NULL, d ? CVN_BF16 : CVN_F32, want);
        for (int i = 0; i < 4; i++) {
            score(NULL, NULL, meshes[i][0], meshes[i][1], d ? CVN_BF16 : CVN_F32, got);
            double most = difference(want, got);
            if (!(most <= (d ? 0.1 : 2e-5)))
                fail_msg("%s: log-probabilities differ by %g", meshes[i][0], most);
        }
    }
}

/* A step is 1/127 of the largest of a chunk; on a mesh chunks may be cut, and what is rounded is not. */
static void activations_in_8_bits_change_little(void **state)
{
    float whole[TOKENS], eight[TOKENS], mesh[TOKENS];
    for (int d = 0; d < 2; d++) {
        const cvn_dtype dtype = d ? CVN_BF16 : CVN_F32;
        score(NULL, NULL, NULL, NULL, dtype, whole);
        score(NULL, "int8", NULL, NULL, dtype, eight);
        score(NULL, "int8", "model=2", "tp", dtype, mesh);
        double most = difference(whole, eight), meshes = difference(eight, mesh);
        if (!(most > 0 && most < 0.2 && meshes < (d ? 0.15 : 0.05)))
            fail_msg("log-probabilities differ by %g, and %g on a mesh", most, meshes);
    }
}

/* Every place of a block in turn is made the f16 that is no number: it counts where numbers come of it that are none. */
static void scales_that_are_no_numbers_are_counted(void **state)
{
    for (int kind = 1; kind < KINDS; kind++) {
        const BlockInfo *info = &block_info[kind];
        Bytes blocks = data_of((BlockKind)kind, "blocks");
        for (int place = -1; place < info->bytes - 1 && kind != BLOCK_MXFP4; place++) {
            uint8_t block[512];
            float out[BLOCK_MOST];
            bool bad = false;
            memcpy(block, blocks.data, (size_t)info->bytes);
            if (place >= 0)
                memcpy(block + place, "\x00\x7e", 2);
            info->widen(block, out);
            for (int i = 0; i < info->elements; i++)
                bad |= !isfinite(out[i]);
            if (block_count_nonfinite((BlockKind)kind, block, info->bytes) != bad)
                fail_msg("%s: byte %d", info->name, place);
        }
        free(blocks.data);
    }
}

static void a_scale_that_is_no_number_is_warned_of(void **state)
{
    const char *path = in_scratch("nan.gguf");
    Bytes file = bytes_of_file(CVN_TEST_DATA "/gguf/mixed.gguf");
    IoModel io;
    cvn_err err = {0};
    cvn_model *model = NULL;
    cvn_engine *engine = NULL;
    assert_int_equal(io_open_model(&io, CVN_TEST_DATA "/gguf/mixed.gguf", NULL), CVN_OK);
    const IoTensor *t = io_tensors_find(&io.tensors, "blk.1.attn_k.weight");
    memcpy(file.data + (t->data - io.map->data) + t->block->bytes, "\x00\x7e", 2);
    io_close_model(&io);
    assert_int_equal(file_write(path, file.data, file.n, NULL), CVN_OK);
    cvn_engine_options options = {.threads = 1, .slots = 1};
    must(cvn_model_open(path, &(cvn_model_options){.dtype = CVN_BF16, .no_tokenizer = true}, &model,
                        &err),
         &err);
    must(cvn_engine_new(model, &options, &engine, &err), &err);
    assert_non_null(strstr(cvn_engine_warnings(engine), "'blk.1.attn_k.weight' are NaN"));
    /* All that is in blocks, but the table that is looked up in the file. */
    assert_true(cvn_engine_get_stats(engine).weight_bytes < file.n);
    cvn_engine_free(engine, NULL);
    cvn_model_free(model);
    free(file.data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(panels_hold_the_numbers_of_the_file),
        cmocka_unit_test(every_kind_is_multiplied_everywhere),
        cmocka_unit_test(rows_of_8_bits_are_multiplied_everywhere),
        cmocka_unit_test(spans_and_many_rows),
        cmocka_unit_test(a_row_has_the_same_bits_in_any_batch),
        cmocka_unit_test(blocks_become_numbers),
        cmocka_unit_test(plain_operations_read_blocks),
        cmocka_unit_test(scales_that_are_no_numbers_are_counted),
        cmocka_unit_test(a_scale_that_is_no_number_is_warned_of),
        cmocka_unit_test(a_model_in_blocks_says_what_it_says_widened),
        cmocka_unit_test(activations_in_8_bits_change_little),
    };
    return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
