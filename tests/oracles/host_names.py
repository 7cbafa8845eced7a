#!/usr/bin/env python3
"""What internationalized host names ask of code points: writes src/constrain/idna_table.inc and tests/data/json-schema/host_names.json.

Which code points may stand in labels (RFC 5892), their joining types and scripts are those of `idna` (PyPI); their bidirectional
and combining classes, and which of them compose, those of Python's unicodedata, to whose version of Unicode both are cut.
"""
import json
import os
import random
import sys
import unicodedata

import idna
from idna import idnadata

here = os.path.dirname(os.path.abspath(__file__))


def points(ranges):
    return {p for r in ranges for p in range(r >> 32, r & 0xFFFFFFFF)}


classes = {name: points(of) for name, of in idnadata.codepoint_classes.items()}
scripts = {name: points(of) for name, of in idnadata.scripts.items()}
joins = {name: points(of) for name, of in idnadata.joining_types.items()}
known = sorted(p for p in set().union(*classes.values()) if p >= 0x80 and unicodedata.category(chr(p)) != "Cn")
BIDI = {"L": "L", "R": "R", "AL": "R", "EN": "N", "AN": "A", "NSM": "M"}
SCRIPT = {"Greek": "G", "Hebrew": "H", "Hiragana": "K", "Katakana": "K", "Han": "K"}


def join_of(p):
    for name, of in joins.items():
        if p in of:
            name = chr(name) if isinstance(name, int) else name
            return name if name in "DRLT" else "0"
    return "0"


def row(p):
    c = chr(p)
    bidi = BIDI.get(unicodedata.bidirectional(c), "0")
    script = next((SCRIPT[name] for name, of in scripts.items() if p in of and name in SCRIPT), "0")
    mark = 1 if unicodedata.category(c)[0] == "M" else 0
    return (bidi, join_of(p), script, mark, unicodedata.combining(c))


rows = []  # first, last, every, what
for p in known:
    what = row(p)
    last = rows[-1] if rows else None
    if last and last[3] == what and last[1] == p - 1 and last[2] == 1:
        last[1] = p
    elif last and last[3] == what and last[1] == p - 2 and (last[2] == 2 or last[0] == last[1]):
        last[1], last[2] = p, 2
    else:
        rows.append([p, p, 1, what])
allowed = set(known) | set(range(ord("a"), ord("z") + 1))
pairs = []
for p in known:
    parts = unicodedata.normalize("NFD", chr(p))
    if len(parts) > 1:
        first = unicodedata.normalize("NFC", parts[:-1])
        if len(first) == 1 and ord(first) in allowed and ord(parts[-1]) in allowed and not 0xAC00 <= p <= 0xD7A3:
            pairs.append((ord(first), ord(parts[-1])))

quote = lambda x: "0" if x == "0" else f"'{x}'"
with open(os.path.join(here, "../../src/constrain/idna_table.inc"), "w", encoding="ascii") as out:
    out.write(f"/* tests/oracles/host_names.py, Unicode {unicodedata.unidata_version}. */\n// clang-format off\n")
    out.write("static const IdnaRange ranges[] = {\n")
    cells = [f"{{{a:#x},{b:#x},{every},{quote(w[0])},{quote(w[1])},{quote(w[2])},{w[3]},{w[4]}}}," for a, b, every, w in rows]
    for i in range(0, len(cells), 4):
        out.write("".join(cells[i : i + 4]) + "\n")
    out.write("};\n\nstatic const uint32_t compose[][2] = {\n")
    cells = [f"{{{a:#x},{b:#x}}}," for a, b in sorted(pairs)]
    for i in range(0, len(cells), 8):
        out.write("".join(cells[i : i + 8]) + "\n")
    out.write("};\n// clang-format on\n")

r = random.Random(5)
letters = [p for p in known if p < 0x3000] + [0x3042, 0x30A2, 0x4E00, 0x30FB, 0xB7, 0x375, 0x5F3, 0x200C, 0x200D] * 9
cases = []
while len(cases) < 500:
    block = r.choice(letters)
    near = [p for p in (block + d for d in range(-20, 21)) if unicodedata.category(chr(p)) not in ("Cn", "Cs") and p >= 0x80]
    label = "".join(chr(r.choice(near + [block, ord("l"), ord("a"), ord("0"), ord("-")] + ([r.choice(letters)] if r.random() < 0.2 else [])))
                    for _ in range(r.randrange(1, 7)))
    if all(ord(c) < 0x80 for c in label):
        continue
    try:
        alabel = idna.alabel(label).decode()
        cases.append({"label": label, "valid": True, "ascii": alabel})
    except (idna.IDNAError, UnicodeError):
        if r.random() < 0.4:
            cases.append({"label": label, "valid": False, "ascii": "xn--" + label.encode("punycode").decode()})
with open(os.path.join(here, "../data/json-schema/host_names.json"), "w", encoding="ascii") as out:
    out.write("[\n" + ",\n".join(json.dumps(case) for case in cases) + "\n]\n")
print(len(rows), "ranges,", len(pairs), "pairs,", sum(c["valid"] for c in cases), "of", len(cases), "labels valid", file=sys.stderr)
