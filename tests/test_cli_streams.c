/* The program and what it is connected to: signals, terminals, files that are closed, and disks that are full. */
#include "cli_run.h"

#include <fcntl.h>

static void ctrl_c_ends_a_generation_with_130(void **state)
{
    char args[512];
    /* In the middle of it: a shell's background process ignores the signal until the program catches it. */
    snprintf(args, sizeof args,
             "--version >/dev/null; cd %s; %s generate --model . -t 1 --tokens 1,7 -n 90000 "
             "--ignore-eos >out 2>&1 & pid=$!; "
             "for i in $(seq 6000); do grep -q , out && break; sleep 0.01; done; "
             "kill -INT $pid; wait $pid; code=$?; cat out; rm out; exit $code",
             random_model(), CVN_BINARY);
    expect(130, "", args, ",");
}

/* What was begun is not left behind: neither the folder nor the one in which it was being made. */
static void ctrl_c_leaves_no_folder(void **state)
{
    char args[512];
    snprintf(args, sizeof args,
             "--help >/dev/null; mkdir %s/made; cd %s/made; (exec %s init -p stories110m -o new) & "
             "pid=$!; "
             "for i in $(seq 6000); do [ -e new.tmp-$pid ] && break; sleep 0.01; done; "
             "kill -INT $pid; wait $pid; echo $?; ls",
             scratch, scratch, CVN_BINARY);
    Run r = run("", args);
    assert_string_equal(r.output.text, "130\n");
    strbuf_free(&r.output);
}

/* Text typed at a terminal ends with one Ctrl-D at the beginning of a line. */
static void one_ctrl_d_ends_what_is_typed(void **state)
{
    static const char typed[] = "abc\n\004";
    int status, master = posix_openpt(O_RDWR | O_NOCTTY);
    if (master < 0 || grantpt(master) != 0 || unlockpt(master) != 0)
        skip(); /* no terminals here */
    int terminal = open(ptsname(master), O_RDWR | O_NOCTTY);
    assert_true(terminal >= 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        int null = open("/dev/null", O_WRONLY);
        dup2(terminal, 0);
        dup2(null, 1);
        alarm(30);
        execl(CVN_BINARY, CVN_BINARY, "tokenize", "--tokenizer",
              CVN_TEST_DATA "/chat/tokenizer.json", (char *)NULL);
        _exit(127);
    }
    assert_int_equal(write(master, typed, sizeof typed - 1), sizeof typed - 1);
    assert_int_equal(waitpid(child, &status, 0), child);
    close(terminal);
    close(master);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        fail_msg("ended with status %#x", (unsigned)status);
}

/* Standard files that are closed are not mixed up with those that a command opens. */
static void closed_files_stay_closed(void **state)
{
    char args[256];
    expect(1, "", "inspect --preset tiny 2>&1 >&-", "cannot write to standard output");
    expect(1, "", "opt - 2>&1 <&-", "cannot read standard input");
    assert_int_equal(file_write(in_scratch("text"), "a fox ran over the hill", 23, NULL), 0);
    snprintf(args, sizeof args,
             "train --data %s/text --preset stories260k --seq 4 --batch 1 --steps 2 --out %s/run "
             ">&- 2>&-",
             scratch, scratch);
    expect(1, "", args, "");
    snprintf(args, sizeof args, "--help >/dev/null; grep -c '^[^{]' %s/run/metrics.jsonl", scratch);
    expect(1, "", args, "0");
}

static void output_that_does_not_arrive_is_an_error(void **state)
{
    if (access("/dev/full", W_OK) != 0) {
        print_message("no /dev/full here\n");
        skip();
    }
    expect(1, "", "--help 2>&1 >/dev/full", "cannot write to standard output");
    expect(1, "", "train --help 2>&1 >/dev/full", "cannot write to standard output");
    expect(1, "", "inspect --preset tiny --json 2>&1 >/dev/full", "cannot write");
    char args[256]; /* and in one sentence */
    snprintf(
        args, sizeof args,
        "generate %s --tokens 1,7 -n 3 -t 1 2>&1 >/dev/full | grep -c caravan:", random_model());
    expect(0, "", args, "1\n");
    snprintf(args, sizeof args, "convert %s /dev/null 2>&1", random_model());
    expect(1, "", args, "'/dev/null' exists and is not a folder");
}

int main(void)
{
    forget_environment();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ctrl_c_ends_a_generation_with_130),
        cmocka_unit_test(ctrl_c_leaves_no_folder),
        cmocka_unit_test(one_ctrl_d_ends_what_is_typed),
        cmocka_unit_test(closed_files_stay_closed),
        cmocka_unit_test(output_that_does_not_arrive_is_an_error),
    };
    return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
