/* Propagation: what it must hold on any graph, small graphs by example, and Llama's layouts. */
#include "graph/factors.h"
#include "graph/text/text.h"
#include "model/forward.h"
#include "model/layouts.h"
#include "model_make.h"
#include "parsed.h"
#include "random_graph.h"
#include "shard/passes.h"
#include "shard/propagate.h"
#include "unit.h"

static cvn_value *value_named(const cvn_graph *g, const char *name)
{
    for (const Op *op = g->first; op; op = op->next)
        for (int i = 0; i < op->n_results; i++)
            if (op->result[i]->name && strcmp(op->result[i]->name, name) == 0)
                return op->result[i];
    fail_msg("no value %s", name);
    return NULL;
}

static void expect_spec(const Mesh *mesh, const ShardResult *r, const cvn_value *v,
                        const char *what, const char *spec)
{
    StrBuf out = {0};
    sharding_print(&out, mesh, &r->sharding[v->id]);
    if (strcmp(out.text, spec) != 0)
        fail_msg("%s is %s, expected %s", what, out.text, spec);
    strbuf_free(&out);
}

/* A graph in text, a mesh, and "name<spec>" of values after propagation, with blanks between. */
static void small_graphs_by_example(void **state)
{
    static const struct {
        const char *mesh, *graph, *want;
        int conflicts;
    } row[] = {
        /* forward along the batch, and from the weights; backward through elementwise ones */
        {"data=2,model=2",
         "graph @g { %x: f32[8,64]<data,_> = parameter {name=\"x\"}\n"
         "%w: f32[256,64]<model,_> = parameter {name=\"w\"}\n"
         "%h: f32[8,256] = dot_general %x, %w {lhs_contract=[1], rhs_contract=[1]}\n"
         "%y: f32[8,256] = tanh %h\n return %y }",
         "h<data,model> y<data,model>", 0},
        {"data=2,model=2",
         "graph @g { %x: f32[8,64] = parameter {name=\"x\"}\n"
         "%y: f32[8,64] = negate %x\n %z: f32[8,64]<_,model> = tanh %y\n return %z }",
         "x<_,model> y<_,model> z<_,model>", 0},
        /* a split contraction says nothing of the result */
        {"model=2",
         "graph @g { %x: f32[8,64]<_,model> = parameter {name=\"x\"}\n"
         "%w: f32[256,64] = parameter {name=\"w\"}\n"
         "%h: f32[8,256] = dot_general %x, %w {lhs_contract=[1], rhs_contract=[1]}\n return %h }",
         "w<_,model> h<_,_>", 0},
        /* an axis that two dimensions want goes to the larger tensor; the rest is a conflict */
        {"data=2",
         "graph @g { %x: f32[8,64]<data,_> = parameter {name=\"x\"}\n"
         "%w: f32[256,64]<data,_> = parameter {name=\"w\"}\n"
         "%h: f32[8,256] = dot_general %x, %w {lhs_contract=[1], rhs_contract=[1]}\n return %h }",
         "h<_,data>", 1},
        /* a priority is stronger than size */
        {"data=2",
         "graph @g { %x: f32[8,64]<data,_> = parameter {name=\"x\"}\n"
         "%w: f32[256,64]<1:data,_> = parameter {name=\"w\"}\n"
         "%h: f32[8,256] = dot_general %x, %w {lhs_contract=[1], rhs_contract=[1]}\n return %h }",
         "h<data,_>", 1},
        /* reshape: parts of an axis where a dimension is not enough */
        {"model=4",
         "graph @g { %x: f32[8,6]<model,_> = parameter {name=\"x\"}\n"
         "%y: f32[2,4,6] = reshape %x\n return %y }",
         "y<model.1.2,model.2.2,_>", 0},
        {"model=4",
         "graph @g { %x: f32[2,4,6] = parameter {name=\"x\"}\n"
         "%y: f32[8,6]<model,_> = reshape %x\n return %y }",
         "x<model.1.2,model.2.2,_>", 0},
        /* uneven sizes are split, and not more ways than there are elements */
        {"model=4",
         "graph @g { %x: f32[6]<model> = parameter {name=\"x\"}\n %y: f32[6] = tanh %x\n"
         "return %y }",
         "y<model>", 0},
        /* a shared constant links nothing */
        {"data=2",
         "graph @g { %x: f32[8]<data> = parameter {name=\"x\"}\n %u: f32[8] = parameter "
         "{name=\"u\"}\n"
         "%c: f32[8] = constant {value=splat 2}\n %y: f32[8] = multiply %x, %c\n"
         "%z: f32[8] = multiply %u, %c\n return %y, %z }",
         "y<data> c<_> u<_> z<_>", 0},
        /* an output into a parameter lies as the parameter */
        {"data=2",
         "graph @g { %x: f32[8]<data> = parameter {name=\"x\"}\n %u: f32[8] = parameter "
         "{name=\"u\"}\n"
         "%y: f32[8] = tanh %x\n return %y into %u }",
         "u<data>", 0},
        /* the exchange: partial sums over model, heads that could not take data */
        {"data=2,model=2",
         "graph @g { %x: f32[8,4,64]<data,_,model> = parameter {name=\"x\"}\n"
         "%w: f32[16,64]<1:data,model> = parameter {name=\"w\"}\n"
         "%q: f32[8,4,16] = dot_general %x, %w {lhs_contract=[2], rhs_contract=[1]}\n"
         "%r: f32[8,4,16] = tanh %q\n return %r }",
         "q<data,_,model> r<data,_,model>", 1},
        /* closed: a mark stays as it is */
        {"data=2,model=2",
         "graph @g { %x: f32[8,64]<data,model> = parameter {name=\"x\"}\n"
         "%y: f32[8,64]<_,_> = tanh %x\n %z: f32[8,64] = tanh %y\n return %z }",
         "x<data,model> y<_,_> z<_,_>", 2},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        cvn_graph *g = graph_of(row[i].graph);
        Mesh mesh = mesh_of(row[i].mesh);
        ShardResult r;
        cvn_err err = {0};
        must(shard_propagate(g, &mesh, &r, &err), &err);
        for (const char *p = row[i].want; *p;) {
            char name[16], spec[64];
            int used = 0;
            assert_int_equal(sscanf(p, " %15[^< ]%63[^> ]>%n", name, spec, &used), 2);
            strncat(spec, ">", 2);
            expect_spec(&mesh, &r, value_named(g, name), row[i].graph, spec);
            p += used;
        }
        if (r.n_conflicts != row[i].conflicts)
            fail_msg("%d conflicts, not %d: %s", r.n_conflicts, row[i].conflicts, row[i].graph);
        shard_result_free(&r);
        cvn_graph_free(g);
    }
}

/* Every axis of every value says where it came from, and conflicts name both sides. */
static void the_report_tells_who_set_what(void **state)
{
    cvn_graph *g =
        graph_of("graph @g { %x: f32[8,64]<data,_> = parameter {name=\"x\"}\n"
                 "%w: f32[256,64]<1:data,model> = parameter {name=\"w\"}\n"
                 "%h: f32[8,256] = dot_general %x, %w {lhs_contract=[1], rhs_contract=[1]}\n"
                 "%y: f32[8,256] = tanh %h\n return %y }");
    Mesh mesh = mesh_of("data=2,model=2");
    ShardResult r;
    StrBuf out = {0};
    assert_int_equal(shard_propagate(g, &mesh, &r, NULL), CVN_OK);
    shard_report(&out, g, &mesh, &r);
    assert_string_equal(
        out.text,
        "mesh data=2,model=2\n"
        "%x: f32[8,64]<data,_>\n    dim 0 by data: mark on %x\n"
        "%w: f32[256,64]<data,model>\n    dim 1 by model: mark on %w\n"
        "    dim 0 by data: mark on %w\n"
        "%h: f32[8,256]<data,_>\n    dim 0 by data: dot_general from %x; mark on %x\n"
        "%y: f32[8,256]<data,_>\n"
        "    dim 0 by data: tanh from %h; dot_general from %x; mark on %x\n"
        "2 conflicts\n"
        "dot_general (%h) is split differently: %w dim 0 <data,model> %h dim 1 <data,_>\n"
        "dot_general (%h) is split differently: %x dim 1 <data,_> %w dim 1 <data,model>\n");
    strbuf_free(&out);
    shard_result_free(&r);
    cvn_graph_free(g);
}

/* The pass writes specs that the text form keeps, priorities too, and has then nothing to do. */
static void the_pass_writes_specs_and_is_idempotent(void **state)
{
    static const char text[] =
        "graph @g {\n  %x: f32[8,64]<data,_> = parameter {name=\"x\"}\n"
        "  %w: f32[256,64]<-1:model,_> = parameter {name=\"w\"}\n"
        "  %h: f32[8,256]<data,model> = dot_general %x, %w {lhs_contract=[1], rhs_contract=[1]}\n"
        "  return %h\n}\n";
    cvn_graph *g =
        graph_of("graph @g { %x: f32[8,64]<data,_> = parameter {name=\"x\"}\n"
                 "%w: f32[256,64]<-1:model,_> = parameter {name=\"w\"}\n"
                 "%h: f32[8,256] = dot_general %x, %w {lhs_contract=[1], rhs_contract=[1]}\n"
                 "return %h }");
    bool changed = false;
    cvn_err err = {0};
    StrBuf out = {0};
    assert_int_equal(pass_propagate.run(g, NULL, &changed, &err), CVN_EINVAL);
    assert_non_null(strstr(err.message, "--mesh"));
    g->mesh = "data=2,model=2";
    for (int i = 0; i < 2; i++) {
        changed = false;
        assert_int_equal(pass_propagate.run(g, NULL, &changed, NULL), CVN_OK);
        assert_int_equal(changed, i == 0);
        strbuf_clear(&out);
        graph_print(&out, g);
        assert_string_equal(out.text, text);
        cvn_graph_free(g);
        g = graph_of(out.text);
        g->mesh = "data=2,model=2";
    }
    strbuf_free(&out);
    cvn_graph_free(g);
}

static void marks_that_the_mesh_cannot_have_are_refused(void **state)
{
    cvn_graph *g = graph_of("graph @g { %x: f32[8]<rows> = parameter {name=\"x\"}\n"
                            "%y: f32[8] = tanh %x\n return %y }");
    Mesh mesh = mesh_of("data=2");
    ShardResult r;
    cvn_err err = {0};
    assert_int_equal(shard_propagate(g, &mesh, &r, &err), CVN_EINVAL);
    assert_non_null(strstr(err.message, "%x"));
    assert_non_null(strstr(err.message, "rows"));
    cvn_graph_free(g);
}

/* On any graph: marks stay, every sharding is legal, values without a mark in reach stay whole, and
   the same graph gives the same result. */
static void random_graphs_keep_the_invariants(void **state)
{
    static const char *const meshes[] = {"data=2,model=2", "data=4,model=2", "data=3,model=2",
                                         "data=1,model=8"};
    const RandomOptions options = {.n_ops = 40,
                                   .n_parameters = 4,
                                   .most_elements = 400,
                                   .composites = true,
                                   .marks = true,
                                   .into = true};
    int64_t split = 0;
    for (uint64_t seed = 1; seed <= 300; seed++) {
        cvn_graph *g = random_graph(seed, &options);
        Mesh mesh = mesh_of(meshes[seed % 4]);
        ShardResult a, b;
        cvn_err err = {0};
        assert_int_equal(cvn_graph_check(g, &err), CVN_OK);
        if (shard_propagate(g, &mesh, &a, &err) || shard_propagate(g, &mesh, &b, &err))
            fail_msg("seed %llu: %s", (unsigned long long)seed, err.message);
        for (const Op *op = g->first; op; op = op->next)
            for (int i = 0; i < op->n_results; i++) {
                const cvn_value *v = op->result[i];
                Sharding *s = &a.sharding[v->id], mark;
                if (sharding_check(&mesh, s, "a value", &err))
                    fail_msg("seed %llu: %s", (unsigned long long)seed, err.message);
                for (int d = 0; d < v->type.rank; d++) {
                    assert_true(axes_equal(&s->dim[d].axes, &b.sharding[v->id].dim[d].axes));
                    split += s->dim[d].axes.n > 0 && !v->spec;
                    if (!v->spec && s->dim[d].axes.n)
                        assert_true(axes_size(&s->dim[d].axes) <= v->type.dim[d]);
                    if (!v->spec && !a.origin[v->id])
                        assert_int_equal(s->dim[d].axes.n, 0);
                }
                if (!v->spec)
                    continue;
                assert_int_equal(sharding_from_spec(&mesh, v->spec, v->type.rank, "v", &mark, &err),
                                 CVN_OK);
                for (int d = 0; d < v->type.rank; d++)
                    assert_true(axes_equal(&s->dim[d].axes, &mark.dim[d].axes));
            }
        StrBuf out = {0};
        shard_report(&out, g, &mesh, &a);
        assert_false(out.failed);
        strbuf_free(&out);
        shard_result_free(&a);
        shard_result_free(&b);
        cvn_graph_free(g);
    }
    assert_true(split > 1000);
}

/* ---- Llama ---- */

enum { LAYERS = 2 };

static Model *small_llama(int64_t kv_heads)
{
    Model *c =
        model_make("'hidden_size': 64, 'num_hidden_layers': %d, 'num_attention_heads': 8, "
                   "'num_key_value_heads': %d, 'head_dim': 8, 'intermediate_size': 128, "
                   "'vocab_size': 96, 'max_position_embeddings': 32, 'tie_word_embeddings': false",
                   (int)LAYERS, (int)kv_heads);
    return c;
}

/* What a layout must make of the values of a step, layer for layer. */
typedef struct Expected {
    const char *mesh, *layout;
    int64_t kv_heads;
    const char *embedded;                      /* [batch, seq, embed] */
    const char *q, *kv, *attention;            /* [batch, seq, heads, head_dim] */
    const char *o, *gate, *inner, *down;       /* [batch, seq, embed or ffn] */
    const char *logits, *cache, *norm, *start; /* [b,s,vocab], [b,kv,context,head_dim], [e], [b] */
} Expected;

static void check_layout(const Expected *want)
{
    Model *config = small_llama(want->kv_heads);
    ModelStep step = {
        .batch = 8, .seq = 4, .context = 16, .compute = CVN_BF16, .output = STEP_LOGITS};
    cvn_err err = {0};
    Mesh mesh = mesh_of(want->mesh);
    ShardResult r;
    cvn_graph *g = model_step(config, &step, &err);
    if (!g || model_mark(g, config, &mesh, want->layout, &err) ||
        shard_propagate(g, &mesh, &r, &err))
        fail_msg("%s", err.message);
    const char *const dots[7] = {want->q,    want->kv,   want->kv,  want->o,
                                 want->gate, want->gate, want->down};
    int n_dots = 0, n_attention = 0;
    for (const Op *op = g->first; op; op = op->next) {
        const cvn_value *v = op->result[0];
        char what[96];
        snprintf(what, sizeof what, "%s %s, %s number %d", want->layout, want->mesh,
                 op_info[op->kind].name, n_dots);
        if (op->kind == OP_GATHER)
            expect_spec(&mesh, &r, v, what, want->embedded);
        if (op->kind == OP_ATTENTION && ++n_attention)
            expect_spec(&mesh, &r, v, what, want->attention);
        if (op->kind == OP_LOGISTIC)
            expect_spec(&mesh, &r, v, what, want->inner);
        if (op->kind == OP_DOT_GENERAL) {
            expect_spec(&mesh, &r, v, what, n_dots == 7 * LAYERS ? want->logits : dots[n_dots % 7]);
            n_dots++;
        }
    }
    assert_int_equal(n_dots, 7 * LAYERS + 1);
    assert_int_equal(n_attention, LAYERS);
    expect_spec(&mesh, &r, value_named(g, "cache.1.k"), "cache.1.k", want->cache);
    expect_spec(&mesh, &r, value_named(g, "cache.0.v"), "cache.0.v", want->cache);
    expect_spec(&mesh, &r, value_named(g, "layers.0.attn_norm"), "norm", want->norm);
    expect_spec(&mesh, &r, value_named(g, "start"), "start", want->start);
    shard_result_free(&r);
    cvn_graph_free(g);
}

static void layouts_give_the_published_activations(void **state)
{
    static const Expected rows[] = {
        {"data=2,model=2", "2d", 4, "<data,_,model>", "<data,_,model,_>", "<data,_,model,_>",
         "<data,_,model,_>", "<data,_,model>", "<data,_,model>", "<data,_,model>", "<data,_,model>",
         "<data,_,model>", "<data,model,_,_>", "<_>", "<data>"},
        {"data=4,model=2", "2d", 2, "<data,_,model>", "<data,_,model,_>", "<data,_,model,_>",
         "<data,_,model,_>", "<data,_,model>", "<data,_,model>", "<data,_,model>", "<data,_,model>",
         "<data,_,model>", "<data,model,_,_>", "<_>", "<data>"},
        {"data=2,model=2", "dp", 4, "<data,_,_>", "<data,_,_,_>", "<data,_,_,_>", "<data,_,_,_>",
         "<data,_,_>", "<data,_,_>", "<data,_,_>", "<data,_,_>", "<data,_,_>", "<data,_,_,_>",
         "<_>", "<data>"},
        {"model=4", "tp", 4, "<_,_,_>", "<_,_,model,_>", "<_,_,model,_>", "<_,_,model,_>",
         "<_,_,_>", "<_,_,model>", "<_,_,model>", "<_,_,_>", "<_,_,model>", "<_,model,_,_>", "<_>",
         "<_>"},
        {"model=4", "tp", 2, "<_,_,_>", "<_,_,model,_>", "<_,_,model.1.2,_>", "<_,_,model,_>",
         "<_,_,_>", "<_,_,model>", "<_,_,model>", "<_,_,_>", "<_,_,model>", "<_,model.1.2,_,_>",
         "<_>", "<_>"},
        {"data=8", "fsdp", 4, "<data,_,_>", "<data,_,_,_>", "<data,_,_,_>", "<data,_,_,_>",
         "<data,_,_>", "<data,_,_>", "<data,_,_>", "<data,_,_>", "<data,_,_>", "<data,_,_,_>",
         "<_>", "<data>"},
        {"dcn=2,data=2,model=2", "fsdp+tp", 4, "<dcn*data,_,model>", "<dcn*data,_,model,_>",
         "<dcn*data,_,model,_>", "<dcn*data,_,model,_>", "<dcn*data,_,model>", "<dcn*data,_,model>",
         "<dcn*data,_,model>", "<dcn*data,_,model>", "<dcn*data,_,model>", "<dcn*data,model,_,_>",
         "<_>", "<dcn*data>"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        check_layout(&rows[i]);
}

static void layouts_are_told_apart(void **state)
{
    Model *config = small_llama(4);
    ModelStep step = {
        .batch = 8, .seq = 1, .context = 16, .compute = CVN_F32, .output = STEP_LOGITS};
    Mesh mesh = mesh_of("data=2,model=2");
    cvn_err err = {0};
    cvn_graph *g = model_step(config, &step, &err);
    static const char *const wrong[] = {"", "3d", "tp+", "+tp", "tp,fsdp", "tp+tp+tp+tp+tp"};
    assert_non_null(g);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(model_mark(g, config, &mesh, wrong[i], NULL), CVN_EINVAL);
    for (size_t i = 0; layout_name(i); i++)
        assert_int_equal(model_mark(g, config, &mesh, layout_name(i), &err), CVN_OK);
    cvn_graph_free(g);
}

static int mark_by_file(const char *json, const Mesh *mesh, cvn_graph *g, const Model *config,
                        cvn_err *err)
{
    static const char path[] = "shard_rules_test.json";
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(json, f);
    fclose(f);
    int code = model_mark(g, config, mesh, path, err);
    remove(path);
    return code;
}

/* Rules in a file give what the layout of the same rules does; what is wrong in one is named. */
static void rules_are_read_from_a_file(void **state)
{
    static const char fsdp_and_tp[] =
        "{\"tokens\": {\"batch\": [\"dcn\", \"data\"]},"
        "\"tables\": {\"vocab\": \"model\", \"embed\": \"data\"},"
        "\"attention\": {\"heads\": \"model\", \"kv_heads\": \"model\", \"embed\": \"data\"},"
        "\"mlp\": {\"ffn\": \"model\", \"embed\": [\"data\"]}}";
    static const struct {
        const char *json, *says;
    } wrong[] = {
        {"{\"mlp\": {\"ffn\": \"modle\"}}", "modle"},
        {"{\"mlp\": {\"vocab\": \"model\"}}", "mlp have no axis \"vocab\""},
        {"{\"heads\": {\"ffn\": \"model\"}}", "\"heads\" is not one of"},
        {"{\"mlp\": \"model\"}", "mlp must be an object"},
        {"{\"mlp\": {\"ffn\": [3]}}", "mlp.ffn must be"},
        {"[1]", "shard_rules_test.json"},
        {"{", "shard_rules_test.json"},
    };
    Model *config = small_llama(4);
    ModelStep step = {
        .batch = 8, .seq = 4, .context = 16, .compute = CVN_F32, .output = STEP_LOGITS};
    Mesh mesh = mesh_of("dcn=2,data=2,model=2");
    cvn_err err = {0};
    StrBuf text[2] = {{0}};
    for (int i = 0; i < 2; i++) {
        cvn_graph *g = model_step(config, &step, &err);
        int code = i ? mark_by_file(fsdp_and_tp, &mesh, g, config, &err)
                     : model_mark(g, config, &mesh, "fsdp+tp", &err);
        must(code, &err);
        graph_print(&text[i], g);
        cvn_graph_free(g);
    }
    assert_string_equal(text[0].text, text[1].text);
    cvn_graph *g = model_step(config, &step, &err);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_not_equal(mark_by_file(wrong[i].json, &mesh, g, config, &err), CVN_OK);
        if (!strstr(err.message, wrong[i].says))
            fail_msg("%s: %s", wrong[i].json, err.message);
        err = (cvn_err){0};
    }
    assert_int_not_equal(model_mark(g, config, &mesh, "there/is/none.json", NULL), CVN_OK);
    cvn_graph_free(g);
    strbuf_free(&text[0]);
    strbuf_free(&text[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_graphs_by_example),
        cmocka_unit_test(the_report_tells_who_set_what),
        cmocka_unit_test(the_pass_writes_specs_and_is_idempotent),
        cmocka_unit_test(marks_that_the_mesh_cannot_have_are_refused),
        cmocka_unit_test(random_graphs_keep_the_invariants),
        cmocka_unit_test(layouts_give_the_published_activations),
        cmocka_unit_test(layouts_are_told_apart),
        cmocka_unit_test(rules_are_read_from_a_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
