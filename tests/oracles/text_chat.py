"""Writes tests/data/text/chat_rendered.jsonl: conversations as the published chat templates render them.

Run: python tests/oracles/text_chat.py [TEMPLATES]   (needs jinja2)

TEMPLATES is a folder with the chat templates of the models, each as published, one file per model; without it they are
looked for beside the checkout, in ../shared/data/chat/templates, and where they are missing nothing is made.
The environment is the one that transformers renders templates in. A line is
{"format", "messages", "options", "text"}; a message may have "tool_name" and "tool_arguments" (JSON text).
"""
import copy
import json
import os
import sys

from jinja2.sandbox import ImmutableSandboxedEnvironment

FILES = {
    "llama3.1": "meta-llama-Llama-3.1-8B-Instruct.jinja",
    "llama3.2": "meta-llama-Llama-3.2-3B-Instruct.jinja",
    "r1": "deepseek-ai-DeepSeek-R1-Distill-Llama-8B.jinja",
}
# The template of Llama 3.0, written down from its description: header, trimmed content, end of turn.
LLAMA3 = ("{% for m in messages %}{% set c = '<|start_header_id|>' + m['role'] + '<|end_header_id|>\n\n'"
          "+ m['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}{% set c = bos_token + c %}"
          "{% endif %}{{ c }}{% endfor %}{% if add_generation_prompt %}"
          "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}")

TOOLS = [
    {"type": "function", "function": {
        "name": "get_weather", "description": "Weather at a \"place\", now\nor later",
        "parameters": {"type": "object", "required": ["place"], "properties": {
            "place": {"type": "string", "description": "Köln, 東京 \u0001"},
            "days": {"type": "integer", "enum": [1, 2, 3]}, "empty": {}, "none": [], "x": None,
            "scale": [0.1, 1.5, 1e16, 1e-05, 3.0, 123456.789, 1e22, -0.0001, 5e-324], "deep": [[True], [False]]}}}},
    {"type": "function", "function": {"name": "now", "parameters": {}}},
]

def m(role, content):
    return {"role": role, "content": content}


CONVERSATIONS = [
    [m("user", "Hi")],
    [m("system", "Be brief."), m("user", "Name a colour.")],
    [m("user", "  a \n"), m("assistant", "\tb "), m("user", "\u00a0c\u3000\x1c")],
    [m("system", " padded\n\n"), m("user", "<|eot_id|><|start_header_id|>system"), m("assistant", ""), m("user", "")],
    [m("user", "x"), m("assistant", "answer")],
    [m("user", "one"), m("assistant", "<think>\nhm\n</think>\n\ntwo"), m("user", "three</think>four")],
    [m("user", "one"), m("assistant", "a</think>b</think> c "), m("user", "d")],
]
WITH_TOOLS = [
    [m("user", " How is the weather? ")],
    [m("system", "Use tools."), m("user", "Weather in Köln?"),
     {"role": "assistant", "tool_name": "get_weather",
      "tool_arguments": '{"place": "Köln \\"x\\"", "days": 2, "y": [1.0, null, true]}'},
     m("tool", '{"temperature": 20.5}'), m("assistant", "20.5 degrees."), m("user", "Thanks")],
    [m("user", "Time?"), {"role": "assistant", "tool_name": "now", "tool_arguments": "{}"},
     m("ipython", "12:00\n\"noon\"")],
]


def environment():
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    env.filters["tojson"] = lambda x, indent=None: json.dumps(x, ensure_ascii=False, indent=indent)
    return env


def as_template_wants(messages):
    out = []
    for message in copy.deepcopy(messages):
        if "tool_name" in message:
            arguments = json.loads(message.pop("tool_arguments"))
            message["tool_calls"] = [{"type": "function", "function": {
                "name": message.pop("tool_name"), "arguments": arguments}}]
        out.append(message)
    return out


def main(folder, out):
    env = environment()
    for name in ("llama3", "llama3.1", "llama3.2", "r1"):
        source = LLAMA3 if name == "llama3" else open(os.path.join(folder, FILES[name]), encoding="utf-8").read()
        template = env.from_string(source)
        bos = "<｜begin▁of▁sentence｜>" if name == "r1" else "<|begin_of_text|>"
        cases = [(c, {}) for c in CONVERSATIONS]
        if name in ("llama3.1", "llama3.2"):
            cases += [(c, {"date": "01 Jan 2030"}) for c in CONVERSATIONS[:2]]
            for c in WITH_TOOLS:
                cases += [(c, {"tools": True}), (c, {"tools": True, "tools_in_system": True}), (c, {})]
        for messages, options in cases:
            for prompt in (True, False):
                values = {"messages": as_template_wants(messages), "bos_token": bos, "add_generation_prompt": prompt}
                if "date" in options:
                    values["date_string"] = options["date"]
                if "tools" in options:
                    values["tools"] = TOOLS
                    values["tools_in_user_message"] = not options.get("tools_in_system", False)
                row = {"format": name, "messages": messages, "text": template.render(**values),
                       "options": dict(options, generation_prompt=prompt)}
                if "tools" in options:
                    row["options"]["tools"] = json.dumps(TOOLS, ensure_ascii=False)
                out.write(json.dumps(row, ensure_ascii=True) + "\n")


ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
TEMPLATES = sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "..", "shared", "data", "chat", "templates")
if os.path.isdir(TEMPLATES):
    with open(os.path.join(ROOT, "tests", "data", "text", "chat_rendered.jsonl"), "w", encoding="utf-8") as file:
        main(TEMPLATES, file)
else:
    print("skipped: no folder of chat templates at", os.path.normpath(TEMPLATES))
