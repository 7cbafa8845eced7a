#!/usr/bin/env python3
"""Many clients that misbehave, and a server that must not: tools/soak.py BUILD/caravan [--requests 200000]

    1. Questions of every dialect are drawn, and each is asked alone, of a server that has nothing else to do: those are the texts.
       Of some, `caravan generate` is asked too.
    2. CLIENTS threads ask another server the same questions, whole and streamed, read slowly, send bodies in pieces, go away before,
       within and after an answer, and send what is no request. Whatever is answered must be what was said alone, and whatever was
       read before a client went must be its beginning.
    3. Then no text may have a row, no connection may be left, and the memory during the last fifth of the requests may not be more
       than 1% above that during the second.
    4. While all rows work and texts wait, SIGTERM: everything that was accepted is answered, what is new is not, and the status is 0.

The model is small and of random weights, or --model's, and has two adapters of random weights that some questions name. --seed
repeats what clients choose (not how they come together). The whole of it may be stopped and go on (SIGSTOP, a machine that sleeps):
requests that broke off then are counted, and nothing else is excused.
"""
import argparse, http.client, json, os, random, re, signal, socket, struct, subprocess, sys, tempfile, threading, time
from pathlib import Path

WORDS = "the a of and to one day cat dog tree sun she he was very big small house went saw little red friend".split()
SCHEMA = {"type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]}, "days": {"type": "array", "items": {"type": "boolean"},
          "maxItems": 3}}, "required": ["city", "days"], "additionalProperties": False}
BAD = [  # (path, body, statuses that are right)
    ("/v1/completions", b"", (400,)), ("/v1/completions", b"{", (400,)), ("/v1/completions", b'{"prompt": 5}', (400,)),
    ("/v1/completions", b'{"prompt": "x", "max_tokens": -1}', (400,)), ("/v1/completions", b'{"prompt": "x", "what": 1}', (400,)),
    ("/v1/completions", b"[" * 5000, (400,)), ("/v1/completions", b'{"prompt": "\xff\xfe"}', (400,)),
    ("/v1/completions", b'{"prompt": [99999999]}', (400,)), ("/v1/completions", b'{"prompt": "x", "n": 100000}', (400,)),
    ("/v1/chat/completions", b'{"messages": []}', (400,)), ("/v1/chat/completions", b'{"messages": [{"role": "x"}]}', (400,)),
    ("/v1/chat/completions", b'{"messages": [{"role": "user", "content": "x"}], "temperature": 1e99}', (400,)),
    ("/v1/messages", b'{"messages": [{"role": "user", "content": "x"}]}', (400,)), ("/v1/responses", b'{"input": {}}', (400,)),
    ("/v1/messages", b'{"max_tokens": 5, "messages": [{"role": "user", "content": "x"}], "stop_sequences": [""]}', (400,)),
    ("/v1/nothing", b"{}", (404,)), ("/health", b"{}", (405,)), ("/v1/completions", b'{"model": "who", "prompt": "x"}', (404,)),
]
ADAPTERS = ("law", "code")
PATIENCE = 3600  # seconds that clients wait: a machine may stand still meanwhile
NOT_COMPARED = {"id", "created", "created_at", "completed_at", "call_id", "item_id", "system_fingerprint", "usage"}


class Wrong(Exception):
    """An answer that it should not have been."""


# ---- questions ----

def words(r, most):
    return " ".join(r.choice(WORDS) for _ in range(r.randint(1, most)))


def draw_question(r, i):
    """A path and a body; some begin alike, so that prompts are found in caches."""
    text = (words(random.Random(i % 7), 60) + " " if r.random() < 0.4 else "") + words(r, 30)
    most, dialect = r.choice([1, 5, 20, 40, 80]), r.randrange(4)
    ask = {"seed": r.randrange(1 << 40), "temperature": r.choice([0, 0.7, 1, 1])}
    if r.random() < 0.3:
        ask["top_p"] = r.choice([0.1, 0.5, 0.9])
    if r.random() < 0.3:
        ask["adapter"] = r.choice(ADAPTERS)
    if dialect < 2:
        for name, value in (("top_k", 5), ("min_p", 0.05), ("repetition_penalty", 1.3), ("presence_penalty", 0.5), ("ignore_eos", True),
                            ("frequency_penalty", -0.5), ("min_tokens", 3), ("logit_bias", {"40": 5, "41": -100}), ("n", 2),
                            ("priority", r.randint(-2, 2)), ("cache_salt", r.choice("ab")), ("return_token_ids", True)):
            if r.random() < 0.15:
                ask[name] = value
        if r.random() < 0.4:
            ask["stop"] = [r.choice("abcdefghijklmnopqrstuvwxyz") + r.choice(["", "e", " "]) for _ in range(r.randint(1, 3))]
    if dialect == 0:
        ask |= {"prompt": text if r.random() < 0.8 else [r.randrange(10, 400) for _ in range(r.randint(1, 40))], "max_tokens": most}
        if r.random() < 0.15:
            ask |= {"logprobs": 2, "echo": r.random() < 0.5}
        return "/v1/completions", ask
    messages = [{"role": "user", "content": text}]
    if r.random() < 0.3:
        messages += [{"role": "assistant", "content": words(r, 10)}, {"role": "user", "content": words(r, 10)}]
    if dialect == 1:
        ask |= {"messages": messages, "max_tokens": most}
        kind = r.random()
        if kind < 0.1:
            ask |= {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}}
        elif kind < 0.2:
            ask |= {"structured_outputs": {"regex": "[a-f]{3}(-[0-9]+){1,4}"}}
        elif kind < 0.3:
            ask |= {"logprobs": True, "top_logprobs": 3}
        return "/v1/chat/completions", ask
    if dialect == 2:
        return "/v1/responses", ask | {"input": text, "max_output_tokens": most}
    if r.random() < 0.4:
        ask["stop_sequences"] = [r.choice("aeiou")]
    return "/v1/messages", ask | {"messages": messages, "max_tokens": most}


def compared(x):
    """What of an answer depends on the question only."""
    if isinstance(x, dict):
        return {k: compared(v) for k, v in x.items() if k not in NOT_COMPARED}
    return [compared(v) for v in x] if isinstance(x, list) else x


def texts_of(path, answer):
    """By number."""
    if path == "/v1/completions":
        return {c["index"]: c["text"] for c in answer["choices"]}
    if path == "/v1/chat/completions":
        return {c["index"]: c["message"]["content"] or "" for c in answer["choices"]}
    parts = answer["content"] if path == "/v1/messages" else [p for o in answer["output"] for p in o.get("content", [])]
    return {0: "".join(p["text"] for p in parts)}


def pieces_of(event):
    """(number, text) that an event adds."""
    if event.get("object") == "text_completion":
        return [(c["index"], c["text"]) for c in event["choices"]]
    if event.get("object") == "chat.completion.chunk":
        return [(c["index"], c["delta"].get("content") or "") for c in event["choices"]]
    if event.get("type") == "response.output_text.delta":
        return [(0, event["delta"])]
    if event.get("type") == "content_block_delta":
        return [(0, event["delta"]["text"])]
    return []


class Question:
    def __init__(self, path, ask):
        self.path, self.ask = path, ask
        self.body = [json.dumps(ask | stream).encode() for stream in ({}, {"stream": True})]

    def learn(self, answer):
        self.answer, self.text = compared(answer), texts_of(self.path, answer)

    def check(self, answer):
        if compared(answer) != self.answer:
            raise Wrong(f"{self.path} {self.ask}\nalone    {self.answer}\nin company {compared(answer)}")

    def check_texts(self, got, whole):
        for i, text in got.items():
            if not (self.text[i] == text if whole else self.text[i].startswith(text)):
                raise Wrong(f"{self.path} {self.ask}\nalone    {self.text[i]!r}\nstreamed {text!r}")
        if whole and got.keys() != self.text.keys() and any(self.text.values()):
            raise Wrong(f"{self.path} {self.ask}: texts {sorted(got)} of {sorted(self.text)}")


# ---- servers ----

class Server:
    def __init__(self, caravan, model, *more):
        command = [caravan, "serve", "-m", model, "--port", "0", "--name", "model", *more]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.port = int(self.process.stdout.readline().rsplit(":", 1)[1])
        self.said = []
        for line in self.process.stderr:
            self.said.append(line)
            if "ready" in line:
                break
        else:
            sys.exit("the server did not start: " + "".join(self.said))
        threading.Thread(target=lambda: self.said.extend(self.process.stderr), daemon=True).start()

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)

    def get(self, path):
        c = self.connect()
        c.request("GET", path)
        body = c.getresponse().read().decode()
        c.close()
        return body

    def metric(self, name):
        return float(re.search(rf"^{re.escape(name)}(?:{{.*}})? (\S+)$", self.get("/metrics"), re.M)[1])

    def busy(self):
        return self.metric("vllm:num_requests_running"), self.metric("vllm:num_requests_waiting")

    def rss(self):
        return int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{self.process.pid}/status").read_text())[1]) << 10

    def files(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def end(self):
        status = self.process.wait(timeout=PATIENCE)
        if status:
            raise Wrong(f"the server ended with status {status}: {''.join(self.said)}")


def ask(connection, question, stream):
    connection.request("POST", question.path, question.body[stream], {"Content-Type": "application/json"})
    return connection.getresponse()


def events(response):
    for line in response:
        if line.startswith(b"data: ") and line.strip() != b"data: [DONE]":
            yield json.loads(line[6:])


def read_stream(question, response, most=None, pause=0.0):
    """Reads all events, or `most`, and checks them."""
    got, n = {}, 0
    for event in events(response):
        if event.get("type") == "error" or "error" in event and event["error"]:
            raise Wrong(f"{question.path} {question.ask}: {event}")
        for i, piece in pieces_of(event):
            got[i] = got.get(i, "") + piece
        n += 1
        time.sleep(pause)
        if n == most:
            return question.check_texts(got, False)
    question.check_texts(got, True)


# ---- clients ----

class Client(threading.Thread):
    """Keeps a connection while it can."""
    def __init__(self, soak, number):
        super().__init__(daemon=True)
        self.soak, self.r, self.connection = soak, random.Random(f"{soak.seed}.{number}"), None

    def run(self):
        try:
            while self.soak.take():
                way = self.r.choices(WAYS, WEIGHTS)[0]
                self.question, begin = self.r.choice(self.soak.questions), time.monotonic()
                if self.connection is None:
                    self.connection = self.soak.server.connect()
                try:
                    keep = way(self)
                except (http.client.HTTPException, OSError) as e:
                    if self.soak.stood_still(begin):
                        self.soak.count("broken off while all stood still")
                        self.leave()
                        continue
                    raise Wrong(f"{way.__name__} {self.question.path} {self.question.ask}: {e!r}") from e
                self.soak.count(way.__name__)
                if not keep:
                    self.leave()
        except Exception as e:
            self.soak.fail(e)

    def leave(self, abruptly=False):
        if self.connection and self.connection.sock and abruptly:  # a reset, not an end
            self.connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        if self.connection:
            self.connection.close()
        self.connection = None

    def answered(self, response):
        """False: too many wait; anything else but 200 is wrong."""
        if response.status == 200:
            return True
        body = response.read()
        if response.status != 429 or not response.getheader("Retry-After"):
            raise Wrong(f"{self.question.path} {self.question.ask}: status {response.status}: {body[:500]}")
        self.soak.count("refused because too many wait")
        return False

    def whole(self):
        response = ask(self.connection, self.question, False)
        if self.answered(response):
            self.question.check(json.loads(response.read()))
        return self.r.random() < 0.8

    def stream(self, pause=0.0):
        response = ask(self.connection, self.question, True)
        if self.answered(response):
            read_stream(self.question, response, None, pause)
            response.read()
        return self.r.random() < 0.8

    def read_slowly(self):
        self.leave()
        self.connection = self.soak.server.connect()
        self.connection.connect()
        self.connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        return self.stream(self.r.random() * 0.01)

    def go_within_a_stream(self):
        response = ask(self.connection, self.question, True)
        if self.answered(response):
            read_stream(self.question, response, self.r.randint(1, 10))
        response.close()
        self.leave(self.r.random() < 0.5)

    def go_before_an_answer(self):
        self.connection.request("POST", self.question.path, self.question.body[self.r.randrange(2)])
        time.sleep(self.r.random() * 0.02)
        self.leave(self.r.random() < 0.5)

    def end_sending(self):
        """One that closes its sending side counts as gone: an answer may come, or none."""
        self.connection.request("POST", self.question.path, self.question.body[0])
        self.connection.sock.shutdown(socket.SHUT_WR)
        try:
            self.connection.getresponse().read()
        except (http.client.HTTPException, OSError):
            pass

    def send_half(self):
        body = self.question.body[0]
        self.connection.putrequest("POST", self.question.path)
        self.connection.putheader("Content-Length", str(len(body)))
        self.connection.endheaders()
        self.connection.send(body[:self.r.randrange(len(body))])
        time.sleep(self.r.random() * 0.01)
        self.leave(self.r.random() < 0.5)

    def send_in_pieces(self):
        body, at = self.question.body[0], 0
        self.connection.putrequest("POST", self.question.path)
        self.connection.putheader("Content-Length", str(len(body)))
        self.connection.endheaders()
        while at < len(body):
            n = self.r.randint(1, 100)
            self.connection.send(body[at:at + n])
            at += n
            time.sleep(0.001)
        response = self.connection.getresponse()
        if self.answered(response):
            self.question.check(json.loads(response.read()))
        return True

    def send_nonsense(self):
        path, body, statuses = self.r.choice(BAD)
        self.connection.request("POST", path, body)
        response = self.connection.getresponse()
        if response.status not in statuses or "error" not in json.loads(response.read()):
            raise Wrong(f"{path} {body[:100]}: status {response.status}, not {statuses}")
        return self.r.random() < 0.8 and response.status != 405

    def send_no_http(self):
        if self.connection.sock is None:
            self.connection.connect()
        self.connection.sock.sendall(self.r.randbytes(self.r.randint(1, 300)) + b"\r\n\r\n")
        self.leave(self.r.random() < 0.5)

    def look(self):
        self.connection.request("GET", self.r.choice(["/metrics", "/health", "/v1/models", "/", "/openapi.json", "/nothing"]))
        self.connection.getresponse().read()
        return True


WAYS = [Client.whole, Client.stream, Client.read_slowly, Client.go_within_a_stream, Client.go_before_an_answer, Client.end_sending,
        Client.send_half, Client.send_in_pieces, Client.send_nonsense, Client.send_no_http, Client.look]
WEIGHTS = [30, 30, 2, 10, 6, 3, 3, 3, 6, 3, 4]


class Soak:
    def __init__(self, server, questions, o):
        self.server, self.questions, self.seed, self.requests = server, questions, o.seed, o.requests
        self.lock, self.left, self.counts, self.failure, self.rss = threading.Lock(), o.requests, {}, None, []
        self.over, self.still = False, 0.0

    def watch(self):
        """Notices when nothing moves for seconds, here or in the server."""
        while not self.over:
            begin = time.monotonic()
            time.sleep(0.5)
            self.server.get("/health")
            if time.monotonic() - begin > 5:
                self.still = time.monotonic()

    def stood_still(self, since):
        time.sleep(2)  # until the watch has noticed, too
        return self.still > since - 10

    def take(self):
        with self.lock:
            if self.failure or self.left == 0:
                return False
            self.left -= 1
            done = self.requests - self.left
        if done % max(self.requests // 20, 1) == 0:
            self.rss.append(self.server.rss())
            print(f"{done} requests, {self.rss[-1] / 1e6:.2f} MB", flush=True)
        return True

    def count(self, what):
        with self.lock:
            self.counts[what] = self.counts.get(what, 0) + 1

    def fail(self, why):
        with self.lock:
            self.failure = self.failure or why

    def run(self, clients):
        self.rss.append(self.server.rss())
        files = self.server.files()
        watch, threads = threading.Thread(target=self.watch, daemon=True), [Client(self, i) for i in range(clients)]
        for t in [watch] + threads:
            t.start()
        for t in threads:
            t.join()
            t.leave()
        self.over = True
        watch.join()
        if self.failure:
            raise self.failure
        self.settle(files)
        self.counts["preemptions"] = int(self.server.metric("vllm:num_preemptions_total"))
        print(", ".join(f"{n} {what.replace('_', ' ')}" for what, n in sorted(self.counts.items())))

    def settle(self, files):
        until = time.monotonic() + 600
        while self.server.busy() != (0, 0) or self.server.files() > files + 1:  # the one that asks
            if time.monotonic() > until:
                raise Wrong(f"texts that run and wait: {self.server.busy()}; {self.server.files()} open files, {files} at first")
            time.sleep(0.05)


def drain(server, questions, clients, r):
    """SIGTERM in the middle."""
    long = {"prompt": "the", "max_tokens": 300, "ignore_eos": True, "temperature": 0}
    answers, failures, threads = [], [], []
    first = json.loads(ask(server.connect(), Question("/v1/completions", long), False).read())["choices"][0]["text"]

    def client(question, stream):
        try:
            response = ask(server.connect(), question, stream)
            if response.status != 200:
                raise Wrong(f"status {response.status}: {response.read()[:300]}")
            if question.path is None:
                pass
            elif stream:
                read_stream(question, response)
            else:
                question.check(json.loads(response.read()))
            answers.append(question)
        except Exception as e:
            failures.append(f"{e!r}: {question.ask}")
    for i in range(clients):
        question = r.choice(questions) if i >= 16 else Question("/v1/completions", long)
        if i < 16:
            question.answer, question.text = None, {0: first}
        threads.append(threading.Thread(target=client, args=(question, i < 16 or r.random() < 0.5)))
    before = server.metric("vllm:request_prompt_tokens_count")
    for t in threads:
        t.start()
    while sum(server.busy()) + server.metric("vllm:request_prompt_tokens_count") - before < clients:
        time.sleep(0.001)  # all have been accepted
    busy = server.busy()
    server.process.send_signal(signal.SIGTERM)
    refused = 0
    while server.process.poll() is None:
        try:
            refused += ask(server.connect(), questions[0], False).status == 503
        except (OSError, http.client.HTTPException):
            break  # it listens no longer
    for t in threads:
        t.join()
    server.end()
    if failures or len(answers) != clients:
        raise Wrong(f"{len(answers)} of {clients} were answered after SIGTERM: {failures[:3]}")
    print(f"SIGTERM while {busy[0]:.0f} texts ran and {busy[1]:.0f} waited: all {clients} answered, {refused} later ones refused")


def make_adapter(folder, model, seed, rank=4):
    """Of random numbers, for q and v of each layer, as PEFT writes it."""
    c, r, header, data = json.loads(Path(model, "config.json").read_text()), random.Random(seed), {}, b""
    head = c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"]
    for layer in range(c["num_hidden_layers"]):
        for name, heads in (("q_proj", c["num_attention_heads"]), ("v_proj", c["num_key_value_heads"])):
            for half, shape in (("A", [rank, c["hidden_size"]]), ("B", [heads * head, rank])):
                n = shape[0] * shape[1]
                header[f"base_model.model.model.layers.{layer}.self_attn.{name}.lora_{half}.weight"] = {
                    "dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + 4 * n]}
                data += struct.pack(f"<{n}f", *(r.uniform(-0.2, 0.2) for _ in range(n)))
    text = json.dumps(header).encode()
    Path(folder).mkdir()
    Path(folder, "adapter_model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    Path(folder, "adapter_config.json").write_text(json.dumps({
        "peft_type": "LORA", "base_model_name_or_path": str(model), "r": rank, "lora_alpha": 2 * rank,
        "target_modules": ["q_proj", "v_proj"], "bias": "none", "task_type": "CAUSAL_LM"}))


def check_offline(caravan, model, adapters, questions):
    """Texts of plain questions, by `caravan generate`."""
    plain = {"prompt", "max_tokens", "adapter", "seed", "temperature", "top_p", "priority", "cache_salt", "min_p", "top_k"}
    n = 0
    for q in questions:
        if q.path != "/v1/completions" or set(q.ask) - plain or not isinstance(q.ask["prompt"], str) or n == 20:
            continue
        options = ["--prompt", q.ask["prompt"], "-n", str(q.ask["max_tokens"]), "--seed", str(q.ask["seed"])]
        if "adapter" in q.ask:
            options += ["--adapter", adapters[q.ask["adapter"]]]
        for name, neutral in (("temperature", 1), ("top_p", 1), ("min_p", 0), ("top_k", 0)):
            options += ["--" + name.replace("_", "-"), str(q.ask.get(name, neutral))]
        out = subprocess.run([caravan, "generate", "-m", model, "--json", *options], check=True, capture_output=True, text=True).stdout
        text = json.loads(out.splitlines()[0])["text"]
        if text != q.text[0]:
            raise Wrong(f"{q.ask}\nserved    {q.text[0]!r}\ngenerated {text!r}")
        n += 1
    print(f"{n} texts are those of caravan generate")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("caravan")
    p.add_argument("--requests", type=int, default=200000)
    p.add_argument("--clients", type=int, default=64)
    p.add_argument("--questions", type=int, default=300)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--model", help="a folder, else one of random weights")
    p.add_argument("--any-memory", action="store_true", help="for sanitizers, which keep what was freed")
    p.add_argument("--serve", default="--slots 8 --speculate lookup", help="options of the server")
    o = p.parse_args()
    caravan, r = os.path.abspath(o.caravan), random.Random(o.seed)
    with tempfile.TemporaryDirectory() as folder:
        model = o.model or folder + "/model"
        if not o.model:
            tokenizer = Path(__file__).resolve().parent.parent / "tests/data/chat/tokenizer.json"
            subprocess.run([caravan, "init", "-p", "tiny", "-s", "3", "--context", "512", "--tokenizer", tokenizer, "-o", model],
                           check=True, stdout=subprocess.DEVNULL)
        adapters = {name: f"{folder}/{name}" for name in ADAPTERS}
        for i, (name, path) in enumerate(adapters.items()):
            make_adapter(path, model, i)
        own = [x for name, path in adapters.items() for x in ("--adapter", f"{name}={path}")]
        questions = [Question(*draw_question(r, i)) for i in range(o.questions)]
        server = Server(caravan, model, "--slots", "1", *own)
        connection = server.connect()
        for q in questions:
            response = ask(connection, q, False)
            if response.status != 200:
                raise Wrong(f"{q.path} {q.ask}: status {response.status}: {response.read()}")
            q.learn(json.loads(response.read()))
        connection.close()
        server.process.send_signal(signal.SIGTERM)
        server.end()
        check_offline(caravan, model, adapters, questions)
        server = Server(caravan, model, *own, *o.serve.split(), "--max-connections", "500")
        try:
            soak, begin = Soak(server, questions, o), time.monotonic()
            soak.run(o.clients)
            seconds = time.monotonic() - begin
            settled, last = (sum(soak.rss[k:k + 5]) / 5 for k in (4, len(soak.rss) - 5))
            growth = last / settled - 1
            print(f"{o.requests} requests in {seconds:.0f} s, {o.requests / seconds:.0f} a second; memory {settled / 1e6:.2f} MB in the "
                  f"second fifth, {growth * 100:+.2f}% in the last")
            if growth > 0.01 and not o.any_memory:
                raise Wrong("memory has grown")
            drain(server, questions, o.clients, r)
        finally:
            server.process.kill()
    print("no wrong text, no row kept, no connection left")


main()
