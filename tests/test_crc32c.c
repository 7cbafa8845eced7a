/* CRC-32C against the test vectors of RFC 3720 (B.4), both ways of computing it against each other. */
#include "base/crc32c.h"

#include "splitmix.h"
#include "unit.h"

static void published_vectors_hold(void **state)
{
    uint8_t bytes[48];
    assert_int_equal(crc32c(0, "", 0), 0);
    assert_int_equal(crc32c(0, "123456789", 9), 0xe3069283u);
    memset(bytes, 0, 32);
    assert_int_equal(crc32c(0, bytes, 32), 0x8a9136aau);
    memset(bytes, 0xff, 32);
    assert_int_equal(crc32c(0, bytes, 32), 0x62a8ab43u);
    for (int i = 0; i < 32; i++)
        bytes[i] = (uint8_t)i;
    assert_int_equal(crc32c(0, bytes, 32), 0x46dd794eu);
    for (int i = 0; i < 32; i++)
        bytes[i] = (uint8_t)(31 - i);
    assert_int_equal(crc32c(0, bytes, 32), 0x113fdb5cu);
}

static void tables_and_instruction_agree_and_pieces_join(void **state)
{
    uint64_t random = 1;
    uint8_t bytes[300];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)splitmix(&random);
    for (size_t n = 0; n < 200; n++) {
        for (size_t from = 0; from < 9; from++) {
            uint32_t whole = crc32c_portable(0, bytes + from, n);
            size_t cut = (size_t)(splitmix(&random) % (n + 1));
            assert_int_equal(crc32c(0, bytes + from, n), whole);
            assert_int_equal(crc32c(crc32c(0, bytes + from, cut), bytes + from + cut, n - cut),
                             whole);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_vectors_hold),
        cmocka_unit_test(tables_and_instruction_agree_and_pieces_join),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
