/* What people do with the program from day to day, where it once gave them silent nonsense, lost their work or misled
 * them. */
#include "shell.h"

/* Two models with tokenizers of different kinds, one after the other in one folder. */
static void a_folder_that_is_written_anew_holds_nothing_of_the_old_model(void **state)
{
    (void)state;
    expect(0,
           "cp -r model other && rm other/tokenizer.json && printf abc >other/tokenizer.model && "
           "printf hello >model/chat_template.jinja && cp -r model mixed && printf mine "
           ">mixed/README.md && touch mixed/adapter_config.json && "
           "caravan quantize other mixed --to int8 --force && ls mixed | tr '\\n' ' '",
           "README.md config.json generation_config.json model.safetensors tokenizer.model ");
    expect(0, "caravan quantize model mixed --to int8 --force && ls mixed | tr '\\n' ' '",
           "README.md chat_template.jinja config.json generation_config.json model.safetensors "
           "tokenizer.json ");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_folder_that_is_written_anew_holds_nothing_of_the_old_model),
    };
    return cmocka_run_group_tests(tests, make_models, remove_scratch);
}
