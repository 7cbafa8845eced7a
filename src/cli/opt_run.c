/*
 * A graph is carried out by the public interface (caravan/run.h), as a program of its user would; and its results are
 * printed, written, or held to the interpreter's.
 *
 *     %y: f32[2,9] = [[0.25, 1, -3, …, 7, 8, 9], [1, 2, 3, …, 4, 5, 6]]
 *
 * A result that is computed into a parameter is called as the parameter is, so that --inputs of what --out wrote is the
 * next step.
 */
#include "cli/opt_run.h"

#include "base/capacity.h"
#include "base/file.h"
#include "base/num.h"
#include "base/rng.h"
#include "caravan/run.h"
#include "cli/common.h"
#include "graph/attention.h"
#include "graph/interp/interp.h"
#include "graph/text/lex.h"
#include "io/safetensors.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RESULT_NAME = 256 };

static const char *name_of(const cvn_graph *g, int parameter)
{
    return g->parameter[parameter]->def->attr.name;
}

/* ---- results ---- */

/* What output i is called, into text [RESULT_NAME], and returns it: as the parameter that it goes into, as its value, or
   "result.N" where that is nameless or another is called so: an output that goes into a parameter, or an earlier one. */
static const char *result_name(const cvn_graph *g, int i, char *text)
{
    const Output *o = &g->output[i];
    const char *name = o->into ? o->into->def->attr.name : o->value->name;
    bool taken = !name;
    for (int k = 0; k < g->n_outputs && !taken && !o->into; k++) {
        const Output *p = &g->output[k];
        const char *other = p->into ? p->into->def->attr.name : k < i ? p->value->name : NULL;
        taken = other && strcmp(other, name) == 0;
    }
    if (!taken)
        snprintf(text, RESULT_NAME, "%s", name);
    else
        snprintf(text, RESULT_NAME, "result.%d", i);
    return text;
}

/* Writes the results, data[n_outputs], by their names. */
static int results_write(const cvn_graph *g, const char *path, void *const *data, cvn_err *err)
{
    SCOPED(st_writer_free) StWriter writer;
    char name[RESULT_NAME];
    TRY(st_writer_open(&writer, path, err));
    for (int i = 0; i < g->n_outputs; i++) {
        const cvn_type *type = &g->output[i].value->type;
        TRY(st_writer_declare(&writer, result_name(g, i, name), type->dtype, type->rank, type->dim,
                              err));
    }
    TRY(st_writer_begin(&writer, err));
    for (int i = 0; i < g->n_outputs; i++)
        TRY(st_writer_data(&writer, (size_t)i, data[i], cvn_type_bytes(&g->output[i].value->type),
                           err));
    return st_writer_commit(&writer, err);
}

/* ---- inputs, from a file ---- */

static int new_value(const cvn_graph *g, int i, void **data, cvn_err *err)
{
    size_t bytes = cvn_type_bytes(&g->parameter[i]->type);
    data[i] = bytes < SIZE_MAX ? malloc(bytes + 1) : NULL;
    return data[i] ? CVN_OK : err_set(err, CVN_EMEM, "no memory for parameter '%s'", name_of(g, i));
}

static int take_tensor(const cvn_graph *g, const IoTensor *t, const char *path, void **data,
                       cvn_err *err)
{
    int i = 0;
    char wants[TYPE_TEXT], has[TYPE_TEXT], result[RESULT_NAME];
    while (i < g->n_parameters && strcmp(name_of(g, i), t->name) != 0)
        i++;
    for (int k = 0; i == g->n_parameters && k < g->n_outputs; k++)
        if (strcmp(result_name(g, k, result), t->name) == 0)
            return CVN_OK;
    if (i == g->n_parameters)
        return err_set(err, CVN_EINVAL, "%s: '%s' is not a parameter of graph '%s'", path, t->name,
                       g->name);
    const cvn_type *type = &g->parameter[i]->type;
    const bool plain = t->coding == IO_PLAIN;
    const cvn_type is = cvn_type_make(plain ? t->dtype : CVN_DTYPE_COUNT, t->rank, t->dims);
    if (!plain || !cvn_type_equal(&is, type))
        return err_set(err, CVN_ESHAPE, "%s: '%s' is %s, and the parameter %s", path, t->name,
                       plain ? type_text(&is, has, sizeof has) : t->type,
                       type_text(type, wants, sizeof wants));
    TRY(new_value(g, i, data, err));
    if (t->bytes)
        memcpy(data[i], t->data, t->bytes);
    return CVN_OK;
}

/* Values of the parameters whose names are in a safetensors file, into data[n_parameters]; those that are not stay NULL.
   Every tensor of the file must be a parameter of its type, but results of the graph are passed over, which may have been
   written beside an updated parameter. */
static int inputs_read(const cvn_graph *g, const char *path, void **data, cvn_err *err)
{
    FileMap map = {0};
    IoTensors tensors;
    SCOPED(arena_free) Arena arena = {0};
    TRY(arena_begin(&arena, err));
    io_tensors_init(&tensors, &arena);
    TRY(file_map(&map, path, err));
    CLEANUP(file_map_release, &map);
    TRY(st_read(&tensors, path, map.data, map.size, NULL, err));
    for (size_t i = 0; i < tensors.n; i++)
        TRY(take_tensor(g, &tensors.tensor[i], path, data, err));
    return CVN_OK;
}

/* ---- inputs, random ---- */

/* Below what number operand k must stay for what it addresses to be there; 0: it addresses nothing. */
static int64_t addressed(const Op *op, int k)
{
    const cvn_type *in = op_in(op, 0);
    int64_t least = INT64_MAX;
    switch (op->kind) {
    case OP_GATHER:
    case OP_SCATTER:
        for (int i = 0; i < op->attr.index_map.n; i++)
            least = num_min(least, in->dim[op->attr.index_map.v[i]]);
        return k == 1 ? least : 0;
    case OP_DYNAMIC_SLICE:
        return k >= 1 ? in->dim[k - 1] : 0;
    case OP_DYNAMIC_UPDATE_SLICE:
        return k >= 2 ? in->dim[k - 2] : 0;
    case OP_SOFTMAX_CROSS_ENTROPY:
    case OP_SOFTMAX_CROSS_ENTROPY_BACKWARD:
        return k == 1 ? in->dim[in->rank - 1] : 0;
    case OP_CACHE_UPDATE: /* new tokens fit behind those that are there */
        return k == 2   ? in->dim[2] - op_in(op, 1)->dim[1] + 1
               : k == 3 ? op_in(op, 4)->dim[0]
               : k == 4 ? in->dim[0]
                        : 0;
    case OP_ATTENTION:
    case OP_ATTENTION_BACKWARD:
        if (op->operand[k] == attention_first(op))
            return 1; /* every query sees itself */
        if (attention_slot_at(op) >= 0 && k == attention_slot_at(op))
            return op_in(op, k + 1)->dim[0];
        if (attention_slot_at(op) >= 0 && k == attention_slot_at(op) + 1)
            return op_in(op, 1)->dim[0];
        return k == 3 ? op_in(op, 1)->dim[2] - in->dim[1] + 1 : k == 4 ? in->dim[1] + 1 : 0;
    default:
        return 0;
    }
}

/* Integers of a parameter are below this; `from` [n_values] is scratch. */
static int64_t limit(const cvn_graph *g, const cvn_value *parameter, bool *from)
{
    int64_t least = INT64_MAX;
    memset(from, 0, g->n_values * sizeof *from);
    from[parameter->id] = true;
    for (const Op *op = g->first; op; op = op->next)
        for (int k = 0; k < op->n_operands; k++) {
            int64_t n = addressed(op, k);
            if (!from[op->operand[k]->id])
                continue;
            if (n)
                least = num_min(least, num_max(n, 1));
            /* Its elements are those of its operands, in other places or of another type. */
            if (op_info[op->kind].class_ == CLASS_SHAPE || op->kind == OP_CONVERT ||
                op->kind == OP_OPTIMIZATION_BARRIER)
                from[op->result[0]->id] = true;
        }
    least = least == INT64_MAX ? 16 : least;
    int bits = cvn_dtype_bits(parameter->type.dtype);
    return bits < 32 ? num_min(least, INT64_C(1) << (bits - 1)) : least;
}

static void fill(const cvn_type *type, RngKey key, int64_t below, void *out)
{
    enum { PIECE = 1024 };
    float real[PIECE];
    uint32_t bits[PIECE];
    int64_t n = cvn_type_elements(type);
    bool floats = dtype_is_float(type->dtype);
    for (int64_t first = 0; first < n; first += PIECE) {
        size_t piece = (size_t)num_min(n - first, PIECE);
        if (floats)
            rng_normal(key, (uint64_t)first, piece, real);
        else
            rng_bits(key, (uint64_t)first, piece, bits);
        for (size_t i = 0; i < piece; i++)
            element_set(type->dtype, out, first + (int64_t)i,
                        floats ? (double)real[i] : (double)(bits[i] % below));
    }
}

/* Random values for those that are NULL, a function of the seed and the parameter's name: floats of mean 0 and variance 1,
   bools, and integers in 0 … 15; or, where they index something, below its size. */
static int inputs_random(const cvn_graph *g, uint64_t seed, void **data, cvn_err *err)
{
    SCOPED(scoped_free) bool *from = malloc(g->n_values + (size_t)1);
    if (!from)
        return err_set(err, CVN_EMEM, "no memory for random inputs");
    for (int i = 0; i < g->n_parameters; i++) {
        const cvn_type *type = &g->parameter[i]->type;
        int64_t below = type->dtype == CVN_BOOL ? 2 : limit(g, g->parameter[i], from);
        if (data[i])
            continue;
        TRY(new_value(g, i, data, err));
        memset(data[i], 0, cvn_type_bytes(type)); /* of i4 a byte is set half by half */
        fill(type, rng_key(seed, name_of(g, i)), below, data[i]);
    }
    return CVN_OK;
}

/* ---- one run ---- */

typedef struct Run {
    const cvn_graph *g;
    const OptRun *how;
    void **input;    /* [parameters] owned */
    void **output;   /* [outputs] owned */
    void **expected; /* [outputs] owned, of the interpreter; or NULLs */
} Run;

/* ---- printing ---- */

/* Elements that are shown at each end of a dimension: as many as make at most some hundred numbers. */
static int64_t shown_ends(const cvn_type *type)
{
    for (int64_t ends = 8;; ends--) {
        double n = 1;
        for (int d = 0; d < type->rank; d++)
            n *= (double)num_min(type->dim[d], 2 * ends);
        if (n <= 256 || ends == 1)
            return ends;
    }
}

/* Dimensions from d on, of which the first element is `at`. */
static void put_elements(StrBuf *out, const cvn_type *type, const void *data, int d, int64_t at,
                         int64_t ends)
{
    if (d == type->rank) {
        double value = element_get(type->dtype, data, at);
        if (type->dtype == CVN_BOOL)
            strbuf_puts(out, value != 0 ? "true" : "false");
        else
            strbuf_printf(out, dtype_is_float(type->dtype) ? "%.6g" : "%.0f", value);
        return;
    }
    int64_t inner = 1, n = type->dim[d];
    for (int k = d + 1; k < type->rank; k++)
        inner *= type->dim[k];
    strbuf_putc(out, '[');
    for (int64_t i = 0; i < n; i++) {
        strbuf_puts(out, i ? ", " : "");
        if (n > 2 * ends && i == ends) {
            strbuf_puts(out, "…, ");
            i = n - ends;
        }
        put_elements(out, type, data, d + 1, at + i * inner, ends);
    }
    strbuf_putc(out, ']');
}

static int print(const Run *r, cvn_err *err)
{
    SCOPED(strbuf_free) StrBuf out = {0};
    char name[RESULT_NAME];
    for (int i = 0; i < r->g->n_outputs; i++) {
        const cvn_type *type = &r->g->output[i].value->type;
        strbuf_printf(&out, "%%%s: ", result_name(r->g, i, name));
        type_print(&out, type);
        strbuf_puts(&out, " = ");
        put_elements(&out, type, r->output[i], 0, 0, shown_ends(type));
        strbuf_putc(&out, '\n');
    }
    if (out.failed)
        return err_set(err, CVN_EMEM, "no memory to print the results");
    return out.length && fwrite(out.text, 1, out.length, stdout) != out.length
               ? err_set(err, CVN_EIO, "cannot write the results to standard output")
               : CVN_OK;
}

/* ---- checking ---- */

#define FINE 1e-5
#define COARSE 2e-2

/* What the coarsest of the numbers that a value is computed from allows it to differ by, in parts of the largest element:
   tolerance [values]. Composites of quantized numbers may bring the others to fixed point. */
static void find_tolerances(const cvn_graph *g, double *tolerance)
{
    for (const Op *op = g->first; op; op = op->next)
        for (int i = 0; i < op->n_results; i++) {
            cvn_dtype dtype = op_out(op, i)->dtype;
            bool coarse = dtype == CVN_BF16 || dtype == CVN_F16;
            double most = coarse ? COARSE : FINE;
            for (int k = 0; k < op->n_operands; k++) {
                most = fmax(most, tolerance[op->operand[k]->id]);
                if (op_info[op->kind].class_ == CLASS_COMPOSITE &&
                    cvn_dtype_bits(op_in(op, k)->dtype) <= 8 && op_in(op, k)->dtype != CVN_BOOL)
                    most = COARSE;
            }
            tolerance[op->result[i]->id] = most;
        }
}

static int differs(const Run *r, int output, int64_t at, double got, double expected, cvn_err *err)
{
    const cvn_type *type = &r->g->output[output].value->type;
    char name[RESULT_NAME];
    SCOPED(strbuf_free) StrBuf place = {0};
    int64_t inner = cvn_type_elements(type);
    for (int d = 0; d < type->rank; d++) {
        inner /= type->dim[d];
        strbuf_printf(&place, "%s%" PRId64, d ? "," : "", at / inner % type->dim[d]);
    }
    return err_set(err, CVN_EINVAL, "result '%s' is %.9g at [%s], where the interpreter has %.9g",
                   result_name(r->g, output, name), got, place.text ? place.text : "", expected);
}

static int check(const Run *r, cvn_err *err)
{
    const cvn_graph *g = r->g;
    SCOPED(scoped_free) double *tolerance = calloc(g->n_values + (size_t)1, sizeof *tolerance);
    if (!tolerance)
        return err_set(err, CVN_EMEM, "no memory to check the results");
    find_tolerances(g, tolerance);
    for (int i = 0; i < g->n_outputs; i++) {
        const cvn_value *v = g->output[i].value;
        cvn_dtype dtype = v->type.dtype;
        int64_t n = cvn_type_elements(&v->type);
        double largest = 0;
        for (int64_t k = 0; k < n; k++) {
            double x = fabs(element_get(dtype, r->expected[i], k));
            largest = isfinite(x) ? fmax(largest, x) : largest;
        }
        double most = dtype_is_float(dtype) ? tolerance[v->id] * largest : 0;
        for (int64_t k = 0; k < n; k++) {
            double got = element_get(dtype, r->output[i], k);
            double expected = element_get(dtype, r->expected[i], k);
            bool same = got == expected || (isnan(got) && isnan(expected));
            if (!same && !(fabs(got - expected) <= most))
                return differs(r, i, k, got, expected, err);
        }
    }
    return CVN_OK;
}

/* ---- running ---- */

/* Inputs and results alone, if there is room for them; a graph in text may ask for anything. */
static int allocate(Run *r, cvn_err *err)
{
    const cvn_graph *g = r->g;
    char what[128];
    uint64_t bytes = 0, sum;
    snprintf(what, sizeof what, "the inputs and results of graph '%.60s'", g->name);
    for (int i = 0; i < g->n_parameters + g->n_outputs; i++) {
        const cvn_value *v =
            i < g->n_parameters ? g->parameter[i] : g->output[i - g->n_parameters].value;
        bytes = __builtin_add_overflow(bytes, (uint64_t)cvn_type_bytes(&v->type), &sum) ? UINT64_MAX
                                                                                        : sum;
    }
    TRY(capacity_check_memory(bytes, what, err));
    r->input = calloc((size_t)g->n_parameters + 1, sizeof(void *));
    r->output = calloc((size_t)g->n_outputs + 1, sizeof(void *));
    r->expected = calloc((size_t)g->n_outputs + 1, sizeof(void *));
    bool enough = r->input && r->output && r->expected;
    for (int i = 0; i < g->n_outputs && enough; i++) {
        r->output[i] = malloc(cvn_type_bytes(&g->output[i].value->type) + 1);
        enough = r->output[i];
    }
    return enough ? CVN_OK : err_set(err, CVN_EMEM, "no memory for the results");
}

static int carry_out(Run *r, cvn_err *err)
{
    cvn_mesh *mesh = cvn_mesh_new(r->how->mesh, NULL, err);
    cvn_program *program = cvn_compile(mesh, r->g, err);
    int code = program ? CVN_OK : err->code;
    /* Before it runs: what is updated is written to the inputs. */
    if (code == CVN_OK && r->how->check)
        code = interp_run_one(r->g, (const void *const *)r->input, r->expected, err);
    if (code == CVN_OK)
        code = cvn_run(program, r->input, r->output, err);
    cvn_program_free(program);
    cvn_mesh_free(mesh);
    return code;
}

static int run(void *of, cvn_err *err)
{
    Run *r = of;
    const OptRun *how = r->how;
    if (allocate(r, err) || (how->inputs && inputs_read(r->g, how->inputs, r->input, err)) ||
        inputs_random(r->g, how->seed, r->input, err))
        return err->code;
    TRY(carry_out(r, err));
    TRY(how->out ? results_write(r->g, how->out, r->output, err) : print(r, err));
    if (how->check)
        TRY(check(r, err));
    if (how->check && !how->quiet)
        fprintf(stderr, "check: %d result%s the interpreter's\n", r->g->n_outputs,
                r->g->n_outputs == 1 ? " is" : "s are");
    return CVN_OK;
}

static void free_all(void **data, int n)
{
    for (int i = 0; data && i < n; i++)
        free(data[i]);
    free(data);
}

/* Whether the first word is "graph"; comments may stand before it. */
static bool is_graph(const char *text, size_t n)
{
    Lexer lex = {.text = text, .end = text + n, .p = text};
    return lex_take_word(&lex, "graph");
}

int opt_open(const char *path, cvn_graph **g, cvn_err *err)
{
    SCOPED(scoped_free) char *text = NULL;
    size_t length = 0;
    const char *name = strcmp(path, "-") == 0 ? "standard input" : path;
    TRY(read_input(path, &text, &length, err));
    *g = is_graph(text, length) ? cvn_graph_parse(text, length, name, err)
                                : cvn_graph_from_stablehlo(text, length, name, err);
    return *g ? CVN_OK : err->code;
}

int opt_run(const cvn_graph *g, const OptRun *how, cvn_err *err)
{
    Run r = {.g = g, .how = how};
    int code = protect(run, &r, "running a graph", err);
    free_all(r.input, g->n_parameters);
    free_all(r.output, g->n_outputs);
    free_all(r.expected, g->n_outputs);
    return code;
}
