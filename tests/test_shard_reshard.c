/*
 * Reshards against brute force: every device gets its shard of a counted tensor, the planned steps
 * are run by the interpreter, and every device must hold its shard under the other sharding.
 */
#include "graph/interp/interp.h"
#include "parsed.h"
#include "shard/emit.h"
#include "shard/partition.h"
#include "splitmix.h"
#include "unit.h"

static const char *const meshes[] = {
    "a=2", "a=3",       "a=4", "a=2,b=2", "a=2,b=3",         "a=2,b=2,c=2", "a=4,b=2",
    "a=8", "dcn=2,a=2", "a=6", "a=2,b=4", "a=2,b=2:3,0,1,2", "a=2,b=2,c=3", "a=12"};
enum { MESHES = sizeof meshes / sizeof *meshes };

/* Some axes, or parts of them, on some dimensions. */
static Sharding random_sharding(const Mesh *mesh, int rank, uint64_t *state)
{
    Sharding s = sharding_open(rank);
    int first = (int)(splitmix(state) % (uint64_t)mesh->n_axes);
    for (int i = 0; i < mesh->n_axes; i++) {
        int axis = (first + i) % mesh->n_axes;
        int32_t size = mesh->axis[axis].size;
        AxisRef part[2] = {{axis, 1, size}};
        int n = 1;
        if (size % 2 == 0 && size > 2 && splitmix(state) % 2) {
            int32_t major = splitmix(state) % 3 ? 2 : size / 2;
            part[0] = (AxisRef){axis, 1, major};
            part[1] = (AxisRef){axis, major, size / major};
            n = 2;
        }
        for (int k = 0; k < n; k++)
            if (splitmix(state) % 3)
                axes_add(&s.dim[splitmix(state) % (uint64_t)rank].axes, part[k]);
    }
    return s;
}

/* What `to` does not use may be unreduced in `from`. */
static void take_unreduced(const Mesh *mesh, Sharding *from, uint64_t *state)
{
    from->how = splitmix(state) % 2 ? CVN_SUM : CVN_MAX;
    for (int axis = 0; axis < mesh->n_axes; axis++) {
        AxisRef ref = {axis, 1, mesh->axis[axis].size};
        if (ref.size > 1 && !sharding_uses(from, ref) && splitmix(state) % 2)
            axes_add(&from->unreduced, ref);
    }
}

static int32_t place_factor(const Mesh *mesh, const Sharding *s, int32_t device)
{
    return axes_digit(mesh, &s->unreduced, mesh_place(mesh, device)) + 1;
}

/* What the factors of all parts combine to. */
static int32_t whole_factor(const Sharding *s)
{
    int32_t n = axes_size(&s->unreduced);
    return s->unreduced.n == 0 ? 1 : s->how == CVN_MAX ? n : n * (n + 1) / 2;
}

typedef struct Case {
    uint64_t seed;
    Mesh mesh;
    cvn_type type;
    Sharding from, to;
    Reshard plan;
    int planted; /* in the tests of the tests: a step that is wrong */
} Case;

static cvn_graph *case_graph(const Case *c)
{
    cvn_err err = {0};
    Emit e;
    cvn_graph *g = cvn_graph_new("reshard", &err);
    emit_init(&e, g, &c->mesh);
    cvn_value *x = cvn_parameter(g, "x", sharding_local(&c->from, &c->type));
    cvn_type begin = sharding_local(&c->from, &c->plan.padded);
    cvn_type end = sharding_local(&c->to, &c->type);
    for (int d = 0; d < c->type.rank; d++)
        x = emit_resize(&e, x, d, begin.dim[d]);
    Sharding now = c->from;
    for (int i = 0; i < c->plan.n; i++) {
        x = emit_step(&e, x, &c->plan.padded, &now, &c->plan.step[i]);
        now = c->plan.step[i].after;
    }
    for (int d = 0; d < c->type.rank; d++)
        x = emit_resize(&e, x, d, end.dim[d]);
    cvn_output(g, x);
    if (cvn_graph_check(g, &err) || graph_verify(g, &err))
        fail_msg("seed %llu: %s", (unsigned long long)c->seed, err.message);
    return g;
}

/* "all_gather dim 0 by data; slice dim 1 by model". */
static void reshard_print(StrBuf *out, const Mesh *mesh, const Reshard *plan)
{
    static const char *const names[] = {"slice",      "all_gather", "reduce_scatter",
                                        "all_reduce", "all_to_all", "collective_permute",
                                        "pieces"};
    for (int i = 0; i < plan->n; i++) {
        const ReshardStep *step = &plan->step[i];
        strbuf_printf(out, "%s%s", i ? "; " : "", names[step->kind]);
        if (step->kind == RESHARD_ALL_TO_ALL)
            strbuf_printf(out, " dim %d to %d", step->from_dim, step->dim);
        else if (step->dim >= 0)
            strbuf_printf(out, " dim %d", step->dim);
        if (step->axes.n) {
            strbuf_puts(out, " by ");
            axes_print(out, mesh, &step->axes);
        }
    }
}

static void print_case(const Case *c)
{
    StrBuf out = {0};
    mesh_print(&out, &c->mesh);
    strbuf_puts(&out, "  ");
    type_print(&out, &c->type);
    sharding_print(&out, &c->mesh, &c->from);
    strbuf_puts(&out, " -> ");
    sharding_print(&out, &c->mesh, &c->to);
    strbuf_puts(&out, "  by ");
    reshard_print(&out, &c->mesh, &c->plan);
    fprintf(stderr, "%s\n", out.text);
    strbuf_free(&out);
}

/* Whether every device ends up with its shard. */
static bool runs_right(const Case *c)
{
    cvn_err err = {0};
    cvn_graph *g = case_graph(c);
    int n = c->mesh.n_devices;
    int64_t elements = cvn_type_elements(&c->type);
    void *in[16], *out[16];
    int32_t *whole = calloc((size_t)elements + 1, 4), *back = calloc((size_t)elements + 1, 4);
    for (int d = 0; d < n; d++) {
        cvn_type local = sharding_local(&c->from, &c->type);
        for (int64_t i = 0; i < elements; i++)
            whole[i] = (int32_t)(i + 1) * place_factor(&c->mesh, &c->from, d);
        in[d] = calloc(cvn_type_bytes(&local) + 1, 1);
        shard_scatter(&c->mesh, &c->from, &c->type, whole, d, in[d]);
    }
    if (interp_run(g, n, (const void *const *)in, out, &err))
        fail_msg("seed %llu: %s", (unsigned long long)c->seed, err.message);
    bool right = true;
    for (int64_t i = 0; i < elements; i++)
        whole[i] = (int32_t)(i + 1) * whole_factor(&c->from);
    for (int d = 0; d < n; d++) { /* not shard_gather: every copy is looked at */
        cvn_type local = sharding_local(&c->to, &c->type);
        void *want = calloc(cvn_type_bytes(&local) + 1, 1);
        shard_scatter(&c->mesh, &c->to, &c->type, whole, d, want);
        for (int64_t i = 0; i < cvn_type_elements(&local); i++) {
            int32_t x = ((int32_t *)want)[i];
            right = right && (x == 0 || x == ((int32_t *)out[d])[i]);
        }
        free(want);
    }
    shard_gather(&c->mesh, &c->to, &c->type, (const void *const *)out, back);
    right = right && memcmp(whole, back, (size_t)elements * 4) == 0;
    for (int d = 0; d < n; d++) {
        free(in[d]);
        free(out[d]);
    }
    free(whole);
    free(back);
    cvn_graph_free(g);
    return right;
}

static Case random_case(uint64_t seed, Arena *arena)
{
    uint64_t state = seed;
    Case c = {.seed = seed, .mesh = mesh_of(meshes[seed % MESHES])};
    int rank = 1 + (int)(splitmix(&state) % 3);
    bool even = splitmix(&state) % 2;
    int64_t dim[3];
    for (int d = 0; d < rank; d++)
        dim[d] = even ? 12 * (int64_t)(1 + splitmix(&state) % 2) : (int64_t)(splitmix(&state) % 14);
    c.type = cvn_type_make(CVN_I32, rank, dim);
    c.from = random_sharding(&c.mesh, rank, &state);
    c.to = random_sharding(&c.mesh, rank, &state);
    if (splitmix(&state) % 2)
        take_unreduced(&c.mesh, &c.from, &state);
    c.plan = reshard_plan(&c.mesh, &c.type, &c.from, &c.to, arena);
    return c;
}

static void any_reshard_moves_every_shard_to_its_place(void **state)
{
    int64_t steps[RESHARD_KINDS] = {0};
    for (uint64_t seed = 1; seed <= 4000; seed++) {
        Arena arena;
        assert_int_equal(arena_init(&arena, NULL), CVN_OK);
        Case c = random_case(seed, &arena);
        for (int i = 0; i < c.plan.n; i++)
            steps[c.plan.step[i].kind]++;
        if (!runs_right(&c)) {
            print_case(&c);
            fail_msg("seed %llu", (unsigned long long)seed);
        }
        arena_free(&arena);
    }
    for (int k = 0; k < RESHARD_KINDS; k++)
        assert_true(steps[k] > 20);
}

/* Also with sizes that shards do not divide, and by parts of axes that have no common digits. */
static void no_device_holds_more_on_the_way_than_before_or_after(void **state)
{
    for (uint64_t seed = 1; seed <= 4000; seed++) {
        Arena arena;
        assert_int_equal(arena_init(&arena, NULL), CVN_OK);
        Case c = random_case(seed, &arena);
        cvn_type begin = sharding_local(&c.from, &c.plan.padded);
        cvn_type end = sharding_local(&c.to, &c.plan.padded);
        int64_t a = cvn_type_elements(&begin), b = cvn_type_elements(&end);
        bool more = c.plan.involuntary;
        for (int i = 0; i < c.plan.n; i++) {
            cvn_type now = sharding_local(&c.plan.step[i].after, &c.plan.padded);
            more = more || cvn_type_elements(&now) > (a > b ? a : b);
        }
        if (more) {
            print_case(&c);
            fail_msg("seed %llu", (unsigned long long)seed);
        }
        arena_free(&arena);
    }
}

/* The example of pieces.h: one round, of which nobody sends or gets twice. */
static void pieces_come_straight_from_who_holds_them(void **state)
{
    Arena arena;
    assert_int_equal(arena_init(&arena, NULL), CVN_OK);
    Mesh mesh = mesh_of("data=2,model=3");
    cvn_type type = CVN_TYPE(CVN_F32, 32);
    Sharding from = sharding_open(1), to = sharding_open(1);
    axes_add(&from.dim[0].axes, (AxisRef){0, 1, 2});
    axes_add(&to.dim[0].axes, (AxisRef){1, 1, 3});
    Pieces *pieces = pieces_plan(&mesh, &type, &from, &to, &arena);
    assert_int_equal(pieces->n_rounds, 1);
    assert_int_equal(pieces->own.n, 4);
    assert_int_equal(pieces->round[0].n, 4);
    assert_int_equal(pieces->round[0].window[0], 11);
    assert_true(piece_bytes(&pieces->round[0], &type) == 44);
    uint32_t sends = 0, gets = 0;
    for (int i = 0; i < 4; i++) {
        uint32_t source = 1u << pieces->round[0].piece[i].source;
        uint32_t target = 1u << pieces->round[0].piece[i].target;
        assert_true(!(sends & source) && !(gets & target));
        sends |= source;
        gets |= target;
    }
    assert_int_equal(gets, 1u << 1 | 1u << 2 | 1u << 3 | 1u << 4);
    arena_free(&arena);
}

static Sharding parse_sharding(const Mesh *mesh, const char *text)
{
    cvn_spec spec = {0};
    Sharding s, unreduced;
    char copy[64];
    cvn_err err = {0};
    snprintf(copy, sizeof copy, "%s", text);
    char *partial = strchr(copy, '+');
    if (partial)
        *partial++ = '\0';
    char *next = copy;
    for (char *dim; (dim = strsep(&next, ",")); spec.rank++)
        for (char *axis; (axis = strsep(&dim, "*"));)
            if (strcmp(axis, "_") != 0)
                spec.dim[spec.rank].axis[spec.dim[spec.rank].n++] = axis;
    must(sharding_from_spec(mesh, &spec, spec.rank, text, &s, &err), &err);
    if (partial) {
        cvn_spec sum = {.rank = 1, .dim = {{1, {partial}}}};
        must(sharding_from_spec(mesh, &sum, 1, text, &unreduced, &err), &err);
        s.unreduced = unreduced.dim[0].axes;
    }
    return s;
}

/* The example of each kind; "_,b+a": partial sums over a. */
static void the_cheapest_way_is_taken(void **state)
{
    static const struct {
        const char *mesh, *from, *to, *want;
    } row[] = {
        {"a=4", "a,_", "_,a", "all_to_all dim 0 to 1 by a"},
        {"a=4", "_,_+a", "a,_", "reduce_scatter dim 0 by a"},
        {"a=4", "_,_+a", "_,_", "all_reduce by a"},
        {"a=2,b=4", "a,_", "a*b,_", "slice dim 0 by b"},
        {"a=2,b=4", "a*b,_", "a,_", "all_gather dim 0 by b"},
        {"a=2,b=4", "a*b,_", "_,_", "all_gather dim 0 by a*b"},
        {"a=4,b=4", "a,_", "b,_", "collective_permute"},
        {"a=4,b=4", "a,b", "b,a", "collective_permute"},
        {"a=2,b=2", "a,_+b", "_,a", "all_to_all dim 0 to 1 by a; all_reduce by b"},
        {"a=2,b=2", "a*b", "b", "collective_permute; all_gather dim 0 by a"},
        {"a=2,b=2", "_,_+b", "a,b", "slice dim 0 by a; reduce_scatter dim 1 by b"},
        {"a=8", "a,_", "a.1.2,a.2.4", "all_to_all dim 0 to 1 by a.2.4"},
        {"a=8", "a.1.2,_", "a,_", "slice dim 0 by a.2.4"},
        {"a=2,b=3", "a,_", "b,_", "pieces"},
        {"a=2,b=4", "_,a+b", "_,b", "all_reduce by b; pieces"},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        Arena arena;
        StrBuf out = {0};
        assert_int_equal(arena_init(&arena, NULL), CVN_OK);
        Mesh mesh = mesh_of(row[i].mesh);
        Sharding from = parse_sharding(&mesh, row[i].from), to = parse_sharding(&mesh, row[i].to);
        cvn_type type = CVN_TYPE(CVN_F32, 4096, 4096);
        type.rank = from.rank;
        Reshard plan = reshard_plan(&mesh, &type, &from, &to, &arena);
        strbuf_puts(&out, "");
        reshard_print(&out, &mesh, &plan);
        if (strcmp(out.text, row[i].want) != 0)
            fail_msg("%s: %s -> %s: %s, not %s", row[i].mesh, row[i].from, row[i].to, out.text,
                     row[i].want);
        strbuf_free(&out);
        arena_free(&arena);
    }
}

/* What each device sends over a ring of n: S (n-1)/n to gather or scatter S bytes, twice that to
   reduce. */
static void bytes_are_those_of_a_ring(void **state)
{
    static const struct {
        const char *from, *to;
        double bytes;
    } row[] = {
        {"_,_+a", "_,_", 2 * 64.0 * 1024 * 3 / 4},
        {"_,_+a", "a,_", 64.0 * 1024 * 3 / 4},
        {"a,_", "_,_", 64.0 * 1024 * 3 / 4},
        {"a,_", "_,a", 16.0 * 1024 * 3 / 4},
        {"_,_", "a,_", 0},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        Arena arena;
        assert_int_equal(arena_init(&arena, NULL), CVN_OK);
        Mesh mesh = mesh_of("a=4");
        Sharding from = parse_sharding(&mesh, row[i].from), to = parse_sharding(&mesh, row[i].to);
        cvn_type type = CVN_TYPE(CVN_F32, 128, 128);
        assert_true(reshard_plan(&mesh, &type, &from, &to, &arena).bytes == row[i].bytes);
        arena_free(&arena);
    }
}

/* The comparison itself: a plan with its last step dropped, or with another's groups, is caught. */
static void a_planted_fault_is_caught(void **state)
{
    int caught = 0, tried = 0;
    for (uint64_t seed = 1; seed <= 400; seed++) {
        Arena arena;
        assert_int_equal(arena_init(&arena, NULL), CVN_OK);
        Case c = random_case(seed, &arena);
        int last = c.plan.n - 1;
        if (c.plan.n > 0 && c.plan.step[last].kind == RESHARD_SLICE && cvn_type_elements(&c.type)) {
            c.mesh.order = NULL;
            Mesh other = c.mesh;
            int32_t *order = arena_array(&arena, (size_t)other.n_devices, sizeof *order);
            for (int32_t d = 0; d < other.n_devices; d++)
                order[d] = other.n_devices - 1 - d; /* the slices of another device */
            cvn_graph *g = case_graph(&c);
            cvn_graph_free(g);
            AxisList axes = c.plan.step[last].axes;
            if (c.type.dim[c.plan.step[last].dim] >= axes_size(&axes)) {
                c.plan.step[last].axes = (AxisList){1, {axis_first(axes.ref[0], axes.ref[0].size)}};
                c.plan.step[last].axes.ref[0].axis = (axes.ref[0].axis + 1) % c.mesh.n_axes;
                AxisRef ref = c.plan.step[last].axes.ref[0];
                if (c.mesh.n_axes > 1 && c.mesh.axis[ref.axis].size == ref.size && ref.pre == 1 &&
                    axes.n == 1 && c.mesh.axis[axes.ref[0].axis].size == ref.size) {
                    tried++;
                    caught += !runs_right(&c);
                }
            }
        }
        arena_free(&arena);
    }
    assert_true(tried > 5);
    assert_int_equal(caught, tried);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_reshard_moves_every_shard_to_its_place),
        cmocka_unit_test(no_device_holds_more_on_the_way_than_before_or_after),
        cmocka_unit_test(pieces_come_straight_from_who_holds_them),
        cmocka_unit_test(the_cheapest_way_is_taken),
        cmocka_unit_test(bytes_are_those_of_a_ring),
        cmocka_unit_test(a_planted_fault_is_caught),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
