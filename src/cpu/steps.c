#include "cpu/steps.h"

#include "base/map.h"
#include "comm/comm.h"
#include "cpu/group.h"
#include "cpu/registry.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { ALIGN = 64, HUGE_PAGE = 2 << 20, MOST_COPIES = 64, SAMPLES = 3, MOST_TURNS = 5000 };

/* Between two uses of the same bytes so many go through the caches, if the plan has as many. */
#define FOOTPRINT ((double)(128 << 20))
/* Of a sample: long against waking threads. */
#define SAMPLE_SECONDS 0.005

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

/* A step, or the two of a collective, with each parameter that it takes. */
typedef struct Part {
    const Step *step[2];
    int n_steps;
    int parameter[16]; /* of the plan */
    int n_parameters;
    size_t bytes; /* of these, each rounded up */
    int copies;
} Part;

static size_t rounded(size_t bytes)
{
    size_t unit = bytes >= HUGE_PAGE ? HUGE_PAGE : ALIGN;
    return (bytes + unit) / unit * unit;
}

static int slot_of(Part *part, int parameter)
{
    for (int i = 0; i < part->n_parameters; i++)
        if (part->parameter[i] == parameter)
            return i;
    return -1;
}

static void add_refs(Part *part, const Plan *plan, const BufferRef *ref, int n)
{
    for (int i = 0; i < n; i++)
        if (ref[i].space == SPACE_PARAMETER && slot_of(part, ref[i].parameter) < 0 &&
            part->n_parameters < (int)(sizeof part->parameter / sizeof *part->parameter)) {
            part->parameter[part->n_parameters++] = ref[i].parameter;
            part->bytes += rounded(plan->parameter[ref[i].parameter].bytes);
        }
}

static Part part_of(const Plan *plan, int i)
{
    Part part = {.step = {&plan->step[i]}, .n_steps = 1};
    for (int j = i + 1; plan->step[i].phase == STEP_START && j < plan->n_steps; j++)
        if (plan->step[j].op == plan->step[i].op)
            part.step[part.n_steps++ % 2] = &plan->step[j];
    for (int s = 0; s < part.n_steps; s++) {
        add_refs(&part, plan, part.step[s]->in, part.step[s]->op->n_operands);
        add_refs(&part, plan, part.step[s]->out, part.step[s]->op->n_results);
    }
    double all = (double)plan->parameter_bytes + (double)plan->arena_bytes;
    double footprint = all < FOOTPRINT ? all : FOOTPRINT;
    double copies = part.bytes ? footprint / (double)part.bytes : 1;
    part.copies = copies < 1 ? 1 : copies > MOST_COPIES ? MOST_COPIES : (int)copies;
    return part;
}

/* ---- operands ---- */

/* Near 1 / 16, or whole numbers: what they are matters little, but that they are normal. */
static void fill(const Measuring *m, char *to, const cvn_type *type, size_t bytes)
{
    static const uint32_t f32 = 0x3d800000, bf16 = 0x3d803d80, small = 0x11111111;
    uint32_t word = type->dtype == CVN_F32 ? f32 : type->dtype == CVN_BF16 ? bf16 : small;
    for (size_t i = 0; i + 4 <= bytes; i += 4) {
        if (type->dtype == CVN_I32)
            word = m->at > 0 ? (uint32_t)m->at : (uint32_t)(i / 4 % 251);
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
            fill(m, at, &p->type, p->bytes);
            at += rounded(p->bytes);
        }
    return CVN_OK;
}

static int fill_arenas(const Measuring *m, const Part *part, cvn_err *err)
{
    for (int d = 0; d < m->devices; d++) {
        Device *device = m->group->device[d];
        TRY(device_reserve(device, m->plan->arena_bytes, err));
        for (int s = 0; s < part->n_steps; s++)
            for (int k = 0; k < part->step[s]->op->n_operands; k++) {
                const BufferRef *ref = &part->step[s]->in[k];
                if (ref->space == SPACE_ARENA)
                    fill(m, device->arena + ref->offset, &part->step[s]->op->operand[k]->type,
                         ref->bytes);
            }
    }
    return CVN_OK;
}

/* ---- the plan of a step ---- */

static BufferRef *moved(Arena *arena, Part *part, const BufferRef *ref, int n, int copy)
{
    BufferRef *to = arena_copy(arena, ref, ((size_t)n + 1) * sizeof *to);
    for (int i = 0; i < n; i++)
        if (to[i].space == SPACE_PARAMETER)
            to[i].parameter = copy * part->n_parameters + slot_of(part, ref[i].parameter);
    return to;
}

/* So many turns of it, each with the next copy of its parameters. */
static Plan *plan_of_part(Measuring *m, Part *part, int turns)
{
    Plan *plan = arena_copy(&m->scratch, m->plan, sizeof *plan);
    plan->n_parameters = part->copies * part->n_parameters;
    plan->parameter =
        arena_array(&m->scratch, (size_t)plan->n_parameters + 1, sizeof *plan->parameter);
    for (int i = 0; i < plan->n_parameters; i++)
        plan->parameter[i] = m->plan->parameter[part->parameter[i % part->n_parameters]];
    plan->n_outputs = 0;
    plan->n_steps = turns * part->n_steps;
    plan->step = arena_array(&m->scratch, (size_t)plan->n_steps, sizeof *plan->step);
    plan->n_refs = 0;
    plan->made = clock_ns();
    for (int i = 0; i < plan->n_steps; i++) {
        Step *step = &plan->step[i];
        int back = part->copies * part->n_steps;
        *step = i < back ? *part->step[i % part->n_steps] : plan->step[i - back];
        plan->n_refs += step->op->n_operands + step->op->n_results + 1;
        step->sync = true;
        if (i >= back)
            continue;
        int copy = i / part->n_steps;
        step->in = moved(&m->scratch, part, step->in, step->op->n_operands, copy);
        step->out = moved(&m->scratch, part, step->out, step->op->n_results, copy);
    }
    return plan;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Seconds of a turn, of so many; the first run is to be woken by, and to touch what is there. */
static int run_part(Measuring *m, Part *part, void **parameter, int turns, int samples,
                    double *seconds, cvn_err *err)
{
    Plan *plan = plan_of_part(m, part, turns);
    double sample[SAMPLES] = {0};
    for (int i = -1; i < samples; i++) {
        int64_t begin = clock_ns();
        TRY(group_run(m->group, plan, parameter, NULL, err));
        if (i >= 0)
            sample[i] = (double)(clock_ns() - begin) * 1e-9 / turns;
    }
    qsort(sample, (size_t)samples, sizeof *sample, by_size);
    *seconds = sample[samples / 2];
    return CVN_OK;
}

static int time_part(Measuring *m, Part *part, double *seconds, cvn_err *err)
{
    size_t pointers = (size_t)(m->devices * part->copies * part->n_parameters);
    void **parameter = arena_array(&m->scratch, pointers + 1, sizeof *parameter);
    if (make_parameters(m, part, parameter, err) || fill_arenas(m, part, err) ||
        run_part(m, part, parameter, part->copies, 1, seconds, err))
        return err->code;
    double turns = SAMPLE_SECONDS / *seconds;
    turns = turns < part->copies ? part->copies : turns > MOST_TURNS ? MOST_TURNS : turns;
    return run_part(m, part, parameter, (int)turns, SAMPLES, seconds, err);
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
    SCOPED(held_release) Held held;
    hold(&held, strbuf_release, &key);
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
        Part part = part_of(m->plan, i);
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
