/* Chunk sizes for a log of prompts: as good as the best that trying all finds, and as few as come near. */
#include "serve/buckets.h"
#include "splitmix.h"
#include "unit.h"

#include <math.h>
#include <unistd.h>

/* Tokens that are computed: chunks of the largest, and the rest rounded up. */
static double computed(const int64_t *length, int n, const int64_t *bucket, int buckets)
{
    double all = 0;
    for (int i = 0; i < n; i++) {
        int64_t left = length[i], largest = bucket[buckets - 1];
        int k = 0;
        for (; left > largest; left -= largest)
            all += (double)largest;
        while (bucket[k] < left)
            k++;
        all += (double)bucket[k];
    }
    return all;
}

/* Of all sets of sizes below 96 that have it. */
static double best_of_all(const int64_t *length, int n)
{
    double best = INFINITY;
    for (int set = 0; set < 1 << 5; set++) {
        int64_t bucket[6];
        int k = 0;
        for (int i = 0; i < 5; i++)
            if (set >> i & 1)
                bucket[k++] = 16 * (i + 1);
        bucket[k++] = 96;
        best = fmin(best, computed(length, n, bucket, k));
    }
    return best;
}

static void sizes_are_nearly_the_best_and_never_worse_than_the_usual(void **state)
{
    uint64_t random = 1;
    for (int round = 0; round < 200; round++) {
        enum { N = 20 };
        int64_t length[N];
        double tokens = 0;
        for (int i = 0; i < N; i++) {
            length[i] = 1 + (int64_t)(splitmix(&random) % (round % 2 ? 90 : 1000));
            tokens += (double)length[i];
        }
        BucketChoice c;
        buckets_choose(length, N, 96, &c);
        assert_true(c.n >= 1 && c.bucket[c.n - 1] == 96 && c.prompts == N);
        for (int i = 0; i < c.n; i++)
            assert_true(c.bucket[i] % 16 == 0 && (i == 0 || c.bucket[i] > c.bucket[i - 1]));
        double all = computed(length, N, c.bucket, c.n);
        assert_true(all <= 1.01 * best_of_all(length, N));
        assert_true(fabs(c.padding - (1 - tokens / all)) < 1e-9);
        buckets_choose(length, N, 512, &c);
        assert_true(c.padding <= c.usual + 0.01);
    }
}

static void one_length_takes_its_size_and_the_largest(void **state)
{
    const int64_t length[] = {100, 100, 612};
    BucketChoice c;
    buckets_choose(length, 3, 512, &c);
    assert_int_equal(c.n, 2);
    assert_true(c.bucket[0] == 112 && c.bucket[1] == 512);
    buckets_choose(length, 3, 8, &c);
    assert_true(c.n == 1 && c.bucket[0] == 8);
}

static int of_text(const char *text, BucketChoice *c, cvn_err *err)
{
    char path[] = "/tmp/caravan-log-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
    int code = buckets_of_log(path, 2048, c, err);
    unlink(path);
    return code;
}

/* Lines of an access log, less what the cache had; plain numbers; other lines are none. */
static void logs_of_serve_and_plain_numbers_are_read(void **state)
{
    BucketChoice c;
    cvn_err err = {0};
    must(of_text("{\"path\":\"/health\",\"status\":200}\n"
                 "{\"path\":\"/v1/completions\",\"prompt_tokens\":600,\"cached_tokens\":500}\n"
                 "not JSON at all\n\n100\n-3\n1e3\n9223372036854775807",
                 &c, &err),
         &err);
    assert_true(c.prompts == 3 && c.n == 2 && c.bucket[0] == 112 && c.bucket[1] == 512);
    assert_int_equal(of_text("{}\n", &c, &err), CVN_EFORMAT);
    assert_non_null(strstr(err.message, "no line has the length of a prompt"));
    assert_int_equal(of_text("", &c, &err), CVN_EFORMAT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_are_nearly_the_best_and_never_worse_than_the_usual),
        cmocka_unit_test(one_length_takes_its_size_and_the_largest),
        cmocka_unit_test(logs_of_serve_and_plain_numbers_are_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
