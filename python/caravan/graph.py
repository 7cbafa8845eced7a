"""Graphs of tensor operations: built by calls or read from text, compiled for a mesh of devices, run on numpy arrays.

    g = caravan.Graph("mlp")
    x, w = g.parameter("x", (64, 8)), g.parameter("w", (8, 32))
    h = caravan.einsum("bi,ih->bh", x, w).tanh().mark("data", "model")
    loss = (h * h).sum() / 64
    (dw,) = g.gradient(loss, [w])
    g.output(w - 0.05 * dw, into=w)
    g.output(loss)

    mesh = caravan.Mesh("data=2,model=2")
    step = mesh.compile(g)
    w, loss = step(x=numpy_x, w=numpy_w)

Meanings are those of docs/GRAPH.md. Arrays in are numpy's, or whatever numpy takes; they are read, and those out are new.
Without numpy, in are lists and buffers of the exact size, and out memoryviews of the array's shape. A mistake is a CaravanError
at the line that made it.
"""

from __future__ import annotations

import ctypes
import functools
import operator
import struct
import sys
from typing import Any, Iterable, Mapping, Optional, Sequence, Tuple, Union

from . import _c, _ranks
from ._c import CaravanError

try:
    import numpy as _np  # type: ignore[import-not-found,unused-ignore]
except ImportError:  # lists and buffers do
    _np = None  # type: ignore[assignment,unused-ignore]

Number = Union[int, float, bool]
Axis = Union[None, int, Sequence[int]]
Shape = Sequence[int]

# Of each dtype: its bytes, what numpy calls it, and its letter in struct.
_STORED = {"f64": (8, "float64", "d"), "f32": (4, "float32", "f"), "bf16": (2, "uint16", "H"),
           "f16": (2, "float16", "e"), "i32": (4, "int32", "i"), "u32": (4, "uint32", "I"), "i8": (1, "int8", "b"),
           "i1": (1, "bool", "?")}
_FLOATS = ("f64", "f32", "bf16", "f16")


def _i64s(values: Iterable[int]) -> Any:
    numbers = [operator.index(v) for v in values]
    return (ctypes.c_int64 * max(len(numbers), 1))(*numbers)


def _ints(values: Iterable[int]) -> Any:
    numbers = [operator.index(v) for v in values]
    return (ctypes.c_int * max(len(numbers), 1))(*numbers)


def _type(dtype: str, shape: Shape) -> _c.Type:
    if dtype not in _c.DTYPES:
        raise CaravanError(f"{dtype!r} is not a dtype; there are {', '.join(_c.DTYPES)}")
    if len(shape) > _c.MAX_RANK:
        raise CaravanError(f"a tensor has at most {_c.MAX_RANK} dimensions, not {len(shape)}")
    return _c.Type(_c.DTYPES.index(dtype), len(shape), (ctypes.c_int64 * _c.MAX_RANK)(*map(operator.index, shape)))


def _axes_of(axis: Axis, rank: int) -> list[int]:
    axes = range(rank) if axis is None else [axis] if isinstance(axis, int) else axis
    return sorted(_axis(a, rank) for a in axes)


def _axis(axis: int, rank: int) -> int:
    if not -rank <= axis < rank:
        raise CaravanError(f"there is no axis {axis} in a tensor of {rank} dimensions", _c.ESHAPE)
    return axis % rank


class Graph:
    """A graph of tensor operations on whole shapes; it is built by its parameters' operations."""

    def __init__(self, name: str = "graph", *, _pointer: Optional[int] = None) -> None:
        self._pointer = _pointer or _c.cvn_graph_new(name.encode())
        self._files: dict[str, bytes] = {}

    @classmethod
    def parse(cls, text: str, name: str = "graph") -> "Graph":
        """A graph from its text (docs/GRAPH.md), as str(graph) gives it. name: what errors call the text."""
        data = text.encode()
        return cls(_pointer=_c.cvn_graph_parse(data, len(data), name.encode()))

    @classmethod
    def from_stablehlo(cls, text: str, name: str = "module") -> "Graph":
        """The graph of a StableHLO module in MLIR text, as jax.jit(f).lower(…).as_text() gives it (docs/STABLEHLO.md)."""
        data = text.encode()
        return cls(_pointer=_c.cvn_graph_from_stablehlo(data, len(data), name.encode()))

    def __del__(self) -> None:
        if getattr(self, "_pointer", None):
            _c.cvn_graph_free(self._pointer)
            self._pointer = None

    def __str__(self) -> str:
        return str(_c.cvn_graph_print(self._pointer))

    def stablehlo(self) -> str:
        """The graph as a StableHLO module."""
        return str(_c.cvn_graph_stablehlo(self._pointer))

    def partition(self, mesh: str) -> "Graph":
        """The graph that each device of a mesh, "data=2,model=2", runs; nothing is run and no devices are needed."""
        return Graph(_pointer=_c.cvn_partition(self._pointer, mesh.encode()))

    # ---- building ----

    def _check(self) -> None:
        _c.cvn_graph_check(self._pointer)

    def _here(self) -> int:
        """Errors of the next operation name the line outside of this file that asks for it."""
        frame: Any = sys._getframe(1)
        while frame.f_back and frame.f_code.co_filename == __file__:
            frame = frame.f_back
        name = frame.f_code.co_filename
        self._files.setdefault(name, name.encode("utf-8", "replace"))
        _c.cvn_at(self._pointer, self._files[name], frame.f_lineno)
        return int(self._pointer)

    def _value(self, pointer: Optional[int]) -> "Value":
        self._check()
        assert pointer is not None  # or the graph has an error, which is raised
        return Value(self, pointer)

    def parameter(self, name: str, shape: Shape = (), dtype: str = "f32") -> "Value":
        """The next input."""
        return self._value(_c.cvn_parameter(self._here(), name.encode(), _type(dtype, shape)))

    def output(self, value: "Value", into: Optional["Value"] = None) -> None:
        """Makes a value the next output. into: the parameter whose memory it is computed into, such as weights that are
        updated; where that is an Array, the next run goes on from there."""
        _c.cvn_output_into(self._here(), value._pointer, into._pointer if into is not None else None)
        self._check()

    def gradient(self, loss: "Value", wrt: Sequence["Value"]) -> Tuple["Value", ...]:
        """Appends the gradients of a scalar with respect to values, and returns them."""
        n = len(wrt)
        out = (ctypes.c_void_p * max(n, 1))()
        _c.cvn_gradient(self._here(), loss._pointer, n, (ctypes.c_void_p * max(n, 1))(*(v._pointer for v in wrt)), out)
        return tuple(self._value(p) for p in out[:n])

    def full(self, shape: Shape, value: Number, dtype: str = "f32") -> "Value":
        """A tensor of one value everywhere."""
        return self._value(_c.cvn_splat(self._here(), _type(dtype, shape), float(value)))

    def iota(self, shape: Shape, axis: int = 0, dtype: str = "i32") -> "Value":
        """Counts 0, 1, 2, … along an axis."""
        return self._value(_c.cvn_iota(self._here(), _type(dtype, shape), _axis(axis, len(shape))))

    def constant(self, data: Any, dtype: Optional[str] = None) -> "Value":
        """A tensor of the contents of an array, or of nested lists."""
        shape, found = _shape_and_dtype(data)
        kind = _type(dtype or found, shape)
        keep, address = _address_of(data, kind, "a constant")
        value = self._value(_c.cvn_constant(self._here(), kind, address))
        del keep
        return value

    # ---- what it is made of ----

    @property
    def parameters(self) -> dict[str, "Value"]:
        """The inputs by their names, in order."""
        return {_c.cvn_graph_parameter_name(self._pointer, i).decode():
                Value(self, _c.cvn_graph_parameter(self._pointer, i))
                for i in range(_c.cvn_graph_parameters(self._pointer))}

    @property
    def outputs(self) -> list["Value"]:
        return [Value(self, _c.cvn_graph_output(self._pointer, i)) for i in range(_c.cvn_graph_outputs(self._pointer))]

    def _type_of(self, value: Optional[int]) -> _c.Type:
        # The graph may be freed before the type is used.
        return _c.Type.from_buffer_copy(_c.cvn_value_type(value).contents)


class Value:
    """A tensor in a graph. Operators take numbers and values, and broadcast as numpy does."""

    __array_ufunc__ = None  # numpy leaves operators to this class

    def __init__(self, graph: Graph, pointer: int) -> None:
        self.graph, self._pointer = graph, pointer

    @property
    def shape(self) -> Tuple[int, ...]:
        kind = _c.cvn_value_type(self._pointer).contents
        return tuple(kind.dim[:kind.rank])

    @property
    def dtype(self) -> str:
        return _c.DTYPES[_c.cvn_value_type(self._pointer).contents.dtype]

    def __repr__(self) -> str:
        return f"<caravan.Value {self.dtype}[{','.join(map(str, self.shape))}]>"

    def _apply(self, function: Any, *args: Any) -> "Value":
        return self.graph._value(function(self.graph._here(), self._pointer, *args))

    def mark(self, *axes: Union[None, str, Sequence[str]], priority: int = 0) -> "Value":
        """Says how it lies on the mesh: for each dimension the axis that splits it, several, or None. Returns itself."""
        if len(axes) != len(self.shape):
            raise CaravanError(f"a tensor of {len(self.shape)} dimensions is marked by as many axes or None, not "
                               f"{len(axes)}", _c.ESHAPE)
        spec = _c.Spec(rank=len(axes), priority=priority)
        for dim, axis in zip(spec.dim, axes):
            names = [] if axis is None else [axis] if isinstance(axis, str) else list(axis)
            if len(names) > _c.MAX_SPEC_AXES:
                raise CaravanError(f"at most {_c.MAX_SPEC_AXES} axes split a dimension")
            dim.n = len(names)
            for i, name in enumerate(names):
                dim.axis[i] = name.encode()
        _c.cvn_mark_sharding(self.graph._here(), self._pointer, ctypes.byref(spec))
        self.graph._check()
        return self

    # ---- elementwise ----

    def __neg__(self) -> "Value":
        return self._apply(_c.cvn_negate)

    def __abs__(self) -> "Value":
        return self._apply(_c.cvn_abs)

    def __invert__(self) -> "Value":
        """Logical not of bools, bitwise of integers."""
        return self._apply(_c.cvn_not)

    def sign(self) -> "Value":
        return self._apply(_c.cvn_sign)

    def exp(self) -> "Value":
        return self._apply(_c.cvn_exponential)

    def log(self) -> "Value":
        return self._apply(_c.cvn_log)

    def log1p(self) -> "Value":
        return self._apply(_c.cvn_log_plus_one)

    def expm1(self) -> "Value":
        return self._apply(_c.cvn_exponential_minus_one)

    def sqrt(self) -> "Value":
        return self._apply(_c.cvn_sqrt)

    def rsqrt(self) -> "Value":
        return self._apply(_c.cvn_rsqrt)

    def tanh(self) -> "Value":
        return self._apply(_c.cvn_tanh)

    def logistic(self) -> "Value":
        """1 / (1 + e^-x)"""
        return self._apply(_c.cvn_logistic)

    def sin(self) -> "Value":
        return self._apply(_c.cvn_sine)

    def cos(self) -> "Value":
        return self._apply(_c.cvn_cosine)

    def floor(self) -> "Value":
        return self._apply(_c.cvn_floor)

    def is_finite(self) -> "Value":
        return self._apply(_c.cvn_is_finite)

    def astype(self, dtype: str) -> "Value":
        """Floats to integers truncate and saturate."""
        return self if dtype == self.dtype else self._apply(_c.cvn_convert, _type(dtype, ()).dtype)

    def _like(self, other: Any) -> "Value":
        """The other operand: a value, or a number of this dtype."""
        if isinstance(other, Value):
            if other.graph is not self.graph:
                raise CaravanError("both operands must be of one graph")
            return other
        if isinstance(other, (bool, int, float)) or hasattr(other, "__float__") and not getattr(other, "shape", ()):
            return self.graph.full((), float(other), self.dtype)
        return self.graph.constant(other, self.dtype)

    def _with(self, function: Any, other: Any, swapped: bool = False) -> "Value":
        a, b = _broadcast(*((self._like(other), self) if swapped else (self, self._like(other))))
        return a._apply(function, b._pointer)

    def __add__(self, other: Any) -> "Value":
        return self._with(_c.cvn_add, other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> "Value":
        return self._with(_c.cvn_subtract, other)

    def __rsub__(self, other: Any) -> "Value":
        return self._with(_c.cvn_subtract, other, True)

    def __mul__(self, other: Any) -> "Value":
        return self._with(_c.cvn_multiply, other)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> "Value":
        """Of integers it truncates, and x / 0 is -1."""
        return self._with(_c.cvn_divide, other)

    def __rtruediv__(self, other: Any) -> "Value":
        return self._with(_c.cvn_divide, other, True)

    def __mod__(self, other: Any) -> "Value":
        """The remainder with the sign of the left operand, unlike Python's."""
        return self._with(_c.cvn_remainder, other)

    def __pow__(self, other: Any) -> "Value":
        return self._with(_c.cvn_power, other)

    def __and__(self, other: Any) -> "Value":
        return self._with(_c.cvn_and, other)

    def __or__(self, other: Any) -> "Value":
        return self._with(_c.cvn_or, other)

    def __xor__(self, other: Any) -> "Value":
        return self._with(_c.cvn_xor, other)

    def __lshift__(self, other: Any) -> "Value":
        return self._with(_c.cvn_shift_left, other)

    def __rshift__(self, other: Any) -> "Value":
        """Logical: zeros come in."""
        return self._with(_c.cvn_shift_right_logical, other)

    def _compare(self, direction: str, other: Any) -> "Value":
        a, b = _broadcast(self, self._like(other))
        return self.graph._value(_c.cvn_compare_values(self.graph._here(), _c.COMPARE.index(direction), a._pointer,
                                                       b._pointer))

    def __lt__(self, other: Any) -> "Value":
        return self._compare("LT", other)

    def __le__(self, other: Any) -> "Value":
        return self._compare("LE", other)

    def __gt__(self, other: Any) -> "Value":
        return self._compare("GT", other)

    def __ge__(self, other: Any) -> "Value":
        return self._compare("GE", other)

    def equal(self, other: Any) -> "Value":
        """Elementwise; == is whether it is the same value of the graph."""
        return self._compare("EQ", other)

    def not_equal(self, other: Any) -> "Value":
        return self._compare("NE", other)

    def clamp(self, low: Any, high: Any) -> "Value":
        """min(max(x, low), high)"""
        return self.graph._value(_c.cvn_clamp(self.graph._here(), self._like(low)._pointer, self._pointer,
                                              self._like(high)._pointer))

    # ---- shape ----

    def broadcast_to(self, shape: Shape) -> "Value":
        """Stretched over a shape, as numpy does."""
        shape = tuple(shape)
        if shape == self.shape:
            return self
        first = len(shape) - len(self.shape)
        if first < 0 or any(n not in (1, m) for n, m in zip(self.shape, shape[first:])):
            raise CaravanError(f"{list(self.shape)} does not broadcast to {list(shape)}", _c.ESHAPE)
        return self._apply(_c.cvn_broadcast_in_dim, _type(self.dtype, shape), _ints(range(first, len(shape))))

    def reshape(self, *shape: Any) -> "Value":
        """The same elements in another shape; one size may be -1."""
        sizes = [operator.index(n) for n in (shape[0] if len(shape) == 1 and not hasattr(shape[0], "__index__")
                                             else shape)]
        if -1 in sizes:
            known = functools.reduce(operator.mul, (n for n in sizes if n != -1), 1)
            sizes[sizes.index(-1)] = functools.reduce(operator.mul, self.shape, 1) // max(known, 1)
        return self._apply(_c.cvn_reshape, len(sizes), _i64s(sizes))

    def transpose(self, *permutation: int) -> "Value":
        """Dimension i is dimension permutation[i]; without one they are reversed."""
        order = list(permutation) or list(range(len(self.shape)))[::-1]
        if sorted(order) != list(range(len(self.shape))):
            raise CaravanError(f"{order} is not a permutation of {len(self.shape)} dimensions", _c.ESHAPE)
        return self._apply(_c.cvn_transpose, _ints(order))

    @property
    def T(self) -> "Value":
        return self.transpose()

    def __getitem__(self, index: Any) -> "Value":
        """Integers, slices with positive steps, None and …, as in numpy."""
        index = index if isinstance(index, tuple) else (index,)
        rank, taken = len(self.shape), sum(1 for i in index if i is not None and i is not Ellipsis)
        if taken > rank:
            raise CaravanError(f"{taken} indices for a tensor of {rank} dimensions", _c.ESHAPE)
        if Ellipsis not in index:
            index += (Ellipsis,)
        at = index.index(Ellipsis)
        index = index[:at] + (slice(None),) * (rank - taken) + index[at + 1:]
        start, limit, stride, shape, d = [], [], [], [], 0
        for i in index:
            if i is None:
                shape.append(1)
                continue
            size = self.shape[d]
            if isinstance(i, slice):
                first, last, step = i.indices(size)
                if step < 1:
                    raise CaravanError("slices go forwards; reverse() turns a tensor round")
                last = max(first, last)
                shape.append(-(-(last - first) // step))
            else:
                first = operator.index(i)
                if not -size <= first < size:
                    raise CaravanError(f"index {first} is outside of a dimension of {size}", _c.ESHAPE)
                first %= size
                last, step = first + 1, 1
            start.append(first)
            limit.append(last)
            stride.append(step)
            d += 1
        part = self._apply(_c.cvn_slice, _i64s(start), _i64s(limit), _i64s(stride))
        return part if part.shape == tuple(shape) else part.reshape(shape)

    def reverse(self, axis: Axis = None) -> "Value":
        axes = _axes_of(axis, len(self.shape))
        return self._apply(_c.cvn_reverse, len(axes), _ints(axes))

    def pad(self, low: Sequence[int], high: Sequence[int], value: Number = 0,
            interior: Optional[Sequence[int]] = None) -> "Value":
        """value before, after and between the elements; low and high may be negative."""
        rank = len(self.shape)
        between = [0] * rank if interior is None else interior
        if not len(low) == len(high) == len(between) == rank:
            raise CaravanError(f"padding of a tensor of {rank} dimensions has as many numbers", _c.ESHAPE)
        return self._apply(_c.cvn_pad, self._like(value)._pointer, _i64s(low), _i64s(high), _i64s(between))

    def dynamic_slice(self, starts: Sequence["Value"], sizes: Shape) -> "Value":
        """A part of these sizes that begins at starts, i32 scalars, clamped to be in bounds."""
        return self._apply(_c.cvn_dynamic_slice, self._pointers(starts), self._per_dim(sizes))

    def dynamic_update_slice(self, update: "Value", starts: Sequence["Value"]) -> "Value":
        """With `update` in place of the part that begins at starts."""
        return self._apply(_c.cvn_dynamic_update_slice, update._pointer, self._pointers(starts))

    def _pointers(self, values: Sequence["Value"]) -> Any:
        if len(values) != len(self.shape):
            raise CaravanError(f"there are {len(values)} starts for {len(self.shape)} dimensions", _c.ESHAPE)
        return (ctypes.c_void_p * max(len(values), 1))(*(v._pointer for v in values))

    def _per_dim(self, numbers: Shape) -> Any:
        if len(numbers) != len(self.shape):
            raise CaravanError(f"there are {len(numbers)} sizes for {len(self.shape)} dimensions", _c.ESHAPE)
        return _i64s(numbers)

    # ---- reductions, indexing ----

    def _reduce(self, kind: str, axis: Axis, keepdims: bool) -> "Value":
        axes = _axes_of(axis, len(self.shape))
        shape = [1 if d in axes else n for d, n in enumerate(self.shape)]
        result = self.graph._value(_c.cvn_reduce_dims(self.graph._here(), _c.REDUCE.index(kind), self._pointer,
                                                      len(axes), _ints(axes)))
        return result.reshape(shape) if keepdims else result

    def sum(self, axis: Axis = None, keepdims: bool = False) -> "Value":
        return self._reduce("SUM", axis, keepdims)

    def prod(self, axis: Axis = None, keepdims: bool = False) -> "Value":
        return self._reduce("PRODUCT", axis, keepdims)

    def max(self, axis: Axis = None, keepdims: bool = False) -> "Value":
        return self._reduce("MAX", axis, keepdims)

    def min(self, axis: Axis = None, keepdims: bool = False) -> "Value":
        return self._reduce("MIN", axis, keepdims)

    def all(self, axis: Axis = None, keepdims: bool = False) -> "Value":
        return self._reduce("ALL", axis, keepdims)

    def any(self, axis: Axis = None, keepdims: bool = False) -> "Value":
        return self._reduce("ANY", axis, keepdims)

    def mean(self, axis: Axis = None, keepdims: bool = False) -> "Value":
        n = functools.reduce(operator.mul, (self.shape[a] for a in _axes_of(axis, len(self.shape))), 1)
        return self.sum(axis, keepdims) / n

    def cumsum(self, axis: int = -1) -> "Value":
        return self._apply(_c.cvn_cumsum, _axis(axis, len(self.shape)))

    def cumprod(self, axis: int = -1) -> "Value":
        return self._apply(_c.cvn_cumprod, _axis(axis, len(self.shape)))

    def argmax(self, axis: int = -1) -> "Value":
        """The first of the largest, i32."""
        return self._apply(_c.cvn_argmax, _axis(axis, len(self.shape)))

    def softmax(self, axis: int = -1) -> "Value":
        e = (self - self.max(axis, keepdims=True)).exp()
        return e / e.sum(axis, keepdims=True)

    def sort(self, axis: int = -1, descending: bool = False) -> "Value":
        return self._apply(_c.cvn_sort, _axis(axis, len(self.shape)), descending)

    def sort_with(self, payload: "Value", axis: int = -1, descending: bool = False) -> Tuple["Value", "Value"]:
        """Sorted, with another tensor of its shape carried along."""
        out = (ctypes.c_void_p * 2)()
        _c.cvn_sort_pair(self.graph._here(), self._pointer, payload._pointer, _axis(axis, len(self.shape)), descending,
                         out)
        return self.graph._value(out[0]), self.graph._value(out[1])

    def take(self, indices: "Value") -> "Value":
        """Rows of a table by i32 indices."""
        return self._apply(_c.cvn_take_rows, indices._pointer)

    def gather(self, indices: "Value", slice_sizes: Shape, **dims: Any) -> "Value":
        """StableHLO's gather; its dimension numbers are fields of cvn_gather_dims: window, collapsed, operand_batch,
        index_batch, index_map, index_vector_dim."""
        return self._apply(_c.cvn_gather, indices._pointer, _gather_dims(dims), self._per_dim(slice_sizes))

    def scatter_add(self, indices: "Value", updates: "Value", **dims: Any) -> "Value":
        """StableHLO's scatter with addition; dimension numbers as in gather."""
        return self._apply(_c.cvn_scatter_add, indices._pointer, updates._pointer, _gather_dims(dims))

    def scatter(self, indices: "Value", updates: "Value", **dims: Any) -> "Value":
        """StableHLO's scatter that puts updates in place of what is there."""
        return self._apply(_c.cvn_scatter_assign, indices._pointer, updates._pointer, _gather_dims(dims))

    def __matmul__(self, other: "Value") -> "Value":
        """Matrices by matrices or vectors; leading dimensions of both are equal."""
        a, b = len(self.shape), len(other.shape)
        lead = "abcdef"[:max(min(a, b) - 2, 0)]
        left = "z" if a == 1 else lead + "yz" if b > 1 else "abcdef"[:a - 1] + "z"
        right = "z" if b == 1 else lead + "zx"
        return einsum(f"{left},{right}->{(left + right).replace('z', '') if not lead else lead + 'yx'}", self, other)


def _gather_dims(given: Mapping[str, Any]) -> Any:
    dims = _c.GatherDims(index_vector_dim=int(given.get("index_vector_dim", 0)))
    for name, values in given.items():
        if name == "index_vector_dim":
            continue
        if name not in ("window", "collapsed", "operand_batch", "index_batch", "index_map"):
            raise CaravanError(f"{name!r} is not a dimension number of gather")
        if len(values) > _c.MAX_RANK:
            raise CaravanError(f"{name} has more than {_c.MAX_RANK} dimensions", _c.ESHAPE)
        setattr(dims, f"n_{name}", len(values))
        for i, value in enumerate(values):
            getattr(dims, name)[i] = value
    return ctypes.byref(dims)


def _broadcast(a: Value, b: Value) -> Tuple[Value, Value]:
    if a.shape == b.shape:
        return a, b
    x, y = ((1,) * (max(len(a.shape), len(b.shape)) - len(v.shape)) + v.shape for v in (a, b))
    shape = tuple(n if m == 1 else m for n, m in zip(x, y))
    if any(m not in (1, n) for v in (x, y) for m, n in zip(v, shape)):
        raise CaravanError(f"{list(a.shape)} and {list(b.shape)} do not broadcast to one shape", _c.ESHAPE)
    return a.broadcast_to(shape), b.broadcast_to(shape)


def einsum(equation: str, a: Value, b: Value, dtype: Optional[str] = None) -> Value:
    """"bsd,dnh->bsnh": letters name dimensions; those in both operands and not in the result are summed, in f32."""
    if dtype is None:
        return a.graph._value(_c.cvn_einsum(a.graph._here(), equation.encode(), a._pointer, b._pointer))
    return a.graph._value(_c.cvn_einsum_as(a.graph._here(), equation.encode(), a._pointer, b._pointer,
                                           _type(dtype, ()).dtype))


def concatenate(values: Sequence[Value], axis: int = 0) -> Value:
    """Tensors side by side along an axis."""
    if not values:
        raise CaravanError("there is nothing to concatenate")
    pointers = (ctypes.c_void_p * len(values))(*(v._pointer for v in values))
    g = values[0].graph
    return g._value(_c.cvn_concatenate(g._here(), len(values), pointers, _axis(axis, len(values[0].shape))))


def where(condition: Value, a: Any, b: Any) -> Value:
    """a where the condition holds, else b. One of them is a value; the other may be a number."""
    like = a if isinstance(a, Value) else b
    if not isinstance(like, Value):
        raise CaravanError("where() takes a value of the graph, at least as one of what it chooses from")
    a, b = _broadcast(like._like(a), like._like(b))
    if condition.shape:
        a, c = _broadcast(a, condition)
        b, condition = _broadcast(b, c)
    return condition._apply(_c.cvn_select, a._pointer, b._pointer)


def maximum(a: Value, b: Any) -> Value:
    """Elementwise; NaN wins."""
    return a._with(_c.cvn_maximum, b)


def minimum(a: Value, b: Any) -> Value:
    """Elementwise; NaN wins."""
    return a._with(_c.cvn_minimum, b)


def rms_norm(x: Value, weight: Value, eps: float = 1e-5, dtype: Optional[str] = None) -> Value:
    """x * rsqrt(mean(x^2 over the last dimension) + eps) * weight"""
    return x._apply(_c.cvn_rms_norm, weight._pointer, eps, _type(dtype or x.dtype, ()).dtype)


def rope(x: Value, positions: Value, inv_freq: Value, interleaved: bool = False) -> Value:
    """Rotary position embedding of x [batch, seq, heads, head_dim]; positions i32 [batch, seq]; inv_freq f32 [head_dim/2]."""
    return x._apply(_c.cvn_rope, positions._pointer, inv_freq._pointer, interleaved)


def attention(q: Value, k: Value, v: Value, start: Value, length: Value, scale: float,
              first: Optional[Value] = None, *, window: int = 0, chunk: int = 0, cap: float = 0.0,
              sinks: Optional[Value] = None, slot: Optional[Value] = None, table: Optional[Value] = None,
              mask: Optional[Value] = None, any_key: bool = False, dropout: float = 0.0, key: Optional[Value] = None,
              site: int = 0) -> Value:
    """Causal grouped-query attention over a KV cache: q [batch, seq, heads, head_dim]; k, v [batch, kv_heads, context,
    head_dim]; start, length i32 [batch]; first i32 [batch, seq]. A query sees `window` keys at most, and those of its own
    chunk; scores become cap tanh(score / cap); sinks [heads] take part in the softmax. slot i32 [batch] and table i32
    [slots, n]: k and v are pages [pages, kv_heads, page, head_dim], and position p of row b is in page
    table[slot[b], p // page]. mask [batch, heads, seq, context], each as many or 1: bools, of keys that are seen, or floats,
    added to scores; any_key: later keys are seen, too. Weights are dropped with probability `dropout` by key u32 [batch, 2]
    and site. 0 and None: no such."""
    spec = _c.AttentionSpec(scale=scale, cap=cap, window=window, chunk=chunk,
                            first=first._pointer if first is not None else None,
                            slot=slot._pointer if slot is not None else None,
                            table=table._pointer if table is not None else None,
                            sinks=sinks._pointer if sinks is not None else None,
                            mask=mask._pointer if mask is not None else None, any_key=any_key, dropout=dropout,
                            key=key._pointer if key is not None else None, site=site)
    return q._apply(_c.cvn_attention, k._pointer, v._pointer, start._pointer, length._pointer, ctypes.byref(spec))


def cache_update(cache: Value, update: Value, start: Value, slot: Optional[Value] = None,
                 table: Optional[Value] = None) -> Value:
    """cache[b, h, start[b] + s, :] = update[b, s, h, :]; with slots, in the pages that the table has of slot[b]."""
    return cache._apply(_c.cvn_cache_update, update._pointer, start._pointer,
                        slot._pointer if slot is not None else None,
                        table._pointer if table is not None else None)


def softmax_cross_entropy(logits: Value, targets: Value) -> Tuple[Value, Value]:
    """logsumexp(logits) - logits[target], 0 where the target is outside of the vocabulary; and logsumexp(logits)."""
    out = (ctypes.c_void_p * 2)()
    _c.cvn_softmax_cross_entropy(logits.graph._here(), logits._pointer, targets._pointer, out)
    return logits.graph._value(out[0]), logits.graph._value(out[1])


# ---- memory ----


def _aligned(size: int) -> Tuple[Any, int, int]:
    """Memory aligned to 64 bytes: its owner, the address, and the offset in the owner."""
    owner = bytearray(size + 64)
    begin = ctypes.addressof(ctypes.c_char.from_buffer(owner))
    offset = -begin % 64
    return owner, begin + offset, offset


def _flat(data: Any) -> Iterable[Any]:
    if isinstance(data, (list, tuple)):
        for one in data:
            yield from _flat(one)
    else:
        yield data


def _shape_and_dtype(data: Any) -> Tuple[Tuple[int, ...], str]:
    if _np is not None:
        a = _np.asarray(data)
        if a.dtype.name == "bfloat16":
            return a.shape, "bf16"
        names = {stored[1]: name for name, stored in _STORED.items() if name != "bf16"}
        plain = {"float64": "f32", "int64": "i32"} if not hasattr(data, "dtype") else {"int64": "i32"}
        return a.shape, plain.get(a.dtype.name) or names.get(a.dtype.name, "f32")
    shape, one = [], data
    while isinstance(one, (list, tuple)):
        shape.append(len(one))
        one = one[0] if one else 0.0
    return tuple(shape), "i1" if isinstance(one, bool) else "i32" if isinstance(one, int) else "f32"


def _elements(kind: _c.Type) -> int:
    return functools.reduce(operator.mul, kind.dim[:kind.rank], 1)


def _bytes(kind: _c.Type) -> int:
    dtype = _c.DTYPES[kind.dtype]
    return (_elements(kind) + 1) // 2 if dtype == "i4" else _elements(kind) * _STORED[dtype][0]


def _round_bf16(a: Any) -> Any:
    """f32 to the bits of bf16, to nearest, halves to even."""
    bits = _np.ascontiguousarray(a, dtype=_np.float32).view(_np.uint32).astype(_np.uint64)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(_np.uint16)
    return _np.where(_np.isnan(a), _np.uint16(0x7FC0), rounded)


def _numpy_in(data: Any, kind: _c.Type, name: str) -> Any:
    """A contiguous array of the stored form."""
    dtype, shape = _c.DTYPES[kind.dtype], tuple(kind.dim[:kind.rank])
    a = _np.asarray(data)
    if a.shape != shape:
        raise CaravanError(f"{name} has the shape {list(a.shape)}, not {list(shape)}", _c.ESHAPE)
    if dtype == "bf16":
        return a.view(_np.uint16) if a.dtype.name == "bfloat16" else _round_bf16(a.astype(_np.float32))
    if dtype == "i4":
        flat = _np.append(a.reshape(-1).astype(_np.int8), _np.int8(0))[:2 * _bytes(kind)].view(_np.uint8) & 15
        return flat[::2] | flat[1::2] << 4
    wanted = _np.dtype(_STORED[dtype][1])
    if hasattr(data, "dtype") and not _np.can_cast(a.dtype, wanted, "same_kind"):
        raise CaravanError(f"{name} is of {a.dtype}, which does not become {dtype}", _c.ESHAPE)
    return _np.require(a, wanted, ["C"])


def _address_of(data: Any, kind: _c.Type, name: str) -> Tuple[Any, int]:
    """What keeps the data where they are, and the address."""
    size = _bytes(kind)
    if _np is not None:
        a = _numpy_in(data, kind, name)
        if a.ctypes.data % 64 == 0 or a.ctypes.data % 16 == 0 and a.size:
            return a, a.ctypes.data
        stored = a.tobytes()
    elif isinstance(data, (int, float, list, tuple)):
        letter = _STORED.get(_c.DTYPES[kind.dtype], (0, "", "B"))[2]
        numbers = list(_flat(data))
        if len(numbers) != _elements(kind) or _c.DTYPES[kind.dtype] in ("bf16", "i4"):
            raise CaravanError(f"{name} is a list of {len(numbers)} numbers, which does not become "
                               f"{_c.DTYPES[kind.dtype]}{kind.dim[:kind.rank]}", _c.ESHAPE)
        stored = struct.pack(f"<{len(numbers)}{letter}", *numbers)
    else:
        stored = memoryview(data).cast("B").tobytes()
    if len(stored) != size:
        raise CaravanError(f"{name} has {len(stored)} bytes, not {size}", _c.ESHAPE)
    owner, address, offset = _aligned(size)
    owner[offset:offset + size] = stored
    return owner, address


def _pointers(of: Sequence[Optional[int]]) -> Any:
    return (ctypes.c_void_p * max(len(of), 1))(*of)


def _array_out(owner: Any, offset: int, kind: _c.Type) -> Any:
    dtype, shape, size = _c.DTYPES[kind.dtype], tuple(kind.dim[:kind.rank]), _bytes(kind)
    if _np is None:
        part = memoryview(owner)[offset:offset + size]
        return part if dtype == "i4" or 0 in shape else part.cast(_STORED[dtype][2], shape)  # type: ignore[call-overload,unused-ignore]
    if dtype == "i4":
        packed = _np.frombuffer(owner, _np.uint8, size, offset)
        both = _np.stack([packed & 15, packed >> 4], -1).reshape(-1)[:_elements(kind)]
        return ((both.astype(_np.int8) ^ 8) - 8).reshape(shape)
    a = _np.frombuffer(owner, _STORED[dtype][1], _elements(kind), offset).reshape(shape)
    if dtype != "bf16":
        return a
    try:
        from ml_dtypes import bfloat16  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ImportError:  # every bf16 is an f32
        return (a.astype(_np.uint32) << 16).view(_np.float32)
    return a.view(bfloat16)


class Mesh:
    """Devices, in this process, or in all those that mpirun started. spec: "data=2,model=2", or "" for one. threads: of each;
    0: this machine's cores, divided among them. backend: "cpu", "tpu", "cuda", "pjrt:PATH". A mesh with its programs and
    arrays is used by one thread at a time."""

    def __init__(self, spec: str = "", *, threads: int = 0, backend: Optional[str] = None) -> None:
        options = _c.MeshOptions(threads, backend.encode() if backend else None, _ranks.joined() if spec else None)
        self._pointer: Optional[int] = _c.cvn_mesh_new(spec.encode(), ctypes.byref(options))

    def __del__(self) -> None:
        if getattr(self, "_pointer", None) and not _ranks.left:
            _c.cvn_mesh_free(self._pointer)
            self._pointer = None

    @property
    def devices(self) -> int:
        return int(_c.cvn_mesh_devices(self._pointer))

    @property
    def threads(self) -> int:
        """Of each device."""
        return int(_c.cvn_mesh_threads(self._pointer))

    def array(self) -> "Array":
        """A parameter that stays on the devices from run to run; zeros until it is written."""
        return Array(self)

    def compile(self, graph: Graph, arrays: Optional[Mapping[str, "Array"]] = None) -> "Program":
        """Makes the program that every device runs. arrays: parameters that are arrays in every run, by name."""
        return Program(self, graph, dict(arrays or {}))


class Array:
    """A parameter that stays on the devices of a mesh. The first program that takes it says its type."""

    def __init__(self, mesh: Mesh) -> None:
        self.mesh = mesh
        self._pointer: Optional[int] = _c.cvn_array_new(mesh._pointer)
        self._type: Optional[_c.Type] = None

    def __del__(self) -> None:
        if getattr(self, "_pointer", None) and not _ranks.left:
            _c.cvn_array_free(self._pointer)
            self._pointer = None

    def _known(self) -> _c.Type:
        if self._type is None:
            raise CaravanError("no program takes this array, so that its type is not known: compile one with "
                               "arrays={NAME: array} first")
        return self._type

    def write(self, data: Any) -> None:
        keep, address = _address_of(data, self._known(), "the array")
        _c.cvn_array_write(self._pointer, address)
        del keep

    def read(self) -> Any:
        kind = self._known()
        owner, address, offset = _aligned(_bytes(kind))
        _c.cvn_array_read(self._pointer, address)
        return _array_out(owner, offset, kind)


class Program:
    """A compiled graph. Called with its inputs, in order or by name, it returns its outputs as new arrays: one, or a tuple of
    them. Outputs that are computed into an Array are None in the tuple; read() the array."""

    def __init__(self, mesh: Mesh, graph: Graph, arrays: Mapping[str, Array]) -> None:
        g = graph._pointer
        self.mesh, self.graph = mesh, graph
        n, m = _c.cvn_graph_parameters(g), _c.cvn_graph_outputs(g)
        self.names = [_c.cvn_graph_parameter_name(g, i).decode() for i in range(n)]
        self._types = [graph._type_of(_c.cvn_graph_parameter(g, i)) for i in range(n)]
        self._results = [graph._type_of(_c.cvn_graph_output(g, i)) for i in range(m)]
        self._into = [_c.cvn_graph_output_into(g, i) for i in range(m)]
        unknown = [name for name in arrays if name not in self.names]
        if unknown:
            raise CaravanError(f"the graph has no parameter {unknown[0]!r}; it has {', '.join(self.names) or 'none'}")
        self.arrays = [arrays.get(name) for name in self.names]
        pointers = (ctypes.c_void_p * max(n, 1))(*(a._pointer if a else None for a in self.arrays))
        self._pointer: Optional[int] = _c.cvn_compile_arrays(mesh._pointer, g, pointers)
        for array, kind in zip(self.arrays, self._types):
            if array:
                array._type = kind
        self._inputs = [name for name, array in zip(self.names, self.arrays) if not array]

    def __del__(self) -> None:
        if getattr(self, "_pointer", None) and not _ranks.left:
            _c.cvn_program_free(self._pointer)
            self._pointer = None

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        given = dict(zip(self._inputs, inputs))
        if len(inputs) > len(self._inputs):
            raise CaravanError(f"there are {len(inputs)} inputs for a program of {len(self._inputs)}")
        for name, value in named.items():
            if name not in self._inputs or name in given:
                raise CaravanError(f"input {name!r} is given twice" if name in given else
                                   f"the program has no input {name!r}; it has {', '.join(self._inputs) or 'none'}")
            given[name] = value
        updated, keep, made = set(self._into), [], {}
        ins: list[Optional[int]] = []
        for i, name in enumerate(self.names):
            if self.arrays[i]:
                ins.append(None)
                continue
            if name not in given:
                raise CaravanError(f"input {name!r} is not given")
            owner, address = _address_of(given[name], self._types[i], f"input {name!r}")
            if i in updated:  # it is written: a copy, which becomes the output
                size = _bytes(self._types[i])
                copy, to, offset = _aligned(size)
                ctypes.memmove(to, address, size)
                owner, address = copy, to
                made[i] = (copy, offset)
            keep.append(owner)
            ins.append(address)
        outs: list[Optional[int]] = []
        results = []
        for kind, into in zip(self._results, self._into):
            if into >= 0:  # written where it goes
                outs.append(None)
                results.append(made.get(into))
            else:
                owner, address, offset = _aligned(_bytes(kind))
                outs.append(address)
                results.append((owner, offset))
        _c.cvn_run(self._pointer, _pointers(ins), _pointers(outs))
        del keep
        arrays = [_array_out(*r, kind) if r else None for r, kind in zip(results, self._results)]
        return arrays[0] if len(arrays) == 1 else tuple(arrays)
