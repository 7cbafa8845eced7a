/*
 * Collectives between processes. Started by a launcher this program is one rank of the test that its arguments name;
 * otherwise it runs itself, under mpirun, which is skipped where there is none, and as processes that meet at an address, and looks at
 * what comes of it.
 */
#include "comm/cluster.h"
#include "comm/transport.h"
#include "mesh_support.h"
#include "random_schedule.h"
#include "ranks.h"
#include "unit.h"

#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* ---- one rank ---- */

static void on_loss(void *context, Cluster *cluster, const cvn_err *err, bool speaks)
{
    (void)context;
    if (speaks)
        fprintf(stderr, "rank %d says: %s\n", cluster_rank(cluster), err->message);
    fflush(stderr);
    cluster_abort(cluster, 3);
}

static volatile sig_atomic_t ending;

static void on_term(int signal)
{
    (void)signal;
    ending = 1;
}

/* Runs every collective and compares; rank 0 says how it went. */
static int rank_bits(Cluster *cluster, int n_local)
{
    char why[512];
    cvn_err err = {0};
    Comm *comm = comm_new(n_local, cluster_transport(cluster), &err);
    DeviceGroup *group = comm ? group_new(comm, 1, NULL, &err) : NULL;
    int rc = group ? mesh_check_all(group, 1, why, sizeof why) : -1;
    if (rc)
        fprintf(stderr, "rank %d: %s\n", cluster_rank(cluster), group ? why : err.message);
    if (rc)
        cluster_abort(cluster, 1);
    rc = cluster_agree(cluster, "the end", 42, &err);
    if (cluster_rank(cluster) == 0)
        printf("%d devices agree\n", comm_size(comm));
    group_free(group);
    comm_free(comm);
    return rc;
}

/* Random graphs with overlap give, over MPI, the bits that threads of this process give without. */
static int rank_overlap(Cluster *cluster, int n_local)
{
    char why[256] = "";
    cvn_err err = {0};
    Comm *comm = comm_new(n_local, cluster_transport(cluster), &err);
    Comm *alone = comm_new(comm_size(comm), NULL, &err);
    DeviceGroup *group = group_new(comm, 1, NULL, &err), *threads = group_new(alone, 1, NULL, &err);
    cluster_set_comm(cluster, comm);
    int split = 0, rc = 0;
    for (uint64_t seed = 0; seed < 60 && !rc; seed++) {
        rc = schedule_check(threads, group, seed, &split, why, sizeof why);
        if (rc)
            fprintf(stderr, "rank %d, seed %d: %s\n", cluster_rank(cluster), (int)seed, why);
    }
    if (rc || split < 60)
        cluster_abort(cluster, 1);
    rc = cluster_agree(cluster, "the end", 42, &err);
    if (cluster_rank(cluster) == 0)
        printf("%d devices overlap, %d collectives\n", comm_size(comm), split);
    cluster_set_comm(cluster, NULL);
    group_free(group);
    group_free(threads);
    comm_free(comm);
    comm_free(alone);
    return rc;
}

/* Sets a flag in so many microseconds. */
typedef struct Alarm {
    volatile int flag;
    int delay;
    pthread_t thread;
} Alarm;

static void *ring(void *context)
{
    Alarm *alarm = context;
    usleep((useconds_t)alarm->delay);
    flag_set(&alarm->flag, 1);
    return NULL;
}

/* A flag on the last rank, set at any time, ends a run on all ranks or on none; afterwards runs give the bits that they gave
   before. */
static int rank_interrupt(Cluster *cluster, int n_local)
{
    const int own_threads = 2;
    char why[256] = "";
    cvn_err err = {0};
    Comm *comm = comm_new(n_local, cluster_transport(cluster), &err);
    Comm *alone = comm_new(comm_size(comm), NULL, &err);
    DeviceGroup *group = group_new(comm, own_threads, NULL, &err);
    DeviceGroup *threads = group_new(alone, own_threads, NULL, &err);
    Alarm alarm = {0};
    bool last = cluster_rank(cluster) == cluster_size(cluster) - 1;
    int ended = 0, split = 0, rc = 0, first = comm_first(comm);
    cluster_set_comm(cluster, comm);
    for (uint64_t seed = 0; seed < 40 && !rc; seed++) {
        Plan *plan = NULL;
        CompileOptions options = {
            .backend = cpu_kernels(), .n_threads = own_threads, .link = {1e-7, 1e9}};
        cvn_graph *g = random_schedule(seed, comm_size(comm));
        rc = compile_graph(g, &options, &plan, &err);
        for (int d = 0; d < n_local; d++) {
            group->device[d]->interrupt = &alarm.flag;
            group->device[d]->links.agree_seconds = seed % 2 ? 0 : 1e-9;
        }
        for (int turn = 0; turn < 8 && !rc; turn++) {
            alarm.delay = turn * 100;
            alarm.flag = last && turn == 0;
            if (last && turn && pthread_create(&alarm.thread, NULL, ring, &alarm))
                cluster_abort(cluster, 1);
            float *bits = schedule_run(group, plan, first, n_local, &err);
            if (last && turn)
                pthread_join(alarm.thread, NULL);
            int own = bits ? 0 : err.code, all[64];
            free(bits);
            rc = cluster_gather(cluster, CLUSTER_STEPS, &own, all, sizeof own, &err);
            for (int i = 0; i < cluster_size(cluster) && !rc; i++)
                rc = all[i] != own || (own && own != CVN_EINTERRUPTED) || (turn == 0 && !own);
            ended += own != 0;
            alarm.flag = 0;
        }
        plan_free(plan);
        cvn_graph_free(g);
        rc = rc ? rc : schedule_check(threads, group, seed, &split, why, sizeof why);
        if (rc)
            fprintf(stderr, "rank %d, seed %d: %s\n", cluster_rank(cluster), (int)seed, why);
    }
    if (rc)
        cluster_abort(cluster, 1);
    if (cluster_rank(cluster) == 0)
        printf("%d devices agree on %s runs to end\n", comm_size(comm),
               ended > 45 ? "many" : "few");
    cluster_set_comm(cluster, NULL);
    group_free(group);
    group_free(threads);
    comm_free(comm);
    comm_free(alone);
    return rc;
}

static void leave_pid(const char *directory, int rank)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%d", directory, rank);
    FILE *file = fopen(path, "w");
    if (file) {
        fprintf(file, "%d", (int)getpid());
        fclose(file);
    }
}

/* Adds up for ever; the process ids of the ranks are left in a directory. Rank 1 fails at step `fails`. */
static int rank_loop(Cluster *cluster, const char *directory, int fails)
{
    cvn_err err = {0};
    Comm *comm = comm_new(2, cluster_transport(cluster), &err);
    DeviceGroup *group = group_new(comm, 1, NULL, &err);
    cluster_set_comm(cluster, comm);
    int64_t groups[64];
    for (int i = 0; i < comm_size(comm); i++)
        groups[i] = i;
    cvn_graph *g = cvn_graph_new("sum", NULL);
    cvn_value *x = cvn_parameter(g, "x", CVN_TYPE(CVN_F32, 5000));
    cvn_output(g, cvn_all_reduce(g, x, CVN_SUM, 1, comm_size(comm), groups));
    CompileOptions options = {.backend = cpu_kernels(), .n_threads = 1};
    Plan *plan = NULL;
    static float data[5000];
    int rc = compile_graph(g, &options, &plan, &err);
    for (int step = 1; !rc; step++) {
        void *parameters[2] = {data, step == fails && cluster_rank(cluster) == 1 ? NULL : data};
        cluster_set_step(cluster, step);
        rc = group_run(group, plan, parameters, NULL, &err);
        if (step == 20)
            leave_pid(directory, cluster_rank(cluster));
    }
    if (cluster_fail(cluster, &err))
        fprintf(stderr, "rank %d says: %s\n", cluster_rank(cluster), err.message);
    cluster_abort(cluster, 4);
}

static int rank_main(int argc, char **argv)
{
    char settings[64];
    bool odd = strcmp(argv[1], "settings") == 0 && transport_number() == 2;
    snprintf(settings, sizeof settings, "test --mesh data=%d", odd ? 3 : 4);
    signal(SIGTERM, on_term);
    ClusterOptions options = {.timeout = argc > 4 ? strtod(argv[4], NULL) : 20,
                              .settings = settings,
                              .lost = on_loss,
                              .ending = &ending};
    Cluster *cluster = NULL;
    cvn_err err = {0};
    int rc = cluster_open(&options, &cluster, &err);
    if (rc) {
        if (cluster && cluster_rank(cluster) == 0)
            fprintf(stderr, "rank 0 says: %s\n", err.message);
        if (cluster && cluster_rank(cluster) != 0)
            sleep(60); /* rank 0 has spoken when it ends all */
        if (cluster)
            cluster_abort(cluster, 2);
        fprintf(stderr, "%s\n", err.message);
        return 2;
    }
    if (strcmp(argv[1], "bits") == 0)
        rc = rank_bits(cluster, (int)strtol(argv[2], NULL, 10));
    else if (strcmp(argv[1], "overlap") == 0)
        rc = rank_overlap(cluster, (int)strtol(argv[2], NULL, 10));
    else if (strcmp(argv[1], "interrupt") == 0)
        rc = rank_interrupt(cluster, (int)strtol(argv[2], NULL, 10));
    else if (strcmp(argv[1], "loop") == 0)
        rc = rank_loop(cluster, argv[2], (int)strtol(argv[3], NULL, 10));
    else if (strcmp(argv[1], "data") == 0) {
        rc = cluster_agree(cluster, "the training data", cluster_rank(cluster) == 3, &err);
        if (rc && cluster_rank(cluster) == 0)
            fprintf(stderr, "rank 0 says: %s\n", err.message);
    }
    cluster_close(cluster);
    return rc ? 1 : 0;
}

/* ---- the tests ---- */

static const char *program;
static bool by_address; /* without mpirun */

static void need_launcher(void)
{
    if (!by_address)
        need_mpirun();
}

/* A port that nobody has now. */
static int free_port(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof at;
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(fd >= 0 && bind(fd, (struct sockaddr *)&at, n) == 0 &&
                getsockname(fd, (struct sockaddr *)&at, &n) == 0);
    close(fd);
    return ntohs(at.sin_port);
}

/* Runs `n` ranks; what they printed, to be freed. */
static char *launch(int n, const char *arguments, int *status)
{
    char command[1024];
    if (by_address) /* what was stopped goes on in the end, and hears that all is over */
        snprintf(
            command, sizeof command,
            "export CARAVAN_COORDINATOR=127.0.0.1:%d CARAVAN_PROCESSES=%d; exec 2>&1; i=%d; "
            "run='timeout --foreground 100 %s %s'; "
            "while [ $i -gt 0 ]; do CARAVAN_PROCESS=$i $run & i=$((i-1)); done; "
            "CARAVAN_PROCESS=0 $run; status=$?; trap '' CONT; kill -CONT 0; wait; exit $status",
            free_port(), n, n - 1, program, arguments);
    else
        snprintf(command, sizeof command, "timeout 100 " MPIRUN "-n %d %s %s 2>&1", n, program,
                 arguments);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    char *text = calloc(1, 65536);
    size_t length = fread(text, 1, 65535, pipe);
    text[length] = 0;
    *status = pclose(pipe);
    return text;
}

static void expect(int n, const char *arguments, bool succeeds, const char *sentence)
{
    int status;
    char *text = launch(n, arguments, &status);
    if ((status == 0) != succeeds || !strstr(text, sentence))
        fail_msg("%d ranks, %s: status %d, and not '%s' but: %s", n, arguments, status, sentence,
                 text);
    free(text);
}

static void ranks_give_the_bits_of_the_interpreter(void **state)
{
    need_launcher();
    expect(2, "bits 1", true, "2 devices agree");
    expect(4, "bits 1", true, "4 devices agree");
    expect(3, "bits 2", true, "6 devices agree");
    expect(2, "bits 3", true, "6 devices agree");
}

static void overlap_gives_the_bits_of_threads(void **state)
{
    need_launcher();
    expect(2, "overlap 1", true, "2 devices overlap");
    expect(2, "overlap 2", true, "4 devices overlap");
    expect(3, "overlap 1", true, "3 devices overlap");
}

static void a_flag_on_one_rank_ends_runs_on_all(void **state)
{
    need_launcher();
    expect(2, "interrupt 1", true, "2 devices agree on many");
    expect(2, "interrupt 2", true, "4 devices agree on many");
}

static void ranks_that_disagree_end_with_a_sentence(void **state)
{
    need_launcher();
    int status;
    char *text = launch(4, "settings", &status);
    if (!status || !strstr(text, "rank 2 on ") ||
        !strstr(text, "runs 'test --mesh data=3', but rank 0 on "))
        fail_msg("status %d: %s", status, text);
    free(text);
    expect(4, "data", false, "about the training data, at step 0");
}

/* Launchers as their environment shows them, which give MPI nothing to find the other processes by. */
static void processes_that_cannot_join_say_so_and_end(void **state)
{
    static const char command[] =
        "%s " CVN_BINARY " generate -m " CVN_TEST_DATA "/llama/mha --tokens 1,2 -n 2 %s 2>&1";
    static const struct {
        const char *environment, *options, *says;
    } cases[] = {
        {"SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=0", "--mesh model=2",
         "start them with srun --mpi=pmix"},
        {"SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=1", "--mesh model=2", ""},
        {"SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=0", "",
         "several processes were started without --mesh"},
        {"PMI_SIZE=2 PMI_RANK=0", "--mesh model=2", "but MPI_COMM_WORLD has only this one"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char line[1024], text[4096];
        if (strncmp(cases[i].environment, "PMI", 3) == 0 && !have_mpirun())
            continue;
        snprintf(line, sizeof line, command, cases[i].environment, cases[i].options);
        FILE *pipe = popen(line, "r");
        assert_non_null(pipe);
        text[fread(text, 1, sizeof text - 1, pipe)] = 0;
        int status = pclose(pipe);
        bool silent = !*cases[i].says;
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 1 || (silent && *text) ||
            !strstr(text, cases[i].says))
            fail_msg("%s: status %d, and not '%s' but: %s", line, status, cases[i].says, text);
    }
}

/* Inside a step of Slurm mpirun has the say: its one process is alone, whatever the step has. */
static void a_launcher_is_known_by_its_environment(void **state)
{
    static const struct {
        const char *name, *value;
        bool launched;
    } steps[] = {
        {"SLURM_STEP_NUM_TASKS", "1", false},
        {"SLURM_STEP_NUM_TASKS", "4", true},
        {"PMI_SIZE", "1", false},
        {"PMI_SIZE", "2", true},
        {"OMPI_COMM_WORLD_SIZE", "1", false},
        {"OMPI_COMM_WORLD_SIZE", "2", true},
    };
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        unsetenv(steps[i].name);
    assert_false(transport_launched());
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        setenv(steps[i].name, steps[i].value, 1);
        assert_int_equal(transport_launched(), steps[i].launched);
    }
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        unsetenv(steps[i].name);
}

static void remove_directory(const char *directory)
{
    static const char *const names[] = {"0", "1", "2", "3", "output"};
    char path[512];
    for (int i = 0; i < 5; i++) {
        snprintf(path, sizeof path, "%s/%s", directory, names[i]);
        unlink(path);
    }
    rmdir(directory);
}

static void a_rank_that_fails_ends_all(void **state)
{
    need_launcher();
    char directory[] = "/tmp/caravan-mpi-XXXXXX", arguments[128];
    assert_non_null(mkdtemp(directory));
    snprintf(arguments, sizeof arguments, "loop %s 30", directory);
    expect(3, arguments, false, "failed: parameter 'x' of 'sum' was not given");
    remove_directory(directory);
}

static int pid_of(const char *directory, int rank)
{
    char path[512], text[32] = "";
    snprintf(path, sizeof path, "%s/%d", directory, rank);
    FILE *file = fopen(path, "r");
    if (!file)
        return 0;
    size_t n = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    return n ? (int)strtol(text, NULL, 10) : 0;
}

/* mpirun with 4 ranks that add up, in a process of its own; what they print goes to directory/output. Ranks bear
   silence for `patience` seconds. */
static pid_t start_loop(const char *directory, int patience)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child)
        return child;
    char arguments[128], path[512];
    snprintf(arguments, sizeof arguments, "loop %s 0 %d", directory, patience);
    snprintf(path, sizeof path, "%s/output", directory);
    int status;
    char *text = launch(4, arguments, &status);
    FILE *file = fopen(path, "w");
    if (file) {
        fputs(text, file);
        fclose(file);
    }
    _exit(status ? 1 : 0);
}

static bool all_work(const char *directory)
{
    for (int rank = 0; rank < 4; rank++)
        if (!pid_of(directory, rank))
            return false;
    return true;
}

static double elapsed(const struct timespec *from, const struct timespec *to)
{
    return (double)(to->tv_sec - from->tv_sec) + 1e-9 * (double)(to->tv_nsec - from->tv_nsec);
}

/* Seconds until the child ends or all ranks work, *ended says which; at most `most`. Time that this process was
   stopped, with the others, does not count. */
static double wait_for(pid_t child, const char *directory, double most, bool *ended, int *status)
{
    double seconds = 0;
    for (struct timespec last, now; seconds < most; seconds += fmin(elapsed(&last, &now), 0.1)) {
        clock_gettime(CLOCK_MONOTONIC, &last);
        *ended = waitpid(child, status, WNOHANG) == child;
        if (*ended || (directory && all_work(directory)))
            break;
        usleep(10000);
        clock_gettime(CLOCK_MONOTONIC, &now);
    }
    return seconds;
}

/* Sends a signal to one of 4 ranks that work; all must end within 30 s, with the sentence. Whether it was the only one. */
static bool strike_once(int rank, int signal_number, int patience, const char *sentence)
{
    char directory[] = "/tmp/caravan-mpi-XXXXXX", output[512];
    assert_non_null(mkdtemp(directory));
    pid_t child = start_loop(directory, patience);
    int status = 0;
    bool ended = false, struck = false;
    wait_for(child, directory, 100, &ended, &status);
    double seconds = 0;
    if (!ended && all_work(directory)) {
        struck = kill(pid_of(directory, rank), signal_number) == 0;
        seconds = wait_for(child, NULL, 100, &ended, &status);
    }
    if (!ended)
        waitpid(child, &status, 0); /* launch has a limit */
    static char text[65536];
    snprintf(output, sizeof output, "%s/output", directory);
    FILE *file = fopen(output, "r");
    if (file) {
        text[fread(text, 1, sizeof text - 1, file)] = 0;
        fclose(file);
    }
    remove_directory(directory);
    if (!struck)
        fail_msg("the ranks did not get to work: %s", text);
    if (seconds > 30)
        fail_msg("the other ranks needed %.0f s: %s", seconds, text);
    if (!status || !strstr(text, sentence) || !strstr(text, "last known at step "))
        fail_msg("status %d, no '%s' in: %s", status, sentence, text);
    return !strstr(strstr(text, "last known at step ") + 1, "last known at step ");
}

/* A rank that was stopped or held up, and finds others gone, does not add a sentence of its own; but it may hear of theirs
   too late where a machine is very busy. */
static void strike(int rank, int signal_number, int patience, const char *sentence)
{
    enum { TRIES = 3 };
    for (int i = 0; i < TRIES; i++)
        if (strike_once(rank, signal_number, patience, sentence))
            return;
    fail_msg("more than one sentence, each of %d times", TRIES);
}

static void a_rank_that_is_killed_ends_all(void **state)
{
    need_launcher();
    const int patience = by_address ? 4 : 20; /* no launcher tells of the end of a process */
    strike(2, SIGKILL, patience, "rank 0 says: rank 2 on ");
    strike(0, SIGKILL, patience, "rank 1 says: rank 0 on ");
}

static void a_rank_that_stops_ends_all(void **state)
{
    need_launcher();
    strike(3, SIGSTOP, 4, "rank 0 says: rank 3 on ");
    if (!by_address) /* whose end launch waits for */
        strike(0, SIGSTOP, 4, "rank 1 says: rank 0 on ");
}

/* What two processes print that are to meet, each with its own environment. */
static void expect_meeting(const char *first, const char *second, const char *sentence)
{
    char line[1024], text[4096];
    snprintf(line, sizeof line,
             "export CARAVAN_COORDINATOR=127.0.0.1:%d; exec 2>&1; (env %s timeout 60 %s data) & "
             "env %s timeout 60 %s data; status=$?; wait; exit $status",
             free_port(), second, program, first, program);
    FILE *pipe = popen(line, "r");
    assert_non_null(pipe);
    text[fread(text, 1, sizeof text - 1, pipe)] = 0;
    if (pclose(pipe) == 0 || !strstr(text, sentence))
        fail_msg("%s and %s: no '%s' in: %s", first, second, sentence, text);
}

static void processes_that_do_not_fit_say_so(void **state)
{
    (void)state;
    expect_meeting("CARAVAN_PROCESSES=2 CARAVAN_PROCESS=0", "CARAVAN_PROCESSES=3 CARAVAN_PROCESS=1",
                   "a process came as number 1 of 3 where there are 2");
    expect_meeting("CARAVAN_PROCESSES=2", "CARAVAN_PROCESSES=2",
                   "give CARAVAN_PROCESS the number of this process");
    expect_meeting("CARAVAN_PROCESSES=1 CARAVAN_PROCESS=0", "CARAVAN_PROCESS=1",
                   "give CARAVAN_PROCESSES how many processes there are");
    expect_meeting("CARAVAN_COORDINATOR=here CARAVAN_PROCESSES=2 CARAVAN_PROCESS=0",
                   "CARAVAN_PROCESSES=2 CARAVAN_PROCESS=2", "give a host and a port");
}

/* A process that is to meet another one at a port of this machine. */
static FILE *meets(int port, int number)
{
    char line[1024];
    snprintf(
        line, sizeof line,
        "CARAVAN_COORDINATOR=127.0.0.1:%d CARAVAN_PROCESSES=2 CARAVAN_PROCESS=%d timeout 60 %s "
        "bits 1 2>&1",
        port, number, program);
    FILE *pipe = popen(line, "r");
    assert_non_null(pipe);
    return pipe;
}

static void says(FILE *pipe, bool succeeds, const char *sentence)
{
    char text[4096];
    text[fread(text, 1, sizeof text - 1, pipe)] = 0;
    if ((pclose(pipe) == 0) != succeeds || !strstr(text, sentence))
        fail_msg("no '%s' in: %s", sentence, text);
}

/* Strangers connect to rank 0, and say nothing, something short or something long; then rank 1 comes. */
static void strangers_are_turned_away(void **state)
{
    (void)state;
    const int port = free_port(), on = 1;
    const struct sockaddr_in at = {.sin_family = AF_INET,
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                   .sin_port = htons((uint16_t)port)};
    static const char garbage[4096] = "GET / HTTP/1.1\r\n\r\n";
    FILE *first = meets(port, 0);
    for (size_t n = 0; n <= sizeof garbage; n = n ? n * 8 : 8) {
        int fd = -1;
        for (int tries = 0; fd < 0 && tries < 600; tries++) {
            fd = socket(AF_INET, SOCK_STREAM, 0);
            if (connect(fd, (const struct sockaddr *)&at, sizeof at) == 0)
                break;
            close(fd);
            fd = -1;
            usleep(50000);
        }
        assert_true(fd >= 0 && send(fd, garbage, n, MSG_NOSIGNAL) == (ssize_t)n);
        close(fd);
    }
    says(meets(port, 1), true, "");
    says(first, true, "2 devices agree");

    /* Where rank 0 should be is another program. */
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    assert_true(bind(listener, (const struct sockaddr *)&at, sizeof at) == 0 &&
                listen(listener, 1) == 0);
    FILE *other = meets(port, 1);
    int fd = accept(listener, NULL, NULL);
    assert_true(fd >= 0 && send(fd, garbage, sizeof garbage, MSG_NOSIGNAL) > 0);
    says(other, false, "what answers there is another program");
    close(fd);
    close(listener);
}

int main(int argc, char **argv)
{
    if (transport_launched() && argc > 1)
        return rank_main(argc, argv);
    program = argv[0];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_give_the_bits_of_the_interpreter),
        cmocka_unit_test(overlap_gives_the_bits_of_threads),
        cmocka_unit_test(a_flag_on_one_rank_ends_runs_on_all),
        cmocka_unit_test(ranks_that_disagree_end_with_a_sentence),
        cmocka_unit_test(a_launcher_is_known_by_its_environment),
        cmocka_unit_test(processes_that_cannot_join_say_so_and_end),
        cmocka_unit_test(a_rank_that_fails_ends_all),
        cmocka_unit_test(a_rank_that_is_killed_ends_all),
        cmocka_unit_test(a_rank_that_stops_ends_all),
    };
    const struct CMUnitTest without_launcher[] = {
        cmocka_unit_test(ranks_give_the_bits_of_the_interpreter),
        cmocka_unit_test(overlap_gives_the_bits_of_threads),
        cmocka_unit_test(a_flag_on_one_rank_ends_runs_on_all),
        cmocka_unit_test(ranks_that_disagree_end_with_a_sentence),
        cmocka_unit_test(processes_that_do_not_fit_say_so),
        cmocka_unit_test(strangers_are_turned_away),
        cmocka_unit_test(a_rank_that_fails_ends_all),
        cmocka_unit_test(a_rank_that_is_killed_ends_all),
        cmocka_unit_test(a_rank_that_stops_ends_all),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    by_address = true;
    failed += cmocka_run_group_tests(without_launcher, NULL, NULL);
    return failed;
}
