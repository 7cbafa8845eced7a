#!/usr/bin/env python3
"""JSON-Schema-Test-Suite as cases for `caravan constrain`, a line per schema:

    json_schema_suite.py [CHECKOUT]     writes tests/data/json-schema/suite.jsonl

Drafts 4, 6, 7, 2019-09 and 2020-12. Groups that several drafts share are one line, {"drafts": ["4", "6"], …}, whose schema
does not name its dialect. What is below optional/format, and optional/content, asserts; everywhere else these are annotations.
"""
import glob
import json
import os
import sys

FOLDERS = {"draft4": "4", "draft6": "6", "draft7": "7", "draft2019-09": "2019-09", "draft2020-12": "2020-12"}
here = os.path.dirname(os.path.abspath(__file__))
checkout = sys.argv[1] if len(sys.argv) > 1 else os.path.join(here, "../../../shared/data/json-schema")
root = os.path.join(checkout, "tests")
if not all(os.path.isdir(os.path.join(root, folder)) for folder in FOLDERS):
    sys.exit(print(f"skipped: there is no checkout of the suite, with all five drafts, at {checkout}"))
lines = {}
for folder, draft in FOLDERS.items():
    for path in sorted(glob.glob(f"{root}/{folder}/**/*.json", recursive=True)):
        name = os.path.relpath(path, os.path.join(root, folder))[: -len(".json")]
        with open(path, encoding="utf-8") as file:
            groups = json.load(file)
        for number, group in enumerate(groups):
            schema = group["schema"]
            if isinstance(schema, dict) and "json-schema.org/draft/" + draft in schema.get("$schema", ""):
                schema = {key: value for key, value in schema.items() if key != "$schema"}
            asserts = name.startswith("optional/format/") or name == "optional/content"
            case = {
                "format": "assert" if asserts else "annotate",
                "schema": schema,
                "tests": [{"text": json.dumps(test["data"], ensure_ascii=False), "valid": test["valid"]}
                          for test in group["tests"]],
            }
            text = json.dumps(case, ensure_ascii=True, separators=(",", ":"))
            lines.setdefault((name, text), (f"{name}#{number}", []))[1].append(draft)
with open(os.path.join(here, "../data/json-schema/suite.jsonl"), "w", encoding="ascii") as out:
    for (name, text), (case_id, drafts) in lines.items():
        out.write(json.dumps({"id": case_id, "drafts": drafts}, separators=(",", ":"))[:-1] + "," + text[1:] + "\n")
