"""Models that talk: open one, and generate, chat, score and embed with it.

    import caravan

    llm = caravan.LLM("my-llama")
    print(llm.chat("Why is the sky blue?").content)
    for piece in llm.generate("Once upon a time", max_tokens=100, stream=True):
        print(piece, end="", flush=True)

An LLM may be used by several threads; its engine serves one step at a time, and texts that are generated at once share
steps. Ctrl-C ends what is computed within a fraction of a second, as KeyboardInterrupt.
"""

from __future__ import annotations

import ctypes
import json
import math
import os
import threading
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Callable, Iterator, List, Literal, Mapping, Optional, Sequence, Union, overload

from . import _c, _ranks
from ._c import CaravanError

Tokens = Sequence[int]
Prompt = Union[str, Tokens]
Messages = Union[str, Sequence[Mapping[str, Any]]]
ToolChoice = Union[str, Mapping[str, Any]]

if TYPE_CHECKING:
    from typing_extensions import TypedDict, Unpack

    class _Options(TypedDict, total=False):
        """What LLM.generate and LLM.chat both take."""

        max_tokens: Optional[int]
        temperature: float
        top_k: int
        top_p: float
        min_p: float
        repeat_penalty: float
        presence_penalty: float
        frequency_penalty: float
        seed: Optional[int]
        stop: Union[str, Sequence[str]]
        min_tokens: int
        logit_bias: Optional[Mapping[int, float]]
        logprobs: Optional[int]
        schema: Any
        regex: Optional[str]
        grammar: Optional[str]
        choices: Optional[Sequence[str]]
        adapter: int

    class _Generate(_Options, total=False):
        ignore_eos: bool
        special: bool

    class _Answer(_Options, total=False):
        tools: Optional[Sequence[Any]]
        tool_choice: ToolChoice
        parallel_tool_calls: bool
        template_variables: Optional[Mapping[str, Any]]
        continue_last: bool


@dataclass(frozen=True)
class TokenLogprob:
    """How likely a generated token was, by the model's own logits."""

    token: int
    logprob: float
    """ln p(token)"""
    rank: int
    """1: it was the likeliest"""
    top: tuple[tuple[int, float], ...] = ()
    """the likeliest tokens and their log-probabilities, in order"""


@dataclass
class Completion:
    """A generated text."""

    text: str
    tokens: list[int]
    """ids that were generated, the end token included"""
    finish_reason: str
    """"stop": the model ended, or a stop text came; "length": max_tokens; "context": the context is full; "cancelled";
    "constraint": what the constraint lets come next could not be found out"""
    prompt_tokens: int = 0
    reused_tokens: int = 0
    """of the prompt, that were in the cache already"""
    first_seconds: float = math.nan
    """from the call to the first token (TTFT)"""
    total_seconds: float = math.nan
    logprobs: Optional[list[TokenLogprob]] = None

    def __str__(self) -> str:
        return self.text

    def json(self) -> Any:
        """The text, read as JSON, as a schema makes it be. A text that was cut short is not JSON: ValueError."""
        return json.loads(self.text)


@dataclass
class Message(Completion):
    """An answer in a conversation. `message` is to be appended to the messages."""

    message: dict[str, Any] = field(default_factory=dict)

    @property
    def content(self) -> str:
        """What the answer says."""
        return str(self.message.get("content") or "")

    @property
    def reasoning(self) -> Optional[str]:
        """What the model thought before, where it did."""
        return self.message.get("reasoning_content")

    @property
    def tool_calls(self) -> list[dict[str, Any]]:
        """Calls of tools: {"id", "type": "function", "function": {"name", "arguments"}}, arguments being an object."""
        return list(self.message.get("tool_calls") or [])


class Delta(str):
    """A piece of an answer that streams in: its content, which may be empty, and `reasoning`."""

    reasoning: str = ""


@dataclass
class Score:
    """How likely a text is."""

    tokens: list[int]
    logprobs: list[float]
    """logprobs[i] = ln p(tokens[i] | tokens before it); of the first one 0, which means nothing"""
    argmax: list[int]
    """argmax[i]: the likeliest token after tokens[0 … i]; with top not of the last"""
    n_context: int = 1
    """tokens in front that are given and not scored"""
    places: Optional[list[TokenLogprob]] = None
    """with top: each token but the first, with the likeliest ones in its place"""

    @property
    def logprob(self) -> float:
        """ln p(text | context)"""
        return math.fsum(self.logprobs[self.n_context:])

    @property
    def is_greedy(self) -> bool:
        """Every token that is scored is the likeliest one."""
        return all(self.argmax[i - 1] == self.tokens[i] for i in range(self.n_context, len(self.tokens)))

    @property
    def perplexity(self) -> float:
        n = len(self.tokens) - self.n_context
        return math.exp(-self.logprob / n) if n > 0 else math.nan


class _Worker:
    """Calls into an engine, one at a time. On the main thread they run on another, so that Ctrl-C is heard and ends them."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.stop = ctypes.c_int(0)
        self.busy = False
        self.pool: Optional[ThreadPoolExecutor] = None

    def __call__(self, function: Callable[[], Any]) -> Any:
        with self.lock:
            self.busy = True
            try:
                return self._call(function)
            finally:
                self.busy = False

    def _call(self, function: Callable[[], Any]) -> Any:
        if threading.current_thread() is not threading.main_thread():
            return function()
        if self.pool is None:
            self.pool = ThreadPoolExecutor(1, "caravan")
        future = self.pool.submit(function)
        try:
            return future.result()
        except KeyboardInterrupt:
            self.stop.value = 1
            try:
                future.exception()
            finally:
                self.stop.value = 0
            raise


class Constraint:
    """What a text must be, made once and used by many requests; LLM makes them of schema=, regex=, grammar=, choices=."""

    def __init__(self, kind: str, what: Union[str, Sequence[str]]) -> None:
        self._pointer = ctypes.c_void_p()
        out = ctypes.byref(self._pointer)
        if kind == "choices":
            words = [word.encode() for word in what]
            _c.cvn_constraint_choices((ctypes.c_char_p * len(words))(*words),
                                      (ctypes.c_size_t * len(words))(*map(len, words)), len(words), out)
            return
        text = str(what).encode()
        if kind == "schema":
            options = _c.ConstrainOptions(compact=True, in_order=True, canonical=True)
            _c.cvn_constraint_schema(text, len(text), ctypes.byref(options), out)
        else:
            make = _c.cvn_constraint_regex if kind == "regex" else _c.cvn_constraint_grammar
            make(text, len(text), out)

    def __del__(self) -> None:
        if getattr(self, "_pointer", None):
            _c.cvn_constraint_free(self._pointer)
            self._pointer = ctypes.c_void_p()


def _schema_text(schema: Any) -> str:
    if isinstance(schema, str):
        return schema
    make = getattr(schema, "model_json_schema", None)  # a class of pydantic
    return json.dumps(make() if make else schema)


def _json(value: Any) -> Optional[bytes]:
    return None if value is None else json.dumps(value).encode()


class _Request:
    """A request that is under way, and what was heard of it."""

    def __init__(self, llm: "LLM", request: _c.Request, keep: Any, stop: Sequence[str], logprobs: Optional[int],
                 constraint: Optional[Constraint], n_prompt: int) -> None:
        self.llm, self.request, self.keep, self.constraint = llm, request, keep, constraint
        self.stops, self.n_top, self.n_prompt = [s for s in stop if s], logprobs or 0, n_prompt
        self.logprobs: Optional[list[TokenLogprob]] = None if logprobs is None else []
        self.tokens: list[int] = []
        self.fresh: list[int] = []  # tokens that were not taken yet
        self.id = 0
        self.ended = False
        self.stopped = False
        self.result = _c.Result()
        self.text = ""
        self.why = ""
        self.accept: Optional[Callable[[int], bool]] = None  # False: the request ends at this token
        self.tools: Optional[bytes] = None  # by which an answer's arguments get their types

    def hear(self, token: int) -> bool:
        self.tokens.append(token)
        self.fresh.append(token)
        return (self.accept is None or self.accept(token)) and not self.stopped

    def see(self, logits: Any, token: int) -> None:
        assert self.logprobs is not None
        self.logprobs.append(self.llm._likely(logits, token, self.n_top))


class _Calls:
    """Tool calls that an answer must make (cvn_calls)."""

    def __init__(self, chat: ctypes.c_void_p, tools: bytes, name: Optional[str], most: int, prompt: Any, n: int) -> None:
        self._chat, self.pointer = chat, ctypes.c_void_p()
        options = _c.CallsOptions(tools, _c.text(name), most)
        _c.cvn_calls_new(chat, ctypes.byref(options), prompt, n, ctypes.byref(self.pointer))

    def push(self, token: int) -> bool:
        return bool(_c.cvn_calls_push(self.pointer, token))

    def next(self, request: _c.Request) -> bool:
        return bool(_c.cvn_calls_next(self.pointer, ctypes.byref(request)))

    def tokens(self) -> list[int]:
        n = ctypes.c_int64()
        ids = _c.cvn_calls_tokens(self.pointer, ctypes.byref(n))
        return list(ids[:n.value]) if n.value else []

    def message(self) -> dict[str, Any]:
        text = ctypes.c_void_p()
        _c.cvn_calls_message(self.pointer, ctypes.byref(text))
        message: dict[str, Any] = json.loads(_c.take_text(text.value))
        return message

    def __del__(self) -> None:
        if getattr(self, "pointer", None):
            _c.cvn_calls_free(self.pointer)
            self.pointer = ctypes.c_void_p()


def _forced_tool(choice: ToolChoice) -> Optional[str]:
    """The name of the tool that must be called; "" for any."""
    if choice == "required":
        return ""
    name = choice.get("function", {}).get("name") if isinstance(choice, Mapping) else None
    if not isinstance(choice, Mapping) or choice.get("type") != "function" or not isinstance(name, str):
        raise CaravanError(f'tool_choice is {choice!r}; give "auto", "none", "required" or '
                           '{"type": "function", "function": {"name": …}}')
    return name


class _Stops:
    """Lets text through up to the first of some texts; what may be the beginning of one is held back."""

    def __init__(self, stops: Sequence[str]) -> None:
        self.stops, self.held, self.met = stops, "", False

    def push(self, text: str, end: bool = False) -> str:
        self.held += text
        found = [at for at in (self.held.find(s) for s in self.stops) if at >= 0]
        if found:
            self.met = True
            text, self.held = self.held[:min(found)], ""
            return text
        keep = 0
        for s in self.stops if not end else ():
            for n in range(min(len(s) - 1, len(self.held)), keep, -1):
                if self.held.endswith(s[:n]):
                    keep = n
                    break
        cut = len(self.held) - keep
        text, self.held = self.held[:cut], self.held[cut:]
        return text


class Stream(Iterator[str]):
    """Pieces of a text as they come. `result` is the whole once they have ended; close() ends it before."""

    def __init__(self, request: _Request, pieces: Iterator[str]) -> None:
        self._request, self._pieces = request, pieces
        self.result: Optional[Completion] = None

    def __iter__(self) -> "Stream":
        return self

    def __next__(self) -> str:
        return next(self._pieces)

    def close(self) -> None:
        """Ends the text; `result` is what came."""
        self._pieces.close()  # type: ignore[attr-defined]
        self._request.llm._cancel(self._request)

    def __del__(self) -> None:
        self._request.llm._cancel(self._request)

    def __enter__(self) -> "Stream":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class LLM:
    """A model and an engine for it.

    model: a folder, a file, or the name of a model as `caravan models` lists them.
    dtype: of weights, activations and cache, "f32" or "bf16"; None: the file's.
    quantize: while loading: "int8", "int4", "q4_0", …; None: as the file is.
    context: positions per slot; None: the model's.
    slots: texts that are generated at once.
    threads: None: one per core.
    pooling: of embed: "mean" or "last".
    chat_template: a file, or the name of one that is built in; None: the model's own.
    numerics: "portable" for the same bits on every processor, or None.
    kv_cache, activations: "int8" or None. speculate: "lookup" or None. draft: a small LLM that guesses tokens.
    adapters: folders of adapters (LoRA), of which calls choose by number.
    device: "cpu", "cuda", "tpu", "pjrt:PLUGIN". mesh, layout: "data=2,model=2" and how the model lies on it, "tp". Where
    mpirun started several processes, a mesh spans them all (caravan.rank).
    text_only: of a model that sees or hears, open the text model; it is refused otherwise.
    memory_limit: bytes; more than that is refused. on_load(done, all): told while weights are read.
    """

    def __init__(self, model: Union[str, "os.PathLike[str]"], *, dtype: Optional[str] = None,
                 quantize: Optional[str] = None, context: Optional[int] = None, slots: int = 4,
                 threads: Optional[int] = None, pooling: str = "mean", chat_template: Optional[str] = None,
                 tokenizer: Optional[str] = None, kv_cache: Optional[str] = None, activations: Optional[str] = None,
                 speculate: Optional[str] = None, draft: Optional["LLM"] = None, adapters: Sequence[str] = (),
                 numerics: Optional[str] = None, device: Optional[str] = None, mesh: Optional[str] = None,
                 layout: Optional[str] = None, memory_limit: int = 0, on_load: Optional[Callable[[int, int], None]] = None,
                 text_only: bool = False) -> None:
        self._model, self._engine, self._chat = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
        self._running: dict[int, _Request] = {}
        self._dropped: list[int] = []
        self._constraints: "OrderedDict[tuple[str, str], Constraint]" = OrderedDict()
        self._worker = _Worker()
        self._draft, self._template = draft, chat_template
        if dtype is not None and dtype not in ("f32", "bf16"):
            raise CaravanError(f"cannot compute in {dtype}; use f32 or bf16")
        path = ctypes.c_void_p()
        _c.cvn_model_find(os.fsencode(model), ctypes.byref(path))
        self.path = os.fsdecode(_c.take_text(path.value))
        options = _c.ModelOptions(dtype=len(_c.DTYPES) if dtype is None else _c.DTYPES.index(dtype),
                                  quantize=_c.text(quantize), tokenizer=_c.text(tokenizer), text_only=text_only)
        self._worker(lambda: _c.cvn_model_open(os.fsencode(self.path), ctypes.byref(options),
                                               ctypes.byref(self._model)))
        self._open_engine(context, slots, threads, pooling, kv_cache, activations, speculate, adapters, numerics,
                          device, mesh, layout, memory_limit, on_load)

    def _open_engine(self, context: Optional[int], slots: int, threads: Optional[int], pooling: str,
                     kv_cache: Optional[str], activations: Optional[str], speculate: Optional[str],
                     adapters: Sequence[str], numerics: Optional[str], device: Optional[str], mesh: Optional[str],
                     layout: Optional[str], memory_limit: int, on_load: Optional[Callable[[int, int], None]]) -> None:
        o = _c.cvn_engine_defaults()
        o.slots, o.context, o.threads = slots, context or 0, threads or 0
        o.penalties = o.logits_processors = o.scoring = o.reuse = True
        o.pooling, o.kv_cache, o.activations = _c.text(pooling), _c.text(kv_cache), _c.text(activations)
        o.numerics = _c.text(numerics)
        o.speculate, o.device, o.mesh, o.layout = map(_c.text, (speculate, device, mesh, layout))
        o.cluster = _ranks.joined() if mesh else None
        o.draft = self._draft._model if self._draft else None
        folders = [os.fsencode(a) for a in adapters]
        o.adapter, o.n_adapters = (ctypes.c_char_p * max(len(folders), 1))(*folders), len(folders)
        o.memory_limit = memory_limit
        if on_load:
            o.on_load = _c.LoadFn(lambda _, done, all: on_load(done, all))
        self._options = o  # the engine borrows its strings
        self._listener = _c.Listener(_c.TokenFn(self._on_token), _c.EndFn(self._on_end), None)
        self._logits = _c.LogitsFn(self._on_logits)
        self._worker(lambda: _c.cvn_engine_new(self._model, ctypes.byref(o), ctypes.byref(self._engine)))
        _c.cvn_engine_watch(self._engine, ctypes.byref(self._worker.stop))

    def close(self) -> None:
        """Frees the model. Texts that are under way are dropped."""
        if _ranks.left:
            return
        with self._worker.lock:
            if self._worker.pool:
                self._worker.pool.shutdown(wait=False)
                self._worker.pool = None
            if self._engine:
                err = _c.Err()
                _c._library.cvn_engine_free(self._engine, ctypes.byref(err))
            if self._chat:
                _c.cvn_chat_free(self._chat)
            self._running.clear()
            self._constraints.clear()
            if self._model:
                _c.cvn_model_free(self._model)
            self._engine, self._chat, self._model = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()

    def __enter__(self) -> "LLM":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_worker", None):
            self.close()

    def __repr__(self) -> str:
        return f"caravan.LLM({self.path!r})"

    # ---- the model ----

    def _opened(self) -> ctypes.c_void_p:
        if not self._model:
            raise CaravanError("the model was closed")
        return self._model

    @property
    def vocab_size(self) -> int:
        """Ids are from 0 to below this."""
        return int(_c.cvn_model_vocab(self._opened()))

    @property
    def context(self) -> int:
        """Positions of a slot."""
        most = int(_c.cvn_model_context(self._opened()))
        return int(self._options.context) or most

    @property
    def width(self) -> int:
        """Numbers of an embedding."""
        return int(_c.cvn_model_width(self._opened()))

    @property
    def dtype(self) -> str:
        return _c.DTYPES[_c.cvn_model_dtype(self._opened())]

    @property
    def bos(self) -> int:
        """The id that begins a text, or -1."""
        return int(_c.cvn_model_bos(self._opened()))

    @property
    def eos(self) -> int:
        """The id that ends a text, or -1."""
        return int(_c.cvn_model_eos(self._opened()))

    @property
    def warnings(self) -> list[str]:
        """What was noticed about the model's files and weights."""
        text = _c.cvn_model_warnings(self._opened()) + _c.cvn_engine_warnings(self._engine)
        return [line for line in text.decode("utf-8", "replace").split("\n") if line]

    @property
    def stats(self) -> dict[str, float]:
        """Counts, seconds and bytes over the life of the engine, by the names in caravan/engine.h."""
        self._opened()
        stats = _c.cvn_engine_get_stats(self._engine)
        return {name: getattr(stats, name) for name, _ in stats._fields_}

    def encode(self, text: str, *, bos: bool = False, special: bool = False) -> list[int]:
        """Token ids of a text. bos: the begin-of-text token in front. special: special tokens in the text are their
        ids; else they are text like any other."""
        data, ids, n = text.encode(), ctypes.c_void_p(), ctypes.c_int64()
        _c.cvn_model_encode(self._opened(), data, len(data), (1 if bos else 0) | (2 if special else 0),
                            ctypes.byref(ids), ctypes.byref(n))
        return _c.take_ids(ids.value, n.value)

    def decode(self, tokens: Tokens, *, special: bool = False) -> str:
        """The text of token ids; what is not UTF-8 in it is U+FFFD. special: special tokens are written out."""
        decoder, text, n = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_size_t()
        _c.cvn_decoder_new(self._opened(), 1 if special else 0, ctypes.byref(decoder))
        try:
            _c.cvn_decoder_push(decoder, _c.ids_array(tokens), len(tokens), True, ctypes.byref(text), ctypes.byref(n))
            return ctypes.string_at(text.value or 0, n.value).decode("utf-8", "replace")
        finally:
            _c.cvn_decoder_free(decoder)

    # ---- requests ----

    def _on_token(self, _: Any, request: int, token: int) -> bool:
        r = self._running.get(request)
        return r.hear(token) if r else False

    def _on_end(self, _: Any, request: int, result: Any) -> None:
        r = self._running.pop(request, None)
        if r:
            r.ended = True
            r.result = _c.Result.from_buffer_copy(result.contents)
            r.why = (result.contents.why or b"").decode("utf-8", "replace")

    def _on_logits(self, _: Any, request: int, logits: Any, token: int) -> None:
        r = self._running.get(request)
        if r:
            r.see(logits, token)

    def _likely(self, logits: Any, token: int, n: int) -> TokenLogprob:
        rank, logprob, top = ctypes.c_int(), ctypes.c_float(), (_c.Logprob * max(n, 1))()
        found = _c.cvn_logprobs(logits, self.vocab_size, token, ctypes.byref(logprob), ctypes.byref(rank), top, n)
        return TokenLogprob(token, logprob.value, rank.value, tuple((t.token, t.logprob) for t in top[:found]))

    def _constraint(self, schema: Any, regex: Optional[str], grammar: Optional[str],
                    choices: Optional[Sequence[str]]) -> Optional[Constraint]:
        given = [(kind, what) for kind, what in (("schema", schema), ("regex", regex), ("grammar", grammar),
                                                 ("choices", choices)) if what is not None]
        if not given:
            return None
        if len(given) > 1:
            raise CaravanError("a text has one constraint: give one of schema, regex, grammar and choices")
        kind, what = given[0]
        what = _schema_text(what) if kind == "schema" else what
        key = (kind, json.dumps(what))
        found = self._constraints.pop(key, None) or Constraint(kind, what)
        self._constraints[key] = found
        while len(self._constraints) > 64:
            self._constraints.popitem(last=False)
        return found

    def _request(self, tokens: Tokens, *, max_tokens: Optional[int], temperature: float, top_k: int, top_p: float,
                 min_p: float, repeat_penalty: float, presence_penalty: float, frequency_penalty: float,
                 seed: Optional[int], stop: Union[str, Sequence[str]], ignore_eos: bool, min_tokens: int,
                 logit_bias: Optional[Mapping[int, float]], logprobs: Optional[int], schema: Any,
                 regex: Optional[str], grammar: Optional[str], choices: Optional[Sequence[str]], adapter: int,
                 end: Any = None, n_end: int = 0) -> _Request:
        constraint = self._constraint(schema, regex, grammar, choices)
        prompt = _c.ids_array(tokens)
        bias = [_c.Bias(int(t), float(b)) for t, b in (logit_bias or {}).items()]
        biases = (_c.Bias * max(len(bias), 1))(*bias)
        if seed is None:
            drawn = os.urandom(8) if temperature > 0 else b""
            seed = int.from_bytes(_ranks.same(drawn) if self._options.cluster else drawn, "little")
        sampling = _c.Sampling(temperature, top_k, top_p, min_p, repeat_penalty, presence_penalty, frequency_penalty,
                               seed)
        request = _c.Request(
            prompt=prompt, n_prompt=len(tokens), max_tokens=self.context if max_tokens is None else max_tokens,
            ignore_eos=ignore_eos, sampling=sampling, bias=biases, n_bias=len(bias), min_tokens=min_tokens,
            constraint=constraint._pointer if constraint else None, end=end, n_end=n_end, adapter=adapter)
        if logprobs is not None:
            request.on_logits = self._logits
        return _Request(self, request, (prompt, biases), [stop] if isinstance(stop, str) else list(stop), logprobs,
                        constraint, len(tokens))

    def _submit(self, r: _Request) -> _Request:
        number = ctypes.c_int()
        with self._worker.lock:
            self._opened()
            r.ended = False
            _c.cvn_engine_submit(self._engine, ctypes.byref(r.request), ctypes.byref(self._listener),
                                 ctypes.byref(number))
            r.id = number.value
            self._running[r.id] = r
        return r

    def _step(self) -> None:
        left = ctypes.c_int()
        self._drop()
        self._worker(lambda: _c.cvn_engine_step(self._engine, ctypes.byref(left)))

    def _cancel(self, r: _Request) -> None:
        """Ends a request; at the next step, where the engine is at work. (The garbage collector comes here on any thread.)"""
        if r.ended:
            return
        r.ended = r.stopped = True
        self._dropped.append(r.id)
        if self._worker.lock.acquire(blocking=False):
            try:
                if not self._worker.busy:
                    self._drop()
            finally:
                self._worker.lock.release()

    def _drop(self) -> None:
        while self._dropped:
            number = self._dropped.pop()
            if self._engine and number in self._running:
                _c.cvn_engine_cancel(self._engine, number)
            self._running.pop(number, None)

    def _arrivals(self, r: _Request) -> Iterator[list[int]]:
        """Tokens of a request as they come, some at a time; those behind the last come with the last list."""
        try:
            while True:
                while not r.fresh and not r.ended:
                    with self._worker.lock:
                        if not r.fresh and not r.ended:
                            self._opened()
                            self._step()
                fresh, r.fresh = r.fresh, []
                if fresh:
                    yield fresh
                if r.ended and not r.fresh:
                    return
        finally:
            self._cancel(r)

    def _finish(self, r: _Request, met: bool) -> str:
        if r.result.finish == _c.FINISH.index("constraint"):
            raise CaravanError(r.why or "what its constraint lets come next could not be found out",
                               _c.EUNSUPPORTED)
        return "stop" if met else _c.FINISH[r.result.finish]

    def _fill(self, completion: Completion, r: _Request) -> None:
        completion.reused_tokens = int(r.result.reused)
        completion.first_seconds, completion.total_seconds = r.result.first_seconds, r.result.total_seconds
        completion.logprobs = r.logprobs[:len(completion.tokens)] if r.logprobs is not None else None

    def _texts(self, r: _Request, stream: Stream) -> Iterator[str]:
        """Pieces of a text, up to a stop text."""
        decoder, stops, whole = ctypes.c_void_p(), _Stops(r.stops), []
        has = bool(_c.cvn_model_has_tokenizer(self._model))
        if has:
            _c.cvn_decoder_new(self._model, 2, ctypes.byref(decoder))
        arrivals = self._arrivals(r)

        def push(ids: Tokens, end: bool) -> str:
            if not has:
                return ""
            text, n = ctypes.c_void_p(), ctypes.c_size_t()
            _c.cvn_decoder_push(decoder, _c.ids_array(ids), len(ids), end, ctypes.byref(text), ctypes.byref(n))
            return stops.push(ctypes.string_at(text.value or 0, n.value).decode("utf-8", "replace"), end)

        try:
            for ids in arrivals:
                piece = push(ids, False)
                whole.append(piece)
                if piece:
                    yield piece
                if stops.met:
                    break
            if not stops.met:
                piece = push([], True)
                whole.append(piece)
                if piece:
                    yield piece
        finally:
            arrivals.close()  # type: ignore[attr-defined]
            if decoder:
                _c.cvn_decoder_free(decoder)
            stream.result = Completion("".join(whole), r.tokens, "cancelled", r.n_prompt)
            self._fill(stream.result, r)
        stream.result.finish_reason = self._finish(r, stops.met)

    def _prompt(self, prompt: Prompt, special: bool = False) -> Tokens:
        return self.encode(prompt, bos=True, special=special) if isinstance(prompt, str) else list(prompt)

    @overload  # a str is a sequence of them, too: the first that fits counts
    def generate(  # type: ignore[overload-overlap]
            self, prompt: Prompt, *, stream: Literal[False] = ..., **options: Unpack[_Generate]) -> Completion: ...
    @overload
    def generate(  # type: ignore[overload-overlap]
            self, prompt: Prompt, *, stream: Literal[True], **options: Unpack[_Generate]) -> Stream: ...
    @overload
    def generate(self, prompt: Sequence[str], *, stream: Literal[False] = ...,
                 **options: Unpack[_Generate]) -> List[Completion]: ...
    @overload
    def generate(self, prompt: Sequence[str], *, stream: Literal[True], **options: Unpack[_Generate]) -> List[Stream]: ...

    def generate(self, prompt: Any, *, max_tokens: Optional[int] = 256, temperature: float = 0.0, top_k: int = 0,
                 top_p: float = 1.0, min_p: float = 0.0, repeat_penalty: float = 1.0, presence_penalty: float = 0.0,
                 frequency_penalty: float = 0.0, seed: Optional[int] = None, stop: Union[str, Sequence[str]] = (),
                 ignore_eos: bool = False, min_tokens: int = 0, logit_bias: Optional[Mapping[int, float]] = None,
                 logprobs: Optional[int] = None, schema: Any = None, regex: Optional[str] = None,
                 grammar: Optional[str] = None, choices: Optional[Sequence[str]] = None, adapter: int = 0,
                 special: bool = False, stream: bool = False) -> Any:
        """Continues a prompt: a text, or token ids; or several of them, which share the engine's slots.

        temperature 0 takes the likeliest token always. seed: the same seed gives the same text; None: another each time.
        stop: texts before which the text ends. logprobs: log-probabilities of each token and of the N likeliest.
        schema (JSON schema: a dict, its text or a class of pydantic), regex, grammar (GBNF or Lark), choices: what the
        text must be; docs/CONSTRAIN.md. special: special tokens in a prompt are their ids. adapter: the number of one
        of the LLM's adapters, -1: none.
        stream: returns a Stream of pieces of text. Else a Completion, or a list of them for a list of prompts.
        """
        options = dict(max_tokens=max_tokens, temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p,
                       repeat_penalty=repeat_penalty, presence_penalty=presence_penalty,
                       frequency_penalty=frequency_penalty, seed=seed, stop=stop, ignore_eos=ignore_eos,
                       min_tokens=min_tokens, logit_bias=logit_bias, logprobs=logprobs, schema=schema, regex=regex,
                       grammar=grammar, choices=choices, adapter=adapter)
        many = not isinstance(prompt, str) and len(prompt) > 0 and not hasattr(prompt[0], "__index__")
        streams = []
        try:
            for one in prompt if many else [prompt]:
                r = self._submit(self._request(self._prompt(one, special), **options))
                streams.append(self._stream(r, self._texts))
            if stream:
                return streams if many else streams[0]
            results = [self._whole(s) for s in streams]
        except BaseException:
            for s in streams:
                s.close()
            raise
        return results if many else results[0]

    def _stream(self, r: _Request, pieces: Callable[[_Request, Stream], Iterator[str]]) -> Stream:
        stream = Stream(r, iter(()))
        stream._pieces = pieces(r, stream)
        return stream

    @staticmethod
    def _whole(stream: Stream) -> Completion:
        for _ in stream:
            pass
        assert stream.result is not None
        return stream.result

    # ---- chat ----

    def _chat_of(self) -> ctypes.c_void_p:
        with self._worker.lock:
            if not self._chat:
                _c.cvn_chat_new(self._opened(), _c.text(self._template), ctypes.byref(self._chat))
            return self._chat

    def encode_chat(self, messages: Messages, *, tools: Optional[Sequence[Any]] = None,
                    template_variables: Optional[Mapping[str, Any]] = None, continue_last: bool = False) -> list[int]:
        """Token ids of a conversation, up to where the assistant answers, by the model's chat template."""
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        given = _c.ChatInput(messages=_json(list(messages)), tools=_json(tools), variables=_json(template_variables),
                             go_on=continue_last)
        ids, n = ctypes.c_void_p(), ctypes.c_int64()
        _c.cvn_chat_encode(self._chat_of(), ctypes.byref(given), ctypes.byref(ids), ctypes.byref(n))
        return _c.take_ids(ids.value, n.value)

    def _answers(self, r: _Request, stream: Stream) -> Iterator[str]:
        """Deltas of an answer, up to a stop text."""
        answer, stops, thoughts, said = ctypes.c_void_p(), _Stops(r.stops), [], []
        prompt = r.keep[0]
        _c.cvn_answer_new(self._chat, prompt, r.n_prompt, r.tools, ctypes.byref(answer))
        arrivals = self._arrivals(r)
        message: dict[str, Any] = {"role": "assistant", "content": ""}

        def delta_of(text: ctypes.c_void_p, end: bool) -> Delta:
            read = json.loads(_c.take_text(text.value) or b"{}")
            delta = Delta(stops.push(read.get("content", ""), end))
            delta.reasoning = read.get("reasoning_content", "")
            thoughts.append(delta.reasoning)
            said.append(str(delta))
            return delta

        try:
            for ids in arrivals:
                text = ctypes.c_void_p()
                _c.cvn_answer_push(answer, _c.ids_array(ids), len(ids), ctypes.byref(text))
                delta = delta_of(text, False)
                if delta or delta.reasoning:
                    yield delta
                if stops.met:
                    break
            if not stops.met:
                text, whole = ctypes.c_void_p(), ctypes.c_void_p()
                _c.cvn_answer_end(answer, ctypes.byref(text), ctypes.byref(whole))
                delta = delta_of(text, True)
                message = json.loads(_c.take_text(whole.value))
                if stops.met:
                    message["content"] = "".join(said)
                if delta or delta.reasoning:
                    yield delta
        finally:
            arrivals.close()  # type: ignore[attr-defined]
            _c.cvn_answer_free(answer)
            if stops.met or not message["content"]:
                message["content"] = "".join(said)
                if any(thoughts):
                    message["reasoning_content"] = "".join(thoughts)
            stream.result = Message(str(message["content"]), r.tokens, "cancelled", r.n_prompt, message=message)
            self._fill(stream.result, r)
        stream.result.finish_reason = "tool_calls" if message.get("tool_calls") else self._finish(r, stops.met)

    def _forced(self, r: _Request, stream: Stream) -> Iterator[str]:
        """Nothing but what was thought: a call is in the message, once all are made."""
        calls: _Calls = r.keep[-1]
        r.accept = calls.push
        seconds, reused, first, finish = 0.0, 0, 0.0, ""
        message: dict[str, Any] = {"role": "assistant", "content": ""}
        arrivals: Any = iter(())
        try:
            while not finish and calls.next(r.request):
                self._submit(r)
                arrivals = self._arrivals(r)
                for _ in arrivals:
                    pass
                first, reused = (first, reused) if seconds else (r.result.first_seconds, r.result.reused)
                seconds += r.result.total_seconds
                finish = self._finish(r, False)
                finish = "" if finish in ("stop", "stopped") else finish
            message = calls.message()
            if message.get("reasoning_content"):
                delta = Delta("")
                delta.reasoning = message["reasoning_content"]
                yield delta
        finally:
            if hasattr(arrivals, "close"):
                arrivals.close()
            stream.result = Message(str(message["content"]), calls.tokens(), "cancelled", r.n_prompt, message=message)
            self._fill(stream.result, r)
            stream.result.reused_tokens, stream.result.first_seconds = min(reused, r.n_prompt), first
            stream.result.total_seconds = seconds
        stream.result.finish_reason = finish or ("length" if r.request.max_tokens <= 0 else
                                                 "tool_calls" if message.get("tool_calls") else "stop")

    @overload
    def chat(self, messages: Messages, *, stream: Literal[False] = ..., **options: Unpack[_Answer]) -> Message: ...
    @overload
    def chat(self, messages: Messages, *, stream: Literal[True], **options: Unpack[_Answer]) -> Stream: ...

    def chat(self, messages: Messages, *, tools: Optional[Sequence[Any]] = None, tool_choice: ToolChoice = "auto",
             parallel_tool_calls: bool = True, max_tokens: Optional[int] = None, temperature: float = 0.0,
             top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0, repeat_penalty: float = 1.0,
             presence_penalty: float = 0.0, frequency_penalty: float = 0.0, seed: Optional[int] = None,
             stop: Union[str, Sequence[str]] = (), min_tokens: int = 0,
             logit_bias: Optional[Mapping[int, float]] = None, logprobs: Optional[int] = None, schema: Any = None,
             regex: Optional[str] = None, grammar: Optional[str] = None, choices: Optional[Sequence[str]] = None,
             adapter: int = 0, template_variables: Optional[Mapping[str, Any]] = None, continue_last: bool = False,
             stream: bool = False) -> Any:
        """Answers a conversation: a text, or messages as OpenAI's chat completions have them.

        tools: [{"type": "function", "function": {"name", "description", "parameters"}}]; calls are in the answer's
        tool_calls. Append its `message`, and for each call {"role": "tool", "content": …}, and ask again.
        tool_choice: "auto": the model may call tools, and writes calls freely; "none": it is not shown them; "required": the
        answer is calls, at least one, each of which can be read and has arguments by the schema of its tool;
        {"type": "function", "function": {"name": …}}: a call of that tool. parallel_tool_calls=False: one call. Calls that
        must be made have no other constraint, logprobs, stop or continue_last.
        template_variables: what else the template knows, such as {"enable_thinking": False}. continue_last: the answer
        goes on in the last message, which is the assistant's. Other options are those of generate().
        Returns a Message; with stream a Stream of Delta.
        """
        forced = None if tool_choice in ("auto", "none") else _forced_tool(tool_choice)
        if forced is not None and not tools:
            raise CaravanError("tool_choice requires a tool call, but there are no tools")
        if forced is not None and (logprobs is not None or stop or continue_last or
                                   any(c is not None for c in (schema, regex, grammar, choices))):
            raise CaravanError("calls that tool_choice requires have no other constraint, logprobs, stop or continue_last; "
                               "leave them out, or tool_choice")
        tokens = self.encode_chat(messages, tools=None if tool_choice == "none" else tools,
                                  template_variables=template_variables, continue_last=continue_last)
        n_end = ctypes.c_int64()
        end = _c.cvn_chat_ends(self._chat, ctypes.byref(n_end))
        r = self._request(tokens, max_tokens=max_tokens, temperature=temperature, top_k=top_k, top_p=top_p,
                          min_p=min_p, repeat_penalty=repeat_penalty, presence_penalty=presence_penalty,
                          frequency_penalty=frequency_penalty, seed=seed, stop=stop, ignore_eos=False,
                          min_tokens=min_tokens, logit_bias=logit_bias, logprobs=logprobs, schema=schema, regex=regex,
                          grammar=grammar, choices=choices, adapter=adapter, end=end, n_end=n_end.value)
        r.tools = _json(tools)
        if forced is None:
            s = self._stream(self._submit(r), self._answers)
        else:
            calls = _Calls(self._chat, json.dumps(list(tools or ())).encode(), forced or None,
                           0 if parallel_tool_calls else 1, r.keep[0], r.n_prompt)
            r.keep = (*r.keep, calls)
            s = self._stream(r, self._forced)
        return s if stream else self._whole(s)

    # ---- scoring and embedding ----

    def score(self, text: Prompt, *, context: Prompt = "", top: Optional[int] = None, adapter: int = 0) -> Score:
        """How likely a text is, behind a context that is not scored. Texts are encoded together, as one, with the
        begin-of-text token in front; token ids are taken as they are. It fits the LLM's context, or is refused.
        top: the N likeliest tokens of each place, too; numbers are then those of a server's log-probabilities, to the bit,
        and some percent slower to have."""
        if isinstance(text, str) and isinstance(context, str):
            tokens = self.encode(context + text, bos=True)
            n_context = min(len(self.encode(context, bos=True)), len(tokens)) if context else 1
        else:
            before = list(self._prompt(context)) if context else []
            tokens, n_context = before + list(self.encode(text) if isinstance(text, str) else text), len(before)
        n = len(tokens)
        if n == 0:
            raise CaravanError("there is nothing to score")
        ids = _c.ids_array(tokens)
        self._opened()
        if top is None and adapter == 0:
            logprob, argmax = (ctypes.c_float * n)(), (ctypes.c_int32 * n)()
            self._worker(lambda: _c.cvn_engine_score(self._engine, ids, n, logprob, argmax))
            return Score(list(tokens), list(logprob), list(argmax), max(n_context, 1))
        places: list[TokenLogprob] = []
        see = _c.LogitsFn(lambda _, i, logits, token: places.append(self._likely(logits, token, max(top or 0, 1))))
        self._worker(lambda: _c.cvn_engine_score_logits(self._engine, adapter, ids, n, see, None))
        return Score(list(tokens), [0.0] + [p.logprob for p in places], [p.top[0][0] for p in places],
                     max(n_context, 1), places)

    def embed(self, text: Union[Prompt, Sequence[str]], *, adapter: int = 0) -> Any:
        """The embedding of a text, of length 1; of several texts a row for each. A numpy array where numpy is
        installed, else lists of floats."""
        many = not isinstance(text, str) and len(text) > 0 and isinstance(text[0], str)
        rows = []
        for one in text if many else [text]:
            ids = self._prompt(one)  # type: ignore[arg-type]
            array, out = _c.ids_array(ids), (ctypes.c_float * self.width)()
            self._worker(lambda: _c.cvn_engine_embed(self._engine, adapter, array, len(ids), out))
            rows.append(list(out))
        try:
            import numpy  # type: ignore[import-not-found,unused-ignore]
        except ImportError:
            return rows if many else rows[0]
        result = numpy.array(rows, dtype=numpy.float32)
        return result if many else result[0]

