#include "cli/bench_train.h"

#include "base/json_file.h"
#include "cli/common.h"
#include "cli/figures.h"
#include "cli/terminal.h"
#include "model/params.h"
#include "model/presets.h"

#include <stdio.h>

static int print_train_json(const char *preset, const TrainerOptions *o, const TrainFigure *f,
                            cvn_err *err)
{
    json_t *ceilings =
        json_pack("{s:f,s:f,s:f}", "read_bandwidth", f->ceilings.bandwidth, "matmul_f32",
                  f->ceilings.flops_f32, "matmul_bf16", f->ceilings.flops_bf16);
    json_t *train =
        json_pack("{s:I,s:I,s:s,s:s,s:f,s:f,s:f,s:f,s:f,s:f,s:I}", "batch", (json_int_t)o->batch,
                  "seq", (json_int_t)o->seq, "optimizer", optimizers[o->optimizer.kind].name,
                  "remat", remat_policy_names[o->remat], "mfu", f->mfu, "matmul_peak", f->peak,
                  "tokens_per_second", f->tokens_per_second, "tokens_per_second_per_device",
                  f->tokens_per_second / f->devices, "seconds_per_step", f->seconds, "flops",
                  f->flops, "peak_memory", (json_int_t)f->peak_memory);
    json_t *all =
        json_pack("{s:s,s:s,s:s,s:o,s:o,s:o}", "model", preset, "dtype", cvn_dtype_name(o->compute),
                  "kernels", kernels_name(o->device), "device_memory",
                  device_memory_json(&f->memory), "ceilings", ceilings, "train", train);
    if (o->mesh) {
        json_t *communication = json_array();
        communication = add_communication(communication, NULL, &f->communication);
        all = json_with(all, "mesh", json_string(o->mesh));
        all = json_with(all, "layout", json_string(o->layout));
        all = json_with(all, "devices", json_integer(f->devices));
        all = json_with(all, "communication", communication);
    }
    return print_json(all, err);
}

static int print_train_csv(const char *preset, const TrainerOptions *o, const TrainFigure *f)
{
    printf("model,dtype,kernels,mesh,layout,devices,optimizer,remat,batch,seq,seconds_per_step,"
           "tokens_per_second,mfu,matmul_peak,flops,peak_memory\n");
    printf("\"%s\",%s,%s,\"%s\",%s,%d,%s,%s,%lld,%lld,%.9g,%.6g,%.4g,%.6g,%.6g,%lld\n", preset,
           cvn_dtype_name(o->compute), kernels_name(o->device), o->mesh ? o->mesh : "",
           o->mesh ? o->layout : "", f->devices, optimizers[o->optimizer.kind].name,
           remat_policy_names[o->remat], (long long)o->batch, (long long)o->seq, f->seconds,
           f->tokens_per_second, f->mfu, f->peak, f->flops, (long long)f->peak_memory);
    return EXIT_OK;
}

static int print_train(const char *preset, const TrainerOptions *o, const TrainFigure *f)
{
    printf("%s, products in %s, %s kernels, %s, recomputation %s\n", preset,
           cvn_dtype_name(o->compute), kernels_name(o->device), optimizers[o->optimizer.kind].name,
           remat_policy_names[o->remat]);
    if (o->mesh)
        printf("  mesh %s, layout %s, %d %s\n", o->mesh, o->layout, cluster_size(o->cluster),
               o->cluster ? "processes" : "process");
    printf("  train, batch %lld, seq %lld: %.3f s/step %9.1f tokens/s", (long long)o->batch,
           (long long)o->seq, f->seconds, f->tokens_per_second);
    if (f->devices > 1)
        printf(" %9.1f tokens/s per device", f->tokens_per_second / f->devices);
    printf("   MFU %.1f%% of %.0f GFLOP/s   memory %.0f MiB\n", 100 * f->mfu, f->peak / 1e9,
           (double)f->peak_memory / 0x1p20);
    print_communication(stdout, "communication of a step, per device", &f->communication);
    return EXIT_OK;
}

static void say_step(int i, int n, double seconds)
{
    live_line("step %d of %d, %s%.3g s each", i, n, i == 1 ? "at least " : "", seconds);
}

int bench_train(const char *preset, TrainBench bench, OptimizerKind kind, BenchFormat format,
                cvn_err *err)
{
    enum { SEQ = 1024 }; /* tokens of a row, where the model's context allows */
    SCOPED(arena_free) Arena arena = {0};
    Model *model;
    TrainFigure figure;
    TRY(arena_begin(&arena, err));
    TRY(preset_model(preset, &model, &arena, err));
    if (bench.trainer.seq == 0)
        bench.trainer.seq = model_context(model) < SEQ ? model_context(model) : SEQ;
    if (bench.trainer.seq > model_context(model))
        model_set_context(model, bench.trainer.seq); /* as caravan train makes a new model */
    bench.config = model;
    bench.trainer.optimizer = optimizer_defaults(kind, model_size(model).params);
    bench.step = say_step;
    live_line("compiling the step");
    int code = train_bench(&bench, &figure, err);
    live_line_end();
    TRY(code);
    return format == BENCH_JSON  ? print_train_json(preset, &bench.trainer, &figure, err)
           : format == BENCH_CSV ? print_train_csv(preset, &bench.trainer, &figure)
                                 : print_train(preset, &bench.trainer, &figure);
}
