"""
llama.cpp's ids of the texts of tests/data/text/families/vectors.jsonl, by the GGUF files that the tokenizers there are written to.
families/llama_cpp.jsonl has, for each file, {"file", "hash" (FNV-1a of the bytes of the GGUF file), "ids"}: [text, ids] where
llama.cpp says other ids than vectors.jsonl does.

Run: CARAVAN_WRITE_GGUF=FOLDER build/test_text_families; python tests/oracles/text_llama_cpp.py FOLDER   (needs llama-cpp-python)
"""
import json
import sys
from pathlib import Path

from text_common import llama_cpp_ids

DATA = Path(__file__).parent.parent / "data" / "text" / "families"


def hash_bytes(data):
    h = 2166136261
    for byte in data:
        h = ((h ^ byte) * 16777619) % 2**32
    return h


def main():
    if len(sys.argv) != 2:
        print("skipped: no folder of GGUF files")
        return
    first, *rows = map(json.loads, open(DATA / "vectors.jsonl"))
    with open(DATA / "llama_cpp.jsonl", "w") as out:
        for row in rows:
            path = Path(sys.argv[1]) / (row["file"] + ".gguf")
            if path.exists():
                ids = llama_cpp_ids(path, first["texts"])
                other = [[i, ids[i]] for i in range(len(ids)) if ids[i] != row["ids"][i]]
                out.write(json.dumps({"file": row["file"], "hash": hash_bytes(path.read_bytes()), "ids": other},
                                     separators=(",", ":")) + "\n")


main()
