"""Training, by the options of `caravan train` (docs/TRAINING.md).

    caravan.train({"data": ["story.txt"], "preset": "tiny", "steps": 1000, "out": "RUN"},
                  on_step=lambda s: print(s.step, s.loss))
    caravan.LLM("RUN")

Ctrl-C saves a checkpoint after the current step and raises KeyboardInterrupt; caravan.resume("RUN") goes on.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import threading
from dataclasses import dataclass
from typing import Any, Callable, Mapping, Optional, Union

from . import _c, _ranks


@dataclass(frozen=True)
class TrainStep:
    """A step that was done; caravan/train.h says the units."""

    step: int
    steps: int
    loss: float
    validation_loss: float
    lr: float
    grad_norm: float
    tokens_per_second: float
    mfu: float
    seconds: float
    seconds_left: float
    memory: int


@dataclass(frozen=True)
class TrainResult:
    step: int
    steps: int
    finished: bool
    """all steps were done; else resume() goes on"""
    loss: float


def _run(call: Callable[[Any, Any], Any], on_step: Optional[Callable[[TrainStep], object]],
         on_note: Optional[Callable[[str], object]], on_warning: Optional[Callable[[str], object]]) -> TrainResult:
    stop, raised = ctypes.c_int(0), []

    def guarded(function: Callable[[Any], object], value: Any) -> None:
        try:
            function(value)
        except BaseException as why:  # told when the run has been saved
            raised.append(why)
            stop.value = 1

    def step(_: Any, s: Any) -> None:
        if on_step:
            guarded(on_step, TrainStep(*(getattr(s.contents, name) for name, _ in s.contents._fields_)))

    def say(function: Optional[Callable[[str], object]]) -> Any:
        def tell(_: Any, sentence: bytes) -> None:
            if function:
                guarded(function, sentence.decode("utf-8", "replace"))
        return _c.NoteFn(tell)

    events = _c.TrainEvents(None, say(on_note), say(on_warning), _c.StepFn(step), ctypes.pointer(stop),
                            _ranks.joined())
    result = _c.TrainResult()

    def interrupt(*_: Any) -> None:
        raised.append(KeyboardInterrupt())
        stop.value = 1

    main = threading.current_thread() is threading.main_thread()
    old = signal.signal(signal.SIGINT, interrupt) if main else None
    try:
        call(ctypes.byref(events), ctypes.byref(result))
    finally:
        if main:
            signal.signal(signal.SIGINT, old)
    if raised:
        raise raised[0]
    return TrainResult(result.step, result.steps, bool(result.finished), result.loss)


def train(options: Mapping[str, Any], *, on_step: Optional[Callable[[TrainStep], object]] = None,
          on_note: Optional[Callable[[str], object]] = None,
          on_warning: Optional[Callable[[str], object]] = None) -> TrainResult:
    """Trains a model. options: the long options of `caravan train`, {"data": ["story.txt"], "steps": 1000, "out": "RUN"}."""
    text = json.dumps(dict(options)).encode()
    return _run(lambda events, result: _c.cvn_train(text, events, result), on_step, on_note, on_warning)


def resume(run: Union[str, "os.PathLike[str]"], options: Optional[Mapping[str, Any]] = None, *,
           on_step: Optional[Callable[[TrainStep], object]] = None,
           on_note: Optional[Callable[[str], object]] = None,
           on_warning: Optional[Callable[[str], object]] = None) -> TrainResult:
    """Goes on with the run in a folder, from its newest checkpoint. options: those that are to change."""
    text = None if options is None else json.dumps(dict(options)).encode()
    return _run(lambda events, result: _c.cvn_train_resume(os.fsencode(run), text, events, result), on_step, on_note,
                on_warning)
