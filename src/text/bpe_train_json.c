/* A trained tokenizer in the form that huggingface.c describes and reads. */
#include "text/bpe_train.h"
#include "text/bpe_train_impl.h"
#include "text/byte_level.h"
#include "text/json_text.h"
#include "text/split.h"

#include <assert.h>
#include <string.h>

static const char *const SPECIAL[] = {
    "<|begin_of_text|>",   "<|end_of_text|>",   "<|finetune_right_pad_id|>",
    "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>",
};
static_assert(sizeof SPECIAL / sizeof *SPECIAL == BPE_TRAIN_SPECIAL, "the vocabulary counts them");

unsigned char bpe_train_byte(int order)
{
    for (int pass = 1; pass >= 0; pass--)
        for (unsigned byte = 0; byte < 256; byte++)
            if (byte_level_itself(byte) == (pass == 1) && order-- == 0)
                return (unsigned char)byte;
    assert(false);
    return 0;
}

/* Appends a symbol in the alphabet; of its characters, '"' and '\' alone need an escape in JSON. */
static void spell(const TrainSymbol *symbol, StrBuf *out)
{
    for (int32_t i = 0; i < symbol->length; i++) {
        const char byte = (char)symbol->text[i];
        if (byte == '"' || byte == '\\')
            strbuf_putc(out, '\\');
        byte_level_put(&byte, 1, out);
    }
}

static void add_special(int32_t first, StrBuf *out)
{
    strbuf_puts(out, "  \"added_tokens\": [\n");
    for (int32_t i = 0; i < BPE_TRAIN_SPECIAL; i++)
        strbuf_printf(out,
                      "    {\"id\": %d, \"content\": \"%s\", \"single_word\": false, \"lstrip\": "
                      "false, \"rstrip\": false, \"normalized\": false, \"special\": true}%s\n",
                      first + i, SPECIAL[i], i + 1 < BPE_TRAIN_SPECIAL ? "," : "");
    strbuf_puts(out, "  ],\n");
}

static void add_stages(int32_t bos, StrBuf *out)
{
    strbuf_puts(out, "  \"normalizer\": null,\n"
                     "  \"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [\n"
                     "    {\"type\": \"Split\", \"pattern\": {\"Regex\": ");
    json_text_string(SPLIT_LLAMA3, strlen(SPLIT_LLAMA3), out);
    strbuf_puts(out, "}, \"behavior\": \"Isolated\", \"invert\": false},\n"
                     "    {\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": "
                     "true, \"use_regex\": false}]},\n");
    strbuf_printf(out,
                  "  \"post_processor\": {\"type\": \"TemplateProcessing\",\n"
                  "    \"single\": [{\"SpecialToken\": {\"id\": \"%s\", \"type_id\": 0}}, "
                  "{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}],\n"
                  "    \"pair\": [{\"SpecialToken\": {\"id\": \"%s\", \"type_id\": 0}}, "
                  "{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}, {\"SpecialToken\": {\"id\": "
                  "\"%s\", \"type_id\": 1}}, {\"Sequence\": {\"id\": \"B\", \"type_id\": 1}}],\n"
                  "    \"special_tokens\": {\"%s\": {\"id\": \"%s\", \"ids\": [%d], \"tokens\": "
                  "[\"%s\"]}}},\n",
                  SPECIAL[0], SPECIAL[0], SPECIAL[0], SPECIAL[0], SPECIAL[0], bos, SPECIAL[0]);
    strbuf_puts(out, "  \"decoder\": {\"type\": \"ByteLevel\", \"add_prefix_space\": true, "
                     "\"trim_offsets\": true, \"use_regex\": true},\n");
}

void bpe_train_json(const TrainSymbol *symbol, int32_t n, const TrainMerge *merge, size_t n_merges,
                    StrBuf *out)
{
    strbuf_puts(out, "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n");
    add_special(n, out);
    add_stages(n, out);
    strbuf_puts(out, "  \"model\": {\"type\": \"BPE\", \"dropout\": null, \"unk_token\": null,\n"
                     "    \"continuing_subword_prefix\": null, \"end_of_word_suffix\": null, "
                     "\"fuse_unk\": false,\n    \"byte_fallback\": false, \"ignore_merges\": false,"
                     "\n    \"vocab\": {\n");
    for (int32_t i = 0; i < n; i++) {
        strbuf_puts(out, "      \"");
        spell(&symbol[i], out);
        strbuf_printf(out, "\": %d%s\n", i, i + 1 < n ? "," : "");
    }
    strbuf_puts(out, "    },\n    \"merges\": [\n");
    for (size_t i = 0; i < n_merges; i++) {
        strbuf_puts(out, "      \"");
        spell(&symbol[merge[i].left], out);
        strbuf_putc(out, ' ');
        spell(&symbol[merge[i].right], out);
        strbuf_puts(out, i + 1 < n_merges ? "\",\n" : "\"\n");
    }
    strbuf_puts(out, "    ]\n  }\n}\n");
}
