#!/usr/bin/env python3
"""Holds constraints to the validator `jsonschema` (PyPI), with random schemas.

    tools/constrain_oracle.py CARAVAN texts --model FOLDER [--schemas 400] [--samples 25]
        a model says what it likes at temperature 1.5: all that comes to an end parses and is valid
    tools/constrain_oracle.py CARAVAN cases [--schemas 2000] [--samples 50]
        values at random, and mutated: the acceptor and the validator agree on each
    tools/constrain_oracle.py CARAVAN instances [--schemas 400] [--samples 25] [--tokenizer FILE]
        values by hypothesis-jsonschema (PyPI), with their mutations beside them
"""

import argparse
import copy
import json
import random
import re
import subprocess
import sys
import tempfile
from decimal import Decimal, getcontext

from jsonschema import Draft202012Validator, FormatChecker

NAMES = ["a", "b", "ab", "long name", "é", ""]
WORDS = ["", "a", "ab", "abc", "x1", "2024-02-29", "2023-02-29", "10.0.0.1", "é\n\"\\", "aaaaaaaa"]
PATTERNS = ["^a", "b$", "^[a-z]{1,3}$", "a|1", "^(ab|x[0-9])*$", "[^a]"]
FORMATS = ["ipv4", "uuid"]  # of dates, Python has none in the year 0
CHECKER = FormatChecker(FORMATS)
getcontext().prec = 4000


def number(r):
    return r.choice([0, 1, -1, 2, 3, 7, 10, 100, 2.5, -0.5, 12, 99])


def value(r, depth):
    kind = r.randrange(8 if depth else 5)
    if kind == 0:
        return r.choice([None, True, False])
    if kind <= 2:
        return number(r)
    if kind <= 4:
        return r.choice(WORDS)
    if kind == 5:
        return [value(r, depth - 1) for _ in range(r.randrange(4))]
    return {r.choice(NAMES): value(r, depth - 1) for _ in range(r.randrange(4))}


def keywords_of_numbers(r, s):
    if r.random() < 0.5:
        s[r.choice(["minimum", "exclusiveMinimum"])] = r.choice([-3, 0, 1, 2.5])
    if r.random() < 0.5:
        s[r.choice(["maximum", "exclusiveMaximum"])] = r.choice([3, 7, 10, 99.5, 1000])
    if r.random() < 0.3:
        s["multipleOf"] = r.choice([1, 2, 3, 5])


def keywords_of_strings(r, s):
    if r.random() < 0.4:
        s["minLength"] = r.randrange(3)
    if r.random() < 0.5:
        s["maxLength"] = r.randrange(2, 9)
    if r.random() < 0.3:
        s["pattern"] = r.choice(PATTERNS)
    elif r.random() < 0.2:
        s["format"] = r.choice(FORMATS)


def keywords_of_arrays(r, s, depth):
    if r.random() < 0.7:
        s["items"] = schema(r, depth - 1)
    if r.random() < 0.3:
        s["prefixItems"] = [schema(r, depth - 1) for _ in range(r.randrange(1, 3))]
    if r.random() < 0.3:
        s["minItems"] = r.randrange(3)
    if r.random() < 0.7:
        s["maxItems"] = r.randrange(2, 5)
    if r.random() < 0.2:
        s["contains"] = schema(r, depth - 1)
    if r.random() < 0.1:
        s["uniqueItems"] = True


def keywords_of_objects(r, s, depth):
    names = r.sample(NAMES, r.randrange(4))
    s["properties"] = {name: schema(r, depth - 1) for name in names}
    if r.random() < 0.6:
        s["required"] = [name for name in names if r.random() < 0.6]
    if r.random() < 0.6:
        s["additionalProperties"] = False if r.random() < 0.7 else schema(r, depth - 1)
    if r.random() < 0.15:
        s["patternProperties"] = {r.choice(PATTERNS): schema(r, depth - 1)}
    if r.random() < 0.15:
        s["minProperties"] = r.randrange(3)
    if r.random() < 0.3:
        s["maxProperties"] = r.randrange(1, 4)
    if r.random() < 0.1:
        s["propertyNames"] = {"maxLength": r.randrange(1, 4)}
    if r.random() < 0.1:
        s["dependentRequired"] = {r.choice(NAMES): [r.choice(NAMES)]}


def schema(r, depth):
    if r.random() < 0.05 or depth < 0:
        return r.choice([True, {}, {"type": "null"}, {"type": "boolean"}])
    if r.random() < 0.15:
        return r.choice([{"const": value(r, 1)}, {"enum": [value(r, 1) for _ in range(3)]}])
    s = {}
    types = ["number", "integer", "string", "boolean", "null", "array", "object", "object"]
    kind = r.choice(types if depth else types[:5])
    if r.random() < 0.9:
        s["type"] = kind if r.random() < 0.85 else sorted({kind, r.choice(types[:5])})
    if kind in ("number", "integer"):
        keywords_of_numbers(r, s)
    elif kind == "string":
        keywords_of_strings(r, s)
    elif kind == "array":
        keywords_of_arrays(r, s, depth)
    elif kind == "object":
        keywords_of_objects(r, s, depth)
    if depth and r.random() < 0.2:
        word = r.choice(["anyOf", "oneOf", "allOf", "not", "if"])
        if word == "not":
            s["not"] = schema(r, depth - 1)
        elif word == "if":
            s["if"], s["then"], s["else"] = (schema(r, depth - 1) for _ in range(3))
        else:
            s[word] = [schema(r, depth - 1) for _ in range(2)]
    return s


def instance(r, s, depth):
    """A value that has some chance of being valid."""
    if not isinstance(s, dict) or depth < 0 or r.random() < 0.1:
        return value(r, 2)
    if "const" in s:
        return copy.deepcopy(s["const"])
    if "enum" in s:
        return copy.deepcopy(r.choice(s["enum"]))
    kind = s.get("type", r.choice(["number", "string", "object"]))
    kind = r.choice(kind) if isinstance(kind, list) else kind
    if kind == "object":
        props = s.get("properties", {})
        names = [n for n in props if n in s.get("required", []) or r.random() < 0.5]
        made = {n: instance(r, props[n], depth - 1) for n in names}
        if r.random() < 0.3:
            made[r.choice(NAMES)] = value(r, 1)
        return made
    if kind == "array":
        n = r.randrange(s.get("minItems", 0), max(s.get("minItems", 0), s.get("maxItems", 3)) + 1)
        prefix = s.get("prefixItems", [])
        items = s.get("items", True)
        return [instance(r, prefix[i] if i < len(prefix) else items, depth - 1) for i in range(n)]
    if kind == "string":
        return r.choice(WORDS)
    if kind in ("number", "integer"):
        return number(r)
    return r.choice([True, False]) if kind == "boolean" else None


def mutate(r, v):
    if isinstance(v, dict) and v and r.random() < 0.7:
        v = dict(v)
        name = r.choice(list(v))
        if r.random() < 0.4:
            del v[name]
        elif r.random() < 0.5:
            v[r.choice(NAMES)] = value(r, 1)
        else:
            v[name] = mutate(r, v[name])
        return v
    if isinstance(v, list) and v and r.random() < 0.7:
        v = list(v)
        i = r.randrange(len(v))
        v[i] = mutate(r, v[i])
        if r.random() < 0.3:
            v.append(copy.deepcopy(r.choice(v)))
        return v
    if isinstance(v, str) and r.random() < 0.6:
        return v + r.choice("ab1é")
    if isinstance(v, (int, float)) and not isinstance(v, bool) and r.random() < 0.7:
        return v + r.choice([1, -1, 0.5, 10])
    return value(r, 1)


class TooBig(Exception):
    pass


def exact(text):
    d = Decimal(text)
    if not d.is_finite() or abs(d.adjusted()) > 1000 or len(text) > 1000:
        raise TooBig
    return int(d) if d == d.to_integral_value() else float(text) if len(text) < 16 else d


def is_valid(s, text):
    v = json.loads(text, parse_float=exact, parse_int=exact)
    return Draft202012Validator(s, format_checker=CHECKER).is_valid(v)


def texts(args, r):
    done = cut = refused = empty = skipped = 0
    for i in range(args.schemas):
        s = schema(r, 3)
        if isinstance(s, bool):
            continue
        command = [args.caravan, "generate", "--model", args.model, "--prompt", "Once", "--json",
                   "--json-schema", json.dumps(s), "--temperature", "1.5", "--top-p", "1",
                   "--n", str(args.samples), "--slots", "8", "--max-tokens", "150", "--seed", str(i)]
        for flag in ("--any-order", "--pretty"):
            command += [flag] if r.random() < 0.3 else []
        run = subprocess.run(command, capture_output=True, text=True)
        if run.returncode:
            if run.returncode < 0 or run.stdout:
                sys.exit(f"{json.dumps(s)}\n{run.stdout[-500:]}{run.stderr}")
            empty += "no text satisfies" in run.stderr
            refused += "no text satisfies" not in run.stderr
            continue
        for line in run.stdout.splitlines():
            answer = json.loads(line)
            if answer["finish"] != "eos":
                cut += 1
                continue
            try:
                good = is_valid(s, answer["text"])
            except TooBig:
                skipped += 1
                continue
            except json.JSONDecodeError:
                good = False
            if not good:
                sys.exit(f"{json.dumps(s)}\nis not fulfilled by\n{answer['text']}")
            done += 1
    print(f"{done} texts are valid, {cut} met the limit of tokens, {skipped} have numbers beyond "
          f"Python's, {refused} of {args.schemas} schemas refused, {empty} unsatisfiable")


def examples(s, n, seed):
    """Up to n values that hypothesis finds for a schema."""
    import warnings
    from hypothesis import HealthCheck, Phase, given, settings, seed as seeded
    from hypothesis_jsonschema import from_schema
    found = []

    @seeded(seed)
    @settings(max_examples=n, database=None, deadline=None, phases=[Phase.generate],
              suppress_health_check=list(HealthCheck))
    @given(from_schema(s))
    def note(v):
        found.append(copy.deepcopy(v))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            note()
        except Exception:  # what hypothesis does not know, or finds nothing for
            pass
    return found


def values_of(args, r, s, i):
    if args.what == "cases":
        values = [instance(r, s, 4) for _ in range(args.samples)]
        return [mutate(r, v) if r.random() < 0.6 else v for v in values]
    found = examples(s, args.samples, i)
    return found + [mutate(r, v) for v in found]


def cases(args, r):
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        want = []
        for i in range(args.schemas):
            s = schema(r, 3)
            lines = []
            for v in values_of(args, r, s, i):
                text = json.dumps(v, ensure_ascii=r.random() < 0.5)
                try:  # no lone surrogates, which are no text, and no numbers beyond Python's
                    text.encode() and json.loads(text, parse_float=exact, parse_int=exact)
                    if not re.search("\\\\ud[89a-f]", text):
                        lines.append(text)
                except (UnicodeEncodeError, TooBig):
                    pass
            want.append((s, lines, [is_valid(s, t) for t in lines]))
            case = {"id": i, "schema": s, "tests": [{"text": t} for t in lines]}
            file.write(json.dumps(case) + "\n")
        file.flush()
        run = subprocess.run([args.caravan, "constrain", "--cases", file.name, "--json"] +
                             (["--tokenizer", args.tokenizer] if args.tokenizer else []),
                             capture_output=True, text=True)
    if run.returncode:
        sys.exit(run.stderr)
    agreed = valid = refused = 0
    for (s, lines, truth), line in zip(want, run.stdout.splitlines(), strict=True):
        answer = json.loads(line)
        if answer["refused"]:
            refused += 1
            continue
        for text, good, got in zip(lines, truth, answer["results"], strict=True):
            if good != got:
                sys.exit(f"{json.dumps(s)}\n{text}\nis {'' if good else 'not '}valid")
            agreed += 1
            valid += good
    print(f"{agreed} verdicts agree, of which {valid} valid; {refused} of {args.schemas} schemas "
          "refused")


parser = argparse.ArgumentParser()
parser.add_argument("caravan")
parser.add_argument("what", choices=["texts", "cases", "instances"])
parser.add_argument("--model")
parser.add_argument("--tokenizer")
parser.add_argument("--schemas", type=int, default=400)
parser.add_argument("--samples", type=int, default=25)
parser.add_argument("--seed", type=int, default=0)
arguments = parser.parse_args()
{"texts": texts, "cases": cases, "instances": cases}[arguments.what](arguments, random.Random(arguments.seed))
