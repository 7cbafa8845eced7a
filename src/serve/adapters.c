#include "serve/adapters.h"

#include "io/convert.h"

#include <stdlib.h>
#include <string.h>

static const LoraOptions *options_of(const Adapters *a, int i)
{
    return &a->adapter[i].options;
}

int adapters_open(Adapters *a, const cvn_model *model, const char *const *folder, int n,
                  Arena *arena, cvn_err *err)
{
    *a = (Adapters){.model = model};
    if (n > ADAPTERS_MOST)
        return err_set(err, CVN_EINVAL, "%d adapters were given; at most %d", n, ADAPTERS_MOST);
    a->adapter = arena_array(arena, (size_t)n, sizeof *a->adapter);
    a->first = arena_array(arena, (size_t)n, sizeof *a->first);
    for (int i = 0; i < n; i++) {
        a->n++;
        a->first[i] = a->ranks;
        TRY(io_adapter_open(&a->adapter[i], &model->io, folder[i], arena, err));
        a->ranks += options_of(a, i)->rank;
        a->targets |= options_of(a, i)->targets;
    }
    const LoraOptions all = {.rank = a->ranks, .targets = a->targets};
    lora_params(&a->params, &model->io.params, &all, arena);
    return CVN_OK;
}

void adapters_close(Adapters *a)
{
    for (int i = 0; i < a->n; i++)
        io_adapter_close(&a->adapter[i]);
    *a = (Adapters){0};
}

void adapters_select(const Adapters *a, int which, float *select)
{
    memset(select, 0, (size_t)a->ranks * sizeof *select);
    for (int64_t i = 0; which >= 0 && i < options_of(a, which)->rank; i++)
        select[a->first[which] + i] =
            (float)(options_of(a, which)->alpha / (double)options_of(a, which)->rank);
}

/* A, or B, of a weight in all of them, f32. */
typedef struct Stack {
    const Adapters *adapters;
    const Param *param; /* of params.list */
    float *data;
} Stack;

/* One adapter's part of it: rows of A, columns of B. */
static void put(const Stack *s, int which, const float *part)
{
    const Adapters *a = s->adapters;
    int64_t rank = options_of(a, which)->rank, first = a->first[which];
    int64_t length = s->param->n / a->ranks; /* of what each rank has */
    if (s->param->axis[0] == AXIS_COUNT)
        memcpy(s->data + first * length, part, (size_t)(rank * length) * sizeof *part);
    else
        for (int64_t row = 0; row < length; row++)
            memcpy(s->data + row * a->ranks + first, part + row * rank,
                   (size_t)rank * sizeof *part);
}

/* Reads those that adapt weight number `base`; half: 0 is A, 1 is B. A NaN would be in every row, whatever it has. */
static int fill_stack(const Stack *s, int base, int half, cvn_err *err)
{
    const Adapters *a = s->adapters;
    SCOPED(scoped_free) float *part = malloc((size_t)s->param->n * sizeof *part);
    if (!part)
        return err_set(err, CVN_EMEM, "no memory for %s", s->param->name);
    for (int i = 0; i < a->n; i++) {
        const LoraParams *own = &a->adapter[i].params;
        if (own->a[base] < 0)
            continue;
        const Param *p = &own->list.param[own->a[base] + half];
        io_adapter_read(&a->adapter[i], &a->model->io, own->a[base] + half, part);
        int64_t bad = io_count_nonfinite(CVN_F32, part, p->n);
        if (bad)
            return err_set(err, CVN_EFORMAT,
                           "the adapters of '%s' have %lld elements in '%s' that are NaN or "
                           "infinite; train them again, or use an earlier checkpoint",
                           a->adapter[i].folder, (long long)bad, p->file_name[NAMING_HF]);
        put(s, i, part);
    }
    return CVN_OK;
}

static int read_stack(void *context, const Box *box, void *out, cvn_err *err)
{
    const Stack *s = context;
    cvn_dtype dtype = s->adapters->model->dtype;
    const cvn_type type = param_type(s->param, dtype);
    (void)err;
    for (BoxWalk w = box_of(box, &type); box_next(&w);)
        io_encode(dtype, s->data + w.a, w.n, (char *)out + cvn_dtype_bytes(dtype, w.b));
    return CVN_OK;
}

int adapters_load(const Adapters *a, Runtime *rt, cvn_err *err)
{
    for (int k = 0; k < 2 * a->model->io.params.n; k++) {
        int base = k / 2, half = k % 2, number = a->params.a[base] + half;
        Buffer *buffer = a->params.a[base] < 0
                             ? NULL
                             : runtime_buffer(rt, ROLE_WEIGHT, a->model->io.params.n + number);
        if (!buffer)
            continue;
        Stack s = {.adapters = a, .param = &a->params.list.param[number]};
        SCOPED(scoped_free) float *data = s.data = calloc((size_t)s.param->n, sizeof *data);
        TRY(data ? fill_stack(&s, base, half, err)
                 : err_set(err, CVN_EMEM, "no memory for %s", s.param->name));
        const Source source = {.read = read_stack, .context = &s};
        TRY(buffer_fill(rt, buffer, &source, err));
    }
    return CVN_OK;
}
