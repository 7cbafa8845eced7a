#!/usr/bin/env python3
"""Writes tests/data/chat/tokenizer.json: a byte-level tokenizer of 512 ids with the marks of Llama 3's chat
format, for models of random weights. 3 marks come first, where `caravan init` expects bos and eos."""
import json
import os

WORDS = """the and you that was for are with his they this have from one had word but not what all were
when your can said there use each which she how their will other about out many then them these some her would
make like him into time has look two more write see number way could people than first water been call who oil
its now find long down day did get come made may part over new sound take only little work know place year live
back give most very after thing our just name good sentence man think say great where help through much before
line right too mean old any same tell boy follow came want show also around form three small set put end does
another well large must big even such because turn here why ask went men read need land different home us move
try kind hand picture again change off play spell air away animal house point page letter mother answer found
study still learn should world high every near add food between own below country plant last school father keep
tree never start city earth eye light thought head under story saw left few while along might close something
seem next hard open example begin life always those both paper together got group often run""".split()


def byte_letters():
    """The letters that stand for bytes in byte-level vocabularies: printable ones for themselves."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters, extra = {}, 0
    for b in range(256):
        if b in plain:
            letters[b] = chr(b)
        else:
            letters[b] = chr(256 + extra)
            extra += 1
    return letters


specials = ["<|finetune_right_pad_id|>", "<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>",
            "<|end_header_id|>", "<|eot_id|>", "<|eom_id|>", "<|python_tag|>"]
letters = byte_letters()
vocab = {letters[b]: 8 + b for b in range(256)}
merges = []


def add(piece):
    """A piece and the merges that lead to it, letter by letter."""
    for end in range(2, len(piece) + 1):
        left, right = piece[:end - 1], piece[end - 1]
        if piece[:end] not in vocab and len(vocab) + 8 < 512:
            vocab[piece[:end]] = 8 + len(vocab)
            merges.append([left, right])


for word in WORDS:
    add("\u0120" + word)
added = [{"id": i, "content": s, "single_word": False, "lstrip": False, "rstrip": False,
          "normalized": False, "special": True} for i, s in enumerate(specials)]
pattern = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
           r"|\s*[\r\n]+|\s+(?!\S)|\s+")
data = {
    "version": "1.0",
    "added_tokens": added,
    "normalizer": None,
    "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
        {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False},
        {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}]},
    "post_processor": None,
    "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
    "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
              "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
              "ignore_merges": False, "vocab": vocab, "merges": merges},
}
folder = os.path.join(os.path.dirname(__file__), "..", "data", "chat")
os.makedirs(folder, exist_ok=True)
with open(os.path.join(folder, "tokenizer.json"), "w", encoding="utf-8") as f:
    json.dump(data, f, ensure_ascii=False, separators=(",", ":"))
    f.write("\n")
