/*
 * The small files that lie beside models and runs, from arbitrary bytes: the first byte says which file the rest is.
 * Each is written to a folder in memory and read by its own reader, which takes it or says in one sentence why not.
 */
#include "base/file.h"
#include "base/json_file.h"
#include "graph/graph.h"
#include "io/folder.h"
#include "model/forward.h"
#include "model/layouts.h"
#include "model/presets.h"
#include "serve/dialog.h"
#include "train/config.h"
#include "train/report/metrics.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Has the tokens of Llama 3's chat formats. */
static const char TOKENIZER[] = "{\"added_tokens\":["
                                "{\"id\":3,\"content\":\"<|begin_of_text|>\",\"special\":true},"
                                "{\"id\":4,\"content\":\"<|end_of_text|>\",\"special\":true},"
                                "{\"id\":5,\"content\":\"<|start_header_id|>\",\"special\":true},"
                                "{\"id\":6,\"content\":\"<|end_header_id|>\",\"special\":true},"
                                "{\"id\":7,\"content\":\"<|eot_id|>\",\"special\":true}],"
                                "\"model\":{\"type\":\"BPE\",\"unk_token\":\"?\",\"vocab\":{\"?\":"
                                "0,\"a\":1,\"b\":2},\"merges\":[]}}";

static const Tokenizer *tokenizer(void)
{
    static Tokenizer *kept;
    if (!kept && tokenizer_read(TOKENIZER, sizeof TOKENIZER - 1, &kept, NULL))
        abort();
    return kept;
}

static int read_rules(const char *folder, const char *path, cvn_err *err)
{
    (void)folder;
    Mesh mesh;
    Model *model;
    Arena arena;
    if (arena_init(&arena, NULL) ||
        preset_model("dim=8,ffn=8,vocab=8,context=8,layers=1,heads=2", &model, &arena, NULL))
        abort();
    ModelStep step = {.batch = 2, .seq = 1, .context = 8, .compute = CVN_F32, .output = STEP_LAST};
    cvn_graph *g = model_step(model, &step, NULL);
    if (!g || mesh_parse(&mesh, "dcn=2,data=2,model=4", &g->arena, NULL))
        abort();
    int code = model_mark(g, model, &mesh, path, err);
    if (code == CVN_OK && graph_verify(g, NULL))
        abort();
    cvn_graph_free(g);
    arena_free(&arena);
    return code;
}

static int read_chat_template(const char *folder, const char *path, cvn_err *err)
{
    (void)path;
    ChatTemplate *chat = NULL;
    Tokenizer *beside;
    const FilePath file = file_path(folder, "tokenizer.json");
    if (file_write(file.text, TOKENIZER, sizeof TOKENIZER - 1, NULL))
        abort();
    int code = tokenizer_open(folder, &beside, err);
    unlink(file.text);
    if (code)
        return code;
    code = chat_template_open(beside, NULL, &chat, err);
    if ((code == CVN_OK) != (chat != NULL))
        abort();
    chat_template_free(chat);
    tokenizer_free(beside);
    return code;
}

static int read_dialog(const char *folder, const char *path, cvn_err *err)
{
    (void)folder;
    Dialog dialog;
    static ChatTemplate *chat;
    if (!chat && chat_template_open(tokenizer(), NULL, &chat, NULL))
        abort();
    dialog_init(&dialog, chat, tokenizer());
    int code = dialog_load(&dialog, path, err);
    for (size_t i = 1; code == CVN_OK && i < dialog.n; i++)
        if (dialog.message[i].role == DIALOG_SYSTEM)
            abort();
    dialog_free(&dialog);
    return code;
}

static int read_metrics(const char *folder, const char *path, cvn_err *err)
{
    (void)path;
    RunMetrics metrics;
    int code = metrics_open(&metrics, folder, INT64_MAX, err);
    if (code)
        return code;
    for (size_t i = 0; i < metrics.n; i++)
        if (metrics.row[i].step <= (i ? metrics.row[i - 1].step : 0))
            abort();
    metrics_close(&metrics);
    return CVN_OK;
}

static int read_index(const char *folder, const char *path, cvn_err *err)
{
    (void)path;
    Folder files;
    Arena arena;
    if (arena_init(&arena, NULL))
        abort();
    int code = folder_open(&files, folder, &arena, err);
    if (code == CVN_OK)
        folder_close(&files);
    arena_free(&arena);
    return code;
}

static int read_run(const char *folder, const char *path, cvn_err *err)
{
    (void)folder;
    Arena arena;
    TrainConfig config = train_config_defaults();
    if (arena_init(&arena, NULL))
        abort();
    json_t *json = json_object_read(path, err);
    int code = json ? train_config_read(&config, path, json, NULL, &arena, err) : CVN_EFORMAT;
    if (code == CVN_OK) {
        json_t *back = train_config_json(&config);
        TrainConfig again = train_config_defaults();
        if (!back || train_config_read(&again, "again", back, NULL, &arena, err))
            abort();
        json_decref(back);
        code = train_config_check(&config, err);
    }
    json_decref(json);
    arena_free(&arena);
    return code;
}

typedef int Reader(const char *folder, const char *path, cvn_err *err);

static const struct {
    const char *name;
    Reader *read;
} files[] = {
    {"rules.json", read_rules},
    {"tokenizer_config.json", read_chat_template},
    {"chat_template.jinja", read_chat_template},
    {"talk.json", read_dialog},
    {METRICS_NAME, read_metrics},
    {"model.safetensors.index.json", read_index},
    {"run.json", read_run},
};
enum { FILES = sizeof files / sizeof *files };

static char folder[] = "/dev/shm/caravan-fuzz-XXXXXX";

static void remove_folder(void)
{
    rmdir(folder);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool made;
    if (!made && (!mkdtemp(folder) || atexit(remove_folder)))
        abort();
    made = true;
    if (size == 0)
        return 0;
    char path[128];
    cvn_err err = {0};
    int kind = data[0] % 16;
    if (kind >= FILES)
        return 0;
    snprintf(path, sizeof path, "%s/%s", folder, files[kind].name);
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(data + 1, 1, size - 1, file) != size - 1 || fclose(file))
        abort();
    int code = files[kind].read(folder, path, &err);
    if ((code == CVN_OK) != (err.code == CVN_OK) ||
        (code && (!err.message[0] || strchr(err.message, '\n')))) {
        fprintf(stderr, "%s: code %d, and err %d: %s\n", files[kind].name, code, err.code,
                err.message);
        abort();
    }
    unlink(path);
    return 0;
}
