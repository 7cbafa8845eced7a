"""Trains the small tokenizers of tests/data/text and stores what the reference libraries make of text.

Run: python tests/oracles/text_tokenizers.py   (needs sentencepiece, tiktoken, tokenizers)

Nothing in them comes from a published tokenizer: they are trained on sentences made here. Files:
    spm.model          SentencePiece BPE as Llama 2 has it: byte fallback, identity; a user-defined piece
    spm_plain.model    no byte fallback, extra white space removed
    spm_bare.model     no dummy prefix, byte fallback
    rank.model         tiktoken ranks
    byte_level.json    byte-level BPE as Llama 3 has it: ignore_merges, template, merges as pairs
    strings.json       the same merges as strings, not ignored; Digits and ByteLevel by GPT-2's pattern
    metaspace_*.json   spm.model as tokenizer.json, in the forms that were published over the years
    r1.json            byte_level.json with the special tokens of the R1 distillations
    vectors.jsonl      {"file", "hex", "ids", "special" (ids when special tokens are parsed), "decoded"}
"""
import base64
import io
import json
import os
import random

import sentencepiece
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

import text_reference
import text_strings
from text_common import LLAMA3, byte_alphabet

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data", "text")


def corpus():
    rng = random.Random(1)
    subjects = "the model|a tokenizer|our graph|each device|the compiler|one kernel|my friend|the river".split("|")
    verbs = "reads|writes|splits|merges|computes|remembers|isn't able to change|doesn't like".split("|")
    objects = "every token|the whole text|1234 numbers|a long list of words|all 56 bytes|nothing at all".split("|")
    foreign = ["Der schnelle Fuchs läuft über die Straße.", "Быстрая лиса перепрыгнула через собаку.",
               "快速的狐狸跳过懒狗。", "素早い狐が犬を飛び越える。", "Le garçon naïf préfère le café.", "¿Dónde está la niña?"]
    code = ["int main(void)\n{\n    return 0;\n}\n", "for (int i = 0; i < n; i++)\n\tsum += x[i];\n", "def f(x):\n    return x + 1\n\n"]
    lines = []
    for i in range(4000):
        lines.append("%s %s %s." % (rng.choice(subjects).capitalize(), rng.choice(verbs), rng.choice(objects)))
        if i % 7 == 0:
            lines.append(rng.choice(foreign))
        if i % 11 == 0:
            lines.append(rng.choice(code))
    return lines


def train_spm(name, size, **options):
    model = io.BytesIO()
    settings = dict(model_type="bpe", normalization_rule_name="identity", split_digits=True, character_coverage=0.995,
                    allow_whitespace_only_pieces=True, num_threads=1, minloglevel=2)
    settings.update(options)
    sentences = [s for line in corpus() for s in line.split("\n")] + ["  indented    text"] * 50
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(sentences), model_writer=model, vocab_size=size, **settings)
    with open(os.path.join(OUT, name), "wb") as file:
        file.write(model.getvalue())


def save_json(name, data):
    with open(os.path.join(OUT, name), "w", encoding="utf-8") as file:
        json.dump(data, file, ensure_ascii=False, separators=(",", ":"))
        file.write("\n")


def added(first, *tokens):
    out = []
    for i, (content, flags) in enumerate(tokens):
        row = {"id": first + i, "content": content, "single_word": False, "lstrip": False, "rstrip": False,
               "normalized": False, "special": True}
        row.update(flags)
        out.append(row)
    return out


def template(token, token_id):
    return {"type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": token, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {token: {"id": token, "ids": [token_id], "tokens": [token]}}}


FLAGS = [("<mark>", {"special": False}), ("<norm>", {"special": False, "normalized": True}),
         ("<left>", {"special": False, "lstrip": True}), ("<right>", {"special": False, "rstrip": True}),
         ("<both>", {"lstrip": True, "rstrip": True})]


def train_byte_level():
    tokenizer = Tokenizer(models.BPE(ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(LLAMA3), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=900, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    tokenizer.train_from_iterator(corpus(), trainer)
    data = json.loads(tokenizer.to_str())
    n = len(data["model"]["vocab"])
    first = [("<|begin_of_text|>", {}), ("<|end_of_text|>", {}), ("<|start_header_id|>", {}), ("<|end_header_id|>", {}),
             ("<|eot_id|>", {})]
    data["added_tokens"] = added(n, *first, *FLAGS)
    data["post_processor"] = {"type": "Sequence", "processors": [
        {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True}, template("<|begin_of_text|>", n)]}
    save_json("byte_level.json", data)

    bar = "｜"
    r1 = json.loads(json.dumps(data))
    r1["added_tokens"] = added(n, ("<%sbegin▁of▁sentence%s>" % (bar, bar), {}), ("<%send▁of▁sentence%s>" % (bar, bar), {}),
                               ("<%sUser%s>" % (bar, bar), {"special": False}), ("<%sAssistant%s>" % (bar, bar), {"special": False}),
                               ("<think>", {"special": False}), ("</think>", {"special": False}))
    r1["post_processor"] = template("<%sbegin▁of▁sentence%s>" % (bar, bar), n)
    save_json("r1.json", r1)

    data["model"]["ignore_merges"] = False
    data["model"]["merges"] = [" ".join(m) for m in data["model"]["merges"]]
    data["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [
        {"type": "Digits", "individual_digits": True},
        {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}]}
    data["post_processor"] = None
    save_json("strings.json", data)

    # The same tokens as ranks: single bytes first, then in the order of their merges.
    show = {c: b for b, c in byte_alphabet().items()}
    vocab = sorted(data["model"]["vocab"].items(), key=lambda kv: kv[1])
    with open(os.path.join(OUT, "rank.model"), "w") as file:
        for rank, (token, _) in enumerate(vocab):
            file.write("%s %d\n" % (base64.b64encode(bytes(show[c] for c in token)).decode(), rank))


def metaspace():
    model = sentencepiece.SentencePieceProcessor(model_file=os.path.join(OUT, "spm.model"))
    n = model.get_piece_size()
    vocab = {model.id_to_piece(i): i for i in range(n)}
    merges = []
    for piece, i in vocab.items():
        if model.is_control(i) or model.is_unknown(i) or model.is_byte(i):
            continue
        for cut in range(1, len(piece)):
            left, right = piece[:cut], piece[cut:]
            if left in vocab and right in vocab:
                merges.append((-model.get_score(i), vocab[left], vocab[right], left, right))
    merges = [[m[3], m[4]] for m in sorted(merges)]
    decoder = {"type": "Sequence", "decoders": [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}
    base = {"version": "1.0", "truncation": None, "padding": None,
            "added_tokens": added(0, ("<unk>", {}), ("<s>", {}), ("</s>", {})) + added(n, *FLAGS),
            "normalizer": None, "pre_tokenizer": None, "post_processor": template("<s>", 1), "decoder": decoder,
            "model": {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None,
                      "end_of_word_suffix": None, "fuse_unk": True, "byte_fallback": True, "ignore_merges": False,
                      "vocab": vocab, "merges": merges}}
    legacy = dict(base, normalizer={"type": "Sequence", "normalizers": [
        {"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]})
    legacy["model"] = dict(base["model"], merges=[" ".join(m) for m in merges])
    save_json("metaspace_legacy.json", legacy)
    for name, scheme, split in (("first", "first", False), ("always", "always", True), ("never", "never", True)):
        data = dict(base, pre_tokenizer={"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": split})
        if name == "always":
            data["decoder"] = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": split}
            data["model"] = dict(base["model"], byte_fallback=False)
        save_json("metaspace_%s.json" % name, data)


def vectors():
    names = sorted(n for n in os.listdir(OUT) if n.endswith((".model", ".json")) and n != "bpe_train.json")
    rng = random.Random(7)
    with open(os.path.join(OUT, "vectors.jsonl"), "w") as file:
        for name in names:
            reference = text_reference.load(os.path.join(OUT, name))
            for i in range(90):
                json_only = isinstance(reference, text_reference.HuggingFace)
                data = text_strings.broken(rng) if i % 9 == 0 and not json_only else text_strings.text(rng).encode()
                data = data[:600]
                if json_only:
                    data = data.decode(errors="ignore").encode()
                row = {"file": name, "hex": data.hex(), "ids": reference.encode(data)}
                try:
                    data.decode()
                    row["decoded"] = reference.decode(row["ids"])
                    if hasattr(reference, "encode_special"):
                        special = reference.encode_special(data)
                        if special != row["ids"]:
                            row["special"] = special
                except UnicodeDecodeError:
                    pass
                file.write(json.dumps(row, separators=(",", ":")) + "\n")


def main():
    train_spm("spm.model", 900, byte_fallback=True, remove_extra_whitespaces=False, user_defined_symbols=["<user>", "ab▁c"])
    train_spm("spm_plain.model", 400, byte_fallback=False, remove_extra_whitespaces=True)
    train_spm("spm_bare.model", 600, byte_fallback=True, remove_extra_whitespaces=False, add_dummy_prefix=False)
    train_byte_level()
    metaspace()
    vectors()


main()
