/* Opening a tokenizer: which file, which kind, and what a model folder says besides. */
#include "base/file.h"
#include "base/json_file.h"
#include "text/split.h"
#include "text/tokenizer_impl.h"

#include <stdlib.h>
#include <string.h>

enum {
    MAX_FILE = 1 << 28,     /* bytes; the largest known tokenizer.json has 4 x 10^7 */
    MAX_TEMPLATE = 1 << 20, /* bytes of a chat template; the largest known has 3 x 10^4 */
};

static bool is_json(const char *bytes, size_t n)
{
    size_t space = 0;
    while (space < n && memchr(" \t\r\n", bytes[space], 4))
        space++;
    return space < n && bytes[space] == '{';
}

/*
 * Which reader a file is for: JSON is an object; a rank file begins with a line of base 64, a space and a
 * number; the rest can only be SentencePiece, whose first byte 0A (field 1) is a line feed. No
 * SentencePiece model looks like white space and a brace: the bytes 0A n 0A m '{' would be a message of n
 * bytes, n one of 9, 10, 13 and 32, and in it a piece of 123 bytes.
 */
static int read_kind(Tokenizer *t, const char *bytes, size_t n, cvn_err *err)
{
    if (n == 0)
        return err_set(err, CVN_EFORMAT, "the tokenizer file is empty; download it again");
    if (is_json(bytes, n))
        return tekken_is(bytes, n) ? tekken_read(t, bytes, n, err)
                                   : huggingface_read(t, bytes, n, err);
    if (tiktoken_is(bytes, n))
        return tiktoken_read(t, bytes, n, err);
    return sentencepiece_read(t, bytes, n, err);
}

/* Finds the tokens that begin and end a text by their names in Llama's tokenizers, where the file does not say which these are. */
static void guess_ids(Tokenizer *t)
{
    static const char *const bos[] = {"<|begin_of_text|>", "<s>", "<｜begin▁of▁sentence｜>"};
    static const char *const eos[] = {"<|end_of_text|>", "</s>", "<｜end▁of▁sentence｜>"};
    static const char *const pad[] = {"<|finetune_right_pad_id|>", "<pad>"};
    for (size_t i = 0; t->ids.bos < 0 && i < sizeof bos / sizeof *bos; i++)
        t->ids.bos = tokenizer_special(t, bos[i]);
    for (size_t i = 0; t->ids.eos < 0 && i < sizeof eos / sizeof *eos; i++)
        t->ids.eos = tokenizer_special(t, eos[i]);
    for (size_t i = 0; t->ids.pad < 0 && i < sizeof pad / sizeof *pad; i++)
        t->ids.pad = tokenizer_special(t, pad[i]);
}

#define READING "reading a tokenizer"

typedef struct Reading {
    Tokenizer *t;
    const char *bytes; /* [n] */
    size_t n;
} Reading;

static int read_bytes(void *of, cvn_err *err)
{
    const Reading *r = of;
    map_init(&r->t->special, &r->t->arena);
    r->t->hash = hash_bytes(r->bytes, r->n);
    TRY(read_kind(r->t, r->bytes, r->n, err));
    guess_ids(r->t);
    /* what tokenizer_config.json may call bos besides is for templates */
    r->t->ids.begins = r->t->ids.bos >= 0;
    return CVN_OK;
}

int tokenizer_read(const char *bytes, size_t n, Tokenizer **out, cvn_err *err)
{
    *out = NULL;
    if (gguf_tokenizer_is(bytes, n))
        return gguf_tokenizer_read(bytes, n, out, err);
    Tokenizer *t = calloc(1, sizeof *t);
    if (!t)
        return err_set(err, CVN_EMEM, "no memory for a tokenizer");
    t->ids.bos = t->ids.eos = t->ids.pad = -1;
    int rc = arena_init(&t->arena, err);
    if (!rc)
        rc = protect(read_bytes, &(Reading){t, bytes, n}, READING, err);
    if (rc)
        tokenizer_free(t);
    else
        *out = t;
    return rc;
}

static int open_file(const char *path, Tokenizer **out, cvn_err *err)
{
    FileMap map;
    int rc = file_map(&map, path, err);
    if (rc)
        return rc;
    if (map.size > MAX_FILE && !gguf_tokenizer_is((const char *)map.data, map.size))
        rc = err_set(err, CVN_EFORMAT, "the file has %zu MiB; a tokenizer has at most %d",
                     map.size >> 20, MAX_FILE >> 20);
    else
        rc = tokenizer_read((const char *)map.data, map.size, out, err);
    file_unmap(&map);
    if (rc)
        err_prefix(err, "'%s'", path);
    return rc;
}

/* "bos_token" and the like: a string, or an object with the string in "content". */
static void read_named(const Tokenizer *t, const json_t *config, const char *key, int32_t *id)
{
    const json_t *value = json_object_get(config, key);
    const char *text =
        json_string_value(json_is_object(value) ? json_object_get(value, "content") : value);
    if (!text)
        return;
    int32_t found = tokenizer_special(t, text);
    if (found < 0)
        found = bpe_find(&t->bpe, text, strlen(text));
    if (found >= 0 && found < t->bpe.n_ids)
        *id = found;
}

/* "chat_template": a string, which is the "default", or a list of {"name", "template"}. */
static const char *config_template(const json_t *config, const char *which)
{
    const json_t *value = json_object_get(config, "chat_template"), *entry;
    size_t i;
    json_array_foreach(value, i, entry)
    {
        const char *name = json_string_value(json_object_get(entry, "name"));
        if (name && strcmp(name, which) == 0)
            return json_string_value(json_object_get(entry, "template"));
    }
    return strcmp(which, "default") == 0 ? json_string_value(value) : NULL;
}

/* tokenizer_config.json knows best what begins and ends a text: an instruct model's ends with <|eot_id|>. */
static int read_config(Tokenizer *t, const char *folder, cvn_err *err)
{
    const FilePath path = file_path(folder, "tokenizer_config.json");
    if (!file_exists(path.text))
        return CVN_OK;
    json_t *config = json_object_read(path.text, err);
    if (!config)
        return err && err->code ? err->code : CVN_EFORMAT;
    Cleanup cleanup;
    cleanup_push(&cleanup, json_release, config);
    read_named(t, config, "bos_token", &t->ids.bos);
    read_named(t, config, "eos_token", &t->ids.eos);
    read_named(t, config, "pad_token", &t->ids.pad);
    const json_t *begins = json_object_get(config, "add_bos_token");
    if (json_is_boolean(begins))
        t->ids.begins = json_is_true(begins);
    const char *template = config_template(config, "default"),
               *tools = config_template(config, "tool_use");
    t->templates.chat = template ? arena_string(&t->arena, template) : NULL;
    t->templates.tools = tools ? arena_string(&t->arena, tools) : NULL;
    cleanup_run(&cleanup);
    return CVN_OK;
}

/* What a processor of images and text has, where the tokenizer has no template: {"chat_template": "…"}. */
static int read_template_json(Tokenizer *t, const char *folder, cvn_err *err)
{
    const FilePath path = file_path(folder, "chat_template.json");
    if (t->templates.chat || !file_exists(path.text))
        return CVN_OK;
    json_t *json = json_object_read(path.text, err);
    CLEANUP(json_release, json);
    if (!json)
        return err && err->code ? err->code : CVN_EFORMAT;
    const char *template = config_template(json, "default");
    t->templates.chat = template ? arena_string(&t->arena, template) : NULL;
    return CVN_OK;
}

/* A template that is a file of its own. */
static int read_template(Tokenizer *t, const char *folder, cvn_err *err)
{
    const FilePath path = file_path(folder, "chat_template.jinja");
    FileMap map = {0};
    Cleanup cleanup;
    int rc = file_exists(path.text) ? file_map(&map, path.text, err) : CVN_OK;
    cleanup_push(&cleanup, file_map_release, &map);
    if (!rc && (map.size > MAX_TEMPLATE || (map.size && memchr(map.data, 0, map.size))))
        rc = err_set(err, CVN_EFORMAT, "'%s' must be a text of at most %d bytes", path.text,
                     MAX_TEMPLATE);
    if (!rc && map.size) {
        t->templates.chat = arena_stringn(&t->arena, (const char *)map.data, map.size);
        t->templates.tools = NULL; /* it is for all conversations */
    }
    cleanup_run(&cleanup);
    return rc;
}

typedef struct Beside {
    Tokenizer *t;
    const char *folder;
} Beside;

static int read_beside(void *of, cvn_err *err)
{
    const Beside *b = of;
    TRY(read_config(b->t, b->folder, err));
    TRY(read_template_json(b->t, b->folder, err));
    return read_template(b->t, b->folder, err);
}

static bool is_llama2c(const char *path)
{
    size_t n = strlen(path);
    return n > 4 && strcmp(path + n - 4, ".bin") == 0 && !file_is_folder(path);
}

int tokenizer_open(const char *path, Tokenizer **out, cvn_err *err)
{
    static const char *const names[] = {"tokenizer.json", "tekken.json", "tokenizer.model"};
    const char *slash = strrchr(path, '/');
    FilePath folder;
    *out = NULL;
    TRY(file_check_seen(path, err));
    if (is_llama2c(path)) { /* its tokenizer lies beside it */
        snprintf(folder.text, sizeof folder.text, "%.*s", slash ? (int)(slash - path + 1) : 1,
                 slash ? path : ".");
        path = folder.text;
    } else if (!file_is_folder(path)) {
        return open_file(path, out, err);
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const FilePath file = file_path(path, names[i]);
        if (!file_exists(file.text))
            continue;
        int rc = open_file(file.text, out, err);
        if (!rc)
            rc = protect(read_beside, &(Beside){*out, path}, READING, err);
        if (rc) {
            tokenizer_free(*out);
            *out = NULL;
        }
        return rc;
    }
    return err_set(err, CVN_EIO,
                   "folder '%s' has no tokenizer.json, tekken.json or tokenizer.model", path);
}

int tokenizer_copy(const char *from, const char *folder, cvn_err *err)
{
    FileMap map;
    StrBuf made = {0};
    int rc = file_map(&map, from, err);
    if (rc)
        return rc;
    const char *bytes = (const char *)map.data;
    size_t n = map.size;
    if (gguf_tokenizer_is(bytes, n)) {
        rc = gguf_tokenizer_file(bytes, n, &made, err);
        bytes = made.text;
        n = made.length;
    }
    if (!rc) {
        const char *slash = strrchr(from, '/'), *name = slash ? slash + 1 : from;
        if (strcmp(name, "tekken.json") != 0)
            name = is_json(bytes, n) ? "tokenizer.json" : "tokenizer.model";
        rc = file_write(file_path(folder, name).text, bytes, n, err);
    }
    strbuf_free(&made);
    file_unmap(&map);
    return rc;
}

void tokenizer_free(Tokenizer *t)
{
    if (!t)
        return;
    for (int i = 0; i < t->words.n_split; i++)
        split_free(t->words.split[i]);
    arena_free(&t->arena);
    free(t);
}

const char *tokenizer_kind(const Tokenizer *t)
{
    return t->kind;
}

uint64_t tokenizer_hash(const Tokenizer *t)
{
    struct {
        uint64_t file;
        int32_t ids[4];
    } all = {t->hash, {t->ids.bos, t->ids.eos, t->ids.pad, t->ids.bos >= 0 && !t->ids.begins}};
    return hash_bytes(&all, sizeof all);
}

int32_t tokenizer_vocab_size(const Tokenizer *t)
{
    return t->bpe.n_ids;
}

int32_t tokenizer_bos(const Tokenizer *t)
{
    return t->ids.bos;
}

int32_t tokenizer_eos(const Tokenizer *t)
{
    return t->ids.eos;
}

int32_t tokenizer_pad(const Tokenizer *t)
{
    return t->ids.pad;
}

const char *tokenizer_chat_template(const Tokenizer *t)
{
    return t->templates.chat;
}

const char *tokenizer_tool_template(const Tokenizer *t)
{
    return t->templates.tools;
}

const char *tokenizer_piece(const Tokenizer *t, int32_t id, size_t *length)
{
    if (id < 0 || id >= t->bpe.n_ids || t->bpe.piece[id].kind == PIECE_NONE)
        return NULL;
    if (length)
        *length = (size_t)t->bpe.piece[id].length;
    return t->bpe.piece[id].text;
}

int32_t tokenizer_special(const Tokenizer *t, const char *text)
{
    const uint64_t *id = map_get(&t->special, text, strlen(text));
    return id ? (int32_t)*id : -1;
}
