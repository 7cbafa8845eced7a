#include "serve/load.h"

#include "base/num.h"
#include "base/room.h"
#include "io/convert.h"
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
    _Atomic int64_t done; /* elements read, or units of panels */
    /* Quantizing gives numbers and scales at once: scales are kept until their own buffer is filled. */
    uint8_t *scales; /* owned: all of the tensor's; NULL: the files have them, or there are none */
} Load;

/* Elements of an array of `dtype` whose rows are whole: a region in runs. */
static int read_plain(Load *l, const Region *region, void *out)
{
    const IoTensor *t = l->model->io.source[l->index];
    const cvn_type type = param_type(l->param, l->model->dtype);
    const Region all = region_whole(&type);
    const RegionArray whole = region_packed(&all), part = region_packed(region);
    RegionWalk w;
    region_walk(&w, region, &whole, &part);
    while (region_next(&w)) {
        char *to = (char *)out + cvn_dtype_bytes(type.dtype, w.b);
        atomic_fetch_add(&l->nonfinite, (long)io_convert(t, w.a, w.n, type.dtype, to));
        atomic_fetch_add(&l->done, w.n);
    }
    return CVN_OK;
}

static int read_panels(Load *l, const Region *region, void *out, cvn_err *err)
{
    const QuantForm *f = &l->param->quant;
    int64_t groups = f->groups, bad;
    PanelBox box = {.panel = region->first[0],
                    .panels = region->count[0],
                    .unit = region->first[1],
                    .units = region->count[1],
                    .groups = 1};
    if (groups > 1) {
        box.group = box.unit * groups / f->units;
        box.groups = box.units * groups / f->units;
    }
    /* A scale for a whole row is made of all of it. */
    bool rows = l->scales && groups == 1;
    atomic_fetch_add(&l->done, box.panels * (rows ? f->units : box.units));
    if (!l->scales)
        return weights_read_panels(&l->model->io, l->index, &box, out, NULL, &bad, err);
    /* Each panel's scales into their place among those of the whole. */
    size_t each = cvn_dtype_bytes(f->scale_dtype, box.groups * QUANT_ROWS);
    uint8_t *scales = malloc((size_t)box.panels * each + 1);
    if (!scales)
        return err_set(err, CVN_EMEM, "no memory for the scales of %s", l->param->name);
    int code = weights_read_panels(&l->model->io, l->index, &box, out, scales, &bad, err);
    atomic_fetch_add(&l->nonfinite, (long)bad);
    size_t at = cvn_dtype_bytes(f->scale_dtype, box.group * QUANT_ROWS);
    for (int64_t p = 0; p < box.panels && code == CVN_OK; p++)
        memcpy(l->scales + (size_t)(box.panel + p) * quant_scale_bytes(f) + at,
               scales + (size_t)p * each, each);
    free(scales);
    return code;
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

static void give_back(const IoTensor *t)
{
    for (int i = 0; i < (t->n_parts ? t->n_parts : 1); i++) {
        const IoTensor *part = t->n_parts ? &t->part[i] : t;
        give_back_bytes(part->data, part->bytes);
    }
}

/* Blocks that are made of what the file has. */
static void read_packed(const Load *l, const IoTensor *t, const Region *region, uint8_t *out)
{
    const cvn_type type = param_type(l->param, l->model->dtype);
    const Region all = region_whole(&type);
    const RegionArray whole = region_packed(&all), part = region_packed(region);
    int64_t each = block_info[l->param->blocks].bytes;
    RegionWalk w;
    region_walk(&w, region, &whole, &part);
    while (region_next(&w)) /* whole blocks, which nothing cuts */
        packed_blocks(t, l->param->blocks, w.a / each, w.n / each, out + w.b);
}

/* The bytes as they are in the file, of which those that are whole slices are given back at once: a table is large, and what is
   made of it is there besides. */
static int read_blocks(Load *l, const Region *region, void *out)
{
    const cvn_type type = param_type(l->param, l->model->dtype);
    const Region all = region_whole(&type);
    const RegionArray whole = region_packed(&all), part = region_packed(region);
    const IoTensor *t = l->model->io.source[l->index];
    const uint8_t *data = t->data;
    int64_t slice = cvn_type_elements(&type) / type.dim[0];
    if (t->coding == IO_PACKED)
        read_packed(l, t, region, out);
    else
        region_copy(&whole, data, &part, out, 1);
    atomic_fetch_add(&l->nonfinite,
                     (long)block_count_nonfinite(l->param->blocks, out, region_elements(region)));
    if (data && region_elements(region) == slice * region->count[0])
        give_back_bytes(data + slice * region->first[0], (size_t)(slice * region->count[0]));
    atomic_fetch_add(&l->done, region_elements(region));
    return CVN_OK;
}

static int read_weight(void *context, const Region *region, void *out, cvn_err *err)
{
    Load *l = context;
    if (!l->model->io.source) {
        synthetic_region(l->param, l->model->dtype, region, out);
        return CVN_OK;
    }
    return l->param->form == PARAM_PANELS   ? read_panels(l, region, out, err)
           : l->param->form == PARAM_BLOCKS ? read_blocks(l, region, out)
                                            : read_plain(l, region, out);
}

/* Scales that were made with their numbers, or that lie in the files: [panels, groups, 16]. */
static int read_scales(void *context, const Region *region, void *out, cvn_err *err)
{
    const Load *l = context;
    const QuantForm *f = &l->param->quant;
    const PanelBox box = {.panel = region->first[0],
                          .panels = region->count[0],
                          .group = region->first[1],
                          .groups = region->count[1]};
    (void)err;
    weights_copy_scales(f, l->scales, &box, out);
    return CVN_OK;
}

/* Where the file has the tensor as products take it. */
static const void *mapped_at(const Load *l)
{
    const IoModel *io = &l->model->io;
    const IoTensor *t = io->source[l->index];
    const cvn_dtype dtype = param_type(l->param, l->model->dtype).dtype;
    if (t->n_parts > 0 || t->adapter || (l->param->form != PARAM_PLAIN && io->quantizes))
        return NULL;
    bool same = l->param->form != PARAM_PLAIN || (t->coding == IO_PLAIN && t->dtype == dtype);
    return same ? t->data : NULL;
}

static double tensor_bytes(const IoTensor *t)
{
    double bytes = (double)t->bytes;
    for (int i = 0; i < t->n_parts; i++)
        bytes += (double)t->part[i].bytes;
    return bytes;
}

/* Of the whole tensor, each once: devices may have read the same, and padded shards some of it twice. */
static int64_t count_nonfinite(const Load *l)
{
    enum { PIECE = 1024 };
    float piece[PIECE];
    const IoTensor *t = l->model->io.source[l->index];
    cvn_dtype dtype = l->param->form == PARAM_PLAIN ? l->model->dtype : CVN_F32;
    int64_t bad = 0;
    for (int64_t i = 0; i < t->n; i += PIECE)
        bad += io_convert(t, i, num_min(t->n - i, PIECE), dtype, piece);
    return bad;
}

static void report_weight(const Load *l, bool in_place, LoadReport *report)
{
    const IoTensor *t = l->model->io.source[l->index];
    int64_t bad = atomic_load(&l->nonfinite);
    if (in_place && l->param->form == PARAM_PLAIN &&
        (size_t)model_bytes(&l->model->io.config, l->model->dtype) <= SCAN_LIMIT)
        bad = io_count_nonfinite(t->dtype, t->data, t->n);
    if (bad > 0 && !in_place)
        bad = count_nonfinite(l);
    if (bad > 0)
        strbuf_printf(&report->warnings,
                      "'%s': %" PRId64 " of %" PRId64 " elements of '%s' are NaN or infinite\n",
                      t->file, bad, t->n, t->name);
    const QuantForm *f = &l->param->quant;
    const cvn_type type = param_type(l->param, l->model->dtype);
    int64_t all = l->param->form == PARAM_PANELS ? f->panels * f->units : cvn_type_elements(&type);
    double part = in_place ? 1 : (double)atomic_load(&l->done) / (double)all;
    report->read_bytes += tensor_bytes(t) * part;
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

static int load_one(Runtime *rt, const cvn_model *model, int index, LoadReport *report,
                    cvn_err *err)
{
    const ParamList *params = &model->io.params;
    Buffer *b = runtime_buffer(rt, ROLE_WEIGHT, index);
    Load l = {.model = model, .param = &params->param[index], .index = index};
    const Source source = {.read = read_weight, .context = &l};
    if (!b || l.param->form == PARAM_SCALES)
        return CVN_OK; /* no program has it; or it comes with its numbers */
    if (!model->io.source) {
        bool scaled = l.param->form == PARAM_PANELS;
        Buffer *scale = scaled ? runtime_buffer(rt, ROLE_WEIGHT, l.param->scale) : NULL;
        int code = buffer_fill(rt, b, &source, err);
        l.param = scale ? &params->param[l.param->scale] : NULL;
        return code || !scale ? code : buffer_fill(rt, scale, &source, err);
    }
    Source from = source;
    from.mapped = mapped_at(&l);
    bool scaled = l.param->form == PARAM_PANELS;
    size_t scale_bytes =
        scaled ? (size_t)l.param->quant.panels * quant_scale_bytes(&l.param->quant) : 0;
    if (scaled && model->io.quantizes && !(l.scales = calloc(1, scale_bytes + 1)))
        return err_set(err, CVN_EMEM, "no memory for the scales of %s", l.param->name);
    int code = buffer_fill(rt, b, &from, err);
    if (code == CVN_OK && scaled) {
        const uint8_t *in_file =
            model->io.quantizes ? NULL : model->io.source[l.param->scale]->data;
        Load of_scales = {.param = l.param,
                          .scales = l.scales ? l.scales : (uint8_t *)(uintptr_t)in_file};
        code = buffer_fill(rt, runtime_buffer(rt, ROLE_WEIGHT, l.param->scale),
                           &(Source){.read = read_scales, .context = &of_scales, .mapped = in_file},
                           err);
    }
    free(l.scales);
    if (code)
        return code;
    bool in_place = from.mapped && buffer_address(rt, b, 0) == from.mapped;
    if (!in_place)
        give_back(model->io.source[index]);
    report_weight(&l, in_place, report);
    return CVN_OK;
}

int load_weights(Runtime *rt, const cvn_model *model, LoadReport *report, cvn_err *err)
{
    size_t bytes = 0;
    *report = (LoadReport){0};
    for (int i = 0; i < model->io.params.n; i++) {
        const Load l = {.model = model, .param = &model->io.params.param[i], .index = i};
        const Buffer *b = runtime_buffer(rt, ROLE_WEIGHT, i);
        bool copied = !model->io.source || !mapped_at(&l) || (b && b->layout != LAYOUT_PLAIN);
        bytes += b && copied ? b->bytes * (size_t)rt->info.n_local : 0;
    }
    char what[256];
    if (model->io.path)
        snprintf(what, sizeof what, "the weights of '%.200s' in memory", model->io.path);
    else
        snprintf(what, sizeof what, "the weights of this shape");
    TRY(room_check_memory(bytes, what, err));
    for (int i = 0; i < model->io.params.n; i++)
        TRY(load_one(rt, model, i, report, err));
    return CVN_OK;
}
