#!/usr/bin/env python3
"""JSON-Schema-Test-Suite as cases for `caravan constrain`, a line per schema:

    json_schema_suite.py [CHECKOUT]     writes tests/data/json-schema/suite.jsonl

Drafts 2020-12 and 7 without refRemote, vocabulary and dynamicRef. What is below optional/format is about format
as an assertion; everywhere else it is an annotation.
"""
import glob
import json
import os
import sys

LEFT_OUT = {"refRemote.json", "vocabulary.json", "dynamicRef.json"}

here = os.path.dirname(os.path.abspath(__file__))
checkout = sys.argv[1] if len(sys.argv) > 1 else os.path.join(here, "../../../shared/data/json-schema")
root = os.path.join(checkout, "tests")
if not os.path.isdir(root):
    sys.exit(print(f"skipped: there is no checkout of the suite at {checkout}"))
lines = []
for folder, draft in (("draft2020-12", "2020-12"), ("draft7", "7")):
    for path in sorted(glob.glob(f"{root}/{folder}/**/*.json", recursive=True)):
        if os.path.basename(path) in LEFT_OUT:
            continue
        name = os.path.relpath(path, root)[: -len(".json")]
        with open(path, encoding="utf-8") as file:
            groups = json.load(file)
        for number, group in enumerate(groups):
            case = {
                "id": f"{name}#{number}",
                "draft": draft,
                "format": "assert" if "/optional/format/" in path else "annotate",
                "schema": group["schema"],
                "tests": [{"text": json.dumps(test["data"], ensure_ascii=False), "valid": test["valid"]}
                          for test in group["tests"]],
            }
            lines.append(json.dumps(case, ensure_ascii=True, separators=(",", ":")) + "\n")
with open(os.path.join(here, "../data/json-schema/suite.jsonl"), "w", encoding="ascii") as out:
    out.writelines(lines)
