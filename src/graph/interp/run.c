/*
 * Whole graphs in the interpreter: operation by operation, each on all devices before the next, so
 * that a collective finds the operands of every device ready.
 */
#include "graph/interp/interp_impl.h"

#include <stdlib.h>

/* Values are numbered by id; buffer [id * n_devices + d] belongs to device d, which is how a
   collective wants the devices side by side. Parameters borrow the caller's memory. */
typedef struct Run {
    const cvn_graph *g;
    int n_devices;
    Arena arena;     /* of the lists below; tensors are on the heap */
    void **buffer;   /* [n_values * n_devices], owned except of parameters */
    const void **in; /* room for the operands of any operation */
    uint32_t *uses;  /* [n_values] uses by operations still to come, and by outputs */
} Run;

static void **buffers_of(const Run *run, const cvn_value *v)
{
    return run->buffer + (size_t)v->id * (size_t)run->n_devices;
}

static void *allocate(const cvn_type *type)
{
    size_t bytes = cvn_type_bytes(type);
    return malloc(bytes ? bytes : 1);
}

static int no_memory(const cvn_value *v, cvn_err *err)
{
    char text[TYPE_TEXT];
    return err_set(err, CVN_EMEM, "no memory for the %s of %s",
                   type_text(&v->type, text, sizeof text), op_info[v->def->kind].name);
}

static void free_value(const Run *run, const cvn_value *v)
{
    if (v->def->kind == OP_PARAMETER)
        return;
    void **buffer = buffers_of(run, v);
    for (int d = 0; d < run->n_devices; d++) {
        free(buffer[d]);
        buffer[d] = NULL;
    }
}

static void run_op(const Run *run, const Op *op)
{
    if (op_info[op->kind].class_ == CLASS_COLLECTIVE) {
        void **from = op->n_operands ? buffers_of(run, op->operand[0]) : NULL;
        interp_collective(op, run->n_devices, (const void *const *)from,
                          buffers_of(run, op->result[0]));
        return;
    }
    for (int d = 0; d < run->n_devices;
         d++) { /* its pointers to operands and results, side by side */
        void *out[OP_MOST_RESULTS] = {NULL};
        for (int i = 0; i < op->n_operands; i++)
            run->in[i] = buffers_of(run, op->operand[i])[d];
        for (int i = 0; i < op->n_results; i++)
            out[i] = buffers_of(run, op->result[i])[d];
        interp_op(op, run->in, out);
    }
}

static int run_ops(const Run *run, cvn_err *err)
{
    for (const Op *op = run->g->first; op; op = op->next) {
        if (op->kind == OP_PARAMETER)
            continue;
        for (int i = 0; i < op->n_results; i++)
            for (int d = 0; d < run->n_devices; d++)
                if (!(buffers_of(run, op->result[i])[d] = allocate(&op->result[i]->type)))
                    return no_memory(op->result[i], err);
        run_op(run, op);
        for (int i = 0; i < op->n_operands; i++)
            if (--run->uses[op->operand[i]->id] == 0)
                free_value(run, op->operand[i]);
        for (int i = 0; i < op->n_results; i++)
            if (run->uses[op->result[i]->id] == 0)
                free_value(run, op->result[i]);
    }
    return CVN_OK;
}

/* Copies, since an output may be a parameter, or the same value as another output. */
static int copy_outputs(const Run *run, void **outputs, cvn_err *err)
{
    int n = run->g->n_outputs;
    for (int d = 0; d < run->n_devices; d++) {
        for (int i = 0; i < n; i++) {
            const cvn_value *v = run->g->output[i].value;
            void *copy = outputs[(size_t)d * (size_t)n + (size_t)i] = allocate(&v->type);
            if (!copy)
                return no_memory(v, err);
            memcpy(copy, buffers_of(run, v)[d], cvn_type_bytes(&v->type));
        }
    }
    return CVN_OK;
}

int interp_run(const cvn_graph *g, int n_devices, const void *const *inputs, void **outputs,
               cvn_err *err)
{
    if (cvn_graph_check(g, err) || interp_check_devices(g, n_devices, err))
        return g->err.code ? g->err.code : CVN_EINVAL;
    size_t devices = (size_t)n_devices, n_in = (size_t)g->n_parameters;
    size_t n_out = (size_t)g->n_outputs * devices;
    for (size_t i = 0; i < n_out; i++)
        outputs[i] = NULL;

    Run run = {.g = g, .n_devices = n_devices};
    TRY(arena_begin(&run.arena, err));
    run.buffer = arena_array(&run.arena, g->n_values + (size_t)1, devices * sizeof(void *));
    int most = 1; /* operands */
    for (const Op *op = g->first; op; op = op->next)
        most = op->n_operands > most ? op->n_operands : most;
    run.in = arena_array(&run.arena, (size_t)most, sizeof *run.in);
    run.uses = graph_uses(g, &run.arena);
    for (size_t i = 0; i < n_in; i++)
        for (size_t d = 0; d < devices; d++)
            buffers_of(&run, g->parameter[i])[d] = (void *)(uintptr_t)inputs[d * n_in + i];
    int code = run_ops(&run, err);
    if (code == CVN_OK)
        code = copy_outputs(&run, outputs, err);
    for (const Op *op = g->first; op; op = op->next)
        for (int i = 0; i < op->n_results; i++)
            free_value(&run, op->result[i]);
    for (size_t i = 0; i < n_out && code != CVN_OK; i++) {
        free(outputs[i]);
        outputs[i] = NULL;
    }
    arena_free(&run.arena);
    return code;
}

int interp_run_one(const cvn_graph *g, const void *const *inputs, void **outputs, cvn_err *err)
{
    return interp_run(g, 1, inputs, outputs, err);
}
