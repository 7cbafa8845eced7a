"""Writes tests/data/rng/threefry2x32.json: what JAX's threefry2x32 primitive gives.

Needs jax. Run from the root of the repository: python3 tests/oracles/rng.py
"""
import json

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.random import threefry2x32_p

cases = [
    ((0, 0), (0, 0)),
    ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF)),
    ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3)),
]
rng = np.random.default_rng(2024)
for _ in range(29):
    k0, k1, c0, c1 = (int(v) for v in rng.integers(0, 2**32, 4))
    cases.append(((k0, k1), (c0, c1)))

rows = []
for key, counter in cases:
    words = [jnp.array([w], jnp.uint32) for w in (*key, *counter)]
    out = threefry2x32_p.bind(*words)
    rows.append({"key": key, "counter": counter, "out": [int(o[0]) for o in out]})

with open("tests/data/rng/threefry2x32.json", "w") as f:
    f.write("[\n" + ",\n".join(json.dumps(r) for r in rows) + "\n]\n")
print(f"jax {jax.__version__}: {len(rows)} cases")
