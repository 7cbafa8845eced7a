"""
Writes tests/data/text/published.json: of published tokenizers, a hash of the ids that their own libraries make of the texts
of families/vectors.jsonl there. The files themselves are others' and are not kept: they lie in the PyPI wheels mistral-common (mistral_common/
data) and llama-models (llama_models/llama3 and llama4), from which they are copied into one folder, those of llama-models as
llama3.model and llama4.model. tests/test_text_families.c looks for the folder in CARAVAN_TOKENIZERS, and skips without it.

Run: python tests/oracles/text_published.py FOLDER   (needs sentencepiece, tiktoken)
"""
import base64
import json
import sys
from pathlib import Path

import sentencepiece
import tiktoken

from text_common import LLAMA3, O200K, hash_ids

DATA = Path(__file__).parent.parent / "data" / "text" / "families"


def ranks(path):
    tokens = {base64.b64decode(token): int(rank) for token, rank in map(bytes.split, open(path, "rb"))}
    pattern = O200K if len(tokens) == 200000 else LLAMA3
    return tiktoken.Encoding("x", pat_str=pattern, mergeable_ranks=tokens, special_tokens={}).encode_ordinary


def tekken(path):
    data = json.load(open(path))
    first = data["config"]["default_num_special_tokens"]
    rows = data["vocab"][: data["config"]["default_vocab_size"] - first]
    tokens = {base64.b64decode(row["token_bytes"]): first + row["rank"] for row in rows}
    return tiktoken.Encoding("x", pat_str=data["config"]["pattern"], mergeable_ranks=tokens, special_tokens={}).encode_ordinary


def encoder(path):
    if path.suffix == ".json":
        return tekken(path)
    return ranks(path) if path.name.startswith("llama") else sentencepiece.SentencePieceProcessor(model_file=str(path)).encode


def main():
    if len(sys.argv) != 2:
        print("skipped: no folder of published tokenizers")
        return
    texts = json.loads(open(DATA / "vectors.jsonl").readline())["texts"]
    hashes = {path.name: hash_ids(map(encoder(path), texts)) for path in sorted(Path(sys.argv[1]).iterdir())}
    (DATA.parent / "published.json").write_text(json.dumps(hashes, indent=1) + "\n")


main()
