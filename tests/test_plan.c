/* Plans by themselves: the verifier finds what is planted, views and updates cost nothing, memory is known. */
#include "cpu/registry.h"
#include "model/forward.h"
#include "model/presets.h"
#include "model_make.h"
#include "plan_support.h"
#include "plan_verify.h"
#include "unit.h"

#include <stdbool.h>

static Plan *compile(const cvn_graph *g, const KernelSet *backend)
{
    CompileOptions options = {.backend = backend, .n_threads = 2};
    Plan *plan;
    cvn_err err = {0};
    must(compile_verified(g, &options, &plan, &err), &err);
    return plan;
}

/* ---- planted faults ---- */

typedef struct Faults {
    int planted, missed;
} Faults;

static void expect_found(const Plan *plan, Faults *faults, uint64_t seed, const char *what,
                         int step)
{
    cvn_err err = {0};
    faults->planted++;
    if (plan_verify(plan, &err) == CVN_OK) {
        print_message("seed %d: %s at step %d was not found\n", (int)seed, what, step);
        faults->missed++;
    }
}

/* True when v is bytes of root. */
static bool comes_from(const cvn_value *v, const cvn_value *root)
{
    size_t offset;
    while (v != root && op_is_view(v->def, &offset))
        v = v->def->operand[0];
    return v == root && cvn_type_bytes(&v->type) > 0;
}

/* False for what only operations without elements use: those are no steps. */
static bool is_read(const Plan *plan, int i)
{
    const cvn_value *result = plan->step[i].op->result[0];
    for (int j = i + 1; j < plan->n_steps; j++)
        for (int k = 0; k < plan->step[j].op->n_operands; k++)
            if (comes_from(plan->step[j].op->operand[k], result))
                return true;
    for (int k = 0; k < plan->n_outputs; k++)
        if (comes_from(plan->graph->output[k].value, result))
            return true;
    return false;
}

/* Each fault is planted alone and taken out again. */
static void plant_in_step(Plan *plan, int i, Faults *faults, uint64_t seed)
{
    Step *step = &plan->step[i];
    const Step good = *step;
    if (step->sync) {
        step->sync = false;
        expect_found(plan, faults, seed, "a missing sync", i);
        *step = good;
    }
    if (step->scratch.bytes) {
        step->scratch = step->out[0];
        expect_found(plan, faults, seed, "scratch over the result", i);
        *step = good;
    }
    BufferRef *out = &step->out[0], good_out = *out;
    if (step->op->n_results == 1 && out->space == SPACE_ARENA && is_read(plan, i)) {
        out->offset += plan->arena_bytes; /* past the end */
        expect_found(plan, faults, seed, "a result outside the arena", i);
        *out = good_out;
        plan->arena_bytes += 1 << 20;
        out->offset += 1 << 19; /* inside, but not where it is read */
        expect_found(plan, faults, seed, "a lost result", i);
        plan->arena_bytes -= 1 << 20;
        *out = good_out;
    }
    for (int k = 0; k < step->op->n_operands; k++) {
        BufferRef *in = &step->in[k], good_in = *in;
        if (in->bytes == 0 || in->space == SPACE_CONSTANT)
            continue;
        in->offset += 64;
        expect_found(plan, faults, seed, "an operand read from elsewhere", i);
        *in = good_in;
    }
}

static void plant_overlaps(Plan *plan, Faults *faults, uint64_t seed)
{
    for (int i = 0; i < plan->n_steps; i++)
        for (int j = i + 1; j < plan->n_steps; j++) {
            /* result of j over that of i, which some step after j still reads */
            BufferRef *out = &plan->step[j].out[0], good = *out;
            const BufferRef *early = &plan->step[i].out[0];
            bool read_later = false;
            for (int k = j + 1; k < plan->n_steps; k++)
                for (int n = 0; n < plan->step[k].op->n_operands; n++)
                    read_later |= plan->step[k].op->operand[n] == plan->step[i].op->result[0] &&
                                  plan->step[k].in[n].bytes > 0;
            if (!read_later || out->space != SPACE_ARENA || early->space != SPACE_ARENA)
                continue;
            out->offset = early->offset;
            expect_found(plan, faults, seed, "a result over a living one", j);
            *out = good;
        }
}

static void the_verifier_finds_every_planted_fault(void **state)
{
    EagerBackend eager;
    const KernelSet *backends[] = {eager_backend(&eager), &interpreter_backend};
    Faults faults = {0};
    for (int seed = 0; seed < 60; seed++) {
        cvn_graph *g = hard_graph((uint64_t)seed);
        assert_non_null(g);
        Plan *plan = compile(g, backends[seed % 2]);
        for (int i = 0; i < plan->n_steps; i++)
            plant_in_step(plan, i, &faults, (uint64_t)seed);
        plant_overlaps(plan, &faults, (uint64_t)seed);
        for (int p = 0; p < plan->n_parameters; p++) {
            if (!plan->parameter[p].donated || plan->parameter[p].bytes == 0)
                continue;
            plan->parameter[p].donated = false;
            expect_found(plan, &faults, (uint64_t)seed, "a parameter not given away", p);
            plan->parameter[p].donated = true;
        }
        assert_int_equal(plan_verify(plan, NULL), CVN_OK);
        plan_free(plan);
        cvn_graph_free(g);
    }
    print_message("%d faults planted\n", faults.planted);
    assert_true(faults.planted > 1000);
    assert_int_equal(faults.missed, 0);
}

/* ---- what costs nothing ---- */

static void views_are_no_steps(void **state)
{
    cvn_graph *g = cvn_graph_new("views", NULL);
    cvn_value *x = cvn_parameter(g, "x", CVN_TYPE(CVN_F32, 4, 64));
    cvn_value *y = cvn_tanh(g, x);
    cvn_value *row = cvn_slice_axis(g, cvn_optimization_barrier(g, y), 0, 1, 3); /* [2,64] */
    cvn_value *flat = cvn_reshape(g, row, 1, (int64_t[]){128});
    cvn_output(g, cvn_negate(g, flat));
    Plan *plan = compile(g, &interpreter_backend);
    assert_int_equal(plan->n_steps, 2);
    assert_int_equal(plan->step[1].in[0].offset - plan->step[0].out[0].offset, 64 * 4);
    plan_free(plan);
    cvn_graph_free(g);
}

static void slices_that_are_not_dense_are_steps(void **state)
{
    cvn_graph *g = cvn_graph_new("slices", NULL);
    cvn_value *x = cvn_parameter(g, "x", CVN_TYPE(CVN_F32, 4, 64));
    cvn_value *y = cvn_tanh(g, x);
    cvn_output(g, cvn_negate(g, cvn_slice_axis(g, y, 1, 0, 16)));
    cvn_output(g, cvn_negate(g, cvn_slice(g, y, (int64_t[]){0, 0}, (int64_t[]){4, 64},
                                          (int64_t[]){2, 1})));
    Plan *plan = compile(g, &interpreter_backend);
    assert_int_equal(plan->n_steps, 5);
    plan_free(plan);
    cvn_graph_free(g);

    g = cvn_graph_new("nibbles", NULL); /* three of i4 would share a byte with the fourth */
    x = cvn_parameter(g, "x", CVN_TYPE(CVN_I4, 8));
    cvn_output(g, cvn_convert(g, cvn_slice_axis(g, x, 0, 0, 3), CVN_F32));
    cvn_output(g, cvn_convert(g, cvn_slice_axis(g, x, 0, 0, 4), CVN_F32));
    plan = compile(g, &interpreter_backend);
    assert_int_equal(plan->n_steps, 3);
    plan_free(plan);
    cvn_graph_free(g);
}

/* Each operation once, in order; nothing is said of plans that kernels run. */
static void steps_without_a_kernel_are_counted_and_named(void **state)
{
    for (int kernels = 0; kernels < 2; kernels++) {
        cvn_graph *g = cvn_graph_new("fallbacks", NULL);
        cvn_value *x = cvn_parameter(g, "x", CVN_TYPE(CVN_F32, 4, 64));
        cvn_value *y = cvn_tanh(g, cvn_sort(g, cvn_tanh(g, x), 1, false));
        cvn_output(g, y);
        Plan *plan = compile(g, kernels ? cpu_kernels() : &interpreter_backend);
        StrBuf names = {0}, text = {0};
        assert_int_equal(plan_fallbacks(plan, &names), kernels ? 0 : 3);
        assert_int_equal(plan_fallbacks(plan, NULL), kernels ? 0 : 3);
        plan_print(&text, plan);
        assert_int_equal(strstr(text.text, "without a kernel") == NULL, kernels);
        if (!kernels)
            assert_string_equal(names.text, "tanh, sort");
        strbuf_free(&names);
        strbuf_free(&text);
        plan_free(plan);
        cvn_graph_free(g);
    }
}

/* Two updates of a cache, one after the other, are both made in the donated memory. */
static void a_chain_of_cache_updates_never_copies_the_cache(void **state)
{
    cvn_graph *g = cvn_graph_new("chain", NULL);
    cvn_type cache_type = CVN_TYPE(CVN_F32, 2, 3, 512, 8);
    cvn_value *cache = cvn_parameter(g, "cache", cache_type);
    cvn_value *update = cvn_parameter(g, "update", CVN_TYPE(CVN_F32, 2, 1, 3, 8));
    cvn_value *start = cvn_parameter(g, "start", CVN_TYPE(CVN_I32, 2));
    cvn_value *q = cvn_parameter(g, "q", CVN_TYPE(CVN_F32, 2, 1, 3, 8));
    cvn_value *length = cvn_parameter(g, "length", CVN_TYPE(CVN_I32, 2));
    cvn_value *once = cvn_cache_update(g, cache, update, start, NULL, NULL);
    cvn_value *twice = cvn_cache_update(g, once, cvn_negate(g, update), length, NULL, NULL);
    cvn_output(g,
               cvn_attention(g, q, twice, twice, start, length, &(cvn_attention_spec){.scale = 1}));
    cvn_output_into(g, twice, cache);
    EagerBackend eager;
    const KernelSet *backends[] = {cpu_kernels(), eager_backend(&eager)};
    for (int i = 0; i < 2; i++) {
        Plan *plan = compile(g, backends[i]);
        assert_int_equal(plan->report.n_copies, 0);
        if (i == 0)
            assert_true(plan->arena_bytes < cvn_type_bytes(&cache_type));
        for (int s = 0; s < plan->n_steps; s++)
            if (plan->step[s].op->kind == OP_CACHE_UPDATE)
                assert_true(plan->step[s].out[0].space == SPACE_PARAMETER &&
                            plan->step[s].out[0].parameter == 0);
        plan_free(plan);
    }
    cvn_graph_free(g);
}

static void steps_that_share_nothing_do_not_wait(void **state)
{
    cvn_graph *g = cvn_graph_new("apart", NULL);
    for (int i = 0; i < 8; i++) {
        char name[2] = {(char)('a' + i), 0};
        cvn_value *x = cvn_parameter(g, name, CVN_TYPE(CVN_F32, 100));
        cvn_output(g, cvn_tanh(g, x));
    }
    Plan *plan = compile(g, cpu_kernels());
    assert_int_equal(plan->n_steps, 8);
    assert_int_equal(plan->report.n_syncs, 0);
    plan_free(plan);
    cvn_graph_free(g);
}

static void steps_too_small_to_share_follow_each_other_on_one_thread(void **state)
{
    cvn_graph *g = cvn_graph_new("small and large", NULL);
    cvn_value *x = cvn_parameter(g, "x", CVN_TYPE(CVN_F32, 64));
    cvn_value *w = cvn_parameter(g, "w", CVN_TYPE(CVN_F32, 1024, 64));
    for (int i = 0; i < 3; i++)
        x = cvn_tanh(g, cvn_add(g, x, x));
    x = cvn_einsum(g, "d,nd->n", x, w);
    for (int i = 0; i < 3; i++)
        x = cvn_tanh(g, cvn_add(g, x, x));
    cvn_output(g, x);
    KernelSet backend = *cpu_kernels();
    Plan *plan = compile(g, &backend);
    assert_int_equal(plan->report.n_syncs, 2); /* before the product and after it */
    for (int i = 0; i < plan->n_steps; i++)
        assert_int_equal(plan->step[i].single, plan->step[i].op->kind != OP_DOT_GENERAL);
    plan_free(plan);
    backend.tiny = 0;
    plan = compile(g, &backend);
    assert_int_equal(plan->report.n_syncs, plan->n_steps - 1);
    plan_free(plan);
    cvn_graph_free(g);
}

/* ---- sums ---- */

static void work_is_counted_from_shapes(void **state)
{
    cvn_graph *g = cvn_graph_new("work", NULL);
    cvn_value *x = cvn_parameter(g, "x", CVN_TYPE(CVN_F32, 2, 3, 5));
    cvn_value *w = cvn_parameter(g, "w", CVN_TYPE(CVN_BF16, 7, 5));
    cvn_value *rows = cvn_parameter(g, "rows", CVN_TYPE(CVN_I32, 2));
    cvn_value *y = cvn_einsum(g, "bsd,nd->bsn", x, cvn_convert(g, w, CVN_F32));
    cvn_value *row = cvn_take_rows(g, w, rows); /* bf16[2,5] of [7,5] */
    assert_int_equal(cvn_graph_check(g, NULL), CVN_OK);
    assert_true(op_flops(y->def) == 2.0 * 2 * 3 * 7 * 5);
    assert_int_equal(op_bytes(y->def), (2 * 3 * 5 + 7 * 5 + 2 * 3 * 7) * 4);
    assert_int_equal(op_bytes(row->def), 2 * 4 + 2 * (2 * 5 * 2));
    assert_true(op_flops(row->def) == 0);
    cvn_graph_free(g);
}

static void memory_is_known_before_anything_is_allocated(void **state)
{
    /* 405 billion parameters, planned on any machine */
    cvn_graph *g = cvn_graph_new("large", NULL);
    cvn_value *x = cvn_parameter(g, "x", CVN_TYPE(CVN_F32, 1, 636396));
    cvn_value *w = cvn_parameter(g, "w", CVN_TYPE(CVN_F32, 636396, 636396));
    cvn_output(g, cvn_einsum(g, "bd,dn->bn", x, w));
    CompileOptions options = {.backend = cpu_kernels(), .n_threads = 1};
    Plan *plan;
    assert_int_equal(compile_graph(g, &options, &plan, NULL), CVN_OK);
    assert_true(plan->report.parameter_bytes == (size_t)636396 * 4 + (size_t)636396 * 636396 * 4);
    assert_true(plan->arena_bytes >= 636396 * 4);
    plan_free(plan);
    cvn_graph_free(g);
}

static void collectives_without_a_kernel_are_refused(void **state)
{
    cvn_graph *g = cvn_graph_new("apart", NULL);
    cvn_value *x = cvn_parameter(g, "x", CVN_TYPE(CVN_F32, 8));
    cvn_output(g, cvn_all_reduce(g, x, CVN_SUM, 1, 2, (int64_t[]){0, 1}));
    CompileOptions options = {.backend = &interpreter_backend, .n_threads = 1};
    Plan *plan;
    cvn_err err = {0};
    assert_int_equal(compile_graph(g, &options, &plan, &err), CVN_EUNSUPPORTED);
    assert_non_null(strstr(err.message, "all_reduce"));
    cvn_graph_free(g);
}

static void the_arena_of_a_model_is_close_to_what_it_must_be(void **state)
{
    Model *config = model_preset("stories15m");
    for (int seq = 1; seq <= 256; seq *= 16) {
        ModelStep step = {
            .batch = 1, .seq = seq, .context = 256, .compute = CVN_F32, .output = STEP_SAMPLE};
        cvn_graph *g = model_step(config, &step, NULL);
        assert_non_null(g);
        Plan *plan = compile(g, cpu_kernels());
        print_message("seq %d: arena %zu, lower bound %zu, %d steps, %d syncs\n", seq,
                      plan->arena_bytes, plan->report.arena_lower_bound, plan->n_steps,
                      plan->report.n_syncs);
        assert_true((double)plan->arena_bytes <=
                    1.05 * (double)plan->report.arena_lower_bound + (1 << 20));
        assert_int_equal(plan->report.n_copies, 0); /* every cache is updated in place */
        plan_free(plan);
        cvn_graph_free(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_verifier_finds_every_planted_fault),
        cmocka_unit_test(views_are_no_steps),
        cmocka_unit_test(slices_that_are_not_dense_are_steps),
        cmocka_unit_test(steps_without_a_kernel_are_counted_and_named),
        cmocka_unit_test(a_chain_of_cache_updates_never_copies_the_cache),
        cmocka_unit_test(steps_that_share_nothing_do_not_wait),
        cmocka_unit_test(steps_too_small_to_share_follow_each_other_on_one_thread),
        cmocka_unit_test(work_is_counted_from_shapes),
        cmocka_unit_test(memory_is_known_before_anything_is_allocated),
        cmocka_unit_test(collectives_without_a_kernel_are_refused),
        cmocka_unit_test(the_arena_of_a_model_is_close_to_what_it_must_be),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
