/* Event files against those of TensorBoard's own code (tests/oracles/tensorboard_events.py). */
#include "train/report/tensorboard.h"

#include "base/crc32c.h"
#include "io_support.h"

#include <fcntl.h>
#include <math.h>

enum { WALL_TIME = 1 }; /* where in an event the eight bytes begin */

static uint32_t masked(const void *bytes, size_t n)
{
    uint32_t crc = crc32c(0, bytes, n);
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

/* Sets every wall_time to 0, having held every record to its checksums and the clock to sense. */
static void zero_wall_times(Bytes *file)
{
    size_t at = 0;
    while (at < file->n) {
        uint64_t n;
        uint32_t crc;
        double wall_time;
        uint8_t *record = file->data + at;
        assert_true(file->n - at >= 12);
        memcpy(&n, record, 8);
        memcpy(&crc, record + 8, 4);
        assert_int_equal(crc, masked(record, 8));
        assert_true(n >= 9 && file->n - at - 16 >= n);
        memcpy(&crc, record + 12 + n, 4);
        assert_int_equal(crc, masked(record + 12, n));
        memcpy(&wall_time, record + 12 + WALL_TIME, 8);
        assert_true(wall_time > 1.6e9 && wall_time < 1e11);
        memset(record + 12 + WALL_TIME, 0, 8);
        crc = masked(record + 12, n);
        memcpy(record + 12 + n, &crc, 4);
        at += 16 + n;
    }
}

static void events_are_those_of_tensorboard(void **state)
{
    EventFile events;
    cvn_err err = {0};
    MetricsRow first = {.step = 301,
                        .loss = 2.5,
                        .lr = 0.0003,
                        .grad_norm = 1.25,
                        .tokens_per_second = 9120.5,
                        .mfu = 0.41,
                        .seconds = 0.898,
                        .validation_loss = (double)NAN};
    MetricsRow second = {.step = 100000,
                         .loss = (double)NAN,
                         .grad_norm = (double)INFINITY,
                         .tokens_per_second = 1e6,
                         .mfu = 1,
                         .seconds = 0.001,
                         .validation_loss = 1.5};
    must(event_file_open(&events, in_scratch("run"), 300, &err), &err);
    assert_non_null(strstr(events.path.text, "/run/tensorboard/events.out.tfevents."));
    assert_int_equal(event_file_add(&events, &first, &err), CVN_OK);
    assert_int_equal(event_file_add(&events, &second, &err), CVN_OK);
    assert_int_equal(
        event_file_text(&events, 100000, "sample", "Once upon a time\nthere was a cárávan.", &err),
        CVN_OK);
    Bytes got = bytes_of_file(events.path.text),
          want = bytes_of_file(CVN_TEST_DATA "/train/events.bin");
    event_file_close(&events);
    zero_wall_times(&got);
    assert_int_equal(got.n, want.n);
    assert_memory_equal(got.data, want.data, want.n);
    free(got.data);
    free(want.data);
}

static void a_full_disk_is_said(void **state)
{
    EventFile events = {open("/dev/full", O_WRONLY), {"full/events"}};
    cvn_err err = {0};
    assert_int_equal(event_file_add(&events, &(MetricsRow){.step = 1}, &err), CVN_EIO);
    assert_string_equal(err.message, "cannot write 'full/events': No space left on device");
    event_file_close(&events);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events_are_those_of_tensorboard),
        cmocka_unit_test(a_full_disk_is_said),
    };
    return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
