#include "cli/child.h"

#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

bool child_exists(const char *name)
{
    const char *path = getenv("PATH");
    while (path && *path) {
        size_t n = strcspn(path, ":");
        char folder[PATH_MAX];
        if (n > 0 && n < sizeof folder) {
            memcpy(folder, path, n);
            folder[n] = '\0';
            if (access(file_path(folder, name).text, X_OK) == 0)
                return true;
        }
        path += n + (path[n] == ':');
    }
    return false;
}

static void close_both(const int *ends)
{
    if (ends[0] >= 0)
        close(ends[0]);
    if (ends[1] >= 0)
        close(ends[1]);
}

static int read_all(int from, StrBuf *out)
{
    char piece[65536];
    ssize_t n;
    while ((n = read(from, piece, sizeof piece)) > 0 || (n < 0 && errno == EINTR))
        strbuf_add(out, piece, n < 0 ? 0 : (size_t)n);
    return n < 0;
}

static int spawn(const char *const *argv, const Child *child, const int *in, const int *out,
                 pid_t *pid)
{
    posix_spawn_file_actions_t todo;
    posix_spawn_file_actions_init(&todo);
    if (child->feed)
        posix_spawn_file_actions_adddup2(&todo, in[0], STDIN_FILENO);
    else
        posix_spawn_file_actions_addopen(&todo, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&todo, child->out ? out[1] : STDERR_FILENO, STDOUT_FILENO);
    if (child->quiet)
        posix_spawn_file_actions_addopen(&todo, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    int code = posix_spawnp(pid, argv[0], &todo, NULL, (char *const *)(uintptr_t)argv, environ);
    posix_spawn_file_actions_destroy(&todo);
    return code;
}

int child_run(const char *const *argv, const Child *child, int *status, cvn_err *err)
{
    int in[2] = {-1, -1}, out[2] = {-1, -1}, told = 0;
    pid_t pid;
    if ((child->feed && pipe2(in, O_CLOEXEC)) || (child->out && pipe2(out, O_CLOEXEC))) {
        close_both(in);
        return err_set(err, CVN_EIO, "cannot run %s: %s", argv[0], strerror(errno));
    }
    int code = spawn(argv, child, in, out, &pid);
    if (code) {
        close_both(in);
        close_both(out);
        return err_set(err, CVN_EIO, "cannot run %s: %s", argv[0], strerror(code));
    }
    void (*before)(int) = signal(SIGPIPE, SIG_IGN);
    code = CVN_OK;
    if (child->feed) {
        close(in[0]);
        code = child->feed(child->context, in[1], err);
        close(in[1]);
    }
    if (child->out) {
        close(out[1]);
        if (read_all(out[0], child->out) && !code)
            code = err_set(err, CVN_EIO, "cannot read what %s says", argv[0]);
        close(out[0]);
    }
    while (waitpid(pid, &told, 0) < 0 && errno == EINTR)
        continue;
    signal(SIGPIPE, before);
    *status = WIFEXITED(told) ? WEXITSTATUS(told) : 128 + WTERMSIG(told);
    return code;
}
