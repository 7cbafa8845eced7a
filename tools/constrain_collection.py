#!/usr/bin/env python3
"""Holds constraints to a public collection of schemas, guidance-ai/jsonschemabench, of which nothing is kept here (it has no licence):

    git clone https://github.com/guidance-ai/jsonschemabench
    tools/constrain_collection.py CARAVAN jsonschemabench [--every N] [--show] [--format assert]

Counts what is refused, by reason, and instances of which the verdict is not what the collection says. --every N takes one schema of N.
"""

import argparse
import collections
import glob
import json
import os
import re
import subprocess

parser = argparse.ArgumentParser()
parser.add_argument("caravan")
parser.add_argument("checkout")
parser.add_argument("--every", type=int, default=1)
parser.add_argument("--format", choices=["assert", "annotate"], default="assert")
parser.add_argument("--show", action="store_true", help="name the schemas")
args = parser.parse_args()

paths = sorted(glob.glob(os.path.join(args.checkout, "maskbench", "data", "*.json")))[:: args.every]
cases = {}
for path in paths:
    with open(path, encoding="utf-8") as file:
        case = json.load(file)
    tests = [{"text": json.dumps(t["data"], ensure_ascii=False), "valid": t["valid"]} for t in case.get("tests", [])]
    cases[os.path.basename(path)] = {"id": os.path.basename(path), "format": args.format, "schema": case["schema"],
                                     "tests": tests}
lines = "".join(json.dumps(case) + "\n" for case in cases.values())
run = subprocess.run([args.caravan, "constrain", "--cases", "-", "--json"], input=lines, capture_output=True, text=True,
                     check=False)
if run.stderr:
    print(run.stderr.strip())
reasons, where, wrong, verdicts, answered = collections.Counter(), {}, [], 0, 0
for line in run.stdout.splitlines():
    answer = json.loads(line)
    case = cases[answer["id"]]
    answered += 1
    if answer["refused"] is not None:
        why = re.sub(r"^#\S*/([^/:]+):", r"\1:", answer["refused"])
        why = re.sub(r"'[^']*'", "'…'", why)
        reasons[why] += 1
        where.setdefault(why, []).append(answer["id"])
        continue
    for test, verdict in zip(case["tests"], answer["results"]):
        verdicts += 1
        if verdict != test["valid"]:
            wrong.append((answer["id"], test["valid"], test["text"]))
refused = sum(reasons.values())
print(f"{answered} schemas, {refused} refused ({100 * refused / max(answered, 1):.2f}%), {verdicts} verdicts, {len(wrong)} differ")
for why, n in reasons.most_common():
    print(f"{n:6} {why[:180]}" + (f"  {' '.join(where[why][:3])}" if args.show else ""))
for name, valid, text in wrong[: 100000 if args.show else 20]:
    print(f"{name}: said to be {'valid' if valid else 'invalid'}: {text[:160]}")
