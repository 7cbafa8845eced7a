"""
Tokenizers in the form of each family of models, trained on sentences made here by the tokenizers library (nothing in them comes
from a published tokenizer), and what that library makes of hard text. Files in tests/data/text/families:

    NAME.json        a tokenizer.json: normalizer, pre-tokenizer, decoder, post-processor and added tokens as the family's own
    tekken.json      Mistral's own form, for which tiktoken says the ids
    vectors.jsonl    first {"texts"}; then, for each file, {"file", "ids", "special" (ids when special tokens are parsed, with those
                     that begin a text), "decoded"}, null where "special" is "ids", and "decoded" the text

Run: python tests/oracles/text_families.py   (needs tiktoken, tokenizers). Two runs make other merges: of pairs that are
equally frequent the trainer takes any.

Where the pipelines are from: transformers (models/{gemma,qwen2,qwen3_5,cohere,llama}/tokenization_*.py, convert_slow_tokenizer.py),
llama.cpp (conversion/, src/llama-vocab.cpp) and mistral-common.
"""
import base64
import json
import random
import unicodedata
from pathlib import Path

import tiktoken
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

import text_strings
from text_common import LLAMA3, O200K, QWEN2, QWEN35, TEKKEN, byte_alphabet

OUT = Path(__file__).parent.parent / "data" / "text" / "families"

BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
GPT2 = dict(BYTES, use_regex=True)


def split(regex, behavior="Isolated", invert=False):
    return {"type": "Split", "pattern": {"Regex": regex}, "behavior": behavior, "invert": invert}


def sequence(key, *parts):
    return {"type": "Sequence", key: list(parts)}


def digits(one):
    return {"type": "Digits", "individual_digits": one}


def words(*parts):
    return sequence("pretokenizers", *parts)


def replace(old, new):
    return {"type": "Replace", "pattern": {"String": old}, "content": new}


def corpus():
    rng = random.Random(3)
    subjects = "the model|a tokenizer|OurGraph|each device|the compiler|HTTPServer|my friend|the river|DON'T we|it's".split("|")
    verbs = "reads|writes|splits|merges|computes|remembers|isn't able to change|DOESN'T like|they'll see".split("|")
    objects = "every token|the whole text|1234 numbers|a long list of words|all 56 bytes|3.14|camelCaseNames|$100,000".split("|")
    foreign = ["Der schnelle Fuchs läuft über die Straße.", "Быстрая лиса перепрыгнула через собаку.", "שלום עולם", "مرحبا بالعالم",
               "快速的狐狸跳过懒狗。", "素早い狐が犬を飛び越える。", "Le garçon naïf préfère le café.", "¿Dónde está la niña?",
               "안녕하세요 세계", "नमस्ते दुनिया", "👨‍👩‍👧 and 😀😀", "cafe\u0301 nai\u0308ve"]
    code = ["int main(void)\n{\n    return 0;\n}\n", "for (int i = 0; i < n; i++)\n\tsum += x[i];\n", "def f(x):\r\n    return x + 1\r\n\r\n"]
    lines = []
    for i in range(3000):
        lines.append("%s %s %s." % (rng.choice(subjects).capitalize(), rng.choice(verbs), rng.choice(objects)))
        lines += [rng.choice(foreign)] if i % 5 == 0 else []
        lines += [rng.choice(code)] if i % 11 == 0 else []
    return lines


def special(content, **flags):
    return dict({"content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True},
                **flags)


def user(content, **flags):
    return special(content, special=False, **flags)


# Behind the tokens of a family: one of each kind of flag.
FLAGS = [user("<mark>"), user("<norm>", normalized=True), user("<left>", lstrip=True), user("<right>", rstrip=True),
         special("<both>", lstrip=True, rstrip=True), user("<word>", single_word=True), user("€né", normalized=True)]

CHATML = [special(t) for t in ("<|endoftext|>", "<|im_start|>", "<|im_end|>")] + [user("<think>"), user("</think>"), user("<tool_call>")]
ENDS = special("<|endoftext|>")

# name: (normalizer, pre-tokenizer, ignore_merges, added tokens, tokens in front of a text)
BYTE_LEVEL = {
    "llama3": (None, words(split(LLAMA3), BYTES), True, [special("<|begin_of_text|>"), special("<|eot_id|>")], 1),
    "llama4": (None, words(split(O200K), BYTES), False, [special("<|begin_of_text|>"), special("<|eot|>")], 1),
    "gpt_oss": (None, words(split(O200K), BYTES), False,
                [special(t) for t in ("<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|return|>", "<|call|>")], 0),
    "qwen2": ({"type": "NFC"}, words(split(QWEN2), BYTES), False, CHATML, 0),
    "qwen3_5": ({"type": "NFC"}, words(split(QWEN35), BYTES), False, CHATML, 0),
    "command_r": ({"type": "NFC"}, words(digits(True), dict(GPT2)), False,
                  [special("<BOS_TOKEN>"), special("<|START_OF_TURN_TOKEN|>"), special("<|END_OF_TURN_TOKEN|>")], 1),
    "granite": (None, words(digits(True), dict(GPT2)), False, [special("<|end_of_text|>"), special("<|start_of_role|>")], 0),
    "granite_docling": (None, dict(GPT2), False, [special("<|end_of_text|>"), special("<|start_of_role|>")], 0),
    "phi4": (None, words(split(LLAMA3, "Removed", True), BYTES), False,
             [ENDS, special("<|im_start|>", lstrip=True, rstrip=True), special("<|im_end|>", rstrip=True)], 0),
    "olmo2": (None, words(split(LLAMA3, "Removed", True), BYTES), False, [ENDS, special("<|pad|>")], 0),
    "glm4": (None, words(split(LLAMA3), BYTES), True, [special("[gMASK]"), special("<sop>"), special("<|user|>"), user("<think>")], 2),
    "tekken_json": (None, words(split(TEKKEN), BYTES), True, [special("<s>"), special("[INST]"), special("[/INST]")], 1),
    "falcon": (None, words({"type": "Punctuation", "behavior": "Contiguous"}, dict(GPT2), digits(False), split("[0-9][0-9][0-9]")),
               False, [ENDS], 0),
    # No family's: what is left of the behaviours and normalizers.
    "contiguous": (sequence("normalizers", {"type": "NFD"}, {"type": "Lowercase"}),
                   words({"type": "Punctuation"}, split(r"\s", "Contiguous"), BYTES), False, [ENDS], 0),
    "merged": ({"type": "NFKC"}, words(split(r"[aeiou]", "MergedWithPrevious"), split(r"\s", "MergedWithNext"), BYTES), False, [ENDS], 0),
    "inverted": ({"type": "NFKD"}, words(split(r"[^aeiou]+", "MergedWithPrevious", True), split(r"\s", "Removed"), BYTES), False, [ENDS], 0),
}


def template(tokens):
    """tokens: (text, id) in front of a text."""
    front = [{"SpecialToken": {"id": t, "type_id": 0}} for t, _ in tokens]
    a, b = ({"Sequence": {"id": s, "type_id": k}} for k, s in enumerate("AB"))
    return {"type": "TemplateProcessing", "single": front + [a], "pair": front + [a, b],
            "special_tokens": {t: {"id": t, "ids": [i], "tokens": [t]} for t, i in tokens}}


def save(name, data):
    (OUT / name).write_text(json.dumps(data, ensure_ascii=False, separators=(",", ":")) + "\n")


def finish(name, tokenizer, added, lead, changes):
    """Stores a trained tokenizer with its added tokens and with what the trainer does not know."""
    data = json.loads(tokenizer.to_str())
    n = len(data["model"]["vocab"])
    vocab = data["model"]["vocab"]
    rows = []
    # With white space as a token of its own, as Gemma has it, the library writes what a token strips a second time.
    strips = not name.startswith("gemma")
    for token in added + [t for t in FLAGS if strips or not (t["lstrip"] or t["rstrip"])]:
        known = token["content"] in vocab
        rows.append(dict({"id": vocab[token["content"]] if known else n}, **token))
        n += not known
    data["added_tokens"] = sorted(rows, key=lambda row: row["id"])
    if lead:
        begin = [(row["content"], row["id"]) for row in rows[:lead]]
        data["post_processor"] = sequence("processors", dict(BYTES, trim_offsets=False), template(begin)) if name == "llama3" \
            else template(begin)
    data.update(changes)
    save(name + ".json", data)


def byte_level():
    for name, (normalizer, pre, ignore, added, lead) in BYTE_LEVEL.items():
        tokenizer = Tokenizer(models.BPE(ignore_merges=ignore))
        data = json.loads(tokenizer.to_str())
        data.update(normalizer=normalizer, pre_tokenizer=pre, decoder=dict(GPT2))
        tokenizer = Tokenizer.from_str(json.dumps(data))
        tokenizer.train_from_iterator(corpus(), trainers.BpeTrainer(
            vocab_size=620, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
        finish(name, tokenizer, added, lead, {})


def sentencepiece_like():
    """Gemma, and Llama 2 with the added tokens of Phi-3."""
    gemma = [special(t) for t in ("<bos>", "<eos>", "<pad>", "<start_of_turn>", "<end_of_turn>")] + [user(t) for t in ("\n\n", "▁▁", "▁▁▁", "▁▁▁▁", "<table>")]
    phi3 = [special("<s>"), special("</s>", rstrip=True)] + [special(t, rstrip=True) for t in ("<|user|>", "<|assistant|>", "<|end|>")]
    prefix = sequence("normalizers", {"type": "Prepend", "prepend": "▁"}, replace(" ", "▁"))
    strip = sequence("decoders", replace("▁", " "), {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0})
    plain = sequence("decoders", *strip["decoders"][:3])
    spaces = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}
    meta = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False}
    for name, normalizer, pre, decoder, added in (
            ("gemma", replace(" ", "▁"), spaces, plain, gemma), ("gemma4", replace(" ", "▁"), spaces, plain, gemma), ("phi3", prefix, None, strip, phi3), ("llama2_new", None, meta, strip, phi3[:2]),
            ("mistral_v3", None, dict(meta, split=True, prepend_scheme="always"), strip, phi3[:2])):
        tokenizer = Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
        data = json.loads(tokenizer.to_str())
        data.update(normalizer=replace(" ", "▁"), pre_tokenizer=dict(meta, prepend_scheme="never", split=True), decoder=decoder)
        tokenizer = Tokenizer.from_str(json.dumps(data))
        sentences = corpus() + ["a  b   c    d"] * 300
        first = ["<unk>"] + ["<0x%02X>" % b for b in range(256)]
        if name.startswith("gemma"):  # runs of spaces are pieces, too
            tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("▁+|[^▁]+"), "isolated")
        tokenizer.train_from_iterator(sentences, trainers.BpeTrainer(
            vocab_size=800, special_tokens=first, limit_alphabet=120, show_progress=False))
        finish(name, tokenizer, [special("<unk>")] + added, 0, {
            "normalizer": normalizer, "pre_tokenizer": pre, "decoder": decoder})
        data = json.loads((OUT / (name + ".json")).read_text())
        bos = next(row for row in data["added_tokens"] if row["content"] in ("<bos>", "<s>"))
        data["added_tokens"] = [row for row in data["added_tokens"] if not row["content"].startswith("<0x")]
        if name != "gemma4":
            data["model"]["merges"] = all_merges(data["model"])
        save(name + ".json", dict(data, post_processor=template([(bos["content"], bos["id"])])))


def all_merges(model):
    """As where merges were made of SentencePiece's scores: of each piece all pairs that make it, one piece after the other."""
    pieces = list(dict.fromkeys("".join(pair) for pair in model["merges"]))
    vocab = {t for t in model["vocab"] if t != "<unk>" and not t.startswith("<0x")}
    return [[p[:i], p[i:]] for p in pieces for i in range(1, len(p)) if p[:i] in vocab and p[i:] in vocab]


def tekken():
    """Ranks of the byte-level tokenizer with the same pattern, single bytes first."""
    show = {c: b for b, c in byte_alphabet().items()}
    vocab = json.loads((OUT / "tekken_json.json").read_text())["model"]["vocab"]
    tokens = [bytes(show[c] for c in t) for t, _ in sorted(vocab.items(), key=lambda kv: kv[1])]
    tokens = [bytes([b]) for b in range(256)] + [t for t in tokens if len(t) > 1]
    rows = []
    for rank, token in enumerate(tokens):
        try:
            word = token.decode()
        except UnicodeDecodeError:
            word = None
        rows.append({"rank": rank, "token_bytes": base64.b64encode(token).decode(), "token_str": word})
    names = ["<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[TOOL_CALLS]", "[THINK]", "[/THINK]"]
    data = {"config": {"pattern": TEKKEN, "num_vocab_tokens": len(rows), "default_vocab_size": len(rows) - 20 + 12,
                       "default_num_special_tokens": 12, "version": "v13"},
            "vocab": rows, "special_tokens": [{"rank": i, "token_str": t, "is_control": t != "[THINK]"} for i, t in enumerate(names)]}
    save("tekken.json", data)
    special = {t: i for i, t in enumerate(names)}
    special.update({"<SPECIAL_%d>" % i: i for i in range(len(names), 12)})
    ranks = {token: 12 + rank for rank, token in enumerate(tokens[:-20])}
    return tiktoken.Encoding("x", pat_str=TEKKEN, mergeable_ranks=ranks, special_tokens=special)


HARD = ["", " ", "  ", "\n", "\r\n", " \r\n \t\n", "a", " a", "a ", "  a  b   ", "\x00", "a\x00b", "DON'T I'LL we'Re it'S", "123456789", "1 12 123 1234",
        "½²Ⅷ٣５", "cafe\u0301", "café", "e\u0301\u0323", "ä\u0323", "\u1e9b\u0323", "각", "\u1100\u1161\u11a8", "Å Å", "ﬁ", "ſt İ ẞ",
        "👨‍👩‍👧‍👦🏳️‍🌈🇩🇪", "中文，文字。", "שלום עֲבוֹדָה", "مرحبا بِكَ ١٢٣", "नमस्ते क्षि", "\ufeffx", "a\u00a0b\u3000c", "camelCaseHTTPServer iPhone",
        "https://a.b/c?d=e&f=g#h", "a/b//c", "==--==", "...?!", "$1,234.56", "\t\tif (x)\n\t\t\treturn;\n", "\u200b\u200d\ufe0f", "x" * 70, " " * 70,
        "<mark>a<norm> b <left> c <right> d <both> e", "<word> a<word>b <word>. <word>_", "€né €NÉ €ne\u0301", "née", "a<|endoftext|>b", " <|im_end|> x",
        "<|end|>\n\n<|user|> \n a", "<bos>a<end_of_turn>\n\n▁▁b", "[INST] a [/INST]b", "<|begin_of_text|><sop>[gMASK]x", "<0x41>", "▁a▁", "it’s “q”"]


def settled(text):
    """Without the characters that the library, whose Unicode is older than Python's, does not decompose."""
    same = normalizers.NFKD().normalize_str
    return "".join(c for c in text if same(c) == unicodedata.normalize("NFKD", c))


def expected(path, encoding, texts):
    """{"file", "ids", "special", "decoded"}: of each text; null where it is the same as in "ids" and in the text."""
    tokenizer = None if path.name == "tekken.json" else Tokenizer.from_file(str(path))
    row = {"file": path.name, "ids": [], "special": [], "decoded": []}
    for text in texts:
        if tokenizer:
            tokenizer.encode_special_tokens = True
            ids = tokenizer.encode(text, add_special_tokens=False).ids
            decoded = tokenizer.decode(ids, skip_special_tokens=False)
            tokenizer.encode_special_tokens = False
            special = tokenizer.encode(text).ids
        else:
            ids, special = encoding.encode_ordinary(text), [1] + encoding.encode(text, allowed_special="all")
            decoded = encoding.decode(ids)
        row["ids"].append(ids)
        row["special"].append(special if special != ids else None)
        row["decoded"].append(decoded if decoded != text else None)
    return row


def main():
    OUT.mkdir(exist_ok=True)
    byte_level()
    sentencepiece_like()
    encoding = tekken()
    rng = random.Random(11)
    texts = HARD + [settled(text_strings.text(rng)[:120]) for _ in range(40)]
    with open(OUT / "vectors.jsonl", "w") as file:
        for row in [{"texts": texts}] + [expected(path, encoding, texts) for path in sorted(OUT.glob("*.json"))]:
            file.write(json.dumps(row, separators=(",", ":")) + "\n")


main()
