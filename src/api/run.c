/*
 * caravan/run.h: meshes, programs and arrays, over src/run.
 *
 * Every parameter of a program of the public interface is a tensor that may stay on the devices, ROLE_ARRAY with a number
 * of its own on the mesh: so marks spread to all of them, and those that are updated may be split. One that is an array
 * has the array's number in every program. The others are bound to memory of the host for the length of a run, and never
 * get memory on the devices that outlives it.
 */
#include "caravan/run.h"

#include "run/program.h"

#include <stdlib.h>
#include <string.h>

struct cvn_mesh {
    Runtime rt;
    int n_tensors; /* numbers of ROLE_ARRAY that are given away */
};

struct cvn_array {
    cvn_mesh *mesh; /* borrowed */
    int index;      /* of ROLE_ARRAY */
};

struct cvn_program {
    Program program;
    cvn_array **array; /* [parameters] borrowed; NULL: an input */
};

/* ---- meshes ---- */

cvn_mesh *cvn_mesh_new(const char *spec, const cvn_mesh_options *options, cvn_err *err)
{
    cvn_mesh *mesh = calloc(1, sizeof *mesh);
    RuntimeOptions how = {.mesh = spec};
    err = err ? err : &(cvn_err){0};
    if (options)
        how.devices = (DeviceOptions){
            .threads = options->threads, .device = options->backend, .cluster = options->cluster};
    if (!mesh)
        err_set(err, CVN_EMEM, "no memory for a mesh");
    else if (how.devices.threads < 0)
        err_set(err, CVN_EINVAL, "devices cannot have %d threads", how.devices.threads);
    else if (runtime_open(&mesh->rt, &how, err) == CVN_OK)
        return mesh;
    cvn_mesh_free(mesh);
    return NULL;
}

void cvn_mesh_free(cvn_mesh *mesh)
{
    if (mesh)
        runtime_close(&mesh->rt);
    free(mesh);
}

int cvn_mesh_devices(const cvn_mesh *mesh)
{
    return mesh->rt.mesh.n_devices;
}

int cvn_mesh_threads(const cvn_mesh *mesh)
{
    return mesh->rt.info.threads;
}

/* ---- programs ---- */

static Buffer *buffer_of(const cvn_array *array)
{
    return runtime_buffer(&array->mesh->rt, ROLE_ARRAY, array->index);
}

/* Whether parameter i may be this array. */
static int check_array(const cvn_graph *g, int i, cvn_array *const *arrays, const cvn_mesh *mesh,
                       cvn_err *err)
{
    const cvn_array *array = arrays[i];
    const cvn_value *v = g->parameter[i];
    const char *name = v->def->attr.name;
    const Buffer *b = buffer_of(array);
    char has[TYPE_TEXT], wants[TYPE_TEXT];
    for (int k = 0; k < i; k++)
        if (arrays[k] == array)
            return err_set(err, CVN_EINVAL, "parameters '%s' and '%s' are given the same array",
                           g->parameter[k]->def->attr.name, name);
    if (array->mesh != mesh)
        return err_set(err, CVN_EINVAL, "the array for parameter '%s' is of another mesh", name);
    if (v->type.dtype == CVN_I4)
        return err_set(err, CVN_EUNSUPPORTED,
                       "parameter '%s' has type i4, which arrays do not support", name);
    if (b && !cvn_type_equal(&b->type, &v->type))
        return err_set(err, CVN_ESHAPE, "parameter '%s' is %s, and its array %s", name,
                       type_text(&v->type, wants, sizeof wants),
                       type_text(&b->type, has, sizeof has));
    return CVN_OK;
}

typedef struct Making {
    cvn_program *program;
    cvn_mesh *mesh;
    const cvn_graph *g;
    cvn_array *const *arrays;
} Making;

static int make_of_copy(void *of, cvn_err *err)
{
    const Making *m = of;
    const ProgramOptions options = {.layout = NULL};
    cvn_program *program = m->program;
    cvn_mesh *mesh = m->mesh;
    cvn_array *const *arrays = m->arrays;
    SCOPED(graph_release) cvn_graph *g = graph_clone(m->g, err);
    if (!g)
        return err->code;
    size_t n = (size_t)g->n_parameters;
    program->array = calloc(n + 1, sizeof(cvn_array *));
    if (!program->array)
        return err_set(err, CVN_EMEM, "no memory for a program");
    if (arrays && n)
        memcpy(program->array, arrays, n * sizeof(cvn_array *));
    TRY(graph_verify(g, err));
    /* What parameters and outputs are for; on a mesh without axes marks are taken away. */
    for (int i = 0; i < g->n_parameters; i++) {
        if (arrays && arrays[i])
            TRY(check_array(g, i, arrays, mesh, err));
        int index = arrays && arrays[i] ? arrays[i]->index : mesh->n_tensors++;
        graph_role(g->parameter[i], ROLE_ARRAY, index);
    }
    for (int i = 0; i < g->n_outputs; i++)
        g->output[i].role = ROLE_NONE;
    for (Op *op = mesh->rt.mesh.n_axes ? NULL : g->first; op; op = op->next)
        for (int i = 0; i < op->n_results; i++)
            op->result[i]->spec = NULL;
    return program_make(&program->program, &mesh->rt, g, &options, err);
}

cvn_program *cvn_compile_arrays(cvn_mesh *mesh, const cvn_graph *g, cvn_array *const *arrays,
                                cvn_err *err)
{
    if (!mesh || !g) {
        err_set(err, CVN_EINVAL, "there is no %s to compile", mesh ? "graph" : "mesh");
        return NULL;
    }
    Making m = {calloc(1, sizeof *m.program), mesh, g, arrays};
    if (!m.program)
        err_set(err, CVN_EMEM, "no memory for a program");
    else if (protect(make_of_copy, &m, "compiling a graph", err) == CVN_OK)
        return m.program;
    cvn_program_free(m.program);
    return NULL;
}

cvn_program *cvn_compile(cvn_mesh *mesh, const cvn_graph *g, cvn_err *err)
{
    return cvn_compile_arrays(mesh, g, NULL, err);
}

void cvn_program_free(cvn_program *program)
{
    if (!program)
        return;
    program_free(&program->program);
    free(program->array);
    free(program);
}

int cvn_run(cvn_program *program, void *const *inputs, void *const *outputs, cvn_err *err)
{
    err = err ? err : &(cvn_err){0};
    if (!program)
        return err_set(err, CVN_EINVAL, "there is no program to run");
    Program *p = &program->program;
    for (int i = 0; i < p->signature.n_parameters; i++) {
        Buffer *b = p->buffer[i];
        if (program->array[i] && !b->memory)
            TRY(buffer_clear(p->rt, b, err));
        if (program->array[i])
            continue;
        if (!inputs || !inputs[i])
            return err_set(err, CVN_EINVAL, "input %d, '%s', is not given", i, b->name);
        p->host[i] = inputs[i];
    }
    TRY(program_run(p, err));
    for (int i = 0; outputs && i < p->signature.n_outputs; i++) {
        int into = p->signature.into[i];
        const void *from = into < 0 ? p->output[i] : p->host[into];
        if (!outputs[i])
            continue;
        if (into >= 0 && program->array[into]) {
            TRY(cvn_array_read(program->array[into], outputs[i], err));
        } else if (from != outputs[i]) {
            memcpy(outputs[i], from, cvn_type_bytes(&p->report.output[i].global));
        }
    }
    return CVN_OK;
}

/* ---- arrays ---- */

cvn_array *cvn_array_new(cvn_mesh *mesh, cvn_err *err)
{
    cvn_array *array = mesh ? malloc(sizeof *array) : NULL;
    if (array)
        *array = (cvn_array){.mesh = mesh, .index = mesh->n_tensors++};
    else
        err_set(err, mesh ? CVN_EMEM : CVN_EINVAL, "no %s for an array", mesh ? "memory" : "mesh");
    return array;
}

void cvn_array_free(cvn_array *array)
{
    Buffer *b = array ? buffer_of(array) : NULL;
    if (b)
        buffer_release(&array->mesh->rt, b);
    free(array);
}

/* The buffer of an array that some program takes. */
static int known(const cvn_array *array, Buffer **out, cvn_err *err)
{
    *out = array ? buffer_of(array) : NULL;
    if (!array)
        return err_set(err, CVN_EINVAL, "there is no array");
    if (!*out || !(*out)->executable)
        return err_set(err, CVN_EINVAL,
                       "no program uses this array, so its type is unknown; compile one with "
                       "cvn_compile_arrays first");
    return CVN_OK;
}

typedef struct Filling {
    cvn_fill_fn *fill; /* NULL: from data */
    void *context;
    cvn_type type;
    const void *data;
} Filling;

static int read_filling(void *context, const Box *box, void *out, cvn_err *err)
{
    const Filling *f = context;
    if (f->fill)
        return f->fill(f->context, box->first, box->count, out, err);
    const Box whole = box_whole(&f->type);
    const BoxArray from = box_packed(&whole), to = box_packed(box);
    box_copy(&from, f->data, &to, out, f->type.dtype);
    return CVN_OK;
}

static int fill_array(cvn_array *array, Filling filling, cvn_err *err)
{
    Buffer *b;
    err = err ? err : &(cvn_err){0};
    TRY(known(array, &b, err));
    filling.type = b->type;
    const Source source = {.read = read_filling, .context = &filling};
    return buffer_fill(&array->mesh->rt, b, &source, err);
}

int cvn_array_write(cvn_array *array, const void *data, cvn_err *err)
{
    return fill_array(array, (Filling){.data = data}, err);
}

int cvn_array_fill(cvn_array *array, cvn_fill_fn *fill, void *context, cvn_err *err)
{
    return fill_array(array, (Filling){.fill = fill, .context = context}, err);
}

int cvn_array_read(cvn_array *array, void *data, cvn_err *err)
{
    Buffer *b;
    err = err ? err : &(cvn_err){0};
    TRY(known(array, &b, err));
    Runtime *rt = &array->mesh->rt;
    size_t n = (size_t)rt->info.n_local, bytes = cvn_type_bytes(&b->local);
    if (!b->memory && buffer_clear(rt, b, err))
        return err->code;
    SCOPED(scoped_free) const void **shard = malloc(n * sizeof *shard);
    SCOPED(scoped_free) char *all = malloc(n * bytes + 1);
    if (!shard || !all)
        return err_set(err, CVN_EMEM, "no memory to read '%s'", b->name);
    for (size_t d = 0; d < n; d++) {
        shard[d] = all + d * bytes;
        TRY(rt->backend->download(rt->devices, b->memory[d], 0, bytes, all + d * bytes, err));
    }
    shard_gather(&rt->mesh, &b->sharding, &b->type, shard, data);
    return CVN_OK;
}
