#include "train/data/cache.h"

#include "base/crc32c.h"
#include "base/heap.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { VERSION = 1, FLAG_LEARN = 1, FLAG_SUM = 2 };

typedef struct Header {
    char magic[8];
    uint32_t version, width;
    uint64_t vocab, tokens, documents;
    uint32_t flags, sum;
    uint64_t key;
    uint32_t zero, header_sum;
} Header;
static_assert(sizeof(Header) == TOKEN_FILE_HEADER, "the header is packed as the table says");

bool token_file_is(const void *bytes, size_t n)
{
    return n >= 8 && memcmp(bytes, TOKEN_FILE_MAGIC, 8) == 0;
}

/* ---- reading ---- */

static int check_header(const Header *h, const char *name, size_t n, cvn_err *err)
{
    if (n < sizeof *h || !token_file_is(h->magic, sizeof h->magic))
        return err_set(err, CVN_EFORMAT, "'%s' is not a token file: it has no header of %d bytes",
                       name, TOKEN_FILE_HEADER);
    if (h->version != VERSION)
        return err_set(err, CVN_EUNSUPPORTED,
                       "'%s' is a file of tokens of version %" PRIu32 ", and %d is what is known",
                       name, h->version, VERSION);
    if ((h->width != 2 && h->width != 4) || h->flags > (FLAG_LEARN | FLAG_SUM) || h->zero)
        return err_set(err, CVN_EFORMAT,
                       "'%s': the header says width %" PRIu32 " and flags %" PRIu32
                       ", expected 2 or 4, and at most 3",
                       name, h->width, h->flags);
    if (h->vocab < 1 || h->vocab > (h->width == 2 ? (uint64_t)1 << 16 : (uint64_t)INT32_MAX))
        return err_set(err, CVN_EFORMAT,
                       "'%s': the header says a vocabulary of %" PRIu64 ", which ids of %" PRIu32
                       " bytes cannot have",
                       name, h->vocab, h->width);
    if (h->flags & FLAG_SUM && crc32c(0, h, sizeof *h - 4) != h->header_sum)
        return err_set(err, CVN_EFORMAT, "'%s': the header does not have its checksum", name);
    return CVN_OK;
}

/* Whether the sizes that the header gives are those of a file of n bytes; *ids gets those of the ids. */
static bool sizes_fit(const Header *h, size_t n, size_t *ids)
{
    uint64_t room = n - sizeof *h;
    if (h->tokens < 1 || h->tokens > room / h->width || h->documents > h->tokens)
        return false;
    *ids = (h->tokens * h->width + 7) & ~(size_t)7;
    uint64_t learn = h->flags & FLAG_LEARN ? (h->tokens + 63) / 64 * 8 : 0;
    return h->documents <= room / 8 && room == *ids + h->documents * 8 + learn;
}

int token_file_parse(TokenFile *file, const char *name, const void *bytes, size_t n, cvn_err *err)
{
    Header h = {0};
    size_t ids = 0;
    *file = (TokenFile){0};
    if (n)
        memcpy(&h, bytes, n < sizeof h ? n : sizeof h);
    TRY(check_header(&h, name, n, err));
    if (!sizes_fit(&h, n, &ids))
        return err_set(err, CVN_EFORMAT,
                       "'%s' has %zu bytes, but %" PRIu64 " tokens of %" PRIu32
                       " bytes and %" PRIu64
                       " documents need another size; it was cut short or assembled wrongly",
                       name, n, h.tokens, h.width, h.documents);
    const uint8_t *at = (const uint8_t *)bytes + sizeof h;
    file->width = (int)h.width;
    file->vocab = (int64_t)h.vocab;
    file->n_tokens = (int64_t)h.tokens;
    file->n_documents = h.documents ? (int64_t)h.documents : 1;
    file->key = h.key;
    file->token = at;
    file->document = h.documents ? (const uint64_t *)(const void *)(at + ids) : NULL;
    file->learn =
        h.flags & FLAG_LEARN ? (const uint64_t *)(const void *)(at + ids + h.documents * 8) : NULL;
    file->sum = crc32c(0, at, n - sizeof h);
    if (h.flags & FLAG_SUM && h.sum != file->sum)
        return err_set(err, CVN_EFORMAT, "'%s' is corrupt: its checksum is wrong", name);
    for (int64_t i = 0; file->document && i < file->n_documents; i++) {
        uint64_t least = i ? file->document[i - 1] + 1 : 0;
        if (file->document[i] < least || (i == 0 && file->document[0] > 0) ||
            file->document[i] >= h.tokens)
            return err_set(err, CVN_EFORMAT,
                           "'%s': document %" PRId64 " begins at token %" PRIu64
                           "; the first must begin at 0, each after the one before, and all "
                           "within %" PRId64 " tokens",
                           name, i, file->document[i], file->n_tokens);
    }
    for (int64_t i = 0; i < file->n_tokens && !(h.flags & FLAG_SUM); i++) {
        int32_t id = token_file_id(file, i);
        if (id < 0 || id >= file->vocab)
            return err_set(err, CVN_EFORMAT,
                           "'%s': token %" PRId64 " is %" PRIu32
                           ", and the header says that ids are below %" PRId64,
                           name, i, (uint32_t)id, file->vocab);
    }
    return CVN_OK;
}

int token_file_open(TokenFile *file, const char *path, cvn_err *err)
{
    FileMap map;
    *file = (TokenFile){0};
    TRY(file_map(&map, path, err));
    int code = token_file_parse(file, path, map.data, map.size, err);
    file->map = map;
    if (code)
        token_file_close(file);
    return code;
}

void token_file_close(TokenFile *file)
{
    file_unmap(&file->map);
    *file = (TokenFile){0};
}

/* ---- writing ---- */

int token_writer_open(TokenWriter *writer, const char *path, int64_t vocab, uint64_t key,
                      cvn_err *err)
{
    *writer = (TokenWriter){.vocab = vocab, .key = key, .width = vocab > 1 << 16 ? 4 : 2};
    Header empty = {0};
    TRY(file_writer_open(&writer->file, path, err));
    return file_writer_write(&writer->file, &empty, sizeof empty, err);
}

static int put(TokenWriter *writer, const void *bytes, size_t n, cvn_err *err)
{
    writer->sum = crc32c(writer->sum, bytes, n);
    return file_writer_write(&writer->file, bytes, n, err);
}

/* Room for one more document and for the learn bits of tokens up to n_tokens. */
static int reserve(TokenWriter *writer, int64_t n_tokens, cvn_err *err)
{
    size_t words = ((size_t)n_tokens + 63) / 64;
    uint64_t *document = heap_more(writer->document, writer->n_documents, sizeof *document);
    if (!document)
        return err_set(err, CVN_EMEM, "no memory for the index of %zu documents",
                       writer->n_documents + 1);
    writer->document = document;
    while (writer->n_words < words) {
        uint64_t *learn = heap_more(writer->learn, writer->n_words, sizeof *learn);
        if (!learn)
            return err_set(err, CVN_EMEM, "no memory for the loss mask of %" PRId64 " tokens",
                           n_tokens);
        writer->learn = learn;
        writer->learn[writer->n_words++] = 0;
    }
    return CVN_OK;
}

int token_writer_add(TokenWriter *writer, const int32_t *ids, size_t n, const uint8_t *learn,
                     bool begins, cvn_err *err)
{
    uint16_t narrow[4096];
    const size_t most = sizeof narrow / sizeof *narrow;
    if (n == 0)
        return CVN_OK;
    TRY(reserve(writer, writer->n_tokens + (int64_t)n, err));
    if (begins || writer->n_tokens == 0)
        writer->document[writer->n_documents++] = (uint64_t)writer->n_tokens;
    for (size_t i = 0; i < n; i++) {
        uint64_t t = (uint64_t)writer->n_tokens + i;
        if (!learn || learn[i])
            writer->learn[t / 64] |= (uint64_t)1 << t % 64;
        else
            writer->partial = true;
    }
    writer->n_tokens += (int64_t)n;
    if (writer->width == 4)
        return put(writer, ids, n * sizeof *ids, err);
    for (size_t i = 0; i < n; i += most) {
        size_t part = n - i < most ? n - i : most;
        for (size_t j = 0; j < part; j++)
            narrow[j] = (uint16_t)ids[i + j];
        TRY(put(writer, narrow, part * sizeof *narrow, err));
    }
    return CVN_OK;
}

int token_writer_commit(TokenWriter *writer, cvn_err *err)
{
    static const uint8_t zeros[8];
    size_t n = (size_t)writer->n_tokens;
    Header h = {.magic = TOKEN_FILE_MAGIC,
                .version = VERSION,
                .width = (uint32_t)writer->width,
                .vocab = (uint64_t)writer->vocab,
                .tokens = n,
                .documents = writer->n_documents,
                .flags = FLAG_SUM | (writer->partial ? FLAG_LEARN : 0),
                .key = writer->key};
    TRY(put(writer, zeros, -(n * h.width) % 8, err));
    TRY(put(writer, writer->document, writer->n_documents * 8, err));
    if (writer->partial)
        TRY(put(writer, writer->learn, (n + 63) / 64 * 8, err));
    h.sum = writer->sum;
    h.header_sum = crc32c(0, &h, sizeof h - 4);
    TRY(file_writer_patch(&writer->file, 0, &h, sizeof h, err));
    return file_writer_commit(&writer->file, err);
}

void token_writer_free(TokenWriter *writer)
{
    file_writer_free(&writer->file);
    free(writer->document);
    free(writer->learn);
    *writer = (TokenWriter){.file = {.fd = -1}};
}
