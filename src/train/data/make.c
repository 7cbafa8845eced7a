/*
 * Making the cache. Units are taken in batches; the threads of a pool encode those of a batch, each the
 * next that is free; then their ids are written in order. Two processes that make the same cache at once
 * both write the same bytes beside it and rename them: whoever comes last wins, and nothing is lost.
 */
#include "base/map.h"
#include "base/threads.h"
#include "train/data/data_impl.h"
#include "train/data/encode.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH_UNITS = 4096, FORMAT = 2 };
#define BATCH_BYTES ((size_t)16 << 20)

typedef struct Maker {
    SourceReader reader;
    ChatWriter chat; /* owned: of the encoder */
    DataEncoder encoder;
    SourceUnit *unit;     /* [BATCH_UNITS], owned */
    EncodedUnit *encoded; /* [BATCH_UNITS], owned: of the units of the same place */
    size_t n;             /* units of the present batch */
    atomic_size_t next;   /* the first unit that no thread has taken */
    atomic_size_t failed; /* the first unit that failed, or n */
    cvn_err *errors;      /* [threads], owned: the first error of each thread's last failed unit */
    size_t *where;        /* [threads], owned: the unit it is of */
    Pool *pool;           /* owned */
    TokenWriter writer;
} Maker;

static void encode_units(void *context, int thread, int n_threads)
{
    Maker *m = context;
    (void)n_threads;
    for (size_t i; (i = atomic_fetch_add(&m->next, 1)) < m->n;) {
        cvn_err err = {0};
        if (i > atomic_load(&m->failed) ||
            !data_encode(&m->encoder, &m->unit[i], &m->encoded[i], &err))
            continue;
        /* A thread's units come in rising order: its first failure is its lowest. */
        if (m->errors[thread].code == CVN_OK) {
            m->errors[thread] = err;
            m->where[thread] = i;
        }
        size_t least = atomic_load(&m->failed);
        while (i < least && !atomic_compare_exchange_weak(&m->failed, &least, i))
            continue;
    }
}

static int write_units(Maker *m, cvn_err *err)
{
    size_t failed = atomic_load(&m->failed);
    for (int t = 0; failed < m->n && t < pool_threads(m->pool); t++)
        if (m->errors[t].code && m->where[t] == failed) {
            *err = m->errors[t];
            return err->code;
        }
    for (size_t i = 0; i < m->n; i++) {
        const EncodedUnit *e = &m->encoded[i];
        const uint8_t *learn = e->learn.length ? (const uint8_t *)e->learn.text : NULL;
        for (size_t k = 0, from = 0; k < e->end.n || k == 0; k++) {
            size_t end = e->end.n ? (size_t)e->end.id[k] : e->ids.n;
            TRY(token_writer_add(&m->writer, e->ids.id + from, end - from,
                                 learn ? learn + from : NULL, k || m->unit[i].begins, err));
            from = end;
        }
    }
    return CVN_OK;
}

static int make_all(Maker *m, const SourceList *list, const DataOptions *options, int64_t total,
                    cvn_err *err)
{
    do {
        TRY(source_batch(&m->reader, m->unit, BATCH_UNITS, BATCH_BYTES, &m->n, err));
        atomic_store(&m->next, 0);
        atomic_store(&m->failed, m->n);
        if (m->n)
            pool_run(m->pool, encode_units, m);
        TRY(write_units(m, err));
        if (options->progress &&
            !options->progress(options->context, source_position(&m->reader), total))
            return err_set(err, CVN_EINTERRUPTED, "interrupted while tokenizing");
    } while (m->n);
    for (size_t i = 0; i < list->n; i++)
        TRY(source_unchanged(&list->file[i], err));
    if (m->writer.n_tokens == 0)
        return err_set(err, CVN_EFORMAT, "'%s' has no text", list->file[0].path);
    return token_writer_commit(&m->writer, err);
}

static int write_cache(const SourceList *list, const DataOptions *options, const char *path,
                       uint64_t key, int64_t total, cvn_err *err)
{
    cvn_err inner = {0};
    int32_t vocab = tokenizer_vocab_size(options->tokenizer);
    SCOPED(scoped_free) Maker *m = calloc(1, sizeof *m);
    if (!m)
        return err_set(err, CVN_EMEM, "no memory to tokenize");
    m->writer.file.fd = -1;
    m->reader.list = list;
    m->reader.separator = options->separator ? options->separator : SOURCE_SEPARATOR;
    if (options->chat)
        chat_writer_init(&m->chat, options->chat, options->tokenizer);
    m->encoder = (DataEncoder){.tokenizer = options->tokenizer,
                               .chat = options->chat ? &m->chat : NULL,
                               .no_chat = options->no_chat,
                               .pairs = options->pairs};
    m->unit = calloc(BATCH_UNITS, sizeof *m->unit);
    m->encoded = calloc(BATCH_UNITS, sizeof *m->encoded);
    m->pool = pool_new(options->threads, &inner);
    int code = m->pool ? CVN_OK : inner.code;
    int threads = m->pool ? pool_threads(m->pool) : 1;
    m->errors = calloc((size_t)threads, sizeof *m->errors);
    m->where = calloc((size_t)threads, sizeof *m->where);
    if (!code && (!m->unit || !m->encoded || !m->errors || !m->where))
        code = err_set(&inner, CVN_EMEM, "no memory to tokenize");
    if (!code)
        code = token_writer_open(&m->writer, path, vocab, key, &inner);
    if (!code)
        code = make_all(m, list, options, total, &inner);
    token_writer_free(&m->writer);
    source_reader_free(&m->reader);
    for (size_t i = 0; m->encoded && i < BATCH_UNITS; i++)
        encoded_unit_free(&m->encoded[i]);
    chat_writer_free(&m->chat);
    pool_free(m->pool);
    free(m->unit);
    free(m->encoded);
    free(m->errors);
    free(m->where);
    return code ? err_set(err, code, "%s", inner.message) : CVN_OK;
}

/* ---- which cache ---- */

/* What the ids depend on, as text, hashed. */
static uint64_t key_of(const SourceList *list, const DataOptions *options, cvn_err *err)
{
    SCOPED(strbuf_free) StrBuf text = {0};
    strbuf_printf(&text, "%d %016" PRIx64 "%s %s %s\n", FORMAT, tokenizer_hash(options->tokenizer),
                  options->pairs ? " pairs" : "",
                  options->chat ? chat_template_name(options->chat) : "-",
                  options->separator ? options->separator : SOURCE_SEPARATOR);
    if (options->chat)
        strbuf_puts(&text, chat_template_source(options->chat));
    for (size_t i = 0; i < list->n; i++) {
        const SourceFile *file = &list->file[i];
        char *whole = realpath(file->path, NULL);
        if (file->kind != SOURCE_TOKENS)
            strbuf_printf(&text, "%d %" PRId64 " %" PRId64 " %s\n", file->kind, file->size,
                          file->modified, whole ? whole : file->path);
        free(whole);
    }
    uint64_t key = text.failed ? 0 : hash_bytes(text.text, text.length);
    if (text.failed)
        err_set(err, CVN_EMEM, "no memory for the names of %zu files", list->n);
    return key ? key : 1;
}

/* Makes a folder and those it lies in. */
static int make_folders(Arena *arena, const char *path, cvn_err *err)
{
    char *part = arena_string(arena, path);
    for (char *slash = part + 1; *path && (slash = strchr(slash, '/')); slash++) {
        *slash = '\0';
        int code = file_make_folder(part, err);
        *slash = '/';
        if (code)
            return code;
    }
    return file_make_folder(path, err);
}

int data_make(TrainData *data, const SourceList *list, const DataOptions *options, DataFile *file,
              cvn_err *err)
{
    cvn_err inner = {0};
    int64_t total = 0, begin = clock_ns();
    if (!options->tokenizer)
        return err_set(err, CVN_EINVAL, "'%s' is text, but there is no tokenizer; give --tokenizer",
                       list->file[0].path);
    uint64_t key = key_of(list, options, &inner);
    if (inner.code)
        return err_set(err, inner.code, "%s", inner.message);
    const char *folder = options->cache, *base = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (!folder && base && base[0] == '/')
        folder = arena_printf(&data->arena, "%s/caravan", base);
    else if (!folder && home && home[0])
        folder = arena_printf(&data->arena, "%s/.cache/caravan", home);
    if (!folder)
        return err_set(err, CVN_EINVAL,
                       "no cache folder for tokenized data: $HOME is not set; set $XDG_CACHE_HOME");
    file->path = arena_printf(&data->arena, "%s/%016" PRIx64 ".tokens", folder, key);
    data->report.cache = file->path;
    if (file_exists(file->path) && token_file_open(&file->tokens, file->path, NULL) == CVN_OK) {
        if (file->tokens.key == key)
            return CVN_OK;
        token_file_close(&file->tokens);
    }
    for (size_t i = 0; i < list->n; i++)
        total += list->file[i].kind == SOURCE_TOKENS ? 0 : list->file[i].size;
    if (make_folders(&data->arena, folder, &inner))
        return err_set(err, inner.code,
                       "no cache folder for tokenized data: %s; set $XDG_CACHE_HOME",
                       inner.message);
    TRY(write_cache(list, options, file->path, key, total, err));
    TRY(token_file_open(&file->tokens, file->path, err));
    data->report.made = true;
    data->report.bytes = total;
    data->report.seconds = (double)(clock_ns() - begin) * 1e-9;
    return CVN_OK;
}
