/* Shardings of tensors: reading marks, refusing wrong ones, and which elements a device holds. */
#include "parsed.h"
#include "shard/spec.h"
#include "unit.h"

/* A spec from one list of names per dimension. */
static cvn_spec spec_of(int rank, const char *const name[][3])
{
    cvn_spec spec = {.rank = rank};
    for (int d = 0; d < rank; d++)
        for (int i = 0; i < 3 && name[d][i]; i++)
            spec.dim[d].axis[spec.dim[d].n++] = name[d][i];
    return spec;
}

static void marks_become_shardings_and_print_back(void **state)
{
    static const struct {
        int rank;
        const char *name[3][3];
        const char *text; /* NULL: refused */
    } row[] = {
        {2, {{"data"}, {"model"}}, "<data,model>"},
        {2, {{"model", "data"}, {NULL}}, "<model*data,_>"},
        {3, {{NULL}, {"model.1.2"}, {"model.2.2"}}, "<_,model.1.2,model.2.2>"},
        {1, {{"model.1.2", "model.2.2"}}, "<model>"},
        {1, {{"one"}}, "<_>"},
        {0, {{NULL}}, "<>"},
        {2, {{"data"}, {"data"}}, NULL},
        {2, {{"model"}, {"model.1.2"}}, NULL},
        {1, {{"nothing"}}, NULL},
        {1, {{"model.3.2"}}, NULL},
    };
    Mesh mesh = mesh_of("data=2,model=4,one=1");
    Arena arena;
    assert_int_equal(arena_init(&arena, NULL), CVN_OK);
    StrBuf out = {0};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        cvn_spec spec = spec_of(row[i].rank, row[i].name), back;
        Sharding s, again;
        cvn_err err = {0};
        int code = sharding_from_spec(&mesh, &spec, row[i].rank, "\"x\"", &s, &err);
        assert_int_equal(code, row[i].text ? CVN_OK : CVN_EINVAL);
        if (code) {
            assert_non_null(strstr(err.message, "\"x\""));
            continue;
        }
        strbuf_clear(&out);
        sharding_print(&out, &mesh, &s);
        assert_string_equal(out.text, row[i].text);
        assert_int_equal(sharding_check(&mesh, &s, "x", &err), CVN_OK);
        assert_int_equal(sharding_to_spec(&mesh, &s, &arena, &back, &err), CVN_OK);
        assert_int_equal(sharding_from_spec(&mesh, &back, s.rank, "x", &again, &err), CVN_OK);
        for (int d = 0; d < s.rank; d++)
            assert_true(axes_equal(&s.dim[d].axes, &again.dim[d].axes));
    }
    cvn_spec spec = {.rank = 2};
    Sharding s;
    assert_int_equal(sharding_from_spec(&mesh, &spec, 1, "x", &s, NULL), CVN_ESHAPE);
    strbuf_free(&out);
    arena_free(&arena);
}

static void check_refuses_what_is_no_sharding(void **state)
{
    Mesh mesh = mesh_of("data=2,model=4");
    static const AxisRef wrong[] = {{2, 1, 2}, {-1, 1, 2}, {1, 1, 3}, {1, 4, 2},
                                    {1, 1, 1}, {1, 0, 2},  {0, 1, 2}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        Sharding s = sharding_open(2);
        s.dim[0].axes = (AxisList){1, {{0, 1, 2}}};
        s.unreduced = (AxisList){1, {wrong[i]}};
        assert_int_equal(sharding_check(&mesh, &s, "x", NULL), CVN_EINVAL);
    }
    /* The product of its two numbers is no 32-bit number. */
    mesh = mesh_of("data=65536");
    Sharding s = sharding_open(1);
    s.dim[0].axes = (AxisList){1, {{0, 65536, 65536}}};
    assert_int_equal(sharding_check(&mesh, &s, "x", NULL), CVN_EINVAL);
}

/* Every element of a dimension is held once by each set of devices that differ in its axes only. */
static void shards_cover_a_dimension_once(void **state)
{
    static const AxisList list[] = {
        {1, {{0, 1, 2}}}, {1, {{1, 1, 6}}}, {2, {{1, 1, 6}, {0, 1, 2}}}, {1, {{1, 2, 3}}}, {0}};
    Mesh mesh = mesh_of("data=2,model=6");
    for (size_t l = 0; l < sizeof list / sizeof *list; l++)
        for (int64_t n = 0; n < 15; n++) {
            Sharding s = sharding_open(1);
            s.dim[0].axes = list[l];
            int held[15] = {0};
            for (int32_t p = 0; p < mesh.n_devices; p++) {
                int64_t first, count, chunk = sharding_chunk(&s, 0, n);
                sharding_range(&mesh, &s, 0, n, p, &first, &count);
                assert_true(count <= chunk && count >= 0 && first + count <= n);
                assert_true(count == 0 || first == chunk * axes_digit(&mesh, &list[l], p));
                for (int64_t i = first; i < first + count; i++)
                    held[i]++;
            }
            for (int64_t i = 0; i < n; i++)
                assert_int_equal(held[i], mesh.n_devices / axes_size(&list[l]));
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(marks_become_shardings_and_print_back),
        cmocka_unit_test(check_refuses_what_is_no_sharding),
        cmocka_unit_test(shards_cover_a_dimension_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
