/*
 * Checkpoints under death and full disks. The system calls that change the disk are this program's own
 * here: they count themselves, and at a chosen count the process is killed, or the call fails. So a save
 * is tried with an end at every one of its calls; and, apart from that, a training run is killed at
 * random moments and must go on as if nothing had happened.
 */
#include "train/checkpoint/checkpoint.h"

#include "base/crc32c.h"
#include "splitmix.h"
#include "train_support.h"
#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

static atomic_int calls;       /* since the last begin_faults */
static atomic_int fault_at;    /* the call at which it happens, from 1; 0: never */
static atomic_int fault_error; /* errno of the failure; 0: the process is killed instead */
static const char *fault_call; /* which call it was */

static void begin_faults(int at, int error)
{
    fault_call = NULL;
    atomic_store(&calls, 0);
    atomic_store(&fault_error, error);
    atomic_store(&fault_at, at);
}

static void end_faults(void)
{
    atomic_store(&fault_at, 0);
}

/* Whether the call that asks is to fail; errno is set then. */
static bool fault(const char *call)
{
    if (atomic_fetch_add(&calls, 1) + 1 != atomic_load(&fault_at))
        return false;
    fault_call = call;
    if (atomic_load(&fault_error) == 0)
        kill(getpid(), SIGKILL);
    errno = atomic_load(&fault_error);
    return true;
}

ssize_t write(int fd, const void *bytes, size_t n)
{
    return fault("write") ? -1 : syscall(SYS_write, fd, bytes, n);
}

int fsync(int fd)
{
    return fault("fsync") ? -1 : (int)syscall(SYS_fsync, fd);
}

int rename(const char *from, const char *to)
{
    return fault("rename") ? -1 : (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

int renameat2(int from_folder, const char *from, int to_folder, const char *to, unsigned flags)
{
    return fault("renameat2")
               ? -1
               : (int)syscall(SYS_renameat2, from_folder, from, to_folder, to, flags);
}

int mkdir(const char *path, mode_t mode)
{
    return fault("mkdir") ? -1 : (int)syscall(SYS_mkdirat, AT_FDCWD, path, mode);
}

int unlinkat(int folder, const char *path, int flags)
{
    return fault("unlinkat") ? -1 : (int)syscall(SYS_unlinkat, folder, path, flags);
}

static int64_t newest(const char *run, Toy *toy)
{
    cvn_err err = {0};
    Checkpoint checkpoint;
    must(checkpoint_open_latest(&checkpoint, run, NULL, NULL, NULL, &err), &err);
    must(toy_restore(&checkpoint, &toy->state, &err), &err);
    checkpoint_close(&checkpoint);
    return toy->state.step;
}

/* The newest whole checkpoint is of step a or b, and every bit is that of the run never killed. */
static int64_t expect_newest(const char *run, int64_t a, int64_t b)
{
    Toy *got = toy_new(1);
    int64_t step = newest(run, got);
    assert_true(step == a || step == b);
    Toy *want = toy_at(1, step);
    assert_true(toy_equal(got, want));
    toy_free(got);
    toy_free(want);
    return step;
}

static const CheckpointOptions keep_one = {.keep_last = 1, .copy_limit = 0};

static void save_at(const char *run, int64_t step)
{
    cvn_err err = {0};
    Toy *toy = toy_at(1, step);
    CheckpointWriter *writer = checkpoint_writer_new(run, step, &keep_one, &err);
    must(writer ? CVN_OK : err.code, &err);
    must(checkpoint_save(writer, &toy->state, &err), &err);
    checkpoint_writer_free(writer);
    toy_free(toy);
}

/* In a child: the save of step 10 after that of step 5, killed at its n-th call. True when it was. */
static bool killed_at_call(const char *run, int n)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        cvn_err err = {0};
        Toy *toy = toy_at(1, 10);
        CheckpointWriter *writer = checkpoint_writer_new(run, 5, &keep_one, &err);
        begin_faults(n, 0);
        int code = writer ? checkpoint_save(writer, &toy->state, &err) : err.code;
        _exit(code == CVN_OK ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFSIGNALED(status))
        return true;
    assert_int_equal(WEXITSTATUS(status), 0);
    return false;
}

static void death_at_any_call_of_a_save_leaves_a_whole_checkpoint(void **state)
{
    char run[256];
    snprintf(run, sizeof run, "%s", in_scratch("calls"));
    int n = 1;
    int64_t before = 5;
    for (bool killed = true; killed; n++) {
        remove_folder(run);
        save_at(run, 5);
        killed = killed_at_call(run, n);
        int64_t step = expect_newest(run, 5, 10);
        assert_true(step >= before); /* once the new one is there, it stays there */
        before = step;
        cvn_err err = {0};
        CheckpointWriter *writer = checkpoint_writer_new(run, step, &keep_one, &err);
        must(writer ? CVN_OK : err.code, &err);
        checkpoint_writer_free(writer);
        int entries = count_entries(in_scratch("calls/checkpoints"));
        assert_true(entries == 2 || (step == 10 && entries == 3)); /* the lock, 10, perhaps 5 */
    }
    assert_true(n > 20);
    assert_int_equal(before, 10);
}

static void failure_of_any_call_of_a_save_is_one_clear_sentence(void **state)
{
    static const int errors[] = {ENOSPC, EIO, EACCES, EDQUOT};
    char run[256];
    snprintf(run, sizeof run, "%s", in_scratch("fails"));
    Toy *toy = toy_at(1, 10);
    bool failed = true;
    int n = 1;
    for (; failed; n++) {
        cvn_err err = {0};
        int error = errors[n % 4];
        remove_folder(run);
        save_at(run, 5);
        CheckpointWriter *writer = checkpoint_writer_new(run, 5, &keep_one, &err);
        begin_faults(n, error);
        int code = checkpoint_save(writer, &toy->state, &err);
        end_faults();
        failed = fault_call != NULL;
        int64_t saved;
        checkpoint_poll(writer, &saved, &err);
        expect_newest(run, 5, 10);
        if (code == CVN_OK) {
            /* Flushing a file's folder is tried, not required: its own name is not yet relied on. */
            assert_true(!failed || strcmp(fault_call, "fsync") == 0);
            assert_int_equal(saved, 10);
        } else if (!strstr(err.message, strerror(error)) || !strstr(err.message, run)) {
            fail_msg("call %d, %s with %s: \"%s\"", n, fault_call, strerror(error), err.message);
        }
        /* Room is made: the next save works, and cleans up. */
        err = (cvn_err){0};
        must(checkpoint_save(writer, &toy->state, &err), &err);
        assert_int_equal(expect_newest(run, 10, 10), 10);
        checkpoint_writer_free(writer);
        assert_int_equal(count_entries(in_scratch("fails/checkpoints")), 2);
    }
    assert_true(n > 20);
    toy_free(toy);
}

static void a_failure_in_the_background_is_told_once_at_the_next_step(void **state)
{
    cvn_err err = {0};
    char run[256];
    snprintf(run, sizeof run, "%s", in_scratch("told"));
    const CheckpointOptions options = {.copy_limit = UINT64_MAX};
    Toy *toy = toy_at(1, 5);
    CheckpointWriter *writer = checkpoint_writer_new(run, 0, &options, &err);
    must(checkpoint_save(writer, &toy->state, &err), &err);
    must(checkpoint_wait(writer, &err), &err);
    toy_step(toy);
    begin_faults(2, ENOSPC);
    must(checkpoint_save(writer, &toy->state, &err), &err);
    int64_t saved;
    int code = CVN_OK;
    for (int i = 0; i < 100000 && code == CVN_OK; i++) {
        code = checkpoint_poll(writer, &saved, &err);
        usleep(100);
    }
    end_faults();
    assert_int_equal(code, CVN_EIO);
    assert_non_null(strstr(err.message, "No space left on device"));
    assert_int_equal(saved, 5);
    err = (cvn_err){0};
    must(checkpoint_poll(writer, &saved, &err), &err);
    must(checkpoint_save(writer, &toy->state, &err), &err);
    checkpoint_writer_free(writer);
    assert_int_equal(expect_newest(run, 6, 6), 6);
    toy_free(toy);
}

enum { STEPS = 600, EVERY = 3, KILLS = 50, SCALE = 8 };

/* What the killed children and their parent share. */
typedef struct Shared {
    uint32_t digest[STEPS + 1]; /* of the state after each step of the run never killed */
    int64_t promised;           /* newest step that a child was told is saved */
    int64_t reached;            /* newest step that a child has computed */
    int killed_saving;          /* a save was in flight at the moment: 0 or 1 */
    char message[1024];         /* why a child gave up */
} Shared;

static uint32_t digest_of(const Toy *toy)
{
    uint32_t crc = crc32c(0, &toy->state.position, sizeof toy->state.position);
    for (int i = 0; i < TOY_TENSORS; i++)
        crc = crc32c(crc, toy->tensor[i].data, cvn_type_bytes(&toy->tensor[i].type));
    return crc;
}

/* A process that trains: goes on from what is there, and holds every state to the run never killed. */
static int live(const char *run, Shared *shared)
{
    cvn_err err = {0};
    Toy *toy = toy_new(SCALE);
    Checkpoint checkpoint;
    const CheckpointOptions options = {.keep_last = 2, .copy_limit = UINT64_MAX};
    if (checkpoint_open_latest(&checkpoint, run, NULL, NULL, NULL, &err) == CVN_OK) {
        if (toy_restore(&checkpoint, &toy->state, &err) != CVN_OK)
            goto failed;
        checkpoint_close(&checkpoint);
    }
    if (toy->state.step < shared->promised) {
        err_set(&err, CVN_EIO, "goes on from %d, but %d was saved", (int)toy->state.step,
                (int)shared->promised);
        goto failed;
    }
    err = (cvn_err){0};
    CheckpointWriter *writer = checkpoint_writer_new(run, toy->state.step, &options, &err);
    if (!writer)
        goto failed;
    while (toy->state.step < STEPS) {
        int64_t saved;
        toy_step(toy);
        if (digest_of(toy) != shared->digest[toy->state.step]) {
            err_set(&err, CVN_EIO, "step %d is not that of the run never killed",
                    (int)toy->state.step);
            goto failed;
        }
        shared->reached = toy->state.step;
        if (toy->state.step % EVERY == 0) {
            if (checkpoint_save(writer, &toy->state, &err) != CVN_OK)
                goto failed;
            shared->killed_saving = 1;
        }
        int64_t before = shared->promised;
        if (checkpoint_poll(writer, &saved, &err) != CVN_OK)
            goto failed;
        if (saved > before) {
            shared->promised = saved;
            shared->killed_saving = 0;
        }
    }
    if (checkpoint_wait(writer, &err) == CVN_OK)
        return 0;
failed:
    snprintf(shared->message, sizeof shared->message, "%s", err.message);
    return 1;
}

static void a_run_killed_at_random_moments_is_the_run_never_killed(void **state)
{
    char run[256];
    snprintf(run, sizeof run, "%s", in_scratch("killed"));
    uint64_t random = 20;
    int killed = 0, in_saving = 0;
    Shared *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(shared, MAP_FAILED);
    Toy *toy = toy_new(SCALE);
    while (toy->state.step < STEPS) {
        toy_step(toy);
        shared->digest[toy->state.step] = digest_of(toy);
    }
    toy_free(toy);
    for (int life = 0; life < 10000; life++) {
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0)
            _exit(live(run, shared));
        if (killed < KILLS) {
            usleep((useconds_t)(splitmix(&random) % 16000));
            kill(child, SIGKILL);
        }
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        if (!WIFSIGNALED(status)) {
            if (WEXITSTATUS(status) != 0)
                fail_msg("life %d: %s", life, shared->message);
            if (killed == KILLS)
                break;
            remove_folder(run); /* it was done before all deaths were died: once more */
            shared->promised = shared->reached = shared->killed_saving = 0;
            continue;
        }
        killed++;
        in_saving += shared->killed_saving;
        shared->killed_saving = 0;
    }
    assert_int_equal(killed, KILLS);
    assert_int_equal(shared->reached, STEPS);
    print_message("%d deaths, %d of them while a save was in flight\n", killed, in_saving);
    munmap(shared, sizeof *shared);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(death_at_any_call_of_a_save_leaves_a_whole_checkpoint),
        cmocka_unit_test(failure_of_any_call_of_a_save_is_one_clear_sentence),
        cmocka_unit_test(a_failure_in_the_background_is_told_once_at_the_next_step),
        cmocka_unit_test(a_run_killed_at_random_moments_is_the_run_never_killed),
    };
    return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
