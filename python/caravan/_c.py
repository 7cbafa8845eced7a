"""libcaravan by ctypes: structs and functions exactly as include/caravan/*.h declare them, and nothing else.

The library lies beside this file in a wheel; CARAVAN_LIBRARY names another one. program_of_checks() is a C program that compiles
only if every struct and every function here is that of the headers; the tests compile it.
"""

from __future__ import annotations

import ctypes
import os
from ctypes import (CFUNCTYPE, POINTER, Structure, byref, c_bool, c_char, c_char_p, c_double, c_float, c_int, c_int32,
                    c_int64, c_size_t, c_uint, c_uint64, c_void_p)
from typing import Any, Callable, Optional

EINVAL, EIO, EFORMAT, EMEM, EUNSUPPORTED, ESHAPE, EINTERRUPTED = -1, -2, -3, -4, -5, -6, -7
DTYPES = ("f64", "f32", "bf16", "f16", "i32", "u32", "i8", "i4", "i1")
FINISH = ("stop", "length", "context", "stopped", "cancelled", "constraint")
COMPARE = ("EQ", "NE", "LT", "LE", "GT", "GE")
REDUCE = ("SUM", "PRODUCT", "MAX", "MIN", "ALL", "ANY")
MAX_RANK, MAX_SPEC_AXES, MAX_BUCKETS = 8, 4, 16


class CaravanError(Exception):
    """What the library refuses, in its own sentence. `code` is one of caravan/error.h, such as -2, CVN_EIO."""

    def __init__(self, message: str, code: int = EINVAL) -> None:
        super().__init__(message)
        self.code = code


class Err(Structure):
    _fields_ = [("code", c_int), ("message", c_char * 1024), ("file", c_char_p), ("line", c_int)]


class Type(Structure):
    _fields_ = [("dtype", c_int), ("rank", c_int), ("dim", c_int64 * MAX_RANK)]


class SpecDim(Structure):
    _fields_ = [("n", c_int), ("axis", c_char_p * MAX_SPEC_AXES)]


class Spec(Structure):
    _fields_ = [("rank", c_int), ("priority", c_int), ("dim", SpecDim * MAX_RANK)]


class GatherDims(Structure):
    _fields_ = [("n_window", c_int), ("n_collapsed", c_int), ("n_operand_batch", c_int), ("n_index_batch", c_int),
                ("n_index_map", c_int), ("window", c_int64 * MAX_RANK), ("collapsed", c_int64 * MAX_RANK),
                ("operand_batch", c_int64 * MAX_RANK), ("index_batch", c_int64 * MAX_RANK),
                ("index_map", c_int64 * MAX_RANK), ("index_vector_dim", c_int64)]


class DotDims(Structure):
    _fields_ = [("n_batch", c_int), ("n_contract", c_int), ("lhs_batch", c_int64 * MAX_RANK),
                ("rhs_batch", c_int64 * MAX_RANK), ("lhs_contract", c_int64 * MAX_RANK),
                ("rhs_contract", c_int64 * MAX_RANK)]


class AttentionSpec(Structure):
    _fields_ = [("scale", c_double), ("cap", c_double), ("window", c_int64), ("chunk", c_int64), ("first", c_void_p),
                ("slot", c_void_p), ("table", c_void_p), ("sinks", c_void_p), ("k_scale", c_void_p), ("v_scale", c_void_p),
                ("mask", c_void_p), ("any_key", c_bool), ("dropout", c_double), ("key", c_void_p), ("site", c_int64)]


class MeshOptions(Structure):
    _fields_ = [("threads", c_int), ("backend", c_char_p), ("cluster", c_void_p)]


LostFn = CFUNCTYPE(None, c_void_p, c_char_p)


class RanksOptions(Structure):
    _fields_ = [("settings", c_char_p), ("lost", LostFn), ("context", c_void_p), ("ending", c_void_p)]


class ModelOptions(Structure):
    _fields_ = [("dtype", c_int), ("quantize", c_char_p), ("no_tokenizer", c_bool), ("tokenizer", c_char_p),
                ("text_only", c_bool)]


class Sampling(Structure):
    _fields_ = [("temperature", c_float), ("top_k", c_int32), ("top_p", c_float), ("min_p", c_float),
                ("repeat_penalty", c_float), ("presence_penalty", c_float), ("frequency_penalty", c_float),
                ("seed", c_uint64)]


class Bias(Structure):
    _fields_ = [("token", c_int32), ("bias", c_float)]


class Logprob(Structure):
    _fields_ = [("token", c_int32), ("logprob", c_float)]


class Result(Structure):
    _fields_ = [("n_tokens", c_int64), ("reused", c_int64), ("computed", c_int64), ("finish", c_int),
                ("why", c_char_p), ("prefill_seconds", c_double), ("first_seconds", c_double),
                ("total_seconds", c_double)]


LoadFn = CFUNCTYPE(None, c_void_p, c_uint64, c_uint64)
LogitsFn = CFUNCTYPE(None, c_void_p, c_int, POINTER(c_float), c_int32)
TokenFn = CFUNCTYPE(c_bool, c_void_p, c_int, c_int32)
EndFn = CFUNCTYPE(None, c_void_p, c_int, POINTER(Result))


class Listener(Structure):
    _fields_ = [("on_token", TokenFn), ("on_end", EndFn), ("context", c_void_p)]


class EngineOptions(Structure):
    _fields_ = [("slots", c_int), ("context", c_int64), ("threads", c_int), ("sampling", c_bool),
                ("penalties", c_bool), ("logits_processors", c_bool), ("scoring", c_bool), ("no_generation", c_bool),
                ("op_by_op", c_bool), ("split_attention", c_bool), ("reuse", c_bool), ("speculate", c_char_p),
                ("draft", c_void_p), ("adapter", POINTER(c_char_p)), ("n_adapters", c_int), ("pooling", c_char_p),
                ("max_stall", c_double), ("n_buckets", c_int),
                ("bucket", c_int64 * MAX_BUCKETS), ("kv_cache", c_char_p), ("activations", c_char_p),
                ("numerics", c_char_p), ("memory_limit", c_uint64), ("kv_memory", c_uint64), ("device", c_char_p), ("mesh", c_char_p), ("layout", c_char_p),
                ("blocking", c_bool), ("cluster", c_void_p), ("on_load", LoadFn), ("on_load_context", c_void_p),
                ("dump_dir", c_char_p), ("profile_path", c_char_p)]


class Request(Structure):
    _fields_ = [("prompt", POINTER(c_int32)), ("n_prompt", c_int64), ("max_tokens", c_int64), ("ignore_eos", c_bool),
                ("sampling", Sampling), ("bias", POINTER(Bias)), ("n_bias", c_int64), ("min_tokens", c_int64),
                ("on_logits", LogitsFn), ("constraint", c_void_p), ("forced", POINTER(c_int32)), ("n_forced", c_int64),
                ("end", POINTER(c_int32)), ("n_end", c_int64), ("adapter", c_int), ("key", c_uint64), ("priority", c_int),
                ("cache_salt", c_uint64)]


class EngineStats(Structure):
    _fields_ = [("compilations", c_int64), ("prefills", c_int64), ("decodes", c_int64), ("verifies", c_int64),
                ("drafted_tokens", c_int64), ("accepted_tokens", c_int64),
                ("prefill_seconds", c_double), ("decode_seconds", c_double), ("decoded_tokens", c_int64),
                ("prefill_tokens", c_int64), ("weight_bytes", c_uint64), ("arena_bytes", c_uint64),
                ("cache_bytes", c_uint64), ("preemptions", c_int64), ("load_seconds", c_double), ("threads", c_int)]


class ConstrainOptions(Structure):
    _fields_ = [("draft", c_int), ("annotate_format", c_bool), ("compact", c_bool), ("in_order", c_bool),
                ("canonical", c_bool), ("lazy", c_bool)]


class ChatInput(Structure):
    _fields_ = [("messages", c_char_p), ("tools", c_char_p), ("variables", c_char_p), ("complete", c_bool),
                ("go_on", c_bool), ("now", c_int64)]


class CallsOptions(Structure):
    _fields_ = [("tools", c_char_p), ("name", c_char_p), ("most", c_int64)]


class TrainStep(Structure):
    _fields_ = [("step", c_int64), ("steps", c_int64), ("loss", c_double), ("validation_loss", c_double),
                ("lr", c_double), ("grad_norm", c_double), ("tokens_per_second", c_double), ("mfu", c_double),
                ("seconds", c_double), ("seconds_left", c_double), ("memory", c_size_t)]


NoteFn = CFUNCTYPE(None, c_void_p, c_char_p)
StepFn = CFUNCTYPE(None, c_void_p, POINTER(TrainStep))


class TrainEvents(Structure):
    _fields_ = [("context", c_void_p), ("note", NoteFn), ("warning", NoteFn), ("step", StepFn),
                ("stop", POINTER(c_int)), ("cluster", c_void_p)]


class TrainResult(Structure):
    _fields_ = [("step", c_int64), ("steps", c_int64), ("finished", c_bool), ("loss", c_double)]


# Name in C of each struct.
STRUCTS = {"cvn_err": Err, "cvn_type": Type, "cvn_spec": Spec, "cvn_gather_dims": GatherDims, "cvn_dot_dims": DotDims,
           "cvn_attention_spec": AttentionSpec,
           "cvn_mesh_options": MeshOptions, "cvn_ranks_options": RanksOptions, "cvn_model_options": ModelOptions,
           "cvn_sampling": Sampling, "cvn_bias": Bias, "cvn_logprob": Logprob, "cvn_result": Result, "cvn_listener": Listener,
           "cvn_engine_options": EngineOptions, "cvn_request": Request, "cvn_engine_stats": EngineStats,
           "cvn_constrain_options": ConstrainOptions, "cvn_chat_input": ChatInput, "cvn_calls_options": CallsOptions,
           "cvn_train_step": TrainStep,
           "cvn_train_events": TrainEvents, "cvn_train_result": TrainResult}

# A function is a line: what it returns, its name, what it takes. A word stands for a type of C: "err" is cvn_err *; "g" and
# "v", a graph and a value, and "p" are pointers; "p*" points to one; others are below. Those whose last parameter is "err"
# and that return "code" or "new" raise CaravanError where they fail.
FUNCTIONS = """
str   cvn_version
code  cvn_model_find s char** err
code  cvn_model_open s model_options* p* err
void  cvn_model_free p
str   cvn_model_warnings p
i64   cvn_model_context p
i64   cvn_model_vocab p
i64   cvn_model_width p
int   cvn_model_dtype p
bool  cvn_model_has_tokenizer p
i32   cvn_model_bos p
i32   cvn_model_eos p
code  cvn_model_encode p s size unsigned i32** i64* err
code  cvn_decoder_new p unsigned p* err
void  cvn_decoder_free p
code  cvn_decoder_push p i32* i64 bool char** size* err
options cvn_engine_defaults
code  cvn_engine_new p engine_options* p* err
code  cvn_engine_free p err
code  cvn_engine_submit p request* listener* int* err
code  cvn_engine_step p int* err
code  cvn_engine_cancel p int err
void  cvn_engine_watch p int*
code  cvn_engine_score p i32* i64 f32* i32* err
code  cvn_engine_score_logits p int i32* i64 logits_fn void* err
code  cvn_engine_embed p int i32* i64 f32* err
int   cvn_logprobs f32* i64 i32 f32* int* logprob* int
stats cvn_engine_get_stats p
str   cvn_engine_warnings p
code  cvn_chat_new p s p* err
void  cvn_chat_free p
code  cvn_chat_encode p chat_input* i32** i64* err
i32*  cvn_chat_ends p i64*
code  cvn_answer_new p i32* i64 s p* err
code  cvn_answer_push p i32* i64 char** err
code  cvn_answer_end p char** char** err
void  cvn_answer_free p
code  cvn_calls_new p calls_options* i32* i64 p* err
bool  cvn_calls_next p request*
bool  cvn_calls_push p i32
i32*  cvn_calls_tokens p i64*
code  cvn_calls_message p char** err
void  cvn_calls_free p
code  cvn_constraint_schema s size constrain_options* p* err
code  cvn_constraint_regex s size p* err
code  cvn_constraint_grammar s size p* err
code  cvn_constraint_choices s* size* size p* err
void  cvn_constraint_free p
code  cvn_train s train_events* train_result* err
code  cvn_train_resume s s train_events* train_result* err
new   cvn_graph_new s err
void  cvn_graph_free g
code  cvn_graph_check g err
g     cvn_at g s int
type* cvn_value_type v
void  cvn_mark_sharding g v spec*
v     cvn_parameter g s type
void  cvn_output_into g v v
v     cvn_splat g type f64
v     cvn_constant g type void*
v     cvn_iota g type int
v     cvn_negate g v
v     cvn_abs g v
v     cvn_sign g v
v     cvn_exponential g v
v     cvn_log g v
v     cvn_log_plus_one g v
v     cvn_exponential_minus_one g v
v     cvn_sqrt g v
v     cvn_rsqrt g v
v     cvn_tanh g v
v     cvn_logistic g v
v     cvn_sine g v
v     cvn_cosine g v
v     cvn_floor g v
v     cvn_not g v
v     cvn_is_finite g v
v     cvn_convert g v int
v     cvn_add g v v
v     cvn_subtract g v v
v     cvn_multiply g v v
v     cvn_divide g v v
v     cvn_maximum g v v
v     cvn_minimum g v v
v     cvn_power g v v
v     cvn_remainder g v v
v     cvn_and g v v
v     cvn_or g v v
v     cvn_xor g v v
v     cvn_shift_left g v v
v     cvn_shift_right_logical g v v
v     cvn_compare_values g int v v
v     cvn_select g v v v
v     cvn_clamp g v v v
v     cvn_broadcast_in_dim g v type int*
v     cvn_reshape g v int i64*
v     cvn_transpose g v int*
v     cvn_slice g v i64* i64* i64*
v     cvn_concatenate g int v* int
v     cvn_pad g v v i64* i64* i64*
v     cvn_reverse g v int int*
v     cvn_dynamic_slice g v v* i64*
v     cvn_dynamic_update_slice g v v v*
v     cvn_gather g v v gather_dims* i64*
v     cvn_scatter_add g v v v gather_dims*
v     cvn_scatter_assign g v v v gather_dims*
v     cvn_take_rows g v v
v     cvn_sort g v int bool
void  cvn_sort_pair g v v int bool v*
v     cvn_reduce_dims g int v int int*
v     cvn_cumsum g v int
v     cvn_cumprod g v int
v     cvn_dot_general g v v dot_dims* int
v     cvn_einsum g s v v
v     cvn_einsum_as g s v v int
v     cvn_optimization_barrier g v
v     cvn_rms_norm g v v f64 int
v     cvn_rope g v v v bool
v     cvn_attention g v v v v v attention_spec*
v     cvn_cache_update g v v v v v
void  cvn_softmax_cross_entropy g v v v*
v     cvn_argmax g v int
v     cvn_random_bits g v v v v
code  cvn_gradient g v int v* v* err
int   cvn_graph_parameters g
v     cvn_graph_parameter g int
str   cvn_graph_parameter_name g int
int   cvn_graph_outputs g
v     cvn_graph_output g int
int   cvn_graph_output_into g int
new   cvn_graph_parse s size s err
new   cvn_graph_from_stablehlo s size s err
text  cvn_graph_print g err
text  cvn_graph_stablehlo g err
new   cvn_partition g s err
bool  cvn_ranks_launched
code  cvn_ranks_join ranks_options* p* err
int   cvn_ranks_rank p
int   cvn_ranks_size p
code  cvn_ranks_share p void* size err
void  cvn_ranks_fail p s
void  cvn_ranks_leave p
new   cvn_mesh_new s mesh_options* err
void  cvn_mesh_free p
int   cvn_mesh_devices p
int   cvn_mesh_threads p
new   cvn_compile_arrays p g p* err
void  cvn_program_free p
code  cvn_run p p* p* err
new   cvn_array_new p err
void  cvn_array_free p
code  cvn_array_write p void* err
code  cvn_array_read p void* err
"""

_WORDS: dict[str, Any] = {
    "void": None, "code": c_int, "int": c_int, "bool": c_bool, "i32": c_int32, "i64": c_int64, "size": c_size_t,
    "unsigned": c_uint, "f64": c_double, "str": c_char_p, "s": c_char_p, "p": c_void_p, "g": c_void_p, "v": c_void_p,
    "new": c_void_p, "text": c_void_p, "p*": POINTER(c_void_p), "v*": POINTER(c_void_p), "void*": c_void_p,
    "s*": POINTER(c_char_p), "char**": POINTER(c_void_p), "i32*": POINTER(c_int32), "i32**": POINTER(c_void_p),
    "i64*": POINTER(c_int64), "int*": POINTER(c_int), "size*": POINTER(c_size_t), "f32*": POINTER(c_float),
    "err": POINTER(Err), "type": Type, "type*": POINTER(Type), "options": EngineOptions, "logits_fn": LogitsFn, "stats": EngineStats,
    **{name[4:] + "*": POINTER(struct) for name, struct in STRUCTS.items() if name != "cvn_type"},
}


def _load() -> ctypes.CDLL:
    here = os.path.join(os.path.dirname(os.path.abspath(__file__)), "libcaravan.so")
    path = os.environ.get("CARAVAN_LIBRARY") or (here if os.path.exists(here) else "libcaravan.so")
    try:
        return ctypes.CDLL(path)
    except OSError as why:
        raise ImportError(f"the library of caravan cannot be loaded: {why}; install the wheel, or name a "
                          "libcaravan.so in CARAVAN_LIBRARY") from None


_library = _load()
_free = ctypes.CDLL(None).free
_free.argtypes, _free.restype = [c_void_p], None


def error_of(err: Err) -> CaravanError:
    return CaravanError(err.message.decode("utf-8", "replace") or "no memory", err.code)


def take_text(pointer: Optional[int], length: Optional[int] = None) -> bytes:
    """The bytes of a malloc'ed text, which is freed."""
    if not pointer:
        return b""
    try:
        return ctypes.string_at(pointer) if length is None else ctypes.string_at(pointer, length)
    finally:
        _free(pointer)


def take_ids(pointer: Optional[int], n: int) -> list[int]:
    """The ids of a malloc'ed list, which is freed."""
    if not pointer:
        return []
    try:
        return list((c_int32 * n).from_address(pointer))
    finally:
        _free(pointer)


def _checked(function: Any, kind: str) -> Callable[..., Any]:
    def call(*args: Any) -> Any:
        err = Err()
        result = function(*args, byref(err))
        if (result != 0) if kind == "code" else not result:
            raise error_of(err)
        return take_text(result).decode("utf-8", "replace") if kind == "text" else result
    return call


def _declare(line: str) -> None:
    kind, name, *takes = line.split()
    function = getattr(_library, name)
    function.restype, function.argtypes = _WORDS[kind], [_WORDS[word] for word in takes]
    fails = bool(takes) and takes[-1] == "err"
    globals()[name] = _checked(function, kind) if fails else function


for _line in FUNCTIONS.strip().splitlines():
    _declare(_line)


def __getattr__(name: str) -> Any:  # what _declare made, for checkers of types
    raise AttributeError(name)


def ids_array(ids: Any) -> Any:
    """Token ids as an array of C."""
    return (c_int32 * len(ids))(*ids)


def text(value: Optional[str]) -> Optional[bytes]:
    return None if value is None else os.fsencode(value) if isinstance(value, os.PathLike) else value.encode()


def program_of_checks() -> str:
    """A C program that compiles only where all of the above is what the headers say."""
    words = {"void": "void", "code": "int", "int": "int", "bool": "bool", "i32": "int32_t", "i64": "int64_t",
             "size": "size_t", "unsigned": "unsigned", "f64": "double", "type": "cvn_type", "options":
             "cvn_engine_options", "stats": "cvn_engine_stats"}
    out = ["#include <caravan/caravan.h>", "#include <stddef.h>"]
    for name, struct in STRUCTS.items():
        out.append(f'_Static_assert(sizeof({name}) == {ctypes.sizeof(struct)}, "{name}");')
        for field, _ in struct._fields_:  # type: ignore[misc]
            at = getattr(struct, field)
            out.append(f'_Static_assert(offsetof({name}, {field}) == {at.offset} && '
                       f'sizeof((({name} *)0)->{field}) == {at.size}, "{name}.{field}");')
    for i, dtype in enumerate(DTYPES):
        out.append(f'_Static_assert(CVN_{ {"i1": "BOOL"}.get(dtype, dtype.upper()) } == {i}, "{dtype}");')
    names = [(f"CVN_{name}", i) for group in (COMPARE, REDUCE) for i, name in enumerate(group)]
    names += [(f"CVN_FINISH_{ {'stop': 'EOS'}.get(name, name.upper()) }", i) for i, name in enumerate(FINISH)]
    names += [(f"CVN_{name}", globals()[name]) for name in ("EINVAL", "EIO", "EFORMAT", "EMEM", "EUNSUPPORTED", "ESHAPE",
                                                            "EINTERRUPTED", "MAX_RANK", "MAX_SPEC_AXES", "MAX_BUCKETS")]
    out += [f'_Static_assert((int){name} == {value}, "{name}");' for name, value in names]
    out.append("int main(void)\n{")
    for line in FUNCTIONS.strip().splitlines():
        kind, name, *takes = line.split()
        # Each argument converts to what the prototype says; a pointer to any other by (void *).
        args = ", ".join(f"({words[t]}){{0}}" if t in words else "(void *)0" for t in takes)
        returns = words.get(kind)
        if returns and returns != "void":
            out.append(f"    _Static_assert(_Generic({name}({args}), {returns}: 1, default: "
                       f"sizeof({name}({args})) == sizeof({returns})), \"{name}\");")
        else:
            out.append(f"    (void)sizeof(({name}({args}), 0));")
    out.append("    return 0;\n}")
    return "\n".join(out)
