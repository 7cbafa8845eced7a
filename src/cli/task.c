#include "cli/task.h"

#include "base/heap.h"
#include "base/strbuf.h"
#include "cli/common.h"
#include "cli/terminal.h"
#include "serve/model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const rules[TASK_RULES] = {"", "by characters ", "by bytes "};

void task_free(Task *task)
{
    for (size_t i = 0; i < task->n; i++) {
        Question *q = &task->question[i];
        for (size_t k = 0; q->choice && k < q->n_choices; k++)
            token_ids_free(&q->choice[k].text);
        free(q->choice);
    }
    free(task->question);
    *task = (Task){0};
}

/* ---- reading ---- */

static double characters(const char *text, size_t n)
{
    double count = 0;
    for (size_t i = 0; i < n; i++)
        count += (text[i] & 0xc0) != 0x80;
    return count;
}

static bool is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\t';
}

/* Context and choice as ids, and where the choice begins: white space at the end of the context is the choice's. */
static int encode_choice(TaskChoice *c, size_t i, const json_t *context, const json_t *choice,
                         const Tokenizer *tokenizer, unsigned encoding, cvn_err *err)
{
    const char *text = json_string_value(choice);
    size_t n = json_string_length(context), length = json_string_length(choice);
    SCOPED(strbuf_free) StrBuf whole = {0};
    SCOPED(token_ids_free) TokenIds before = {0};
    strbuf_add(&whole, json_string_value(context), n);
    bool apart = n > 0 && !is_space(whole.text[n - 1]) && length > 0 && !is_space(text[0]);
    while (n > 0 && whole.text && is_space(whole.text[n - 1]))
        n--;
    if (apart)
        strbuf_putc(&whole, ' ');
    strbuf_add(&whole, text, length);
    if (whole.failed)
        return err_set(err, CVN_EMEM, "no memory for a question");
    TRY(tokenizer_encode(tokenizer, whole.text, n, encoding, &before, err));
    TRY(tokenizer_encode(tokenizer, whole.text, whole.length, encoding, &c->text, err));
    size_t most = c->text.n ? c->text.n - 1 : 0;
    c->begin = before.n < 1 ? 1 : before.n < most ? before.n : most;
    c->length[0] = characters(text, length);
    c->length[1] = (double)length;
    if (c->text.n < 2)
        return err_set(err, CVN_EINVAL, "choice %zu has no token with a probability", i);
    return CVN_OK;
}

/* The place of the answer among the choices; what is none is an error. */
static int find_answer(const json_t *answer, const json_t *choices, size_t *out, cvn_err *err)
{
    size_t n = json_array_size(choices);
    for (*out = 0; *out < n; ++*out)
        if (json_is_integer(answer) ? json_integer_value(answer) == (json_int_t)*out
                                    : json_equal(answer, json_array_get(choices, *out)))
            return CVN_OK;
    return err_set(err, CVN_EFORMAT,
                   "\"answer\" is not one of the %zu choices; give its index, from 0, or its text",
                   n);
}

static int read_question(Question *q, const json_t *line, const Tokenizer *tokenizer,
                         unsigned encoding, cvn_err *err)
{
    const json_t *context = json_object_get(line, "context");
    const json_t *choices = json_object_get(line, "choices");
    size_t n = json_array_size(choices);
    bool texts = json_is_string(context) && n > 0;
    for (size_t i = 0; i < n; i++)
        texts = texts && json_is_string(json_array_get(choices, i));
    if (!texts)
        return err_set(
            err, CVN_EFORMAT,
            "a question is {\"context\": text, \"choices\": [texts], \"answer\": index}");
    TRY(find_answer(json_object_get(line, "answer"), choices, &q->answer, err));
    q->n_choices = n;
    q->choice = calloc(n, sizeof *q->choice);
    if (!q->choice)
        return err_set(err, CVN_EMEM, "no memory for %zu choices", n);
    for (size_t i = 0; i < n; i++)
        TRY(encode_choice(&q->choice[i], i, context, json_array_get(choices, i), tokenizer,
                          encoding, err));
    return CVN_OK;
}

typedef struct Reading {
    Task *task;
    const Tokenizer *tokenizer;
    unsigned encoding;
} Reading;

static int read_line(void *context, const char *text, size_t n, size_t number, cvn_err *err)
{
    const Reading *r = context;
    Task *task = r->task;
    json_error_t where;
    json_auto_t *line = json_loadb(text, n, JSON_REJECT_DUPLICATES, &where);
    if (!line)
        return err_set(err, CVN_EFORMAT, "not a JSON object: %s", where.text);
    Question *q = heap_more(task->question, task->n, sizeof *q);
    if (!q)
        return err_set(err, CVN_EMEM, "no memory for %zu lines", number);
    task->question = q;
    q += task->n++;
    *q = (Question){0};
    TRY(read_question(q, line, r->tokenizer, r->encoding, err));
    for (size_t i = 0; i < q->n_choices; i++)
        task->longest = q->choice[i].text.n > task->longest ? q->choice[i].text.n : task->longest;
    return CVN_OK;
}

int task_read(Task *task, const char *path, const cvn_model *model, unsigned encoding, cvn_err *err)
{
    SCOPED(scoped_free) char *text = NULL;
    size_t length = 0;
    Reading reading = {task, model->tokenizer, encoding};
    if (!model->tokenizer)
        return err_set(err, CVN_EINVAL, "a task needs a tokenizer, and the model has none");
    TRY(read_input(path, &text, &length, err));
    TRY(each_line(path, text, length, read_line, &reading, err));
    return task->n ? CVN_OK : err_set(err, CVN_EINVAL, "'%s' has no questions", path);
}

/* ---- scoring ---- */

static int score_choice(TaskChoice *c, cvn_engine *engine, int64_t context, cvn_err *err)
{
    const TokenIds *text = &c->text;
    size_t n = text->n < (size_t)context ? text->n : (size_t)context, skipped = text->n - n;
    SCOPED(scoped_free) float *logprob = calloc(n, sizeof *logprob);
    SCOPED(scoped_free) int32_t *argmax = calloc(n, sizeof *argmax);
    if (!logprob || !argmax)
        return err_set(err, CVN_EMEM, "no memory for a question");
    TRY(cvn_engine_score(engine, text->id + skipped, (int64_t)n, logprob, argmax, err));
    for (size_t k = c->begin > skipped ? c->begin - skipped : 1; k < n; k++)
        c->logprob += (double)logprob[k];
    return CVN_OK;
}

size_t task_choice(const Question *q, int rule)
{
    size_t best = 0;
    double most = -INFINITY;
    for (size_t i = 0; i < q->n_choices; i++) {
        double length = rule == TASK_SUM ? 1 : q->choice[i].length[rule - 1];
        double worth = q->choice[i].logprob / (length > 0 ? length : 1);
        if (worth > most) {
            most = worth;
            best = i;
        }
    }
    return best;
}

int task_score(Task *task, cvn_engine *engine, int64_t context, const volatile int *interrupt,
               cvn_err *err)
{
    int code = CVN_OK;
    double n = (double)task->n;
    Progress progress = progress_start("scoring", n);
    for (size_t i = 0; i < task->n && code == CVN_OK; i++) {
        Question *q = &task->question[i];
        for (size_t k = 0; k < q->n_choices && code == CVN_OK; k++)
            code = score_choice(&q->choice[k], engine, context, err);
        if (code == CVN_OK && interrupt && *interrupt)
            code = err_set(err, CVN_EINTERRUPTED, "interrupted after %zu questions", i + 1);
        for (int rule = 0; rule < TASK_RULES && code == CVN_OK; rule++)
            task->accuracy[rule] += (double)(task_choice(q, rule) == q->answer) / n;
        progress_set(&progress, (double)(i + 1));
    }
    progress_end(&progress);
    for (int rule = 0; rule < TASK_RULES; rule++) {
        double p = task->accuracy[rule];
        task->error[rule] = task->n > 1 ? sqrt(p * (1 - p) / (n - 1)) : NAN;
    }
    return code;
}

char *task_text(const Task *task)
{
    StrBuf text = {0};
    strbuf_printf(&text, "%zu question%s, accuracy ", task->n, task->n == 1 ? "" : "s");
    for (int rule = 0; rule < TASK_RULES; rule++) {
        strbuf_printf(&text, "%s%s%.4f", rule ? "; " : "", rules[rule], task->accuracy[rule]);
        if (isfinite(task->error[rule]))
            strbuf_printf(&text, " ± %.4f", task->error[rule]);
    }
    if (!text.failed)
        return text.text;
    strbuf_free(&text);
    return NULL;
}
