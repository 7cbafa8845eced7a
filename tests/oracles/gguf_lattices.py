#!/usr/bin/env python3
"""The lattices of GGUF's IQ1, IQ2 and IQ3, by the gguf package of ggml-org.

Writes src/io/gguf_lattices.inc, the points of each as this tree has them: of eight elements two bits each, of four four bits,
the first lowest; and, as gguf_blocks.py does for other types,
  tests/data/gguf/TYPE.blocks   random blocks
  tests/data/gguf/TYPE.f32      the numbers that gguf.quants.dequantize gives for them

Needs gguf and numpy.
"""
import pathlib
import textwrap

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf import quants

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
TABLE = {"iq1": "IQ1_S", "iq2_xxs": "IQ2_XXS", "iq2_xs": "IQ2_XS", "iq2_s": "IQ2_S", "iq3_xxs": "IQ3_XXS", "iq3_s": "IQ3_S"}
TYPES = ["IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S"]
BLOCKS = 6


def points(name):
    of = getattr(quants, name)
    of.init_grid()
    grid = of.grid.reshape(of.grid.shape[2:])
    digits = np.searchsorted(np.unique(grid), grid)
    return (digits << np.arange(grid.shape[1]) * (16 // grid.shape[1])).sum(1)


def write_table():
    text = "/* The points of GGUF's lattices, made by tests/oracles/gguf_lattices.py. */\n"
    for name, kind in TABLE.items():
        numbers = points(kind)
        line = ", ".join(f"0x{n:04x}" for n in numbers) + ","
        text += f"static const uint16_t {name}_points[{len(numbers)}] = {{\n"
        text += textwrap.fill(line, 126, initial_indent="    ", subsequent_indent="    ") + "\n};\n"
    (ROOT / "src/io/gguf_lattices.inc").write_text(text)


def random_blocks(name, rng):
    blocks = rng.integers(0, 256, (BLOCKS, gguf.GGML_QUANT_SIZES[Type[name]][1]), dtype=np.uint8)
    d = (rng.standard_normal(BLOCKS) * 10.0 ** rng.integers(-6, 3, BLOCKS)).astype(np.float16).view(np.uint16)
    if name == "IQ1_M":  # in the upper four bits of four words of scales
        words = blocks[:, 48:].copy().view(np.uint16)
        words = (words & 0x0FFF) | (d[:, None] >> np.arange(0, 16, 4) & 15) << 12
        blocks[:, 48:] = words.astype(np.uint16).view(np.uint8)
    else:
        blocks[:, :2] = d[:, None].view(np.uint8)
    return blocks.ravel()


if __name__ == "__main__":
    write_table()
    for i, name in enumerate(TYPES):
        blocks = random_blocks(name, np.random.default_rng(200 + i))
        numbers = quants.dequantize(blocks, Type[name])
        assert np.isfinite(numbers).all()
        (ROOT / f"tests/data/gguf/{name}.blocks").write_bytes(blocks.tobytes())
        (ROOT / f"tests/data/gguf/{name}.f32").write_bytes(numbers.astype("<f4").tobytes())
