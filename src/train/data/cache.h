/*
 * Files of token ids: what data_open makes of text, and what others may make for it ("shards"). Numbers
 * are little endian.
 *
 *     offset  bytes  what
 *          0      8  "CVNTOKEN"
 *          8      4  u32 version: 1
 *         12      4  u32 width: bytes of an id, 2 or 4
 *         16      8  u64 vocab: every id is below; at most 65536 where width is 2
 *         24      8  u64 tokens, >= 1
 *         32      8  u64 documents; 0: all is one document
 *         40      4  u32 flags: 1 there are learn bits, 2 the sum is given
 *         44      4  u32 sum: CRC-32C of everything behind the header, or 0
 *         48      8  u64 key: what the tokens were made from; 0 in a shard
 *         56      4  u32 0
 *         60      4  u32 CRC-32C of bytes 0 … 59, or 0 where the sum is not given
 *         64      …  the ids: [tokens] of `width` bytes; then zeros up to a multiple of 8
 *          …      …  u64 [documents]: the first token of each; 0 first, ascending
 *          …      …  where there are learn bits, u64 [(tokens + 63) / 64]: bit t % 64 of word t / 64 says
 *                    whether token t is to be learnt, that is, predicted from those before it
 *
 * and there the file ends. A shard of one document, by Python:
 *
 *     head = struct.pack("<8sIIQQQIIQII", b"CVNTOKEN", 1, 2, vocab, len(ids), 0, 0, 0, 0, 0, 0)
 *     open("shard.bin", "wb").write(head + ids.astype("<u2").tobytes() + bytes(-2 * len(ids) % 8))
 */
#ifndef CVN_TRAIN_DATA_CACHE_H
#define CVN_TRAIN_DATA_CACHE_H

#include "base/file.h"

enum { TOKEN_FILE_HEADER = 64 };
#define TOKEN_FILE_MAGIC "CVNTOKEN"

/* An opened file. Pointers go into the mapping. */
typedef struct TokenFile {
    FileMap map;              /* owned; {0} when parsed from somebody's memory */
    int width;                /* bytes of an id: 2 or 4 */
    int64_t vocab;            /* ids are below */
    int64_t n_tokens;         /* >= 1 */
    int64_t n_documents;      /* >= 1: a file that says 0 has one */
    uint64_t key;             /* what it was made from, or 0 */
    uint32_t sum;             /* CRC-32C of what follows the header */
    const void *token;        /* [n_tokens] */
    const uint64_t *document; /* [n_documents] first tokens; NULL: one document, from 0 */
    const uint64_t *learn;    /* [(n_tokens + 63) / 64] bits, or NULL: all is to be learnt */
} TokenFile;

/* Reads n bytes at `bytes`, which is aligned to 8 and lives as long as the TokenFile: every size, the
 * sum and, where no sum is given, every id are checked. `name` is for messages. */
int token_file_parse(TokenFile *file, const char *name, const void *bytes, size_t n, cvn_err *err);

int token_file_open(TokenFile *file, const char *path, cvn_err *err);
void token_file_close(TokenFile *file);

/* Whether n bytes begin as such a file does. */
bool token_file_is(const void *bytes, size_t n);

/* 0 <= i < n_tokens, and below n_documents. */
static inline int32_t token_file_id(const TokenFile *file, int64_t i)
{
    return file->width == 2 ? ((const uint16_t *)file->token)[i]
                            : (int32_t)((const uint32_t *)file->token)[i];
}

static inline int64_t token_file_document(const TokenFile *file, int64_t i)
{
    return file->document ? (int64_t)file->document[i] : 0;
}

static inline bool token_file_learns(const TokenFile *file, int64_t i)
{
    return !file->learn || (file->learn[i / 64] >> (i % 64) & 1);
}

/* Writes such a file, beside and renamed: tokens as they come, the rest from memory at the end. */
typedef struct TokenWriter {
    FileWriter file;         /* owned */
    int width;               /* bytes of an id */
    int64_t vocab, n_tokens; /* of the header */
    uint64_t key;            /* of the header */
    uint32_t sum;            /* of what was written behind the header */
    uint64_t *document;      /* owned: [n_documents] */
    uint64_t *learn;         /* owned: [n_words] a bit per token */
    size_t n_documents, n_words;
    bool partial; /* some token is not to be learnt */
} TokenWriter;

int token_writer_open(TokenWriter *writer, const char *path, int64_t vocab, uint64_t key,
                      cvn_err *err);

/* Appends n ids, which must be below vocab; `begins`: a document begins with them. learn [n] is 0 where an
 * id is not to be learnt; NULL: all are. */
int token_writer_add(TokenWriter *writer, const int32_t *ids, size_t n, const uint8_t *learn,
                     bool begins, cvn_err *err);

int token_writer_commit(TokenWriter *writer, cvn_err *err);

/* Frees; what was not committed is removed. Safe on {.file = {.fd = -1}}. */
void token_writer_free(TokenWriter *writer);

#endif
