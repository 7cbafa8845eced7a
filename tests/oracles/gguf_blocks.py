#!/usr/bin/env python3
"""What the blocks of GGUF files mean, by the gguf package of ggml-org, and a tiny Llama that is made of them.

Writes, for every type of blocks that Caravan reads,
  tests/data/gguf/TYPE.blocks   random blocks, then weights in blocks
  tests/data/gguf/TYPE.f32      the numbers that gguf.quants.dequantize gives for them
and tests/data/gguf/mixed.gguf, whose matrices are of ten types, with mixed.safetensors: tokens i32 [n] and the logits
f32 [n, vocab] that transformers gives for the dequantized weights. The gguf package packs only some types; for the
others the scales here are the simplest that there are: good enough that the numbers are near the weights.

Needs gguf, numpy, torch (CPU), transformers and safetensors.
"""
import pathlib

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType as Type
from gguf.quants import dequantize, quantize
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM

OUT = pathlib.Path(__file__).resolve().parent.parent / "data" / "gguf"

# Where the f16 fields of a block are: random bytes there would often be infinite.
HALVES = {
    "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82], "Q3_K": [108],
    "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ4_NL": [0], "IQ4_XS": [0], "TQ1_0": [52], "TQ2_0": [64],
    "MXFP4": [],
}
STEPS = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113])


def halves(x):
    return np.asarray(x, np.float16).tobytes()


def nibbles(q):
    """[2 n] numbers below 16 to n bytes: the first half below, the other above."""
    return (q[: len(q) // 2] | q[len(q) // 2 :] << 4).astype(np.uint8).tobytes()


def in_runs(pack, q, run):
    return b"".join(pack(part) for part in q.reshape(-1, run))


def pairs(q):
    """[128] numbers below 4 to 32 bytes."""
    a, b, c, d = q.reshape(4, 32)
    return (a | b << 2 | c << 4 | d << 6).astype(np.uint8).tobytes()


def one_bit(q):
    """[256] bits to 32 bytes: bit k of byte j is that of element 32 k + j."""
    return (q.reshape(8, 32) << np.arange(8)[:, None]).sum(0).astype(np.uint8).tobytes()


def affine(x, group, levels, most):
    """Scales and minima of groups as integers up to `most`, and numbers below `levels`: x = d s q - m t."""
    x = x.reshape(-1, group)
    low = np.minimum(x.min(1), 0)
    d, m = np.float16((x.max(1) - low).max() / (levels - 1) / most), np.float16(-low.min() / most)
    s = np.clip(np.rint((x.max(1) - low) / (levels - 1) / float(d)), 0, most).astype(int)
    t = np.clip(np.rint(-low / float(m)), 0, most).astype(int)
    step = np.maximum(float(d) * s, 1e-30)[:, None]
    q = np.clip(np.rint((x + float(m) * t[:, None]) / step), 0, levels - 1).astype(int)
    return d, m, s, t, q.ravel()


def centred(x, group, half, most):
    """The same for x = d s q, q from -half to half - 1."""
    x = x.reshape(-1, group)
    need = np.abs(x).max(1) / (half - 0.5)
    d = np.float16(need.max() / most)
    s = np.clip(np.rint(need / float(d)), 1, most).astype(int)
    q = np.clip(np.rint(x / (float(d) * s)[:, None]), -half, half - 1).astype(int)
    return d, s, q.ravel()


def twelve_bytes(s, t):
    """8 scales and 8 minima of 6 bits."""
    first = [s[g] | s[g + 4] >> 4 << 6 for g in range(4)] + [t[g] | t[g + 4] >> 4 << 6 for g in range(4)]
    return bytes([int(b) for b in first] + [int(s[g] & 15 | (t[g] & 15) << 4) for g in range(4, 8)])


def nearest_step(x, group):
    """Numbers of the table of 16 steps, with a scale per group."""
    x = x.reshape(-1, group)
    scale = np.abs(x).max(1) / 120
    return scale, lambda scale: np.abs((x / scale[:, None])[:, :, None] - STEPS).argmin(2).ravel()


def pack_q2_k(x):
    d, m, s, t, q = affine(x, 16, 4, 15)
    return (s | t << 4).astype(np.uint8).tobytes() + in_runs(pairs, q, 128) + halves([d, m])


def pack_q3_k(x):
    d, s, q = centred(x, 16, 4, 31)
    s, q = s + 32, q + 4
    low = nibbles(s & 15)
    high = bytes(int(sum((s[4 * k + j] >> 4) << 2 * k for k in range(4))) for j in range(4))
    return one_bit(q >> 2) + in_runs(pairs, q & 3, 128) + low + high + halves(d)


def pack_q4_k(x):
    d, m, s, t, q = affine(x, 32, 16, 63)
    return halves([d, m]) + twelve_bytes(s, t) + in_runs(nibbles, q, 64)


def pack_q5_k(x):
    d, m, s, t, q = affine(x, 32, 32, 63)
    return halves([d, m]) + twelve_bytes(s, t) + one_bit(q >> 4) + in_runs(nibbles, q & 15, 64)


def pack_q6_k(x):
    d, s, q = centred(x, 16, 32, 127)
    q = q + 32
    return in_runs(nibbles, q & 15, 128) + in_runs(pairs, q >> 4, 128) + s.astype(np.uint8).tobytes() + halves(d)


def pack_iq4_nl(x):
    out = b""
    for part in x.reshape(-1, 32):
        scale, numbers = nearest_step(part, 32)
        d = np.float16(scale[0])
        out += halves(d) + nibbles(numbers(np.array([float(d)])))
    return out


def pack_iq4_xs(x):
    scale, numbers = nearest_step(x, 32)
    d = np.float16(scale.max() / 31)
    s = np.clip(np.rint(scale / float(d)), 1, 31).astype(int)
    q = numbers(float(d) * s)
    s = s + 32
    high = sum(int(s[g] >> 4) << 2 * g for g in range(8))
    low = bytes(int(s[g] & 15 | (s[g + 1] & 15) << 4) for g in range(0, 8, 2))
    return halves(d) + high.to_bytes(2, "little") + low + in_runs(nibbles, q, 32)


PACKERS = {"Q2_K": pack_q2_k, "Q3_K": pack_q3_k, "Q4_K": pack_q4_k, "Q5_K": pack_q5_k, "Q6_K": pack_q6_k,
           "IQ4_NL": pack_iq4_nl, "IQ4_XS": pack_iq4_xs}

# How far the numbers may be from the weights, over the spread of the weights.
NEAR = {"Q8_0": 0.02, "Q6_K": 0.06, "Q5_0": 0.1, "Q5_1": 0.1, "Q5_K": 0.1, "TQ1_0": 2, "TQ2_0": 2, "Q2_K": 0.7,
        "Q3_K": 0.4, "MXFP4": 0.3}


def pack(name, x):
    """[rows, columns] f32 to [rows, bytes] u8."""
    if name in PACKERS:
        rows = [b"".join(PACKERS[name](part) for part in row.astype(np.float64).reshape(-1, 256)) for row in x]
        packed = np.frombuffer(b"".join(rows), np.uint8).reshape(len(x), -1)
    else:
        packed = quantize(x, Type[name])
    error = np.sqrt(((dequantize(packed, Type[name]) - x) ** 2).mean()) / x.std()
    assert error < NEAR.get(name, 0.2), (name, error)
    return packed


def random_blocks(name, rng, n):
    size = gguf.GGML_QUANT_SIZES[Type[name]][1]
    blocks = rng.integers(0, 256, (n, size), dtype=np.uint8)
    for at in HALVES[name]:
        d = (rng.standard_normal(n) * 10.0 ** rng.integers(-8, 4, n)).astype(np.float16)
        blocks[:, at : at + 2] = d[:, None].view(np.uint8)
    return blocks


def write_blocks(name, rng):
    elements = gguf.GGML_QUANT_SIZES[Type[name]][0]
    weights = (rng.standard_normal((1, 512)) * np.repeat([0.02, 0.3], 256)).astype(np.float32)
    blocks = np.concatenate([random_blocks(name, rng, 1024 // elements).ravel(), pack(name, weights).ravel()])
    (OUT / f"{name}.blocks").write_bytes(blocks.tobytes())
    (OUT / f"{name}.f32").write_bytes(dequantize(blocks, Type[name]).astype("<f4").tobytes())


DIM, HEADS, KV_HEADS, FFN, VOCAB, LAYERS = 256, 4, 2, 256, 64, 2

# As in files of the kind Q4_K_M, then one type after the other.
MATRICES = {
    "token_embd": ("model.embed_tokens", VOCAB, "Q5_1"), "output": ("lm_head", VOCAB, "Q6_K"),
    "blk.0.attn_q": ("model.layers.0.self_attn.q_proj", DIM, "Q4_K"),
    "blk.0.attn_k": ("model.layers.0.self_attn.k_proj", DIM // 2, "Q4_K"),
    "blk.0.attn_v": ("model.layers.0.self_attn.v_proj", DIM // 2, "Q6_K"),
    "blk.0.attn_output": ("model.layers.0.self_attn.o_proj", DIM, "Q4_K"),
    "blk.0.ffn_gate": ("model.layers.0.mlp.gate_proj", FFN, "Q4_K"),
    "blk.0.ffn_up": ("model.layers.0.mlp.up_proj", FFN, "Q4_K"),
    "blk.0.ffn_down": ("model.layers.0.mlp.down_proj", DIM, "Q6_K"),
    "blk.1.attn_q": ("model.layers.1.self_attn.q_proj", DIM, "Q4_0"),
    "blk.1.attn_k": ("model.layers.1.self_attn.k_proj", DIM // 2, "Q5_K"),
    "blk.1.attn_v": ("model.layers.1.self_attn.v_proj", DIM // 2, "Q5_0"),
    "blk.1.attn_output": ("model.layers.1.self_attn.o_proj", DIM, "IQ4_XS"),
    "blk.1.ffn_gate": ("model.layers.1.mlp.gate_proj", FFN, "Q3_K"),
    "blk.1.ffn_up": ("model.layers.1.mlp.up_proj", FFN, "Q2_K"),
    "blk.1.ffn_down": ("model.layers.1.mlp.down_proj", DIM, "IQ4_NL"),
}
NORMS = {"output_norm": "model.norm", "blk.0.attn_norm": "model.layers.0.input_layernorm",
         "blk.0.ffn_norm": "model.layers.0.post_attention_layernorm", "blk.1.attn_norm": "model.layers.1.input_layernorm",
         "blk.1.ffn_norm": "model.layers.1.post_attention_layernorm"}


def write_model(rng):
    writer = gguf.GGUFWriter(OUT / "mixed.gguf", "llama")
    writer.add_context_length(128)
    writer.add_embedding_length(DIM)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(FFN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    state = {}
    for name, (elsewhere, rows, kind) in MATRICES.items():
        packed = pack(name=kind, x=(rng.standard_normal((rows, DIM)) * 0.08).astype(np.float32))
        writer.add_tensor(f"{name}.weight", packed, raw_dtype=Type[kind])
        x = dequantize(packed, Type[kind])
        if name.endswith(("attn_q", "attn_k")):  # pairs (2 i, 2 i + 1) to halves (i, i + half)
            half = DIM // HEADS // 2
            x = x.reshape(-1, half, 2, DIM).swapaxes(1, 2).reshape(rows, DIM)
        state[f"{elsewhere}.weight"] = torch.from_numpy(np.ascontiguousarray(x))
    for name, elsewhere in NORMS.items():
        x = (1 + rng.standard_normal(DIM) * 0.2).astype(np.float32)
        writer.add_tensor(f"{name}.weight", x)
        state[f"{elsewhere}.weight"] = torch.from_numpy(x)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    model = LlamaForCausalLM(LlamaConfig(
        hidden_size=DIM, intermediate_size=FFN, num_hidden_layers=LAYERS, num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS, vocab_size=VOCAB, max_position_embeddings=128, rms_norm_eps=1e-5,
        rope_theta=10000.0, tie_word_embeddings=False)).eval()
    model.load_state_dict(state)
    tokens = torch.from_numpy(rng.integers(0, VOCAB, 40))
    with torch.no_grad():
        logits = model(tokens[None]).logits[0]
    save_file({"tokens": tokens.int(), "logits": logits.float().contiguous()}, OUT / "mixed.safetensors")
    print(f"mixed.gguf: logits {tuple(logits.shape)}, spread {logits.std():.3f}")
    return model


if __name__ == "__main__":
    OUT.mkdir(parents=True, exist_ok=True)
    for i, name in enumerate(HALVES):
        write_blocks(name, np.random.default_rng(i))
    write_model(np.random.default_rng(100))
