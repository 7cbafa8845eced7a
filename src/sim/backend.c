#include "sim/backend.h"

#include "base/map.h"
#include "base/strbuf.h"
#include "compile/plan.h"
#include "graph/attention.h"

#include <stdlib.h>
#include <string.h>

struct Devices {
    Arena arena;              /* of executables and counts */
    const Backend *described; /* NULL: nothing is compiled */
    Devices *compiler;        /* owned: its devices, of which there are none */
    DeviceInfo info;
    int64_t compilations;
    Map axes; /* groups of devices -> the mesh's axes that they lie along, as text */
    Counts counts;
    const TimedFor *chip; /* borrowed, or NULL */
    int64_t first, last;  /* positions of queries */
    void *zeros;          /* what results read as */
    size_t zero_bytes;
};

struct Executable {
    const Executable *compiled; /* the described back end's, or NULL */
    ExecutableInfo info;
    Counts run; /* what one run adds */
    int n_outputs;
    size_t output_bytes; /* of the largest output */
};

struct Memory {
    size_t bytes;
};

/* ---- devices ---- */

static void counting_close(Devices *c)
{
    if (!c)
        return;
    if (c->compiler)
        c->described->close(c->compiler);
    free(c->zeros);
    arena_free(&c->arena);
    free(c);
}

static int counting_open(const DeviceOptions *o, Devices **out, cvn_err *err)
{
    Devices *c = calloc(1, sizeof *c);
    DeviceOptions none = *o;
    none.n_devices = 0;
    none.cluster = NULL;
    *out = NULL;
    if (!c || arena_init(&c->arena, err)) {
        free(c);
        return err_set(err, CVN_EMEM, "no memory for devices");
    }
    map_init(&c->axes, &c->arena); /* which allocates nothing yet */
    c->info = (DeviceInfo){.kind = "any", .threads = o->threads ? o->threads : 1};
    c->described = o->described;
    if (c->described && c->described->open(&none, &c->compiler, err)) {
        counting_close(c);
        return err->code;
    }
    if (c->described)
        c->described->describe(c->compiler, &c->info);
    c->info.n_local = 1;
    *out = c;
    return CVN_OK;
}

static void counting_describe(const Devices *c, DeviceInfo *out)
{
    *out = c->info;
}

/* ---- executables ---- */

static CountedCollective *collective_row(Devices *c, Counts *counts, const CountedCollective *like)
{
    for (int i = 0; i < counts->n_collectives; i++) {
        CountedCollective *row = &counts->collective[i];
        if (row->kind == like->kind && strcmp(row->axes, like->axes) == 0)
            return row;
    }
    counts->collective = arena_more(&c->arena, counts->collective, (size_t)counts->n_collectives,
                                    sizeof *counts->collective);
    CountedCollective *row = &counts->collective[counts->n_collectives++];
    *row = (CountedCollective){
        .kind = like->kind, .axes = arena_string(&c->arena, like->axes), .devices = like->devices};
    return row;
}

static void add_collective(Devices *c, Counts *counts, const CountedCollective *more)
{
    CountedCollective *row = collective_row(c, counts, more);
    row->count += more->count;
    row->bytes += more->bytes;
}

/* The name of the axes that these groups run along: the first one that was given for them. */
static uint64_t *name_of_groups(Devices *c, const Op *op, bool *added)
{
    StrBuf key = {0};
    Cleanup cleanup;
    cleanup_push(&cleanup, strbuf_release, &key);
    strbuf_add(&key, &op->attr.group_size, sizeof op->attr.group_size);
    strbuf_add(&key, op->attr.groups.v, (size_t)op->attr.groups.n * sizeof *op->attr.groups.v);
    uint64_t *at = map_put(&c->axes, key.failed ? "" : key.text, key.length, added);
    cleanup_run(&cleanup);
    return at;
}

static void name_axes(Devices *c, const PartitionReport *report)
{
    for (int64_t i = 0; i < report->n_collectives; i++) {
        bool added;
        uint64_t *at = name_of_groups(c, report->collective[i].op, &added);
        if (added)
            *at = (uint64_t)(uintptr_t)arena_string(&c->arena, report->collective[i].along);
    }
}

/* The collectives of the graph as it is run. Compiling may change what is sent, for instance where panels of weights are gathered. */
static void count_collectives(Devices *c, Counts *run, const cvn_graph *g)
{
    for (const Op *op = g->first; op; op = op->next) {
        if (op_info[op->kind].class_ != CLASS_COLLECTIVE || op->kind == OP_PARTITION_ID)
            continue;
        const char *axes = (const char *)(uintptr_t)*name_of_groups(c, op, NULL);
        const CountedCollective one = {
            .kind = op->kind,
            .axes = axes ? axes : "_",
            .devices = op->kind == OP_COLLECTIVE_PERMUTE ? 2 : op->attr.group_size,
            .count = 1,
            .bytes = op_ring_bytes(op)};
        add_collective(c, run, &one);
    }
}

/* The work of attention that op_flops counts too much: it assumes that every query sees as many keys as any can. */
static double unseen_flops(const Devices *c, const Op *op)
{
    int64_t reach;
    if ((op->kind != OP_ATTENTION && op->kind != OP_ATTENTION_BACKWARD) ||
        !(reach = attention_reach(op)))
        return 0;
    return op_flops(op) * (1 - attention_mean_keys(c->first, c->last, reach) / (double)reach);
}

static void count_work(const Devices *c, Counts *run, const cvn_graph *local)
{
    for (const Op *op = local->first; op; op = op->next) {
        run->operations++;
        run->flops += op_flops(op);
        run->unseen_flops += unseen_flops(c, op);
    }
}

/* Describes an executable by its shapes alone: without a device nothing is compiled, and parameters lie row-major. */
static void info_of_shapes(Devices *c, const cvn_graph *local, ExecutableInfo *info)
{
    size_t n = (size_t)local->n_parameters;
    MemoryLayout *layout = arena_array(&c->arena, n, sizeof *layout);
    size_t *bytes = arena_array(&c->arena, n, sizeof *bytes);
    for (size_t i = 0; i < n; i++) {
        layout[i] = LAYOUT_PLAIN;
        bytes[i] = cvn_type_bytes(&local->parameter[i]->type);
    }
    *info = (ExecutableInfo){.layout = layout, .parameter_bytes = bytes};
}

static int counting_compile(Devices *c, const cvn_graph *local, const PartitionReport *report,
                            const Mesh *mesh, const MemoryLayout *layout, const Executable **out,
                            cvn_err *err)
{
    Executable *x = arena_alloc(&c->arena, sizeof *x);
    if (c->described) {
        if (c->described->compile(c->compiler, local, report, mesh, layout, &x->compiled, err))
            return err->code;
        c->described->executable(x->compiled, &x->info);
    } else {
        info_of_shapes(c, local, &x->info);
    }
    count_work(c, &x->run, local);
    name_axes(c, report);
    count_collectives(c, &x->run, x->info.plan ? x->info.plan->graph : local);
    if (c->chip && x->info.plan &&
        timing_of_plan(c->chip, x->info.plan, &c->arena, &x->run.timed, err))
        return err->code;
    x->info.flops = x->run.flops;
    x->info.n_operations = x->run.operations;
    x->run.steps = x->info.n_steps;
    x->n_outputs = local->n_outputs;
    for (int i = 0; i < local->n_outputs; i++) {
        size_t bytes = cvn_type_bytes(&local->output[i].value->type);
        x->output_bytes = bytes > x->output_bytes ? bytes : x->output_bytes;
    }
    c->compilations++;
    *out = x;
    return CVN_OK;
}

static void counting_executable(const Executable *x, ExecutableInfo *out)
{
    *out = x->info;
}

static int64_t counting_compilations(const Devices *c)
{
    return c->described ? c->described->compilations(c->compiler) : c->compilations;
}

/* ---- memory ---- */

static int counting_alloc(Devices *c, int d, const MemoryOptions *o, Memory **out, cvn_err *err)
{
    Memory *m = *out = calloc(1, sizeof *m);
    (void)d;
    if (!m)
        return err_set(err, CVN_EMEM, "no memory for a tensor");
    m->bytes = o->layout > LAYOUT_PLAIN ? o->executable->info.parameter_bytes[o->parameter]
                                        : cvn_type_bytes(&o->type);
    c->counts.bytes += m->bytes;
    return CVN_OK;
}

static void counting_free(Devices *c, Memory *m)
{
    c->counts.bytes -= m ? m->bytes : 0;
    free(m);
}

static int counting_download(Devices *c, const Memory *m, size_t offset, size_t bytes, void *out,
                             cvn_err *err)
{
    (void)c, (void)m, (void)offset, (void)err;
    memset(out, 0, bytes);
    return CVN_OK;
}

static int counting_reserve(Devices *c, size_t bytes, cvn_err *err)
{
    (void)err;
    if (bytes > c->counts.reserved) {
        c->counts.bytes += bytes - c->counts.reserved;
        c->counts.reserved = bytes;
    }
    return CVN_OK;
}

/* ---- running ---- */

static int counting_run(Devices *c, const Executable *x, const Argument *argument,
                        const void **output, cvn_err *err)
{
    Counts *sum = &c->counts;
    (void)argument;
    sum->operations += x->run.operations;
    sum->steps += x->run.steps;
    sum->flops += x->run.flops;
    sum->unseen_flops += x->run.unseen_flops;
    sum->timed = x->run.timed;
    for (int i = 0; i < x->run.n_collectives; i++)
        add_collective(c, sum, &x->run.collective[i]);
    if (output && x->output_bytes > c->zero_bytes) {
        free(c->zeros);
        c->zeros = calloc(1, x->output_bytes);
        c->zero_bytes = c->zeros ? x->output_bytes : 0;
        if (!c->zeros)
            return err_set(err, CVN_EMEM, "no memory for results of %zu bytes", x->output_bytes);
    }
    for (int i = 0; output && i < x->n_outputs; i++)
        output[i] = c->zeros;
    return CVN_OK;
}

static int counting_wait(Devices *c, cvn_err *err)
{
    (void)c, (void)err;
    return CVN_OK;
}

/* ---- looking on ---- */

static void counting_communication(const Devices *c, CommTable *out)
{
    *out = (CommTable){0};
    for (int i = 0; i < c->counts.n_collectives; i++) {
        const CountedCollective *from = &c->counts.collective[i];
        CommRow *row = comm_table_row(out, from->kind, from->axes);
        row->count += from->count;
        row->bytes += from->bytes;
    }
}

void counting_time_for(Devices *c, const TimedFor *chip)
{
    c->chip = chip;
}

void counting_positions(Devices *c, int64_t first, int64_t last)
{
    c->first = first;
    c->last = last;
}

const Counts *counting_counts(const Devices *c)
{
    return &c->counts;
}

const Backend counting_backend = {
    .name = "counting",
    .open = counting_open,
    .close = counting_close,
    .describe = counting_describe,
    .compile = counting_compile,
    .executable = counting_executable,
    .compilations = counting_compilations,
    .alloc = counting_alloc,
    .free = counting_free,
    .download = counting_download,
    .reserve = counting_reserve,
    .run = counting_run,
    .wait = counting_wait,
    .communication = counting_communication,
};
