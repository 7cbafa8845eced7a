"""Meshes over several processes ("ranks"), which mpirun or srun started with the same script.

    mpirun -n 2 python script.py

    llm = caravan.LLM("my-llama", mesh="data=2")
    text = llm.generate("Once upon a time", max_tokens=40)     the same text in every process
    if caravan.rank() == 0:
        print(text)

Processes join when the first mesh is made; a script without a mesh runs as often as it was started. All processes run the same
script, and have the same results: each computes its share. They end together; an exception in one of them ends all.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import sys
import threading
from types import TracebackType
from typing import Any, Optional, Type

from . import _c

_lock = threading.Lock()
_joined: Optional[ctypes.c_void_p] = None
left = False
"""the processes have left each other: what is on their mesh is not used any more, and is the system's to free"""


def _lost(_: Any, sentence: bytes) -> None:
    sys.stdout.flush()
    os.write(2, b"caravan: " + sentence + b"\n")


_options = _c.RanksOptions(None, _c.LostFn(_lost), None, None)


def _leave() -> None:
    global left
    left = True
    _c.cvn_ranks_leave(_joined)


def _watch_exceptions() -> None:
    before = sys.excepthook

    def tell(kind: Type[BaseException], value: BaseException, trace: Optional[TracebackType]) -> None:
        before(kind, value, trace)
        sys.stderr.flush()
        _c.cvn_ranks_fail(_joined, f"{kind.__name__}: {value}".encode()[:400])

    sys.excepthook = tell


def joined() -> Optional[ctypes.c_void_p]:
    """The processes that a mesh spans; None where this one is alone."""
    global _joined
    with _lock:
        if _joined is None and _c.cvn_ranks_launched():
            ranks = ctypes.c_void_p()
            _options.settings = " ".join(sys.argv).encode("utf-8", "surrogateescape")
            _c.cvn_ranks_join(ctypes.byref(_options), ctypes.byref(ranks))
            _joined = ranks
            atexit.register(_leave)
            _watch_exceptions()
        return _joined


def rank() -> int:
    """The number of this process among those that mpirun or srun started, from 0, which is also that of a process alone."""
    return int(_c.cvn_ranks_rank(joined()))


def ranks() -> int:
    """How many processes there are."""
    return int(_c.cvn_ranks_size(joined()))


def same(data: bytes) -> bytes:
    """What process 0 has, of the same length, in all of them."""
    buffer = ctypes.create_string_buffer(data, len(data))
    if joined():
        _c.cvn_ranks_share(joined(), buffer, len(data))
    return buffer.raw
