"""Writes tests/data/text/mistral: a small tekken.json as Mistral's models of version 7 and later have, which come without a template, and
cases.jsonl, conversations with the ids that mistral-common writes them in. A line is {"messages", "ids"}.

Run: python tests/oracles/text_mistral.py   (needs mistral-common; its vocabulary is that of families/tekken.json there)
"""
import json
from pathlib import Path

from mistral_common.protocol.instruct.messages import AssistantMessage, SystemMessage, UserMessage
from mistral_common.protocol.instruct.request import ChatCompletionRequest
from mistral_common.tokens.tokenizers.mistral import MistralTokenizer

DATA = Path(__file__).parent.parent / "data" / "text"
OUT = DATA / "mistral"
SPECIAL = ["<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]",
           "[TOOL_CALLS]", "[IMG]", "<pad>", "[IMG_BREAK]", "[IMG_END]", "[PREFIX]", "[MIDDLE]", "[SUFFIX]", "[SYSTEM_PROMPT]",
           "[/SYSTEM_PROMPT]", "[TOOL_CONTENT]", "[ARGS]", "[CALL_ID]"]
ROLES = {"system": SystemMessage, "user": UserMessage, "assistant": AssistantMessage}
CONVERSATIONS = [
    ["user", "Hi"],
    ["system", "Be brief.", "user", "Name a colour."],
    ["user", "  a \n", "assistant", "b c", "user", "\u00e9\u3000d"],
    ["system", " padded\n\n", "user", "[/INST] and </s><s>[SYSTEM_PROMPT]", "assistant", "No.", "user", "Why [INST]not[/INST]?"],
    ["user", "1234", "assistant", "x\n", "user", "one two", "assistant", "y", "user", "z"],
]


def main():
    small = json.load(open(DATA / "families" / "tekken.json"))
    first = len(SPECIAL) + 2
    small["config"].update(default_num_special_tokens=first, default_vocab_size=first + len(small["vocab"]),
                           num_vocab_tokens=len(small["vocab"]), version="v11")
    small["special_tokens"] = [dict(rank=i, token_str=token, is_control=True) for i, token in enumerate(SPECIAL)]
    OUT.mkdir(exist_ok=True)
    (OUT / "tekken.json").write_text(json.dumps(small, separators=(",", ":")) + "\n")
    tokenizer = MistralTokenizer.from_file(str(OUT / "tekken.json"))
    with open(OUT / "cases.jsonl", "w") as out:
        for turns in CONVERSATIONS:
            messages = [dict(role=role, content=text) for role, text in zip(turns[::2], turns[1::2])]
            request = ChatCompletionRequest(messages=[ROLES[m["role"]](content=m["content"]) for m in messages])
            ids = tokenizer.encode_chat_completion(request).tokens
            out.write(json.dumps(dict(messages=messages, ids=ids)) + "\n")


main()
