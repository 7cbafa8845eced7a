#!/usr/bin/env python3
"""What the official clients make of the server: tools/clients_test.py BUILD/caravan [MODEL]

Wants PyPI's openai and anthropic, and schemathesis, which is run over the OpenAPI file that the server serves; says SKIP for
those that are missing. The model is small and of random weights: what counts is that all of it is parsed. With a MODEL that
answers, such as SmolLM2, PyPI's llm-comply asks that one, too, for all that it tests but pictures and the lack of `model`,
which this server needs only where there are several.
"""
import importlib.util, json, os, subprocess, sys, tempfile

TEMPLATE = """{% if tools %}<|start_header_id|>system<|end_header_id|>{% for t in tools %}{{ t | tojson }}{% endfor %}<|eot_id|>{% endif %}\
{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>{{ m.content }}{% for c in m.tool_calls or [] %}
<tool_call>
{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}
</tool_call>{% endfor %}<|eot_id|>{% endfor %}{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>{% endif %}"""
SCHEMA = {"type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]}}, "required": ["city"], "additionalProperties": False}
ASK = [{"role": "user", "content": "Hi"}]


def openai_client(url):
    from openai import OpenAI, BadRequestError, AuthenticationError
    c = OpenAI(base_url=url + "/v1", api_key="secret", max_retries=0)
    assert [m.id for m in c.models.list()] == ["model"]
    whole = c.chat.completions.create(model="model", messages=ASK, seed=1, max_tokens=20, logprobs=True, top_logprobs=2)
    streamed = list(c.chat.completions.create(model="model", messages=ASK, seed=1, max_tokens=20, stream=True,
                                              stream_options={"include_usage": True}))
    assert "".join(e.choices[0].delta.content or "" for e in streamed if e.choices) == whole.choices[0].message.content
    assert streamed[-1].usage.completion_tokens == whole.usage.completion_tokens == len(whole.choices[0].logprobs.content)
    tools = [{"type": "function", "function": {"name": "weather", "parameters": SCHEMA}}]
    called = c.chat.completions.create(model="model", messages=ASK, tools=tools, tool_choice="required", max_tokens=200,
                                       parallel_tool_calls=False)
    call = called.choices[0].message.tool_calls[0]
    assert json.loads(call.function.arguments)["city"] in ("Paris", "Rome")
    c.chat.completions.create(model="model", tools=tools, max_tokens=5, messages=ASK + [
        called.choices[0].message, {"role": "tool", "tool_call_id": call.id, "content": "warm"}])
    with c.chat.completions.stream(model="model", messages=ASK, tools=tools, tool_choice="required", max_tokens=200,
                                   parallel_tool_calls=False) as stream:
        final = stream.get_final_completion()
    assert json.loads(final.choices[0].message.tool_calls[0].function.arguments)["city"]
    json.loads(c.chat.completions.create(model="model", messages=ASK, max_tokens=100, response_format={
        "type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": SCHEMA}}).choices[0].message.content)
    assert c.completions.create(model="model", prompt=["a", "b"], max_tokens=3, echo=True, logprobs=1).choices[1].logprobs
    r = c.responses.create(model="model", input="Hi", instructions="Be brief.", max_output_tokens=20)
    assert r.output_text is not None and r.usage.output_tokens
    kinds = [e.type for e in c.responses.create(model="model", input="Hi", max_output_tokens=20, stream=True)]
    assert kinds[0] == "response.created" and kinds[-1] in ("response.completed", "response.incomplete"), kinds
    flat = [{"type": "function", "name": "weather", "parameters": SCHEMA, "strict": True}]
    r = c.responses.create(model="model", input="Hi", tools=flat, tool_choice="required", max_output_tokens=200,
                           parallel_tool_calls=False)
    made = next(o for o in r.output if o.type == "function_call")
    c.responses.create(model="model", tools=flat, max_output_tokens=4, input=[
        {"role": "user", "content": "Hi"}, made, {"type": "function_call_output", "call_id": made.call_id, "output": "warm"}])
    events = list(c.responses.create(model="model", input="Hi", tools=flat, tool_choice="required", max_output_tokens=200,
                                     stream=True))
    assert any(e.type == "response.function_call_arguments.done" for e in events)
    packed = c.embeddings.create(model="model", input=["a", "a longer one"])  # in base64, which the client undoes
    plain = c.embeddings.create(model="model", input=["a", "a longer one"], encoding_format="float")
    assert [e.embedding for e in packed.data] == [e.embedding for e in plain.data] and packed.usage.prompt_tokens > 2
    assert abs(sum(x * x for x in plain.data[0].embedding) - 1) < 1e-5
    for wrong, error in (({"top_p": 7}, BadRequestError), ({"api_key": "x"}, AuthenticationError)):
        try:
            who = OpenAI(base_url=url + "/v1", api_key=wrong.pop("api_key", "secret"), max_retries=0)
            who.chat.completions.create(model="model", messages=ASK, **wrong)
            raise AssertionError("accepted")
        except error:
            pass


def anthropic_client(url):
    from anthropic import Anthropic, BadRequestError
    c = Anthropic(base_url=url, api_key="secret", max_retries=0)
    m = c.messages.create(model="model", max_tokens=20, messages=ASK, system="Be brief.")
    assert m.content[0].type == "text" and m.usage.output_tokens
    with c.messages.stream(model="model", max_tokens=20, messages=ASK) as stream:
        text = "".join(stream.text_stream)
        assert stream.get_final_message().content[0].text == text
    assert c.messages.count_tokens(model="model", messages=ASK).input_tokens
    tools = [{"name": "weather", "description": "Of a city", "input_schema": SCHEMA}]
    more = {"tools": tools, "tool_choice": {"type": "any", "disable_parallel_tool_use": True}, "max_tokens": 200}
    m = c.messages.create(model="model", messages=ASK, **more)
    assert m.stop_reason == "tool_use" and m.content[-1].input["city"] in ("Paris", "Rome")
    with c.messages.stream(model="model", messages=ASK, **more) as stream:
        assert stream.get_final_message().content[-1].input["city"] in ("Paris", "Rome")
    c.messages.create(model="model", max_tokens=4, tools=tools, messages=ASK + [
        {"role": "assistant", "content": m.content},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": m.content[-1].id, "content": "warm"}]}])
    try:
        c.messages.create(model="model", max_tokens=20, messages=ASK, extra_body={"temperature": 3})
        raise AssertionError("accepted")
    except BadRequestError:
        pass


def schemathesis(url):
    checks = "not_a_server_error,response_schema_conformance,content_type_conformance,status_code_conformance"
    subprocess.run([sys.executable, "-c", "from schemathesis.cli import schemathesis; schemathesis()", "run", url + "/openapi.json",
                    "-H", "Authorization: Bearer secret", "--checks", checks, "--max-examples",
                    os.environ.get("EXAMPLES", "30")], check=True)


def llm_comply(caravan, model):
    """Its own list of tests, without those named above."""
    from llm_comply.tests import anthropic, open_responses, openai_chat
    server = subprocess.Popen([caravan, "serve", "-m", "model=" + model, "--port", "0"], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True)
    try:
        url = server.stdout.readline().split()[-1] + "/v1"
        while "ready" not in server.stderr.readline():
            pass
        for form, tests in (("openai-chat", openai_chat), ("open-responses", open_responses), ("anthropic", anthropic)):
            every = next(v for k, v in vars(tests).items() if k.endswith("_TESTS"))
            ids = [t.id for t in every if not t.id.endswith(("image-input", "error-handling"))]
            program = os.path.join(os.path.dirname(sys.executable), "llm-comply")
            subprocess.run([program, "-u", url, "-k", "none", "-m", "model", "--format", form, "--timeout", "600", "--filter",
                            ",".join(ids)], check=True)
    finally:
        server.terminate()
        assert server.wait() == 0


def main():
    caravan = os.path.abspath(sys.argv[1])
    tokenizer = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../tests/data/chat/tokenizer.json")
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([caravan, "init", "-p", "tiny", "-s", "3", "--context", "4096", "--tokenizer", tokenizer, "-o",
                        folder + "/model"], check=True, stdout=subprocess.DEVNULL)
        with open(folder + "/model/chat_template.jinja", "w") as f:
            f.write(TEMPLATE)
        with open(folder + "/keys", "w") as f:
            f.write("secret\n")
        server = subprocess.Popen([caravan, "serve", "-m", folder + "/model", "--port", "0", "--api-key-file", folder + "/keys"],
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            url = server.stdout.readline().split()[-1]
            while "ready" not in server.stderr.readline():
                pass
            for name, test in (("openai", openai_client), ("anthropic", anthropic_client), ("schemathesis", schemathesis)):
                if importlib.util.find_spec(name):
                    test(url)
                    print(name, "is content")
                else:
                    print("SKIP:", name, "is not installed")
        finally:
            server.terminate()
            assert server.wait() == 0
    if len(sys.argv) > 2:
        llm_comply(caravan, os.path.abspath(sys.argv[2]))
        print("llm-comply is content")


main()
