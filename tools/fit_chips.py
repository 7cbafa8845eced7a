#!/usr/bin/env python3
"""Fits the rows of src/sim/fits.def to timings of single operations.

    pip download --no-deps aiconfigurator-core==0.12.0      (Apache-2.0; tables of operations, no whole model is read)
    unzip -d DIR aiconfigurator_core-*.whl
    tools/fit_chips.py DIR > src/sim/fits.def

Needs numpy, scipy, pandas and pyarrow. Each row's comment has the tables it comes of and how well it fits them.
The laws are those of src/sim/cost.c:

    product      t = start + (c^p + b^p)^(1/p) + act m k / bandwidth, b = bytes / (memory bandwidth),
                 c = 2 ceil(m) n (k + ends) / (compute peak), m up to whole tiles: of 8 rows where only weights are narrow, of 64 else
    decode       t = start + bytes of keys and values / (memory bandwidth)
    prefill      t = start + causal operations, of rows that are `extra` longer / (compute peak of bf16)
    all_reduce   the measured times themselves, of 8 KiB, 32 KiB … 128 MiB, among 2, 4 and 8
"""
import glob
import re
import sys

import numpy as np
import pandas as pd
from scipy.optimize import least_squares

DATA = sys.argv[1] + "/aiconfigurator_core/systems/data/"
BF16, FP8, FP4 = 0, 1, 2
# name here, name there, peaks of bf16, fp8 and fp4, bandwidth: those of src/sim/chips.def
CHIPS = [
    ("a100_sxm", (312e12, 0, 0), 2.039e12),
    ("h100_sxm", (989.4e12, 1978.9e12, 0), 3.35e12),
    ("h200_sxm", (989.4e12, 1978.9e12, 0), 4.8e12),
    ("b200_sxm", (2250e12, 4500e12, 9000e12), 8e12),
    ("gb200", (2500e12, 5000e12, 10000e12), 8e12),
    ("l40s", (362e12, 733e12, 0), 0.864e12),
]
# of a product: name, dtype there, peak, bytes of a weight and (at most 1 was taken) of an activation, rows of a tile,
# whose kernels (those with the least error)
KINDS = [
    ("BF16", "bfloat16", BF16, 2, 1, 64, "trtllm"),
    ("FP8", "fp8", FP8, 1, 1, 64, "trtllm"),
    ("FP8_BLOCK", "fp8_block", FP8, 1, 1, 64, "sglang"),
    ("FP4", "nvfp4", FP4, 0.5625, 0.5625, 64, "vllm"),
    ("WEIGHT8", "int8_wo", BF16, 1, 2, 8, "trtllm"),
    ("WEIGHT4", "int4_wo", BF16, 0.53125, 2, 8, "trtllm"),
]


def tables(chip, kind, engine="*"):
    files = glob.glob(f"{DATA}{chip}/{kind.split(':')[0]}/{engine}/*/{kind.split(':')[1]}_perf.parquet")
    files.sort(key=lambda f: [int(x) for x in re.findall(r"\d+", f.split("/")[-2])])
    newest = {f.split("/")[-3]: f for f in files}
    return [(f, pd.read_parquet(f)) for f in newest.values()]


def fit(residual, start, low, high):
    s = least_squares(residual, start, loss="soft_l1", f_scale=0.1, bounds=(low, high))
    e = np.abs(np.exp(residual(s.x)) - 1)
    return s.x, f"median {100 * np.median(e):.1f}%, p90 {100 * np.quantile(e, 0.9):.1f}%"


def source(found):
    return " ".join("/".join(f.split("/")[-4:-1]) for f, _ in found)


def products(chip, peaks, bandwidth):
    for name, dtype, peak, wide, entering, tile, engine in KINDS:
        found = tables(chip, "gemm:gemm", engine)
        d = pd.concat([d[d.gemm_dtype == dtype] for _, d in found])
        d = d[(d.k >= 1024) & (d.n >= 512) & (d.k <= 28672) & (d.n * d.k * wide < 4e8) & (d.latency > 0)]
        if not peaks[peak] or d.empty:
            continue
        m, n, k, t = (d[c].values.astype(float) for c in ("m", "n", "k", "latency"))

        def residual(x):
            c = 2 * np.ceil(m / tile) * tile * n * (k + x[5]) / (peaks[peak] * x[1])
            b = (n * k * wide + m * k * entering + m * n * 2) / (bandwidth * x[2])
            return np.log((np.exp(x[0]) + (c ** x[3] + b ** x[3]) ** (1 / x[3]) + x[4] * m * k / bandwidth) / (t / 1e3))

        x, error = fit(residual, [np.log(3e-6), 0.7, 0.8, 2, 1, 100], [-20, 0.05, 0.05, 1, 0, 0], [-8, 1, 1, 12, 20, 4000])
        print(f"/* {source(found)}: {len(d)} products, {error} */")
        print(f"FIT_PRODUCT({chip}, {name}, {np.exp(x[0]) * 1e6:.2f}, {x[1]:.3f}, {x[2]:.3f}, {x[3]:.2f}, {x[4]:.2f}, {x[5]:.0f})")


def attention(chip, peaks, bandwidth):
    for name, dtype, wide, engine in (("BF16", "bfloat16", 2, "*"), ("FP8", "fp8", 1, "trtllm")):
        found = tables(chip, "attention:generation_attention", engine)
        parts = []
        for _, d in found:
            d = d[(d.kv_cache_dtype == dtype) & (d.head_dim == 128) & (d.num_heads <= 16 * d.num_key_value_heads)]
            d = d[(d.batch_size <= 512) & (d.step >= 127) & (d.step < 40000) & (d.latency > 0)]
            parts.append(d[d.window_size == 0] if "window_size" in d else d)
        d = pd.concat(parts)
        if not d.empty:
            b, s, g, t = (d[c].values.astype(float) for c in ("batch_size", "step", "num_key_value_heads", "latency"))
            bytes_ = 2 * b * (s + 1) * g * 128 * wide
            x, error = fit(lambda x: np.log((np.exp(x[0]) + bytes_ / (bandwidth * x[1])) / (t / 1e3)), [np.log(1e-5), 0.8], [-20, 0.05], [-6, 1])
            print(f"/* {source(found)}: {len(d)} of decoding, {error} */")
            print(f"FIT_DECODE({chip}, {name}, {np.exp(x[0]) * 1e6:.2f}, {x[1]:.3f})")
    found = tables(chip, "attention:context_attention")
    parts = []
    for _, d in found:
        d = d[(d.kv_cache_dtype == "bfloat16") & (d.attn_dtype == "bfloat16") & (d.head_dim == 128) & (d.num_heads >= 4)]
        d = d[(d.isl >= 256) & (d.latency > 0)]
        parts.append(d[d.window_size == 0] if "window_size" in d else d)
    d = pd.concat(parts)
    b, s, h, t = (d[c].values.astype(float) for c in ("batch_size", "isl", "num_heads", "latency"))
    x, error = fit(
        lambda x: np.log((np.exp(x[0]) + 2 * b * h * s * (s + x[2]) * 128 / (peaks[BF16] * x[1])) / (t / 1e3)),
        [np.log(1e-5), 0.5, 100], [-20, 0.05, 0], [-6, 1, 5000])
    print(f"/* {source(found)}: {len(d)} of prefill, {error} */")
    print(f"FIT_PREFILL({chip}, {np.exp(x[0]) * 1e6:.2f}, {x[1]:.3f}, {x[2]:.0f})")


def all_reduce(chip):
    found = [(f, d) for f, d in tables(chip, "comm:custom_allreduce", "vllm")]
    f, d = found[-1]
    d = d[~d.kernel_source.str.contains("eager")]
    for n in (2, 4, 8):
        e = d[d.num_gpus == n].groupby("message_size").latency.median()
        sizes = [8192 * 4**i for i in range(8)]
        if all(s in e.index for s in sizes):
            print(f"/* {source([(f, d)])} */")
            print(f"FIT_ALL_REDUCE({chip}, {n}, {', '.join(f'{e[s] * 1e3:.1f}' for s in sizes)})")


print("/* Made by tools/fit_chips.py of aiconfigurator-core 0.12.0: timings of single operations. Microseconds, shares of peaks. */")
for chip, peaks, bandwidth in CHIPS:
    products(chip, peaks, bandwidth)
    attention(chip, peaks, bandwidth)
    all_reduce(chip)
