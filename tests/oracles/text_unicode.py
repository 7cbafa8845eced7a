"""Writes src/text/unicode_table.inc: the code points that \\p{L}, \\p{N} and \\s mean to tiktoken.

Run: python tests/oracles/text_unicode.py   (needs tiktoken and tokenizers)

The classes are read out of the two reference libraries, not out of a Unicode file, so that text is split
as they split it. Both must agree (Unicode 16.0 in tiktoken 0.14 and tokenizers 0.23).
"""
import os

import tiktoken
from tokenizers import Regex, pre_tokenizers

POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
BLOCK = 4096


def blocks():
    for k in range(0, len(POINTS), BLOCK):
        yield "".join(map(chr, POINTS[k:k + BLOCK]))


def by_tiktoken(pattern):
    encoding = tiktoken.Encoding("x", pat_str=pattern, special_tokens={},
                                 mergeable_ranks={bytes([i]): i for i in range(256)})
    found = set()
    for text in blocks():  # what the pattern does not match is dropped
        found.update(map(ord, encoding.decode_bytes(encoding.encode_ordinary(text)).decode()))
    return found


def by_tokenizers(pattern):
    split = pre_tokenizers.Split(Regex(pattern), "removed")
    found = set(POINTS)
    for text in blocks():
        for word, _ in split.pre_tokenize_str(text):
            found.difference_update(map(ord, word))
    return found


def main(out):
    name = {}
    for pattern, label in ((r"\p{L}", "L"), (r"\p{N}", "N"), (r"\s", "S")):
        points = by_tiktoken(pattern)
        assert points == by_tokenizers(pattern), pattern
        name.update((c, label) for c in points)
    ranges = []
    for c in sorted(name):
        if ranges and ranges[-1][1] == c - 1 and ranges[-1][2] == name[c]:
            ranges[-1][1] = c
        else:
            ranges.append([c, c, name[c]])
    out.write("/* Made by tests/oracles/text_unicode.py: letters (L), numbers (N) and white space (S) of Unicode 16. */\n")
    line = ""
    for first, last, label in ranges:
        item = "{0x%x, 0x%x, %s}," % (first, last, label)
        if len(line) + len(item) > 99:
            out.write(line + "\n")
            line = ""
        line += (" " if line else "") + item
    out.write(line + "\n")


ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
with open(os.path.join(ROOT, "src", "text", "unicode_table.inc"), "w", encoding="ascii") as file:
    main(file)
