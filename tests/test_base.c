/* The arena, the string buffer, the map and errors, each against what a naive version would do. */
#include "base/bytes.h"
#include "base/map.h"
#include "base/num.h"
#include "base/protobuf.h"
#include "base/strbuf.h"
#include "unit.h"

#include <sys/resource.h>

static void arena_gives_zeroed_aligned_memory(void **state)
{
    Arena arena;
    assert_int_equal(arena_init(&arena, NULL), CVN_OK);
    for (size_t n = 1; n < 5000; n += 77) {
        unsigned char *p = arena_alloc(&arena, n);
        assert_int_equal((uintptr_t)p % 16, 0);
        for (size_t i = 0; i < n; i++)
            assert_int_equal(p[i], 0);
        memset(p, 0xff, n);
    }
    assert_string_equal(arena_printf(&arena, "%d-%s", 7, "x"), "7-x");
    arena_free(&arena);
}

static void an_arena_grows_and_what_it_gave_stays(void **state)
{
    enum { N = 300 };
    Arena arena;
    assert_int_equal(arena_init(&arena, NULL), CVN_OK);
    size_t first = arena.reserved, bytes = 0;
    unsigned char *given[N];
    size_t sizes[N];
    for (int i = 0; i < N; i++) {
        sizes[i] = i % 50 == 49 ? 2 * first + 1
                                : first / 64 + (size_t)i; /* larger than a chunk now and then */
        given[i] = arena_alloc(&arena, sizes[i]);
        assert_int_equal((uintptr_t)given[i] % 16, 0);
        assert_int_equal(given[i][0] | given[i][sizes[i] / 2] | given[i][sizes[i] - 1], 0);
        given[i][0] = given[i][sizes[i] - 1] = (unsigned char)(i + 1);
        bytes += sizes[i];
    }
    for (int i = 0; i < N; i++) {
        assert_int_equal(given[i][0], (unsigned char)(i + 1));
        assert_int_equal(given[i][sizes[i] - 1], (unsigned char)(i + 1));
    }
    assert_true(arena.used >= bytes && arena.reserved < 4 * bytes);
    arena_free(&arena);
    assert_null(arena.chunk);
}

static void an_arena_without_address_space_is_an_error(void **state)
{
    struct rlimit old;
    assert_int_equal(getrlimit(RLIMIT_AS, &old), 0);
    assert_int_equal(
        setrlimit(RLIMIT_AS, &(struct rlimit){.rlim_cur = 1 << 20, .rlim_max = old.rlim_max}), 0);
    Arena arena;
    cvn_err err = {0};
    int code = arena_init(&arena, &err);
    struct rlimit now;
    assert_int_equal(getrlimit(RLIMIT_AS, &now), 0);
    assert_int_equal(setrlimit(RLIMIT_AS, &old), 0);
    if (now.rlim_cur != 1 << 20) {
        arena_free(&arena);
        skip(); /* qemu-user does not limit address space */
    }
    assert_int_equal(code, CVN_EMEM);
    assert_non_null(strstr(err.message, "ulimit -v"));
    arena_free(&arena);
}

static void the_first_error_wins(void **state)
{
    cvn_err err = {0};
    assert_int_equal(err_set(&err, CVN_EIO, "first %d", 1), CVN_EIO);
    assert_int_equal(err_set(&err, CVN_EMEM, "second"), CVN_EMEM);
    assert_int_equal(err.code, CVN_EIO);
    err_prefix(&err, "file '%s'", "a");
    assert_string_equal(err.message, "file 'a': first 1");
}

static void a_message_is_one_line_without_commands_to_the_terminal(void **state)
{
    cvn_err err = {0};
    err_set(&err, CVN_EFORMAT, "tensor '%s' has no type", "a\nb\033[2Jc\177\xc3\xa9");
    err_prefix(&err, "file '%s'", "x\ty");
    assert_string_equal(err.message, "file 'x?y': tensor 'a?b?[2Jc?\xc3\xa9' has no type");
}

static void strbuf_grows(void **state)
{
    StrBuf buf = {0};
    for (int i = 0; i < 1000; i++)
        strbuf_printf(&buf, "%d,", i % 10);
    assert_int_equal(buf.length, 2000);
    assert_memory_equal(buf.text, "0,1,2,3,4,5,6,7,8,9,0,", 22);
    assert_false(buf.failed);
    strbuf_free(&buf);
}

static void map_finds_what_was_put(void **state)
{
    Arena arena;
    assert_int_equal(arena_init(&arena, NULL), CVN_OK);
    Map map;
    map_init(&map, &arena);
    assert_null(map_get(&map, "a", 1));
    for (uint32_t i = 0; i < 5000; i++) {
        bool added = false;
        *map_put(&map, &i, sizeof i, &added) = i * 3;
        assert_true(added);
    }
    for (uint32_t i = 0; i < 6000; i++) {
        uint64_t *value = map_get(&map, &i, sizeof i);
        if (i < 5000)
            assert_int_equal(*value, i * 3);
        else
            assert_null(value);
    }
    assert_int_equal(map.n, 5000);
    arena_free(&arena);
}

static void bytes_have_the_unit_that_suits_them(void **state)
{
    static const struct {
        double bytes;
        const char *text;
    } cases[] = {{0, "0 bytes"},       {1023, "1023 bytes"},   {1024, "1.00 KiB"},
                 {10.5e3, "10.3 KiB"}, {512 << 20, "512 MiB"}, {0x1.8p30, "1.50 GiB"},
                 {0x1p60, "1.00 EiB"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string_equal(bytes_text(cases[i].bytes).text, cases[i].text);
}

static void numbers_are_those_of_their_definitions(void **state)
{
    for (int64_t a = 0; a < 60; a++)
        for (int64_t b = 1; b < 60; b++) {
            int64_t common = b, pieces = 0;
            while (a % common || b % common)
                common--;
            for (int64_t left = a; left > 0; left -= b)
                pieces++;
            assert_int_equal(num_gcd(a, b), common);
            assert_int_equal(num_pieces(a, b), pieces);
            assert_int_equal(num_padded((size_t)a, (size_t)b), pieces * b);
            assert_int_equal(num_min(a, b) + num_max(a, b), a + b);
            assert_true(num_min(a, b) <= num_max(a, b));
        }
    assert_int_equal(num_pieces(INT64_MAX, 2), INT64_MAX / 2 + 1);
    assert_int_equal(num_min(INT64_MIN, INT64_MAX), INT64_MIN);
}

/* Fields come back as they were put, and of a message that is cut anywhere only whole ones. */
static void protocol_buffers_are_read_as_they_were_written(void **state)
{
    StrBuf out = {0}, inner = {0};
    proto_put_int(&out, 1, -1);
    proto_put_int(&inner, 300, 127);
    proto_put_message(&out, 2, &inner);
    proto_put_key(&out, 3, PROTO_FIXED32);
    strbuf_add(&out, "\1\2\3\4", 4);
    proto_put_bytes(&out, 4, "abc", 3);
    static const size_t ends[] = {11, 16, 21, 26};
    assert_int_equal(out.length, 26);
    for (size_t n = 0; n <= out.length; n++) {
        Proto message = {(uint8_t *)out.text, (uint8_t *)out.text + n};
        ProtoField field = {0};
        size_t found = 0;
        for (; proto_next(&message, &field); found++) {
            assert_int_equal(field.number, found + 1);
            if (found == 0)
                assert_true(field.value == UINT64_MAX);
            if (found == 1) {
                ProtoField part;
                assert_true(proto_next(&field.bytes, &part));
                assert_int_equal(part.number, 300);
                assert_int_equal(part.value, 127);
                assert_false(proto_next(&field.bytes, &part));
            }
            if (found == 2)
                assert_int_equal(field.value, 0x04030201);
            if (found == 3)
                assert_memory_equal(field.bytes.at, "abc", proto_length(field.bytes));
        }
        size_t whole = 0;
        while (whole < 4 && ends[whole] <= n)
            whole++;
        assert_int_equal(found, whole);
        assert_int_equal(message.at == message.end, n == 0 || (whole > 0 && ends[whole - 1] == n));
    }
    Proto endless = {(const uint8_t *)"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", NULL};
    endless.end = endless.at + 11;
    assert_false(proto_next(&endless, &(ProtoField){0}));
    strbuf_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arena_gives_zeroed_aligned_memory),
        cmocka_unit_test(an_arena_grows_and_what_it_gave_stays),
        cmocka_unit_test(an_arena_without_address_space_is_an_error),
        cmocka_unit_test(the_first_error_wins),
        cmocka_unit_test(a_message_is_one_line_without_commands_to_the_terminal),
        cmocka_unit_test(strbuf_grows),
        cmocka_unit_test(bytes_have_the_unit_that_suits_them),
        cmocka_unit_test(map_finds_what_was_put),
        cmocka_unit_test(numbers_are_those_of_their_definitions),
        cmocka_unit_test(protocol_buffers_are_read_as_they_were_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
