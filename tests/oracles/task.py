#!/usr/bin/env python3
"""Multiple choice by lm-evaluation-harness: tests/data/task/expected.json from questions.jsonl beside it.

The model is `caravan init --preset stories260k --seed 3 --dtype f32` with tests/data/chat/tokenizer.json ($CARAVAN names the
program). Needs lm-eval (0.4), torch and transformers. The harness puts a space between context and choice (its
target_delimiter) where Caravan does: where neither has white space there. The begin of text, id 1, is put in front here,
because this tokenizer's file does not say that it comes first.

    {"questions": [{"logprobs": […], "choice"}], "acc", "acc_stderr", "acc_norm", …}
"""
import json
import os
import pathlib
import subprocess
import tempfile

from lm_eval.api.instance import Instance
from lm_eval.api.metrics import mean_stderr
from lm_eval.models.huggingface import HFLM
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

DATA = pathlib.Path(__file__).resolve().parent.parent / "data"
BOS = "<|begin_of_text|>"


def main():
    questions = [json.loads(line) for line in (DATA / "task" / "questions.jsonl").read_text().splitlines()]
    with tempfile.TemporaryDirectory() as scratch:
        folder = scratch + "/model"
        subprocess.run([os.environ["CARAVAN"], "init", "--preset", "stories260k", "--seed", "3", "--dtype", "f32",
                        "--tokenizer", str(DATA / "chat" / "tokenizer.json"), "--out", folder], check=True)
        tokenizer = PreTrainedTokenizerFast(tokenizer_file=folder + "/tokenizer.json")
        tokenizer.bos_token = tokenizer.eos_token = BOS  # the harness wants both named
        model = HFLM(pretrained=AutoModelForCausalLM.from_pretrained(folder, dtype="float32"), tokenizer=tokenizer,
                     device="cpu", batch_size=1)
        model.tok_encode = lambda text, *_, **__: [1] + tokenizer.encode(text)
        found, right = [], {"acc": [], "acc_norm": [], "acc_bytes": []}
        for q in questions:
            context, choices = q["context"], q["choices"]
            answer = choices.index(q["answer"]) if isinstance(q["answer"], str) else q["answer"]
            gap = ["" if context[-1].isspace() or c[0].isspace() else " " for c in choices]
            requests = [Instance("loglikelihood", q, (context, gap[i] + c), i) for i, c in enumerate(choices)]
            values = [value for value, _ in model.loglikelihood(requests, disable_tqdm=True)]
            lengths = {"acc": [1] * len(choices), "acc_norm": [len(c) for c in choices],
                       "acc_bytes": [len(c.encode()) for c in choices]}
            for name, length in lengths.items():
                worth = [v / n for v, n in zip(values, length)]
                right[name].append(float(worth.index(max(worth)) == answer))
            found.append({"logprobs": values, "choice": values.index(max(values))})
    out = {"questions": found}
    for name, list_ in right.items():
        out[name] = sum(list_) / len(list_)
        out[name + "_stderr"] = mean_stderr(list_)
    (DATA / "task" / "expected.json").write_text(json.dumps(out) + "\n")
    print({k: v for k, v in out.items() if k != "questions"})


if __name__ == "__main__":
    main()
