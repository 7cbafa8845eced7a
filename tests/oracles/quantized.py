#!/usr/bin/env python3
"""Tiny Llamas as other programs quantize them, by the specifications of their formats.

Writes tests/data/quantized/NAME, a folder each, and in it numbers.safetensors: what every quantized matrix stands for,
f32, as the formats say: scale * (code - zero), with codes, scales and zeros drawn here and then packed. Those of WIDE
are wide enough for blocks of 32, and have no such file. Needs numpy.
"""
import json
import pathlib

import numpy as np

OUT = pathlib.Path(__file__).resolve().parent.parent / "data" / "quantized"
VOCAB = 16


def matrices(dim, ffn):
    kv = dim // 2
    return {"self_attn.q_proj": (dim, dim), "self_attn.k_proj": (kv, dim), "self_attn.v_proj": (kv, dim),
            "self_attn.o_proj": (dim, dim), "mlp.gate_proj": (ffn, dim), "mlp.up_proj": (ffn, dim),
            "mlp.down_proj": (dim, ffn)}


def llama(dim, ffn):
    return {"model_type": "llama", "hidden_size": dim, "intermediate_size": ffn, "num_hidden_layers": 1,
            "num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": VOCAB, "rms_norm_eps": 1e-5,
            "max_position_embeddings": 64, "hidden_act": "silu", "torch_dtype": "float16", "bos_token_id": 1,
            "eos_token_id": 2, "tie_word_embeddings": False}


NAMES = {"float16": "F16", "float32": "F32", "int32": "I32", "int64": "I64", "int8": "I8", "uint16": "BF16",
         "uint8": "F8_E4M3"}


def save(path, tensors):
    header, data = {}, b""
    for name, x in sorted(tensors.items(), key=lambda item: -item[1].dtype.itemsize):
        x = np.ascontiguousarray(x).reshape(x.shape)
        header[name] = {"dtype": NAMES[x.dtype.name], "shape": list(x.shape),
                        "data_offsets": [len(data), len(data) + x.nbytes]}
        data += x.tobytes()
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def pack(q, bits, axis, order=None):
    """Unsigned numbers into the words of 32 bits, along an axis; number order[i] of a word's is its i-th from below."""
    per = 32 // bits
    q = np.moveaxis(q, axis, 0)
    q = np.concatenate([q, np.zeros((-len(q) % per, *q.shape[1:]), q.dtype)])
    q = q.reshape(-1, per, *q.shape[1:]).astype(np.uint64)
    word = sum(q[:, j] << np.uint64(bits * i) for i, j in enumerate(order or range(per)))
    return np.moveaxis(word.astype(np.uint32), 0, axis).view(np.int32)


def bf16(x):
    return (np.asarray(x, np.float32).view(np.uint32) >> 16).astype(np.uint16)


def from_bf16(x):
    return (x.astype(np.uint32) << 16).view(np.float32)


def e4m3():
    """What the 256 bytes stand for."""
    values = []
    for b in range(256):
        e, f = b >> 3 & 15, b & 7
        x = (1 + f / 8) * 2.0 ** (e - 7) if e else f / 8 * 2.0**-6
        values.append(np.nan if b & 127 == 127 else -x if b & 128 else x)
    return np.array(values, np.float32)


def scales(rng, *shape):
    return rng.uniform(0.01, 0.1, shape).astype(np.float16)


def numbers(q, s, z, group):
    return s.astype(np.float32)[:, group] * (q.astype(np.float32) - z.astype(np.float32)[:, group])


def gptq(rng, name, n, k, bits, group, act, v2, zero=None):
    groups = k // group if group > 0 else 1
    group_of = np.arange(k) // (k // groups)
    if act:
        group_of = rng.permutation(group_of)
    q, s = rng.integers(0, 2**bits, (n, k)), scales(rng, n, groups)
    z = rng.integers(1, 2**bits, (n, groups)) if zero is None else np.full((n, groups), zero)
    tensors = {"qweight": pack(q.T, bits, 0), "scales": s.T, "qzeros": pack(z.T - (0 if v2 else 1), bits, 1),
               "g_idx": group_of.astype(np.int32), "bias": np.zeros(n, np.float16)}
    return tensors, numbers(q, s, z, group_of)


def awq(rng, name, n, k, group):
    q, s, z = rng.integers(0, 16, (n, k)), scales(rng, n, k // group), rng.integers(0, 16, (n, k // group))
    order = [0, 2, 4, 6, 1, 3, 5, 7]
    tensors = {"qweight": pack(q.T, 4, 1, order), "scales": s.T, "qzeros": pack(z.T, 4, 1, order)}
    return tensors, numbers(q, s, z, np.arange(k) // group)


def packed(rng, name, n, k, bits, group, zeros, act):
    groups, half = k // group if group > 0 else 1, 2 ** (bits - 1)
    group_of = np.arange(k) // (k // groups)
    if act:
        group_of = rng.permutation(group_of)
    q = rng.integers(-half, half, (n, k))
    s = bf16(scales(rng, n, groups))
    z = rng.integers(-half, half, (n, groups)) if zeros else np.zeros((n, groups), int)
    tensors = {"weight_packed": pack(q + half, bits, 1), "weight_scale": s, "weight_shape": np.array([n, k])}
    if zeros:
        tensors["weight_zero_point"] = pack(z + half, bits, 0)
    if act:
        tensors["weight_g_idx"] = group_of.astype(np.int32)
    return tensors, numbers(q, from_bf16(s), z, group_of)


def int8(rng, name, n, k):
    q, s = rng.integers(-128, 128, (n, k)), bf16(scales(rng, n, 1))
    tensors = {"weight": q.astype(np.int8), "weight_scale": s}
    return tensors, numbers(q, from_bf16(s), np.zeros((n, 1)), np.zeros(k, int))


def fp8(rng, name, n, k, scale, shape):
    code = rng.integers(0, 255, (n, k)).astype(np.uint8)
    code[code == 127] = 0
    rows, columns = shape or (n, k)
    s = rng.uniform(0.001, 0.01, (-(-n // rows), -(-k // columns))).astype(np.float32)
    spread = np.repeat(np.repeat(s, rows, 0), columns, 1)[:n, :k]
    stored = s.reshape(()) if scale == "weight_scale" and shape is None else s
    return {"weight": code, scale: stored, "input_scale": np.float32(1).reshape(1)}, spread * e4m3()[code]


def compressed(form, **weights):
    return {"quant_method": "compressed-tensors", "format": form, "quantization_status": "compressed",
            "ignore": ["lm_head"], "kv_cache_scheme": None,
            "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights, "input_activations": None}}}


CASES = {
    "gptq4-act": (lambda *a: gptq(*a, 4, 8, True, False),
                  {"quant_method": "gptq", "bits": 4, "group_size": 8, "desc_act": True, "sym": False}),
    "gptq8": (lambda *a: gptq(*a, 8, -1, False, True),
              {"quant_method": "gptq", "bits": 8, "group_size": -1, "checkpoint_format": "gptq_v2"}),
    "awq": (lambda *a: awq(*a, 8),
            {"quant_method": "awq", "bits": 4, "group_size": 8, "zero_point": True, "version": "gemm"}),
    "w4a16": (lambda *a: packed(*a, 4, 8, False, False),
              compressed("pack-quantized", num_bits=4, type="int", symmetric=True, strategy="group", group_size=8)),
    "w4a16-zeros-act": (lambda *a: packed(*a, 4, 8, True, True),
                        compressed("pack-quantized", num_bits=4, type="int", symmetric=False, strategy="group",
                                   group_size=8, actorder="group")),
    "w8a16": (lambda *a: packed(*a, 8, -1, False, False),
              compressed("pack-quantized", num_bits=8, type="int", symmetric=True, strategy="channel",
                         group_size=None)),
    "int8": (lambda *a: int8(*a),
             compressed("int-quantized", num_bits=8, type="int", symmetric=True, strategy="channel")),
    "fp8-tensor": (lambda *a: fp8(*a, "weight_scale", None),
                   compressed("float-quantized", num_bits=8, type="float", strategy="tensor")),
    "fp8-block": (lambda *a: fp8(*a, "weight_scale_inv", (16, 8)),
                  {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [16, 8]}),
    "fp8-rows": (lambda *a: fp8(*a, "weight_scale", (1, 24)), {"quant_method": "fbgemm_fp8"}),
}
WIDE = {
    "wide-gptq4": (lambda *a: gptq(*a, 4, 32, False, False, 8),
                   {"quant_method": "gptq", "bits": 4, "group_size": 32, "sym": True}),
    "wide-w4a16": (lambda *a: packed(*a, 4, 32, False, False),
                   compressed("pack-quantized", num_bits=4, type="int", symmetric=True, strategy="group",
                              group_size=32)),
    "wide-awq": (lambda *a: awq(*a, 32),
                 {"quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": True, "version": "gemm"}),
    "wide-gptq4-zeros": (lambda *a: gptq(*a, 4, 32, False, False),
                         {"quant_method": "gptq", "bits": 4, "group_size": 32, "sym": False}),
    "wide-w4a16-zeros": (lambda *a: packed(*a, 4, 32, True, False),
                         compressed("pack-quantized", num_bits=4, type="int", symmetric=False, strategy="group",
                                    group_size=32)),
    "wide-int8": (lambda *a: int8(*a),
                  compressed("int-quantized", num_bits=8, type="int", symmetric=True, strategy="channel")),
}

for case, (quantize, config) in (CASES | WIDE).items():
    DIM, FFN = (32, 64) if case in WIDE else (16, 24)
    rng = np.random.default_rng(len(case))
    folder = OUT / case
    folder.mkdir(parents=True, exist_ok=True)
    whole = lambda *shape: (rng.standard_normal(shape) * 0.2).astype(np.float16)
    tensors = {"model.embed_tokens.weight": whole(VOCAB, DIM), "lm_head.weight": whole(VOCAB, DIM),
               "model.norm.weight": np.ones(DIM, np.float16)}
    meant = {}
    for norm in ("input_layernorm", "post_attention_layernorm"):
        tensors[f"model.layers.0.{norm}.weight"] = np.ones(DIM, np.float16)
    for name, (n, k) in matrices(DIM, FFN).items():
        pieces, w = quantize(rng, name, n, k)
        meant[f"model.layers.0.{name}.weight"] = w.astype(np.float32)
        tensors |= {f"model.layers.0.{name}.{piece}": x for piece, x in pieces.items()}
    save(folder / "model.safetensors", tensors)
    if case in CASES:
        save(folder / "numbers.safetensors", meant)
    (folder / "config.json").write_text(json.dumps(llama(DIM, FFN) | {"quantization_config": config}, indent=2) + "\n")
