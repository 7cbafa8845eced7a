"""
How the tokenizers of GGUF files cut text: ids of random strings by llama.cpp (PyPI: llama-cpp-python), as hashes.

tests/data/text/atoms.json holds what the strings are made of, and pre.gguf a small vocabulary whose merges cross every
border of words that there is: where text is cut decides about its ids. pre.json has the hashes of 100 strings for each
name of tokenizer.ggml.pre; for names whose patterns llama.cpp matches by approximation (it knows no \\p{Lu}, say) they are
those of the tokenizers library with the pattern of the tokenizer itself. vocabularies.json has hashes of 10,000 strings, by
hundreds, for the vocabularies that come with llama.cpp, models/ggml-vocab-*.gguf, where the folder is named by GGUF_VOCABULARIES.
"""
import json
import os
import sys
import tempfile
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

sys.path.insert(0, str(Path(__file__).parent))
from text_common import END, LEAD, LOWER, O200K, REST, TEKKEN, UPPER, hash_ids, llama_cpp_ids
from text_gguf import ARRAY, DATA, I32, STRING, array, gguf, pair, text

ATOMS = (
    "a b z A Z é É ß ǅ ʰ ª º ñ Ç ő İ ſ the ing tion hello World camelCase HTTPServer iPhone I don naïve Straße 0 1 12 123 1234 "
    "1234567 3.14 0x1F ² ½ Ⅷ ① ٣ ५ 'S 's 't 'RE 're 've 'M 'll 'Ll 'd ' '' \" \"\" . .. ... , ! ?! : ; - -- = == -> // /* */ / \\ "
    "( ) () [ ] { } < > <= | || & * ** + ++ ~ ` ``` ^ _ __ # ## @ $ % € £ ° © → ∑ ≤ « » “ ” ‘ ’ … – — • 、 。 ， ！ ？ ： ； "
    "（ ） ～ 中 文字 日本語 ひらがな カタカナ ー 한국 어 ㄱ ㅏ привет Мир ё Ж Ελλάδα ς א שלום ا مرحبا َ ِّ ، ؟ ۔ "
    "नमस्ते ा ् க் ไทย ่ ກ ႠႡ Ꭰ 𝐀 𐐀 𐐨 😀 👨‍👩‍👧 🏳️‍🌈 🇩🇪 ́ ̈ e\u0301 <sentinel:12> IMGIMGABZ <|x|> http://a.b/c foo_bar() x1y2"
).split(" ") + [" ", "  ", "   ", "     ", " " * 17, "\n", "\n\n", "\r\n", "\r", "\t", "\t\t", " \n", "\n ", "\u00a0",
                "\u2003", "\u2028", "\u200b", "\ufeff", " a", " the", " 1", " .", " !", "\nx", "\t1"]

NAMES = (
    "default gpt-2 smollm llama-bpe glm4 dbrx qwen2 qwen35 ufakzeka laguna deepseek-llm deepseek-coder deepseek-v3 spark2_5 "
    "falcon bloom viking bailingmoe seed-coder exaone-moe minicpm5 jais-2 chameleon"
).split()

NO_HAN = r"(?:(?!\p{Han})%s)"
ORIGINAL = {
    "gpt-4o": [O200K],
    "tekken": [TEKKEN],
    "tiny_aya": [r"\d{1,3}(?=(?:\d{3})*\b)", O200K],
    "kimi-k2": [
        "|".join([
            r"[\p{Han}]+",
            LEAD + NO_HAN % UPPER + "*" + NO_HAN % LOWER + "+" + END,
            LEAD + NO_HAN % UPPER + "+" + NO_HAN % LOWER + "*" + END,
            r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        ])
    ],
    "afmoe": [
        r"\p{N}{1,3}(?=(?:\p{N}{3})*(?:\P{N}|\z))",
        "[一-鿿㐀-䶿豈-﫿぀-ゟ゠-ヿ･-ﾟ⼀-⿟เ-๿຀-໿ក-៿က-႟ꩠ-ꩿꧠ-꧿가-힯ᄀ-ᇿ]+",
        r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|"""
        r""" ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+""",
    ],
    "superbpe": [r"\p{N}+", r"\p{N}{1,3}(?=(?:\p{N}{3})*(?:\P{N}|\z))"],
    "youtu": [
        "[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥぀-ゟ゠-ヿ]+",
        rf"{LEAD}{UPPER}*{LOWER}+{END}|{LEAD}{UPPER}+{LOWER}*{END}|\p{{N}}|{REST}",
    ],
}
WHOLE = {"tekken", "youtu"}


class Random:
    """As in tests/test_text_gguf.c."""

    def __init__(self):
        self.state = 1

    def below(self, n):
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (self.state >> 33) % n

    def string(self):
        return "".join(ATOMS[self.below(len(ATOMS))] for _ in range(1 + self.below(24)))


def strings(n):
    random = Random()
    return [random.string() for _ in range(n)]


def vocabulary():
    """Merges learnt without any cutting."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=1500, initial_alphabet=sorted(alphabet), show_progress=False)
    tokenizer.train_from_iterator(strings(4000), trainer)
    return json.loads(tokenizer.to_str())["model"]


def write(path, model, pre):
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    gguf(path, [
        pair("tokenizer.ggml.model", STRING, text("gpt2")),
        pair("tokenizer.ggml.pre", STRING, text(pre)),
        pair("tokenizer.ggml.tokens", ARRAY, array(STRING, tokens)),
        pair("tokenizer.ggml.token_type", ARRAY, array(I32, [1] * len(tokens))),
        pair("tokenizer.ggml.merges", ARRAY, array(STRING, [" ".join(m) for m in model["merges"]])),
    ])


def original_ids(model, patterns, whole, texts):
    merges = [tuple(m) for m in model["merges"]]
    tokenizer = Tokenizer(models.BPE(vocab=model["vocab"], merges=merges, ignore_merges=whole))
    splits = [pre_tokenizers.Split(Regex(p), "isolated") for p in patterns]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        splits + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    return [tokenizer.encode(t, add_special_tokens=False).ids for t in texts]


def pre_names():
    model, texts, rows = vocabulary(), strings(100), {}
    write(DATA / "pre.gguf", model, "@" * 32)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pre.gguf"
        for name in NAMES:
            write(path, model, name)
            rows[name] = [hash_ids([ids]) for ids in llama_cpp_ids(path, texts)]
    for name, patterns in ORIGINAL.items():
        rows[name] = [hash_ids([ids]) for ids in original_ids(model, patterns, name in WHOLE, texts)]
    (DATA / "pre.json").write_text(
        "{\n" + ",\n".join(f'"{name}": {json.dumps(row)}' for name, row in rows.items()) + "\n}\n")


def vocabularies(folder):
    texts, rows = strings(10000), {}
    for path in sorted(Path(folder).glob("ggml-vocab-*.gguf")):
        if "bert" in path.name:  # of a model that is not read
            continue
        ids = llama_cpp_ids(path, texts)
        rows[path.name] = [hash_ids(ids[i : i + 100]) for i in range(0, len(texts), 100)]
    (DATA / "vocabularies.json").write_text(
        "{\n" + ",\n".join(f'"{name}": {json.dumps(row)}' for name, row in rows.items()) + "\n}\n")


if __name__ == "__main__":
    (DATA / "atoms.json").write_text(json.dumps(ATOMS, ensure_ascii=False) + "\n")
    pre_names()
    if os.environ.get("GGUF_VOCABULARIES"):
        vocabularies(os.environ["GGUF_VOCABULARIES"])
