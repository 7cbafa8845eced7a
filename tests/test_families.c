/* Families of models: what their settings mean, and that every form of files says them as they are or refuses. */
#include "io/save.h"
#include "io_support.h"
#include "model_make.h"
#include "shell.h"

static int parse(Model **model, const char *words, cvn_err *err)
{
    char text[1024];
    snprintf(text, sizeof text, "{%s}", words);
    for (char *c = text; *c; c++)
        *c = *c == '\'' ? '"' : *c;
    json_t *json = json_object_parse("config.json", text, strlen(text), err);
    int code = json ? model_parse(model, "config.json", json, NULL, models(), err) : CVN_EFORMAT;
    json_decref(json);
    return code;
}

/* A random model in a folder of the scratch folder. */
static void make_folder(const char *name, const Model *model)
{
    cvn_err err = {0};
    uint64_t seed = 5;
    const SaveOptions options = {.dtype = CVN_BF16, .threads = 1, .force = true};
    if (save_folder(in_scratch(name), model, &options, init_fill, &seed, &err))
        fail_msg("%s", err.message);
}

static void every_preset_is_written_as_it_is_read(void **state)
{
    (void)state;
    for (size_t i = 0; i < presets_count(); i++) {
        const Model *m = model_preset(preset_at(i).name);
        json_t *said = model_json(m, NULL), *again = model_json(model_parsed(said), NULL);
        if (!json_equal(said, again))
            fail_msg("%s is read as another model than it was written", preset_at(i).name);
        json_decref(said);
        json_decref(again);
    }
}

#define SMALL                                                                                      \
    "'model_type': 'smollm3', 'hidden_size': 32, 'num_attention_heads': 4, "                       \
    "'num_key_value_heads': 2, 'intermediate_size': 48, 'vocab_size': 64, 'bos_token_id': 1, "     \
    "'eos_token_id': 2, 'max_position_embeddings': 64"

/* The layers without positions, as a config.json has them: a digit each. */
static const char *switches(const Model *m)
{
    static char text[64];
    json_t *json = model_json(m, NULL);
    const json_t *list = json_object_get(json, "no_rope_layers");
    size_t n = json_array_size(list);
    assert_true(n < sizeof text);
    for (size_t i = 0; i < n; i++)
        text[i] = (char)('0' + json_integer_value(json_array_get(list, i)));
    text[n] = '\0';
    json_decref(json);
    return text;
}

static void layers_without_positions_are_every_fourth_or_as_listed(void **state)
{
    (void)state;
    assert_string_equal(switches(model_make(SMALL ", 'num_hidden_layers': 9")), "111011101");
    assert_string_equal(
        switches(model_make(SMALL ", 'num_hidden_layers': 5, 'no_rope_layer_interval': 2")),
        "10101");
    assert_string_equal(switches(model_make(SMALL ", 'num_hidden_layers': 3, 'no_rope_layers': "
                                                  "[0, 1, 0], 'no_rope_layer_interval': 2")),
                        "010");
    assert_string_equal(switches(model_preset("smollm3-3b")),
                        "111011101110111011101110111011101110");
}

static void wrong_settings_are_refused_by_name(void **state)
{
    (void)state;
    static const struct {
        const char *words, *message;
    } cases[] = {
        {SMALL ", 'num_hidden_layers': 3, 'no_rope_layers': [1, 1]",
         "no_rope_layers has 2 elements; one for each of 3 layers"},
        {SMALL ", 'num_hidden_layers': 2, 'no_rope_layers': [1, 2]", "no_rope_layers has 2; 0 and"},
        {SMALL ", 'num_hidden_layers': 2, 'no_rope_layers': 1", "no_rope_layers is 1; a list"},
        {SMALL ", 'num_hidden_layers': 2, 'no_rope_layers': [1, '1']", "a list of integers"},
        {SMALL ", 'num_hidden_layers': 2, 'sliding_window': 16", "sliding_window = 16"},
        {SMALL ", 'num_hidden_layers': 2, 'max_window_layers': 28, 'use_sliding_window': false",
         NULL},
        {"'model_type': 'llama', 'no_rope_layers': [1, 0]", "no_rope_layers = [1,0]"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Model *m;
        cvn_err err = {0};
        int code = parse(&m, cases[i].words, &err);
        if (cases[i].message ? code == CVN_OK || !strstr(err.message, cases[i].message)
                             : code != CVN_OK)
            fail_msg("%s: %s", cases[i].words, err.message);
    }
}

static void files_say_it_as_it_is_or_refuse(void **state)
{
    (void)state;
    make_folder("fourth", model_make(SMALL ", 'num_hidden_layers': 5"));
    make_folder("listed",
                model_make(SMALL ", 'num_hidden_layers': 3, 'no_rope_layers': [0, 1, 0]"));
    expect(0,
           "caravan convert fourth f.gguf 2>&1 && caravan convert f.gguf back --type bf16 2>&1 && "
           "cmp fourth/model.safetensors back/model.safetensors && "
           "cmp fourth/config.json back/config.json && echo same",
           "same\n");
    expect(0, "caravan inspect --model f.gguf", "; none in 1 layer\n");
    expect(1, "caravan convert listed l.gguf 2>&1",
           "a GGUF file cannot say what no_rope_layers of this model is");
    expect(1, "caravan convert fourth x.bin 2>&1", "cannot say that 'fourth' has settings that");
    expect(1, "caravan convert fourth x --to meta 2>&1",
           "cannot say that 'fourth' has settings that");
    expect(0, "caravan convert listed again --type f32 && caravan inspect --model again",
           "; none in 2 layers");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_preset_is_written_as_it_is_read),
        cmocka_unit_test(layers_without_positions_are_every_fourth_or_as_listed),
        cmocka_unit_test(wrong_settings_are_refused_by_name),
        cmocka_unit_test(files_say_it_as_it_is_or_refuse),
    };
    return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
