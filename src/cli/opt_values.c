#include "cli/opt_values.h"

#include "base/file.h"
#include "base/num.h"
#include "base/rng.h"
#include "graph/attention.h"
#include "io/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *name_of(const cvn_graph *g, int parameter)
{
    return g->parameter[parameter]->def->attr.name;
}

/* ---- results ---- */

/* By an output that goes into a parameter, or an earlier one. */
static bool is_taken(const cvn_graph *g, int output, const char *name)
{
    for (int i = 0; i < g->n_outputs; i++) {
        const Output *o = &g->output[i];
        const char *other = o->into ? o->into->def->attr.name : i < output ? o->value->name : NULL;
        if (other && strcmp(other, name) == 0)
            return true;
    }
    return false;
}

const char *result_name(const cvn_graph *g, int i, char *text)
{
    const Output *o = &g->output[i];
    const char *name = o->into ? o->into->def->attr.name : o->value->name;
    if (name && (o->into || !is_taken(g, i, name)))
        snprintf(text, RESULT_NAME, "%s", name);
    else
        snprintf(text, RESULT_NAME, "result.%d", i);
    return text;
}

int results_write(const cvn_graph *g, const char *path, void *const *data, cvn_err *err)
{
    StWriter writer;
    char name[RESULT_NAME];
    int code = st_writer_open(&writer, path, err);
    for (int i = 0; i < g->n_outputs && code == CVN_OK; i++) {
        const cvn_type *type = &g->output[i].value->type;
        code = st_writer_declare(&writer, result_name(g, i, name), type->dtype, type->rank,
                                 type->dim, err);
    }
    if (code == CVN_OK)
        code = st_writer_begin(&writer, err);
    for (int i = 0; i < g->n_outputs && code == CVN_OK; i++)
        code = st_writer_data(&writer, (size_t)i, data[i],
                              cvn_type_bytes(&g->output[i].value->type), err);
    if (code == CVN_OK)
        code = st_writer_commit(&writer, err);
    st_writer_free(&writer);
    return code;
}

/* ---- inputs, from a file ---- */

static int allocate(const cvn_graph *g, int i, void **data, cvn_err *err)
{
    size_t bytes = cvn_type_bytes(&g->parameter[i]->type);
    data[i] = bytes < SIZE_MAX ? malloc(bytes + 1) : NULL;
    return data[i] ? CVN_OK : err_set(err, CVN_EMEM, "no memory for parameter '%s'", name_of(g, i));
}

static bool is_result(const cvn_graph *g, const char *name)
{
    char text[RESULT_NAME];
    for (int i = 0; i < g->n_outputs; i++)
        if (strcmp(result_name(g, i, text), name) == 0)
            return true;
    return false;
}

static int take(const cvn_graph *g, const IoTensor *t, const char *path, void **data, cvn_err *err)
{
    int i = 0;
    char wants[TYPE_TEXT], has[TYPE_TEXT];
    while (i < g->n_parameters && strcmp(name_of(g, i), t->name) != 0)
        i++;
    if (i == g->n_parameters && is_result(g, t->name))
        return CVN_OK;
    if (i == g->n_parameters)
        return err_set(err, CVN_EINVAL, "%s: '%s' is no parameter of graph '%s'", path, t->name,
                       g->name);
    const cvn_type *type = &g->parameter[i]->type;
    const bool plain = t->coding == IO_PLAIN;
    const cvn_type is = cvn_type_make(plain ? t->dtype : CVN_DTYPE_COUNT, t->rank, t->dims);
    if (!plain || !cvn_type_equal(&is, type))
        return err_set(err, CVN_ESHAPE, "%s: '%s' is %s, and the parameter %s", path, t->name,
                       plain ? type_text(&is, has, sizeof has) : t->type,
                       type_text(type, wants, sizeof wants));
    TRY(allocate(g, i, data, err));
    if (t->bytes)
        memcpy(data[i], t->data, t->bytes);
    return CVN_OK;
}

int inputs_read(const cvn_graph *g, const char *path, void **data, cvn_err *err)
{
    FileMap map = {0};
    IoTensors tensors;
    Arena arena;
    TRY(arena_init(&arena, err));
    io_tensors_init(&tensors, &arena);
    int code = file_map(&map, path, err);
    if (code == CVN_OK)
        code = st_read(&tensors, path, map.data, map.size, NULL, err);
    for (size_t i = 0; i < tensors.n && code == CVN_OK; i++)
        code = take(g, &tensors.tensor[i], path, data, err);
    file_unmap(&map);
    arena_free(&arena);
    return code;
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
        return k == 2 ? in->dim[2] - op_in(op, 1)->dim[1] + 1 : 0;
    case OP_ATTENTION:
    case OP_ATTENTION_BACKWARD:
        if (op->operand[k] == attention_first(op))
            return 1; /* every query sees itself */
        return k == 3 ? op_in(op, 1)->dim[2] - in->dim[1] + 1 : k == 4 ? in->dim[1] + 1 : 0;
    default:
        return 0;
    }
}

/* Whether the elements of an operation's result are those of its operands, in other places or of another type. */
static bool passes_on(const Op *op)
{
    return op_info[op->kind].class_ == CLASS_SHAPE || op->kind == OP_CONVERT ||
           op->kind == OP_OPTIMIZATION_BARRIER;
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
            if (passes_on(op))
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

int inputs_random(const cvn_graph *g, uint64_t seed, void **data, cvn_err *err)
{
    bool *from = malloc(g->n_values + (size_t)1);
    int code = from ? CVN_OK : err_set(err, CVN_EMEM, "no memory for random inputs");
    for (int i = 0; i < g->n_parameters && code == CVN_OK; i++) {
        const cvn_type *type = &g->parameter[i]->type;
        int64_t below = type->dtype == CVN_BOOL ? 2 : limit(g, g->parameter[i], from);
        if (data[i] || (code = allocate(g, i, data, err)))
            continue;
        memset(data[i], 0, cvn_type_bytes(type)); /* of i4 a byte is set half by half */
        fill(type, rng_key(seed, name_of(g, i)), below, data[i]);
    }
    free(from);
    return code;
}
