#!/usr/bin/env python3
"""Loss curves of 20 steps of AdamW of tiny models with experts, with what training may ask of routers, by transformers and torch in float64.

Writes tests/data/train/routers.json: {VARIANT: {TERM: [cross-entropy of each step, before its update]}}. The terms are
    batch     1 * transformers' load_balancing_loss_func over all layers (0.5 with GLM: of its scores, which transformers has no such loss for)
    sequence  0.5 * DeepSeek-V3's loss of each row by itself
    z         0.1 * the mean of logsumexp^2 of each router, added up
    bias      DeepSeek-V3's way: after each step corrections go by 0.05 towards experts that were chosen less often than the mean
Sequences and settings are those of families_curves.py. The same settings stand in tests/test_train_families.c. Arguments name the
variants; without any all are run.
"""
import json
import sys

import torch
from train import DATA, batch
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.models.mixtral.modeling_mixtral import load_balancing_loss_func

STEPS, ROWS, SEQ = 20, 4, 24
VARIANTS = {"mixtral": ("batch", "sequence", "z"), "qwen3_moe": ("batch", "z"), "granite_moe": ("batch",), "gpt_oss_moe": ("batch", "sequence"),
            "glm4_moe": ("sequence", "bias")}
COEFFICIENT = {"batch": 1.0, "sequence": 0.5, "z": 0.1, "bias": 0.05}


def routers_of(model):
    """Their logits [tokens, experts] and choices [tokens, k], as the last forward pass had them: lists that hooks fill."""
    seen = []
    for name, module in model.named_modules():
        if not name.endswith((".gate", ".router")) or not hasattr(module, "weight"):
            continue

        def note(module, inputs, output, owner=module):
            x = inputs[0].reshape(-1, inputs[0].shape[-1]).double()
            logits = torch.nn.functional.linear(x, owner.weight.double(), getattr(owner, "bias", None))
            seen.append((owner, logits))
        module.register_forward_hook(note)
    return seen


def run(folder, term):
    settings = json.loads((folder / "config.json").read_text())
    config = AutoConfig.for_model(**settings)
    config._experts_implementation = "eager"
    model = AutoModelForCausalLM.from_pretrained(folder, config=config, dtype=torch.float32, attn_implementation="eager").double()
    model.eval()
    model.get_input_embeddings().padding_idx = None
    corrections = [m for m in model.modules() if hasattr(m, "e_score_correction_bias")]
    for m in corrections:
        m.e_score_correction_bias = m.e_score_correction_bias.double()
    k = config.num_experts_per_tok
    seen = routers_of(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), eps=1e-4, weight_decay=0)
    losses = []
    for step in range(1, STEPS + 1):
        tokens, targets = batch(step, ROWS, SEQ)
        seen.clear()
        logits = model(tokens).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
        losses.append(round(loss.item(), 7))
        sigmoid = bool(corrections)
        moves = []
        if term == "batch":
            experts = seen[0][1].shape[-1]
            loss = loss + COEFFICIENT[term] * load_balancing_loss_func(tuple(x for _, x in seen), experts, k)
        for owner, x in seen:
            experts = x.shape[-1]
            scores = x.sigmoid() / x.sigmoid().sum(-1, keepdim=True) if sigmoid else x.softmax(-1)
            by = x.sigmoid() + owner.e_score_correction_bias if sigmoid else x
            chosen = torch.nn.functional.one_hot(by.topk(k, -1).indices, experts).sum(-2).double()
            if term == "sequence":
                f = chosen.unflatten(0, (ROWS, SEQ)).mean(1) * experts / k
                p = scores.unflatten(0, (ROWS, SEQ)).mean(1)
                loss = loss + COEFFICIENT[term] * (f * p).sum(-1).mean()
            if term == "z":
                loss = loss + COEFFICIENT[term] * x.logsumexp(-1).square().mean()
            if term == "bias":
                load = chosen.sum(0)
                moves.append((owner, (load.mean() - load).sign()))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        for owner, way in moves:
            owner.e_score_correction_bias += COEFFICIENT["bias"] * way
    return losses


torch.set_num_threads(1)
path = DATA / "train" / "routers.json"
curves = json.loads(path.read_text()) if path.exists() else {}
for name, terms in VARIANTS.items():
    if sys.argv[1:] and name not in sys.argv[1:]:
        continue
    curves[name] = {term: run(DATA / "llama" / name, term) for term in terms}
    for term in terms:
        print(f"{name} {term}: {curves[name][term][0]:.4f} -> {curves[name][term][-1]:.4f}", flush=True)
path.write_text(json.dumps(curves, indent=1, sort_keys=True) + "\n")
