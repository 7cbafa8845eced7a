/* caravan constrain: what a schema, expression or grammar lets through, without a model. */
#include "caravan/constrain.h"

#include "base/heap.h"
#include "base/json_file.h"
#include "cli/common.h"
#include "cli/terminal.h"
#include "constrain/json.h"
#include "constrain/tokens.h"
#include "run/ceilings.h"
#include "text/tokenizer.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { CASES, SCHEMA, INSTANCES, TOKENIZER, DRAFT, FORMAT, JSON };

static const char *const drafts[] = {"4", "6", "7", "2019-09", "2020-12", NULL};

static const Option *const options[] = {
    OPTION(CASES, "cases", .kind = ARG_INPUT, .required = true, .group = 1, .value = "FILE",
           .help = "test cases, JSON lines: {\"id\":…,\"schema\":…,\"tests\":[{\"text\":…},…]}"),
    OPTION(SCHEMA, "schema", .kind = ARG_INPUT, .group = 1, .value = "FILE",
           .help = "a JSON schema"),
    OPTION(INSTANCES, "instances", .kind = ARG_INPUT, .value = "FILE",
           .help = "with --schema: a JSON value per line"),
    OPTION(TOKENIZER, "tokenizer", .kind = ARG_INPUT, .value = "FILE",
           .help = "tokenizer.model, tokenizer.json, GGUF or a model folder: check token by token "
                   "with masks instead of byte by byte"),
    OPTION(DRAFT, "draft", .kind = ARG_CHOICE, .choices = drafts, .fallback = "2020-12",
           .value = "DRAFT", .help = "default JSON Schema draft"),
    OPTION(FORMAT, "format", .kind = ARG_CHOICE, .choices = CHOICES("assert", "annotate"),
           .fallback = "assert", .value = "HOW", .help = "treatment of the keyword format"),
    [JSON] = SHARED(JSON),
    NULL,
};

/* What one run works with. */
typedef struct Work {
    Tokenizer *tokenizer;       /* owned, or NULL */
    cvn_vocabulary *vocabulary; /* owned, or NULL */
    int32_t n_tokens;
    uint32_t *mask; /* [CVN_MASK_WORDS(n_tokens)] owned */
    TokenIds ids;
    Arena arena;          /* of the line that is read */
    double *microseconds; /* [n_masks] of the masks of a line */
    size_t n_masks;
    cvn_constrain_options options;
    cvn_constraint *constraint; /* of --schema; owned */
    bool json;
    size_t n_lines; /* that were answered */
    bool failed;    /* a text was undecided */
} Work;

/* Microseconds of this thread on a processor: a machine that is busy with others counts the same. */
static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int open_vocabulary(Work *w, const char *path, cvn_err *err)
{
    TRY(tokenizer_open(path, &w->tokenizer, err));
    w->n_tokens = tokenizer_vocab_size(w->tokenizer);
    w->mask = calloc(CVN_MASK_WORDS(w->n_tokens) + 1, sizeof *w->mask);
    if (!w->mask)
        return err_set(err, CVN_EMEM, "no memory for the vocabulary");
    const int32_t eos = tokenizer_eos(w->tokenizer);
    return vocabulary_of(w->tokenizer, w->n_tokens, &eos, eos >= 0, &w->vocabulary, err);
}

/* The ids of a text, if they stand for its very bytes. */
static bool encode(Work *w, const char *text, size_t n)
{
    SCOPED(strbuf_free) StrBuf back = {0};
    w->ids.n = 0;
    return !tokenizer_encode(w->tokenizer, text, n, TOKENIZER_PLAIN, &w->ids, NULL) &&
           !tokenizer_decode(w->tokenizer, w->ids.id, w->ids.n, TOKENIZER_CONTINUE, &back, NULL) &&
           back.length == n && (n == 0 || memcmp(back.text, text, n) == 0);
}

/* 1: accepted to its end, 0: not, -1 with *err set: not decided. */
static int accepts_tokens(Work *w, cvn_constrained *text, cvn_err *err)
{
    for (size_t i = 0; i < w->ids.n; i++) {
        int32_t id = w->ids.id[i];
        double begin = now();
        if (cvn_constrained_mask(text, w->mask, err))
            return -1;
        const double took = now() - begin;
        double *more = heap_more(w->microseconds, w->n_masks, sizeof *more);
        w->microseconds = more ? more : w->microseconds;
        if (more)
            w->microseconds[w->n_masks++] = took;
        if (!(w->mask[id / 32] >> (id % 32) & 1))
            return 0;
        if (cvn_constrained_advance(text, id, err))
            return -1;
    }
    return cvn_constrained_complete(text);
}

static int accepts(Work *w, cvn_constraint *constraint, const char *bytes, size_t n, cvn_err *err)
{
    cvn_constrained *text;
    int result;
    if (cvn_constrained_new(constraint, w->vocabulary, &text, err))
        return -1;
    if (w->vocabulary && encode(w, bytes, n)) {
        result = accepts_tokens(w, text, err);
    } else {
        cvn_err why = {0};
        int code = cvn_constrained_advance_bytes(text, bytes, n, &why);
        result = code == CVN_OK ? cvn_constrained_complete(text) : code == CVN_EINVAL ? 0 : -1;
        if (result < 0)
            err_set(err, why.code, "%s", why.message);
    }
    cvn_constrained_free(text);
    return result;
}

static json_t *times(Work *w)
{
    double sum = 0;
    if (!w->n_masks)
        return json_null();
    json_t *each = json_array();
    for (size_t i = 0; i < w->n_masks; i++)
        each = json_append(each, json_real(w->microseconds[i]));
    sort_numbers(w->microseconds, w->n_masks);
    for (size_t i = 0; i < w->n_masks; i++)
        sum += w->microseconds[i];
    return json_pack("{s:f,s:f,s:f,s:o}", "mean", sum / (double)w->n_masks, "p50",
                     w->microseconds[w->n_masks / 2], "p99",
                     w->microseconds[(size_t)((double)w->n_masks * 0.99)], "each", each);
}

static int print_line(Work *w, const char *id, size_t n_id, const char *refused, json_t *results,
                      double first, cvn_err *err)
{
    json_error_t error;
    json_t *name = json_loadb(id, n_id, JSON_DECODE_ANY | JSON_ALLOW_NUL, &error);
    return print_json(json_pack("{s:o,s:o,s:o,s:o,s:o}", "id", name ? name : json_null(), "refused",
                                refused ? bytes_json(refused, strlen(refused)) : json_null(),
                                "results", results, "first_mask_us",
                                first >= 0 ? json_real(first) : json_null(), "mask_us", times(w)),
                      err);
}

static const JsonValue *member(const JsonValue *line, const char *name)
{
    return json_member(line, name, strlen(name));
}

static int run_case(Work *w, const JsonValue *line, cvn_err *err)
{
    const JsonValue *schema = member(line, "schema"), *tests = member(line, "tests"),
                    *id = member(line, "id");
    const JsonValue *draft = member(line, "draft"), *format = member(line, "format");
    cvn_constrain_options o = w->options;
    cvn_constraint *constraint = NULL;
    cvn_err refused = {0};
    SCOPED(strbuf_free) StrBuf schema_text = {0}, id_text = {0};
    double begin, first = -1;
    if (!schema || !tests || tests->kind != JSON_K_ARRAY)
        return err_set(err, CVN_EFORMAT, "a case has \"schema\" and \"tests\"");
    for (size_t i = 0; draft && (i == 0 || !json_is(draft, drafts[i - 1])); i++) {
        if (!drafts[i])
            return err_set(err, CVN_EFORMAT,
                           "\"draft\" is \"4\", \"6\", \"7\", \"2019-09\" or \"2020-12\"");
        o.draft = (int)strtol(drafts[i], NULL, 10);
    }
    o.annotate_format = format ? json_is(format, "annotate") : o.annotate_format;
    json_write(schema, &schema_text);
    if (id)
        json_write(id, &id_text);
    else
        strbuf_puts(&id_text, "null");
    w->n_masks = 0;
    o.lazy = true;
    begin = now();
    int code =
        cvn_constraint_schema(schema_text.text, schema_text.length, &o, &constraint, &refused);
    if (!code && w->vocabulary) {
        cvn_constrained *text;
        code = cvn_constrained_new(constraint, w->vocabulary, &text, &refused);
        if (!code)
            code = cvn_constrained_mask(text, w->mask, &refused);
        cvn_constrained_free(text);
        first = now() - begin;
    }
    if (!code)
        code = cvn_constraint_check(constraint, &refused);
    json_t *results = json_array();
    for (size_t i = 0; i < tests->n && !code; i++) {
        const JsonValue *text = member(tests->item[i], "text");
        if (!text || text->kind != JSON_K_STRING) {
            code = err_set(err, CVN_EFORMAT, "test %zu has no \"text\"", i);
            break;
        }
        int result = accepts(w, constraint, text->text, text->length, &refused);
        results = json_append(results, result < 0 ? json_null() : json_boolean(result));
        if (result < 0)
            code = refused.code;
    }
    cvn_constraint_free(constraint);
    if (!err->code) {
        if (refused.code)
            json_array_clear(results);
        code = print_line(w, id_text.text, id_text.length, refused.code ? refused.message : NULL,
                          results, first, err);
    }
    return err->code ? err->code : code;
}

static int lines_of(Work *w, const char *path, TakeLine *take, cvn_err *err)
{
    SCOPED(scoped_free) char *text = NULL;
    size_t n = 0;
    TRY(read_input(path, &text, &n, err));
    TRY(each_line(path, text, n, take, w, err));
    if (!w->n_lines)
        fprintf(stderr, "caravan: %s has no lines, so nothing was checked\n", path);
    return CVN_OK;
}

static int case_line(void *context, const char *text, size_t n, size_t number, cvn_err *err)
{
    Work *w = context;
    (void)number;
    w->n_lines++;
    TRY(arena_init(&w->arena, err));
    const JsonValue *line = json_tree(&w->arena, text, n, err);
    int code = line ? run_case(w, line, err) : CVN_EFORMAT;
    arena_free(&w->arena);
    return code;
}

static int instance_line(void *context, const char *text, size_t n, size_t number, cvn_err *err)
{
    Work *w = context;
    int result = accepts(w, w->constraint, text, n, err);
    w->n_lines++;
    if (result < 0)
        return err->code;
    if (w->json)
        printf("{\"line\":%zu,\"valid\":%s}\n", number, result ? "true" : "false");
    else
        printf("%zu: %s\n", number, result ? "valid" : "invalid");
    w->failed = w->failed || !result;
    return CVN_OK;
}

static int check_instances(Work *w, const Args *args, cvn_err *err)
{
    SCOPED(scoped_free) char *schema = NULL;
    size_t n;
    TRY(read_input(args->value[SCHEMA].text, &schema, &n, err));
    if (cvn_constraint_schema(schema, n, &w->options, &w->constraint, err)) {
        err_prefix(err, "%s", args->value[SCHEMA].text);
        return err->code;
    }
    if (args->value[INSTANCES].given)
        return lines_of(w, args->value[INSTANCES].text, instance_line, err);
    const bool empty = cvn_constraint_is_empty(w->constraint);
    if (w->json)
        return print_json(json_pack("{s:b,s:b}", "supported", true, "satisfiable", !empty), err);
    printf("%s: every keyword is supported; %s; no values were checked (--instances FILE names "
           "some)\n",
           args->value[SCHEMA].text, empty ? "no value satisfies it" : "it is satisfiable");
    return CVN_OK;
}

static int run(const Args *args, cvn_err *err)
{
    Work w = {.json = args->value[JSON].flag,
              .options = {.draft = (int)strtol(drafts[args->value[DRAFT].integer], NULL, 10),
                          .annotate_format = args->value[FORMAT].integer == 1}};
    int code = args->value[TOKENIZER].given ? open_vocabulary(&w, args->value[TOKENIZER].text, err)
                                            : CVN_OK;
    if (!code)
        code = args->value[CASES].given ? lines_of(&w, args->value[CASES].text, case_line, err)
                                        : check_instances(&w, args, err);
    cvn_constraint_free(w.constraint);
    cvn_vocabulary_free(w.vocabulary);
    tokenizer_free(w.tokenizer);
    token_ids_free(&w.ids);
    free(w.mask);
    free(w.microseconds);
    return code ? code : w.failed ? EXIT_REFUSED : EXIT_OK;
}

const Command command_constrain = {
    "constrain",
    .about = "test JSON schemas and their token masks",
    .usage = "(--schema FILE [--instances FILE] | --cases FILE) [options]",
    .examples = "constrain --schema schema.json\twhether the schema is supported and satisfiable\n"
                "constrain --schema schema.json --instances values.jsonl\tvalidate values against "
                "a schema\n"
                "constrain --cases cases.jsonl --tokenizer my-llama --json\tcheck token masks\n",
    .notes = "A schema is enforced exactly, or refused with the path of the unsupported keyword.",
    .options = options,
    .run = run,
};
