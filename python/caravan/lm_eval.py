"""Caravan's models in EleutherAI's lm-evaluation-harness, as the model "caravan".

    python -m caravan.lm_eval run --model caravan --model_args pretrained=my-llama --tasks hellaswag

or, from Python, lm_eval.simple_evaluate(model=CaravanLM("my-llama"), tasks=[…]). Arguments besides `pretrained` are those of
caravan.LLM (dtype, quantize, context, slots, threads, …), and

    add_bos_token     the begin-of-text token in front of contexts [True]
    max_length        tokens of context and continuation together [the model's context]
    max_gen_toks      tokens of an answer, where a task does not say [256]

What is scored is tokens as the harness makes them: context and continuation are encoded together, and split where the context's
own tokens end.
"""

from __future__ import annotations

from typing import Any, Iterable, Optional

# The other models stay known beside this one.
import lm_eval.models  # type: ignore[import-not-found,import-untyped,unused-ignore]
from lm_eval import utils
from lm_eval.api.model import TemplateLM  # type: ignore[import-not-found,import-untyped,unused-ignore]
from lm_eval.api.registry import register_model  # type: ignore[import-not-found,import-untyped,unused-ignore]

from .llm import LLM

try:
    from tqdm import tqdm  # type: ignore[import-not-found,import-untyped,unused-ignore]
except ImportError:
    def tqdm(of: Iterable[Any], **_: Any) -> Iterable[Any]:  # type: ignore[no-redef,unused-ignore]
        return of


@register_model("caravan")
class CaravanLM(TemplateLM):  # type: ignore[misc,unused-ignore]
    """A caravan.LLM that the harness asks."""

    def __init__(self, pretrained: Any, batch_size: Any = None, device: Optional[str] = None, max_batch_size: Any = None,
                 max_length: Optional[int] = None, max_gen_toks: int = 256, add_bos_token: bool = True,
                 **options: Any) -> None:
        super().__init__()
        kind = None if device in (None, "cpu") else device
        self.llm = pretrained if isinstance(pretrained, LLM) else LLM(str(pretrained), device=kind, **options)
        self.max_length = int(max_length or self.llm.context)
        self.max_gen_toks, self.add_bos_token = int(max_gen_toks), bool(add_bos_token)

    @property
    def eot_token_id(self) -> int:
        return self.llm.eos

    @property
    def prefix_token_id(self) -> int:
        return self.llm.bos if self.llm.bos >= 0 else self.llm.eos

    @property
    def tokenizer_name(self) -> str:
        return self.llm.path.replace("/", "__")

    def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        return self.llm.decode(self.llm.encode_chat(chat_history, continue_last=not add_generation_prompt), special=True)

    def chat_template(self, chat_template: Any = False) -> Optional[str]:
        return "" if chat_template else None

    def tok_encode(self, string: str, add_special_tokens: Optional[bool] = None, **_: Any) -> list[int]:
        bos = self.add_bos_token if add_special_tokens is None else add_special_tokens
        ids = self.llm.encode(string, special=True)
        return [self.llm.bos] + ids if bos and self.llm.bos >= 0 and ids[:1] != [self.llm.bos] else ids

    def _loglikelihood_tokens(self, requests: Any, disable_tqdm: bool = False, **_: Any) -> list[tuple[float, bool]]:
        results = []
        for key, context, continuation in tqdm(requests, disable=disable_tqdm, desc="Scoring"):
            tokens = (context + continuation)[-self.max_length:]
            n = min(len(continuation), len(tokens) - 1)
            score = self.llm.score(tokens, top=1)
            at = len(tokens) - n
            answer = (sum(score.logprobs[at:]), all(score.argmax[i - 1] == tokens[i] for i in range(at, len(tokens))))
            results.append(answer)
            if key is not None:
                self.cache_hook.add_partial("loglikelihood", key, answer)
        return results

    def loglikelihood_rolling(self, requests: Any, disable_tqdm: bool = False) -> list[float]:
        results = []
        for request in tqdm(requests, disable=disable_tqdm, desc="Scoring"):
            (string,) = request.args
            windows = [(None, *utils.make_disjoint_window(w)) for w in utils.get_rolling_token_windows(
                token_list=self.tok_encode(string, add_special_tokens=False), prefix_token=self.prefix_token_id,
                max_seq_len=self.max_length - 1, context_len=1)]
            total = sum(logprob for logprob, _ in self._loglikelihood_tokens(windows, disable_tqdm=True))
            results.append(total)
            self.cache_hook.add_partial("loglikelihood_rolling", (string,), total)
        return results

    def generate_until(self, requests: Any, disable_tqdm: bool = False) -> list[str]:
        results = []
        for request in tqdm(requests, disable=disable_tqdm, desc="Generating"):
            context, given = request.args
            options = dict(given)
            until = options.pop("until", None) or []
            most = int(options.pop("max_gen_toks", options.pop("max_tokens", self.max_gen_toks)))
            temperature = float(options.pop("temperature", 0.0)) if options.pop("do_sample", True) else 0.0
            known = {name: options[name] for name in ("top_k", "top_p", "min_p", "seed") if name in options}
            tokens = self.tok_encode(context)[-max(self.max_length - most, 1):]
            done = self.llm.generate(tokens, max_tokens=most, temperature=temperature,
                                     stop=[until] if isinstance(until, str) else until, **known)
            results.append(done.text)
            self.cache_hook.add_partial("generate_until", (context, given), done.text)
        return results


def main() -> None:
    """The harness's own command line, which knows the model "caravan" then."""
    from lm_eval.__main__ import cli_evaluate  # type: ignore[import-not-found,import-untyped,unused-ignore]

    cli_evaluate()


if __name__ == "__main__":
    main()
