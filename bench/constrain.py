#!/usr/bin/env python3
"""Masks of Caravan beside those of llguidance and xgrammar (PyPI), over the same schemas, texts and tokens, on one thread.

    bench/constrain.py CARAVAN TOKENIZER_JSON [--schemas 20] [--keywords 2000] [--only suite,kubernetes] [--engines …]

Two sets: JSON-Schema-Test-Suite (tests/data/json-schema), and schemas as those of Kubernetes are, made here: objects that refer to
each other by $ref, with descriptions, maps, enums, patterns, bounds and formats, some thousand keywords each, with texts that
are valid. A text is taken token by token, each asked of the mask before it. "first" counts from the schema's text to its first
mask, with whatever an engine compiles. Times are those of the thread on a processor. An engine that ends, or takes more than 20 s
on a case, has refused it.

xgrammar wants torch and transformers, of which nothing here is used; where they are not, modules of their names will do.
"""
import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import types

LIMIT = 20
WORDS = ("api cluster container control cpu disk endpoint event group host image ingress key label limit log memory metric mode "
         "mount name namespace network node object owner path period phase pod policy port probe profile protocol quota ratio "
         "replica request resource retry role rule scope secret selector service set size source spec state status storage "
         "strategy target template threshold time timeout token tolerance topology type update user value version volume "
         "weight window zone").split()


class Kubernetes:
    """One schema of so many keywords, and texts of it."""

    def __init__(self, seed, keywords):
        self.r = random.Random(seed)
        self.defs, self.count = {}, 0
        while self.count < keywords:
            self.add()
        last = list(self.defs)
        self.schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$defs": self.defs,
                       "$ref": "#/$defs/" + last[-1]}

    def words(self, n):
        return [self.r.choice(WORDS) for _ in range(n)]

    def scalar(self):
        r = self.r
        kind = r.randrange(12)
        if kind < 4:
            return {"type": "string"}
        if kind < 6:
            return {"type": "string", "enum": sorted({w.capitalize() for w in self.words(r.randrange(2, 7))})}
        if kind == 6:
            return {"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", "maxLength": 63}
        if kind == 7:
            return {"type": "string", "format": "date-time"}
        if kind == 8:
            return {"type": "boolean"}
        if kind == 9:
            return {"anyOf": [{"type": "integer"}, {"type": "string"}]}
        if kind == 10:
            return {"type": "integer", "format": "int32"}
        return {"type": "integer", "minimum": r.choice([0, 1]), "maximum": r.choice([100, 3600, 65535])}

    def property(self):
        r = self.r
        kind = r.randrange(10)
        names = list(self.defs)[-12:]
        if kind < 3 and names:
            s = {"$ref": "#/$defs/" + r.choice(names)}
        elif kind == 3:
            s = {"type": "array", "items": {"$ref": "#/$defs/" + r.choice(names)} if names else {"type": "string"}}
        elif kind == 4:
            s = {"type": "object", "additionalProperties": {"type": "string"}}
        elif kind == 5:
            s = {"type": "array", "items": {"type": "string"}}
        else:
            s = self.scalar()
        return {"description": " ".join(self.words(9)).capitalize() + ".", **s}

    def add(self):
        r = self.r
        words = self.words(3)
        name = "io.k8s.api.v1." + "".join(w.capitalize() for w in words) + str(len(self.defs))
        properties = {}
        for _ in range(r.randrange(3, 16)):
            w = self.words(r.randrange(1, 4))
            properties[w[0] + "".join(x.capitalize() for x in w[1:])] = self.property()
        required = [p for p in properties if r.random() < 0.2]
        s = {"description": " ".join(self.words(20)).capitalize() + ".", "type": "object", "properties": properties}
        if required:
            s["required"] = required
        if r.random() < 0.3:
            s["additionalProperties"] = False
        self.defs[name] = s
        self.count += self.keywords(s)

    def keywords(self, s):
        return sum(1 + (sum(map(self.keywords, v.values())) if k == "properties" else
                        self.keywords(v) if isinstance(v, dict) else sum(map(self.keywords, v)) if k == "anyOf" else 0)
                   for k, v in s.items())

    def value(self, s, depth):
        r = self.r
        if "$ref" in s:
            return self.value(self.defs[s["$ref"].rsplit("/", 1)[1]], depth)
        if "anyOf" in s:
            return self.value(r.choice(s["anyOf"]), depth)
        if "enum" in s:
            return r.choice(s["enum"])
        kind = s["type"]
        if kind == "boolean":
            return r.random() < 0.5
        if kind == "integer":
            return r.randint(s.get("minimum", -9), s.get("maximum", 1 << 20))
        if kind == "array":
            return [self.value(s["items"], depth - 1) for _ in range(r.randrange(1, 4) if depth > 0 else 0)]
        if kind == "object" and "properties" not in s:
            return {"-".join(self.words(2)): " ".join(self.words(3)) for _ in range(r.randrange(3))}
        if kind == "object":
            return {k: self.value(v, depth - 1) for k, v in s["properties"].items()
                    if k in s.get("required", []) or (depth > 0 and r.random() < 0.5)}
        if "pattern" in s:
            return "-".join(self.words(2)) + str(r.randrange(10))
        if "format" in s:
            return f"20{r.randrange(10, 40)}-{r.randrange(1, 13):02}-{r.randrange(1, 29):02}T12:30:{r.randrange(60):02}Z"
        return " ".join(self.words(r.randrange(1, 12)))

    def texts(self, n):
        made = (json.dumps(self.value(self.schema, 4), indent=r) for r in [None] * (n - 1) + [2])
        return [{"text": t, "valid": True} for t in made]


def cases_of(which, args):
    if which == "suite":
        path = os.path.join(os.path.dirname(__file__), "../tests/data/json-schema/suite.jsonl")
        cases = [json.loads(line) for line in open(path)]
        return [{**case, "draft": draft} for case in cases for draft in case["drafts"]]
    made = [Kubernetes(i, args.keywords) for i in range(args.schemas)]
    return [{"id": f"kubernetes#{i}", "draft": "2020-12", "format": "assert", "schema": k.schema, "tests": k.texts(4)}
            for i, k in enumerate(made)]


def now():
    return time.thread_time_ns() / 1e3


class Llguidance:
    def __init__(self, path):
        import llguidance
        import llguidance.numpy
        self.of = llguidance
        self.tokenizer = llguidance.LLTokenizer(path)
        self.n = self.tokenizer.vocab_size
        self.bits = llguidance.numpy.allocate_token_bitmask(1, self.n)
        self.fill = llguidance.numpy.fill_next_token_bitmask

    def compile(self, schema):
        return self.of.LLMatcher.grammar_from_json_schema(schema, overrides={"whitespace_flexible": True})

    def begin(self, grammar):
        m = self.of.LLMatcher(self.tokenizer, grammar)
        if m.is_error():
            raise ValueError(m.get_error())
        return m

    def mask(self, m):
        self.fill(m, self.bits)
        if m.is_error():
            raise ValueError(m.get_error())

    def take(self, m, token):
        return m.consume_token(token)

    def whole(self, m):
        return m.is_accepting()


class Xgrammar:
    def __init__(self, path):
        import numpy
        try:
            import torch  # noqa: F401
        except ImportError:
            torch = types.ModuleType("torch")
            torch.int32, torch.tensor, torch.__getattr__ = numpy.int32, lambda v, dtype: v, lambda name: numpy.ndarray
        import llguidance
        import tvm_ffi  # noqa: F401, before the module is there, which it would look into
        sys.modules.setdefault("torch", torch)
        try:
            import transformers  # noqa: F401
        except ImportError:
            sys.modules["transformers"] = other = types.ModuleType("transformers")
            other.PreTrainedTokenizerBase = other.PreTrainedTokenizerFast = other.LogitsProcessor = type("Nothing", (), {})
        import xgrammar
        tokenizer = llguidance.LLTokenizer(path)
        self.n, self.of = tokenizer.vocab_size, xgrammar
        special = [tokenizer.is_special_token(i) for i in range(self.n)]
        self.end = [tokenizer.eos_token]
        words = [b"" if special[i] else tokenizer.decode_bytes([i]) for i in range(self.n)]
        info = xgrammar.TokenizerInfo(words, stop_token_ids=self.end)
        self.compiler = xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)
        self.bits = numpy.full((1, (self.n + 31) // 32), -1, dtype=numpy.int32)

    def compile(self, schema):
        return self.compiler.compile_json_schema(schema, any_whitespace=True, strict_mode=False)

    def begin(self, grammar):
        return self.of.GrammarMatcher(grammar, terminate_without_stop_token=False)

    def mask(self, m):
        if not m.fill_next_token_bitmask(self.bits):
            self.bits[:] = -1

    def take(self, m, token):
        return m.accept_token(token)

    def whole(self, m):
        self.mask(m)
        return bool(self.bits[0][self.end[0] // 32] >> (self.end[0] % 32) & 1)


def worker(name, path):
    """Answers cases from the standard input, a line each, as `caravan constrain --cases` does."""
    import llguidance
    engine = {"llguidance": Llguidance, "xgrammar": Xgrammar}[name](path)
    tokens = llguidance.LLTokenizer(path).tokenize_str
    for line in sys.stdin:
        case = json.loads(line)
        signal.alarm(LIMIT)
        times, results, first, refused = [], [], None, None
        schema = json.dumps(case["schema"])
        try:
            begin = now()
            grammar = engine.compile(schema)
            engine.mask(engine.begin(grammar))
            first = now() - begin
            for test in case["tests"]:
                m, good = engine.begin(grammar), True
                for token in tokens(test["text"]):
                    begin = now()
                    engine.mask(m)
                    times.append(now() - begin)
                    good = bool(engine.bits[0][token // 32] >> (token % 32) & 1) and engine.take(m, token)
                    if not good:
                        break
                results.append(bool(good and engine.whole(m)))
        except Exception as e:  # whatever they throw is a refusal
            refused, results = str(e) or type(e).__name__, []
        signal.alarm(0)
        print(json.dumps({"id": case["id"], "refused": refused, "results": results, "first_mask_us": first,
                          "mask_us": {"each": times}}), flush=True)


def run_peer(name, cases, path):
    answers = []
    while len(answers) < len(cases):
        p = subprocess.Popen([sys.executable, __file__, "--worker", name, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                             stderr=subprocess.DEVNULL, text=True)
        while len(answers) < len(cases):
            try:
                p.stdin.write(json.dumps(cases[len(answers)]) + "\n")
                p.stdin.flush()
            except BrokenPipeError:
                pass
            line = p.stdout.readline()
            if not line:
                answers.append({"crashed": True})
                break
            answers.append(json.loads(line))
        p.kill()
        p.wait()
    return answers


def run_caravan(caravan, cases, path):
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        file.writelines(json.dumps(c) + "\n" for c in cases)
        file.flush()
        out = subprocess.run([caravan, "constrain", "--cases", file.name, "--tokenizer", path, "--json"],
                             capture_output=True, text=True)
    if out.returncode:
        sys.exit(out.stderr)
    return [json.loads(line) for line in out.stdout.splitlines()]


def at(values, part):
    return sorted(values)[min(len(values) - 1, int(len(values) * part))] if values else float("nan")


def row(which, name, cases, answers):
    crashed = sum("crashed" in a for a in answers)
    refused = sum(bool(a.get("refused")) for a in answers)
    wrong = rejected = tests = 0
    masks, first = [], []
    for case, answer in zip(cases, answers, strict=True):
        if "crashed" in answer or answer["refused"]:
            continue
        for test, got in zip(case["tests"], answer["results"]):
            tests += 1
            wrong += got and not test["valid"]
            rejected += test["valid"] and not got
        first.append(answer["first_mask_us"])
        masks += (answer["mask_us"] or {}).get("each", [])
    print(f"| {which} | {name} | {len(cases)} | {refused + crashed} | {wrong} | {rejected} | {at(first, .5):.0f} | {at(first, .99):.0f} "
          f"| {max(first, default=0):.0f} | {sum(masks) / max(1, len(masks)):.1f} | {at(masks, .5):.1f} | {at(masks, .99):.1f} "
          f"| {max(masks, default=0):.0f} |", flush=True)


def main():
    if sys.argv[1] == "--worker":
        return worker(*sys.argv[2:])
    parser = argparse.ArgumentParser()
    parser.add_argument("caravan")
    parser.add_argument("tokenizer")
    parser.add_argument("--schemas", type=int, default=20)
    parser.add_argument("--keywords", type=int, default=2000)
    parser.add_argument("--only", default="suite,kubernetes")
    parser.add_argument("--engines", default="caravan,llguidance,xgrammar")
    parser.add_argument("--out", help="answers are written there, a line each")
    args = parser.parse_args()
    print("microseconds\n")
    print("| schemas | engine | cases | refused | accepts what is invalid | refuses what is valid | first p50 | p99 | most | mask mean "
          "| p50 | p99 | most |\n|" + " --- |" * 2 + " ---: |" * 11)
    for which in args.only.split(","):
        cases = cases_of(which, args)
        for name in args.engines.split(","):
            answers = run_caravan(args.caravan, cases, args.tokenizer) if name == "caravan" else \
                run_peer(name, cases, args.tokenizer)
            row(which, name, cases, answers)
            if args.out:
                with open(f"{args.out}.{which}.{name}", "w") as f:
                    f.writelines(json.dumps(a) + "\n" for a in answers)


main()
