/* RUN/samples.jsonl: the texts of a run, {"step":500,"prompt":"Once","text":"Once upon a time …"} on a line each. */
#include "base/heap.h"
#include "text/bytes_json.h"
#include "train/report/report.h"

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

int samples_add(Samples *samples, int64_t step, const char *prompt, const char *text, cvn_err *err)
{
    json_auto_t *valid_prompt = bytes_json(prompt, strlen(prompt));
    json_auto_t *valid_text = bytes_json(text, strlen(text));
    json_auto_t *json = json_pack("{s:I, s:O, s:O}", "step", (json_int_t)step, "prompt",
                                  valid_prompt, "text", valid_text);
    SCOPED(scoped_free) char *line = json ? json_dumps(json, JSON_COMPACT) : NULL;
    return line && keep(samples, step, json_string_value(valid_prompt),
                        json_string_value(valid_text))
               ? step_lines_add(&samples->lines, line, strlen(line), err)
               : err_set(err, CVN_EMEM, "no memory for a line of '%s'", samples->lines.path.text);
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
