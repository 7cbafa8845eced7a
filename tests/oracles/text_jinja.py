"""Writes tests/data/text/jinja.jsonl: what jinja2, set up as transformers sets it up, makes of templates.

Run: python tests/oracles/text_jinja.py                            (needs jinja2)
     python tests/oracles/text_jinja.py OUT.jsonl [CASES.json] TEMPLATE...

Without arguments the templates and conversations are those of this file. With some, the chat templates that are named
(files of Jinja) are rendered with each of the conversations below, with and without tools, and CASES.json, a list of
{"name", "chat_template", "data"}, as it is; test_jinja.c reads OUT.jsonl where CARAVAN_JINJA_CASES names it.

A line is {"name", "template", "data", "own", "text"}, with "text" null where jinja2 raised an error, and "says" what
raise_exception said, where it was that. Time stands still at 2024-07-26 12:34:56.
"""
import copy
import datetime
import json
import os
import sys

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment

NOW = datetime.datetime(2024, 7, 26, 12, 34, 56)
OWN = {"bos_token": "<s>", "eos_token": "</s>"}


class Said(jinja2.exceptions.TemplateError):
    pass


class Generation(jinja2.ext.Extension):
    """The tag that marks what a model is trained on; it changes nothing in the text."""
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller):
        return caller()


def environment():
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                        extensions=[Generation, jinja2.ext.loopcontrols])

    def say(message):
        raise Said(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = say
    env.globals["strftime_now"] = NOW.strftime
    return env


ENV = environment()


def case(name, template, data, own=OWN):
    line = {"name": name, "template": template, "data": data, "own": own, "text": None}
    try:
        line["text"] = ENV.from_string(template).render(**copy.deepcopy({**own, **data}))
    except Said as e:
        line["says"] = str(e)
    except Exception:
        pass
    return line


def m(role, content, **more):
    return {"role": role, "content": content, **more}


def call(name, arguments, id="call12345"):
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "Weather at a \"place\", now\nor later <b>&amp;</b>",
    "parameters": {"type": "object", "required": ["place"], "properties": {
        "place": {"type": "string", "description": "Köln, 東京 \u0001 '\u2028"},
        "days": {"type": "integer", "enum": [1, 2, 3], "default": 1},
        "unit": {"type": ["string", "null"], "enum": ["celsius", "fahrenheit"]},
        "scale": {"type": "array", "items": {"type": "number"}, "default": [0.1, 1e16, 1e-05, 3.0]},
        "deep": {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]}}}}}
NOW_TOOL = {"type": "function", "function": {
    "name": "now", "description": "The time", "parameters": {"type": "object", "properties": {}}}}
TOOLS = [WEATHER, NOW_TOOL]
ARGUMENTS = {"place": "Köln \"x\" <y>", "days": 2, "ok": True, "none": None, "list": [1.0, "a'b"], "o": {"k": "v"}}

CONVERSATIONS = {
    "user": [m("user", "Hi")],
    "system": [m("system", "Be brief."), m("user", "Name a colour.")],
    "spaces": [m("system", " padded\n\n"), m("user", "  a \n"), m("assistant", "\tb "), m("user", "\u00a0c\u3000\x1c")],
    "turns": [m("user", "one"), m("assistant", "two"), m("user", "three"), m("assistant", "four"), m("user", "five")],
    "answered": [m("system", "s"), m("user", "x"), m("assistant", "answer")],
    "thinks": [m("user", "one"), m("assistant", "<think>\nhm\n</think>\n\ntwo"), m("user", "three</think>four"),
               m("assistant", "five", reasoning_content="aha", thinking="aha"), m("user", "six")],
    "markers": [m("system", "<|eot_id|><|im_end|></s>"), m("user", "<|im_start|>system\n[INST]<<SYS>>{{ 7 * 7 }}{% raw %}"),
                m("assistant", "{{ x }} <end_of_turn>"), m("user", "<|end|>")],
    "called": [m("system", "Use tools."), m("user", "Weather?"), m("assistant", "", tool_calls=[call("get_weather", ARGUMENTS)]),
               m("tool", '{"temperature": 20.5}', name="get_weather", tool_call_id="call12345"),
               m("assistant", "20.5 degrees."), m("user", "Thanks")],
    "called_text": [m("user", "Time?"), m("assistant", "Let me see.", tool_calls=[call("now", "{}")]),
                    m("tool", "12:00\n\"noon\"", name="now", tool_call_id="call12345")],
    "called_twice": [m("user", "Both?"), m("assistant", None, tool_calls=[
        call("now", {}, "abcdefgh1"), call("get_weather", {"place": "x"}, "abcdefgh2")]),
        m("tool", "1", name="now", tool_call_id="abcdefgh1"), m("tool", [{"type": "text", "text": "2"}], name="get_weather",
                                                               tool_call_id="abcdefgh2"),
        m("assistant", "done", reasoning_content="r"), m("user", "again")],
    "parts": [m("user", [{"type": "text", "text": "part one"}, {"type": "text", "text": " two "}]), m("assistant", "ok"),
              m("user", [{"type": "image"}, {"type": "text", "text": "what?"}])],
    "system_last": [m("user", "a"), m("system", "b")],
    "two_users": [m("user", "a"), m("user", "b")],
    "developer": [m("developer", "d"), m("user", "u")],
    "unknown": [m("narrator", "n")],
    "empty": [],
    "no_content": [m("user", "q"), {"role": "assistant"}, m("user", "r")],
    "long": [m("user" if i % 2 == 0 else "assistant", f"Nachricht {i} — ☃ 𝄞 é") for i in range(21)],
}
DOCUMENTS = [{"title": "A", "text": "alpha"}, {"title": "B", "text": "beta"}]
EXTRAS = [
    {"add_generation_prompt": True, "tools": None, "documents": None},
    {"add_generation_prompt": False, "tools": None, "documents": None},
    {"add_generation_prompt": True, "tools": TOOLS, "documents": None},
    {"add_generation_prompt": True, "tools": None, "documents": DOCUMENTS, "enable_thinking": False},
    {"add_generation_prompt": True, "tools": TOOLS, "documents": None, "enable_thinking": True, "thinking": True,
     "reasoning_effort": "high", "tools_in_user_message": False, "builtin_tools": ["code_interpreter"]},
]

# What the language has, one small template each; they are given DATA.
DATA = {"n": 7, "x": 2.5, "s": "  Grüße, Wörld! ", "t": True, "none": None, "e": [], "l": [3, 1, 2], "words": ["b", "A", "c"],
        "d": {"b": 1, "a": "x", "C": None}, "big": 123456789012345, "rows": [{"k": "u", "v": 1}, {"k": "a", "v": 2}, {"v": 3}],
        "q": "it's \"quoted\"\n\ttab\\ \u00a0\u200b\x7f", "lines": "one\n\n  two\r\nthree\n", "f": [0.1, 1e16, 1e-5, 3.0, -0.0, 1e22]}
SNIPPETS = r"""
a {{ n }} b {{- x -}} c {{ s }}|
{{ l }} {{ d }} {{ f }} {{ [q, none, t, (1,), (), {'a': [1]}] }}
{{ n + 1 }} {{ n - 10 }} {{ n * 2.5 }} {{ n / 2 }} {{ -n // 2 }} {{ -n % 4 }} {{ n ** 3 }} {{ 2 ** -1 }} {{ -2.5 // 1 }} {{ 1e3 }} {{ 7.5 % -2 }}
{{ 1 + 2 * 3 - 4 ~ 'a' ~ n + 1 }} {{ 'a' ~ none ~ t ~ x }} {{ 'ab' * 3 }} {{ l * 2 }} {{ l + [4] }} {{ (1, 2) + (3,) }}
{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 1 == 1.0 }} {{ t == 1 }} {{ 'a' < 'b' }} {{ [1, 2] < [1, 3] }} {{ not n == 7 }} {{ n != 7 or 'x' }} {{ n and 'y' }}
{{ 'a' in 'cat' }} {{ 3 in l }} {{ 'b' in d }} {{ 9 not in l }} {{ 'x' in none_such }} {{ not t }} {{ '' in 'a' }}
{{ s[2] }} {{ s[-3:] }} {{ s[::-1] }} {{ s[2:7:2] }} {{ l[1:] }} {{ l[::-1] }} {{ l[-1] }} {{ l[9] }}| {{ l[:-1] }} {{ 'é☃𝄞'[1] }} {{ 'é☃𝄞' | length }}
{{ d.a }} {{ d['b'] }} {{ d.C }} {{ d.zzz }}| {{ d['zzz'] is defined }} {{ d.items() | list }} {{ d.keys() | list }} {{ d.values() | list }} {{ d.get('a') }} {{ d.get('q') }} {{ d.get('q', 5) }}
{{ missing }}| {{ missing is defined }} {{ missing | default('dd') }} {{ '' | default('e', true) }} {{ none | default('n') }} {{ missing | length }} {{ missing == other }}
{{ missing.x }}
{{ missing + 1 }}
{{ none + 'a' }}
{{ d.x.y }}
{{ 1 / 0 }}
{{ 'a' + 1 }}
{{ l < 'a' }}
{{ missing() }}
{{ missing | tojson }}
{% for i in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.previtem }}{{ loop.nextitem }};{% endfor %}
{% for i in [] %}x{% else %}none{% endfor %}{% for k, v in d.items() %}{{ k }}={{ v }},{% endfor %}{% for k in d %}{{ k }}{% endfor %}{% for c in 'añ' %}[{{ c }}]{% endfor %}
{% for i in range(10) if i % 2 %}{{ i }}{% if loop.index == 3 %}{% break %}{% endif %}{% endfor %}{% for i in range(5, 0, -2) %}{{ i }}{% if i == 3 %}{% continue %}{% endif %}c{% endfor %}
{% for i in range(3) %}{% for k in range(2) %}{{ loop.depth }}{{ loop.index }}{% endfor %}{{ loop.cycle('a', 'b') }}{{ loop.changed(i // 2) }}{% endfor %}
{% set a = 1 %}{% for i in l %}{% set a = i %}{{ a }}{% endfor %}{{ a }}{% if t %}{% set a = 5 %}{% endif %}{{ a }}
{% set ns = namespace(a=1, b=[]) %}{% for i in l %}{% set ns.a = ns.a + i %}{% set ns.b = ns.b + [i] %}{% endfor %}{{ ns.a }}{{ ns.b }}{{ ns.c is defined }}{{ ns['a'] }}
{% set d.a = 1 %}
{% set ns = namespace() %}{% set ns.x, y = 1, 2 %}{{ ns.x }}{{ y }}{% set a, (b, c) = 1, [2, 3] %}{{ a }}{{ b }}{{ c }}
{% set b %}block {{ n }}{% endset %}[{{ b }}]{% set b | upper | trim %} x {{ n }} {% endset %}[{{ b }}]{% filter upper %}a{{ s }}{% endfilter %}
{% macro f(a, b=2, c=a) %}{{ a }}-{{ b }}-{{ c }}{% endmacro %}{{ f(1) }} {{ f(1, c=5) }} {{ f(b=1, a=0) }} {{ f() }} {{ f(1, 2, 3) | upper }}
{% macro f(a) %}{{ a }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ f(1, 2, 3, z=4) }}
{% macro f(a) %}{{ a }}{% endmacro %}{{ f(1, 2) }}
{% macro f(a) %}{{ a }}{% endmacro %}{{ f(b=2) }}
{% macro f(n) %}{% if n > 0 %}{{ n }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(5) }}{% set g = 3 %}{% macro h() %}{{ g }}{% endmacro %}{% set g = 4 %}{{ h() }}
{% macro m(x) %}<{{ caller(x) }}>{% endmacro %}{% call(y) m(3) %}body {{ y }} {{ n }}{% endcall %}{% with q = 1, z = n %}{{ q }}{{ z }}{% endwith %}{{ z }}
{% generation %}gen {{ n }}{% set zz = 1 %}{% endgeneration %}{{ zz is defined }}
{{ s | trim }}|{{ s.strip() }}|{{ s.lstrip() }}|{{ s.rstrip() }}|{{ 'xxaxx'.strip('x') }}|{{ 'abcab'.rstrip('ba') }}|{{ '«a»'.strip('«»') }}|{{ 'xax' | trim('x') }}
{{ s.split() }} {{ 'a,b,,c'.split(',') }} {{ 'a,b,c'.split(',', 1) }} {{ 'a,b,c'.rsplit(',', 1) }} {{ ' a  b '.split(' ') }} {{ ''.split() }} {{ ''.split(',') }} {{ ' a b  c '.split(none, 1) }} {{ ' a b  c '.rsplit(none, 1) }} {{ lines.splitlines() }} {{ 'abcbd'.split('b')[-1] }}
{{ 'a-b-c'.partition('-') }} {{ 'a-b-c'.rpartition('-') }} {{ 'abc'.partition('x') }} {{ 'abc'.find('c') }} {{ 'abcabc'.rfind('b') }} {{ 'aaa'.count('a') }} {{ 'abc'.index('b') }} {{ l.index(2) }} {{ l.count(1) }}
{{ 'abc'.startswith('ab') }} {{ 'abc'.endswith(('x', 'c')) }} {{ 'abc'.removeprefix('a') }} {{ 'abc'.removesuffix('c') }} {{ 'aXbX'.replace('X', 'yy') }} {{ 'aXbX'.replace('X', '', 1) }} {{ 'abc'.replace('', '-') }} {{ 'aXb' | replace('X', '1') }}
{{ s.upper() }} {{ s | lower }} {{ 'hello wORLD-foo (bar' | title }} {{ "hello wORLD it's a1b".title() }} {{ 'hELLO w' | capitalize }} {{ 'äb' | upper }} {{ 'abc'.isdigit() }} {{ '12'.isdigit() }} {{ 'a1'.isalnum() }} {{ 'a'.islower() }} {{ ' '.isspace() }}
{{ '{} and {}'.format(1, 'b') }} {{ '{0}{1}{0} {x} {{}}'.format('a', 2, x=none) }} {{ '%s is %d%%' % ('a', 3) }} {{ '%s' | format(x) }} {{ '%r' % q }}
{{ ', '.join(['a', 'b']) }} {{ l | join('-') }} {{ rows | join(',', attribute='v') }} {{ l | join }} {{ 'abc' | join('.') }}
{{ l | sort }} {{ words | sort }} {{ words | sort(reverse=true) }} {{ words | sort(case_sensitive=true) }} {{ [{'k': 2}, {'k': 1}] | sort(attribute='k') }} {{ l | reverse | list }} {{ 'abc' | reverse }} {{ ['a', 'A', 'b', 'a'] | unique | list }}
{{ l | first }} {{ l | last }} {{ [] | first }}| {{ l | max }} {{ l | min }} {{ l | sum }} {{ rows | sum(attribute='v') }} {{ l | length }} {{ d | length }} {{ d | count }} {{ 'a b  c' | wordcount }} {{ rows | map(attribute='v') | max }}
{{ d | dictsort }} {{ {'b': 1, 'a': 2} | dictsort(by='value') }} {{ d | items | list }} {{ d | list }} {{ 'ab' | list }}
{{ rows | map(attribute='k') | list | length }} {{ rows | map(attribute='k', default='zz') | list }} {{ words | map('upper') | join }} {{ rows | selectattr('k') | list }} {{ rows | selectattr('v', 'equalto', 2) | list }} {{ rows | rejectattr('v', 'gt', 1) | list }} {{ l | select('odd') | list }} {{ l | reject('equalto', 1) | list }} {{ words | map('replace', 'b', 'q') | list }} {{ rows | selectattr('k', 'defined') | map(attribute='v') | list }}
{% if l | select('gt', 99) %}generators are true{% endif %} {% set g = l | map('string') %}{{ g | list }}{{ g | list }}
{{ d | tojson }} {{ f | tojson }} {{ q | tojson }} {{ [q, 'é\u2028☃𝄞'] | tojson(ensure_ascii=true) }} {{ {'b': 1, 'a': {'d': [], 'c': {}}} | tojson(sort_keys=true, indent=2) }} {{ l | tojson(separators=(',', ':')) }} {{ l | tojson(indent=4) }} {{ {1: 2, none: 3, true: 4, 1.5: 5} | tojson }} {{ '<&>\'' | tojson }} {{ d | tojson(indent=0) }} {{ d | tojson(indent='--') }}
{{ 'a\nb\n\nc' | indent }} {{ 'a\nb' | indent(2, true) }} {{ 'a\n\nb\n' | indent(2, blank=true) }}| {{ lines | indent(1) }} {{ 'a\nb' | indent('>>') }}
{{ '3' | int }} {{ '3.7' | int }} {{ 'x' | int }} {{ 'x' | int(5) }} {{ 3.99 | int }} {{ '0x1F' | int(0, 16) }} {{ ' 12 ' | int + 1 }} {{ '1.5' | float }} {{ 2.567 | round(2) }} {{ 2.5 | round }} {{ 2.1 | round(0, 'ceil') }} {{ -3 | abs }} {{ (-3) | abs }} {{ 5 | float }} {{ 5 | string + 'a' }}
{{ n is number }} {{ s is string }} {{ l is sequence }} {{ d is mapping }} {{ l is iterable }} {{ n is iterable }} {{ t is boolean }} {{ none is none }} {{ 1 is integer }} {{ 1.0 is float }} {{ t is integer }} {{ t is true }} {{ 1 is true }} {{ 7 is odd }} {{ 8 is divisibleby 4 }} {{ n is eq 7 }} {{ n is in [7] }} {{ n is not none }} {{ missing is undefined }} {{ range is callable }} {{ 'A' is upper }} {{ 'a' is lower }} {{ n is ge(7) }} {{ missing is sequence }} {{ d is sequence }} {{ none is sameas none }} {{ n is string or t }}
{{ 'a' if n == 7 else 'b' }} {{ 'a' if n == 8 }}| {{ 'a' if n == 8 else 'b' if n == 9 else 'c' }} {{ ('x' if none) is defined }} {{ [1 if t else 2, 3] }}
{{ '<b>' | safe + '<i>' }} {{ ('<b>' | safe) ~ '<i>' }} {{ '<a href="x">\'' | e }} {{ '<' | escape + '&' }}
{{ dict(a=1, **{'b': 2}) }} {{ dict({'x': 1}, y=2) }} {{ {'a': 1, 'a': 2} }} {{ {1: 'i', 1.0: 'f', true: 't'} }} {{ range(3) | list }} {{ range(2, 8, 3) | list }}
{{ strftime_now('%d %b %Y') }} {{ strftime_now('%H:%M:%S %A %j') }} {{ strftime_now('') }}|
{{ raise_exception('no: ' ~ n) }}
{% if n == 8 %}{{ n | no_such_filter }}{{ n is no_such_test }}{% endif %}ok
{% if n == 7 %}{{ n | no_such_filter }}{% endif %}
{{ 'x' if n == 7 else n | no_such_filter }}
{% if n == 8 %}{% set _ = l.append(4) %}{% endif %}ok
{% set _ = l.append(4) %}{{ l }}
{{ d.update({'x': 1}) }}
{{ d.__class__ }}| {{ ''.__class__.__mro__ }}
{{ range(100001) | length }}
{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}
{{ 'a' 'b' "c" }} {{ 'a\tb\x41\u00e9\\\'\d' }} {{ "it's" }} {{ 1_000 }} {{ 0 }} {{ {'a': {'b': [10, 20]}}.a.b.1 }} {{ l.0 }}
{{ n -}}   {#- c -#}   x {#+ y #}
{% raw %}{{ not }} {% this %}{% endraw %} {%- raw -%} {{ x }} {%- endraw -%}   y
{{ -1 ** 2 }} {{ not 1 in [1] }} {{ - n + 1 }} {{ -l | length }}
{{ -(l | length) }} {{ +n }} {{ --n }} {{ 2 ** 3 ** 2 }} {{ (1, 2)[0] }} {{ (n) }} {{ [1, 2,] }} {{ [[1, [2]], 3][0][1][0] }} {{ {'a': 1,}['a'] }}
{% set x = 1, 2 %}{{ x }} {% for a, b in [(1, 2), [3, 4]] %}{{ a }}{{ b }}{% endfor %} {% if 0 %}a{% elif [] %}b{% elif 'x' %}c{% else %}d{% endif %}
{% for a, b in [(1, 2, 3)] %}{% endfor %}
{% for x in n %}{% endfor %}
{{ 9223372036854775807 }} {{ 0.1 + 0.2 }} {{ 1e100 }} {{ 1.0 }} {{ 100000000000000000.0 }} {{ 1 / 3 }} {{ 5e-324 }} {{ 1e400 }} {{ -1e400 }}
{{ [1, 2, 3][1:][0] }} {{ 'abc'[5:] }}| {{ 'abc'[-10:2] }} {{ l[5:2] }} {{ l[::2] }} {{ l[2:0:-1] }} {{ 'abc'[::-2] }}
{{ words[0].upper().lower() | upper }} {{ (d.a ~ 'z').replace('z', 'y')[0] }} {{ d['a'].upper() }} {{ d.a is string and d.b is number }}
""".strip("\n").split("\n")
LONGER = {
    "blocks": "  {% if t %}\n  yes\n  {% endif %}\n\n{% for i in l %}\n    {{ i }}\n  {%- if not loop.last %},{% endif %}\n\n{% endfor %}\nend\n",
    "signs": "a\n  {%+ if t %} b {%- endif +%}\n c\n\t {%- set x = 1 -%} \n\n d {{ x }}\n  {# gone #}\n  e {# stays #} f\n{{ n }}\n{{- n }} \n",
    "line ends": "a\r\nb {% if t %}\r\nc\r{% endif %}\r\nd\n\n",
    "comment": "x {# a {{ b }} {% c %} #}\n y {#- d -#} \n z",
    "unicode": "{{ 'ß' }}{% set ключ = 'значение' %}{{ ключ }}☃\n",
    "chatml": "{% for m in messages %}\n{{ '<|im_start|>' + m.role + '\\n' + m.content | trim + '<|im_end|>' }}\n{% endfor %}\n"
              "{% if add_generation_prompt %}\n{{ '<|im_start|>assistant\\n' }}\n{%- endif %}\n",
}


def own_cases():
    for i, text in enumerate(SNIPPETS):
        yield case(f"line {i + 1}", text, DATA)
    for name, text in LONGER.items():
        yield case(name, text, {**DATA, "messages": CONVERSATIONS["turns"], "add_generation_prompt": True})


def foreign_cases(paths):
    for path in paths:
        with open(path, encoding="utf-8") as f:
            text = f.read()
        name = os.path.basename(path)
        if path.endswith(".json"):
            for c in json.loads(text):
                own = {k: v for k, v in c["data"].items() if k.endswith("_token")}
                data = {k: v for k, v in c["data"].items() if k not in own}
                yield case("cases/" + c["name"], c["chat_template"], data, own)
            continue
        for label, messages in CONVERSATIONS.items():
            for i, extra in enumerate(EXTRAS):
                yield case(f"{name}/{label}/{i}", text, {"messages": messages, **extra})


def main():
    foreign = len(sys.argv) > 1
    here = os.path.dirname(os.path.abspath(__file__))
    out = sys.argv[1] if foreign else os.path.join(here, "..", "data", "text", "jinja.jsonl")
    lines = list(foreign_cases(sys.argv[2:]) if foreign else own_cases())
    with open(out, "w", encoding="utf-8") as f:
        for line in lines:
            f.write(json.dumps(line, ensure_ascii=False) + "\n")
    print(f"{out}: {len(lines)} cases, of which {sum(line['text'] is None for line in lines)} are errors")


main()
