/* Opening a tokenizer: which file, which kind, and what a model folder says besides. */
#include "text/split.h"
#include "text/tokenizer_impl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MAX_FILE = 1 << 28 }; /* bytes; the largest known tokenizer.json has 3 x 10^7 */

/* The whole file, owned by the caller (free), with a NUL behind it. */
static int read_file(const char *path, char **bytes, size_t *n, cvn_err *err)
{
    *bytes = NULL;
    FILE *file = fopen(path, "rb");
    struct stat info;
    if (!file || fstat(fileno(file), &info)) {
        int rc = err_set(err, CVN_EIO, "cannot open '%s': %s", path, strerror(errno));
        if (file)
            fclose(file);
        return rc;
    }
    int rc = CVN_OK;
    if (!S_ISREG(info.st_mode) || info.st_size > MAX_FILE) {
        rc = err_set(err, CVN_EFORMAT, "'%s' is no tokenizer: expected a file of at most %d MiB",
                     path, MAX_FILE >> 20);
        goto close;
    }
    *bytes = malloc((size_t)info.st_size + 1);
    if (!*bytes) {
        rc = err_set(err, CVN_EMEM, "no memory to read '%s'", path);
        goto close;
    }
    *n = fread(*bytes, 1, (size_t)info.st_size, file);
    (*bytes)[*n] = '\0';
    if (ferror(file))
        rc = err_set(err, CVN_EIO, "cannot read '%s': %s", path, strerror(errno));
close:
    fclose(file);
    return rc;
}

/*
 * Which reader a file is for: JSON is an object; a rank file begins with a line of base 64, a space and a
 * number; the rest can only be SentencePiece, whose first byte 0A (field 1) is a line feed. No
 * SentencePiece model looks like white space and a brace: the bytes 0A n 0A m '{' would be a message of n
 * bytes, n one of 9, 10, 13 and 32, and in it a piece of 123 bytes.
 */
static int read_kind(Tokenizer *t, const char *bytes, size_t n, cvn_err *err)
{
    if (tiktoken_is(bytes, n))
        return tiktoken_read(t, bytes, n, err);
    return sentencepiece_read(t, bytes, n, err);
}

int tokenizer_read(const char *bytes, size_t n, Tokenizer **out, cvn_err *err)
{
    *out = NULL;
    Tokenizer *t = calloc(1, sizeof *t);
    if (!t)
        return err_set(err, CVN_EMEM, "no memory for a tokenizer");
    t->bos = t->eos = t->pad = -1;
    int rc = arena_init(&t->arena, err);
    if (rc)
        goto fail;
    map_init(&t->special, &t->arena);
    rc = read_kind(t, bytes, n, err);
    if (rc)
        goto fail;
    *out = t;
    return CVN_OK;
fail:
    tokenizer_free(t);
    return rc;
}

static bool is_file(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISREG(info.st_mode);
}

/* The tokenizer's file in a folder, as a heap string. */
static int find_file(const char *folder, char **path, cvn_err *err)
{
    static const char *const names[] = {"tokenizer.json", "tokenizer.model"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (asprintf(path, "%s/%s", folder, names[i]) < 0) {
            *path = NULL;
            return err_set(err, CVN_EMEM, "no memory for a path");
        }
        if (is_file(*path))
            return CVN_OK;
        free(*path);
        *path = NULL;
    }
    return err_set(err, CVN_EIO, "folder '%s' has neither tokenizer.json nor tokenizer.model",
                   folder);
}

static int open_file(const char *path, Tokenizer **out, cvn_err *err)
{
    char *bytes;
    size_t n = 0;
    int rc = read_file(path, &bytes, &n, err);
    if (!rc) {
        rc = tokenizer_read(bytes, n, out, err);
        if (rc)
            err_prefix(err, "'%s'", path);
    }
    free(bytes);
    return rc;
}

int tokenizer_open(const char *path, Tokenizer **out, cvn_err *err)
{
    *out = NULL;
    struct stat info;
    if (stat(path, &info))
        return err_set(err, CVN_EIO, "cannot open '%s': %s", path, strerror(errno));
    if (!S_ISDIR(info.st_mode))
        return open_file(path, out, err);
    char *file;
    int rc = find_file(path, &file, err);
    if (!rc)
        rc = open_file(file, out, err);
    free(file);
    return rc;
}

void tokenizer_free(Tokenizer *t)
{
    if (!t)
        return;
    for (int i = 0; i < t->n_split; i++)
        split_free(t->split[i]);
    arena_free(&t->arena);
    free(t);
}

const char *tokenizer_kind(const Tokenizer *t)
{
    return t->kind;
}

int32_t tokenizer_vocab_size(const Tokenizer *t)
{
    return t->bpe.n_ids;
}

int32_t tokenizer_bos(const Tokenizer *t)
{
    return t->bos;
}

int32_t tokenizer_eos(const Tokenizer *t)
{
    return t->eos;
}

int32_t tokenizer_pad(const Tokenizer *t)
{
    return t->pad;
}

const char *tokenizer_piece(const Tokenizer *t, int32_t id, size_t *length)
{
    if (id < 0 || id >= t->bpe.n_ids || t->bpe.piece[id].kind == PIECE_NONE)
        return NULL;
    if (length)
        *length = (size_t)t->bpe.piece[id].length;
    return t->bpe.piece[id].text;
}

bool tokenizer_is_special(const Tokenizer *t, int32_t id)
{
    return id >= 0 && id < t->bpe.n_ids && t->bpe.piece[id].kind == PIECE_SPECIAL;
}

int32_t tokenizer_special(const Tokenizer *t, const char *text)
{
    const uint64_t *id = map_get(&t->special, text, strlen(text));
    return id ? (int32_t)*id : -1;
}
