#include "text/gguf_pre.h"

#include "text/split.h"

#include <stddef.h>
#include <string.h>

/*
 * Facts about the tokenizers named, in the words of their tokenizer.json files. Which name stands for which of them is
 * llama.cpp's choice (ggml-org/llama.cpp, src/llama-vocab.cpp), and so are the patterns of "default".
 */

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define LEAD "[^\\r\\n\\p{L}\\p{N}]?"
#define OTHERS " ?[^\\s\\p{L}\\p{N}]+"
#define SPACES "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

#define QWEN2 LEAD "\\p{L}+|\\p{N}|" OTHERS "[\\r\\n]*|" SPACES

/* A capital letter begins a word: "camelCase" is "camel" and "Case". */
#define CASED(upper, lower, tail)                                                                  \
    LEAD upper "*" lower "+" tail "|" LEAD upper "+" lower "*" tail "|"
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define NO_HAN(class) "(?:(?!\\p{Han})" class ")"

/* Groups of three digits from the right: 1234567 is 1, 234 and 567. */
#define THREES "\\p{N}{1,3}(?=(?:\\p{N}{3})*(?!\\p{N}))"

#define PUNCTUATION "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~]"
#define DEEPSEEK(newlines)                                                                         \
    PUNCTUATION                                                                                    \
    "[A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+" newlines             \
    "|\\s+(?!\\S)|\\s+"
#define DEEPSEEK_V3 DEEPSEEK("[\\r\\n]*|\\s*[\\r\\n]+")
#define CHINESE_JAPANESE "[一-龥぀-ゟ゠-ヿ]+"
#define CHINESE_KOREAN "[一-龥ࠀ-一가-퟿]+"

/* clang-format off */

/* DeepSeek's letters that have an upper or lower case. */
#define DEEPSEEK_LETTERS \
    "A-Za-z" \
    "µÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ" \
    "-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹ" \
    "ℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-" \
    "𞥃"

#define AFMOE_SCRIPTS \
    "[一-鿿㐀-䶿豈-﫿぀-ゟ゠-ヿ･-ﾟ⼀-⿟เ-๿຀-໿ក-៿က-႟ꩠ-ꩿꧠ-꧿가-힯ᄀ-ᇿ]+"

/* clang-format on */

#define BLOOM " ?[^(\\s|.,!?…。，、।۔،)]+"

static const GgufPre TABLE[] = {
    {.names = "default", .split = {"[\\p{P}$+<=>^~|]+", SPLIT_GPT2, "\\p{N}+", "[0-9][0-9][0-9]"}},
    {.names = "gpt-2 phi-2 mpt olmo jais trillion granite-docling gigachat mellum a.x-4.0 exaone4 "
              "modern-bert jina-es jina-de jina-v2-es jina-v2-de",
     .split = {SPLIT_GPT2}},
    {.names = "starcoder refact command-r smollm codeshell exaone minerva-7b mellum2",
     .split = {"\\p{N}", SPLIT_GPT2}},
    {.names = "llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano",
     .split = {SPLIT_LLAMA3},
     .whole = true,
     .bos = true},
    {.names = "glm4 glm5", .split = {SPLIT_LLAMA3}, .whole = true},
    {.names = "dbrx smaug-bpe chatglm-bpe", .split = {SPLIT_LLAMA3}},
    {.names = "qwen2 deepseek-r1-qwen stablelm2 hunyuan megrez solar-open grok-2 kormo f2llmv2",
     .split = {SPLIT_QWEN2}},
    {.names = "qwen35",
     .split = {CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| "
                            "?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" SPACES}},
    {.names = "ufakzeka", .split = {QWEN2}},
    {.names = "laguna", .split = {"[^\\n]+|[\\n]+", SPLIT_QWEN2}},
    {.names = "tekken",
     .split = {CASED(UPPER, LOWER, "") "\\p{N}|" OTHERS "[\\r\\n/]*|" SPACES},
     .whole = true,
     .bos = true},
    {.names = "gpt-4o kanana2 talkie minimax-m2", .split = {SPLIT_O200K}},
    /* llama.cpp does not keep words whole for llama4. It need not: every token of Llama 4 is made by its merges. */
    {.names = "llama4 granite-embed-multi-97m", .split = {SPLIT_O200K}, .whole = true},
    {.names = "tiny_aya cohere2moe", .split = {"\\d{1,3}(?=(?:\\d{3})*\\b)", SPLIT_O200K}},
    {.names = "kimi-k2",
     .split = {"\\p{Han}+|" CASED(NO_HAN(UPPER), NO_HAN(LOWER),
                                  CONTRACTIONS "?") "\\p{N}{1,3}|" OTHERS "[\\r\\n]*|" SPACES}},
    {.names = "youtu",
     .split = {"[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+"
               "|" CHINESE_JAPANESE,
               CASED(UPPER, LOWER, CONTRACTIONS "?") "\\p{N}|" OTHERS "[\\r\\n/]*|" SPACES},
     .whole = true},
    {.names = "deepseek-llm",
     .split = {"[\\r\\n]", "\\s?[" DEEPSEEK_LETTERS "]+", "\\s?[!-/:-~！-／：-～‘-‟　-。]+",
               "(?<!\\s)\\s+$", CHINESE_KOREAN, "\\p{N}+"}},
    {.names = "deepseek-coder",
     .split = {"[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", CHINESE_KOREAN, "\\p{N}"}},
    {.names = "deepseek-v3 hunyuan-dense joyai-llm hy_v4",
     .split = {"\\p{N}{1,3}", CHINESE_JAPANESE, DEEPSEEK_V3}},
    {.names = "spark2_5",
     .split = {"\\p{N}{1,3}", CHINESE_JAPANESE, DEEPSEEK("|[\\r\\n]"), "\\p{N}"}},
    {.names = "afmoe", .split = {THREES, AFMOE_SCRIPTS, DEEPSEEK_V3}},
    {.names = "falcon", .split = {"[\\p{P}$+<=>^~|`]+", SPLIT_GPT2, "[0-9][0-9][0-9]"}},
    {.names = "bloom gpt3-finnish poro-chat", .split = {BLOOM}},
    {.names = "viking", .split = {BLOOM, "\\p{N}"}},
    {.names = "superbpe", .split = {"\\p{N}+", THREES}},
    {.names = "bailingmoe bailingmoe2 llada-moe",
     .split = {"'(?i:[sdmt]|ll|ve|re)|" LEAD "\\p{L}+|\\p{N}|" OTHERS
               "[\\r\\n]*|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+"}},
    {.names = "seed-coder",
     .split = {CONTRACTIONS "|" LEAD "\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}\\r\\n]+|" SPACES}},
    {.names = "exaone-moe",
     .split = {CONTRACTIONS "|" LEAD "(?:\\p{L}\\p{M}*(?: \\p{L}\\p{M}*)*)+|\\p{N}|" OTHERS
                            "[\\r\\n/]?|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+"}},
    {.names = "minicpm5",
     .split = {"\\p{N}{1,3}", CONTRACTIONS "|" LEAD "\\p{L}+|\\p{N}+|" OTHERS "[\\r\\n]*|" SPACES},
     .whole = true},
    {.names = "jais-2",
     .split = {CONTRACTIONS
               "|" LEAD "\\p{L}+|\\p{N}{1,3}|" OTHERS
               "[\\r\\n]*|\\s*[\\r\\n]+|\\s{512}(?!\\S)|\\s{256}(?!\\S)|\\s{128}(?!\\S)|"
               "\\s{64}(?!\\S)|\\s{32}(?!\\S)|\\s{16}(?!\\S)|\\s{8}(?!\\S)|\\s{4}(?!\\S)|"
               "\\s{1,2}(?!\\S)|\\s"}},
    {.names = "chameleon",
     .split = {"<sentinel:[0-9]+>", "IMGIMG[A-I]{1,4}Z", "[\\t\\n]|    |  ", "\\p{N}",
               "[\\p{P}!-/:-@\\[-`{-~]", SPLIT_GPT2},
     .bos = true},
    {.names = "gemma4", .bos = true, .blanks = true},
    {.names = "granite-embed-multi-311m sarvam-moe", .blanks = true},
};

/* Whether a name is one of a list. */
static bool is_listed(const char *names, const char *name)
{
    size_t n = strlen(name);
    for (const char *p = names; *p; p += strspn(p, " ")) {
        size_t length = strcspn(p, " ");
        if (length == n && memcmp(p, name, n) == 0)
            return true;
        p += length;
    }
    return false;
}

const GgufPre *gguf_pre_find(const char *name)
{
    for (size_t i = 0; i < sizeof TABLE / sizeof *TABLE; i++)
        if (is_listed(TABLE[i].names, name))
            return &TABLE[i];
    return NULL;
}

const GgufPre *gguf_pre_of(const char *const *pattern, bool whole)
{
    for (size_t row = 0; row < sizeof TABLE / sizeof *TABLE; row++) {
        const GgufPre *pre = &TABLE[row];
        int i = 0;
        while (i < SPLIT_MAX && pre->split[i] && pattern[i] &&
               strcmp(pre->split[i], pattern[i]) == 0)
            i++;
        bool same = i == SPLIT_MAX || (!pre->split[i] && !pattern[i]);
        if (i > 0 && same && pre->whole == whole && !pre->blanks)
            return pre;
    }
    return NULL;
}
