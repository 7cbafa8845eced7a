/*
 * A training step: seconds, MFU, memory.
 *
 *     bench_train_step [--preset stories110m] [--seq 1024] [--batch 2] [--remat none|selective|block]
 *                      [--repeats 2] [--threads 0] [--profile FILE] [--plan] [--f32] [--optimizer adamw|adafactor]
 */
#include "model/params.h"
#include "model/presets.h"
#include "train/bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int policy_of(const char *name)
{
    for (int i = 0; i < REMAT_POLICY_COUNT; i++)
        if (strcmp(name, remat_policy_names[i]) == 0)
            return i;
    return 0;
}

int main(int argc, char **argv)
{
    cvn_err err = {0};
    const char *preset = "stories110m";
    OptimizerKind kind = OPTIMIZER_ADAMW;
    TrainBench bench = {.batch = 2, .seq = 1024, .compute = CVN_BF16, .repeats = 2};
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "--plan") == 0) {
            bench.plan_only = true;
            continue;
        }
        if (strcmp(argv[i], "--f32") == 0) {
            bench.compute = CVN_F32;
            continue;
        }
        i++;
        if (strcmp(argv[i - 1], "--preset") == 0)
            preset = value;
        else if (strcmp(argv[i - 1], "--seq") == 0)
            bench.seq = strtol(value, NULL, 10);
        else if (strcmp(argv[i - 1], "--batch") == 0)
            bench.batch = strtol(value, NULL, 10);
        else if (strcmp(argv[i - 1], "--repeats") == 0)
            bench.repeats = (int)strtol(value, NULL, 10);
        else if (strcmp(argv[i - 1], "--threads") == 0)
            bench.threads = (int)strtol(value, NULL, 10);
        else if (strcmp(argv[i - 1], "--remat") == 0)
            bench.remat = (RematPolicy)policy_of(value);
        else if (strcmp(argv[i - 1], "--optimizer") == 0)
            kind = strcmp(value, "adafactor") == 0 ? OPTIMIZER_ADAFACTOR : OPTIMIZER_ADAMW;
        else if (strcmp(argv[i - 1], "--profile") == 0)
            bench.profile = value;
    }
    LlamaConfig config;
    TrainFigure f;
    if (preset_config(preset, &config, &err)) {
        fprintf(stderr, "bench_train_step: %s\n", err.message);
        return 1;
    }
    bench.config = &config;
    bench.optimizer = optimizer_defaults(kind, model_size(&config).params);
    if (train_bench(&bench, &f, &err)) {
        fprintf(stderr, "bench_train_step: %s\n", err.message);
        return 1;
    }
    printf("%s, %s, batch %lld, seq %lld, remat %s: arena %.1f MiB, in all %.1f MiB\n", preset,
           cvn_dtype_name(bench.compute), (long long)bench.batch, (long long)bench.seq,
           remat_policy_names[bench.remat], (double)f.arena_bytes / 0x1p20,
           (double)f.peak_memory / 0x1p20);
    if (!bench.plan_only)
        printf("%.3f s/step, %.0f tokens/s, MFU %.1f%% (%.0f GFLOP of %.0f GFLOP/s); loss %.4f, "
               "%.4f\n",
               f.seconds, f.tokens_per_second, 100 * f.mfu, f.flops * 1e-9,
               (bench.compute == CVN_BF16 ? f.ceilings.flops_bf16 : f.ceilings.flops_f32) * 1e-9,
               f.loss[0], f.loss[1]);
    return 0;
}
