/* Random graphs of what is fused, of any dtype and with views between, every other one of tensors that are too small for tile
   programs: fused, they give the bits that they give apart. */
#include "fuse_support.h"
#include "plan_support.h"

/* Of the same inputs, which a run may write. */
static Ran run_seed(const cvn_graph *g, const KernelSet *backend, int threads, uint64_t seed)
{
    void **inputs = random_inputs(g, seed, seed % 3 == 0);
    Ran ran = run_on(g, backend, threads, inputs);
    random_free(inputs, g->n_parameters);
    return ran;
}

static void expect_same(const cvn_graph *g, const Ran *a, const Ran *b, const char *isa,
                        uint64_t seed)
{
    size_t at = 0, bytes;
    assert_int_equal(a->bytes, b->bytes);
    for (int i = 0; i < g->n_outputs; i++, at += bytes) {
        const cvn_type *type = &g->output[i].value->type;
        bytes = cvn_type_bytes(type);
        char *x = malloc(bytes + 1), *y = malloc(bytes + 1); /* aligned */
        memcpy(x, a->data + at, bytes);
        memcpy(y, b->data + at, bytes);
        int64_t element = random_difference(type, x, y);
        if (element >= 0)
            fail_msg("%s, seed %d: output %d differs from element %d on: %g apart, %g fused", isa,
                     (int)seed, i, (int)element, element_get(type->dtype, x, element),
                     element_get(type->dtype, y, element));
        free(x);
        free(y);
    }
}

static int seeds(int usual)
{
    const char *text = getenv("CVN_SEEDS");
    return text ? (int)strtol(text, NULL, 10) : usual;
}

static void random_graphs_give_the_bits_of_their_operations(void **state)
{
    const int n = seeds(SANITIZED ? 40 : 240);
    int fusions = 0, fewer[2] = {0};
    for (int k = 0; k < n; k++) {
        bool large = k % 2 == 0;
        uint64_t seed = 8 * (uint64_t)(k / 2) + (large ? 7 : 3);
        const KernelSet *backend = cpu_kernels_of((CpuIsa)(k / 2 % CPU_ISA_COUNT));
        backend = backend ? backend : cpu_kernels();
        int isa = 0;
        while (cpu_kernels_of((CpuIsa)isa) != backend)
            isa++;
        cvn_graph *g = hard_graph(seed);
        cvn_err err = {0};
        if (!g || cvn_graph_check(g, &err))
            fail_msg("seed %d: %s", (int)seed, err.message);
        const KernelSet plain = plain_of(backend);
        Ran apart = run_seed(g, &plain, 1, seed);
        Ran fused = run_seed(g, backend, 1 + k % 3, seed);
        expect_same(g, &apart, &fused, cpu_isa_name((CpuIsa)isa), seed);
        fusions += fused.n_fusions;
        fewer[large] += fused.n_steps < apart.n_steps;
        free(apart.data);
        free(fused.data);
        cvn_graph_free(g);
    }
    print_message("%d fusions, %d large and %d small of %d graphs have fewer steps\n", fusions,
                  fewer[1], fewer[0], n);
    assert_true(fusions > n / 2 && fewer[1] > n / 4 && fewer[0] > n / 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_graphs_give_the_bits_of_their_operations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
