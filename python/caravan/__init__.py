"""Caravan: trains and serves Llama and its relatives.

    caravan.LLM("my-llama")     a model: chat, generate, score, embed
    caravan.Graph("mlp")        a graph of tensor operations; caravan.Mesh compiles and runs it on numpy arrays
    caravan.train({...})        training, by the options of `caravan train`

docs/PYTHON.md shows each. What the library refuses is a CaravanError with its sentence.
"""

from ._c import CaravanError
from ._c import cvn_version as _version
from ._ranks import rank, ranks
from .graph import (Array, Graph, Mesh, Program, Value, attention, cache_update, concatenate, einsum, maximum, minimum,
                    rms_norm, rope, softmax_cross_entropy, where)
from .llm import LLM, Completion, Delta, Message, Score, Stream, TokenLogprob
from .training import TrainResult, TrainStep, resume, train

__version__: str = _version().decode()
__all__ = ["LLM", "Completion", "Message", "Delta", "Stream", "Score", "TokenLogprob", "Graph", "Value", "Mesh",
           "Program", "Array", "einsum", "concatenate", "where", "maximum", "minimum", "rms_norm", "rope", "attention",
           "cache_update", "softmax_cross_entropy", "train", "resume", "TrainStep", "TrainResult", "rank",
           "ranks", "CaravanError"]
