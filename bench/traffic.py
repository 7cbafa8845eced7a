#!/usr/bin/env python3
"""What each kind of step of a plan moves: bytes of operands and results, from a trace.

    caravan bench --train --preset stories110m --seq 1024 --batch 2 --profile FILE && traffic.py FILE

Counted, not measured: what lies in a cache is counted, too. MB per run of the graph that the trace has most of.
"""
import collections
import json
import signal
import sys

signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # | head ends it in silence, as it does other programs

events = json.load(open(sys.argv[1]))
events = [e for e in events["traceEvents"] if e.get("cat") == "step" and e["tid"] == 0]
graph = collections.Counter(e["args"]["graph"] for e in events).most_common(1)[0][0]
events = [e for e in events if e["args"]["graph"] == graph]
runs = sum(e["args"]["step"] == events[0]["args"]["step"] for e in events)
moved = collections.Counter()
for e in events:
    moved[e["name"]] += e["args"]["bytes"] / 1e6 / runs
for name, megabytes in moved.most_common():
    print("%-32s %9.1f" % (name, megabytes))
heavy = sum(moved[n] for n in ("dot_general", "linear", "attention", "attention_backward"))
print("%-32s %9.1f" % ("outside products and attention", sum(moved.values()) - heavy))
