"""
The tokenizers of two files again, as GGUF files hold them: tests/data/text/spm.gguf of spm.model, byte_level.gguf of
byte_level.json. Of the latter's tokens GGUF cannot say which take white space along.
"""
import json
import struct
from pathlib import Path

DATA = Path(__file__).parent.parent / "data" / "text"

U32, I32, F32, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9


def text(value):
    value = value if isinstance(value, bytes) else value.encode()
    return struct.pack("<Q", len(value)) + value


def pair(key, kind, value):
    return text(key) + struct.pack("<I", kind) + value


def array(kind, values):
    pack = text if kind == STRING else lambda v: struct.pack("<f" if kind == F32 else "<i", v)
    return struct.pack("<IQ", kind, len(values)) + b"".join(map(pack, values))


def gguf(path, pairs):
    pairs = [pair("general.architecture", STRING, text("llama"))] + pairs
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, len(pairs)) + b"".join(pairs))


def varint(data, i):
    value = shift = 0
    while True:
        value |= (data[i] & 0x7F) << shift
        i, shift = i + 1, shift + 7
        if data[i - 1] < 0x80:
            return value, i


def fields(data):
    """(number, value) of a protocol buffer message."""
    i = 0
    while i < len(data):
        key, i = varint(data, i)
        if key & 7 == 0:
            value, i = varint(data, i)
        else:
            size, i = varint(data, i) if key & 7 == 2 else ({1: 8, 5: 4}[key & 7], i)
            value, i = data[i : i + size], i + size
        yield key >> 3, value


def spm(folder):
    tokens, scores, types = [], [], []
    for number, value in fields((folder / "spm.model").read_bytes()):
        if number == 1:
            piece = dict(fields(value))
            tokens.append(piece[1])
            scores.append(struct.unpack("<f", piece.get(2, bytes(4)))[0])
            types.append(piece.get(3, 1))
    gguf(folder / "spm.gguf", [
        pair("tokenizer.ggml.model", STRING, text("llama")),
        pair("tokenizer.ggml.tokens", ARRAY, array(STRING, tokens)),
        pair("tokenizer.ggml.scores", ARRAY, array(F32, scores)),
        pair("tokenizer.ggml.token_type", ARRAY, array(I32, types)),
        pair("tokenizer.ggml.bos_token_id", U32, struct.pack("<I", tokens.index(b"<s>"))),
        pair("tokenizer.ggml.eos_token_id", U32, struct.pack("<I", tokens.index(b"</s>"))),
        pair("tokenizer.ggml.add_space_prefix", BOOL, b"\1"),
        pair("tokenizer.chat_template", STRING, text("<|start_header_id|> <|eot_id|>")),
    ])


def byte_level(folder):
    whole = json.loads((folder / "byte_level.json").read_text())
    ids = {id: (token, 1) for token, id in whole["model"]["vocab"].items()}
    for added in whole["added_tokens"]:
        ids[added["id"]] = added["content"], 3 if added["special"] else 4
    gguf(folder / "byte_level.gguf", [
        pair("tokenizer.ggml.model", STRING, text("gpt2")),
        pair("tokenizer.ggml.pre", STRING, text("llama-bpe")),
        pair("tokenizer.ggml.tokens", ARRAY, array(STRING, [ids[i][0] for i in range(len(ids))])),
        pair("tokenizer.ggml.token_type", ARRAY, array(I32, [ids[i][1] for i in range(len(ids))])),
        pair("tokenizer.ggml.merges", ARRAY, array(STRING, [" ".join(m) for m in whole["model"]["merges"]])),
        pair("tokenizer.ggml.bos_token_id", U32, struct.pack("<I", 596)),
        pair("tokenizer.ggml.eos_token_id", U32, struct.pack("<I", 600)),
    ])


if __name__ == "__main__":
    spm(DATA)
    byte_level(DATA)
