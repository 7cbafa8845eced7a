/* Every operation of every graph that runs a Llama has a kernel, at every level of instruction set. */

#include "compile/pack.h"
#include "cpu/registry.h"
#include "graph/graph.h"
#include "model/forward.h"
#include "model/presets.h"
#include "model_make.h"
#include "unit.h"

/* What the compiler gives memory to instead of running. */
static bool is_alias(OpKind kind)
{
    return kind == OP_PARAMETER || kind == OP_CONSTANT || kind == OP_RESHAPE ||
           kind == OP_OPTIMIZATION_BARRIER;
}

static void check_step(const Model *config, const ModelStep *step)
{
    cvn_err err = {0};
    cvn_graph *g = model_step(config, step, &err);
    if (!g)
        fail_msg("%s", err.message);
    if (model_quant(config).kind != QUANT_NONE) { /* as products take weights */
        signed char layout[64];
        bool changed;
        assert_true(g->n_parameters <= (int)sizeof layout);
        memset(layout, PACK_FREE, sizeof layout);
        assert_int_equal(graph_pack(g, layout, &changed, &err), 0);
    }
    for (const Op *op = g->first; op; op = op->next)
        for (int isa = 0; isa < CPU_ISA_COUNT; isa++) {
            const KernelSet *backend = cpu_kernels_of((CpuIsa)isa);
            if (backend && !is_alias(op->kind) && !kernel_find(backend, op)) {
                char text[TYPE_TEXT];
                fail_msg("%s: no kernel of level %s for %s, result %s", g->name, backend->name,
                         op_info[op->kind].name,
                         type_text(&op->result[0]->type, text, sizeof text));
            }
        }
    cvn_graph_free(g);
}

static void every_operation_of_llama_has_a_kernel(void **state)
{
    Model *config = model_preset("llama3.2-1b");
    config = model_with(config, "'num_hidden_layers': 1");
    for (int dtype = 0; dtype < 2; dtype++)
        for (int output = STEP_LOGITS; output <= STEP_STATE; output++)
            for (int mode = 0; mode < SAMPLE_MODE_COUNT; mode++)
                for (int64_t seq = 1; seq <= 128; seq += 127)
                    check_step(config, &(ModelStep){.batch = 2,
                                                    .kv_int8 = mode == 1,
                                                    .penalty = mode == 1,
                                                    .adjusts = mode == 1,
                                                    .seq = seq,
                                                    .context = 512,
                                                    .compute = dtype ? CVN_BF16 : CVN_F32,
                                                    .output = (StepOutput)output,
                                                    .sample = (SampleMode)mode});
}

static void so_has_one_of_8_bits(void **state)
{
    Model *config = model_preset("llama3.2-1b");
    config = model_with(config, "'num_hidden_layers': 1");
    model_set_quant(config, (QuantScheme){.kind = QUANT_INT8});
    /* What multiplies the head is not fused yet: all others. */
    ModelStep step = {.batch = 1,
                      .seq = 64,
                      .context = 512,
                      .kv_int8 = true,
                      .int8_inputs = true,
                      .compute = CVN_BF16,
                      .output = STEP_STATE};
    check_step(config, &step);
}

static void names_are_unique_and_say_the_operation(void **state)
{
    const KernelSet *backend = NULL;
    for (int isa = 0; isa < CPU_ISA_COUNT; isa++)
        if (cpu_kernels_of((CpuIsa)isa))
            backend = cpu_kernels_of((CpuIsa)isa);
    assert_non_null(backend);
    for (int i = 0; i < backend->n_kernels; i++) {
        const Kernel *k = backend->kernel[i];
        const char *op = op_info[k->kind].name;
        assert_int_equal(strncmp(k->name, op, strlen(op)), 0);
        for (int j = 0; j < i; j++)
            assert_string_not_equal(k->name, backend->kernel[j]->name);
    }
}

/* Each level starts with its own kernels and ends with all of the next one below that the machine has. */
static void levels_build_on_each_other(void **state)
{
    for (int isa = 1; isa < CPU_ISA_COUNT; isa++) {
        const KernelSet *low = NULL, *high = cpu_kernels_of((CpuIsa)isa);
        for (int below = isa - 1; below >= 0 && !low; below--)
            low = cpu_kernels_of((CpuIsa)below);
        if (!high)
            continue;
        int more = high->n_kernels - low->n_kernels;
        assert_true(more >= 0);
        for (int i = 0; i < low->n_kernels; i++)
            assert_ptr_equal(high->kernel[more + i], low->kernel[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_operation_of_llama_has_a_kernel),
        cmocka_unit_test(so_has_one_of_8_bits),
        cmocka_unit_test(names_are_unique_and_say_the_operation),
        cmocka_unit_test(levels_build_on_each_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
