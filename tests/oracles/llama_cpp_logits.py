#!/usr/bin/env python3
"""llama.cpp's logits of the GGUF files that `caravan convert` makes of tests/data/llama, beside transformers'.

    LLAMA_CPP=SOURCES LLAMA_CPP_BUILD=FOLDER llama_cpp_logits.py [VARIANT …]

SOURCES is a checkout of llama.cpp, FOLDER where `cmake -DBUILD_SHARED_LIBS=OFF` has built its libraries; $CARAVAN names the program
(build/caravan). Each variant is written in f32, read by llama.cpp (llama_cpp_logits.c, compiled here), and its logits for the tokens of
expected.safetensors may be 1e-3 of the largest from those. Variants whose file says it all and which llama.cpp computes otherwise
are listed below with the reason; so are those that a GGUF file cannot say. It writes nothing; it fails where another differs.
"""
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy
from safetensors.numpy import load_file

HERE = pathlib.Path(__file__).resolve().parent
DATA = HERE.parent / "data" / "llama"
TOLERANCE = 1e-3

# Each as llama.cpp's source has it, in the file that is named.
WINDOW = "models/llama.cpp reads no key of windows"
OTHERWISE = {
    "mistral_window": WINDOW,
    "ministral": WINDOW,
    "phi3_window": "models/phi3.cpp sets a window to 0",
    "phi4_mini": "get_rope_factors (llama-model.cpp) takes the long ones: a context is a multiple of 256, the trained length here is 64",
    "cohere_plus": "models/command-r.cpp reads norms of heads from 64 layers on",
}
UNSAYABLE = ("dynamic_rope", "llama3_rope", "yarn_rope_all", "smollm3_listed", "gemma3_listed")


def build(folder, sources, built):
    program = folder / "llama_cpp_logits"
    subprocess.run(["cc", "-O1", "-c", HERE / "llama_cpp_logits.c", f"-I{sources}/include", f"-I{sources}/ggml/include", "-o", f"{program}.o"],
                   check=True)
    libraries = [f"{built}/src/libllama.a"] + [f"{built}/ggml/src/lib{name}.a" for name in ("ggml", "ggml-cpu", "ggml-base")]
    subprocess.run(["c++", f"{program}.o", *libraries, "-fopenmp", "-lpthread", "-ldl", "-o", program], check=True)
    return program


def distance(program, caravan, variant, folder):
    """The largest difference of a logit over the largest logit; or a text where there is none."""
    file = folder / f"{variant}.gguf"
    made = subprocess.run([caravan, "convert", DATA / variant, file, "--type", "f32"], capture_output=True, text=True)
    if made.returncode:
        return made.stderr.strip()
    expected = load_file(DATA / variant / "expected.safetensors")
    tokens, logits = expected["tokens"], expected["logits"]
    run = subprocess.run([program, file, *map(str, tokens)], capture_output=True)
    if run.returncode or len(run.stdout) != logits.nbytes:
        return run.stderr.decode().strip() or f"{len(run.stdout)} bytes of logits"
    got = numpy.frombuffer(run.stdout, numpy.float32).reshape(logits.shape)
    return float(abs(got - logits).max() / abs(logits).max())


def main():
    sources, built = os.environ.get("LLAMA_CPP"), os.environ.get("LLAMA_CPP_BUILD")
    if not sources or not built:
        print("skipped: no LLAMA_CPP and LLAMA_CPP_BUILD")
        return
    caravan = os.environ.get("CARAVAN", HERE.parent.parent / "build" / "caravan")
    failed = 0
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        program = build(folder, sources, built)
        for variant in sys.argv[1:] or sorted(p.name for p in DATA.iterdir() if p.is_dir()):
            if variant in UNSAYABLE:
                continue
            far = distance(program, caravan, variant, folder)
            same = isinstance(far, float) and far <= TOLERANCE
            failed += same == (variant in OTHERWISE)
            print(f"{variant}: {far if isinstance(far, str) else f'{far:.1e}'}"
                  + (f" ({OTHERWISE[variant]})" if variant in OTHERWISE else "" if same else " FAILED"))
    sys.exit(failed > 0)


main()
