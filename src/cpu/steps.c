#include "cpu/steps.h"

#include "base/map.h"
#include "comm/comm.h"
#include "cpu/device.h"
#include "cpu/registry.h"
#include "graph/attention.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    ALIGN = 64,
    HUGE_PAGE = 2 << 20,
    MOST_COPIES = 512,
    MOST_RANGES = 64,
    SAMPLES = 3,
    MOST_TURNS = 4096
};

/* Between two uses of the same bytes at least so many go through the caches, if the plan has as many; and where the system
   says how large the last of them is, twice that (480 MiB have been seen). */
#define FOOTPRINT ((double)(128 << 20))
/* Of a sample: long against waking threads. */
#define SAMPLE_SECONDS 0.02

typedef struct Measuring {
    const Plan *plan;
    DeviceGroup *group;
    int devices;
    int32_t at;
    Arena arena;   /* of what is known */
    Arena scratch; /* of the step that is measured */
    Map known;     /* what steps are alike in -> index in `seconds` */
    double *seconds;
    char *data; /* a mapping of `bytes`: parameters of the step that is measured */
    size_t bytes;
} Measuring;

/* Bytes of the arena that a step touches, where its copies lie, and how many there are. */
typedef struct Range {
    size_t begin, end, to;
    int copies;
} Range;

/* A step, or the two of a collective, with each parameter and each part of the arena that it takes. */
typedef struct Part {
    const Step *step[2];
    int n_steps;
    int parameter[16]; /* of the plan */
    int32_t whole[16]; /* what the whole numbers of each are */
    int n_parameters;
    size_t bytes; /* of these, each rounded up */
    int copies;
    Range range[MOST_RANGES];
    int n_ranges;
    size_t arena_bytes; /* of all their copies */
} Part;

static size_t rounded(size_t bytes)
{
    size_t unit = bytes >= HUGE_PAGE ? HUGE_PAGE : ALIGN;
    return (bytes + unit) / unit * unit;
}

static int copies_of(double footprint, size_t bytes)
{
    return (int)fmax(1, fmin(footprint / (double)bytes, MOST_COPIES));
}

static int slot_of(const Part *part, int parameter)
{
    for (int i = 0; i < part->n_parameters; i++)
        if (part->parameter[i] == parameter)
            return i;
    return -1;
}

/* Operand, result or scratch number i of a step; NULL behind the last. */
static const BufferRef *ref_of(const Step *step, int i)
{
    int in = step->op->n_operands, out = step->op->n_results;
    return i < in          ? &step->in[i]
           : i < in + out  ? &step->out[i - in]
           : i == in + out ? &step->scratch
                           : NULL;
}

static void add_parameter(Part *part, const Plan *plan, const BufferRef *ref, int32_t whole)
{
    if (ref->space == SPACE_PARAMETER && slot_of(part, ref->parameter) < 0 &&
        part->n_parameters < (int)(sizeof part->parameter / sizeof *part->parameter)) {
        part->whole[part->n_parameters] = whole;
        part->parameter[part->n_parameters++] = ref->parameter;
        part->bytes += rounded(plan->parameter[ref->parameter].bytes);
    }
}

/* Those that share bytes become one. */
static void add_range(Part *part, const BufferRef *ref)
{
    Range r = {.begin = ref->offset, .end = ref->offset + ref->bytes};
    if (ref->space != SPACE_ARENA || ref->bytes == 0)
        return;
    for (int i = 0; i < part->n_ranges; i++) {
        const Range *old = &part->range[i];
        if ((old->begin < r.end && r.begin < old->end) || part->n_ranges == MOST_RANGES) {
            r.begin = old->begin < r.begin ? old->begin : r.begin;
            r.end = old->end > r.end ? old->end : r.end;
            part->range[i] = part->range[--part->n_ranges];
            i = -1;
        }
    }
    part->range[part->n_ranges++] = r;
}

static bool touches(const Range *r, const Step *step)
{
    const BufferRef *ref;
    for (int i = 0; (ref = ref_of(step, i)); i++)
        if (ref->space == SPACE_ARENA && ref->offset < r->end &&
            r->begin < ref->offset + ref->bytes)
            return true;
    return false;
}

/* Bytes that the plan, which runs again and again, reads and writes between the last use of a range and step i. */
static double since_used(const Plan *plan, int i, const Range *r)
{
    double bytes = 0;
    for (int back = 1; back <= plan->n_steps && bytes < FOOTPRINT; back++) {
        const Step *step = &plan->step[(i - back + plan->n_steps) % plan->n_steps];
        if (touches(r, step))
            break;
        bytes += (double)step->bytes;
    }
    return bytes;
}

static void find_ranges(Part *part, const Plan *plan, int i)
{
    size_t turn = part->bytes;
    for (int k = 0; k < part->n_ranges; k++)
        turn += part->range[k].end - part->range[k].begin;
    /* What was just made is in part in other threads' caches: all of them are gone through at least. */
    double least = 2.0 * plan->n_threads * (double)sysconf(_SC_LEVEL2_CACHE_SIZE);
    for (int k = 0; k < part->n_ranges; k++) {
        Range *r = &part->range[k];
        double far = fmin((double)plan->arena_bytes, fmax(least, since_used(plan, i, r)));
        r->copies = copies_of(fmin(far, FOOTPRINT), turn);
        r->to = part->arena_bytes + r->begin % ALIGN;
        part->arena_bytes += (size_t)r->copies * rounded(r->end - r->begin);
    }
}

/* What whole numbers of an operand are: of attention the rows' first positions, how many queries they have, and the first keys
   that these see; of others positions or tokens; < 0: 0, 1, 2, ..., as are slots. */
static int32_t whole_numbers(const Measuring *m, const Op *op, int operand)
{
    if (op->kind != OP_ATTENTION && op->kind != OP_ATTENTION_BACKWARD)
        return m->at > 0 ? m->at : -1;
    int before = 0;
    if (attention_slot_at(op) >= 0 &&
        (operand == attention_slot_at(op) || operand == attention_slot_at(op) + 1))
        return -1;
    for (int k = 0; k < operand; k++)
        before += op->operand[k]->type.dtype == CVN_I32;
    return before == 0 ? m->at : before == 1 ? (int32_t)op->operand[0]->type.dim[1] : 0;
}

static Part part_of(const Measuring *m, int i)
{
    const Plan *plan = m->plan;
    Part part = {.step = {&plan->step[i]}, .n_steps = 1};
    for (int j = i + 1; plan->step[i].phase == STEP_START && j < plan->n_steps; j++)
        if (plan->step[j].op == plan->step[i].op)
            part.step[part.n_steps++ % 2] = &plan->step[j];
    const BufferRef *ref;
    for (int s = 0; s < part.n_steps; s++)
        for (int k = 0; (ref = ref_of(part.step[s], k)); k++) {
            const Op *op = part.step[s]->op;
            add_parameter(&part, plan, ref, k < op->n_operands ? whole_numbers(m, op, k) : 0);
            add_range(&part, ref);
        }
    double all = (double)plan->report.parameter_bytes + (double)plan->arena_bytes;
    double caches = 2 * (double)sysconf(_SC_LEVEL3_CACHE_SIZE);
    double footprint = fmin(all, fmax(FOOTPRINT, caches) / m->devices); /* which share them */
    part.copies = part.bytes ? copies_of(footprint, part.bytes) : 1;
    find_ranges(&part, plan, i);
    return part;
}

/* ---- operands ---- */

/* Near 1 / 16, or whole numbers: what they are matters little, but that they and their sums are normal. */
static void fill(char *to, const cvn_type *type, size_t bytes, int32_t whole)
{
    static const uint32_t f32 = 0x3d800000, bf16 = 0x3d803d80, ones = 0x01010101;
    uint32_t word = type->dtype == CVN_F32    ? f32
                    : type->dtype == CVN_BF16 ? bf16
                    : type->dtype == CVN_I32  ? (uint32_t)whole
                                              : ones;
    bool counts = type->dtype == CVN_I32 && whole < 0;
    for (size_t i = 0; i + 4 <= bytes; i += 4) {
        if (counts)
            word = (uint32_t)(i / 4 % 251);
        memcpy(to + i, &word, 4);
    }
}

/* Each device's parameters, one copy after the other: [devices][copies][n_parameters]. */
static int make_parameters(Measuring *m, const Part *part, void **parameter, cvn_err *err)
{
    size_t bytes = part->bytes * (size_t)part->copies * (size_t)m->devices + HUGE_PAGE;
    if (bytes > m->bytes) {
        if (m->data)
            munmap(m->data, m->bytes);
        m->data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        m->bytes = m->data == MAP_FAILED ? 0 : bytes;
        m->data = m->bytes ? m->data : NULL;
        if (!m->data)
            return err_set(err, CVN_EMEM, "no memory for %zu bytes of parameters", bytes);
        madvise(m->data, bytes, MADV_HUGEPAGE);
    }
    char *at = m->data + (HUGE_PAGE - (uintptr_t)m->data % HUGE_PAGE) % HUGE_PAGE;
    for (int i = 0; i < m->devices * part->copies; i++)
        for (int k = 0; k < part->n_parameters; k++) {
            const PlanParameter *p = &m->plan->parameter[part->parameter[k]];
            *parameter++ = at;
            fill(at, &p->type, p->bytes, part->whole[k]);
            at += rounded(p->bytes);
        }
    return CVN_OK;
}

/* The range that bytes of the arena are in; NULL: they are none. */
static const Range *range_of(const Part *part, const BufferRef *ref)
{
    for (int i = 0; i < part->n_ranges; i++)
        if (ref->space == SPACE_ARENA && ref->bytes > 0 && ref->offset >= part->range[i].begin &&
            ref->offset < part->range[i].end)
            return &part->range[i];
    return NULL;
}

/* Where they are in a turn's copy. */
static size_t placed(const Range *r, size_t offset, int turn)
{
    return r->to + (size_t)(turn % r->copies) * rounded(r->end - r->begin) + offset - r->begin;
}

static int fill_arenas(const Measuring *m, const Part *part, cvn_err *err)
{
    for (int d = 0; d < m->devices; d++) {
        Device *device = m->group->device[d];
        TRY(device_reserve(device, part->arena_bytes, err));
        memset(device->arena, 0, part->arena_bytes); /* pages of results, too, are there */
        for (int s = 0; s < part->n_steps; s++)
            for (int k = 0; k < part->step[s]->op->n_operands; k++) {
                const Op *op = part->step[s]->op;
                const BufferRef *ref = &part->step[s]->in[k];
                const Range *r = range_of(part, ref);
                for (int c = 0; r && c < r->copies; c++)
                    fill(device->arena + placed(r, ref->offset, c), &op->operand[k]->type,
                         ref->bytes, whole_numbers(m, op, k));
            }
    }
    return CVN_OK;
}

/* ---- the plan of a step ---- */

static void move(const Part *part, BufferRef *ref, int turn)
{
    const Range *r = range_of(part, ref);
    if (ref->space == SPACE_PARAMETER)
        ref->parameter = turn % part->copies * part->n_parameters + slot_of(part, ref->parameter);
    else if (ref->space == SPACE_ARENA)
        ref->offset = r ? placed(r, ref->offset, turn) : 0;
}

static BufferRef *moved(Arena *arena, const Part *part, const BufferRef *ref, int n, int turn)
{
    BufferRef *to = arena_copy(arena, ref, ((size_t)n + 1) * sizeof *to);
    for (int i = 0; i < n; i++)
        move(part, &to[i], turn);
    return to;
}

/* So many turns of it, each with the next copies of its parameters and of what it touches of the arena. */
static Plan *plan_of_part(Measuring *m, const Part *part, int from, int turns)
{
    Plan *plan = arena_copy(&m->scratch, m->plan, sizeof *plan);
    plan->n_parameters = part->copies * part->n_parameters;
    plan->parameter =
        arena_array(&m->scratch, (size_t)plan->n_parameters + 1, sizeof *plan->parameter);
    for (int i = 0; i < plan->n_parameters; i++)
        plan->parameter[i] = m->plan->parameter[part->parameter[i % part->n_parameters]];
    plan->arena_bytes = part->arena_bytes;
    plan->n_outputs = 0;
    plan->n_steps = turns * part->n_steps;
    plan->step = arena_array(&m->scratch, (size_t)plan->n_steps, sizeof *plan->step);
    plan->n_refs = 0;
    plan->made = clock_ns();
    for (int i = 0; i < plan->n_steps; i++) {
        Step *step = &plan->step[i];
        int turn = from + i / part->n_steps;
        *step = *part->step[i % part->n_steps];
        plan->n_refs += step->op->n_operands + step->op->n_results + 1;
        step->sync = true;
        step->in = moved(&m->scratch, part, step->in, step->op->n_operands, turn);
        step->out = moved(&m->scratch, part, step->out, step->op->n_results, turn);
        move(part, &step->scratch, turn);
    }
    return plan;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int run_plan(Measuring *m, const Plan *plan, void **parameter, double *seconds, cvn_err *err)
{
    int64_t begin = clock_ns();
    int code = group_run(m->group, plan, parameter, NULL, err);
    *seconds = (double)(clock_ns() - begin) * 1e-9;
    return code;
}

/* Seconds of a turn. Turns double until they are long enough for a sample, which wakes what is to run; where they are fewer than
   the copies, each sample goes on with the next ones. */
static int time_part(Measuring *m, const Part *part, double *seconds, cvn_err *err)
{
    size_t pointers = (size_t)(m->devices * part->copies * part->n_parameters);
    void **parameter = arena_array(&m->scratch, pointers + 1, sizeof *parameter);
    double sample[SAMPLES];
    const Plan *plan = NULL;
    int turns = 0, from = 0;
    TRY(make_parameters(m, part, parameter, err));
    TRY(fill_arenas(m, part, err));
    do {
        from += turns;
        turns = turns ? 2 * turns : 1;
        plan = plan_of_part(m, part, from, turns);
        TRY(run_plan(m, plan, parameter, seconds, err));
    } while (*seconds < SAMPLE_SECONDS && turns < MOST_TURNS);
    for (int i = 0; i < SAMPLES; i++) {
        if (turns < part->copies)
            plan = plan_of_part(m, part, from += turns, turns);
        TRY(run_plan(m, plan, parameter, &sample[i], err));
    }
    qsort(sample, SAMPLES, sizeof *sample, by_size);
    *seconds = sample[SAMPLES / 2] / turns;
    return CVN_OK;
}

/* ---- all steps ---- */

/* What two steps are alike in. */
static void add_type(StrBuf *key, const cvn_value *v, const BufferRef *ref)
{
    type_print(key, &v->type);
    strbuf_printf(key, "%d,", ref->space);
}

static uint64_t *known_of(Measuring *m, const Step *step, bool *added)
{
    StrBuf key = {0};
    SCOPED(cleanup_run) Cleanup cleanup;
    cleanup_push(&cleanup, strbuf_release, &key);
    strbuf_printf(&key, "%s|%d|%d|%g|%zu|%zu|", step->kernel ? step->kernel : "", step->op->kind,
                  step->phase, step->flops, step->bytes, step->scratch.bytes);
    for (int i = 0; i < step->op->n_operands; i++)
        add_type(&key, step->op->operand[i], &step->in[i]);
    for (int i = 0; i < step->op->n_results; i++)
        add_type(&key, step->op->result[i], &step->out[i]);
    return map_put(&m->known, key.failed ? "" : key.text, key.length, added);
}

static int measure(void *of, cvn_err *err)
{
    Measuring *m = of;
    map_init(&m->known, &m->arena);
    for (int i = 0; i < m->plan->n_steps; i++) {
        const Step *step = &m->plan->step[i];
        size_t offset;
        bool added;
        m->seconds[i] = 0;
        if (step->phase == STEP_DONE || (step->op->n_results && op_is_view(step->op, &offset)))
            continue;
        uint64_t *at = known_of(m, step, &added);
        if (!added) {
            m->seconds[i] = m->seconds[*at];
            continue;
        }
        *at = (uint64_t)i;
        Part part = part_of(m, i);
        TRY(arena_begin(&m->scratch, err));
        int code = time_part(m, &part, &m->seconds[i], err);
        arena_free(&m->scratch);
        TRY(code);
    }
    return CVN_OK;
}

int steps_measure(const Plan *plan, int n_devices, int32_t at, double *seconds, cvn_err *err)
{
    Measuring m = {.plan = plan, .devices = n_devices, .at = at, .seconds = seconds};
    Comm *comm = comm_new(n_devices, NULL, err);
    m.group = comm ? group_new(comm, plan->n_threads, cpu_kernels(), err) : NULL;
    int code = m.group && arena_init(&m.arena, err) == CVN_OK
                   ? protect(measure, &m, "measuring steps", err)
                   : err->code;
    group_free(m.group);
    comm_free(comm);
    arena_free(&m.arena);
    if (m.data)
        munmap(m.data, m.bytes);
    return code;
}
