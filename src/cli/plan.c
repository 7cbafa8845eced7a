/* caravan plan: what running a model on a mesh takes, without devices or weights. */
#include "base/bytes.h"
#include "base/file.h"
#include "base/json_file.h"
#include "cli/ask.h"
#include "cli/terminal.h"
#include "io/stats.h"

#include <inttypes.h>

enum { MICRO = ASKED, CACHE, MEMORY, SPECS, PEAK, SVG, JSON };

static const Option *const options[] = {
    ASKED_OPTIONS,
    [MICRO] = ASK(MICRO_BATCH),
    [CACHE] = SHARED(KV_MEMORY),
    OPTION(MEMORY, "memory", .kind = ARG_SIZE, .high = 0x1p60, .value = "SIZE", .fallback = "0",
           .help = "memory of a device, to check that the model fits, 0: no check"),
    OPTION(SPECS, "specs", .kind = ARG_FLAG,
           .help = "also list activations and the origin of each sharding"),
    OPTION(PEAK, "peak", .kind = ARG_FLAG, .help = "list the live tensors at peak memory"),
    OPTION(SVG, "svg", .kind = ARG_OUTPUT, .tried = true, .value = "FILE",
           .help = "draw the mesh and the sharding of the weights"),
    [JSON] = SHARED(JSON),
    NULL,
};

/* ---- printing ---- */

static void size_line(const char *name, double bytes)
{
    printf("  %-36s %12s\n", name, bytes_text(bytes).text);
}

/* Bytes of the embedding that is only looked up, and lies in its file as it is wanted: the system reads a page of it when a
   token needs it, and takes it back when memory is short. */
static double looked_up_bytes(const SimAsk *ask, const SimAnswer *a, const IoModel *model)
{
    const ParamList *params = &model->params;
    if (!model->source || ask->task == SIM_TRAIN || a->devices > 1 || ask->on_chip > 0 ||
        !params_find(params, PARAM_LM_HEAD, -1))
        return 0;
    const Param *embed = params_find(params, PARAM_EMBED, -1);
    const IoTensor *t = model->source[embed - params->param];
    bool stays = embed->form == PARAM_BLOCKS ? t->coding == IO_BLOCKS
                                             : t->coding == IO_PLAIN && t->dtype == ask->compute;
    return stays && t->n_parts == 0 && !t->adapter ? (double)param_bytes(embed, ask->compute) : 0;
}

static void print_memory(const SimAsk *ask, const SimAnswer *a, const IoModel *model)
{
    const DeviceMemory *m = &a->memory;
    const double bytes[SIM_ACTIVATION] = {m->weights, m->rounded_weights, m->optimizer, m->kv_cache,
                                          m->inputs};
    const double looked_up = looked_up_bytes(ask, a, model);
    printf("memory of each device\n");
    for (int role = 0; role < SIM_ACTIVATION; role++)
        if (bytes[role] > 0) {
            size_line(sim_role_names[role], bytes[role]);
            if (role == SIM_WEIGHT && looked_up > 0)
                size_line("  of these looked up in the file", looked_up);
        }
    if (m->sums > 0)
        size_line("gradients, summed", m->sums);
    size_line("activations and buffers", m->temporaries);
    if (a->kept > 0)
        size_line("  of these of micro-batches that wait", a->kept);
    if (m->constants > 0)
        size_line("  of these constants", m->constants);
    if (ask->task == SIM_TRAIN && m->sums == 0)
        size_line("  of these gradients, at most", a->gradients);
    if (a->peak.gathered > 0)
        size_line("  of these gathered weights, at most", a->peak.gathered);
    size_line("together", m->total);
}

static void print_tensors(const SimAnswer *a, bool all, StrBuf *text)
{
    printf("\n%-20s %6s  %-52s %12s\n", "tensors", "count", "shape and spec", "per device");
    for (int i = 0; i < a->n_tensors; i++) {
        const SimTensor *t = &a->tensor[i];
        if (!all && t->role != SIM_WEIGHT && t->role != SIM_CACHE)
            continue;
        strbuf_clear(text);
        type_print(text, &t->type);
        strbuf_puts(text, t->spec);
        printf("  %-18s %6" PRId64 "  %-52s %12s\n", t->kind, t->count, text->text,
               bytes_text(t->device_bytes).text);
        if (all && t->origin[0])
            printf("  %18s %6s  by %s\n", "", "", t->origin);
    }
}

static void print_collectives(const SimAnswer *a)
{
    if (a->rt.mesh.n_devices == 1)
        return;
    printf("\n%-20s %6s  %-20s %8s  %12s\n", "collectives", "count", "axes", "devices",
           "bytes sent");
    double sum = 0;
    for (int i = 0; i < a->n_collectives; i++) {
        const CountedCollective *c = &a->collective[i];
        printf("  %-18s %6" PRId64 "  %-20s %8" PRId64 "  %12s\n", op_info[c->kind].name, c->count,
               c->axes, c->devices, bytes_text(c->bytes).text);
        sum += c->bytes;
    }
    printf("  %-18s %6s  %-20s %8s  %12s\n", "together", "", "", "", bytes_text(sum).text);
}

enum { PEAK_ROWS = 20 };

static void print_stages(const SimAnswer *a)
{
    if (a->n_stages == 1)
        return;
    printf("\n%-20s %13s  %13s  %15s\n", "stages", "FLOPs forward", "and backward", "memory");
    for (int s = 0; s < a->n_stages; s++)
        printf("  %-18d %13.4g  %13.4g  %15s\n", s, a->stage[s].forward, a->stage[s].gradient,
               bytes_text(a->stage[s].memory).text);
    printf("  %-36s %12d\n  %-36s %12s\n  %-36s %10.1f %%\n", "micro-batches", a->micro,
           "bytes between stages, for each", bytes_text(a->boundary).text, "bubble, by FLOPs",
           100 * a->bubble);
}

/* The largest of what is alive where most is. */
static void print_peak(const SimAnswer *a, StrBuf *text)
{
    const Peak *peak = &a->peak;
    printf("\nat the peak: %s alive at step %d of %" PRId64 ", %s\n", bytes_text(peak->bytes).text,
           peak->step, a->steps, peak->at);
    printf("  %-12s %6s  %-14s %-28s %s\n", "bytes", "count", "name", "type, on each device",
           "made by, live until (steps)");
    for (int i = 0; i < peak->n && i < PEAK_ROWS; i++) {
        const PeakRow *row = &peak->row[i];
        strbuf_clear(text);
        type_print(text, &row->type);
        printf("  %-12s %6" PRId64 "  %-14s %-28s %s, %s (%d-%d)\n", bytes_text(row->bytes).text,
               row->count, row->of, text->text, row->made, row->end, row->first, row->last);
    }
    if (peak->n > PEAK_ROWS)
        printf("  and %d smaller kinds\n", peak->n - PEAK_ROWS);
}

static int print_plan(const SimAsk *ask, const SimAnswer *a, const char *name, const IoModel *model,
                      const Value *v)
{
    double memory = (double)v[MEMORY].integer;
    SCOPED(strbuf_free) StrBuf text = {0};
    printf("%s, %s of %" PRId64 " row%s", name, ask_tasks[ask->task], ask->batch,
           ask->batch == 1 ? "" : "s");
    if (ask->task != SIM_DECODE)
        printf(" of %" PRId64 " tokens", ask->seq);
    if (model_in_blocks(ask->model))
        io_types_text(&model->tensors, &text);
    printf(", %s%s%s, mesh %s, layout %s\n\n", cvn_dtype_name(ask->compute),
           text.length ? ", weights " : "", text.length ? text.text : "",
           ask->mesh[0] ? ask->mesh : "of one device", ask->layout);
    print_memory(ask, a, model);
    if (memory > 0)
        printf("  %s %s\n", a->memory.total <= memory ? "fits in" : "does not fit in",
               bytes_text(memory).text);
    printf("\nwork of a step\n  %-36s %12.4g\n  %-36s %12.4g\n  %-36s %12" PRId64 "\n",
           "FLOPs, each device", a->flops, "FLOPs of the model", a->model_flops,
           "nodes in a device's graph", a->operations);
    if (a->n_interpreted)
        printf("  %-36s %12d: %s\n", "steps without a kernel, on one thread", a->n_interpreted,
               a->interpreted);
    print_tensors(a, v[SPECS].flag, &text);
    if (v[PEAK].flag)
        print_peak(a, &text);
    print_collectives(a);
    print_stages(a);
    printf("\nplanned in %.2f s; %" PRId64 " involuntary gathers\n", a->seconds, a->n_involuntary);
    return EXIT_OK;
}

static json_t *tensors_json(const SimAnswer *a)
{
    json_t *list = json_array();
    for (int i = 0; i < a->n_tensors; i++) {
        const SimTensor *t = &a->tensor[i];
        json_t *dims = json_integers(t->type.dim, t->type.rank);
        list = json_append(list, json_pack("{s:s,s:s,s:s,s:o,s:s,s:s,s:I,s:f}", "role",
                                           sim_role_names[t->role], "kind", t->kind, "dtype",
                                           cvn_dtype_name(t->type.dtype), "shape", dims, "spec",
                                           t->spec, "origin", t->origin, "count",
                                           (json_int_t)t->count, "device_bytes", t->device_bytes));
    }
    return list;
}

static json_t *peak_json(const SimAnswer *a)
{
    json_t *list = json_array();
    for (int i = 0; i < a->peak.n; i++) {
        const PeakRow *row = &a->peak.row[i];
        json_t *dims = json_integers(row->type.dim, row->type.rank);
        list = json_append(list, json_pack("{s:s,s:s,s:o,s:s,s:s,s:i,s:i,s:I,s:f}", "name", row->of,
                                           "dtype", cvn_dtype_name(row->type.dtype), "shape", dims,
                                           "made_by", row->made, "needed_by", row->end,
                                           "first_step", row->first, "last_step", row->last,
                                           "count", (json_int_t)row->count, "bytes", row->bytes));
    }
    return json_pack("{s:i,s:I,s:s,s:f,s:o}", "step", a->peak.step, "steps", (json_int_t)a->steps,
                     "operation", a->peak.at, "bytes", a->peak.bytes, "values", list);
}

static json_t *stages_json(const SimAnswer *a)
{
    json_t *list = json_array();
    for (int s = 0; s < a->n_stages; s++)
        list = json_append(list, json_pack("{s:f,s:f,s:f}", "forward_flops", a->stage[s].forward,
                                           "gradient_flops", a->stage[s].gradient, "memory",
                                           a->stage[s].memory));
    return json_pack("{s:i,s:f,s:f,s:o}", "micro_batches", a->micro, "boundary_bytes", a->boundary,
                     "bubble", a->bubble, "each", list);
}

static int print_plan_json(const SimAsk *ask, const SimAnswer *a, const char *name, double memory,
                           cvn_err *err)
{
    json_t *collectives = json_array();
    for (int i = 0; i < a->n_collectives; i++) {
        const CountedCollective *c = &a->collective[i];
        collectives = json_append(collectives,
                                  json_pack("{s:s,s:s,s:I,s:I,s:f}", "kind", op_info[c->kind].name,
                                            "axes", c->axes, "devices", (json_int_t)c->devices,
                                            "count", (json_int_t)c->count, "bytes_sent", c->bytes));
    }
    json_t *all =
        json_pack("{s:s,s:s,s:s,s:s,s:i,s:I,s:I,s:o,s:f,s:f,s:i,s:I,s:f,s:o,s:o,s:o}", "model",
                  name, "device", a->rt.info.kind, "mesh", ask->mesh, "layout", ask->layout,
                  "devices", a->devices, "batch", (json_int_t)ask->batch, "seq",
                  (json_int_t)ask->seq, "device_memory", ask_memory_json(a), "device_flops",
                  a->flops, "model_flops", a->model_flops, "interpreted_steps", a->n_interpreted,
                  "involuntary_gathers", (json_int_t)a->n_involuntary, "seconds", a->seconds,
                  "tensors", tensors_json(a), "collectives", collectives, "peak", peak_json(a));
    if (a->n_stages > 1)
        all = json_with(all, "stages", stages_json(a));
    if (memory > 0)
        all = json_with(all, "fits", json_boolean(a->memory.total <= memory));
    return print_json(all, err);
}

static int draw(const char *path, const char *name, const SimAsk *ask, const SimAnswer *a,
                cvn_err *err)
{
    SCOPED(strbuf_free) StrBuf svg = {0};
    char title[256];
    snprintf(title, sizeof title, "%s, %s of %" PRId64 " row%s", name, ask_tasks[ask->task],
             ask->batch, ask->batch == 1 ? "" : "s");
    sim_svg(&svg, ask, a, title);
    return svg.failed ? err_set(err, CVN_EMEM, "no memory for the picture")
                      : file_write(path, svg.text, svg.length, err);
}

static int run(const Args *args, cvn_err *err)
{
    const Value *v = args->value;
    const char *name = ask_name(args);
    SimAsk ask;
    SCOPED(io_close_model) IoModel model = {0};
    SCOPED(sim_answer_free) SimAnswer answer = {0};
    TRY(ask_of(args, args_value(args, ASK(CONTEXT))->integer, &model, &ask, err));
    ask.kv_memory = (uint64_t)v[CACHE].integer;
    if (ask.task == SIM_TRAIN && ask.kv_memory)
        return err_set(err, CVN_EINVAL, "training has no KV cache; leave out --kv-memory");
    TRY(sim_plan(&ask, &answer, err));
    if (v[SVG].given)
        TRY(draw(v[SVG].text, name, &ask, &answer, err));
    return v[JSON].flag ? print_plan_json(&ask, &answer, name, (double)v[MEMORY].integer, err)
                        : print_plan(&ask, &answer, name, &model, v);
}

const Command command_plan = {
    "plan",
    .about = "memory, FLOPs and communication of a model on a mesh",
    .usage = "(MODEL | --preset NAME) [options]",
    .examples =
        "plan --preset llama2-70b --mesh data=32,model=4 --train --batch 512\ta "
        "training step on 128 devices\n"
        "plan --preset llama3.1-405b --mesh data=8,model=8 --memory 80G\tdoes decoding fit?\n"
        "plan --preset llama2-7b --mesh data=16 --train --specs --svg mesh.svg\tshardings with "
        "their origin, and a picture\n",
    .notes =
        "No device and no weights are needed: the plan is of the programs that `generate` or "
        "`train` would run on devices of the kind --device, and memory is that of one device. A KV "
        "cache has pages for --context positions of each sequence, or those that --kv-memory has. "
        "A prefill is in an engine's runs of at most 512 tokens, on a mesh of each shard of the "
        "batch, and counts them all. Bytes sent are those of one "
        "device in a step, with ring collectives: (n - 1) / n of a tensor for all-gather and "
        "reduce-scatter, twice that for all-reduce. FLOPs of attention count the positions "
        "attended to: all previous ones in a prefill, --context in decoding.",
    .options = options,
    .run = run,
};
