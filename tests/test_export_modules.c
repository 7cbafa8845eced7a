/* What `caravan export --to stablehlo` writes: a model, and modules whose signature says what they take. (That JAX runs them
   to the same text, tools/export_jax.sh shows.) */
#include "shell.h"

static void a_folder_is_a_model_with_modules(void **unused)
{
    (void)unused;
    expect(0,
           "caravan export model out --to stablehlo --dtype f32 --context 40 --score --train 8 "
           "--batch 2",
           "out: model and its modules, in f32");
    expect(
        0, "cd out; ls *.mlir | tr '\n' ' '",
        "decode.mlir prefill_16.mlir prefill_32.mlir prefill_64.mlir score_16.mlir score_32.mlir "
        "score_64.mlir train.mlir");
    expect(0,
           "for m in model out; do caravan generate --model $m --dtype f32 --prompt a -n 5 "
           "--temperature 0; done "
           "2>/dev/null | sort | uniq -c | wc -l",
           "1");
    expect(
        0,
        "for q in int8 int4:32; do caravan export model $q --to stablehlo --quantize $q && grep -c "
        "'tensor<[0-9x]*xi[48]>' $q/decode.mlir; done | grep -c '^[1-9]'",
        "2");
    expect(0,
           "caravan export model parts --to stablehlo --shard-size 10k && ls parts/*.safetensors | "
           "wc -l | awk '{ print ($1 > 2) }'",
           "1");
}

/* Every module has the inputs and outputs of its signature, in their types. */
static void the_signature_is_that_of_the_modules(void **unused)
{
    (void)unused;
    expect(0,
           "cd out; for m in decode prefill_64 train; do "
           "grep -m1 '@main' $m.mlir | sed 's/) -> (/\\n/' | head -n 1 | grep -o '%[^:]*: tensor' "
           "| wc -l; "
           "sed -n \"/\\\"$m\\\": {/,/\\\"outputs\\\"/p\" signature.json | grep -c '\"name\"'; "
           "done | uniq -c | "
           "awk '$1 % 2 { bad = 1 } END { print NR, bad + 0 }'",
           "2 0"); /* decoding and reading take the same */
    expect(0, "grep -c '\"tensor\": \"model.layers.0.self_attn.q_proj.weight\"' out/signature.json",
           "8");
}

static void what_cannot_be_is_said(void **unused)
{
    (void)unused;
    expect(1, "caravan export model no --to stablehlo --quantize int8 --train 8 2>&1",
           "leave out --quantize or --train");
    expect(1, "caravan export model out --to stablehlo 2>&1", "is not empty");
    expect(2, "caravan export model no --batch 3 2>&1", "--to");
    expect(1, "caravan export nowhere no --to stablehlo 2>&1", "nowhere");
}

static void the_page_shows_the_script(void **unused)
{
    (void)unused;
    expect(
        0,
        "cd " CVN_TEST_DATA
        "/../..; sed -n '/^```python/,/^```/p' docs/ACCELERATORS.md | grep -v '^```' > $HOME/page; "
        "sed '1,/\"\"\"$/d' tools/run_exported.py | diff - $HOME/page && echo same",
        "same");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_folder_is_a_model_with_modules),
        cmocka_unit_test(the_signature_is_that_of_the_modules),
        cmocka_unit_test(what_cannot_be_is_said),
        cmocka_unit_test(the_page_shows_the_script),
    };
    return cmocka_run_group_tests(tests, make_models, remove_scratch);
}
