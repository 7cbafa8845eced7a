/* caravan opt --run: graphs in text are carried out, on any mesh with the results of the interpreter. */
#include "shell.h"

#define GRAPHS CVN_TEST_DATA "/graphs/"

/* Uneven everywhere on 2 and 3 devices, with a result that is an update of a split weight. */
static const char uneven[] = "cat >uneven.txt <<'END'\n"
                             "graph @uneven {\n"
                             "  %x: f32[5,7] = parameter {name=\"x\"}\n"
                             "  %w: f32[7,11]<_,model> = parameter {name=\"w\"}\n"
                             "  %v: f32[11,3] = parameter {name=\"v\"}\n"
                             "  %h: f32[5,11] = dot_general %x, %w {lhs_contract=[1], "
                             "rhs_contract=[0]}\n"
                             "  %y: f32[5,3] = dot_general %h, %v {lhs_contract=[1], "
                             "rhs_contract=[0]}\n"
                             "  %most: i32[5] = argmax %h {axis=1}\n"
                             "  %w2: f32[7,11] = add %w, %w\n"
                             "  return %y, %most, %w2 into %w\n"
                             "}\n"
                             "END\n";

static const char *const meshes[] = {NULL, "model=2", "data=2,model=2", "model=3"};

static void run_checked(const char *before, const char *graph, const char *passes)
{
    char line[4096];
    for (size_t m = 0; m < sizeof meshes / sizeof *meshes; m++) {
        snprintf(line, sizeof line, "%scaravan opt --run --check --seed 3%s%s%s%s %s 2>&1", before,
                 passes ? " --passes " : "", passes ? passes : "", meshes[m] ? " --mesh " : "",
                 meshes[m] ? meshes[m] : "", graph);
        expect(0, line, "results are the interpreter's");
    }
}

static void graphs_have_the_interpreters_results_on_any_mesh(void **state)
{
    static const char *const graphs[] = {"composites", "elementwise_bf16", "gradients",
                                         "indexing",   "integers_i8",      "llama_score",
                                         "quantized",  "reductions",       "shapes"};
    char path[512];
    for (size_t i = 0; i < sizeof graphs / sizeof *graphs; i++) {
        snprintf(path, sizeof path, GRAPHS "%s.txt", graphs[i]);
        run_checked("", path, NULL);
    }
    run_checked("", GRAPHS "composites.txt", "decompose,simplify");
}

static void sizes_need_not_divide(void **state)
{
    run_checked(uneven, "uneven.txt", NULL);
}

static void what_is_empty_or_tiny_is_a_result_too(void **state)
{
    static const char graph[] = "cat >empty.txt <<'END'\n"
                                "graph @empty {\n"
                                "  %x: f32[0,3] = parameter {name=\"x\"}\n"
                                "  %i: i4[3] = parameter {name=\"i\"}\n"
                                "  %s: f64[] = parameter {name=\"s\"}\n"
                                "  %c: i32[3] = convert %i\n"
                                "  %z: f32[3] = reduce %x {kind=sum, dims=[0]}\n"
                                "  %y: f32[2,0] = constant {value=splat 1}\n"
                                "  return %x, %c, %z, %y, %y, %i into %i, %s into %s\n"
                                "}\n"
                                "END\n";
    run_checked(graph, "empty.txt", NULL);
    expect(0, "caravan opt --run empty.txt", "%x: f32[0,3] = []\n");
    expect(0, "caravan opt --run empty.txt",
           "%z: f32[3] = [0, 0, 0]\n%y: f32[2,0] = [[], []]\n%result.4: f32[2,0] = [[], []]\n");
    expect(0, "echo 'graph @none { return }' | caravan opt --run --check - 2>&1", "0 results");
}

static void marks_count_for_nothing_on_one_device(void **state)
{
    expect(0, "caravan opt --run --check " GRAPHS "donation.txt 2>&1", "4 results");
    expect(0, "caravan opt --run --check -m data=2,model=2 " GRAPHS "donation.txt 2>&1",
           "4 results");
    expect(1, "caravan opt --run -m model=2 " GRAPHS "donation.txt 2>&1", "no axis \"data\"");
}

/* The same whole results, whatever computed them; and what was written is read again. */
static void results_come_back_as_inputs(void **state)
{
    char line[4096];
    snprintf(line, sizeof line,
             "%scat >step.txt <<'END'\n"
             "graph @step {\n"
             "  %%i: i32[2] = parameter {name=\"i\"}\n"
             "  %%one: i32[2] = constant {value=splat 1}\n"
             "  %%j: i32[2] = add %%i, %%one\n"
             "  %%twice: i32[2] = add %%j, %%j\n"
             "  return %%j into %%i, %%twice\n"
             "}\n"
             "END\n"
             "cat >same.txt <<'END'\n"
             "graph @same {\n"
             "  %%y: f32[5,3] = parameter {name=\"y\"}\n"
             "  %%most: i32[5] = parameter {name=\"most\"}\n"
             "  %%w: f32[7,11] = parameter {name=\"w\"}\n"
             "  return %%y, %%most, %%w\n"
             "}\n"
             "END\n"
             "caravan opt --run --seed 5 --mesh model=3 --out a.safetensors uneven.txt && "
             "caravan opt --run --inputs a.safetensors same.txt >again && "
             "caravan opt --run --seed 5 --mesh model=3 uneven.txt | diff - again && "
             "caravan opt --run --inputs a.safetensors --out b.safetensors same.txt && "
             "cmp a.safetensors b.safetensors && echo the same",
             uneven);
    expect(0, line, "the same");
    /* What was computed into a parameter is found by its name: each run is a step. */
    expect(0,
           "echo 'graph @zero { %i: i32[2] = constant {value=[0, 1]} return %i }' | "
           "caravan opt --run -o c.safetensors - && "
           "caravan opt --run -i c.safetensors -o d.safetensors step.txt && "
           "caravan opt --run -i d.safetensors -m data=2 step.txt",
           "%i: i32[2] = [2, 3]\n%twice: i32[2] = [4, 6]\n");
    expect(1, "caravan opt --run -i a.safetensors step.txt 2>&1",
           "a.safetensors: 'y' is not a parameter of graph 'step'\n");
}

static void seeds_make_the_inputs(void **state)
{
    static const char graph[] = "cat >seeds.txt <<'END'\n"
                                "graph @seeds {\n"
                                "  %f: f32[4] = parameter {name=\"f\"}\n"
                                "  %i: i32[1000] = parameter {name=\"i\"}\n"
                                "  %table: f32[3,2] = parameter {name=\"table\"}\n"
                                "  %rows: i32[1000] = parameter {name=\"rows\"}\n"
                                "  %wide: i32[2,500] = reshape %rows\n"
                                "  %taken: f32[2,500,2] = gather %table, %wide {window=[2], "
                                "collapsed=[0], index_map=[0], index_vector_dim=2, sizes=[1,2]}\n"
                                "  %low: i32[] = reduce %i {kind=min, dims=[0]}\n"
                                "  %high: i32[] = reduce %i {kind=max, dims=[0]}\n"
                                "  %row: i32[] = reduce %rows {kind=max, dims=[0]}\n"
                                "  return %low, %high, %row, %f, %i, %taken\n"
                                "}\n"
                                "END\n";
    char line[4096];
    snprintf(
        line, sizeof line,
        "%scaravan opt --run seeds.txt >one; caravan opt --run --seed 0 seeds.txt | diff one - "
        "&& ! caravan opt --run --seed 1 seeds.txt | diff one - >/dev/null && cat one",
        graph);
    expect(0, line, "%low: i32[] = 0\n%high: i32[] = 15\n%row: i32[] = 2\n%f: f32[4] = [");
    expect(0, "cat one", ", …, ");
}

/* Sums that cancel: in f32 something else is left than in the interpreter's f64, in any order. */
static void results_that_differ_are_named(void **state)
{
    static const char graph[] =
        "cat >cancel.txt <<'END'\n"
        "graph @cancel {\n"
        "  %p: f32[64] = parameter {name=\"p\"}\n"
        "  %q: f32[64,3] = parameter {name=\"q\"}\n"
        "  %y: f32[9] = parameter {name=\"y\"}\n"
        "  %z: f32[9,3] = parameter {name=\"z\"}\n"
        "  %many: f32[64] = constant {value=splat 1000000}\n"
        "  %large: f32[64] = multiply %p, %many\n"
        "  %less: f32[64] = negate %large\n"
        "  %x: f32[137] = concatenate %large, %y, %less\n"
        "  %w: f32[137,3] = concatenate %q, %z, %q\n"
        "  %sum: f32[3] = dot_general %x, %w {lhs_contract=[0], rhs_contract=[0]}\n"
        "  return %p, %sum\n"
        "}\n"
        "END\n";
    char line[4096];
    snprintf(line, sizeof line, "%scaravan opt --run --check cancel.txt 2>&1", graph);
    expect(1, line, "%sum: f32[3] = [");
    expect(1, "caravan opt --run --check cancel.txt 2>&1", "caravan: result 'sum' is ");
    expect(1, "caravan opt --run --check cancel.txt 2>&1", " at [0], where the interpreter has ");
}

static void mistakes_are_one_sentence(void **state)
{
    static const char other[] = "cat >other.txt <<'END'\n"
                                "graph @other {\n"
                                "  %c: f32[7,10] = constant {value=splat 2}\n"
                                "  %w: f32[7,10] = negate %c\n"
                                "  return %w\n"
                                "}\n"
                                "END\n";
    char line[4096];
    snprintf(line, sizeof line,
             "%s%scaravan opt -q --run --out w.safetensors other.txt && caravan opt --run -i "
             "w.safetensors uneven.txt 2>&1",
             uneven, other);
    expect(1, line, "w.safetensors: 'w' is f32[7,10], and the parameter f32[7,11]\n");
    expect(1, "caravan opt --run -i other.txt uneven.txt 2>&1", "other.txt");
    expect(1, "caravan opt --run -i none uneven.txt 2>&1", "none");
    expect(1, "caravan opt --run -m model=x uneven.txt 2>&1", "model=x");
    expect(1, "caravan opt --run " GRAPHS "cut_logits_tp.txt 2>&1", "already contains all_gather");
    expect(
        1,
        "echo 'graph @large { %x: f32[1000000,100000,1000] = parameter {name=\"x\"} return %x }' "
        "| caravan opt --run - 2>&1",
        "the inputs and results of graph 'large'");
    expect(2, "caravan opt --check uneven.txt 2>&1", "--check has no effect without --run");
    expect(2, "caravan opt --run --emit text uneven.txt 2>&1", "give only one of");
    expect(2, "caravan opt --run --seed x uneven.txt 2>&1", "seed");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(graphs_have_the_interpreters_results_on_any_mesh),
        cmocka_unit_test(sizes_need_not_divide),
        cmocka_unit_test(what_is_empty_or_tiny_is_a_result_too),
        cmocka_unit_test(marks_count_for_nothing_on_one_device),
        cmocka_unit_test(results_come_back_as_inputs),
        cmocka_unit_test(seeds_make_the_inputs),
        cmocka_unit_test(results_that_differ_are_named),
        cmocka_unit_test(mistakes_are_one_sentence),
    };
    return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
