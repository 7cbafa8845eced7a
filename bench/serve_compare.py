#!/usr/bin/env python3
"""Caravan's server beside llama.cpp's llama-server, on the same GGUF files, machine and threads.

    bench/serve_compare.py build/caravan LLAMA-SERVER q8_0.gguf q4_k_m.gguf

Each number of clients asks over HTTP, streamed, for --out tokens after a prompt of --in random token ids of its own, greedy and past
the end of the text, --rounds times one after another. Caravan is measured as it is, and with --activations int8. Printed are output
tokens a second of all clients together, from the first request to the last token; the median and the 99th percentile of the time to
the first token (TTFT) of all requests; and the 99th percentile of the time between two tokens of a stream (ITL). Then the TTFT of two
requests that begin with the same 1,000 tokens and have 20 of their own; of Caravan, what its server decodes beside what `caravan
bench` does with as many rows, before, between and after, for clients that only count; how long streams wait for a token while prompts of 1,000 tokens come one after
another, with --max-stall and without; and the time from the start of the program to the first token. Ratios above 1 of throughput,
and below 1 of times, are in Caravan's favour.

The generator is the one below: a thread a client, the time taken as each event arrives. It gives both servers the same ids, so that
no tokenizer says how long a prompt is. The files need one all the same, for what the servers answer.

A measurement ends within minutes; --parts names some of them ("8", "8:int8", "prefix", "overhead:8", "stall", "start"), and what was
measured is kept in --keep FILE, so that a table comes together piece by piece.
"""
import argparse, http.client, json, os, random, selectors, signal, socket, subprocess, sys, threading, time


KINDS = {"llama.cpp": "", "caravan": "", "int8": "--activations int8"}  # with what options
NAMES = {"llama.cpp": "llama.cpp", "caravan": "Caravan", "int8": "Caravan, activations in int8"}


class Server:
    """Of a kind, with so many rows of so many positions."""
    def __init__(self, o, kind, file, rows, context, more=""):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        threads, port = str(o.threads), str(self.port)
        command = [o.caravan, "serve", "-m", file, "--slots", str(rows), "--context", str(context), "-t", threads, "--port", port,
                   *o.caravan_options.split(), *KINDS[kind].split(), *more.split()]
        if kind == "llama.cpp":
            command = [o.llama_server, "-m", file, "-np", str(rows), "-c", str(context * rows), "-t", threads, "-tb", threads,
                       "--port", port, *o.llama_options.split()]
        self.begin = time.monotonic()
        environment = dict(os.environ, LD_LIBRARY_PATH=os.path.dirname(os.path.abspath(o.llama_server)))
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                        env=environment if kind == "llama.cpp" else None)
        while not self.ready():
            if self.process.poll() is not None:
                sys.exit(f"{' '.join(command)} ended with status {self.process.returncode}")
            time.sleep(0.02)

    def ready(self):
        try:
            c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
            c.request("GET", "/health")
            return c.getresponse().status == 200
        except OSError:
            return False

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()

    def ask(self, prompt, n, begun=None):
        """Times: of the request, and of each token. `begun` is called at the first one."""
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=1200)
        body = json.dumps({"prompt": prompt, "max_tokens": n, "temperature": 0, "ignore_eos": True, "stream": True,
                           "stream_options": {"include_usage": True}})
        times, said = [time.monotonic()], 0
        c.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
        response = c.getresponse()
        if response.status != 200:
            raise RuntimeError(f"status {response.status}: {response.read()[:300]}")
        for line in response:
            event = json.loads(line[6:]) if line.startswith(b"data: {") else {}
            if event.get("choices"):
                times.append(time.monotonic())
                if begun and len(times) == 2:
                    begun()
            said = (event.get("usage") or {}).get("completion_tokens", said)
        if said != n or len(times) < 2:
            raise RuntimeError(f"{said} tokens in {len(times) - 1} events, and {n} were asked for")
        return times[:n + 1]  # what ends a stream is no token


def percentile(values, p):
    values = sorted(values)
    return values[min(len(values) - 1, int(len(values) * p / 100))]


def ids(o, r, n):
    return [r.randrange(3, o.vocab) for _ in range(n)]


def together(*work):
    """Each in a thread, and what they return."""
    results = [None] * len(work)

    def one(i):
        try:
            results[i] = work[i]()
        except Exception as e:
            results[i] = e
    threads = [threading.Thread(target=one, args=(i,)) for i in range(len(work))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for r in results:
        if isinstance(r, Exception):
            raise r
    return results


def load(o, kind, file, clients, rounds):
    r = random.Random(clients)
    with Server(o, kind, file, clients, o.given + o.out + 64) as server:
        server.ask(ids(o, r, 20), 4)  # pages of weights, and what is made once
        prompts = [[ids(o, r, o.given) for _ in range(rounds)] for _ in range(clients)]
        asked = together(*(lambda own=own: [server.ask(p, o.out) for p in own] for own in prompts))
    times = [t for own in asked for t in own]
    first = [t[1] - t[0] for t in times]
    between = [b - a for t in times for a, b in zip(t[1:], t[2:])]
    once = [own[0] for own in asked]
    all_decode, one_ends = max(t[1] for t in once), min(t[-1] for t in once)  # steps of all rows
    inside = sum(all_decode < x <= one_ends for t in once for x in t[1:])
    return {"tokens/s": o.out * len(times) / (max(t[-1] for t in times) - min(t[0] for t in times)),
            "TTFT p50": percentile(first, 50), "TTFT p99": percentile(first, 99), "ITL p50": percentile(between, 50),
            "ITL p99": percentile(between, 99), "decode": inside / max(one_ends - all_decode, 1e-9)}


def prefix(o, kind, file):
    r = random.Random(5)
    with Server(o, kind, file, 2, 1100) as server:
        server.ask(ids(o, r, 20), 2)
        shared, took = ids(o, r, 1000), []
        for _ in range(2):
            times = server.ask(shared + ids(o, r, 20), 2)
            took.append(times[1] - times[0])
    return {"first": took[0], "second": took[1]}


def bench(o, file, clients):
    out = subprocess.run([o.caravan, "bench", "-m", file, "-t", str(o.threads), "--prefill", "0", "--decode", str(o.out), "-b", str(clients),
                          "-c", str(o.given), "--repeats", "1", "--json", *o.caravan_options.split()], check=True, capture_output=True, text=True)
    return json.loads(out.stdout)["decode"]["tokens_per_second"]


def http_seconds(pid):
    """Of processor time that the threads of the server took which no model runs on."""
    seconds = 0
    for task in os.listdir(f"/proc/{pid}/task"):
        if open(f"/proc/{pid}/task/{task}/comm").read().startswith("MHD"):
            seconds += int(open(f"/proc/{pid}/task/{task}/schedstat").read().split()[0]) / 1e9
    return seconds


def decoding(o, file, clients):
    """What is decoded while all decode, of clients that cost next to nothing: one thread counts events and reads nothing in them."""
    r, tokens, began, ended = random.Random(clients), {}, None, None
    with Server(o, "caravan", file, clients, o.given + o.out + 64) as server, selectors.DefaultSelector() as ready:
        for _ in range(clients):
            body = json.dumps({"prompt": ids(o, r, o.given), "max_tokens": o.out, "temperature": 0, "ignore_eos": True, "stream": True})
            s = socket.create_connection(("127.0.0.1", server.port))
            s.sendall(f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
            ready.register(s, selectors.EVENT_READ)
            tokens[s] = []
        while not ended:
            for key, _ in ready.select():
                data = key.fileobj.recv(1 << 16)
                tokens[key.fileobj] += [time.monotonic()] * data.count(b"data: {")
                if not data or len(tokens[key.fileobj]) >= o.out:
                    ended = (time.monotonic(), http_seconds(server.process.pid))
            if not began and all(tokens.values()):
                began = (time.monotonic(), http_seconds(server.process.pid))
        for s in tokens:
            s.close()
    seconds = ended[0] - began[0]
    return {"served": sum(began[0] < t <= ended[0] for times in tokens.values() for t in times) / seconds,
            "http": (ended[1] - began[1]) / seconds}


def overhead(o, file, clients):
    """The mean of several, one after another: they differ by more than what is looked for."""
    alone, served = [bench(o, file, clients)], []
    for _ in range(3):
        served.append(decoding(o, file, clients))
        alone.append(bench(o, file, clients))
    return {"alone": alone, "served": [x["served"] for x in served], "http": max(x["http"] for x in served)}


def stall(o, file, limit):
    """Four streams, and four prompts of 1,000 tokens that come meanwhile. A wait is what lies between two tokens beyond a step."""
    r, n = random.Random(9), 200
    with Server(o, "caravan", file, 5, 1100, f"--max-stall {limit}" if limit else "") as server:
        for length in (16, 32, 64, 128, 256, 384, 512):  # what each section takes is learnt
            server.ask(ids(o, r, length), 2)
        all_stream = threading.Barrier(5)

        def prompts_of_1000():
            all_stream.wait()
            return [server.ask(ids(o, r, 1000), 1) for _ in range(4)]
        *streams, prompts = together(*[lambda p=ids(o, r, 16): server.ask(p, n, all_stream.wait) for _ in range(4)], prompts_of_1000)
    begin, end = prompts[0][0], min(prompts[-1][-1], *(t[-1] for t in streams))
    gaps = sorted(b - a for t in streams for a, b in zip(t[1:], t[2:]))
    inside = [b - a for t in streams for a, b in zip(t[1:], t[2:]) if begin <= b and a <= end]
    return {"step": gaps[len(gaps) // 10], "ITL p50": percentile(inside, 50), "ITL p99": percentile(inside, 99), "longest": max(inside),
            "prompt": percentile([t[1] - t[0] for t in prompts], 50)}


def start(o, file):
    """Of the program, with the file in the page cache."""
    subprocess.run(["cat", file], check=True, stdout=subprocess.DEVNULL)
    with Server(o, "caravan", file, 8, 1024) as server:
        ready = time.monotonic() - server.begin
        return {"ready": ready, "first": server.ask([1, 306, 763], 1)[1] - server.begin}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("caravan")
    p.add_argument("llama_server")
    p.add_argument("files", nargs="+")
    p.add_argument("--clients", default="1,8,32")
    p.add_argument("--rounds", default="4,2,1", help="requests of each client, by the number of clients")
    p.add_argument("--in", dest="given", type=int, default=256)
    p.add_argument("--out", type=int, default=128)
    p.add_argument("--vocab", type=int, default=30000, help="ids of prompts are below")
    p.add_argument("--threads", type=int, default=os.cpu_count())
    p.add_argument("--parts", default="", help="some of the measurements, comma separated; else all")
    p.add_argument("--max-stall", type=int, default=300, help="milliseconds, of the part \"stall\"")
    p.add_argument("--keep", default="build/serve_compare.json")
    p.add_argument("--caravan-options", default="")
    p.add_argument("--llama-options", default="")
    o = p.parse_args()
    kept = json.load(open(o.keep)) if os.path.exists(o.keep) else {}
    clients = [int(n) for n in o.clients.split(",")]
    rounds = dict(zip(clients, map(int, o.rounds.split(","))))
    work = [(f"{n}:{kind}", load, (kind, file, n, rounds[n]), file) for file in o.files for n in clients for kind in KINDS]
    work += [(f"prefix:{kind}", prefix, (kind, file), file) for file in o.files for kind in ("llama.cpp", "caravan")]
    work += [(f"overhead:{n}", overhead, (file, n), file) for file in o.files for n in clients]
    work += [(f"stall:{ms}", stall, (file, ms), file) for file in o.files for ms in (o.max_stall, 0)]
    work += [("start", start, (file,), file) for file in o.files]
    for name, measure, arguments, file in work:
        key = f"{os.path.basename(file)} {name} {o.given}/{o.out}"
        if (not o.parts and key not in kept) or any(name == part or name.split(":")[0] == part for part in o.parts.split(",")):
            kept[key] = measure(o, *arguments)
            json.dump(kept, open(o.keep, "w"), indent=1)
            print(key, kept[key], file=sys.stderr, flush=True)
    table(o, kept, clients)


def table(o, kept, clients):
    def of(file, name):
        return kept.get(f"{file} {name} {o.given}/{o.out}")
    rows = ["tokens/s", "TTFT p50", "TTFT p99", "ITL p50", "ITL p99"]
    print(f"| file | clients | server | {' | '.join(f'{r} | ratio' for r in rows)} |")
    print("| --- | ---: | --- |" + " ---: |" * 2 * len(rows))
    files = [os.path.basename(file) for file in o.files]
    for file in files:
        for n in clients:
            base = of(file, f"{n}:llama.cpp")
            for kind in KINDS:
                got = of(file, f"{n}:{kind}")
                if got:
                    print(f"| {file} | {n} | {NAMES[kind]} | " + " | ".join(
                        f"{got[r]:.3g} | " + (f"{got[r] / base[r]:.2f}" if base and kind != "llama.cpp" else "") for r in rows) + " |")
    for file in files:
        for kind in KINDS:
            times = of(file, f"prefix:{kind}")
            if times:
                print(f"{file}, {NAMES[kind]}: TTFT with 1,000 tokens that others had {times['second']:.3f} s, "
                      f"{times['second'] / times['first']:.1%} of the first's {times['first']:.3f} s")
        for n in clients:
            x = of(file, f"overhead:{n}")
            if x:
                served, alone = (sum(x[k]) / len(x[k]) for k in ("served", "alone"))
                print(f"{file}, {n} rows: served {' '.join(f'{s:.1f}' for s in x['served'])} tokens/s decoding, caravan bench before, "
                      f"between and after {' '.join(f'{s:.1f}' for s in x['alone'])}: {served / alone - 1:+.1%}; threads of HTTP "
                      f"take {x['http']:.2%} of a processor")
        for ms in (o.max_stall, 0):
            x = of(file, f"stall:{ms}")
            if x:
                print(f"{file}, {f'--max-stall {ms}' if ms else 'without --max-stall'}: between tokens p50 {x['ITL p50']:.3f} s, p99 "
                      f"{x['ITL p99']:.3f} s, longest {x['longest']:.3f} s, of which a step takes {x['step']:.3f} s; a prompt of 1,000 "
                      f"tokens {x['prompt']:.1f} s")
        x = of(file, "start")
        if x:
            print(f"{file}: ready {x['ready']:.2f} s after the start, first token after {x['first']:.2f} s")


main()
