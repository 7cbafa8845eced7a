#!/usr/bin/env python3
"""Modules of StableHLO as JAX prints them, and what JAX computes by them: what tests/test_stablehlo_read.c reads.

Needs jax, numpy and ml_dtypes. Writes tests/data/jax/NAME.mlir and NAME.json:

    {"devices": 1, "outputs": [{"type": "f32[2,3]", "data": ["0000803f..."]}, ...]}    hexadecimal

Inputs are not stored: element k of parameter p is a function of these numbers, `inputs` of stablehlo.py, and the test
has the same function. Usage: jax_modules.py [NAME ...], by default all.
"""

import json
import os
import sys

os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from pathlib import Path

HERE = Path(__file__).resolve().parent
DATA = HERE.parent / "data" / "jax"
F32, BF16, I32 = jnp.float32, jnp.bfloat16, jnp.int32


def mix(z):
    """SplitMix64's finishing function of an array of uint64."""
    z = z * np.uint64(0x9E3779B97F4A7C15) + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def inputs(p, shape, dtype):
    """Floats are multiples of 1/64 in [-2, 2), integers 0 to 11, as in stablehlo.py on device 0 (i32: from 0)."""
    n = int(np.prod(shape))
    r = mix(np.arange(n, dtype=np.uint64) + np.uint64(p << 40)) >> np.uint64(56)
    r = r.astype(np.int64)
    x = r % 2 if dtype == jnp.bool_ else (r - 128) / 64 if jnp.issubdtype(dtype, jnp.floating) else r % 12
    return x.reshape(shape).astype(dtype)


def mlp(x, w1, b1, w2, b2):
    return jax.nn.gelu(x @ w1 + b1, approximate=True) @ w2 + b2


def layer_norm(x, scale, bias):
    mean = jnp.mean(x, -1, keepdims=True)
    return (x - mean) * lax.rsqrt(jnp.var(x, -1, keepdims=True) + 1e-5) * scale + bias


def norms(x, scale, bias):
    """Layer norm, RMS norm, group norm, and layer norm as a normalization of a sum over two axes, in f32 of bf16."""
    rms = x * lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6) * scale
    groups = x.reshape(x.shape[:-1] + (4, -1))
    group = jax.nn.standardize(groups, axis=-1).reshape(x.shape)
    wide = x.astype(BF16).astype(F32)
    both = (wide - wide.mean((1, 2), keepdims=True)) / jnp.std(wide, (1, 2), keepdims=True)
    return layer_norm(x, scale, bias), rms, group, both.astype(BF16)


def softmax_attention(q, k, v, mask):
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k, preferred_element_type=F32) / np.sqrt(q.shape[-1])
    causal = jnp.tril(jnp.ones(scores.shape[-2:], bool))
    scores = jnp.where(causal & mask[:, None, None, :], scores, -1e30)
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores, axis=-1).astype(q.dtype), v)


def block(x, mask, n1, wq, wk, wv, wo, n2, w1, w2):
    h = layer_norm(x, n1, jnp.zeros_like(n1))
    split = lambda y: y.reshape(y.shape[:-1] + (4, -1))
    a = softmax_attention(split(h @ wq), split(h @ wk), split(h @ wv), mask)
    x = x + a.reshape(x.shape) @ wo
    h = layer_norm(x, n2, jnp.zeros_like(n2))
    return x + jax.nn.silu(h @ w1) @ w2


def small_block(x, mask, *weights):
    return block(x, mask, *(w / 8 for w in weights))


def language_loss(params, tokens):
    """A model of two layers, stacked and carried along by a scan."""
    x = params["embed"][tokens[:, :-1]]
    mask = jnp.ones(x.shape[:2], bool)

    def layer(x, p):
        return block(x, mask, *p), None

    x, _ = lax.scan(layer, x, params["layers"])
    logits = jax.nn.log_softmax(x @ params["embed"].T)
    return -jnp.take_along_axis(logits, tokens[:, 1:, None], -1).mean()


def train_step(embed, n1, wq, wk, wv, wo, n2, w1, w2, tokens):
    layers = (n1, wq, wk, wv, wo, n2, w1, w2)
    params = {"embed": embed / 8, "layers": jax.tree.map(lambda w: w / 8, layers)}
    loss, grads = jax.value_and_grad(language_loss)(params, tokens)
    new = jax.tree.map(lambda p, d: p - 0.1 * d, params, grads)
    return loss, new["embed"], *new["layers"]


def recurrence(x, w, u, h):
    """A gated recurrent cell, carried along a sequence by a loop with an index."""

    def step(t, state):
        h, ys = state
        z = jax.nn.sigmoid(x[:, t] @ w + h @ u)
        h = (1 - z) * h + z * jnp.tanh(x[:, t])
        return h, ys.at[:, t].set(h)

    return lax.fori_loop(0, x.shape[1], step, (h, jnp.zeros_like(x)))


def sampling(logits, temperature):
    top, index = lax.top_k(logits, 5)
    order = jnp.argsort(-logits, axis=-1)
    sums = jnp.cumsum(jax.nn.softmax(top / temperature), axis=-1)
    return jnp.argmax(logits, -1), jnp.argmin(logits, -1), top, index, order, sums, jnp.sort(logits, -1)


def functions(x, y):
    """What no operation of a graph says alone: erf and its kin, roundings, branches of a choice."""
    near = x * 0.45
    picked = lax.switch(2, [jnp.sin, jnp.cos, jnp.tan], near)
    chosen = lax.cond(y[0, 0] > 0, lambda v: v * 2, lambda v: v - 1, x)
    return (
        lax.erf(x), lax.erfc(x * 2), lax.erf_inv(near), jnp.ceil(x), jnp.round(x * 3), jnp.sinh(near), jnp.cosh(near),
        jnp.arctanh(near), picked, chosen, jnp.where(x > 0, x, jnp.nan_to_num(y / 0)), jnp.logaddexp(x, y),
        jax.nn.gelu(x, approximate=False), jnp.cbrt(x), jnp.clip(x, -1, 0.5), x**3, jnp.sign(x), jnp.log2(x * x + 1),
    )


def embedding(table, ids, updates):
    rows = table[ids]
    added = table.at[ids].add(updates)
    taken = jnp.take_along_axis(table, jnp.argsort(table, axis=1)[:, ::-1], axis=1)
    once = table.at[jnp.arange(4), jnp.arange(4)].set(7.0)
    hot = jax.nn.one_hot(ids, table.shape[0], dtype=BF16)
    return rows, added, taken, once, hot, jnp.flip(jnp.cumsum(jnp.flip(table, 0), 0), 0)


def decode_step(x, k_cache, v_cache, position, wq, wk, wv, wo):
    """A token of each row, over a cache in bf16, whose update is donated."""
    split = lambda y: y.reshape(y.shape[:-1] + (4, -1))
    q, k, v = split(x @ wq), split(x @ wk), split(x @ wv)
    write = jax.vmap(lambda c, u, at: lax.dynamic_update_slice(c, u[None], (at, 0, 0)))
    k_cache, v_cache = write(k_cache, k.astype(BF16), position), write(v_cache, v.astype(BF16), position)
    scores = jnp.einsum("bhd,bkhd->bhk", q.astype(BF16), k_cache, preferred_element_type=F32)
    seen = jnp.arange(k_cache.shape[1])[None, None, :] <= position[:, None, None]
    p = jax.nn.softmax(jnp.where(seen, scores / 4, -jnp.inf), axis=-1)
    y = jnp.einsum("bhk,bkhd->bhd", p.astype(BF16), v_cache, preferred_element_type=F32)
    return y.reshape(x.shape) @ wo, k_cache, v_cache


D, H = 32, 64
WEIGHTS = [((D,), F32), ((D, D), F32), ((D, D), F32), ((D, D), F32), ((D, D), F32), ((D,), F32), ((D, H), F32), ((H, D), F32)]
STACKED = [((2,) + shape, dtype) for shape, dtype in WEIGHTS]
CASES = {  # the function, its parameters, those that are donated
    "mlp": (mlp, [((8, D), F32), ((D, H), F32), ((H,), F32), ((H, D), F32), ((D,), F32)], ()),
    "norms": (norms, [((4, 6, D), F32), ((D,), F32), ((D,), F32)], ()),
    "attention": (softmax_attention, [((4, 8, 4, 16), BF16)] * 3 + [((4, 8), jnp.bool_)], ()),
    "block": (small_block, [((4, 8, D), F32), ((4, 8), jnp.bool_)] + WEIGHTS, ()),
    "train_step": (train_step, [((12, D), F32)] + STACKED + [((4, 9), I32)], (0,)),
    "recurrence": (recurrence, [((4, 6, D), F32), ((D, D), F32), ((D, D), F32), ((4, D), F32)], ()),
    "sampling": (sampling, [((4, 40), F32), ((), F32)], ()),
    "functions": (functions, [((4, 16), F32), ((4, 16), F32)], ()),
    "embedding": (embedding, [((12, 8), F32), ((4, 3), I32), ((4, 3, 8), F32)], ()),
    "decode_step": (
        decode_step,
        [((4, D), F32), ((4, 12, 4, 8), BF16), ((4, 12, 4, 8), BF16), ((4,), I32)] + [((D, D), F32)] * 4,
        (1, 2),
    ),
}


def main(names):
    DATA.mkdir(exist_ok=True)
    jax.config.update("jax_default_matmul_precision", "highest")
    for name in names or CASES:
        function, parameters, donated = CASES[name]
        values = [jnp.asarray(inputs(p, *parameter)) for p, parameter in enumerate(parameters)]
        lowered = jax.jit(function, donate_argnums=donated, keep_unused=True).lower(*values)
        (DATA / f"{name}.mlir").write_text(lowered.as_text())
        outputs = []
        for y in jax.tree.leaves(jax.jit(function, keep_unused=True)(*values)):
            y = np.asarray(y)
            dtype = {"float32": "f32", "bfloat16": "bf16", "int32": "i32", "bool": "i1"}[str(y.dtype)]
            outputs.append({"type": f"{dtype}{list(y.shape)}".replace(" ", ""), "data": [y.tobytes().hex()]})
        (DATA / f"{name}.json").write_text(json.dumps({"devices": 1, "outputs": outputs}, indent=0) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
