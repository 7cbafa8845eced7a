/* Runs the program by the shell, in a folder of its own with two small models of random weights: "model" and
 * "long", which has a longer context; and "bare", which has no tokenizer. */
#ifndef CVN_TESTS_SHELL_H
#define CVN_TESTS_SHELL_H

#include "base/strbuf.h"
#include "scratch.h"
#include "unit.h"

#include <sys/wait.h>
#include <unistd.h>

/* What a line for the shell prints, in which `caravan` is the program; its exit code goes to *status. The
 * caller frees the output. */
static StrBuf shell(const char *line, int *status)
{
    StrBuf full = {0}, output = {0};
    strbuf_printf(&full, "export HOME=%s CARAVAN_SEED=0; cd %s; caravan() { %s \"$@\"; }; %s",
                  scratch, scratch, CVN_BINARY, line);
    assert_false(full.failed);
    FILE *pipe = popen(full.text, "r");
    assert_non_null(pipe);
    char piece[4096];
    size_t n;
    strbuf_add(&output, "", 0);
    while ((n = fread(piece, 1, sizeof piece, pipe)) > 0)
        strbuf_add(&output, piece, n);
    int code = pclose(pipe);
    *status = WIFEXITED(code) ? WEXITSTATUS(code) : 128 + WTERMSIG(code);
    strbuf_free(&full);
    return output;
}

/* Runs a line, and holds its exit code and pieces of what it prints to what is expected. */
static inline void expect(int status, const char *line, const char *piece)
{
    int got;
    StrBuf output = shell(line, &got);
    if (got != status || !strstr(output.text, piece))
        fail_msg("%s\nexit %d, expected %d and \"%s\" in:\n%s", line, got, status, piece,
                 output.text);
    strbuf_free(&output);
}

static inline int make_models(void **state)
{
    if (make_scratch(state))
        return -1;
    int status;
    StrBuf output = shell("caravan init -p tiny -s 3 --tokenizer " CVN_TEST_DATA
                          "/chat/tokenizer.json -o model && "
                          "caravan init -p tiny -s 3 --context 65536 --tokenizer " CVN_TEST_DATA
                          "/chat/tokenizer.json -o long && caravan init -p tiny -o bare",
                          &status);
    strbuf_free(&output);
    return status;
}

#endif
