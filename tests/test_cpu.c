/* What base/cpu.h says of the processor, held against the kernel's own list in /proc/cpuinfo. */
#include "base/cpu.h"
#include "unit.h"

/* The "flags" line of /proc/cpuinfo with spaces around every flag; NULL where there is none. */
static char *kernel_flags(void)
{
    FILE *file = fopen("/proc/cpuinfo", "r");
    if (!file)
        return NULL;
    char *line = NULL;
    size_t capacity = 0;
    ssize_t n;
    while ((n = getline(&line, &capacity, file)) > 0)
        if (strncmp(line, "flags", 5) == 0) {
            line[n - 1] = ' ';
            fclose(file);
            return line;
        }
    free(line);
    fclose(file);
    return NULL;
}

static void features_are_those_the_kernel_lists(void **state)
{
    char *flags = kernel_flags();
    if (!flags) {
        print_message("no flags in /proc/cpuinfo\n");
        skip();
    }
    uint32_t features = cpu_features();
    for (int i = 0; i < CPU_FEATURE_COUNT; i++) {
        char word[32];
        snprintf(word, sizeof word, " %s ", cpu_feature_name((CpuFeature)i));
        if (cpu_has(features, (CpuFeature)i) != (strstr(flags, word) != NULL))
            fail_msg("%s: cpu_features and /proc/cpuinfo disagree", word);
    }
    free(flags);
}

static void every_feature_has_a_name(void **state)
{
    for (int i = 0; i < CPU_FEATURE_COUNT; i++)
        assert_string_not_equal(cpu_feature_name((CpuFeature)i), "?");
    assert_string_equal(cpu_feature_name(CPU_FEATURE_COUNT), "?");
}

static void amx_is_granted_only_where_it_exists(void **state)
{
    if (cpu_request_amx())
        assert_true(cpu_has(cpu_features(), CPU_AMX_TILE));
}

static void the_brand_fits_and_is_trimmed(void **state)
{
    char text[CPU_BRAND_SIZE];
    memset(text, 'x', sizeof text);
    size_t n = strlen(cpu_brand(text));
    assert_true(n < sizeof text);
    assert_true(n == 0 || (text[0] != ' ' && text[n - 1] != ' '));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(features_are_those_the_kernel_lists),
        cmocka_unit_test(every_feature_has_a_name),
        cmocka_unit_test(amx_is_granted_only_where_it_exists),
        cmocka_unit_test(the_brand_fits_and_is_trimmed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
