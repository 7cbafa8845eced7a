#!/usr/bin/env python3
"""How far off training is foretold for a source that nothing was taken from: writes bench/published/simulated/left_out.csv.

    tools/left_out.py [CARAVAN]

Of whole steps of training one number is learned: how much longer they take than their operations (COST_TRAINING, src/sim/cost.h), the
median over sources of each one's median. Each source is left out in turn, and foretold with the median of the others. docs/FORESIGHT.md
quotes the table.
"""
import csv
import json
import pathlib
import re
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).parent.parent
CARAVAN = sys.argv[1] if len(sys.argv) > 1 else HERE / "build/caravan"
OUT = HERE / "bench/published/simulated/left_out.csv"
LEARNED = float(re.search(r"COST_TRAINING ([0-9.]+)", (HERE / "src/sim/cost.h").read_text())[1])


def answers(table):
    text = subprocess.run([CARAVAN, "simulate", "--rows", table, "--json"], check=True, capture_output=True, text=True).stdout
    decoder, at = json.JSONDecoder(), 0
    while at < len(text):
        answer, at = decoder.raw_decode(text, at)
        at += len(text[at:]) - len(text[at:].lstrip())
        yield answer["id"], answer


def source(row):
    """What was published together: a repository's page, or of recipes those of a chip."""
    name = row["source"].removeprefix("github:")
    generation = re.search(r":training/([a-z0-9]+)/", name)
    return re.split("[@:(]", name)[0].strip() + (f', {generation[1]}' if generation else "")


def quantiles(errors):
    errors = sorted(errors)
    return errors[len(errors) // 2], errors[len(errors) * 9 // 10], errors[-1]


def main():
    slow = {}  # of each source: how much longer its steps took than their operations are foretold to
    for table in (HERE / "bench/published/rows" / name for name in ("articles.csv", "rows.csv")):
        with open(table, newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        answered = dict(answers(table))
        for row in rows:
            answer = answered[row["id"]]
            for figure, measured in answer.get("measured", {}).items() if row["ask"] == "train" else ():
                foretold = answer["simulated"][figure]
                ratio = measured / foretold if figure == "seconds" else foretold / measured
                slow.setdefault(source(row), []).append(ratio * LEARNED)
    medians = {name: statistics.median(ratios) for name, ratios in slow.items()}
    every = {"alone": [], "seen": [], "left out": []}
    with open(OUT, "w", newline="", encoding="utf-8") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(["source left out", "rows", "its own", "of the others", "median", "p90", "worst"])
        for name, ratios in sorted(slow.items()):
            others = statistics.median(m for other, m in medians.items() if other != name)
            errors = [abs(ratio / others - 1) for ratio in ratios]
            every["left out"] += errors
            every["seen"] += [abs(ratio / LEARNED - 1) for ratio in ratios]
            every["alone"] += [abs(ratio - 1) for ratio in ratios]
            out.writerow([name, len(ratios), f"{medians[name]:.3f}", f"{others:.3f}"] + [f"{100 * e:.1f} %" for e in quantiles(errors)])
        for name, text in (("left out", "all, each left out in turn"), ("seen", "all, nothing left out"), ("alone", "all, operations alone")):
            out.writerow([text, len(every[name]), "", ""] + [f"{100 * e:.1f} %" for e in quantiles(every[name])])
    learned = statistics.median(medians.values())
    print(OUT.read_text(), end="")
    print(f"the median of all sources is {learned:.3f}; src/sim/cost.h has {LEARNED}")
    if abs(learned - LEARNED) > 0.002:
        sys.exit(1)


main()
