/* Random graphs of what is fused, of any dtype and with views between, every other one of tensors that are too small for tile
   programs: fused, they give the bits that they give apart; what is printed of them is read again as the same; and inlined, their
   regions are the operations of before. CVN_SEEDS asks for more than the usual number of graphs. */
#include "fuse_support.h"
#include "graph/region.h"
#include "graph/text/text.h"
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

/* ---- regions are what they were made of ---- */

/* What has been seen of both graphs: operations that are the same, on the same operands, have one number, wherever they stand
   and however often. A region reads through views of all of a tensor: these are known by what they view, and by their shape. */
typedef struct Numbers {
    struct Numbered {
        const Op *op;
        int *operand; /* [op->n_operands] numbers */
    } * known;        /* [n] */
    int n;
    Arena arena;
} Numbers;

static bool same_number(const struct Numbered *a, const Op *op, const int *operand, bool view)
{
    if (view != tile_is_view(a->op) || !cvn_type_equal(op_out(op, 0), op_out(a->op, 0)))
        return false;
    if (view)
        return a->operand[0] == operand[0];
    return op->kind == a->op->kind && op->n_operands == a->op->n_operands &&
           memcmp(operand, a->operand, (size_t)op->n_operands * sizeof *operand) == 0 &&
           attr_equal(op->kind, &op->attr, &a->op->attr);
}

/* [n_values] The number of each value, in the arena: that of its operation, and which result it is. */
static int *number_values(Numbers *all, const cvn_graph *g)
{
    int *number = arena_array(&all->arena, g->n_values + (size_t)1, sizeof *number);
    for (const Op *op = g->first; op; op = op->next) {
        const bool view = tile_is_view(op);
        int *operand = arena_array(&all->arena, (size_t)op->n_operands + 1, sizeof *operand), k = 0;
        for (int i = 0; i < op->n_operands; i++)
            operand[i] = number[(view ? tile_root_of(op->operand[i]) : op->operand[i])->id];
        if (view && cvn_type_equal(op_out(op, 0), &tile_root_of(op->operand[0])->type)) {
            number[op->result[0]->id] = operand[0];
            continue;
        }
        while (k < all->n && !same_number(&all->known[k], op, operand, view))
            k++;
        if (k == all->n) {
            all->known = realloc(all->known, (size_t)++all->n * sizeof *all->known);
            all->known[k] = (struct Numbered){op, operand};
        }
        for (int i = 0; i < op->n_results; i++)
            number[op->result[i]->id] = OP_MOST_RESULTS * k + i;
    }
    return number;
}

/* How many there were. */
static int inline_regions(cvn_graph *g)
{
    int n = 0;
    for (Op *op = g->first, *following; op; op = following) {
        following = op->next;
        graph_resolve_op(op);
        if (op->kind != OP_REGION)
            continue;
        region_dissolve(g, op);
        graph_remove(g, op);
        n++;
    }
    graph_resolve(g);
    return n;
}

static cvn_graph *parse(const StrBuf *text)
{
    cvn_err err = {0};
    cvn_graph *g = graph_parse(text->text, text->length, "fused.txt", &err);
    if (!g)
        fail_msg("%s\n%s", err.message, text->text);
    return g;
}

static void regions_are_read_as_printed_and_inlined_the_graph_before(void **state)
{
    const int n = seeds(SANITIZED ? 60 : 500);
    int inlined = 0;
    for (int k = 0; k < n; k++) {
        const uint64_t seed = 4 * (uint64_t)k + 3; /* large and small */
        cvn_err err = {0};
        bool changed;
        StrBuf text = {0}, again = {0};
        Numbers all = {.n = 0};
        cvn_graph *before = hard_graph(seed), *fused = graph_clone(before, &err);
        must(arena_init(&all.arena, &err), &err);
        must(fuse_graph(fused, cpu_kernels(), &changed, &err), &err);
        must(graph_verify(fused, &err), &err);
        graph_print(&text, fused);
        cvn_graph *read = parse(&text);
        graph_print(&again, read);
        assert_string_equal(text.text, again.text);
        inline_regions(before);
        inlined += inline_regions(read);
        must(graph_verify(read, &err), &err);
        const int *was = number_values(&all, before), *is = number_values(&all, read);
        assert_int_equal(before->n_outputs, read->n_outputs);
        for (int i = 0; i < before->n_outputs; i++)
            if (was[before->output[i].value->id] != is[read->output[i].value->id])
                fail_msg("seed %d: output %d is not what it was\n%s", (int)seed, i, text.text);
        strbuf_free(&text);
        strbuf_free(&again);
        free(all.known);
        arena_free(&all.arena);
        cvn_graph_free(before);
        cvn_graph_free(fused);
        cvn_graph_free(read);
    }
    print_message("%d regions of %d graphs\n", inlined, n);
    assert_true(inlined > n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_graphs_give_the_bits_of_their_operations),
        cmocka_unit_test(regions_are_read_as_printed_and_inlined_the_graph_before),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
