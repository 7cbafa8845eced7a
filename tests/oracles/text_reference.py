"""What the reference libraries make of text, for each kind of tokenizer file.

Bytes that are not UTF-8 are where we differ from the references on purpose (they put U+FFFD there and the
bytes are lost). What we do instead is defined by these references, too: each such byte is replaced by a
private character that no vocabulary has, the text is encoded, and the ids of that character become the id
of the byte.
"""
import base64

import sentencepiece
import tiktoken
import tokenizers

from text_common import LLAMA3

PRIVATE = 0x10FE00  # U+10FE00 + byte: stands for a byte that is not UTF-8


def to_private(data):
    """Bytes to text; the decoding of Python consumes the same bytes one by one as ours."""
    out, i = [], 0
    while i < len(data):
        for n in (1, 2, 3, 4):
            try:
                out.append(data[i:i + n].decode())
                i += n
                break
            except UnicodeDecodeError:
                continue
        else:
            out.append(chr(PRIVATE + data[i]))
            i += 1
    return "".join(out)


def from_private(data):
    """Private characters in UTF-8 back to the bytes."""
    out = data
    for byte in range(0x80, 0x100):
        out = out.replace(chr(PRIVATE + byte).encode(), bytes([byte]))
    return out


class SentencePiece:
    def __init__(self, path):
        self.model = sentencepiece.SentencePieceProcessor(model_file=path)
        self.bytes = [self.model.piece_to_id("<0x%02X>" % b) for b in range(256)]
        self.fallback = self.bytes[0] != self.model.unk_id()

    def encode(self, data):
        ids = self.model.encode(to_private(data))
        return private_ids(ids, self.bytes) if self.fallback else ids

    def decode(self, ids):
        return self.model.decode(ids)


def private_ids(ids, byte_ids):
    """The four byte tokens of each private character become the one of the byte it stands for."""
    out, i = [], 0
    value = {byte_id: byte for byte, byte_id in enumerate(byte_ids)}
    while i < len(ids):
        chunk = bytes(value.get(k, 0) for k in ids[i:i + 4])
        try:
            point = ord(chunk.decode()) if len(chunk) == 4 else 0
        except (UnicodeDecodeError, TypeError):
            point = 0
        if PRIVATE + 0x80 <= point < PRIVATE + 0x100:
            out.append(byte_ids[point - PRIVATE])
            i += 4
        else:
            out.append(ids[i])
            i += 1
    return out


LLAMA3_SPECIAL = ["begin_of_text", "end_of_text", "reserved_special_token_0", "reserved_special_token_1",
                  "finetune_right_pad_id", "step_id", "start_header_id", "end_header_id", "eom_id", "eot_id", "python_tag",
                  "image"] + ["reserved_special_token_%d" % i for i in range(2, 246)]


class Tiktoken:
    def __init__(self, path):
        ranks = {}
        for line in open(path, "rb"):
            token, rank = line.split()
            ranks[base64.b64decode(token)] = int(rank)
        special = {"<|%s|>" % s: len(ranks) + i for i, s in enumerate(LLAMA3_SPECIAL)}
        self.encoding = tiktoken.Encoding("x", pat_str=LLAMA3, mergeable_ranks=ranks, special_tokens=special)
        # Splits as tiktoken does (both have Unicode 16; Python's regex module is ahead of them).
        self.split = tokenizers.pre_tokenizers.Split(tokenizers.Regex(LLAMA3), "isolated")

    def encode(self, data):
        try:
            return self.encoding.encode_ordinary(data.decode())
        except UnicodeDecodeError:
            ids = []
            for piece, _ in self.split.pre_tokenize_str(to_private(data)):
                ids += self.encoding._encode_single_piece(from_private(piece.encode()))
            return ids

    def encode_special(self, data):
        return self.encoding.encode(data.decode(), allowed_special="all")

    def decode(self, ids):
        return self.encoding.decode(ids)


class HuggingFace:
    """Text that is not UTF-8 is not given to this one."""

    def __init__(self, path):
        self.tokenizer = tokenizers.Tokenizer.from_file(path)

    def encode(self, data):
        self.tokenizer.encode_special_tokens = True
        return self.tokenizer.encode(data.decode(), add_special_tokens=False).ids

    def encode_special(self, data):
        self.tokenizer.encode_special_tokens = False
        return self.tokenizer.encode(data.decode(), add_special_tokens=False).ids

    def decode(self, ids):
        return self.tokenizer.decode(ids, skip_special_tokens=True)


def load(path):
    if path.endswith(".json"):
        return HuggingFace(path)
    with open(path, "rb") as file:
        return SentencePiece(path) if file.read(1) == b"\n" else Tiktoken(path)
