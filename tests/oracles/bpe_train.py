"""Writes tests/data/text/bpe_train.txt and bpe_train.json: a text, the merges that the trainer of Hugging
Face's tokenizers learns from it, and the ids that the library, and transformers, give with the tokenizer
that `caravan tokenize --train-bpe` makes of it.

Needs tokenizers, transformers and the program ($CARAVAN). Run from the root of the repository.
"""
import json
import os
import random
import subprocess
import tempfile

import transformers
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

import text_strings

OUT = "tests/data/text"
VOCAB, SPECIAL = 1000, 6
PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
           r"|\s+(?!\S)|\s+")


def corpus(rng):
    syllables = ["ka", "lo", "mi", "ter", "an", "e", "sto", "ing", "ro", "un", "qua", "bel", "y", "ness", "da", "fi", "ß", "é", "世界", "при"]
    words = ["".join(rng.choice(syllables) for _ in range(rng.randrange(1, 5))) for _ in range(700)]
    weights = [1 / (i + 2) for i in range(len(words))]
    out = []
    for _ in range(900):
        line = rng.choices(words, weights, k=rng.randrange(3, 14))
        line[0] = line[0].capitalize()
        if rng.randrange(6) == 0:
            line.append(str(rng.randrange(3000)))
        if rng.randrange(5) == 0:
            line.append(rng.choice(["they'll", "it's", "WE'VE", "--", "...", "aaaaaa", "====", "😀", "(x)", '"no,"', "C:\\x"]))
        out.append(" ".join(line) + rng.choice([".", ".", "!", "?", ".\n", ".\r\n", ";  ", "\t"]))
    return "\n".join(out) + "\n"


def main():
    rng = random.Random(11)
    text = corpus(rng)
    path = os.path.join(OUT, "bpe_train.txt")
    with open(path, "w", newline="") as file:
        file.write(text)
    reference = Tokenizer(models.BPE())
    reference.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(PATTERN), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    reference.train_from_iterator([text.strip("\r\n")], trainers.BpeTrainer(
        vocab_size=VOCAB - SPECIAL, min_frequency=2, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    merges = [m if isinstance(m, str) else " ".join(m) for m in json.loads(reference.to_str())["model"]["merges"]]

    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([os.environ["CARAVAN"], "tokenize", "--train-bpe", path, "--vocab", str(VOCAB), "--out", folder],
                       check=True, stdout=subprocess.DEVNULL)
        ours = Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))
        fast = transformers.AutoTokenizer.from_pretrained(folder)
    assert fast.bos_token_id == VOCAB - SPECIAL and fast.eos_token == "<|end_of_text|>" and len(fast) == VOCAB
    rows = []
    for i in range(300):
        line = text_strings.text(rng)[:300] if i % 2 else rng.choice(text.split("\n"))
        if any(mark in line for mark in text_strings.MARKS if mark.startswith("<|")):
            continue
        ids = ours.encode(line).ids
        assert ids == fast(line)["input_ids"], line
        rows.append({"text": line, "ids": ids})
    with open(os.path.join(OUT, "bpe_train.json"), "w") as file:
        json.dump({"vocab": VOCAB, "merges": merges}, file, indent=0, ensure_ascii=False)
        file.write("\n")
    with open(os.path.join(OUT, "bpe_train_ids.jsonl"), "w") as file:
        for row in rows:
            file.write(json.dumps(row, separators=(",", ":")) + "\n")
    print("%d bytes, %d merges, %d strings" % (len(text.encode()), len(merges), len(rows)))


main()
