/* RUN/samples.jsonl: the texts of a run, {"step":500,"prompt":"Once","text":"Once upon a time …"} on a line each. */
#include "base/heap.h"
#include "train/report/report.h"

#include "text/utf8.h"

#include <stdlib.h>
#include <string.h>

static bool keep(Samples *samples, int64_t step, const char *prompt, const char *text)
{
    Sample *more = heap_more(samples->sample, samples->n, sizeof *more);
    if (!more)
        return false;
    samples->sample = more;
    Sample sample = {step, strdup(prompt), strdup(text)};
    samples->sample[samples->n++] = sample;
    return sample.prompt && sample.text;
}

static int take_line(void *context, int64_t step, const json_t *line)
{
    const char *prompt = json_string_value(json_object_get(line, "prompt"));
    const char *text = json_string_value(json_object_get(line, "text"));
    if (!prompt || !text)
        return CVN_EFORMAT;
    return keep(context, step, prompt, text) ? CVN_OK : CVN_EMEM;
}

int samples_open(Samples *samples, const char *run, int64_t step, cvn_err *err)
{
    *samples = (Samples){.lines.fd = -1};
    int code = step_lines_open(&samples->lines, run, SAMPLES_NAME, step, take_line, samples, err);
    if (code != CVN_OK)
        samples_close(samples);
    return code;
}

/* A copy in which every byte that begins no character is U+FFFD. */
static StrBuf valid_utf8(const char *text)
{
    StrBuf out = {0};
    size_t left = strlen(text);
    strbuf_puts(&out, "");
    while (left > 0) {
        int n = utf8_length(text, left);
        if (n > 0)
            strbuf_add(&out, text, (size_t)n);
        else
            strbuf_puts(&out, "\xef\xbf\xbd");
        text += n > 0 ? n : 1;
        left -= n > 0 ? (size_t)n : 1;
    }
    return out;
}

int samples_add(Samples *samples, int64_t step, const char *prompt, const char *text, cvn_err *err)
{
    StrBuf valid_prompt = valid_utf8(prompt), valid_text = valid_utf8(text);
    json_t *json = valid_prompt.failed || valid_text.failed
                       ? NULL
                       : json_pack("{s:I, s:s, s:s}", "step", (json_int_t)step, "prompt",
                                   valid_prompt.text, "text", valid_text.text);
    char *line = json ? json_dumps(json, JSON_COMPACT) : NULL;
    int code =
        line && keep(samples, step, valid_prompt.text, valid_text.text)
            ? step_lines_add(&samples->lines, line, strlen(line), err)
            : err_set(err, CVN_EMEM, "no memory for a line of '%s'", samples->lines.path.text);
    free(line);
    json_decref(json);
    strbuf_free(&valid_prompt);
    strbuf_free(&valid_text);
    return code;
}

void samples_close(Samples *samples)
{
    step_lines_close(&samples->lines);
    for (size_t i = 0; i < samples->n; i++) {
        free(samples->sample[i].prompt);
        free(samples->sample[i].text);
    }
    free(samples->sample);
    *samples = (Samples){.lines.fd = -1};
}
