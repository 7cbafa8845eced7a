#!/usr/bin/env python3
"""What XLA makes of every operation: the cases of tests/test_interp_oracle.c.

Needs jax and numpy. Usage: ops.py [DIRECTORY], by default tests/data/ops beside this script. Writes a
file per kind of operation, a JSON list of cases:

    {"op": "slice",                          a name of ops.def
     "attrs": {"start": [0, 1], ...},        names and types of ops.def
     "in":  [{"type": "f32[2,3]", "data": "0000803f..."}, ...],
     "out": [...],                           what XLA computed; data in hexadecimal, as in memory
     "ulp": 1,                               how far a float may be off, in units of the last place
     "devices": 4}                           collectives: "in" and "out" hold a tensor per device

Each operation is compiled by XLA for the CPU from jax.lax's function of the same meaning; composites
from their textbook formula in f32 (f64 for f64). XLA for the CPU takes subnormal operands for zero and
flushes subnormal results: there are no such operands here, except f16's, which are normal f32, and the
test takes a zero for a subnormal result.
"""

import json
import os
import sys
from functools import partial

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"
os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax import lax

jax.config.update("jax_enable_x64", True)
np.seterr(all="ignore")  # casts that overflow are wanted

NAMES = {
    "f64": np.float64,
    "f32": np.float32,
    "bf16": ml_dtypes.bfloat16,
    "f16": np.float16,
    "i32": np.int32,
    "u32": np.uint32,
    "i8": np.int8,
    "i4": ml_dtypes.int4,
    "i1": np.bool_,
}
FLOATS = ["f64", "f32", "bf16", "f16"]
INTS = ["i32", "u32", "i8"]
random = np.random.default_rng(20260101)
files = {}


def name_of(dtype):
    return next(name for name, d in NAMES.items() if np.dtype(d) == np.dtype(dtype))


def tensor(x):
    x = np.asarray(x)
    name = name_of(x.dtype)
    flat = x.reshape(-1)
    if name == "i4":
        nibbles = flat.astype(np.int8).view(np.uint8) & 15
        nibbles = np.append(nibbles, np.zeros(len(nibbles) % 2, np.uint8))
        flat = nibbles[0::2] | nibbles[1::2] << 4
    return {"type": f"{name}[{','.join(map(str, x.shape))}]", "data": flat.tobytes().hex()}


def add(file, op, inputs, outputs, attrs=None, ulp=0, devices=None):
    case = {"op": op, "attrs": attrs or {}, "in": [tensor(x) for x in inputs],
            "out": [tensor(x) for x in outputs], "ulp": ulp}
    if devices:
        case["devices"] = devices
    files.setdefault(file, []).append(case)


def check(file, op, f, inputs, attrs=None, ulp=0):
    """Compiles f, runs it on the inputs and keeps what it gives."""
    inputs = [np.asarray(x) for x in inputs]
    outputs = jax.jit(f)(*inputs)
    if not isinstance(outputs, (tuple, list)):
        outputs = [outputs]
    add(file, op, inputs, [np.asarray(x) for x in outputs], attrs, ulp)


def special(dtype):
    """Values where definitions differ: zeros, limits, infinities, NaN, halves."""
    if dtype == "i1":
        return np.array([False, True])
    d = NAMES[dtype]
    if dtype in FLOATS:
        info = ml_dtypes.finfo(d)
        limits = [info.smallest_normal, info.max] + [info.smallest_subnormal] * (dtype == "f16")
        both = [0.0, 0.5, 1.0, 1.5, 3.0, np.inf] + [float(x) for x in limits]
        return np.array(both + [-x for x in both] + [np.nan]).astype(d)
    info = ml_dtypes.iinfo(d)
    low, high = int(info.min), int(info.max)
    values = {0, 1, 2, 3, 7, high, low, low + 1, -1, -2, -8, 31, 32}
    return np.array(sorted(v for v in values if low <= v <= high)).astype(d)


def draw(dtype, *shape, spread=2.0):
    """Random elements: floats normal, integers from all of the range, half of them small."""
    d = NAMES[dtype]
    if dtype == "i1":
        return random.integers(0, 2, shape).astype(bool)
    if dtype in FLOATS:
        return (random.standard_normal(shape) * spread).astype(d)
    info = ml_dtypes.iinfo(d)
    wide = random.integers(int(info.min), int(info.max) + 1, shape)
    small = random.integers(max(-5, int(info.min)), 6, shape)
    return np.where(random.integers(0, 2, shape), wide, small).astype(d)


def line(dtype, n=16):
    return np.concatenate([special(dtype), draw(dtype, n).reshape(-1)])


def few(dtype):
    """The most special values."""
    if dtype not in FLOATS:
        return special(dtype)
    high = float(ml_dtypes.finfo(NAMES[dtype]).max)
    return np.array([0.0, -0.0, 1.0, -1.5, high, -high, np.inf, -np.inf, np.nan]).astype(NAMES[dtype])


def pairs(dtype, values=few):
    """Every such value against every other, and some random ones."""
    s = values(dtype)
    a, b = np.repeat(s, len(s)), np.tile(s, len(s))
    return np.concatenate([a, draw(dtype, 16)]), np.concatenate([b, draw(dtype, 16)])


def leaves():
    for dtype in NAMES:
        x = draw(dtype, 3, 5)
        literal = {"splat": False, "data": tensor(x)["data"]}
        add("leaf", "constant", [], [x], {"value": literal})
        one = draw(dtype, 1)
        literal = {"splat": True, "data": tensor(one)["data"]}
        check_leaf = jax.jit(lambda v: jnp.broadcast_to(v, (2, 3)))(one[0])
        add("leaf", "constant", [], [np.asarray(check_leaf)], {"value": literal})
        if dtype not in ("i1", "i4"):
            for axis in range(3):
                check("leaf", "iota", lambda: lax.broadcasted_iota(NAMES[dtype], (2, 3, 4), axis),
                      [], {"axis": axis})
    check("leaf", "iota", lambda: lax.broadcasted_iota(np.int8, (300,), 0), [], {"axis": 0})
    check("leaf", "iota", lambda: lax.broadcasted_iota(ml_dtypes.bfloat16, (600,), 0), [], {"axis": 0})


def unary():
    for dtype in FLOATS + INTS:
        x = line(dtype)
        check("unary", "negate", lax.neg, [x])
        # jax refuses the abs of unsigned numbers; StableHLO takes it.
        check("unary", "abs", lax.abs if dtype != "u32" else lambda v: v, [x])
        check("unary", "sign", lax.sign, [x])
    for dtype in FLOATS:
        # XLA approximates in f32 and rounds to the 16-bit types, which hides most of the error there.
        ulp = {"f64": 8, "f32": 4, "bf16": 1, "f16": 2}[dtype]
        x = line(dtype, 40)
        for op, f in [("exponential", lax.exp), ("exponential_minus_one", lax.expm1), ("log", lax.log),
                      ("log_plus_one", lax.log1p), ("rsqrt", lax.rsqrt), ("tanh", lax.tanh),
                      ("logistic", lax.logistic), ("sine", lax.sin), ("cosine", lax.cos)]:
            check("unary", op, f, [x], ulp=ulp)
        check("unary", "sqrt", lax.sqrt, [x])
        check("unary", "floor", lax.floor, [x])
        check("unary", "is_finite", lax.is_finite, [x])
    for dtype in INTS + ["i1"]:
        check("unary", "not", lax.bitwise_not, [line(dtype)])


def convert():
    for source in NAMES:
        for target in NAMES:
            x = line(source, 9)
            if source in FLOATS:
                around = [127.4, 127.6, 128, -128.6, -129, 7.5, 8, 2147483647, 2147483648, -2147483649,
                          4294967295, 4294967296, -0.9, 65519, 65520, 257, 1.00390625,
                          1 + 2**-8 + 2**-40, 1 + 2**-11 + 2**-40]  # rounded twice, through f32
                x = np.concatenate([x, np.array(around).astype(NAMES[source])])
            if source in ("i32", "u32"):
                x = np.append(x, NAMES[source](2**24 + 2**16 + 1))  # rounded twice to bf16
            check("convert", "convert", lambda v: lax.convert_element_type(v, NAMES[target]), [x])


def binary():
    arithmetic = [("add", lax.add), ("subtract", lax.sub), ("multiply", lax.mul), ("divide", lax.div),
                  ("maximum", lax.max), ("minimum", lax.min), ("remainder", lax.rem)]
    bits = [("and", lax.bitwise_and), ("or", lax.bitwise_or), ("xor", lax.bitwise_xor)]
    shifts = [("shift_left", lax.shift_left), ("shift_right_logical", lax.shift_right_logical)]
    for dtype in FLOATS + INTS:
        for op, f in arithmetic:
            wide = dtype == "f32" and op in ("divide", "remainder")
            check("binary", op, f, pairs(dtype, special if wide else few))
    for dtype in FLOATS:
        values = special if dtype in ("f32", "bf16") else few
        check("binary", "power", lax.pow, pairs(dtype, values), ulp=4 if dtype in ("f32", "f64") else 1)
    for dtype in INTS + ["i1"]:
        for op, f in bits + (shifts if dtype != "i1" else []):
            check("binary", op, f, pairs(dtype))
    directions = [("eq", lax.eq), ("ne", lax.ne), ("lt", lax.lt), ("le", lax.le), ("gt", lax.gt),
                  ("ge", lax.ge)]
    for dtype in FLOATS + INTS + ["i1"]:
        for direction, f in directions:
            check("binary", "compare", f, pairs(dtype), {"direction": direction})


def ternary():
    for dtype in NAMES:
        a, b = draw(dtype, 3, 5), draw(dtype, 3, 5)
        p = draw("i1", 3, 5)
        check("ternary", "select", lax.select, [p, a, b])
        for scalar in (False, True):
            check("ternary", "select", lambda p, a, b: lax.select(p, a, b), [np.bool_(scalar), a, b])
    for dtype in FLOATS + INTS:
        low, high = pairs(dtype)
        x = random.permutation(low)
        check("ternary", "clamp", lax.clamp, [low, x, high])
        one, two = np.sort(draw(dtype, 2))
        check("ternary", "clamp", lax.clamp, [one, x, two])
        check("ternary", "clamp", lax.clamp, [two, x, one])


def shapes():
    for dtype in NAMES:
        x = draw(dtype, 3, 1, 5)
        check("shape", "broadcast_in_dim", lambda v: lax.broadcast_in_dim(v, (3, 2, 4, 5), (0, 1, 3)),
              [x], {"dims": [0, 1, 3]})
        check("shape", "reshape", lambda v: lax.reshape(v, (5, 3)), [x])
        for p in [(0, 1, 2), (2, 0, 1), (1, 2, 0)]:
            check("shape", "transpose", lambda v: lax.transpose(v, p), [draw(dtype, 2, 3, 5)],
                  {"permutation": list(p)})
        start, limit, stride = (1, 0, 2), (4, 5, 7), (1, 2, 3)
        check("shape", "slice", lambda v: lax.slice(v, start, limit, stride), [draw(dtype, 4, 5, 7)],
              {"start": list(start), "limit": list(limit), "stride": list(stride)})
        for axis in range(2):
            sizes = [3, 1, 0, 2]
            parts = [draw(dtype, *((n, 3) if axis == 0 else (3, n))) for n in sizes]
            check("shape", "concatenate", lambda *v: lax.concatenate(v, axis), parts, {"axis": axis})
        for config in [[(1, 2, 0), (0, 0, 0)], [(0, 1, 2), (2, 0, 1)], [(-1, 0, 0), (1, -2, 1)],
                       [(-2, -1, 1), (3, -4, 0)]]:
            low, high, interior = map(list, zip(*config))
            check("shape", "pad", lambda v, p: lax.pad(v, p, config), [draw(dtype, 3, 4), draw(dtype, 1)[0]],
                  {"low": low, "high": high, "interior": interior})
        for dims in [[0], [1, 2], []]:
            check("shape", "reverse", lambda v: lax.rev(v, dims), [draw(dtype, 2, 3, 5)], {"dims": dims})
        check("shape", "optimization_barrier", lax.optimization_barrier, [draw(dtype, 3)])
    check("shape", "broadcast_in_dim", lambda v: lax.broadcast_in_dim(v, (2, 3), ()), [np.float32(2.5)],
          {"dims": []})
    check("shape", "broadcast_in_dim", lambda v: lax.broadcast_in_dim(v, (3, 2), (1,)),
          [draw("f32", 2)], {"dims": [1]})
    check("shape", "transpose", lambda v: lax.transpose(v, (1, 0)), [draw("f32", 0, 3)],
          {"permutation": [1, 0]})
    check("shape", "pad", lambda v, p: lax.pad(v, p, [(1, 1, 0)]), [draw("f32", 0), np.float32(7)],
          {"low": [1], "high": [1], "interior": [0]})
    check("shape", "slice", lambda v: lax.slice(v, (2,), (2,), (1,)), [draw("f32", 3)],
          {"start": [2], "limit": [2], "stride": [1]})


def dynamic():
    # jax counts negative starts from the end by default; StableHLO clamps them.
    dynamic_slice = partial(lax.dynamic_slice, allow_negative_indices=False)
    dynamic_update_slice = partial(lax.dynamic_update_slice, allow_negative_indices=False)
    starts = [(0, 0), (1, 2), (-3, 100), (2147483647, -2147483648), (2, 3)]
    for dtype in NAMES:
        for start in starts if dtype == "f32" else starts[1:3]:
            x, update = draw(dtype, 4, 5), draw(dtype, 3, 2)
            index = [np.int32(s) for s in start]
            check("index", "dynamic_slice", lambda v, i, j: dynamic_slice(v, (i, j), (3, 2)),
                  [x, *index], {"sizes": [3, 2]})
            check("index", "dynamic_update_slice", lambda v, u, i, j: dynamic_update_slice(v, u, (i, j)),
                  [x, update, *index])
    index = [np.uint32(4294967295), np.uint32(1)]
    check("index", "dynamic_slice", lambda v, i, j: dynamic_slice(v, (i, j), (3, 2)),
          [draw("f32", 4, 5), *index], {"sizes": [3, 2]})


def index_attrs(window, collapsed, index_map, operand_batch, index_batch, vector_dim):
    return {"window": window, "collapsed": collapsed, "operand_batch": operand_batch,
            "index_batch": index_batch, "index_map": index_map, "index_vector_dim": vector_dim}


def gather_one(x, indices, sizes, window, collapsed, index_map, operand_batch=(), index_batch=()):
    dims = lax.GatherDimensionNumbers(tuple(window), tuple(collapsed), tuple(index_map),
                                      tuple(operand_batch), tuple(index_batch))
    attrs = index_attrs(list(window), list(collapsed), list(index_map), list(operand_batch),
                        list(index_batch), indices.ndim - 1)
    check("index", "gather",
          lambda v, i: lax.gather(v, i, dims, sizes, mode=lax.GatherScatterMode.CLIP), [x, indices],
          {**attrs, "sizes": list(sizes)})


def gather():
    for dtype in NAMES:
        rows = random.integers(-3, 9, (2, 3, 1)).astype(np.int32)
        gather_one(draw(dtype, 6, 5), rows, (1, 5), [2], [0], [0])
    x = draw("f32", 4, 5, 6)
    points = random.integers(-2, 8, (3, 2)).astype(np.int32)
    gather_one(x, points, (1, 2, 3), [1, 2], [0], [0, 2])  # window of two dimensions
    gather_one(x, points, (2, 1, 6), [0, 2], [1], [1, 0])  # result dimensions interleaved
    gather_one(x, points.astype(np.uint32), (1, 1, 4), [1], [0, 1], [2, 1])
    batched = random.integers(-1, 7, (5, 4, 3, 1)).astype(np.int32)
    gather_one(x, batched, (1, 1, 2), [3], [], [2], [0, 1], [1, 0])
    # Index vectors that are not last, and without a dimension of their own.
    table, i = draw("f32", 6, 5), random.integers(-3, 9, (2, 4)).astype(np.int32)
    take = lambda t, v: t[jnp.clip(v, 0, 5)]
    check("index", "gather", take, [table, i],
          {**index_attrs([2], [0], [0], [], [], 2), "sizes": [1, 5]})
    at = random.integers(0, 5, (2, 4)).astype(np.int32)
    check("index", "gather", lambda t, v: t[v[0], v[1]], [table, at],
          {**index_attrs([], [0, 1], [0, 1], [], [], 0), "sizes": [1, 1]})


def scatter_one(x, indices, updates, window, collapsed, index_map, operand_batch=(), index_batch=(),
                combine="add", ulp=0):
    dims = lax.ScatterDimensionNumbers(tuple(window), tuple(collapsed), tuple(index_map),
                                       tuple(operand_batch), tuple(index_batch))
    attrs = index_attrs(list(window), list(collapsed), list(index_map), list(operand_batch),
                        list(index_batch), indices.ndim - 1)
    f = lax.scatter_add if combine == "add" else lax.scatter
    check("index", "scatter",
          lambda v, i, u: f(v, i, u, dims, mode=lax.GatherScatterMode.FILL_OR_DROP),
          [x, indices, updates], {**attrs, "combine": combine}, ulp=ulp)


def scatter():
    # Windows that would stick out in part are left out: XLA drops them whole, StableHLO's text (and
    # we) drop the elements outside.
    rows = np.array([[4, -1, 2], [2, 6, 0]], np.int32)[..., None]
    again = np.array([[2, 2, 2], [0, 2, 6]], np.int32)[..., None]
    for dtype in NAMES:
        scatter_one(draw(dtype, 6, 5), rows[:1], draw(dtype, 1, 3, 5), [2], [0], [0], combine="assign")
        if dtype in FLOATS + INTS:
            for i in (rows, again):
                scatter_one(draw(dtype, 6, 5), i, draw(dtype, 2, 3, 5), [2], [0], [0])
    x = draw("f32", 4, 5, 6)
    points = np.array([[0, 1], [3, 3], [1, 5], [0, 1]], np.int32)
    scatter_one(x, points, draw("f32", 4, 5), [1], [0, 2], [0, 2])
    scatter_one(x, points[:3], draw("f32", 3, 5), [1], [0, 2], [0, 2], combine="assign")
    batched = random.integers(-1, 7, (5, 4, 3, 1)).astype(np.int32)
    scatter_one(x, batched, draw("f32", 5, 4, 3), [], [2], [2], [0, 1], [1, 0])


def total_order(x):
    """Integers that order as IEEE 754's total order of floats."""
    bits = {2: np.int16, 4: np.int32, 8: np.int64}[x.dtype.itemsize]
    b = x.view(bits)
    return np.where(b < 0, b ^ np.iinfo(bits).max, b)


def sort():
    def run(key, payload, axis, descending):
        order = total_order(key) if name_of(key.dtype) in FLOATS else key.astype(np.int64)
        # ~ turns the order of integers round, so a stable ascending sort is a stable descending one.
        order = ~order if descending else order
        place = lax.broadcasted_iota(np.int32, key.shape, axis)
        f = jax.jit(lambda o, p: lax.sort((o, p), dimension=axis, is_stable=True, num_keys=1)[1])
        where = np.asarray(f(order, place))
        outputs = [np.take_along_axis(v, where, axis) for v in (key, payload) if v is not None]
        inputs = [v for v in (key, payload) if v is not None]
        add("index", "sort", inputs, outputs, {"axis": axis, "descending": descending})

    for dtype in FLOATS + INTS:
        for descending in (False, True):
            x = random.permutation(line(dtype, 31))
            if dtype in FLOATS:
                x = np.append(x, -x[np.isnan(x)])  # both signs of NaN
            run(x, None, 0, descending)
            few = random.integers(0, 4, (3, 17, 2)).astype(NAMES[dtype])  # many equal keys
            run(few, draw("i32", 3, 17, 2), 1, descending)
    run(draw("f32", 4, 0), draw("i1", 4, 0), 1, False)
    run(draw("f32", 4, 1), draw("i1", 4, 1), 1, False)
    run(random.integers(0, 9, (2, 100)).astype(np.int8), draw("bf16", 2, 100), 1, True)


def reduce():
    def run(kind, f, x, dims, ulp=0):
        check("reduce", "reduce", lambda v: f(v, axis=tuple(dims)), [x], {"kind": kind, "dims": dims},
              ulp=ulp)

    def wide(f):
        # 16-bit sums are taken in f32 and rounded once, which is what ours mean.
        return lambda v, axis: f(v.astype(np.float32), axis=axis).astype(v.dtype)

    for dtype in FLOATS + INTS:
        small = dtype in ("bf16", "f16")
        add_, multiply = lambda v, axis: jnp.sum(v, axis=axis, dtype=v.dtype), \
            lambda v, axis: jnp.prod(v, axis=axis, dtype=v.dtype)
        for dims in [[0], [1], [0, 2], [0, 1, 2], []]:
            # Positive, so that the error is small against the sum.
            x = draw(dtype, 3, 2, 4)
            near = np.abs(x) if dtype in FLOATS else x
            run("sum", wide(jnp.sum) if small else add_, near, dims, ulp=2 if dtype in FLOATS else 0)
            run("product", wide(jnp.prod) if small else multiply, near, dims,
                ulp=24 if dtype in FLOATS else 0)
            run("max", jnp.max, x, dims)
            run("min", jnp.min, x, dims)
        for kind, f in [("sum", add_), ("product", multiply)]:
            run(kind, f, draw(dtype, 3, 0), [1])
        for kind, f, neutral in [("max", lax.reduce_max_p, -np.inf), ("min", lax.reduce_min_p, np.inf)]:
            info = ml_dtypes.iinfo(NAMES[dtype]) if dtype in INTS else None
            limit = neutral if not info else info.min if kind == "max" else info.max
            x = draw(dtype, 3, 0)
            add("reduce", "reduce", [x], [np.full(3, limit, NAMES[dtype])], {"kind": kind, "dims": [1]})
    for bad in (np.nan, np.inf, -np.inf):
        x = np.abs(draw("f32", 3, 5))
        x[1, 2] = bad
        for kind, f in [("sum", jnp.sum), ("max", jnp.max), ("min", jnp.min)]:
            run(kind, f, x, [1], ulp=2)
    x = np.array([[True, True], [True, False], [False, False]])
    for dims in [[0], [1], [0, 1]]:
        run("all", jnp.all, x, dims)
        run("any", jnp.any, x, dims)
    run("all", jnp.all, np.zeros((2, 0), bool), [1])
    run("any", jnp.any, np.zeros((2, 0), bool), [1])

    for dtype in FLOATS + INTS:
        for axis in range(3):
            x = draw(dtype, 2, 5, 3)
            x = np.abs(x) if dtype in FLOATS else x
            if dtype in ("bf16", "f16"):
                f = lambda v: lax.cumsum(v.astype(np.float32), axis).astype(v.dtype)
            else:
                f = lambda v: lax.cumsum(v, axis)
            check("reduce", "cumsum", f, [x], {"axis": axis}, ulp=2 if dtype in FLOATS else 0)


def running_products():
    own = np.random.default_rng(20261124)  # what comes after draws what it drew before
    for dtype in FLOATS + INTS:
        for axis in range(3):
            x = own.integers(-4, 5, (2, 5, 3)) if dtype in INTS else own.normal(0, 1.5, (2, 5, 3))
            x = x.astype(np.uint32 if dtype == "u32" else np.float64).astype(NAMES[dtype])
            x[0, 2, 1] = 0
            if dtype in ("bf16", "f16"):
                f = lambda v: lax.cumprod(v.astype(np.float32), axis).astype(v.dtype)
            else:
                f = lambda v: lax.cumprod(v, axis)
            check("reduce", "cumprod", f, [x], {"axis": axis}, ulp=4 if dtype in FLOATS else 0)


def dot():
    def run(a, b, lhs_contract, rhs_contract, lhs_batch, rhs_batch, target, ulp):
        dims = ((lhs_contract, rhs_contract), (lhs_batch, rhs_batch))
        wide = {"f64": np.float64, "f32": np.float32, "bf16": np.float32, "f16": np.float32}.get(
            name_of(a.dtype), np.int32)
        if np.dtype(NAMES[target]).itemsize > np.dtype(wide).itemsize:
            wide = NAMES[target]
        check("dot", "dot_general",
              lambda a, b: lax.dot_general(a, b, dims, preferred_element_type=wide).astype(NAMES[target]),
              [a, b], {"lhs_contract": lhs_contract, "rhs_contract": rhs_contract,
                       "lhs_batch": lhs_batch, "rhs_batch": rhs_batch}, ulp=ulp)

    def positive(dtype, *shape):
        x = draw(dtype, *shape)
        return np.abs(x) if dtype in FLOATS else x

    types = [(d, d) for d in FLOATS + INTS]
    types += [("bf16", "f32"), ("f16", "f32"), ("i8", "i32"), ("f32", "bf16"), ("f32", "f64")]
    for source, target in types:
        ulp = 2 if source in FLOATS else 0
        p = lambda *shape: positive(source, *shape)
        if (source, target) == ("f32", "f64"):
            ulp = 1 << 20  # XLA may keep products in f32
            continue
        run(p(3, 7), p(7, 4), [1], [0], [], [], target, ulp)
        run(p(3, 7), p(4, 7), [1], [1], [], [], target, ulp)
        run(p(2, 3, 5), p(5, 2, 4), [2], [0], [0], [1], target, ulp)
        run(p(5, 2, 3, 4), p(3, 5, 6, 2), [0, 2], [1, 0], [1], [3], target, ulp)
    run(positive("f32", 3), positive("f32", 4), [], [], [], [], "f32", 2)
    run(positive("f32", 3), positive("f32", 3), [0], [0], [], [], "f32", 2)
    run(positive("f32", 3, 0), positive("f32", 0, 2), [1], [0], [], [], "f32", 0)
    run(positive("f32", 2, 3), positive("f32", 2, 3), [], [], [0, 1], [0, 1], "f32", 2)


def rms_norm(x, w, eps, dtype):
    wide = np.float64 if x.dtype == np.float64 else np.float32
    v = x.astype(wide)
    return (v * lax.rsqrt(jnp.mean(v * v, -1, keepdims=True) + eps) * w.astype(wide)).astype(dtype)


def attention_with(q, k, v, start, length, first, sinks, scale, window, chunk, cap):
    """As transformers has it (masking_utils.py, models/gemma2 and gpt_oss): scores are scaled, capped and masked; sinks
    are one more column of the softmax, dropped behind it."""
    wide = np.float64 if q.dtype == np.float64 else np.float32
    group = q.shape[2] // k.shape[1]
    k, v = (jnp.repeat(t.astype(wide), group, 1) for t in (k, v))
    scores = jnp.einsum("bshd,bhcd->bhsc", q.astype(wide), k, precision="highest") * scale
    if cap:
        scores = cap * jnp.tanh(scores / cap)
    position = start[:, None, None] + jnp.arange(q.shape[1])[:, None]
    key = jnp.arange(k.shape[2])[None, None, :]
    seen = key <= position
    if window:
        seen &= key > position - window
    if chunk:
        seen &= key // chunk == position // chunk
    if first is not None:
        seen &= key >= first[:, :, None]
    scores = jnp.where(seen[:, None], scores, -jnp.inf)
    if sinks is not None:
        sink = jnp.broadcast_to(sinks.astype(wide)[None, :, None, None], scores[..., :1].shape)
        weights = jax.nn.softmax(jnp.concatenate([scores, sink], -1), -1)[..., :-1]
    else:
        weights = jax.nn.softmax(scores, -1)
    y = jnp.einsum("bhsc,bhcd->bshd", weights, v, precision="highest")
    real = jnp.arange(q.shape[1]) < length[:, None]
    return jnp.where(real[..., None, None], y, 0).astype(q.dtype)


KINDS_OF_ATTENTION = [
    # window, chunk, cap, sinks, first
    (2, 0, 0, False, False), (3, 0, 1.5, True, False), (0, 3, 0, True, True), (50, 4, 0.7, False, True),
    (0, 0, 0, True, False), (2, 3, 2.0, True, True),
]


def kinds_of_attention(dtype):
    """Operands, the names of those that may be missing, and attributes."""
    own = np.random.default_rng(33)
    for window, chunk, cap, sinks, first in KINDS_OF_ATTENTION:
        q, k, v, dy = (np.abs(own.standard_normal(s)).astype(NAMES[dtype])
                       for s in [(2, 5, 6, 3), (2, 3, 9, 3), (2, 3, 9, 3), (2, 5, 6, 3)])
        rows = np.array([0, 4], np.int32), np.array([5, 3], np.int32)
        more = []
        if first:
            more.append(np.array([[0, 0, 0, 3, 3], [1, 1, 6, 6, 6]], np.int32))
        if sinks:
            more.append(own.standard_normal(6).astype(NAMES["f32" if dtype == "bf16" else dtype]))
        attrs = {"scale": 0.25, "window": window, "chunk": chunk, "cap": cap, "sinks": sinks}
        attrs = {k: v for k, v in attrs.items() if v}

        def f(q, k, v, start, length, *more):
            return attention_with(q, k, v, start, length, more[0] if first else None,
                                  more[-1] if sinks else None, 0.25, window, chunk, cap)

        yield f, [q, k, v, *rows], more, dy, attrs


def attention(q, k, v, start, length, scale):
    wide = np.float64 if q.dtype == np.float64 else np.float32
    group = q.shape[2] // k.shape[1]
    k, v = (jnp.repeat(t.astype(wide), group, 1) for t in (k, v))
    scores = jnp.einsum("bshd,bhcd->bhsc", q.astype(wide), k, precision="highest") * scale
    query, key = jnp.arange(q.shape[1])[:, None], jnp.arange(k.shape[2])[None, :]
    seen = key <= start[:, None, None] + query
    weights = jax.nn.softmax(jnp.where(seen[:, None], scores, -jnp.inf), -1)
    y = jnp.einsum("bhsc,bhcd->bshd", weights, v, precision="highest")
    return jnp.where((query[:, 0] < length[:, None])[..., None, None], y, 0).astype(q.dtype)


def cross_entropy(logits, targets):
    wide = logits.astype(np.float64 if logits.dtype == np.float64 else np.float32)
    lse = jax.nn.logsumexp(wide, -1)
    known = (targets >= 0) & (targets < logits.shape[-1])
    picked = jnp.take_along_axis(wide, jnp.where(known, targets, 0)[..., None], -1)[..., 0]
    return jnp.where(known, lse - picked, 0).astype(np.float32), lse.astype(np.float32)


def composites():
    for source, weight, target in [("f64", "f64", "f64"), ("f32", "f32", "f32"), ("bf16", "bf16", "bf16"),
                                   ("bf16", "f32", "bf16"), ("f16", "f16", "f32"), ("f32", "f32", "bf16")]:
        check("composite", "rms_norm", lambda x, w: rms_norm(x, w, 1e-5, NAMES[target]),
              [draw(source, 2, 3, 20), draw(weight, 20)], {"eps": 1e-5},
              ulp=8 if target in ("f32", "f64") else 1)

    def rope(x, position, inv_freq, interleaved):
        wide = np.float64 if x.dtype == np.float64 else np.float32
        v = x.astype(wide)
        angle = position.astype(np.float32)[..., None, None] * inv_freq
        c, s = jnp.cos(angle).astype(wide), jnp.sin(angle).astype(wide)
        half = x.shape[-1] // 2
        a, b = (v[..., 0::2], v[..., 1::2]) if interleaved else (v[..., :half], v[..., half:])
        y = a * c - b * s, b * c + a * s
        y = jnp.stack(y, -1).reshape(x.shape) if interleaved else jnp.concatenate(y, -1)
        return y.astype(x.dtype)

    inv_freq = (10000.0 ** (-np.arange(0, 12, 2) / 12)).astype(np.float32)
    for dtype in FLOATS:
        for interleaved in (False, True):
            position = random.integers(0, 4000, (2, 3)).astype(np.int32)
            x = draw(dtype, 2, 3, 2, 12)
            check("composite", "rope", lambda *v: rope(*v, interleaved), [x, position, inv_freq],
                  {"interleaved": interleaved}, ulp={"f32": 1 << 12, "f64": 1 << 40}.get(dtype, 16))

    for dtype in FLOATS:
        for kv_heads in (1, 3, 6):
            q, k, v = (np.abs(draw(dtype, *s)) for s in
                       [(2, 3, 6, 3), (2, kv_heads, 6, 3), (2, kv_heads, 6, 3)])
            rows = np.array([0, 4], np.int32), np.array([3, 2], np.int32)
            check("composite", "attention", lambda *t: attention(*t, 0.25), [q, k, v, *rows],
                  {"scale": 0.25}, ulp=32 if dtype in ("f32", "f64") else 1)

    for dtype in FLOATS:
        for f, inputs, more, _, attrs in kinds_of_attention(dtype):
            check("composite", "attention", f, inputs + more, attrs,
                  ulp=64 if dtype in ("f32", "f64") else 1)

    own = np.random.default_rng(34)

    def pages_of(x, slot, table):
        """Of pages [pages, kv, page, dim] those of each slot, as if they were one."""
        rows = jnp.moveaxis(x[table[slot]], 1, 2)  # [batch, kv, n, page, dim]
        return rows.reshape(*rows.shape[:2], -1, rows.shape[4])

    for dtype in FLOATS:
        for seq in (1, 3):
            for page in (3, 6):
                n = 6 // page
                q, k, v = (np.abs(own.standard_normal(s)).astype(NAMES[dtype])
                           for s in [(3, seq, 6, 3), (5 * n, 2, page, 3), (5 * n, 2, page, 3)])
                rows = np.array([0, 3, 2], np.int32), np.array([seq, seq, 1], np.int32)
                slot = np.array([4, 0, 4], np.int32)
                table = own.permutation(5 * n).astype(np.int32).reshape(5, n)
                check("composite", "attention", lambda q, k, v, start, length, slot, table: attention(
                    q, pages_of(k, slot, table), pages_of(v, slot, table), start, length, 0.25),
                      [q, k, v, *rows, slot, table],
                      {"scale": 0.25}, ulp=32 if dtype in ("f32", "f64") else 1)

    def cache_update(cache, update, start, slot=None, table=None):
        place = start[:, None] + jnp.arange(update.shape[1])
        rows, page = jnp.arange(update.shape[0])[:, None], cache.shape[2]
        there = (place >= 0) & (place < page * (1 if table is None else table.shape[1]))
        if slot is not None:
            there &= ((slot >= 0) & (slot < table.shape[0]))[:, None]
            rows = table[jnp.where(there, slot[:, None], 0), jnp.where(there, place // page, 0)]
            there &= rows >= 0
        return cache.at[jnp.where(there, rows, cache.shape[0]), :, place % page].set(update, mode="drop")

    for dtype in ("f32", "bf16", "i8"):
        for start in ([0, 2], [4, -1], [5, -9]):
            check("composite", "cache_update", cache_update,
                  [draw(dtype, 2, 3, 5, 4), draw(dtype, 2, 2, 3, 4), np.array(start, np.int32)])
            for slot in ([1, 3], [0, -1], [4, 2]):
                cache, update = (own.integers(-9, 9, s).astype(NAMES[dtype])
                                 for s in [(9, 3, 3, 4), (2, 2, 3, 4)])
                table = np.array([[3, 8], [0, -1], [5, 2], [7, 9]], np.int32)
                check("composite", "cache_update", cache_update,
                      [cache, update, np.array(start, np.int32), np.array(slot, np.int32), table])

    for dtype in FLOATS:
        logits = draw(dtype, 4, 3, 11, spread=1.0) + NAMES[dtype](8)
        logits[0, 0, :3] = -np.inf
        targets = random.integers(0, 11, (4, 3)).astype(np.int32)
        targets[1] = [-100, -1, 11]
        targets[0, 0] = 1
        # A small loss is the difference of two larger numbers: their error counts.
        check("composite", "softmax_cross_entropy", cross_entropy, [logits, targets], ulp=1 << 8)

    def argmax(x, axis):
        if jnp.issubdtype(x.dtype, jnp.floating):
            x = jnp.where(jnp.isnan(x), -jnp.inf, x)
        return lax.argmax(x, axis, np.int32)

    for dtype in FLOATS + INTS:
        x = random.integers(0, 5, (3, 4, 5)).astype(NAMES[dtype])
        for axis in range(3):
            check("composite", "argmax", lambda v: argmax(v, axis), [x], {"axis": axis})
        if dtype in FLOATS:
            y = draw(dtype, 4, 6)
            y[0, 2], y[1, :], y[2, :3], y[3, 1] = np.nan, np.nan, -np.inf, np.inf
            check("composite", "argmax", lambda v: argmax(v, 1), [y], {"axis": 1})

    from jax.extend.random import threefry2x32_p
    check("composite", "random_bits", lambda *v: threefry2x32_p.bind(*v)[0],
          [draw("u32", 33) for _ in range(4)])

    def keep_likeliest(x, k, p, min_p):
        rows = jnp.arange(x.shape[0])[:, None]
        order = jnp.argsort(-x, axis=1)
        s = x[rows, order]
        share = jnp.exp(s.astype(jnp.float64) - s[:, :1])
        share = jnp.where(jnp.arange(x.shape[1]) < jnp.where(k > 0, k, x.shape[1])[:, None], share, 0)
        before = jnp.cumsum(share, 1) - share
        keep = (before < p[:, None] * share.sum(1, keepdims=True)) | (p[:, None] >= 1)
        keep = (keep & (share > 0) & (share >= min_p[:, None])) | (jnp.arange(x.shape[1]) == 0)
        least = jnp.where(keep, s, jnp.inf).min(1, keepdims=True)
        return jnp.where(x >= least, x, -jnp.inf).astype(jnp.float32)

    own = np.random.default_rng(20260102)  # what comes after draws what it drew before
    for n in (1, 5, 40):
        x = own.normal(0, 2, (6, n)).astype(np.float32)
        check("composite", "keep_likeliest", keep_likeliest,
              [x, np.array([0, 3, 7, 1, 0, 100], np.int32), np.array([0.9, 1, 0.6, 0.5, 0, 2], np.float32),
               np.array([0, 0, 0.01, 0, 0, 0.2], np.float32)])

    def categorical(x, greedy, key, position):
        shape = x.shape
        def rows(v):
            return jnp.broadcast_to(v[:, None], shape)
        entry = jnp.broadcast_to(jnp.arange(shape[1], dtype=np.uint32), shape)
        bits, _ = threefry2x32_p.bind(rows(key[:, 0]), rows(key[:, 1]), entry,
                                      rows(position.astype(np.uint32)))
        u = ((bits >> 9).astype(np.float32) + 0.5) * np.float32(2 ** -23)
        return argmax(jnp.where(greedy[:, None], x, x - jnp.log(-jnp.log(u))), 1)

    for n in (1, 5, 40, 400):
        x = own.normal(0, 2, (6, n)).astype(np.float32)
        x[1, ::2], x[5, 1::3] = -np.inf, np.nan
        check("composite", "categorical", categorical,
              [x, np.array([0, 0, 1, 0, 0, 0], bool), own.integers(0, 1 << 32, (6, 2)).astype(np.uint32),
               np.array([0, 1, 2, 77, 100000, -3], np.int32)])


def gradients():
    """Of composites, by jax's own differentiation of the same formulas. Inputs are positive, which keeps
    the sums from cancelling; what cancels by its nature is allowed for in the tolerance."""
    def run(op, f, n, inputs, attrs, ulp):
        def back(*v):
            return jax.vjp(lambda *x: f(*x, *v[n:-1]), *v[:n])[1](v[-1])
        check("gradient", op, back, inputs, attrs, ulp)

    loose = {"f64": 1 << 30, "f32": 1 << 12, "bf16": 4, "f16": 16}
    for source, weight, target in [("f64", "f64", "f64"), ("f32", "f32", "f32"), ("bf16", "bf16", "bf16"),
                                   ("bf16", "f32", "bf16"), ("f16", "f16", "f32"), ("f32", "f32", "bf16")]:
        run("rms_norm_backward", lambda x, w: rms_norm(x, w, 1e-5, NAMES[target]), 2,
            [draw(source, 2, 3, 20), draw(weight, 20), draw(target, 2, 3, 20)], {"eps": 1e-5},
            loose[source])
    for dtype in FLOATS:
        for kv_heads in (1, 3, 6):
            q, k, v, dy = (np.abs(draw(dtype, *s)) for s in
                           [(2, 3, 6, 3), (2, kv_heads, 6, 3), (2, kv_heads, 6, 3), (2, 3, 6, 3)])
            rows = np.array([0, 3], np.int32), np.array([3, 2], np.int32)
            run("attention_backward", lambda *t: attention(*t, 0.25), 3, [q, k, v, *rows, dy],
                {"scale": 0.25}, loose[dtype])
    for dtype in FLOATS:
        for f, inputs, more, dy, attrs in kinds_of_attention(dtype):
            def back(q, k, v, start, length, dy, *more, f=f, sinks=attrs.get("sinks", False)):
                whole = more[:-1] if sinks else more
                grads = jax.vjp(lambda q, k, v, *s: f(q, k, v, start, length, *whole, *s), q, k, v,
                                *more[len(whole):])[1](dy)
                return grads
            check("gradient", "attention_backward", back, inputs + [dy] + more, attrs,
                  ulp=4 * loose[dtype])
    for dtype in FLOATS:
        logits = draw(dtype, 4, 3, 11, spread=1.0)
        targets = random.integers(0, 11, (4, 3)).astype(np.int32)
        targets[1] = [-100, -1, 11]
        lse = np.asarray(jax.jit(cross_entropy)(logits, targets)[1])
        dloss, dlse = np.abs(draw("f32", 4, 3)), np.abs(draw("f32", 4, 3))
        back = lambda x, t, _, a, b: jax.vjp(lambda v: cross_entropy(v, t), x)[1]((a, b))[0]
        check("gradient", "softmax_cross_entropy_backward", back, [logits, targets, lse, dloss, dlse],
              ulp=1 << 34 if dtype == "f64" else loose[dtype])


def quantized():
    """Quantized weights, plain and in panels of 16 rows, by numpy's own indexing of what src/graph/panels.h says."""
    def rows(q, scale):
        panels = q.shape[0]
        if q.ndim == 5:  # nibbles: the halves of a byte are four columns apart
            w = q.transpose(0, 2, 1, 4, 3).reshape(panels * 16, -1)
        else:
            w = q.transpose(0, 2, 1, 3).reshape(panels * 16, -1)
        steps = jnp.repeat(scale.astype(np.float32).transpose(0, 2, 1).reshape(panels * 16, -1),
                           w.shape[1] // scale.shape[1], 1)
        return w.astype(np.float32) * steps

    def product(x, q, scale, n):
        return jnp.einsum("mk,nk->mn", x.astype(np.float32), rows(q, scale)[:n, :x.shape[1]],
                          precision="highest")

    for target in ("f32", "bf16"):
        q, scale = draw("i8", 2, 3, 16, 4), draw("f32", 2, 1, 16)
        check("quantized", "dequantize", lambda q, s: rows(q, s)[:21, :10].astype(NAMES[target]),
              [q, scale], {"rows": 1})
        n, step = draw("i4", 3, 2, 4, 12), draw("bf16", 3, 2, 6)  # groups of 8 of 48 columns
        check("quantized", "dequantize",
              lambda q, s: (q.astype(np.float32) *
                            jnp.repeat(s.astype(np.float32), 8, -1).reshape(q.shape)).astype(NAMES[target]),
              [n, step])
        n, step = draw("i4", 1, 6, 16, 4, 2), draw("bf16", 1, 3, 16)
        check("quantized", "dequantize",
              lambda q, s: rows(q, s)[:12].reshape(3, 4, 6, 8).astype(NAMES[target]), [n, step],
              {"rows": 2})
        # Sums cancel: the error of their parts counts.
        x, y = np.abs(draw("f32", 3, 10)), np.abs(draw("bf16", 3, 48))
        scale, step = np.abs(scale), np.abs(step)
        loose = 1 << 12 if target == "f32" else 4
        check("quantized", "linear",
              lambda x, q, s: product(x, q, s, 21).astype(NAMES[target]),
              [x, q, scale], {"contract": 1, "weights": 1}, ulp=loose)
        check("quantized", "linear",
              lambda y, *w: [product(y, *w[:2], 12).astype(NAMES[target]),
                             product(y, *w[2:], 16)],
              [y, n, step, n, step], {"contract": 1, "weights": 2}, ulp=1 << 12)

    for target in FLOATS[1:]:
        x, step, q, scale = draw("i8", 3, 10), draw("bf16", 3, 1), draw("i8", 2, 3, 16, 4), draw("f32", 2, 1, 16)
        check("quantized", "linear_int8",
              lambda x, step, q, s: (product(x, q, s, 21) * step.astype(np.float32)).astype(NAMES[target]),
              [x, step, q, scale], {"rows": 1}, ulp=1 << 12 if target == "f32" else 4)
        q, scale = draw("i8", 3, 7, 2, 5), draw("f32", 3, 7, 1)
        check("quantized", "linear_int8",
              lambda x, step, q, s: (jnp.einsum("mk,abk->mab", x.astype(np.float32),
                                                q.reshape(3, 7, 10).astype(np.float32), precision="highest")
                                     * s[..., 0] * step.astype(np.float32)[..., None]).astype(NAMES[target]),
              [x, step, q, scale], ulp=1 << 12 if target == "f32" else 4)

    def steps(x):
        x = x.astype(np.float32)
        scale = (jnp.max(jnp.abs(x), -1, keepdims=True) / np.float32(127)).astype(NAMES["bf16"])
        step = scale.astype(np.float32)
        usable = (step > 0) & jnp.isfinite(step)
        q = jnp.clip(jnp.round(x / step), -127, 127)
        return [jnp.where(usable, q, 0).astype(np.int8), scale]

    for dtype in FLOATS[1:]:
        x = draw(dtype, 3, 5, 12)
        x[0, 1] = 0
        x[1, 0, 3] = np.inf
        x[2, 4, 7] = np.nan
        check("quantized", "quantize_rows", steps, [x])


def grouped():
    """Rows times the matrix of their group, one by one."""
    group = np.array([[[2, 0], [1, 1]], [[3, -1], [0, 2]], [[1, 0], [0, 0]]], np.int32)
    member = (group[..., None] == np.arange(3)).astype(np.float32)

    def slots(x):
        x = x.astype(np.float32)
        return x if x.ndim == 4 else jnp.broadcast_to(x[:, :, None], (3, 2, 2, x.shape[-1]))

    def dot(equation):
        return lambda x, w, g: jnp.einsum(equation, member, slots(x), w.astype(np.float32), precision="highest")

    for dtype in ("f32", "bf16"):
        for x in (draw(dtype, 3, 2, 6), draw(dtype, 3, 2, 2, 6)):
            for contract, shape, equation in ((2, (3, 5, 6), "bsje,bsjk,enk->bsjn"), (1, (3, 6, 5), "bsje,bsjk,ekn->bsjn")):
                check("grouped", "grouped_dot", lambda x, w, g: dot(equation)(x, w, g).astype(NAMES[dtype]),
                      [x, draw(dtype, *shape), group], {"contract": contract}, ulp=1 << 14 if dtype == "f32" else 4)
            check("grouped", "grouped_outer",
                  lambda a, b, g: jnp.einsum("bsje,bsjn,bsjk->enk", member, slots(a), slots(b),
                                             precision="highest").astype(NAMES[dtype]),
                  [x, draw(dtype, 3, 2, 2, 4), group], ulp=1 << 14 if dtype == "f32" else 4)

    # Weights of 16 rows a group, in panels.
    for n in (1, 2):
        x, weights = draw("bf16", 3, 2, 6), [draw("bf16", 3, 3, 16, 2) for _ in range(n)]

        def run(x, *rest):
            y = [jnp.einsum("bsje,bsjk,enk->bsjn", member, slots(x),
                            p.astype(np.float32).transpose(0, 2, 1, 3).reshape(3, 16, 6), precision="highest")
                 for p in rest[:-1]]
            return y if len(y) > 1 else y[0]

        check("grouped", "grouped_linear", run, [x, *weights, group], {"weights": n}, ulp=1 << 16)


def collectives():
    """On four devices, of XLA's CPU client."""
    def run(op, f, x, attrs, ulp=0):
        y = np.asarray(jax.pmap(f, axis_name="d")(x))
        add("collective", op, list(x), list(y), attrs, ulp, devices=len(x))

    groupings = [[[0, 1, 2, 3]], [[0, 2], [3, 1]], [[3, 0, 2, 1]], [[0], [1], [2], [3]]]
    for groups in groupings:
        size = len(groups[0])
        base = {"group_size": size, "groups": [d for g in groups for d in g]}
        g = groups
        for dtype in ("f32", "bf16", "i32"):
            x = draw(dtype, 4, 3, 2)
            x = np.abs(x) if dtype in FLOATS else x
            ulp = 2 if dtype in FLOATS else 0
            if dtype == "bf16":
                # Sum in f32, as ours; pmap would round at each step.
                total = lambda v: lax.psum(v.astype(np.float32), "d", axis_index_groups=g).astype(v.dtype)
            else:
                total = lambda v: lax.psum(v, "d", axis_index_groups=g)
            run("all_reduce", total, x, {"kind": "sum", **base}, ulp)
            run("all_reduce", lambda v: lax.pmax(v, "d", axis_index_groups=g), x, {"kind": "max", **base})
            run("all_reduce", lambda v: lax.pmin(v, "d", axis_index_groups=g), x, {"kind": "min", **base})
        for dtype in ("f32", "i8"):
            x = draw(dtype, 4, 2, 2, 3)
            for axis in (0, 1, 2):
                run("all_gather",
                    lambda v: lax.all_gather(v, "d", axis_index_groups=g, axis=axis, tiled=True), x,
                    {"axis": axis, **base})
            x = draw(dtype, 4, 1, 4, 4)
            for split, concat in [(1, 1), (1, 0), (2, 1), (1, 2)]:
                run("all_to_all", lambda v: lax.all_to_all(v, "d", split, concat, axis_index_groups=g,
                                                          tiled=True),
                    x, {"split_axis": split, "concat_axis": concat, **base})
        for dtype in ("f32", "i32"):
            x = draw(dtype, 4, 1, 4, 4)
            x = np.abs(x) if dtype in FLOATS else x
            for axis in (1, 2):
                run("reduce_scatter",
                    lambda v: lax.psum_scatter(v, "d", scatter_dimension=axis, axis_index_groups=g,
                                               tiled=True),
                    x, {"kind": "sum", "axis": axis, **base}, ulp=2 if dtype in FLOATS else 0)
    for pairs_ in [[(0, 1), (1, 2), (2, 3), (3, 0)], [(0, 3), (1, 1)], []]:
        run("collective_permute", lambda v: lax.ppermute(v, "d", pairs_), draw("f32", 4, 2, 3),
            {"pairs": [d for p in pairs_ for d in p]})
    y = np.asarray(jax.pmap(lambda v: lax.axis_index("d").astype(np.uint32), axis_name="d")(np.zeros(4)))
    add("collective", "partition_id", [], [np.uint32(v) for v in y], devices=4)


def main():
    directory = sys.argv[1] if len(sys.argv) > 1 else os.path.join(
        os.path.dirname(os.path.abspath(__file__)), "..", "data", "ops")
    os.makedirs(directory, exist_ok=True)
    for make in (leaves, unary, convert, binary, ternary, shapes, dynamic, gather, scatter, sort, reduce,
                 running_products, dot, composites, collectives, gradients, quantized, grouped):
        make()
    for file, cases in files.items():
        with open(os.path.join(directory, file + ".json"), "w") as f:
            f.write("[\n" + ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases) + "\n]\n")
        print(f"{file}: {len(cases)} cases")


if __name__ == "__main__":
    main()
