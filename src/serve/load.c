#include "serve/load.h"

#include "base/capacity.h"
#include "base/num.h"
#include "io/convert.h"
#include "io/encode.h"
#include "io/packed.h"
#include "io/weights_quantize.h"
#include "serve/synthetic.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SCAN_LIMIT                                                                                 \
    ((size_t)4 << 30) /* bytes of a model whose mapped weights are looked through for NaN */

/* One weight being read, by several threads. */
typedef struct Load {
    const cvn_model *model;
    const Param *param;
    int index;
    atomic_long nonfinite;
    _Atomic int64_t done; /* elements read */
    /* Quantizing gives numbers and scales at once: scales are kept until their own buffer is filled. */
    /* all of the tensor's; NULL: the files have them as they are here, or there are none */
    uint8_t *scales;
} Load;

/* Elements of an array of `dtype` whose rows are whole: a box in runs. */
static int read_plain(Load *l, const Box *box, void *out)
{
    const IoTensor *t = l->model->io.source[l->index];
    const cvn_type type = param_type(l->param, l->model->dtype);
    for (BoxWalk w = box_of(box, &type); box_next(&w);) {
        char *to = (char *)out + cvn_dtype_bytes(type.dtype, w.b);
        atomic_fetch_add(&l->nonfinite, (long)io_convert(t, w.a, w.n, type.dtype, to));
        atomic_fetch_add(&l->done, w.n);
    }
    return CVN_OK;
}

/* Tells the system that mapped bytes will not be read again. Parts of pages at the ends are left. */
static void give_back_bytes(const uint8_t *data, size_t bytes)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t begin = num_padded((uintptr_t)data, page);
    uintptr_t end = ((uintptr_t)data + bytes) / page * page;
    if (end > begin)
        madvise((void *)begin, end - begin, MADV_DONTNEED);
}

/* What lies there as it does here, of which whole slices are given back at once: a table is large, and what is made of it is
   there besides. */
static int read_stored(Load *l, const Box *box, void *out)
{
    const cvn_type type = param_type(l->param, l->model->dtype);
    const IoTensor *t = l->model->io.source[l->index];
    const uint8_t *data = t->data;
    size_t slice = cvn_dtype_bytes(type.dtype, cvn_type_elements(&type) / type.dim[0]);
    if (t->coding == IO_PACKED || t->coding == IO_VIEW) {
        /* Whole blocks, which nothing cuts, are made of what the file has. */
        int64_t each = block_info[l->param->blocks].bytes;
        for (BoxWalk w = box_of(box, &type); box_next(&w);)
            packed_blocks(t, l->param->blocks, w.a / each, w.n / each, (uint8_t *)out + w.b);
    } else {
        box_cut(box, &type, data, out);
    }
    if (l->param->form == PARAM_BLOCKS)
        atomic_fetch_add(&l->nonfinite,
                         (long)block_count_nonfinite(l->param->blocks, out, box_elements(box)));
    /* Bit by bit from the front: much at once, since each time all threads are interrupted. What is left at the end goes
       with the tensor. */
    enum { AT_ONCE = 4 << 20 };
    size_t bytes = slice * (size_t)box->count[0], at = slice * (size_t)box->first[0];
    size_t begin = at / AT_ONCE * AT_ONCE, end = at + bytes;
    if (data && cvn_dtype_bytes(type.dtype, box_elements(box)) == bytes &&
        end / AT_ONCE > at / AT_ONCE)
        give_back_bytes(data + begin, end - begin);
    atomic_fetch_add(&l->done, box_elements(box));
    return CVN_OK;
}

/* Bytes of blocks of a GGUF type that are made. */
static int make_blocks(Load *l, const Box *box, void *out)
{
    const cvn_type type = param_type(l->param, l->model->dtype);
    const IoTensor *t = l->model->io.source[l->index];
    const BlockInfo *info = &block_info[l->param->blocks];
    const bool packed = t->coding == IO_PACKED && !t->adapter && packed_kind(t) == l->param->blocks;
    const bool same =
        t->coding == IO_BLOCKS && t->block->kind == l->param->blocks && !t->n_parts && !t->adapter;
    float x[BLOCK_MOST];
    for (BoxWalk w = box_of(box, &type); box_next(&w);) {
        uint8_t *to = (uint8_t *)out + w.b;
        atomic_fetch_add(&l->done, w.n);
        if (same) {
            memcpy(to, t->data + w.a, (size_t)w.n);
            continue;
        }
        if (packed) {
            packed_blocks(t, l->param->blocks, w.a / info->bytes, w.n / info->bytes, to);
            continue;
        }
        for (int64_t at = w.a; at < w.a + w.n; at += info->bytes, to += info->bytes) {
            int64_t bad =
                io_convert(t, at / info->bytes * info->elements, info->elements, CVN_F32, x);
            atomic_fetch_add(&l->nonfinite, (long)bad);
            block_encode(l->param->blocks, x, NULL, info->elements, to);
        }
    }
    return CVN_OK;
}

/* A quantized matrix that is made. */
static int read_quantized(Load *l, const Box *box, void *out, cvn_err *err)
{
    const cvn_type type = param_type(l->param, l->model->dtype);
    for (BoxWalk w = box_of(box, &type); box_next(&w);) {
        const IoTensor *t = l->model->io.source[l->index];
        const QuantForm *f = &l->param->quant;
        char *to = (char *)out + cvn_dtype_bytes(type.dtype, w.b);
        int64_t read = w.n, bad = 0;
        TRY(weights_quantize(f, t, w.a, w.n, to, l->scales, &read, &bad, err));
        atomic_fetch_add(&l->nonfinite, (long)bad);
        atomic_fetch_add(&l->done, read);
    }
    return CVN_OK;
}

/* Whether the files have a quantized matrix, its scales, or blocks as they are here. */
static bool is_stored(const Load *l)
{
    return l->param->form != PARAM_PLAIN && !l->model->io.quantizes;
}

static int read_weight(void *context, const Box *box, void *out, cvn_err *err)
{
    Load *l = context;
    if (!l->model->io.source) {
        synthetic_box(l->param, l->model->dtype, box, out);
        return CVN_OK;
    }
    return is_stored(l)                     ? read_stored(l, box, out)
           : l->param->form == PARAM_PLAIN  ? read_plain(l, box, out)
           : l->param->form == PARAM_BLOCKS ? make_blocks(l, box, out)
                                            : read_quantized(l, box, out, err);
}

/* Of all that were made. */
static int read_scales(void *context, const Box *box, void *out, cvn_err *err)
{
    const Load *l = context;
    const cvn_type type = param_type(l->param, l->model->dtype);
    (void)err;
    box_cut(box, &type, l->scales, out);
    return CVN_OK;
}

/* Where the file has the tensor as products take it. */
static const void *mapped_at(const Load *l)
{
    const IoTensor *t = l->model->io.source[l->index];
    const cvn_dtype dtype = param_type(l->param, l->model->dtype).dtype;
    if (t->n_parts > 0 || t->adapter || t->shift != 0)
        return NULL;
    bool plain = l->param->form == PARAM_PLAIN && t->coding == IO_PLAIN && t->dtype == dtype;
    return plain || is_stored(l) ? t->data : NULL;
}

static void report_weight(const Load *l, bool in_place, LoadReport *report)
{
    const IoTensor *t = l->model->io.source[l->index];
    int64_t bad = atomic_load(&l->nonfinite);
    if (in_place && l->param->form == PARAM_PLAIN &&
        (size_t)model_bytes(l->model->io.desc, l->model->dtype) <= SCAN_LIMIT)
        bad = io_count_nonfinite(t->dtype, t->data, t->n);
    if (bad > 0 && !in_place) {
        /* Of the whole tensor, each once: devices may have read the same, and padded shards some of it twice. */
        enum { PIECE = 1024 };
        float piece[PIECE];
        cvn_dtype dtype = l->param->form == PARAM_PLAIN ? l->model->dtype : CVN_F32;
        bad = 0;
        for (int64_t i = 0; i < t->n; i += PIECE)
            bad += io_convert(t, i, num_min(t->n - i, PIECE), dtype, piece);
    }
    if (bad > 0)
        strbuf_printf(&report->warnings,
                      "'%s': %" PRId64 " of %" PRId64 " elements of '%s' are NaN or infinite\n",
                      t->file, bad, t->n, t->name);
    const cvn_type type = param_type(l->param, l->model->dtype);
    double all = (double)cvn_type_elements(&type);
    double part = in_place ? 1 : (double)atomic_load(&l->done) / all;
    report->read_bytes += (double)t->bytes * part;
    for (int i = 0; i < t->n_parts; i++)
        report->read_bytes += (double)t->part[i].bytes * part;
}

size_t load_looked_up_bytes(const Runtime *rt, const cvn_model *model)
{
    const ParamList *params = &model->io.params;
    const Param *embed = params_find(params, PARAM_EMBED, -1);
    const Load l = {.model = model, .param = embed, .index = (int)(embed - params->param)};
    const Buffer *b = runtime_buffer(rt, ROLE_WEIGHT, l.index);
    bool apart = b && model->io.source && params_find(params, PARAM_LM_HEAD, -1);
    return apart && rt->info.n_local == 1 && b->layout == LAYOUT_PLAIN &&
                   cvn_type_equal(&b->type, &b->local) && mapped_at(&l)
               ? b->bytes
               : 0;
}

/* A weight, and where it is quantized its scales. */
static int fill(Runtime *rt, Buffer *b, Load *l, cvn_err *err)
{
    const IoModel *io = &l->model->io;
    Source source = {.read = read_weight, .context = l};
    if (io->source)
        source.mapped = mapped_at(l);
    TRY(buffer_fill(rt, b, &source, err));
    if (l->param->form != PARAM_QUANTIZED)
        return CVN_OK;
    Load scales = {.model = l->model, .index = l->param->scale, .scales = l->scales};
    scales.param = &io->params.param[scales.index];
    source = (Source){.read = l->scales ? read_scales : read_weight, .context = &scales};
    if (io->source && !l->scales)
        source.mapped = mapped_at(&scales);
    return buffer_fill(rt, runtime_buffer(rt, ROLE_WEIGHT, scales.index), &source, err);
}

/* Room for scales that are made. */
static int make_scales(Load *l, cvn_err *err)
{
    const IoModel *io = &l->model->io;
    if (!io->quantizes)
        return CVN_OK;
    l->scales = calloc(1, param_bytes(&io->params.param[l->param->scale], l->model->dtype));
    if (!l->scales)
        return err_set(err, CVN_EMEM, "no memory for the scales of %s", l->param->name);
    return CVN_OK;
}

static int load_one(Runtime *rt, const cvn_model *model, int index, LoadReport *report,
                    cvn_err *err)
{
    Buffer *b = runtime_buffer(rt, ROLE_WEIGHT, index);
    Load l = {.model = model, .param = &model->io.params.param[index], .index = index};
    if (!b || l.param->form == PARAM_SCALES)
        return CVN_OK; /* no program has it; or it comes with its numbers */
    if (!model->io.source)
        return fill(rt, b, &l, err);
    if (l.param->form == PARAM_QUANTIZED)
        TRY(make_scales(&l, err));
    int code = fill(rt, b, &l, err);
    free(l.scales);
    if (code)
        return code;
    bool in_place = mapped_at(&l) && buffer_address(rt, b, 0) == mapped_at(&l);
    const IoTensor *t = model->io.source[index];
    for (int i = 0; !in_place && i < t->n_parts; i++)
        give_back_bytes(t->part[i].data, t->part[i].bytes);
    if (!in_place && !t->n_parts)
        give_back_bytes(t->data, t->bytes);
    report_weight(&l, in_place, report);
    return CVN_OK;
}

int load_weights(Runtime *rt, const cvn_model *model, const cvn_engine_options *options,
                 LoadReport *report, cvn_err *err)
{
    size_t bytes = 0, all = 0, done = 0;
    *report = (LoadReport){0};
    for (int i = 0; i < model->io.params.n; i++) {
        const Load l = {.model = model, .param = &model->io.params.param[i], .index = i};
        const Buffer *b = runtime_buffer(rt, ROLE_WEIGHT, i);
        bool copied = !model->io.source || !mapped_at(&l) || (b && b->layout != LAYOUT_PLAIN);
        all += b ? b->bytes : 0;
        bytes += b && copied ? b->bytes * (size_t)rt->info.n_local : 0;
    }
    char what[256];
    if (model->io.path)
        snprintf(what, sizeof what, "the weights of '%.200s' in memory", model->io.path);
    else
        snprintf(what, sizeof what, "the weights of this shape");
    TRY(capacity_check_memory(bytes, what, err));
    for (int i = 0; i < model->io.params.n; i++) {
        const Buffer *b = runtime_buffer(rt, ROLE_WEIGHT, i);
        if (options && options->on_load)
            options->on_load(options->on_load_context, done, all);
        TRY(load_one(rt, model, i, report, err));
        done += b ? b->bytes : 0;
    }
    return CVN_OK;
}
