/*
 * caravan train on meshes, as a user runs it: in one process and in several the same bits, checkpoints that go on on
 * any other mesh, ranks that are killed, and what is refused.
 */
#include "ranks.h"
#include "shell.h"

#include "base/file.h"
#include "cpu/registry.h"
#include "splitmix.h"
#include "train/checkpoint/export.h"

#include <math.h>
#include <sys/stat.h>
#include <time.h>

#define OPTIONS                                                                                    \
    "--data story.txt --preset stories260k --seq 16 --batch 6 --steps 8 --save-every 3 --threads " \
    "1 --dtype f32 --validation 0.1 --evaluate-every 4 --lr 0.001 "

static void put_story(void)
{
    static const char *const who[] = {"The fox", "A child", "My aunt", "The miller"};
    static const char *const what[] = {"saw a red door", "lost two apples", "found a key"};
    char path[128];
    StrBuf text = {0};
    uint64_t random = 3;
    cvn_err err = {0};
    for (int i = 0; i < 300; i++)
        strbuf_printf(&text, "%s %s.%s", who[draw(&random, 4)], what[draw(&random, 3)],
                      i % 9 == 8 ? "\n<|endoftext|>\n" : " ");
    snprintf(path, sizeof path, "%s/story.txt", scratch);
    must(file_write(path, text.text, text.length, &err), &err);
    strbuf_free(&text);
}

static void run(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void run(const char *format, ...)
{
    char line[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    expect(0, line, "");
}

/* One device, and what all others are held to: the run "one". */
static int make_run(void **state)
{
    if (make_scratch(state))
        return -1;
    put_story();
    run("caravan train " OPTIONS "--out one 2>&1");
    run("caravan train " OPTIONS "--out mesh --mesh data=2,model=2 2>&1");
    return 0;
}

enum { STEPS = 8 };

static void read_losses(const char *name, double loss[STEPS])
{
    char line[128];
    int status;
    snprintf(line, sizeof line, "sed 's/.*\"loss\":\\([0-9.]*\\).*/\\1/' %s/metrics.jsonl", name);
    StrBuf text = shell(line, &status);
    char *at = text.text;
    for (int i = 0; i < STEPS; i++)
        loss[i] = strtod(at, &at);
    strbuf_free(&text);
}

static void same_losses(const char *a, const char *b, double tolerance)
{
    double x[STEPS], y[STEPS];
    read_losses(a, x);
    read_losses(b, y);
    for (int i = 0; i < STEPS; i++)
        if (!(x[i] > 0) || !(fabs(x[i] - y[i]) <= tolerance * x[i]))
            fail_msg("step %d: loss %.9g of %s, %.9g of %s", i + 1, x[i], a, y[i], b);
}

static void the_curve_is_that_of_one_device(void **state)
{
    same_losses("one", "mesh", 1e-5);
    expect(0, "caravan generate -m mesh -p 'The fox' -n 4 --temperature 0 2>&1", "prompt");
}

static void a_checkpoint_goes_on_on_any_mesh(void **state)
{
    static const char *const after[] = {"--mesh ''", "--mesh data=3,model=2 --layout fsdp+tp"};
    for (int i = 0; i < 2; i++) {
        run("rm -rf part; caravan train " OPTIONS
            "--out part --mesh data=2,model=2 --stop-after 5 2>&1");
        run("caravan train --resume part %s 2>&1", after[i]);
        same_losses("one", "part", 1e-5);
    }
    run("rm -rf part; caravan train " OPTIONS "--out part --stop-after 5 2>&1");
    run("caravan train --resume part --mesh model=3 --layout tp 2>&1");
    same_losses("one", "part", 1e-5);
}

static void the_same_mesh_goes_on_to_the_same_bits(void **state)
{
    run("rm -rf part; caravan train " OPTIONS
        "--out part --mesh data=2,model=2 --stop-after 4 2>&1");
    run("caravan train --resume part 2>&1");
    for (int i = 1; i <= 4; i++)
        run("cmp part/checkpoints/step-00000008/shard-0000%d-of-00004.safetensors "
            "mesh/checkpoints/step-00000008/shard-0000%d-of-00004.safetensors",
            i, i);
}

/* The option is kept by a run, and may change when it goes on. */
static void without_overlap_the_bits_are_the_same(void **state)
{
    run("rm -rf part; caravan train " OPTIONS
        "--out part --mesh data=2,model=2 --overlap off --stop-after 4 2>&1");
    expect(0, "caravan train --resume part --stop-after 6 2>&1", "");
    run("caravan train --resume part --overlap on 2>&1");
    for (int i = 1; i <= 4; i++)
        run("cmp part/checkpoints/step-00000008/shard-0000%d-of-00004.safetensors "
            "mesh/checkpoints/step-00000008/shard-0000%d-of-00004.safetensors",
            i, i);
    expect(2, "caravan train " OPTIONS "--out no --mesh data=2 --overlap maybe 2>&1", "overlap");
}

static void reshard_there_and_back_is_the_checkpoint(void **state)
{
    run("rm -rf r1 r2 r3; caravan reshard one r1 --mesh data=2,model=3 --layout fsdp+tp");
    run("caravan reshard r1 r2 --mesh data=8");
    run("caravan reshard r2 r3");
    run("cmp one/checkpoints/step-00000008/model.safetensors "
        "r3/checkpoints/step-00000008/model.safetensors");
    run("cmp one/checkpoints/step-00000008/optimizer.safetensors "
        "r3/checkpoints/step-00000008/optimizer.safetensors");
    run("caravan export r1 e1 && caravan export one e2 && cmp e1/model.safetensors "
        "e2/model.safetensors");
    expect(1, "caravan reshard one r1 2>&1", "is not empty");
    expect(1, "caravan reshard one r4 --mesh data=2 --layout 4d 2>&1", "is not a layout");
}

/* Ctrl-C, and a disk that is full. */
static void what_ends_a_reshard_leaves_nothing(void **state)
{
    char from[128], to[128];
    Checkpoint checkpoint;
    cvn_err err = {0};
    int interrupt = 1;
    snprintf(from, sizeof from, "%s/one/checkpoints/step-00000008", scratch);
    snprintf(to, sizeof to, "%s/r5", scratch);
    assert_int_equal(checkpoint_open(&checkpoint, from, &err), CVN_OK);
    assert_int_equal(checkpoint_reshard(&checkpoint, to, "data=2", "2d", &interrupt, &err),
                     CVN_EINTERRUPTED);
    checkpoint_close(&checkpoint);
    run("test ! -e r5 && mkdir r5");
    expect(1, "ulimit -f 200; caravan reshard one r5 2>&1", "r5");
    run("test -d r5 && test -z \"$(ls -A r5)\"");
    run("caravan reshard one r5 && test -e r5/checkpoints");
}

static void damage_is_found(void **state)
{
    run("rm -rf hurt; cp -r mesh hurt; printf x | dd of=hurt/checkpoints/step-00000008/"
        "shard-00002-of-00004.safetensors bs=1 seek=9000 conv=notrunc 2>/dev/null");
    expect(0, "caravan train --resume hurt --steps 9 2>&1", "resumes after step 6 of 9");
    run("rm hurt/checkpoints/step-00000006/shard-00001-of-00004.safetensors; rm -rf "
        "hurt/checkpoints/step-0000000[89]");
    expect(1, "caravan train --resume hurt 2>&1", "has no complete checkpoint");
}

/* In 2 and in 4 processes: losses and checkpoints of a run in one, on 4 devices. */
static void processes_train_as(const char *one, const char *options)
{
    need_mpirun();
    for (int ranks = 2; ranks <= 4; ranks += 2) {
        run("rm -rf mpi");
        run(RANKS "train " OPTIONS "--out mpi %s 2>&1", ranks, options);
        same_losses(one, "mpi", 0);
        for (int i = 1; i <= 4; i++)
            run("cmp mpi/checkpoints/step-00000008/shard-0000%d-of-00004.safetensors "
                "%s/checkpoints/step-00000008/shard-0000%d-of-00004.safetensors",
                i, one, i);
        run("cmp mpi/model.safetensors %s/model.safetensors", one);
    }
}

static void processes_write_what_threads_write(void **state)
{
    processes_train_as("mesh", "--mesh data=2,model=2");
}

/* Stages, of which each process has two, or each two processes have one. */
static void processes_train_stages_as_threads_do(void **state)
{
    need_mpirun();
    run("caravan train " OPTIONS "--out stages --micro-batch 2 --mesh data=2,stage=2 2>&1");
    same_losses("one", "stages", 1e-5);
    processes_train_as("stages", "--micro-batch 2 --mesh data=2,stage=2");
    run(RANKS "train --resume mpi --mesh stage=2 --steps 9 2>&1", 2);
    /* A layout of stages cannot use the other mesh: another one is chosen. */
    run("cp -r stages split && caravan train --resume split --mesh model=2 --steps 9 2>&1");
    run("caravan train --resume stages --mesh '' --steps 9 2>&1");
    same_losses("stages", "mpi", 1e-5);
    same_losses("stages", "split", 1e-5);
    run("caravan reshard one staged --mesh stage=2,model=2; caravan train --resume staged --mesh "
        "stage=2 --steps 9 2>&1");
}

/* Adapters: in threads and in processes the same bytes, as PEFT has them; they go on on any mesh, reshard, and talk. */
static void adapters_are_trained_on_meshes(void **state)
{
#define LORA                                                                                       \
    "train --data story.txt --init one --lora r=4 --seq 16 --batch 6 --steps 8 --save-every 4 "    \
    "--threads 1 --dtype f32 --lr 0.01 --sample-every 4 "
    run("caravan " LORA "--out l1 2>&1");
    run("caravan " LORA "--out l4 --mesh data=2,model=2 2>&1");
    same_losses("l1", "l4", 1e-5);
    run("cmp l1/adapter_config.json l4/adapter_config.json");
    expect(0, "caravan generate -m l4 -p 'The fox' -n 4 --temperature 0 2>&1", "prompt");
    run("rm -rf part; cp -r l4 part; rm -rf part/checkpoints/step-00000008; caravan train --resume "
        "part --mesh "
        "data=3 --layout fsdp 2>&1");
    same_losses("l1", "part", 1e-5);
    run("rm -rf part; caravan reshard l1 part --mesh model=3 --layout tp && caravan reshard part "
        "back && for f in adapter_model optimizer; do cmp l1/checkpoints/step-00000008/"
        "$f.safetensors back/checkpoints/step-00000008/$f.safetensors; done");
    run("caravan export part out && cmp out/adapter_model.safetensors l1/adapter_model.safetensors "
        "&& caravan export part merged --lora-merge && caravan export l1 merged1 --lora-merge && "
        "cmp merged/model.safetensors merged1/model.safetensors");
    need_mpirun();
    run(RANKS LORA "--out lm --mesh data=2,model=2 2>&1", 2);
    run("cmp lm/adapter_model.safetensors l4/adapter_model.safetensors");
    run("! grep -v '\"slowest_rank\":[01],\"busy_seconds\":[0-9].*\"busy_seconds_others\":[0-9]' "
        "lm/metrics.jsonl");
    run("! grep slowest_rank l4/metrics.jsonl"); /* one process */
}

/* Since a file of the folder was written; infinite where there is none. */
static double seconds_since(const char *name)
{
    struct stat file;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (stat(in_scratch(name), &file))
        return INFINITY;
    return (double)(now.tv_sec - file.st_mtim.tv_sec) +
           (double)(now.tv_nsec - file.st_mtim.tv_nsec) * 1e-9;
}

/* A rank is killed somewhere between its start and the end; CARAVAN_TEST_LONG: several times. */
static void a_killed_rank_ends_all_and_fewer_go_on(void **state)
{
    need_mpirun();
    uint64_t random = (uint64_t)time(NULL);
    int times = getenv("CARAVAN_TEST_LONG") ? 10 : 1, killed = 0;
    print_message("seed %llu\n", (unsigned long long)random);
    run("rm -rf whole; caravan train " OPTIONS "--out whole --steps 100 --save-every 20 "
        "--evaluate-every 0 --mesh model=2 2>&1");
    for (int tries = 0; killed < times; tries++) {
        int status;
        char line[1024];
        if (tries == 5 * times)
            fail_msg("of %d runs %d were killed before they ended", tries, killed);
        /* Every rank leaves its process id before it becomes the program. */
        snprintf(line, sizeof line,
                 "rm -rf dead pid; mkdir pid; (i=0; while [ $i -lt 2400 ] && ! ls dead/checkpoints "
                 "2>/dev/null | grep -q '^step-[0-9]*$'; do sleep 0.05; i=$((i+1)); done; sleep "
                 "0.%02d; kill -9 $(cat pid/%d) && touch pid/killed) 2>/dev/null & " MPIRUN
                 "-n 4 sh -c 'echo $$ > "
                 "pid/$OMPI_COMM_WORLD_RANK; exec " CVN_BINARY " train " OPTIONS
                 "--out dead --steps 100 --save-every 20 --evaluate-every 0 --mesh "
                 "data=2,model=2' 2>&1",
                 draw(&random, 60), draw(&random, 4));
        StrBuf output = shell(line, &status);
        double ago = seconds_since("pid/killed");
        if (status != 0) { /* else it was done before */
            killed++;
            if (!strstr(output.text, "caravan: rank") || !(ago <= 60))
                fail_msg("exit %d, %.0f s after the kill: %s", status, ago, output.text);
        }
        strbuf_free(&output);
        run(RANKS "train --resume dead --mesh data=2 2>&1", 2);
        same_losses("whole", "dead", 1e-5);
    }
}

static void ranks_that_disagree_end_with_one_sentence(void **state)
{
    need_mpirun();
    char line[1024];
    snprintf(line, sizeof line,
             "rm -rf odd; " MPIRUN "-n 1 " CVN_BINARY " train " OPTIONS
             "--out odd --mesh data=2 : -n 1 env CARAVAN_SEED=5 " CVN_BINARY " train " OPTIONS
             "--out odd --mesh data=2 2>&1");
    int status;
    StrBuf output = shell(line, &status);
    const char *first = strstr(output.text, "caravan: ");
    if (status == 0 || !first || !strstr(output.text, "disagrees with rank 0") ||
        strstr(first + 1, "caravan: "))
        fail_msg("exit %d: %s", status, output.text);
    strbuf_free(&output);
    snprintf(line, sizeof line,
             MPIRUN "-n 1 env CARAVAN_CPU=portable " CVN_BINARY " train " OPTIONS
                    "--out odd --mesh data=2 : -n 1 env CARAVAN_CPU=avx2 " CVN_BINARY
                    " train " OPTIONS "--out odd --mesh data=2 2>&1");
    output = shell(line, &status);
    first = strstr(output.text, "caravan: ");
    if (cpu_kernels_of(CPU_ISA_AVX2) &&
        (status == 0 || !first || !strstr(output.text, "with kernels for avx2: train") ||
         !strstr(output.text, "CARAVAN_CPU") || strstr(first + 1, "caravan: ")))
        fail_msg("exit %d: %s", status, output.text);
    strbuf_free(&output);
    /* The same path, another file: what a machine's own copy may be. */
    run("mkdir here there; cp story.txt here; sed '7s/key/car/' story.txt > there/story.txt");
    snprintf(line, sizeof line,
             "rm -rf odd; " MPIRUN "-n 1 --wdir %s/here " CVN_BINARY " train " OPTIONS
             "--out %s/odd --mesh data=2 : -n 1 --wdir %s/there " CVN_BINARY " train " OPTIONS
             "--out %s/odd --mesh data=2 2>&1",
             scratch, scratch, scratch, scratch);
    output = shell(line, &status);
    first = strstr(output.text, "caravan: ");
    if (status == 0 || !first || !strstr(output.text, "about the training data") ||
        strstr(first + 1, "caravan: "))
        fail_msg("exit %d: %s", status, output.text);
    strbuf_free(&output);
    snprintf(line, sizeof line, RANKS "train " OPTIONS "--out odd 2>&1", 2);
    output = shell(line, &status);
    if (status == 0 || !strstr(output.text, "started without --mesh"))
        fail_msg("exit %d: %s", status, output.text);
    strbuf_free(&output);
}

static void what_cannot_be_is_refused(void **state)
{
    expect(2, "caravan train " OPTIONS "--out no --mesh nonsense 2>&1", "nonsense");
    expect(1, "caravan train " OPTIONS "--out no --mesh data=2 --layout 4d 2>&1",
           "is not a layout");
    run("test ! -e no/checkpoints");
    /* Slices are no model yet; it says how they become one, and that is true. */
    expect(1, "caravan train --data story.txt --init mesh/checkpoints/step-00000008 --out no 2>&1",
           "make a model of it with caravan export 'mesh/checkpoints/step-00000008' MODEL");
    expect(1, "caravan generate -m mesh/checkpoints/step-00000008 --prompt a 2>&1",
           "is a checkpoint of a mesh");
    run("caravan export mesh/checkpoints/step-00000008 exported && caravan inspect -m exported");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_curve_is_that_of_one_device),
        cmocka_unit_test(a_checkpoint_goes_on_on_any_mesh),
        cmocka_unit_test(the_same_mesh_goes_on_to_the_same_bits),
        cmocka_unit_test(without_overlap_the_bits_are_the_same),
        cmocka_unit_test(reshard_there_and_back_is_the_checkpoint),
        cmocka_unit_test(what_ends_a_reshard_leaves_nothing),
        cmocka_unit_test(damage_is_found),
        cmocka_unit_test(processes_write_what_threads_write),
        cmocka_unit_test(processes_train_stages_as_threads_do),
        cmocka_unit_test(adapters_are_trained_on_meshes),
        cmocka_unit_test(a_killed_rank_ends_all_and_fewer_go_on),
        cmocka_unit_test(ranks_that_disagree_end_with_one_sentence),
        cmocka_unit_test(what_cannot_be_is_refused),
    };
    return cmocka_run_group_tests(tests, make_run, remove_scratch);
}
