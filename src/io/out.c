#include "io/out.h"

#include "base/capacity.h"
#include "base/crc32.h"
#include "base/num.h"
#include "base/threads.h"
#include "io/convert.h"
#include "io/encode.h"
#include "io/packed.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ELEMENTS = 1 << 16 /* of a thread between two writes */, F16_MOST = 65504 };

void out_file(Out *out, const char *name)
{
    out->file = arena_more(out->arena, out->file, out->n_files, sizeof *out->file);
    out->file[out->n_files++] = (OutFile){.name = name};
}

static OutPiece *add(Out *out, OutPiece piece)
{
    OutFile *f = &out->file[out->n_files - 1];
    f->piece = arena_more(out->arena, f->piece, f->n, sizeof *f->piece);
    f->piece[f->n] = piece;
    f->bytes += piece.n;
    return &f->piece[f->n++];
}

uint8_t *out_bytes(Out *out, const void *bytes, size_t n)
{
    return add(out, (OutPiece){.bytes = arena_copy(out->arena, bytes, n), .n = n})->bytes;
}

void out_text(Out *out, StrBuf *text)
{
    CLEANUP(strbuf_release, text);
    out_bytes(out, text->text, text->length);
}

void out_padding(Out *out, uint64_t multiple)
{
    static const uint8_t zeros[1 << 12];
    uint64_t n = (multiple - out->file[out->n_files - 1].bytes % multiple) % multiple;
    if (n)
        out_bytes(out, zeros, (size_t)n);
}

uint64_t out_type_bytes(OutType type, int64_t n)
{
    const BlockInfo *info = &block_info[type.block];
    return type.block ? (uint64_t)(n / info->elements) * (uint64_t)info->bytes
                      : (uint64_t)cvn_dtype_bytes(type.dtype, n);
}

static size_t scale_bytes(const QuantForm *f)
{
    return cvn_dtype_bytes(f->scale_dtype, f->groups);
}

/* Bytes of a row's scales that follow the numbers of all rows. */
static size_t apart_bytes(const OutPiece *p)
{
    if (p->param->form == PARAM_QUANTIZED)
        return scale_bytes(&p->param->quant);
    return p->type.apart ? (size_t)(p->columns / block_info[p->type.block].elements) * sizeof(float)
                         : 0;
}

uint64_t out_param_bytes(const Param *param, OutType type)
{
    const QuantForm *f = &param->quant;
    if (param->form != PARAM_QUANTIZED)
        return out_type_bytes(type, param->n);
    return cvn_dtype_bytes(f->dtype, param->n) + (uint64_t)f->n * scale_bytes(f);
}

OutPiece *out_param(Out *out, const Param *param, OutType type, int dim, int shard, int shards)
{
    bool matrix = param->file_rank == 2, column = !matrix && param->rotated;
    OutPiece piece = {.param = param, .type = type};
    piece.rows = matrix ? param->file_dims[0] : column ? param->n : 1;
    piece.columns = param->n / piece.rows;
    if (dim == 0) {
        piece.rows /= shards;
        piece.row = shard * piece.rows;
    } else if (dim == 1) {
        piece.columns /= shards;
        piece.column = shard * piece.columns;
    }
    piece.n =
        dim < 0 ? out_param_bytes(param, type) : out_type_bytes(type, piece.rows * piece.columns);
    return add(out, piece);
}

void out_tensor(Out *out, const ParamList *params, const ParamTensor *t, OutType type)
{
    const Param *first = &params->param[t->member[0]];
    const bool experts = t->rank > first->file_rank;
    if (experts && t->form & (TENSOR_TURNED | TENSOR_ALTERNATING)) {
        OutPiece piece = {.param = first,
                          .type = type,
                          .n = out_type_bytes(type, t->elements),
                          .params = params->param,
                          .shared = arena_copy(out->arena, t, sizeof *t)};
        piece.columns = t->rank > 2 ? t->dims[2] : 1;
        piece.rows = t->elements / piece.columns;
        add(out, piece);
        return;
    }
    for (int64_t e = 0; e < (experts && t->n > 1 ? first->experts : 1); e++)
        for (int k = 0; k < t->n; k++)
            out_param(out, &params->param[t->member[k]], type, experts && t->n > 1 ? 0 : -1, (int)e,
                      (int)first->experts);
}

/* ---- one weight ---- */

/* A weight being written, some rows at a time. */
typedef struct Rows {
    Out *out;
    const OutPiece *piece;
    const IoTensor *tensor;
    int64_t first, n;   /* of the piece's rows, in this turn */
    size_t row_bytes;   /* of one, encoded, without what follows all rows */
    bool packed;        /* the model has these blocks in tensors of another program (packed.h) */
    float *values;      /* [n * columns] */
    uint8_t *encoded;   /* [n * row_bytes] */
    uint8_t *scales;    /* what follows all rows; or NULL */
    int64_t *too_large; /* [threads] */
} Rows;

/* A row of blocks, of values or of the model's own from element `first` on; a block of floats begins with its scale. */
static void encode_blocks(const Rows *r, const float *values, const float *importance,
                          int64_t first, int64_t row, uint8_t *to)
{
    const OutPiece *p = r->piece;
    const BlockInfo *info = &block_info[p->type.block];
    uint8_t *scale = p->type.apart ? r->scales + (size_t)row * apart_bytes(p) : NULL;
    for (int64_t at = 0; at < p->columns; at += info->elements) {
        uint8_t block[BLOCK_MOST * 2];
        if (r->packed)
            packed_blocks(r->tensor, p->type.block, (first + at) / info->elements, 1, block);
        else
            block_encode(p->type.block, values + at, importance ? importance + at : NULL,
                         info->elements, block);
        const size_t apart = scale ? sizeof(float) : 0, rest = (size_t)info->bytes - apart;
        if (apart)
            memcpy(scale, block, apart);
        memcpy(to, block + apart, rest);
        scale = scale ? scale + apart : NULL;
        to += rest;
    }
}

static void encode_rows(void *context, int thread, int n_threads)
{
    const Rows *r = context;
    const OutPiece *p = r->piece;
    const IoTensor *t = r->tensor;
    int64_t begin = r->n * thread / n_threads, end = r->n * (thread + 1) / n_threads;
    int64_t width = p->param->n / (p->param->file_rank == 2 ? p->param->file_dims[0]
                                   : p->columns == 1        ? p->param->n
                                                            : 1);
    bool same = p->type.block && t->coding == IO_BLOCKS && t->block->kind == p->type.block &&
                !t->n_parts && !t->adapter && p->columns == width;
    const float *importance =
        p->type.block && r->out->importance ? r->out->importance(r->out->context, p->param) : NULL;
    importance = importance ? importance + p->column : NULL;
    for (int64_t i = begin; i < end; i++) {
        int64_t from = io_row(r->out->model, p->param, p->row + r->first + i, r->out->interleaved);
        float *values = r->values + i * p->columns;
        uint8_t *to = r->encoded + (size_t)i * r->row_bytes;
        if (same) {
            memcpy(to, t->data + (size_t)from * r->row_bytes, r->row_bytes);
            continue;
        }
        io_decode(t, from * width + p->column, p->columns, values);
        for (int64_t c = 0; r->out->above_one && p->param->above_one && c < p->columns; c++)
            values[c] += 1;
        for (int64_t c = 0; p->type.dtype == CVN_F16 && !p->type.block && c < p->columns; c++)
            r->too_large[thread] += isfinite(values[c]) && fabsf(values[c]) > F16_MOST;
        if (p->param->form == PARAM_QUANTIZED)
            quant_row(&p->param->quant, values, p->columns, to,
                      r->scales + (size_t)(r->first + i) * scale_bytes(&p->param->quant));
        else if (p->type.block)
            encode_blocks(r, values, importance, from * width + p->column, r->first + i, to);
        else
            io_encode(p->type.dtype, values, p->columns, to);
    }
}

static const IoTensor *source_of(const Out *out, const Param *param)
{
    const ParamList *params = &out->model->params;
    const Param *same = params_find(params, param->kind, param->layer);
    if (!same)
        same = params_find(params, PARAM_EMBED, -1); /* the head of a tied model */
    return out->model->source[same - params->param];
}

/* Rows of what experts share in turns, or with rows and columns changed: of the latter some columns of matrices at once. */
static void encode_shared(void *context, int thread, int n_threads)
{
    enum { AT_ONCE = 64 };
    const Rows *r = context;
    const OutPiece *p = r->piece;
    const ParamTensor *t = p->shared;
    const bool turned = t->form & TENSOR_TURNED, takes_turns = t->form & TENSOR_ALTERNATING;
    const int64_t rows = t->dims[turned ? 2 : 1] / t->n; /* of a matrix, and its columns */
    const int64_t columns = turned ? t->dims[1] : p->columns;
    const int64_t end = r->n * (thread + 1) / n_threads;
    for (int64_t i = r->n * thread / n_threads, n; i < end; i += n) {
        const int64_t at = (r->first + i) % t->dims[1], matrix = (r->first + i) / t->dims[1] * rows;
        n = turned ? num_min(num_min(AT_ONCE, end - i), columns - at) : 1;
        float *to = r->values + i * p->columns, column[AT_ONCE];
        for (int k = 0; k < t->n; k++) {
            const IoTensor *from = source_of(r->out, &p->params[t->member[k]]);
            if (!turned && at % t->n == k)
                io_decode(from, (matrix + at / t->n) * columns, columns, to);
            for (int64_t row = 0; turned && row < rows; row++) {
                io_decode(from, (matrix + row) * columns + at, n, column);
                for (int64_t c = 0; c < n; c++)
                    to[c * p->columns + (takes_turns ? row * t->n + k : k * rows + row)] =
                        column[c];
            }
        }
        for (int64_t c = 0; p->type.dtype == CVN_F16 && c < n * p->columns; c++)
            r->too_large[thread] += isfinite(to[c]) && fabsf(to[c]) > F16_MOST;
        io_encode(p->type.dtype, to, n * p->columns, r->encoded + (size_t)i * r->row_bytes);
    }
}

/* ---- a file ---- */

typedef struct Writing {
    Out *out;
    Pool *pool;
    const char *path;
    int fd;
    uint64_t at, there; /* bytes written or passed over; bytes that an earlier attempt left */
    Crc32 *crc;
    void *buffer; /* owned: what a weight goes through */
} Writing;

static int io_failed(const Writing *w, const char *what, cvn_err *err)
{
    return err_set(err, CVN_EIO, "cannot %s '%s': %s", what, w->path, strerror(errno));
}

static int put(Writing *w, const void *bytes, uint64_t n, cvn_err *err)
{
    const uint8_t *from = bytes;
    while (n > 0) {
        ssize_t done = pwrite(w->fd, from, (size_t)n, (off_t)w->at);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return io_failed(w, "write", err);
        from += done;
        w->at += (uint64_t)done;
        n -= (uint64_t)done;
    }
    return CVN_OK;
}

/* Reads n bytes that were written before, from `at` on. */
static int get(Writing *w, void *bytes, size_t n, uint64_t at, cvn_err *err)
{
    uint8_t *to = bytes;
    while (n > 0) {
        ssize_t done = pread(w->fd, to, n, (off_t)at);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return io_failed(w, "read", err);
        to += done;
        at += (uint64_t)done;
        n -= (size_t)done;
    }
    return CVN_OK;
}

/* Writes bytes as they are. Where other bytes are there already, the file is another one from there on. */
static int write_bytes(Writing *w, const OutPiece *p, cvn_err *err)
{
    uint64_t left = w->there > w->at ? w->there - w->at : 0;
    if (left >= p->n && p->n > 0) {
        uint8_t *found = malloc((size_t)p->n);
        int code = found ? get(w, found, (size_t)p->n, w->at, err)
                         : err_set(err, CVN_EMEM, "no memory to compare '%s'", w->path);
        bool same = code == CVN_OK && memcmp(found, p->bytes, (size_t)p->n) == 0;
        free(found);
        TRY(code);
        if (same) {
            w->at += p->n;
            return CVN_OK;
        }
    }
    w->there = 0;
    return put(w, p->bytes, p->n, err);
}

static void keep_crc(const OutPiece *p, uint32_t crc)
{
    for (int i = 0; i < 2; i++)
        if (p->crc[i])
            memcpy(p->crc[i], &crc, sizeof crc);
}

/* A weight that is there already: only its checksum is wanted. */
static int pass_over(Writing *w, const OutPiece *p, cvn_err *err)
{
    uint8_t piece[1 << 14];
    uint32_t crc = 0;
    for (uint64_t done = 0; p->crc[0] && done < p->n;) {
        size_t n = p->n - done < sizeof piece ? (size_t)(p->n - done) : sizeof piece;
        TRY(get(w, piece, n, w->at + done, err));
        crc = crc32(w->crc, crc, piece, n);
        done += n;
    }
    keep_crc(p, crc);
    w->at += p->n;
    return CVN_OK;
}

static int write_rows(Writing *w, const OutPiece *p, Rows *r, int64_t together, cvn_err *err)
{
    uint32_t crc = 0;
    for (r->first = 0; r->first < p->rows; r->first += together) {
        r->n = num_min(p->rows - r->first, together);
        if (flag_is_set(w->out->interrupt))
            return err_set(err, CVN_EINTERRUPTED, "interrupted while writing '%s'%s", w->path,
                           w->out->resumes ? "; repeat the command to resume" : "");
        pool_run(w->pool, p->shared ? encode_shared : encode_rows, r);
        size_t bytes = (size_t)r->n * r->row_bytes;
        if (p->crc[0])
            crc = crc32(w->crc, crc, r->encoded, bytes);
        TRY(put(w, r->encoded, bytes, err));
    }
    if (r->scales)
        TRY(put(w, r->scales, (uint64_t)p->rows * apart_bytes(p), err));
    keep_crc(p, crc);
    return CVN_OK;
}

/* A quantized weight, its numbers and scales given by somebody else. */
static int write_rounded(Writing *w, const OutPiece *p, cvn_err *err)
{
    const QuantForm *f = &p->param->quant;
    const Out *out = w->out;
    const size_t row = cvn_dtype_bytes(f->dtype, f->k), scales = scale_bytes(f);
    const size_t n = (size_t)f->n * row;
    const bool known = w->there >= w->at + p->n;
    SCOPED(scoped_free) uint8_t *model = malloc((size_t)p->n), *file = malloc((size_t)p->n);
    if (!model || !file)
        return err_set(err, CVN_EMEM, "no memory to write '%s'", p->param->name);
    if (known)
        TRY(get(w, file, (size_t)p->n, w->at, err));
    else
        w->there = 0;
    for (int turn = known ? 0 : 1; turn < (known ? 1 : 2); turn++) {
        if (turn == 1)
            TRY(out->round(out->context, p->param, false, model, model + n, err));
        for (int64_t i = 0; i < f->n; i++) {
            const size_t a = (size_t)i,
                         b = (size_t)io_row(out->model, p->param, i, out->interleaved);
            uint8_t *to = turn ? file : model;
            const uint8_t *from = turn ? model : file;
            const size_t t = turn ? a : b, s = turn ? b : a;
            memcpy(to + t * row, from + s * row, row);
            memcpy(to + n + t * scales, from + n + s * scales, scales);
        }
    }
    if (known) {
        TRY(out->round(out->context, p->param, true, model, model + n, err));
        w->at += p->n;
        return CVN_OK;
    }
    return put(w, file, p->n, err);
}

static int write_param(Writing *w, const OutPiece *p, cvn_err *err)
{
    const QuantForm *f = p->param->form == PARAM_QUANTIZED ? &p->param->quant : NULL;
    int64_t too_large[THREADS_MAX] = {0};
    if (f && w->out->round)
        return write_rounded(w, p, err);
    if (w->there >= w->at + p->n)
        return pass_over(w, p, err);
    w->there = 0;
    int threads = pool_threads(w->pool);
    int64_t together = (int64_t)ELEMENTS * threads / p->columns;
    together = num_min(together ? together : 1, p->rows);
    Rows r = {.out = w->out,
              .piece = p,
              .tensor = source_of(w->out, p->param),
              .row_bytes = f ? cvn_dtype_bytes(f->dtype, f->k)
                             : (size_t)out_type_bytes(p->type, p->columns) - apart_bytes(p),
              .too_large = too_large};
    r.packed = p->type.block && r.tensor->coding == IO_PACKED && !r.tensor->adapter &&
               packed_kind(r.tensor) == p->type.block;
    r.values = malloc((size_t)(together * p->columns) * sizeof *r.values);
    r.encoded = malloc((size_t)together * r.row_bytes);
    r.scales = apart_bytes(p) ? malloc((size_t)p->rows * apart_bytes(p)) : NULL;
    int code = r.values && r.encoded && (!apart_bytes(p) || r.scales)
                   ? write_rows(w, p, &r, together, err)
                   : err_set(err, CVN_EMEM, "no memory to write '%s'", p->param->name);
    free(r.values);
    free(r.encoded);
    free(r.scales);
    for (int t = 0; t < threads; t++)
        w->out->too_large += too_large[t];
    return code;
}

static int write_pieces(Writing *w, const OutFile *file, cvn_err *err)
{
    struct stat found;
    if (fstat(w->fd, &found) != 0)
        return io_failed(w, "look at", err);
    w->there = (uint64_t)found.st_size;
    for (size_t i = 0; i < file->n; i++)
        TRY((file->piece[i].param ? write_param : write_bytes)(w, &file->piece[i], err));
    if (ftruncate(w->fd, (off_t)w->at) != 0 || fsync(w->fd) != 0)
        return io_failed(w, "finish", err);
    return CVN_OK;
}

static int write_file(Out *out, Pool *pool, Crc32 *crc, const char *folder, const OutFile *file,
                      cvn_err *err)
{
    const FilePath path = file_path(folder, file->name);
    Writing w = {.out = out, .pool = pool, .path = path.text, .crc = crc};
    w.fd = open(path.text, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (w.fd < 0)
        return io_failed(&w, "write", err);
    int code = write_pieces(&w, file, err);
    if (close(w.fd) != 0 && code == CVN_OK)
        code = io_failed(&w, "finish", err);
    return code;
}

int out_write(Out *out, const char *folder, cvn_err *err)
{
    uint64_t bytes = 0;
    Pool *pool = pool_new(out->threads, err);
    Crc32 crc;
    if (!pool)
        return CVN_EINVAL;
    crc32_init(&crc);
    for (size_t i = 0; i < out->n_files; i++) {
        struct stat there;
        const FilePath path = file_path(folder, out->file[i].name);
        bytes += out->file[i].bytes;
        if (stat(path.text, &there) == 0)
            bytes -= num_min((int64_t)out->file[i].bytes, (int64_t)there.st_size);
    }
    int code = capacity_check_disk(folder, bytes, err);
    for (size_t i = 0; i < out->n_files && code == CVN_OK; i++)
        code = write_file(out, pool, &crc, folder, &out->file[i], err);
    pool_free(pool);
    return code;
}
