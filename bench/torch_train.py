"""A training step of a Llama shape in PyTorch on the CPU: what `caravan bench --train` is set beside.

    torch_train.py [--preset stories110m] [--seq 1024] [--batch 2] [--repeats 3] [--threads 0] [--compile]

bf16 by autocast with f32 master weights, AdamW and clipping of the global norm: the same step. Attention is
scaled_dot_product_attention where this torch has it, else its formula. Any version of torch from 1.10 on will do;
--compile asks for torch.compile where there is one. Prints one line of JSON.
"""
import argparse
import json
import math
import os
import time

import torch
from torch import nn
from torch.nn import functional as F

# dim, layers, heads, KV heads, ffn, vocabulary
PRESETS = {
    "stories15m": (288, 6, 6, 6, 768, 32000),
    "stories42m": (512, 8, 8, 8, 1376, 32000),
    "stories110m": (768, 12, 12, 12, 2048, 32000),
    "llama3.2-1b": (2048, 16, 32, 8, 8192, 128256),
}


def rms_norm(x, weight):
    x = x.float()
    return (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * weight).to(torch.bfloat16)


def rotate(x, cos, sin):
    a, b = x.float().chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).to(torch.bfloat16)


def attend(q, k, v):
    """[batch, heads, seq, head_dim], causal."""
    if hasattr(F, "scaled_dot_product_attention"):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
    seq = q.shape[2]
    scores = q @ k.transpose(2, 3) / math.sqrt(q.shape[3])
    hidden = torch.ones(seq, seq, dtype=torch.bool).triu(1)
    weights = scores.float().masked_fill(hidden, float("-inf")).softmax(-1)
    return weights.to(v.dtype) @ v


class Layer(nn.Module):
    def __init__(self, dim, heads, kv_heads, ffn):
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = heads, kv_heads, dim // heads
        kv = kv_heads * self.head_dim
        self.norms = nn.ParameterList([nn.Parameter(torch.ones(dim)) for _ in range(2)])
        self.q, self.k, self.v, self.o = (
            nn.Linear(a, b, bias=False) for a, b in ((dim, dim), (dim, kv), (dim, kv), (dim, dim)))
        self.gate, self.up, self.down = (
            nn.Linear(a, b, bias=False) for a, b in ((dim, ffn), (dim, ffn), (ffn, dim)))

    def split(self, x, heads):
        return x.view(x.shape[0], x.shape[1], heads, self.head_dim).transpose(1, 2)

    def forward(self, x, cos, sin):
        h = rms_norm(x, self.norms[0])
        q, k = (rotate(self.split(p(h), n), cos, sin)
                for p, n in ((self.q, self.heads), (self.k, self.kv_heads)))
        v = self.split(self.v(h), self.kv_heads)
        group = self.heads // self.kv_heads
        if group > 1:
            k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
        a = attend(q, k, v).transpose(1, 2).reshape(h.shape)
        x = x + self.o(a)
        h = rms_norm(x, self.norms[1])
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Llama(nn.Module):
    def __init__(self, dim, layers, heads, kv_heads, ffn, vocab, seq):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.layers = nn.ModuleList([Layer(dim, heads, kv_heads, ffn) for _ in range(layers)])
        self.norm = nn.Parameter(torch.ones(dim))
        self.head = nn.Linear(dim, vocab, bias=False)
        half = dim // heads // 2
        angle = torch.outer(torch.arange(seq), 10000.0 ** (-torch.arange(half) / half))
        self.register_buffer("cos", angle.cos())
        self.register_buffer("sin", angle.sin())

    def forward(self, tokens):
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x, self.cos, self.sin)
        return self.head(rms_norm(x, self.norm))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--preset", choices=PRESETS, default="stories110m")
    parser.add_argument("--seq", type=int, default=1024)
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=0, help="0: all processors")
    parser.add_argument("--compile", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(1)
    torch.set_num_threads(args.threads or len(os.sched_getaffinity(0)))
    model = Llama(*PRESETS[args.preset], args.seq)
    step_model = torch.compile(model) if args.compile and hasattr(torch, "compile") else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1)
    vocab = PRESETS[args.preset][-1]
    data = torch.randint(vocab, (args.batch, args.seq + 1))

    def step():
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = step_model(data[:, :-1])
        loss = F.cross_entropy(logits.float().view(-1, vocab), data[:, 1:].reshape(-1))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.item()

    step()
    seconds = []
    for _ in range(args.repeats):
        begin = time.perf_counter()
        loss = step()
        seconds.append(time.perf_counter() - begin)
    median = sorted(seconds)[len(seconds) // 2]
    print(json.dumps({"torch": torch.__version__, "model": args.preset,
                      "threads": torch.get_num_threads(), "loss": loss,
                      "train": {"seconds_per_step": median,
                                "tokens_per_second": args.batch * args.seq / median}}))


main()
