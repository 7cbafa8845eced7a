#!/usr/bin/env python3
"""LoRA by PEFT: tests/data/lora, and in VARIANT adapters of modules that have several matrices, with logits as families.py stores them.

    lora.py                        trains; writes the adapters before (start) and after (end) 40 steps of AdamW, and
                                   curve.json with the loss and gradient norm of each step
    lora.py MODEL ADAPTER MERGED   holds an adapter folder and a merged model of ours to each other: largest
                                   difference of their logits, PEFT's for the first

The model is tests/data/llama/gqa, the sequences are those of train.py; AdamW as there, at a constant rate of 1e-2.
Needs torch (CPU), transformers, peft and safetensors.
"""
import json
import pathlib
import shutil
import sys

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, LlamaForCausalLM

import train

DATA = pathlib.Path(__file__).resolve().parent.parent / "data"
MODEL, OUT = DATA / "llama" / "gqa", DATA / "lora"
ROWS, SEQ, STEPS, LR = 4, 32, 40, 1e-2


def load(folder):
    return LlamaForCausalLM.from_pretrained(folder, torch_dtype=torch.float32, attn_implementation="eager")


def save(model, folder):
    """The weights as PEFT writes them, without the paths of this machine in the config and in f32."""
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)
    config = json.loads((folder / "adapter_config.json").read_text())
    config["base_model_name_or_path"] = None
    (folder / "adapter_config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    (folder / "README.md").unlink()


def run():
    torch.manual_seed(0)
    config = LoraConfig(r=4, lora_alpha=12, lora_dropout=0.0, bias="none", task_type="CAUSAL_LM",
                        target_modules=["q_proj", "v_proj", "o_proj", "gate_proj", "down_proj"])
    model = get_peft_model(load(MODEL), config)
    model.train()
    save(model, OUT / "start")
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=LR, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
    curve = {"batch": ROWS, "seq": SEQ, "steps": STEPS, "loss": [], "grad_norm": []}
    for step in range(1, STEPS + 1):
        tokens, targets = train.batch(step, ROWS, SEQ)
        logits = model(tokens).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        curve["loss"].append(loss.item())
        curve["grad_norm"].append(norm.item())
    save(model, OUT / "end")
    (OUT / "curve.json").write_text(json.dumps(curve) + "\n")
    print(f"loss {curve['loss'][0]:.4f} -> {curve['loss'][-1]:.4f}")


# Modules in which transformers has several matrices.
JOINED = {"phi3": ["qkv_proj", "o_proj", "gate_up_proj", "down_proj"], "glm4": ["q_proj", "v_proj", "gate_up_proj"],
          "granite4": ["q_proj", "input_linear", "output_linear"]}


def join():
    for variant, modules in JOINED.items():
        torch.manual_seed(len(variant))
        base = AutoModelForCausalLM.from_pretrained(DATA / "llama" / variant, dtype=torch.float32, attn_implementation="eager")
        model = get_peft_model(base, LoraConfig(r=3, lora_alpha=6, lora_dropout=0.0, bias="none", task_type="CAUSAL_LM",
                                                target_modules=modules)).eval()
        with torch.no_grad():
            for name, p in model.named_parameters():
                if "lora_" in name:
                    p.copy_((torch.randn_like(p) * 0.2).bfloat16().float())
            tokens = torch.randint(0, base.config.vocab_size, (40,))
            logits = model(tokens[None]).logits[0]
        save(model, OUT / variant)
        save_file({"tokens": tokens.int(), "logits": logits.float().contiguous()}, OUT / variant / "expected.safetensors")
        print(f"{variant}: logits {tuple(logits.shape)}, spread {logits.std():.3f}")


def compare(model, adapter, merged):
    tokens = torch.randint(3, 90, (2, 48), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        plain = load(model)(tokens).logits
        peft = PeftModel.from_pretrained(load(model), adapter)(tokens).logits
        ours = load(merged)(tokens).logits
    print(f"adapter changes logits by up to {(peft - plain).abs().max():.4g}; "
          f"merged differs from it by up to {(ours - peft).abs().max():.3g}")


if __name__ == "__main__":
    if len(sys.argv) == 4:
        compare(*sys.argv[1:])
    else:
        OUT.mkdir(exist_ok=True)
        run()
        join()
