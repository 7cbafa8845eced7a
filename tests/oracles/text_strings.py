"""Random strings that tokenizers find hard: all Unicode categories, emoji sequences, control characters,
very long runs, near-words, marks of chat formats, and bytes that are not UTF-8."""
import random
import unicodedata

WORDS = ("the quick brown fox jumps over lazy dogs I'm you're we'VE they'd isn't it'll DON'T hello world "
         "Straße naïve café über Привет мир как дела 你好 世界 東京 日本語 안녕하세요 مرحبا שלום नमस्ते ไทย "
         "return 0; int main(void) {} def f(x): x += 1 <b>html</b> https://example.org/a?b=c&d=%20 "
         "3.14159 1,000,000 2024-07-26 12345678 x² ½ Ⅷ ٣٤ 1st 0xFF").split(" ")
MARKS = ["<s>", "</s>", "<unk>", "<pad>", "<0x0A>", "<|eot_id|>", "<|begin_of_text|>", "<|start_header_id|>", "[INST]",
         "<<SYS>>", "<think>", "</think>", "▁", "▁▁", "Ġ", "<user>", "<mark>", " <mark> ", "<norm>", "<left>", "<right>",
         "  <left>  ", "\t<right>\n\n", "<｜User｜>", "\ufeff", "\u200b", "'ſ", "'S", "’s"]
SPACES = [" ", "  ", "   ", "\n", "\n\n", "\r\n", "\t", "\u00a0", "\u3000", "\u2028", "\u0085", "\u1680", "\u200a",
          " \n", "\n ", " \t", "\x0b", "\x0c", "\x1c", "\x1f", "\u180e"]
EMOJI = ["😀", "👍🏽", "👨‍👩‍👧‍👦", "🇩🇪", "❤️", "🏴‍☠️", "☺", "🤷🏾‍♀️", "1️⃣", "🫠"]
BAD = [b"\x80", b"\xbf", b"\xc0\x80", b"\xc3", b"\xe2\x82", b"\xed\xa0\x80", b"\xf0\x9f\x98", b"\xf4\x90\x80\x80", b"\xff",
       b"\xfe\xff", b"\xe2\x96", b"\xc1\xbf"]

CATEGORIES = {}
for _c in range(0x110000):
    if not 0xD800 <= _c < 0xE000 and _c < 0x10FE00:  # text_reference.py uses the private ones behind
        CATEGORIES.setdefault(unicodedata.category(chr(_c)), []).append(chr(_c))
NAMES = sorted(CATEGORIES)


def word(rng):
    k = rng.randrange(12)
    if k < 4:
        return rng.choice(WORDS)
    if k == 4:
        return "".join(rng.choice(CATEGORIES[rng.choice(NAMES)]) for _ in range(rng.randrange(1, 8)))
    if k == 5:
        pool = CATEGORIES[rng.choice(NAMES)]
        return "".join(rng.choice(pool) for _ in range(rng.randrange(1, 12)))
    if k == 6:
        return rng.choice(MARKS)
    if k == 7:
        return rng.choice(EMOJI) * rng.randrange(1, 4)
    if k == 8:
        return "".join(chr(rng.randrange(0x80)) for _ in range(rng.randrange(1, 10)))
    if k == 9:
        return "".join(rng.choice("abcdefghijklmnopqrstuvwxyz'") for _ in range(rng.randrange(1, 15)))
    if k == 10:
        return rng.choice(["a", " ", "\n", "ab", "é", "=", "-", "0", "▁", "世", "😀", "\t ", "a\n"]) * rng.choice([2, 3, 5, 9, 17, 40])
    return "".join(rng.choice("0123456789") for _ in range(rng.randrange(1, 9)))


def text(rng):
    if rng.randrange(500) == 0:  # a very long run
        return rng.choice(["a", " ", "\n", "ab", "é", "=", "0", "世", "▁", " a", "\r\n"]) * rng.randrange(500, 4000)
    out = []
    for _ in range(rng.choice([0, 1, 1, 2, 3, 5, 8, 13, 30])):
        if rng.randrange(2):
            out.append(rng.choice(SPACES) if rng.randrange(3) == 0 else " ")
        out.append(word(rng))
    if rng.randrange(4) == 0:
        out.append(rng.choice(SPACES))
    return "".join(out)


def broken(rng):
    """Bytes with some that are not UTF-8."""
    data = text(rng).encode()
    for _ in range(rng.randrange(1, 5)):
        place = rng.randrange(len(data) + 1)
        if data and rng.randrange(3) == 0:
            data = data[:place] + data[place + 1:]
        else:
            data = data[:place] + rng.choice(BAD) + data[place:]
    return data
