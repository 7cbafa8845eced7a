/* Runs of the program from a command line, of which output and exit code are read. (shell.h runs lines of a shell beside models with
 * a tokenizer.) */
#ifndef CVN_TESTS_CLI_RUN_H
#define CVN_TESTS_CLI_RUN_H

#include "base/file.h"
#include "base/strbuf.h"
#include "scratch.h"
#include "unit.h"

#include <sys/wait.h>
#include <unistd.h>

#include <jansson.h>

/* A run of `caravan …` by the shell. */
typedef struct Run {
    int status;    /* exit code, or 128 + signal */
    StrBuf output; /* standard output, and standard error when the command line sends it there */
} Run;

/* Runs "ENV caravan ARGS"; ARGS may redirect. The caller frees output. */
static Run run(const char *environment, const char *args)
{
    StrBuf line = {0};
    Run r = {0};
    strbuf_printf(&line, "%s %s %s", environment, CVN_BINARY, args);
    assert_false(line.failed);
    FILE *pipe = popen(line.text, "r");
    assert_non_null(pipe);
    char piece[4096];
    size_t n;
    while ((n = fread(piece, 1, sizeof piece, pipe)) > 0)
        strbuf_add(&r.output, piece, n);
    strbuf_putc(&r.output, '\0');
    int status = pclose(pipe);
    r.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    strbuf_free(&line);
    return r;
}

/* Runs, and holds the exit code and a piece of what is printed to what is expected. */
static inline void expect(int status, const char *environment, const char *args, const char *piece)
{
    Run r = run(environment, args);
    if (r.status != status || !strstr(r.output.text, piece))
        fail_msg("%s caravan %s: exit %d, expected %d and \"%s\" in:\n%s", environment, args,
                 r.status, status, piece, r.output.text);
    strbuf_free(&r.output);
}

/* Runs and parses what is printed as JSON. */
static inline json_t *run_json(const char *args)
{
    Run r = run("", args);
    assert_int_equal(r.status, 0);
    json_t *json = json_loads(r.output.text, 0, NULL);
    if (!json)
        fail_msg("caravan %s: no JSON: %s", args, r.output.text);
    strbuf_free(&r.output);
    return json;
}

/* A model of random weights, made once. */
static inline const char *random_model(void)
{
    char args[256];
    const char *path = in_scratch("random");
    if (!file_exists(path)) {
        snprintf(args, sizeof args, "init --preset stories260k --context 100000 -o %s", path);
        expect(0, "", args, "random parameters");
    }
    return in_scratch("random");
}

/* What the caller's environment says of options must not reach the program. */
static void forget_environment(void)
{
    for (char **e = environ; *e;) {
        size_t n = strcspn(*e, "=");
        char name[256];
        if (strncmp(*e, "CARAVAN_", 8) == 0 && n < sizeof name) {
            snprintf(name, sizeof name, "%.*s", (int)n, *e);
            unsetenv(name);
            e = environ;
        } else
            e++;
    }
}

#endif
