/* The tree of what rows hold answers as a list of it does. */
#include "radix_check.h"
#include "splitmix.h"
#include "unit.h"

static void it_answers_as_a_list(void **state)
{
    enum { BYTES = 2000 };
    uint64_t random = 11;
    for (int i = 0; i < 200; i++) {
        uint8_t data[BYTES];
        for (int k = 0; k < BYTES; k++)
            data[k] = (uint8_t)splitmix(&random);
        radix_check(data, BYTES);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(it_answers_as_a_list)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
