"""What the scripts about text share: the patterns by which tokenizers of the families cut text, the byte-level alphabet, hashes of ids."""
QWEN2 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
         r"|\s*[\r\n]+|\s+(?!\S)|\s+")
LLAMA3 = QWEN2.replace(r"\p{N}|", r"\p{N}{1,3}|", 1)
QWEN35 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
LEAD, REST = r"[^\r\n\p{L}\p{N}]?", r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
END = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
O200K = rf"{LEAD}{UPPER}*{LOWER}+{END}|{LEAD}{UPPER}+{LOWER}*{END}|\p{{N}}{{1,3}}|{REST}"
TEKKEN = rf"{LEAD}{UPPER}*{LOWER}+|{LEAD}{UPPER}+{LOWER}*|\p{{N}}|{REST}"


def byte_alphabet():
    """The character that shows each byte."""
    own = list(range(0x21, 0x7F)) + list(range(0xA1, 0xAD)) + list(range(0xAE, 0x100))
    table = {b: chr(b) for b in own}
    for i, b in enumerate(b for b in range(256) if b not in own):
        table[b] = chr(0x100 + i)
    return table


def hash_ids(all_ids):
    """FNV-1a over 32-bit words: of each text the number of its ids, and the ids."""
    h = 2166136261
    for ids in all_ids:
        for id in [len(ids), *ids]:
            h = ((h ^ id) * 16777619) % 2**32
    return h


def llama_cpp_ids(path, texts):
    """What llama.cpp makes of texts by the tokenizer of a GGUF file (PyPI: llama-cpp-python)."""
    from llama_cpp import Llama
    llama = Llama(str(path), vocab_only=True, verbose=False)
    return [llama.tokenize(t.encode(), add_bos=False, special=False) for t in texts]
