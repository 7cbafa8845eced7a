#!/usr/bin/env python3
"""Counts the instructions of inner loops of products on Arm, where no such processor is there to measure.

    aarch64-linux-gnu-objdump -d OBJECT | bench/inner_loops.py

prints, of each loop without another in it that multiplies: its function, its instructions, those that multiply, and
instructions per product of two numbers. A row in 16-bit fixed point makes two products of each number, one in 8 bits one.
"""
import re
import sys
from collections import Counter

PRODUCTS = {'sdot': 16, 'smmla': 32, 'bfdot': 8, 'bfmmla': 16, 'fmla': 4}
LEAST = 8  # instructions that multiply


def functions(lines):
    name, code = None, []
    for line in lines:
        if head := re.match(r'[0-9a-f]+ <([^>]+)>:', line):
            if code:
                yield name, code
            name, code = head.group(1), []
        elif row := re.match(r'\s+([0-9a-f]+):\t[0-9a-f]+ \t(\S+)\s*(.*)', line):
            code.append((int(row.group(1), 16), row.group(2), row.group(3)))
    if code:
        yield name, code


def loops(code):
    index = {at: i for i, (at, _, _) in enumerate(code)}
    found = []
    for i, (_, what, operands) in enumerate(code):
        to = re.search(r'\b([0-9a-f]+) <', operands)
        if re.match(r'b$|b\.|cbn?z|tbn?z', what) and to and index.get(int(to.group(1), 16), i + 1) <= i:
            found.append((index[int(to.group(1), 16)], i))
    return [a for a in found if not any(b != a and b[0] >= a[0] and b[1] <= a[1] for b in found)]


for name, code in functions(sys.stdin):
    for first, last in loops(code):
        kinds = Counter(what for _, what, _ in code[first:last + 1])
        whole = {what: kinds[what] for what in ('sdot', 'smmla', 'bfdot', 'bfmmla') if kinds[what]} or {'fmla': kinds['fmla']}
        if sum(whole.values()) < LEAST:
            continue
        products = sum(PRODUCTS[what] * n for what, n in whole.items())
        n = last - first + 1
        print(f'{name:28} {n:5} instructions, {whole}, {n / products:.3f} each product')
