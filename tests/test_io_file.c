/* 16-bit floats over all their values; files mapped, written beside and renamed. */
#include "base/file.h"
#include "base/float16.h"
#include "scratch.h"
#include "unit.h"

#include <math.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static void every_bf16_and_f16_survives_a_round_trip(void **state)
{
    for (uint32_t h = 0; h < 0x10000; h++) {
        float b = bf16_to_f32((uint16_t)h), f = f16_to_f32((uint16_t)h);
        if (isnan(b))
            assert_true(isnan(bf16_to_f32(bf16_from_f32(b))));
        else
            assert_int_equal(bf16_from_f32(b), h);
        if (isnan(f))
            assert_true(isnan(f16_to_f32(f16_from_f32(f))));
        else
            assert_int_equal(f16_from_f32(f), h);
    }
}

static void f16_values_are_those_of_the_standard(void **state)
{
    for (uint32_t h = 0; h < 0x8000; h++) {
        int exponent = (int)(h >> 10), fraction = (int)(h & 0x3ff);
        if (exponent == 31) {
            assert_true(fraction ? isnan(f16_to_f32((uint16_t)h)) : isinf(f16_to_f32((uint16_t)h)));
            continue;
        }
        double want = exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24);
        assert_true((double)f16_to_f32((uint16_t)h) == want);
        assert_true((double)f16_to_f32((uint16_t)(h | 0x8000)) == -want);
    }
}

/* Between neighbours the midpoint goes to the even one, and what is off it to the nearer one. */
static void rounding_is_to_nearest_even(uint16_t (*from)(float), float (*to)(uint16_t),
                                        uint32_t infinity)
{
    for (uint32_t h = 0; h + 1 < infinity; h++) {
        double low = (double)to((uint16_t)h), high = (double)to((uint16_t)(h + 1));
        float middle = (float)((low + high) / 2);
        if ((double)middle != (low + high) / 2)
            continue; /* bf16 subnormals of f32's last bits: no midpoint to represent */
        assert_int_equal(from(middle), h % 2 ? h + 1 : h);
        assert_int_equal(from(nextafterf(middle, INFINITY)), h + 1);
        assert_int_equal(from(nextafterf(middle, -INFINITY)), h);
        assert_int_equal(from(-middle), 0x8000 | (h % 2 ? h + 1 : h));
    }
}

static void bf16_rounds_to_nearest_even(void **state)
{
    rounding_is_to_nearest_even(bf16_from_f32, bf16_to_f32, 0x7f80);
    assert_int_equal(bf16_from_f32(3.4e38f), 0x7f80);
    assert_int_equal(bf16_from_f32(3.3895e38f), 0x7f7f);
}

static void f16_rounds_to_nearest_even(void **state)
{
    rounding_is_to_nearest_even(f16_from_f32, f16_to_f32, 0x7c00);
    assert_int_equal(f16_from_f32(65519.996f), 0x7bff);
    assert_int_equal(f16_from_f32(65520.0f), 0x7c00);
    assert_int_equal(f16_from_f32(0x1p-25f), 0);
    assert_int_equal(f16_from_f32(0x1.000002p-25f), 1);
}

static void nan_stays_nan_with_its_sign(void **state)
{
    const uint32_t nans[] = {0x7f800001u, 0x7fc00000u, 0x7fffffffu, 0xff800001u, 0xffffffffu};
    for (size_t i = 0; i < sizeof nans / sizeof *nans; i++) {
        uint16_t b = bf16_from_f32(f32_from_bits(nans[i]));
        uint16_t f = f16_from_f32(f32_from_bits(nans[i]));
        assert_true((b & 0x7fff) > 0x7f80 && (b >> 15) == (nans[i] >> 31));
        assert_true((f & 0x7fff) > 0x7c00 && (f >> 15) == (nans[i] >> 31));
    }
}

static int remove_empty(void **state)
{
    return rmdir(scratch); /* fails, and so the test, when a temporary file was left behind */
}

static void what_is_written_is_mapped_back(void **state)
{
    cvn_err err = {0};
    FilePath path = file_path(scratch, "data");
    const size_t sizes[] = {0, 1, 4095, 4096, 300000, 1000003};
    uint8_t *bytes = malloc(1000003);
    for (size_t i = 0; i < 1000003; i++)
        bytes[i] = (uint8_t)(i * 2654435761u >> 24);
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        FileWriter writer;
        assert_int_equal(file_writer_open(&writer, path.text, &err), CVN_OK);
        size_t piece = 1;
        for (size_t at = 0; at < sizes[s]; at += piece, piece = piece * 3 + 1) {
            piece = piece < sizes[s] - at ? piece : sizes[s] - at;
            assert_int_equal(file_writer_write(&writer, bytes + at, piece, &err), CVN_OK);
        }
        assert_int_equal(writer.position, sizes[s]);
        assert_int_equal(file_writer_commit(&writer, &err), CVN_OK);
        file_writer_free(&writer);
        FileMap map;
        assert_int_equal(file_map(&map, path.text, &err), CVN_OK);
        assert_int_equal(map.size, sizes[s]);
        if (map.size)
            assert_memory_equal(map.data, bytes, map.size);
        file_unmap(&map);
    }
    free(bytes);
    unlink(path.text);
}

static void an_uncommitted_file_leaves_the_old_one(void **state)
{
    cvn_err err = {0};
    FilePath path = file_path(scratch, "data");
    assert_int_equal(file_write(path.text, "old", 3, &err), CVN_OK);
    FileWriter writer;
    assert_int_equal(file_writer_open(&writer, path.text, &err), CVN_OK);
    assert_int_equal(file_writer_write(&writer, "new!", 4, &err), CVN_OK);
    file_writer_free(&writer);
    FileMap map;
    assert_int_equal(file_map(&map, path.text, &err), CVN_OK);
    assert_int_equal(map.size, 3);
    file_unmap(&map);
    unlink(path.text);
}

static void a_full_disk_is_an_error_and_leaves_nothing(void **state)
{
    cvn_err err = {0};
    FilePath path = file_path(scratch, "data");
    struct rlimit old, tiny;
    getrlimit(RLIMIT_FSIZE, &old);
    tiny = old;
    tiny.rlim_cur = 100000;
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &tiny);
    uint8_t *zeros = calloc(1, 400000);
    int code = file_write(path.text, zeros, 400000, &err);
    setrlimit(RLIMIT_FSIZE, &old);
    free(zeros);
    assert_int_equal(code, CVN_EIO);
    assert_non_null(strstr(err.message, path.text));
    assert_false(file_exists(path.text));
}

static void errors_name_the_path_and_the_reason(void **state)
{
    cvn_err err = {0};
    FileMap map;
    assert_int_equal(file_map(&map, "/no/such/file", &err), CVN_EIO);
    assert_string_equal(err.message, "cannot open '/no/such/file': No such file or directory");
    err = (cvn_err){0};
    assert_int_equal(file_map(&map, scratch, &err), CVN_EIO);
    assert_non_null(strstr(err.message, "is a folder"));
    err = (cvn_err){0};
    FilePath fifo = file_path(scratch, "fifo");
    assert_int_equal(mkfifo(fifo.text, 0600), 0);
    assert_int_equal(file_map(&map, fifo.text, &err), CVN_EIO);
    unlink(fifo.text);
    err = (cvn_err){0};
    FileWriter writer;
    assert_int_equal(file_writer_open(&writer, "/no/such/file", &err), CVN_EIO);
    file_writer_free(&writer);
    assert_non_null(strstr(err.message, "/no/such/file"));
}

/* Renaming over a device or a pipe would take it away from everybody. */
static void what_is_no_file_is_not_replaced(void **state)
{
    char path[256];
    struct stat there;
    cvn_err err = {0};
    snprintf(path, sizeof path, "%s/caravan-test-pipe-%ld", P_tmpdir, (long)getpid());
    assert_int_equal(mkfifo(path, 0600), 0);
    int code = file_write(path, "x", 1, &err);
    int found = stat(path, &there);
    unlink(path);
    assert_int_equal(code, CVN_EIO);
    assert_non_null(strstr(err.message, "not a regular file"));
    assert_true(found == 0 && S_ISFIFO(there.st_mode));
}

static void pointers_of_git_lfs_are_told_from_what_they_point_to(void **state)
{
    static const char pointer[] = "version https://git-lfs.github.com/spec/v1\n"
                                  "oid sha256:0123456789abcdef\nsize 1044992\n";
    cvn_err err = {0};
    FileMap map;
    assert_int_equal(file_write(in_scratch("pointer"), pointer, sizeof pointer - 1, &err), CVN_OK);
    assert_int_equal(file_map(&map, in_scratch("pointer"), &err), CVN_EFORMAT);
    assert_non_null(strstr(err.message, "git lfs pull"));
    assert_null(map.data);
    /* Text that speaks of one is text. */
    assert_int_equal(file_write(in_scratch("text"), pointer + 1, sizeof pointer - 2, &err), CVN_OK);
    assert_int_equal(file_map(&map, in_scratch("text"), &err), CVN_OK);
    file_unmap(&map);
    unlink(in_scratch("pointer"));
    unlink(in_scratch("text"));
}

static void a_place_for_output_is_tried_without_a_trace(void **state)
{
    cvn_err err = {0};
    assert_int_equal(file_check_output(in_scratch("later"), &err), CVN_OK);
    assert_false(file_exists(in_scratch("later")));
    assert_int_equal(file_write(in_scratch("there"), "old", 3, &err), CVN_OK);
    assert_int_equal(file_check_output(in_scratch("there"), &err), CVN_OK);
    FileMap map;
    assert_int_equal(file_map(&map, in_scratch("there"), &err), CVN_OK);
    assert_int_equal(map.size, 3);
    file_unmap(&map);
    assert_int_equal(file_check_output(in_scratch("no/folder"), &err), CVN_EIO);
    assert_int_equal(file_check_output(in_scratch(""), &err), CVN_EIO);
    unlink(in_scratch("there"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pointers_of_git_lfs_are_told_from_what_they_point_to),
        cmocka_unit_test(a_place_for_output_is_tried_without_a_trace),
        cmocka_unit_test(every_bf16_and_f16_survives_a_round_trip),
        cmocka_unit_test(f16_values_are_those_of_the_standard),
        cmocka_unit_test(bf16_rounds_to_nearest_even),
        cmocka_unit_test(f16_rounds_to_nearest_even),
        cmocka_unit_test(nan_stays_nan_with_its_sign),
        cmocka_unit_test(what_is_written_is_mapped_back),
        cmocka_unit_test(an_uncommitted_file_leaves_the_old_one),
        cmocka_unit_test(a_full_disk_is_an_error_and_leaves_nothing),
        cmocka_unit_test(errors_name_the_path_and_the_reason),
        cmocka_unit_test(what_is_no_file_is_not_replaced),
    };
    return cmocka_run_group_tests(tests, make_scratch, remove_empty);
}
