#!/usr/bin/env python3
"""Makes tables that `caravan simulate --rows` reads, of tables of published measurements.

    tools/published_rows.py bench/published/articles.csv ../shared/data/published/*.csv
    -> bench/published/rows/articles.csv, rows.csv, silicon.csv

Tables say in words what was measured ("FSDP 32, TP 8", "local 16, global 512", "limited to 330 W"), or leave out what the script of a
benchmark says. What comes out has a number, a name or nothing in each column (src/sim/rows.c names them), and in `missing` why a row
cannot be simulated: what of it nobody printed.
"""
import csv
import math
import pathlib
import re
import sys

# ---- models ----
# dim, layers, heads, kv_heads, head_dim, ffn, vocab, gates, tied, norms: config.json of the models named, on the Hugging Face hub; GPT-3:
# arXiv 2005.14165, table 2.1; MPT: llm-foundry; GPT-like: MaxText's base.yml, grown by global_parameter_scale. The first whose letters and
# digits are in a row's is taken.
SHAPES = {
    "qwen3-32b": (5120, 64, 64, 8, 128, 25600, 151936, 3, 0, 2),
    "qwen3-8b": (4096, 36, 32, 8, 128, 12288, 151936, 3, 0, 2),
    "qwen3-14b": (5120, 40, 40, 8, 128, 17408, 151936, 3, 0, 2),
    "llama-3.1-8b": (4096, 32, 32, 8, 128, 14336, 128256, 3, 0, 0),
    "llama-3-8b": (4096, 32, 32, 8, 128, 14336, 128256, 3, 0, 0),
    "llama-3.1-70b": (8192, 80, 64, 8, 128, 28672, 128256, 3, 0, 0),
    "llama-3.3-70b": (8192, 80, 64, 8, 128, 28672, 128256, 3, 0, 0),
    "llama-3-70b": (8192, 80, 64, 8, 128, 28672, 128256, 3, 0, 0),
    "llama-3.1-405b": (16384, 126, 128, 8, 128, 53248, 128256, 3, 0, 0),
    "llama-2-7b": (4096, 32, 32, 32, 128, 11008, 32000, 3, 0, 0),
    "llama-2-13b": (5120, 40, 40, 40, 128, 13824, 32000, 3, 0, 0),
    "llama-2-70b": (8192, 80, 64, 8, 128, 28672, 32000, 3, 0, 0),
    "llama-7b": (4096, 32, 32, 32, 128, 11008, 32000, 3, 0, 0),
    "llama-70b": (8192, 80, 64, 8, 128, 28672, 32000, 3, 0, 0),
    "llama-65b": (8192, 80, 64, 64, 128, 22016, 32000, 3, 0, 0),
    "llama-33b": (6656, 60, 52, 52, 128, 17920, 32000, 3, 0, 0),
    "gpt3-175b": (12288, 96, 96, 96, 128, 49152, 51200, 2, 1, 0),
    "megatron-22b": (6144, 48, 64, 64, 96, 24576, 51200, 2, 1, 0),
    "turing-530b": (20480, 105, 128, 128, 160, 81920, 51200, 2, 1, 0),
    "gpt-like 16b": (4096, 32, 64, 64, 128, 28672, 32000, 3, 0, 0),
    "gpt-like 32b": (8192, 32, 64, 64, 128, 28672, 32000, 3, 0, 0),
    "gpt-like 64b": (8192, 64, 64, 64, 128, 28672, 32000, 3, 0, 0),
    "gpt-like 128b": (8192, 64, 128, 128, 128, 57344, 32000, 3, 0, 0),
    "gpt-like 256b": (16384, 64, 128, 128, 128, 57344, 32000, 3, 0, 0),
    "gpt-like 1024b": (16384, 128, 256, 256, 128, 114688, 32000, 3, 0, 0),
    "mpt-760m": (1536, 24, 12, 12, 128, 6144, 50368, 2, 1, 0),
    "mpt-1b": (2048, 24, 16, 16, 128, 8192, 50368, 2, 1, 0),
    "mpt-3b": (2560, 32, 20, 20, 128, 10240, 50368, 2, 1, 0),
    "mpt-7b": (4096, 32, 32, 32, 128, 16384, 50368, 2, 1, 0),
    "mpt-13b": (5120, 40, 40, 40, 128, 20480, 50368, 2, 1, 0),
    "mpt-30b": (7168, 48, 56, 56, 128, 28672, 50368, 2, 1, 0),
    "mpt-70b": (8192, 80, 64, 64, 128, 32768, 50368, 2, 1, 0),
}
SHAPE = ["dim", "layers", "heads", "kv_heads", "head_dim", "ffn", "vocab", "gates", "tied", "norms"]
DOCUMENT = ["id", "ask", "model", "on", "how", "chip", "precision", "missing", "engine", "stack", "layout", "optimizer", "group"]
NUMBERS = ["chips", "tp", "pp", "cp", "batch", "seq", "context", "input", "output", "speed", "bandwidth", "price",
           "sharded", "micro", "virtual_stages", "recompute", "recompute_attention", "cache_8bit", "spread", "budget", "memory_share", "wait", "prompts", "fused", "ahead", "requests"]
FIGURES = ["mfu_percent", "tokens_per_second_and_chip", "seconds", "milliseconds", "steps_per_second", "ttft_ms", "tpot_ms", "dollars_per_million"]
# What stands for nothing in a column.
DEFAULTS = {"tp": 1, "pp": 1, "cp": 1, "speed": 1, "sharded": 1, "virtual_stages": 1, "gates": 3, "micro": 0, "recompute": 0,
            "recompute_attention": 0, "cache_8bit": 0, "spread": 0, "tied": 0, "norms": 0, "precision": "bf16"}
COLUMNS = DOCUMENT + NUMBERS + SHAPE + FIGURES + ["within_percent", "why", "source"]


class Missing(Exception):
    """What of a row is not known."""


def plain(name):
    """Letters and digits alone, lower case, and no v before a number: "LLaMA v3.3 70B" is "llama3370b"."""
    return re.sub(r"[^a-z0-9]", "", re.sub(r"v(?=[0-9])", "", name).lower())


def shape(name):
    for known, numbers in SHAPES.items():
        if plain(known) in plain(name):
            return dict(zip(SHAPE, numbers))
    raise Missing(f'no shape of "{name}" is known')


def number(text, words, none):
    """The number behind the words, with commas among its digits. Before a word that is meant comes no letter."""
    found = re.search(r"(?<![A-Za-z])" + re.escape(words) + r"([0-9][0-9,]*)?", text)
    return float(found[1].replace(",", "")) if found and found[1] else none


def leading(text):
    found = re.match(r"\s*[0-9.]+", text)
    return float(found[0]) if found else 0.0


# ---- chips ----
# Less power is slower, as its cube root: power goes with the clock and the square of a voltage that goes with it.
CHIPS = [("v5p", "v5p", 0), ("v5e", "v5e", 0), ("v6e", "v6e", 0), ("v4", "v4", 0), ("TPU7x", "tpu7x", 0), ("GB200", "gb200", 1200),
         ("b200", "b200_sxm", 1000), ("B200", "b200_sxm", 1000), ("h200", "h200_sxm", 700), ("H200", "h200_sxm", 700),
         ("h100", "h100_sxm", 700), ("H100", "h100_sxm", 700), ("A100", "a100_sxm", 400), ("L40S", "l40s", 350),
         ("MI300X", "mi300x", 750)]
BLACKWELL = ("b200_sxm", "gb200")


def hardware(words):
    for word, chip, watts in CHIPS:
        if word in words and "half a chip" not in words:
            out = {"chip": chip}
            said = number(words, "limited to ", number(words, "TB/s ", 0.0))
            if 0 < said < watts:
                out["speed"] = math.cbrt(said / watts)
            rate = re.search(r"([0-9.]+)TB/s", words)
            if rate:
                out["bandwidth"] = 1e12 * float(rate[1])
            return out
    raise Missing(f'no chip here is "{words}"')


def precision(words):
    return ("int8" if "int8 x int8" in words else "weight8" if "8-bit" in words or "int8" in words else
            "fp4" if words.startswith("fp4") else "fp8" if words.startswith(("fp8", "FP8")) else "bf16")


# ---- training ----
# What MaxText's scripts say (github.com/AI-Hypercomputer/maxtext, src/maxtext/configs/tpu/v5e and v5p, <n>b.sh, and formerly
# MaxText/configs/v5p/gpt3_175b/v5p_1024.sh): rows on a chip, parts of a layer, what is computed again of a forward pass, and numbers of
# products. remat_policy minimal keeps products; qkv_proj_offloaded, queries, keys and values: 0.79 of its products' weights are others'.
MAXTEXT = [("16B (", "v5e", 6, 1, 1, "bf16"), ("32B (", "v5e", 4, 1, 1, "bf16"), ("64B (", "v5e", 2, 1, 1, "bf16"),
           ("128B (", "v5e", 1, 16, 0.79, "bf16"), ("32B (", "v5p", 6, 4, 0, "bf16"), ("64B (", "v5p", 3, 4, 0, "bf16"),
           ("128B (", "v5p", 1, 8, 0, "bf16"), ("256B (", "v5p", 1, 8, 0, "bf16"), ("512B (", "v5p", 2, 8, 1, "bf16"),
           ("1024B (", "v5p", 2, 16, 1, "bf16"), ("175B-M", "v5p", 4, 8, 1, "int8")]
# Whose program it is: a word of the source or of how it was split, and a row of src/sim/stacks.def. The first that fits.
STACKS = [("llm-foundry", "composer"), ("AsyncTP", "torchtitan-asynctp"), ("torchtitan", "torchtitan"), ("Megatron-Bridge", "megatron-bridge"),
          ("calculon", "megatron"), ("FSDP wrapper", "pytorch-xla-fsdp"), ("PyTorch/XLA", "pytorch-xla")]


def training(row, out):
    how, batch, notes, model = row["parallelism"], row["batch"], row["notes"], row["model"]
    dgx = row["hardware"].startswith("DGX")
    chips = float(row["chips"]) if row["chips"] else math.nan
    out["precision"] = precision(row["precision"])
    out["tp"] = number(how, "TP ", number(how, "tensor_parallelism ", 1.0))
    out["pp"] = number(how, "PP ", 1.0)
    out["cp"] = number(how, "CP ", 1.0)
    sharded = not any(w in how for w in ("FSDP 0", "DP 1", "PP "))
    out["sharded"] = sharded or ("FSDP " in how and number(how, "FSDP ", 2.0) > 0)
    out["virtual_stages"] = number(how, "VP ", number(how, "interleave ", 1.0))
    seq = float(row["seq"]) if re.fullmatch(r"[0-9.]+", row["seq"]) else 0.0
    if not seq > 0:  # the scripts of the tables that do not say it
        seq = 2048.0 if "GPT" in model else 8192.0
    out["chips"], out["seq"] = chips, seq
    dp = chips / (out["tp"] * out["pp"] * out["cp"])
    tokens = number(notes, "tokens per step ", 0.0)
    rows = number(batch, "global ", 0.0)
    if rows <= 0:
        rows = dp * number(batch, "local ", 0.0) + chips * number(batch, "per device ", 0.0)
    if rows <= 0:
        rows = tokens / seq if tokens > 0 else leading(batch)
    out["micro"] = number(batch, "micro ", 1.0 if out["pp"] > 1 else 0.0)
    keeps = "ckpointing False" in notes or dgx
    again = 0 if keeps else 0.5 if "selective AC" in notes else 0 if "seqsel" in notes else 1
    attention_again = 1 if "seqsel" in notes else int(again >= 1)
    out["stack"] = next((stack for word, stack in STACKS if word in row["source"] + how), "")
    if out["stack"].startswith("pytorch-xla"):  # whose programs are ones of Caravan: timed as the compiler makes them
        out.update(layout="fsdp" if "FSDP wrapper" in how else "2d", optimizer="adafactor")
    known = False
    for words, chip, own, tp, computed, kind in MAXTEXT:
        if "MaxText" in model and re.search(r"(?<![A-Za-z])" + re.escape(words), model) and chip == out["chip"]:
            known = True
            out.update(tp=tp, precision=kind)
            rows, again, attention_again = chips * own, computed, int(computed > 0)
    if not known and "(MaxText)" in model:
        raise Missing(f'how "{model}" was run is not known')
    out.update(batch=rows, recompute=again, recompute_attention=attention_again)
    metric = row["metric"]
    if metric == "MFU":
        return "mfu_percent"  # attention counted whole, as these tables do
    if metric == "throughput":
        return "tokens_per_second_and_chip"
    if "step time" in metric or "iteration time" in metric:
        return "seconds"
    raise Missing(f'"{metric}" is not simulated')


# ---- serving ----


def protocol(out, versioned):
    """How such rows were measured, where scripts say it: what differs from an engine's own defaults.

    Rows without a backend's version are InferenceMAX's (github.com/InferenceMAX/InferenceMAX, benchmarks/, October 2025): ten requests for
    each in flight, lengths drawn from [0.8, 1] of those named (random-range-ratio), with TensorRT-LLM max_num_tokens 16384, an fp8 cache
    and, for 1024 and 1024 tokens on fewer than 8 GPUs, a wait of 20 steps; with vLLM --async-scheduling, and on Blackwell an fp8 cache and
    norms fused with sums.

    The others are AIConfigurator's evaluation (github.com/ai-dynamo/aiconfigurator, v0.2.0 to v0.7.0). Its client
    (eval/benchmarks/genai_perf_runner.py) sends ten requests for each in flight, of exactly the lengths named (standard deviations of 0);
    the engines that it sets up take as many tokens in a step as are in flight, and a prompt, and 1500 (cli/backends/trtllm.py;
    rule_plugin/vllm.rule), TensorRT-LLM 0.8 of what is left of memory (extra_engine_args.*.yaml.j2). A checkpoint that NVIDIA quantized
    has an fp8 cache in TensorRT-LLM (hf_quant_config.json: kv_cache_quant_algo FP8). From 2026 on the client is aiperf with as many
    different prompts as it has when nobody says, 100 (its template bench_run), which caches find again: taken to be so where lengths are
    whole thousands. Of SGLang's rows no client is known: exact lengths, and its engine's defaults.
    """
    trtllm, blackwell = out["engine"] == "trtllm", out["chip"] in BLACKWELL
    thousands = out["input"] % 1000 == 0
    narrow = 0
    if not versioned and trtllm:
        out.update(spread=0.2, budget=16384)
        narrow = 1
        if out["input"] == 1024 and out["output"] == 1024 and out["tp"] < 8:
            out["wait"] = 20
    elif not versioned:
        out.update(spread=0.2, ahead=1)
        narrow = blackwell
        if blackwell:
            out["fused"] = 2
    elif out["engine"] != "sglang":
        out["budget"] = out["batch"] + out["input"] + 1500
        narrow = trtllm and out["precision"] != "bf16"
        if trtllm:
            out["memory_share"] = 0.8
        if thousands:
            out["prompts"] = 100
    out["cache_8bit"] = narrow


def worded_serving(row, out):
    how, batch, seq, kind, unit = row["parallelism"], row["batch"], row["seq"], row["kind"], row["unit"]
    trtllm = "trtllm" in how or "TensorRT" in row["source"] or "NIM" in row["model"]
    out["engine"] = "trtllm" if trtllm else "vllm"
    out["precision"] = precision(row["precision"])
    out["cache_8bit"] = "KV)" in row["precision"]
    out["tp"] = number(how, "TP ", 1.0)
    out["input"] = max(1, number(seq, "in ", number(seq, "context ", number(seq, "in/out ", 1.0))))
    parts = seq.split("/")
    parts = parts[1:] if seq.startswith("in/out") else parts
    out["output"] = max(1, number(seq, "out ", leading(parts[1]) if len(parts) > 1 else 2.0))
    out["batch"] = number(batch, "batch ", number(batch, "concurrency ", leading(batch)))
    if kind == "prefill":
        if not seq:
            raise Missing("how long its prompts were is not printed")
        return UNITS[unit]
    if kind == "decode":
        # Without a context: a short prompt, and some 200 tokens after it.
        out["context"] = out["input"] if "context " in seq else 100
        out["price"] = number(row["notes"], "price ", 0.0) / 100 or ""  # cents
        return UNITS.get(unit, "steps_per_second")
    if kind == "generate":
        return "tokens_per_second_and_chip"
    if kind == "serve-max" and "concurrency" not in batch:
        out.update(batch=2048, requests=3 * 2048, cache_8bit=out["precision"] != "bf16")
        return "tokens_per_second_and_chip"
    if kind == "serve" and unit == "ms":
        engine = "trtllm " if trtllm else "vllm "
        at = how.find(engine)
        protocol(out, at < 0 or how[at + len(engine):][:1].isdigit())
        return "tpot_ms"
    raise Missing(f'"{row["metric"]}" of "{kind}" is not simulated')


UNITS = {"$/Mtoken": "dollars_per_million", "tokens/s/chip": "tokens_per_second_and_chip",
         "%": "mfu_percent", "s": "seconds", "ms": "milliseconds", "steps/s": "steps_per_second", "tokens/s/GPU": "tokens_per_second_and_chip"}


def worded(row):
    """A row of a table that says in words what was measured, one figure in each."""
    kind = row["kind"]
    out = {"id": row["id"], "ask": kind, "model": row["model"], "on": row["hardware"], "why": row.get("why", ""), "source": row["source"],
           "within_percent": row.get("within_percent", "")}
    said = [row["chips"] and row["chips"] + " chips", row["parallelism"], row["batch"] and "batch " + row["batch"],
            row["seq"] and row["seq"] + " tokens", row["precision"]]
    out["how"] = ", ".join(s for s in said if s)
    out["value"] = row["value"]
    figure = None
    if kind.startswith("micro"):
        return None  # a single operation is no model
    try:
        if not kind.startswith("cpu"):
            out["ask"] = "serve" if kind == "serve-max" else kind
            out["group"] = kind if kind == "serve-max" else ""
        else:
            out["ask"] = kind[4:]
        out.update(hardware(row["hardware"]))
        out.update(shape(row["model"]))
        figure = training(row, out) if kind == "train" else worded_serving(row, out)
    except Missing as missing:
        figure = UNITS.get(row["unit"])
        out = {k: out.get(k, "") for k in DOCUMENT + ["why", "source", "value"]} | {"missing": str(missing)}
    if figure:
        out[figure] = out.pop("value")
    return out


PRECISIONS = {"": "bf16", "bf16": "bf16", "fp16": "bf16", "bfloat16": "bf16", "fp8": "fp8", "int8": "int8", "fp4": "fp4", "nvfp4": "fp4"}


def silicon(row):
    """A row of AIConfigurator's table of serving: `batch` requests are in flight on one replica of tp x pp chips."""
    out = {"id": row["id"], "ask": "serve", "model": row["model"], "on": row["system"], "chip": row["system"], "engine": row["backend"],
           "batch": float(row["batch"]), "input": float(row["isl"]), "output": float(row["osl"]),
           "tp": float(row["tp"] or 1), "pp": float(row["pp"] or 1), "ttft_ms": row["ttft_ms"], "tpot_ms": row["tpot_ms"]}
    # Of deployments, which have a version and a date, the batch is not what their clients had in flight (silicon_sample.csv: 416 for 13,
    # 288 for 144, 2 for 1), and nobody says how many replicas shared those.
    out["group"] = "" if row["backend_version"] and row["measured"] else "clients known"
    out["how"] = f'{row["backend"]} {row["backend_version"]}'.strip() + \
        f', {row["precision"] or "bf16"}, TP {row["tp"]}, {row["batch"]} at a time, {row["isl"]} + {row["osl"]} tokens'
    try:
        out["precision"] = "fp8_block" if row["gemm_quant"] == "fp8_block" else PRECISIONS[row["precision"]]
        out.update(shape(row["model"]))
        protocol(out, bool(row["backend_version"]))
    except Missing as missing:
        out["missing"] = str(missing)
    return out


def text(value):
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, (int, float)):
        return "" if isinstance(value, float) and math.isnan(value) else str(int(value)) if value == int(value) else repr(value)
    return value


def main(paths):
    folder = pathlib.Path(__file__).parent.parent / "bench/published/rows"
    folder.mkdir(parents=True, exist_ok=True)
    for path in map(pathlib.Path, paths):
        with open(path, newline="", encoding="utf-8") as file:
            table = list(csv.DictReader(file))
        rows = [worded(row) if "metric" in row else silicon(row) for row in table]
        rows = [{k: text(v) for k, v in row.items() if k not in DEFAULTS or v != DEFAULTS[k]} for row in rows if row]
        used = [c for c in COLUMNS if any(row.get(c) for row in rows)]
        with open(folder / path.name, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, used, extrasaction="raise", restval="", lineterminator="\n")
            writer.writeheader()
            writer.writerows({c: row.get(c, "") for c in used} for row in rows)
        print(f"{path.name}: {len(rows)} of {len(table)} rows, {sum('missing' in r for r in rows)} with something missing")


main(sys.argv[1:])
