/*
 * caravan train, killed with SIGKILL at random moments, is the run that was never killed: every step's line
 * and every byte of the model and the last checkpoint. CARAVAN_KILLS says how often, else 4 times; each
 * takes a second or less.
 */
#include "shell.h"
#include "splitmix.h"

#include <dirent.h>
#include <math.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

/* Some text with more order than noise. */
static void write_text(const char *path)
{
    static const char *const words[] = {"the ", "fox ", "ran ", "over ",  "a ",   "hill ",
                                        "and ", "saw ", "two ", "birds ", "who ", "sang.\n"};
    uint64_t random = 11;
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    for (int i = 0, at = 0; i < 9000; i++) {
        fputs(words[at], file);
        at = (at + 1 + (int)(splitmix(&random) % 3)) % 12;
    }
    assert_int_equal(fclose(file), 0);
}

#define OPTIONS                                                                                    \
    "--data text --preset stories260k --tokenizer tok.json --seq 32 --batch 2 --steps 30 "         \
    "--save-every 3 --keep-last 3 --seed 5 --validation 0.1 --evaluate-every 10 -t 2"

/* What one process of the killed run is: a new run, or one that goes on. */
static const char *const life =
    "if ls killed/checkpoints/step-*[0-9]/manifest.json >/dev/null 2>&1; then exec " CVN_BINARY
    " train --resume killed >>log 2>&1; else exec " CVN_BINARY " train " OPTIONS
    " --out killed >>log 2>&1; fi";

/* Starts a life and kills it after some microseconds; true when it had ended well before. */
static bool live(useconds_t wait)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (chdir(scratch) == 0 && setenv("HOME", scratch, 1) == 0)
            execl("/bin/sh", "sh", "-c", life, (char *)NULL);
        _exit(127);
    }
    int status = 0;
    bool ended = false;
    for (useconds_t waited = 0; waited < wait && !ended; waited += 2000) {
        usleep(2000);
        ended = waitpid(child, &status, WNOHANG) == child;
    }
    if (!ended) {
        kill(child, SIGKILL);
        assert_int_equal(waitpid(child, &status, 0), child);
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) != 0) {
        int code;
        StrBuf log = shell("tail -5 log", &code);
        fail_msg("a life ended with %d:\n%s", WEXITSTATUS(status), log.text);
    }
    return WIFEXITED(status);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void killed_at_random_moments_is_never_killed(void **state)
{
    const char *text = getenv("CARAVAN_KILLS");
    int kills = text ? (int)strtol(text, NULL, 10) : 4, killed = 0, restarted = 0;
    uint64_t random = (uint64_t)getpid();
    double begin = now();
    expect(0, "caravan train " OPTIONS " --out whole 2>&1", "finished");
    /* Deaths fall in the first part of a life as long as that one, however fast the machine is; later lives are nearer
     * to the end, and so are their deaths. */
    uint64_t life_span = (uint64_t)(6e5 * (now() - begin)) + 1;
    while (killed < kills) {
        if (!live((useconds_t)(splitmix(&random) % life_span))) {
            killed++;
            continue;
        }
        int code; /* it came to the end before all deaths were died: once more, from nothing */
        StrBuf output =
            shell("diff -rq -x manifest.json killed/checkpoints whole/checkpoints && rm -r killed",
                  &code);
        if (code)
            fail_msg("a run that ended after %d deaths is not the whole one:\n%s", killed,
                     output.text);
        strbuf_free(&output);
        restarted++;
    }
    while (!live(600000000)) {
    }
    /* Of a line, all but what a clock says. */
    const char *lines = "for run in whole killed; do sed -E 's/,\"tokens_per_second.*seconds\":"
                        "[^,}]*//' $run/metrics.jsonl >$run.lines; done; wc -l <killed.lines; "
                        "cmp whole.lines killed.lines && echo same";
    expect(0, lines, "30\nsame");
    expect(0, "grep -c validation_loss killed.lines", "3");
    expect(0, "cmp whole/model.safetensors killed/model.safetensors && echo same", "same");
    /* The manifests differ in the name of the folder only. */
    expect(0, "diff -rq -x manifest.json whole/checkpoints killed/checkpoints && echo same",
           "same");
    expect(0, "ls killed/checkpoints | tr '\\n' ' '",
           "lock step-00000024 step-00000027 step-00000030 ");
    expect(1, "grep -c corrupt log", "0");
    expect(1, "ls -A killed | grep -c -e '^[.]' -e tmp", "0"); /* nothing half done is left */
    print_message("%d deaths, %d runs\n", killed, restarted + 1);
}

static int prepare(void **state)
{
    char path[128];
    if (make_scratch(state))
        return -1;
    snprintf(path, sizeof path, "%s/text", scratch);
    write_text(path);
    int status;
    StrBuf output = shell("caravan tokenize --train-bpe text --vocab 300 -o tok.json 2>&1 || "
                          "caravan tokenize --help",
                          &status);
    if (status != 0)
        print_message("%s", output.text);
    strbuf_free(&output);
    return status;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(killed_at_random_moments_is_never_killed)};
    return cmocka_run_group_tests(tests, prepare, remove_scratch);
}
