/* Peak memory: what was predicted before anything ran is what the process then takes. */
#include "io/save.h"
#include "model/presets.h"
#include "model_make.h"
#include "serve/list.h"
#include "unit.h"

#include <math.h>
#include <unistd.h>

/* A line of /proc/self/status in bytes, "VmHWM" or "VmRSS"; 0 where there is none. */
static double status_bytes(const char *key)
{
    char line[256];
    double kib = 0;
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file))
        if (strncmp(line, key, strlen(key)) == 0)
            kib = strtod(line + strlen(key) + 1, NULL);
    if (file)
        fclose(file);
    return kib * 1024;
}

static void peak_memory_is_as_predicted(void **state)
{
    if (SANITIZED || status_bytes("VmHWM") == 0) {
        print_message("skipped: memory cannot be measured in this build\n");
        skip();
    }
    cvn_err err = {0};
    char folder[512];
    snprintf(folder, sizeof folder, "%s/caravan-test-memory-%d", P_tmpdir, (int)getpid());
    Model *config = model_preset("stories110m");
    SaveOptions save = {.dtype = CVN_BF16, .force = true};
    must(save_folder(folder, config, &save, init_fill, &(uint64_t){3}, &err), &err);

    double before = status_bytes("VmRSS");
    cvn_model *model;
    cvn_engine *e;
    cvn_model_options open = {.dtype = CVN_BF16, .no_tokenizer = true};
    cvn_engine_options options = {.slots = 2, .threads = 2, .context = 1024};
    must(cvn_model_open(folder, &open, &model, &err), &err);
    must(cvn_engine_new(model, &options, &e, &err), &err);
    static int32_t prompt[700];
    for (int i = 0; i < 700; i++)
        prompt[i] = i * 31 % 32000;
    const cvn_request like = {
        .prompt = prompt, .max_tokens = 8, .ignore_eos = true, .sampling = {.top_p = 1}};
    cvn_request request[2] = {like, like};
    request[0].n_prompt = 700;
    request[1].n_prompt = 600;
    cvn_result result[2];
    must(cvn_engine_generate(e, request, 2, NULL, NULL, NULL, result, &err), &err);
    cvn_engine_stats stats = cvn_engine_get_stats(e);

    /* The arena is exactly the largest program's. */
    size_t largest = 0;
    for (int i = 0; i < e->lists->n; i++) {
        size_t bytes = e->lists->step[0][i].info.temporary_bytes;
        largest = bytes > largest ? bytes : largest;
    }
    assert_int_equal(stats.arena_bytes, largest);

    double filled = (double)kv_cache_bytes(config, 1, 708 + 608, CVN_BF16);
    double predicted = (double)stats.weight_bytes + (double)stats.arena_bytes + filled;
    double measured = status_bytes("VmHWM") - before;
    if (fabs(measured - predicted) > 0.05 * predicted + 64 * 0x1p20)
        fail_msg("measured %.1f MiB, predicted %.1f", measured / 0x1p20, predicted / 0x1p20);
    cvn_engine_free(e, NULL);
    cvn_model_free(model);

    static const char *const files[] = {"config.json", "generation_config.json",
                                        "model.safetensors"};
    for (int i = 0; i < 3; i++) {
        char path[600];
        snprintf(path, sizeof path, "%s/%s", folder, files[i]);
        unlink(path);
    }
    rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(peak_memory_is_as_predicted)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
