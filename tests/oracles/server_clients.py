"""The official clients of OpenAI and Anthropic against the server: they parse every field of every answer.

    python tests/oracles/server_clients.py                              a server of its own, with a small model
    python tests/oracles/server_clients.py http://127.0.0.1:8080 [KEY]  one that runs

Prints a line per check and ends with status 1 where one fails. Stores nothing.
"""
import os
import subprocess
import sys
import tempfile

import anthropic
import openai

server = None
if len(sys.argv) > 1:
    url = sys.argv[1].rstrip("/")
else:
    caravan = os.environ.get("CARAVAN", "build/caravan")
    folder = tempfile.TemporaryDirectory()
    here = os.path.dirname(os.path.abspath(__file__))
    subprocess.run([caravan, "init", "-p", "tiny", "-s", "3", "--tokenizer", here + "/../data/chat/tokenizer.json", "-o",
                    folder.name + "/model"], check=True, stdout=subprocess.DEVNULL)
    server = subprocess.Popen([caravan, "serve", "-m", folder.name + "/model", "--port", "0"], stdout=subprocess.PIPE,
                              text=True)
    url = server.stdout.readline().split()[-1]
key = sys.argv[2] if len(sys.argv) > 2 else "none"
failed = 0


def check(name, ok, what=""):
    global failed
    failed += not ok
    print(("ok    " if ok else "FAILED"), name, "" if ok else repr(what))


# Strict: what does not fit the clients' types is an error, not a warning.
o = openai.OpenAI(base_url=url + "/v1", api_key=key, max_retries=0, _strict_response_validation=True)
a = anthropic.Anthropic(base_url=url, api_key=key, max_retries=0, _strict_response_validation=True)
# A chunk of a completion has a finish_reason of null until the last, as OpenAI's own; its client's types have no such.
loose = openai.OpenAI(base_url=url + "/v1", api_key=key, max_retries=0)
messages = [{"role": "user", "content": "Once upon a time"}]
while server:  # until the model is loaded
    try:
        o.models.list()
        break
    except openai.APIStatusError:
        pass

models = list(o.models.list())
model = models[0].id
check("models", len(models) == 1)

whole = o.chat.completions.create(model=model, messages=messages, max_tokens=20, seed=1)
text = whole.choices[0].message.content
check("chat", whole.usage.completion_tokens > 0 and whole.choices[0].finish_reason in ("stop", "length"), whole)
pieces, usage = "", None
for chunk in o.chat.completions.create(model=model, messages=messages, max_tokens=20, seed=1, stream=True,
                                       stream_options={"include_usage": True}):
    usage = chunk.usage or usage
    if chunk.choices:
        pieces += chunk.choices[0].delta.content or ""
check("chat, streamed", pieces == text, (pieces, text))
check("chat, usage of a stream", usage.total_tokens == whole.usage.total_tokens, usage)

whole = o.chat.completions.create(model=model, messages=messages, max_tokens=4, logprobs=True, top_logprobs=2,
                                  presence_penalty=0.5, logit_bias={"5": 1})
check("chat, logprobs", len(whole.choices[0].logprobs.content) == whole.usage.completion_tokens, whole)
whole = o.completions.create(model=model, prompt="Once", max_tokens=4, logprobs=2)
check("completions, logprobs", len(whole.choices[0].logprobs.tokens) == whole.usage.completion_tokens, whole)

whole = o.completions.create(model=model, prompt=["Once", "There"], n=2, max_tokens=8, seed=1, echo=True)
check("completions", len(whole.choices) == 4 and whole.choices[2].text.startswith("There"), whole)
pieces = ["", "", "", ""]
for chunk in loose.completions.create(model=model, prompt=["Once", "There"], n=2, max_tokens=8, seed=1, echo=True,
                                      stream=True):
    pieces[chunk.choices[0].index] += chunk.choices[0].text
check("completions, streamed", pieces == [c.text for c in whole.choices], pieces)

whole = o.responses.create(model=model, input="Once upon a time", max_output_tokens=20, store=False,
                           extra_body={"seed": 1})
check("responses", whole.output_text and whole.usage.total_tokens > 0, whole)
with o.responses.stream(model=model, input="Once upon a time", max_output_tokens=20, store=False,
                        extra_body={"seed": 1}) as stream:
    kinds = [event.type for event in stream]
    final = stream.get_final_response() if "response.completed" in kinds else None
check("responses, streamed", kinds[0] == "response.created" and kinds[-1] in
      ("response.completed", "response.incomplete"), kinds)
check("responses, final", final is None or final.output_text == whole.output_text, final)

whole = a.messages.create(model=model, messages=messages, max_tokens=20, system="Be brief.", extra_body={"seed": 1})
check("messages", whole.content[0].type == "text" and whole.stop_reason in ("end_turn", "max_tokens"), whole)
with a.messages.stream(model=model, messages=messages, max_tokens=20, system="Be brief.",
                       extra_body={"seed": 1}) as stream:
    pieces = "".join(stream.text_stream)
    final = stream.get_final_message()
check("messages, streamed", pieces == whole.content[0].text == final.content[0].text, (pieces, whole))
check("messages, usage of a stream", final.usage.output_tokens == whole.usage.output_tokens, final)
counted = a.messages.count_tokens(model=model, messages=messages, system="Be brief.")
check("count_tokens", counted.input_tokens == whole.usage.input_tokens + whole.usage.cache_read_input_tokens, counted)


def refused(name, kind, call):
    try:
        call()
        check(name, False, "was answered")
    except kind as e:
        check(name, bool(e.message), e)


refused("unknown model", openai.NotFoundError,
        lambda: o.chat.completions.create(model="other", messages=messages))
refused("refused field", openai.BadRequestError,
        lambda: o.chat.completions.create(model=model, messages=messages, modalities=["audio"]))
refused("unknown field", openai.BadRequestError,
        lambda: o.chat.completions.create(model=model, messages=messages, extra_body={"foo": 1}))
refused("unknown field of messages", anthropic.BadRequestError,
        lambda: a.messages.create(model=model, messages=messages, max_tokens=4, extra_body={"foo": 1}))
if server:
    server.terminate()
    check("the server ends when it is told to", server.wait(60) == 0, server.returncode)
sys.exit(failed > 0)
