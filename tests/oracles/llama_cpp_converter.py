#!/usr/bin/env python3
"""What Caravan makes of the GGUF files that llama.cpp's converter writes of tests/data/llama and tests/data/towers, beside transformers' logits.

    LLAMA_CPP=SOURCES llama_cpp_converter.py [VARIANT …]

SOURCES is a checkout of llama.cpp, of which only Python is used; $CARAVAN names the program (build/caravan). The models have no tokenizers: the
converter's step for them is left out. Each variant is written in f32, and the log-probabilities that `caravan score` gives to the tokens of
expected.safetensors may be 1e-4 from those of transformers' logits. Variants that the converter refuses or writes otherwise are listed below
with the reason. It writes nothing; it fails where another differs. Needs torch, transformers and what the converter does.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy
from safetensors.numpy import load_file

HERE = pathlib.Path(__file__).resolve().parent
DATA = HERE.parent / "data"
TOLERANCE = 1e-4
NO_TOKENIZER = "it opens a tokenizer for a setting"
OTHERWISE = {
    "mistral_window": "no key of windows is written",
    "ministral": "no class of that name",
    "alpha_rope": "alpha is written for Hunyuan only",
    "dynamic_rope": "dynamic scaling is not written",
    "llama3_rope": "only tables of published Llamas are known here",
    "gpt_oss_moe": "swiglu_limit is not written, which is 7 in what is published",
    "llama4_moe_chunks": "chunks and the growth of queries are not written, which are those of what is published",
    "cohere2": "rotary_pct is read, which this config.json has not",
    "granite4": "keys of states are read, which this config.json has not",
    "granite4_nope": "the same",
    "qwen3_vl": "its architecture is qwen3vl, which is not read here",
    "gemma3": NO_TOKENIZER,
    "gemma3_listed": NO_TOKENIZER,
    "gemma3_memory": NO_TOKENIZER,
    "gemma4": NO_TOKENIZER,
}

CONVERT = """
import sys
sys.path.insert(0, sys.argv[1])
sys.argv = ["convert_hf_to_gguf.py", sys.argv[2], "--outfile", sys.argv[3], "--outtype", "f32"]
import runpy, conversion.base as base
# Every class has a step of its own for the tokenizer: of the class that is chosen it does nothing.
chosen = base.ModelBase.__init__
def init(self, *args, **kwargs):
    type(self).set_vocab = lambda self: self.gguf_writer.add_vocab_size(self.hparams["vocab_size"])
    chosen(self, *args, **kwargs)
base.ModelBase.__init__ = init
runpy.run_path(sys.path[0] + "/convert_hf_to_gguf.py", run_name="__main__")
"""


def distance(sources, caravan, model, folder):
    """The largest difference of a log-probability; or a text where there is none."""
    file = folder / f"{model.name}.gguf"
    made = subprocess.run([sys.executable, "-c", CONVERT, sources, model, file], capture_output=True, text=True)
    if made.returncode:
        return "the converter: " + made.stderr.strip().splitlines()[-1]
    expected = load_file(model / "expected.safetensors")
    tokens, logits = expected["tokens"], expected["logits"].astype(numpy.float64)
    run = subprocess.run([caravan, "score", "-m", file, "--tokens", ",".join(map(str, tokens)), "--dtype", "f32", "--json"],
                         capture_output=True, text=True)
    if run.returncode:
        return run.stderr.strip()
    given = numpy.array(json.loads(run.stdout)["logprobs"][1:])
    logits -= logits.max(-1, keepdims=True)
    logprobs = logits - numpy.log(numpy.exp(logits).sum(-1, keepdims=True))
    own = logprobs[numpy.arange(len(tokens) - 1), tokens[1:]]
    return float(abs(given - own).max())


def main():
    sources, caravan = os.environ.get("LLAMA_CPP"), os.environ.get("CARAVAN", HERE.parent.parent / "build" / "caravan")
    if not sources:
        print("skipped: LLAMA_CPP names no checkout of llama.cpp")
        return 0
    failed = 0
    with tempfile.TemporaryDirectory() as name:
        for config in sorted([*DATA.glob("llama/*/config.json"), *DATA.glob("towers/*/config.json")]):
            model = config.parent
            if sys.argv[1:] and model.name not in sys.argv[1:]:
                continue
            d = distance(sources, caravan, model, pathlib.Path(name))
            fine = isinstance(d, float) and d <= TOLERANCE
            failed += not fine and model.name not in OTHERWISE
            print(f"{model.parent.name}/{model.name}: {d}" + ("" if fine else f" ({OTHERWISE.get(model.name, 'FAILED')})"), flush=True)
    return failed > 0


sys.exit(main())
