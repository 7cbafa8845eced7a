/*
 * caravan COMMAND …: finds the command in the table, reads its options, runs it. Hidden commands
 * write what packages install: _commands, _man [COMMAND], _completion SHELL.
 */
#include "base/cpu.h"
#include "base/suggest.h"
#include "cli/common.h"
#include "cli/help.h"
#include "cli/ranks.h"
#include "cli/terminal.h"
#include "cpu/registry.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

static const Command *find_command(const char *name)
{
    for (int i = 0; commands[i]; i++)
        if (strcmp(commands[i]->name, name) == 0)
            return commands[i];
    return NULL;
}

static const char *command_at(const void *list, size_t i)
{
    const Command *const *all = list;
    return all[i] ? all[i]->name : NULL;
}

static const char *global_at(const void *list, size_t i)
{
    static const char *const names[] = {"--version", "--help"};
    (void)list;
    return i < 2 ? names[i] : NULL;
}

static int unknown_command(const char *name)
{
    const char *near = suggest(name, command_at, commands);
    if (name[0] == '-')
        fprintf(stderr, "caravan: unknown option %s before a command; %s\n", name,
                suggest(name, global_at, NULL) ? "did you mean --version or --help?"
                                               : "caravan --help lists commands");
    else if (near)
        fprintf(stderr, "caravan: unknown command %s; did you mean %s?\n", name, near);
    else
        fprintf(stderr, "caravan: unknown command %s; caravan --help lists them\n", name);
    return EXIT_USAGE;
}

/* Help or the man page of a command, or of the program where none is named. */
static int print_page(const char *name, void (*of_command)(StrBuf *, const Command *),
                      void (*of_program)(StrBuf *))
{
    StrBuf text = {0};
    const Command *command = name ? find_command(name) : NULL;
    if (name && !command)
        return unknown_command(name);
    if (command)
        of_command(&text, command);
    else
        of_program(&text);
    return print_text(&text);
}

static int print_version(void)
{
    char brand[CPU_BRAND_SIZE];
    uint32_t features = cpu_features();
    printf("caravan %s\nprocessor: %s\nfeatures:", CVN_VERSION, cpu_brand(brand));
    for (int i = 0; i < CPU_FEATURE_COUNT; i++)
        if (cpu_has(features, (CpuFeature)i))
            printf(" %s", cpu_feature_name((CpuFeature)i));
    StrBuf more = {0};
    cpu_why_not_more(&more);
    printf("\nkernels: %s\n", cpu_kernels()->name);
    if (more.length)
        printf("not available: %s\n", more.text);
    strbuf_free(&more);
    static const struct {
        const char *name;
        bool there;
    } parts[] = {
#ifdef CVN_HAVE_EDIT
        {"libedit", true},
#else
        {"libedit", false},
#endif
#ifdef CVN_HAVE_HWLOC
        {"hwloc", true},
#else
        {"hwloc", false},
#endif
#ifdef CVN_HAVE_MICROHTTPD
        {"libmicrohttpd", true},
#else
        {"libmicrohttpd", false},
#endif
    };
    for (int there = 1; there >= 0; there--) {
        const char *label = there ? "with:" : "without:";
        for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
            if (parts[i].there == there) {
                printf("%s %s", label, parts[i].name);
                label = ",";
            }
        if (label[0] == ',')
            putchar('\n');
    }
    char mpi[512];
    bool has_mpi = transport_describe(mpi, sizeof mpi);
    printf("several processes: %s%s\n", has_mpi ? "" : "not here, ", mpi);
    return EXIT_OK;
}

/* The commands that people do not type; -1 when this is none of them. */
static int run_hidden(int argc, char **argv)
{
    StrBuf text = {0};
    const char *operand = argc > 2 ? argv[2] : NULL;
    if (strcmp(argv[1], "_commands") == 0) {
        for (int i = 0; commands[i]; i++)
            strbuf_printf(&text, "%s\n", commands[i]->name);
    } else if (strcmp(argv[1], "_man") == 0) {
        return print_page(operand, man_command, man_program);
    } else if (strcmp(argv[1], "_completion") == 0) {
        if (!operand || !completion_script(&text, operand)) {
            fprintf(stderr, "caravan: _completion writes for bash, zsh or fish\n");
            return EXIT_USAGE;
        }
    } else
        return -1;
    return print_text(&text);
}

/* Of --threads, wherever a command has it. */
static void limit(Args *args)
{
    for (int i = 0; args->command->options[i]; i++)
        if (args->command->options[i] == SHARED(THREADS))
            args->value[i].integer = limit_threads(args->value[i].integer);
}

static int run_args(void *of, cvn_err *err)
{
    const Args *args = of;
    return args->command->run(args, err);
}

static int run_command(const Command *command, int argc, char **argv)
{
    cvn_err err = {0};
    Args *args = calloc(1, sizeof *args);
    if (!args) {
        err_set(&err, CVN_EMEM, "no memory to start");
        return fail(&err);
    }
    int status = args_parse(args, command, argc, argv, &err);
    if (status)
        status = status == CVN_EINVAL ? EXIT_USAGE : status;
    else if (args->help)
        status = print_page(command->name, help_command, help_program);
    else if (transport_launched() && option_find(command, "mesh", 4) < 0)
        status = err_set(&err, CVN_EUNSUPPORTED, "caravan %s does not support several processes",
                         command->name);
    else {
        limit(args);
        status = protect(run_args, args, "running the command", &err);
    }
    if (status < 0 || err.code) {
        int told = fail(&err);
        status = status > 0 ? status : told;
    }
    if (status == EXIT_USAGE)
        fprintf(stderr, "caravan %s --help shows examples and all options\n", command->name);
    args_free(args);
    free(args);
    return status;
}

/* The library takes its best kernels where CARAVAN_CPU names none that it knows; a slip of the pen is told here. */
static bool knows_cpu(void)
{
    const char *wanted = getenv("CARAVAN_CPU");
    if (!wanted || !*wanted || strcmp(wanted, "portable") == 0)
        return true;
    for (int i = 0; i < CPU_ISA_COUNT; i++)
        if (strcmp(wanted, cpu_isa_name((CpuIsa)i)) == 0)
            return true;
    fprintf(stderr, "caravan: CARAVAN_CPU is \"%s\"; give one of", wanted);
    for (int i = 0; i < CPU_ISA_COUNT; i++)
        fprintf(stderr, "%s %s", i ? "," : "", cpu_isa_name((CpuIsa)i));
    fputc('\n', stderr);
    return false;
}

static int dispatch(int argc, char **argv)
{
    if (!knows_cpu())
        return EXIT_USAGE;
    if (argc < 2) {
        SCOPED(strbuf_free) StrBuf text = {0};
        help_program(&text);
        fprintf(stderr, "%s", text.text ? text.text : "");
        return EXIT_USAGE;
    }
    const char *word = argv[1];
    bool asks = strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0;
    if (asks || strcmp(word, "help") == 0)
        return print_page(!asks && argc > 2 ? argv[2] : NULL, help_command, help_program);
    if (strcmp(word, "--version") == 0 || strcmp(word, "-V") == 0)
        return print_version();
    int status = run_hidden(argc, argv);
    if (status >= 0)
        return status;
    const Command *command = find_command(word);
    return command ? run_command(command, argc - 2, argv + 2) : unknown_command(word);
}

int main(int argc, char **argv)
{
    /* Standard files that are closed get a place that can neither be read nor written: a model that is written would else
       take the number of standard output, and have in it what is printed. */
    for (int fd = 0; fd < 3; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF &&
            open("/dev/null", fd ? O_RDONLY : O_WRONLY) < 0)
            exit(EXIT_REFUSED);
    signal(SIGXFSZ,
           SIG_IGN); /* a limit on the size of files is an error of the write, like a full disk */
    ranks_command(argc, argv);
    int status = dispatch(argc, argv);
    terminal_restore();
    /* What was printed counts only when it arrived: a full disk is an error. */
    bool lost = ferror(stdout); /* long ago: errno is of something else by now */
    if ((fflush(stdout) != 0 || lost) && !status) { /* else the error has been told */
        fprintf(stderr, "caravan: cannot write to standard output: %s\n",
                lost ? "output was truncated" : strerror(errno));
        status = status ? status : EXIT_REFUSED;
    }
    return ranks_leave(status, status == EXIT_INTERRUPTED); /* on which all have agreed */
}
