#!/usr/bin/env python3
"""Asks lm-evaluation-harness for the same figures of a model in two ways, of which both must give the same: through the class of
the Python package (caravan.lm_eval) and through the server (local-completions). Three tasks of the harness's three kinds of
requests are made of a text: choosing the true next words among others (loglikelihood), the perplexity of passages
(loglikelihood_rolling) and going on (generate_until).

    lm_eval_equal.py CARAVAN MODEL TEXT [DOCUMENTS]

needs the wheel, lm-eval[api], transformers and sentencepiece; no network. Prints a table of figures; exit status 1 where two differ.
"""
import json
import os
import random
import re
import subprocess
import sys
import tempfile
from pathlib import Path

os.environ.update(HF_DATASETS_OFFLINE="1", HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")
import lm_eval
from lm_eval.tasks import TaskManager

from caravan.lm_eval import CaravanLM

COMMON = """task: {name}
dataset_path: json
dataset_kwargs:
  data_files:
    test: {data}
test_split: test
output_type: {kind}
"""
TASKS = {
    "next_words": ("multiple_choice", """doc_to_text: "{{before}}"
doc_to_choice: "{{choices}}"
doc_to_target: "{{answer}}"
target_delimiter: " "
metric_list:
  - metric: acc
  - metric: acc_norm
"""),
    "passages": ("loglikelihood_rolling", """doc_to_text: ""
doc_to_target: "{{before}} {{after}}"
metric_list:
  - metric: word_perplexity
  - metric: byte_perplexity
  - metric: bits_per_byte
"""),
    "going_on": ("generate_until", """doc_to_text: "{{before}}"
doc_to_target: "{{after}}"
generation_kwargs:
  until: ["."]
  max_gen_toks: 24
  do_sample: false
metric_list:
  - metric: exact_match
  - metric: chrf
"""),
}


def write_tasks(folder: Path, text: str, n: int) -> None:
    draw = random.Random(1)
    words = re.sub(r"<[^>]*>", " ", text).split()
    documents = []
    for _ in range(n):
        at = draw.randrange(len(words) - 60)
        others = [draw.randrange(len(words) - 4) for _ in range(3)]
        choices = [" ".join(words[i:i + 4]) for i in [at + 40, *others]]
        order = draw.sample(range(4), 4)
        documents.append({"before": " ".join(words[at:at + 40]), "after": " ".join(words[at + 40:at + 52]),
                          "choices": [choices[i] for i in order], "answer": order.index(0)})
    data = folder / "documents.jsonl"
    data.write_text("".join(json.dumps(d) + "\n" for d in documents))
    for name, (kind, rest) in TASKS.items():
        (folder / f"{name}.yaml").write_text(COMMON.format(name=name, data=data, kind=kind) + rest)


def figures(model, arguments, manager) -> tuple[dict, dict]:
    found = lm_eval.simple_evaluate(model=model, model_args=arguments, tasks=list(TASKS), task_manager=manager,
                                    bootstrap_iters=0, log_samples=True)
    table = {f"{task} {key.split(',')[0]}": value for task, values in sorted(found["results"].items())
             for key, value in sorted(values.items()) if isinstance(value, float)}
    samples = {task: [[float(r[0]) if isinstance(r, (list, tuple)) else r for r in s["filtered_resps"]] for s in sorted(list_, key=lambda s: s["doc_id"])]
               for task, list_ in found["samples"].items()}
    return table, samples


def with_tokenizer_config(model: str, folder: Path) -> str:
    """A model folder from whose tokenizer.model transformers makes the right class: it guesses another without a config."""
    if not Path(model, "tokenizer.model").exists() or Path(model, "tokenizer_config.json").exists():
        return model
    copy = folder / "model"
    copy.mkdir()
    for file in Path(model).resolve().iterdir():
        (copy / file.name).symlink_to(file)
    (copy / "tokenizer_config.json").write_text(json.dumps({
        "tokenizer_class": "LlamaTokenizer", "bos_token": "<s>", "eos_token": "</s>", "add_bos_token": True}))
    return str(copy)


def serve(program: str, model: str, folder: Path) -> tuple[subprocess.Popen, str]:
    server = subprocess.Popen([program, "serve", "-m", f"m={model}", "--port", "0", "--dtype", "f32"],
                              stdout=subprocess.PIPE, stderr=(folder / "log").open("w"), text=True)
    line = server.stdout.readline()
    if "listening at" not in line:
        sys.exit(f"caravan serve: {(folder / 'log').read_text()}")
    return server, line.split()[-1]


def main() -> None:
    program, model, text = sys.argv[1:4]
    n = int(sys.argv[4]) if len(sys.argv) > 4 else 40
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = with_tokenizer_config(model, folder)
        write_tasks(folder, Path(text).read_text(), n)
        manager = TaskManager(include_path=str(folder), include_defaults=False)
        lm = CaravanLM(model, dtype="f32", add_bos_token=False)
        # The server generates one token behind what it scores, and the harness leaves one place more.
        lm.max_length = lm.llm.context - 1
        server, url = serve(program, model, folder)
        try:
            by_class, samples = figures(lm, None, manager)
            by_server, others = figures("local-completions", {
                "model": "m", "tokenizer": model, "base_url": f"{url}/v1/completions", "max_length": lm.llm.context, "tokenizer_backend": "huggingface"}, manager)
        finally:
            server.terminate()
            server.wait()
    for key in by_class:
        same = by_class[key] == by_server.get(key)
        print(f"{key:30} {by_class[key]:<22.17g} {by_server.get(key):<22.17g} {'equal' if same else 'DIFFERENT'}")
    answers = sum(a == b for task in samples for a, b in zip(samples[task], others[task]))
    print(f"{answers} of {sum(map(len, samples.values()))} answers are equal")
    sys.exit(by_class != by_server)


if __name__ == "__main__":
    main()
