/* Meshes, and the algebra of their axes against its meaning: partitions of the devices, enumerated. */
#include "parsed.h"
#include "shard/axes.h"
#include "unit.h"

static const char *const meshes[] = {"a=2",         "a=4",     "a=6",     "a=8",     "a=12",
                                     "a=16",        "a=36",    "a=2,b=2", "a=4,b=2", "a=2,b=3",
                                     "a=2,b=2,c=4", "a=6,b=2", "a=1,b=4", "a=3,b=4"};
enum { N_MESHES = sizeof meshes / sizeof *meshes };

/* Every reference that the mesh has; returns how many. */
static int all_refs(const Mesh *mesh, AxisRef *ref)
{
    int n = 0;
    for (int a = 0; a < mesh->n_axes; a++)
        for (int32_t pre = 1; pre <= mesh->axis[a].size; pre++)
            for (int32_t size = 2; pre * size <= mesh->axis[a].size; size++)
                if (mesh->axis[a].size % (pre * size) == 0)
                    ref[n++] = (AxisRef){a, pre, size};
    return n;
}

static int32_t digit(const Mesh *mesh, AxisRef ref, int32_t place)
{
    AxisList list = {1, {ref}};
    return axes_digit(mesh, &list, place);
}

/* Every pair of digits belongs to the same number of devices. */
static bool independent(const Mesh *mesh, AxisRef a, AxisRef b)
{
    int count[36 * 36] = {0};
    for (int32_t p = 0; p < mesh->n_devices; p++)
        count[digit(mesh, a, p) * b.size + digit(mesh, b, p)]++;
    for (int i = 1; i < a.size * b.size; i++)
        if (count[i] != count[0])
            return false;
    return true;
}

/* The digit of b is a function of the digit of a. */
static bool determines(const Mesh *mesh, AxisRef a, AxisRef b)
{
    int32_t seen[36];
    memset(seen, -1, sizeof seen);
    for (int32_t p = 0; p < mesh->n_devices; p++) {
        int32_t *at = &seen[digit(mesh, a, p)];
        if (*at >= 0 && *at != digit(mesh, b, p))
            return false;
        *at = digit(mesh, b, p);
    }
    return true;
}

static void coordinates_and_places_are_inverse(void **state)
{
    Mesh mesh = mesh_of("dcn=2,data=4,model=3");
    int32_t c[MESH_MAX_AXES];
    assert_int_equal(mesh.n_devices, 24);
    assert_true(mesh_axis_is_slow(&mesh, 0));
    assert_false(mesh_axis_is_slow(&mesh, 1));
    for (int32_t p = 0; p < 24; p++) {
        mesh_coordinates(&mesh, p, c);
        assert_int_equal((c[0] * 4 + c[1]) * 3 + c[2], p);
    }
    mesh = mesh_of("a=2,b=2:3,1,0,2");
    for (int32_t p = 0; p < 4; p++)
        assert_int_equal(mesh_place(&mesh, mesh_device(&mesh, p)), p);
    assert_int_equal(mesh_device(&mesh, 0), 3);
    mesh = mesh_of("");
    assert_int_equal(mesh.n_devices, 1);
}

static void meshes_print_as_they_are_read_and_nonsense_is_refused(void **state)
{
    static const char *const wrong[] = {"data",
                                        "data=",
                                        "data=0",
                                        "=4",
                                        "data=4,",
                                        "data=4 model=2",
                                        "data=2,data=2",
                                        "data=-1",
                                        "data=99999",
                                        "data=x",
                                        "data=300,model=300",
                                        "model=2,dcn=2",
                                        "a=2:0",
                                        "a=2:0,0",
                                        "a=2:0,2",
                                        "a=2:0,1,",
                                        "a=2:",
                                        "1=2",
                                        "a=2x",
                                        ",a=2",
                                        "a.b=2",
                                        "a=1,b=1,c=1,d=1,e=1,f=1,g=1,h=1,i=1"};
    StrBuf out = {0};
    for (int i = 0; i < N_MESHES; i++) {
        Mesh mesh = mesh_of(meshes[i]);
        strbuf_clear(&out);
        mesh_print(&out, &mesh);
        assert_string_equal(out.text, meshes[i]);
    }
    Arena arena;
    assert_int_equal(arena_init(&arena, NULL), CVN_OK);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        Mesh mesh;
        cvn_err err = {0};
        if (mesh_parse(&mesh, wrong[i], &arena, &err) != CVN_EINVAL)
            fail_msg("accepted: %s", wrong[i]);
        assert_non_null(strstr(err.message, wrong[i]));
    }
    arena_free(&arena);
    strbuf_free(&out);
}

static void relations_of_two_parts_are_those_of_their_partitions(void **state)
{
    AxisRef ref[256];
    for (int m = 0; m < N_MESHES; m++) {
        Mesh mesh = mesh_of(meshes[m]);
        int n = all_refs(&mesh, ref);
        for (int i = 0; i < n; i++)
            for (int j = 0; j < n; j++) {
                AxisRef a = ref[i], b = ref[j], merged;
                assert_int_equal(axis_overlaps(a, b), axis_overlaps(b, a));
                if (!axis_overlaps(a, b))
                    assert_true(independent(&mesh, a, b));
                else if (axis_coexist(a, b))
                    assert_false(independent(&mesh, a, b));
                if (axis_contains(a, b))
                    assert_true(determines(&mesh, a, b));
                else if (axis_coexist(a, b))
                    assert_false(determines(&mesh, a, b));
                bool prefix = a.axis == b.axis && b.size % a.size == 0;
                for (int32_t p = 0; p < mesh.n_devices; p++)
                    prefix &= b.size % a.size == 0 &&
                              digit(&mesh, b, p) / (b.size / a.size) == digit(&mesh, a, p);
                assert_int_equal(axis_prefix_of(a, b), prefix);
                if (axis_merge(a, b, &merged))
                    for (int32_t p = 0; p < mesh.n_devices; p++)
                        assert_int_equal(digit(&mesh, merged, p),
                                         digit(&mesh, a, p) * b.size + digit(&mesh, b, p));
                AxisRef left = axis_prefix_without(a, b);
                assert_true(left.size == 1 || (axis_prefix_of(left, a) && !axis_overlaps(left, b)));
                if (axis_coexist(a, b) && left.size < a.size)
                    for (int32_t size = left.size + 1; size <= a.size; size++)
                        assert_false(a.size % size == 0 &&
                                     independent(&mesh, axis_first(a, size), b));
            }
    }
}

/* A random list without overlaps. */
static AxisList random_list(const AxisRef *ref, int n)
{
    AxisList list = {0};
    for (int i = rand() % 4; i > 0; i--) {
        AxisRef a = ref[rand() % n];
        if (!axes_overlap(&list, a))
            axes_add(&list, a);
    }
    return list;
}

static void lists_keep_their_meaning(void **state)
{
    AxisRef ref[256];
    srand(1);
    for (int round = 0; round < 4000; round++) {
        Mesh mesh = mesh_of(meshes[rand() % N_MESHES]);
        int n = all_refs(&mesh, ref);
        AxisList a = random_list(ref, n), b = random_list(ref, n);
        AxisList common = axes_common_prefix(&a, &b);
        AxisList rest = axes_without_prefix(&a, &common);
        bool prefix = axes_size(&b) % axes_size(&a) == 0;
        assert_true(axes_prefix_of(&common, &a) && axes_prefix_of(&common, &b));
        for (int32_t p = 0; p < mesh.n_devices; p++) {
            int32_t da = axes_digit(&mesh, &a, p), db = axes_digit(&mesh, &b, p);
            int32_t ratio = axes_size(&b) / axes_size(&a);
            prefix = prefix && db / ratio == da;
            assert_int_equal(da, axes_digit(&mesh, &common, p) * axes_size(&rest) +
                                     axes_digit(&mesh, &rest, p));
        }
        assert_int_equal(axes_prefix_of(&a, &b), prefix);
        AxisRef r = ref[rand() % n];
        AxisList without = axes_remove(&a, r);
        for (int i = 0; i < without.n; i++) {
            assert_true(independent(&mesh, without.ref[i], r));
            assert_true(axes_contain(&a, without.ref[i]));
        }
        if (!axes_overlap(&a, r))
            assert_true(axes_equal(&a, &without));
    }
}

static void names_of_parts_are_read_back(void **state)
{
    static const char *const wrong[] = {"d",     "",      "a.2",   "a.0.2",
                                        "a.3.2", "a.2.1", "a.2.x", "a.2.2.2"};
    AxisRef ref[256], back;
    char name[AXIS_NAME_SIZE];
    for (int m = 0; m < N_MESHES; m++) {
        Mesh mesh = mesh_of(meshes[m]);
        for (int i = all_refs(&mesh, ref) - 1; i >= 0; i--) {
            axis_name(&mesh, ref[i], name, sizeof name);
            assert_int_equal(axis_parse(&mesh, name, &back, NULL), CVN_OK);
            assert_true(axis_equal(ref[i], back));
        }
    }
    Mesh mesh = mesh_of("a=8");
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(axis_parse(&mesh, wrong[i], &back, NULL), CVN_EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(coordinates_and_places_are_inverse),
        cmocka_unit_test(meshes_print_as_they_are_read_and_nonsense_is_refused),
        cmocka_unit_test(relations_of_two_parts_are_those_of_their_partitions),
        cmocka_unit_test(lists_keep_their_meaning),
        cmocka_unit_test(names_of_parts_are_read_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
