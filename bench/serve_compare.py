#!/usr/bin/env python3
"""Caravan's server beside llama.cpp's llama-server, on the same GGUF files, machine and threads.

    bench/serve_compare.py build/caravan LLAMA-SERVER q8_0.gguf q4_k_m.gguf

Each number of clients asks at once, over HTTP, streamed, for --out tokens after a prompt of --in random token ids of its own, greedy
and past the end of the text. Printed are output tokens a second of all clients together, from the first request to the last token; the
median and the 99th percentile of the time to the first token (TTFT) of all requests; and the 99th percentile of the time between two
tokens of a stream (ITL). Then the TTFT of two requests that begin with the same 1,000 tokens and have 20 of their own, and, of Caravan,
what its server decodes beside what `caravan bench` does with as many rows. Ratios above 1 of throughput, and below 1 of times, are in
Caravan's favour. The generator is the one below: a thread a client, the time taken as each event arrives.

A measurement ends within minutes; --parts names some of them ("8", "8:caravan", "prefix", "overhead"), and what was measured is kept
in --keep FILE, so that a table comes together piece by piece.
"""
import argparse, http.client, json, os, random, signal, socket, subprocess, sys, threading, time


class Server:
    """Of a kind, with so many rows of so many positions."""
    def __init__(self, o, kind, file, rows, context):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        threads, port = str(o.threads), str(self.port)
        command = {"caravan": [o.caravan, "serve", "-m", file, "--rows", str(rows), "--context", str(context), "-t", threads, "--port", port,
                               *o.caravan_options.split()],
                   "llama.cpp": [o.llama_server, "-m", file, "-np", str(rows), "-c", str(context * rows), "-t", threads, "-tb", threads,
                                 "--port", port, *o.llama_options.split()]}[kind]
        environment = dict(os.environ, LD_LIBRARY_PATH=os.path.dirname(os.path.abspath(o.llama_server)))
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                        env=environment if kind == "llama.cpp" else None)
        while not self.ready():
            if self.process.poll() is not None:
                sys.exit(f"{' '.join(command)} ended with status {self.process.returncode}")
            time.sleep(0.1)

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

    def ask(self, prompt, n):
        """Times: of the request, and of each token."""
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=1200)
        body = json.dumps({"prompt": prompt, "max_tokens": n, "temperature": 0, "ignore_eos": True, "stream": True})
        times = [time.monotonic()]
        c.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
        response = c.getresponse()
        if response.status != 200:
            raise RuntimeError(f"status {response.status}: {response.read()[:300]}")
        for line in response:
            if line.startswith(b"data: {") and json.loads(line[6:]).get("choices"):
                times.append(time.monotonic())
        return times[:n + 1]  # what ends a stream is no token


def percentile(values, p):
    values = sorted(values)
    return values[min(len(values) - 1, int(len(values) * p / 100))]


def ids(o, r, n):
    return [r.randrange(3, o.vocab) for _ in range(n)]


def load(o, kind, file, clients):
    r, times = random.Random(clients), [None] * clients
    with Server(o, kind, file, clients, o.given + o.out + 64) as server:
        server.ask(ids(o, r, 20), 4)  # pages of weights, and what is made once

        def client(i, prompt):
            times[i] = server.ask(prompt, o.out)
        threads = [threading.Thread(target=client, args=(i, ids(o, r, o.given))) for i in range(clients)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    first = [t[1] - t[0] for t in times]
    between = [b - a for t in times for a, b in zip(t[1:], t[2:])]
    all_decode, one_ends = max(t[1] for t in times), min(t[-1] for t in times)  # steps of all rows
    inside = sum(all_decode < x <= one_ends for t in times for x in t[1:])
    return {"tokens/s": sum(len(t) - 1 for t in times) / (max(t[-1] for t in times) - min(t[0] for t in times)),
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


def overhead(o, file, clients):
    out = subprocess.run([o.caravan, "bench", "-m", file, "-t", str(o.threads), "--prefill", "0", "--decode", str(o.out), "-b", str(clients),
                          "-c", str(o.given), "--repeats", "1", "--json", *o.caravan_options.split()], check=True, capture_output=True, text=True)
    return {"decode": json.loads(out.stdout)["decode"]["tokens_per_second"]}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("caravan")
    p.add_argument("llama_server")
    p.add_argument("files", nargs="+")
    p.add_argument("--clients", default="1,8,32")
    p.add_argument("--in", dest="given", type=int, default=256)
    p.add_argument("--out", type=int, default=128)
    p.add_argument("--vocab", type=int, default=30000, help="ids of prompts are below")
    p.add_argument("--threads", type=int, default=os.cpu_count())
    p.add_argument("--parts", default="", help="some of the measurements, comma separated; else all")
    p.add_argument("--keep", default="build/serve_compare.json")
    p.add_argument("--caravan-options", default="")
    p.add_argument("--llama-options", default="")
    o = p.parse_args()
    kept = json.load(open(o.keep)) if os.path.exists(o.keep) else {}
    clients = [int(n) for n in o.clients.split(",")]
    work = [(f"{n}:{kind}", load, (kind, file, n), file) for file in o.files for n in clients for kind in ("llama.cpp", "caravan")]
    work += [(f"prefix:{kind}", prefix, (kind, file), file) for file in o.files for kind in ("llama.cpp", "caravan")]
    work += [(f"overhead:{n}", overhead, (file, n), file) for file in o.files for n in clients]
    for name, measure, arguments, file in work:
        key = f"{os.path.basename(file)} {name} {o.given}/{o.out}"
        if (not o.parts and key not in kept) or any(name == part or name.split(":")[0] == part for part in o.parts.split(",")):
            kept[key] = measure(o, *arguments)
            json.dump(kept, open(o.keep, "w"), indent=1)
            print(key, {k: round(v, 4) for k, v in kept[key].items()}, file=sys.stderr, flush=True)
    table(o, kept, clients)


def table(o, kept, clients):
    rows = ["tokens/s", "TTFT p50", "TTFT p99", "ITL p50", "ITL p99"]
    print(f"| file | clients | {' | '.join(f'{r}, llama.cpp | Caravan | ratio' for r in rows)} |")
    print("| --- | ---: |" + " ---: |" * 3 * len(rows))
    for file in map(os.path.basename, o.files):
        for n in clients:
            pair = [kept.get(f"{file} {n}:{kind} {o.given}/{o.out}") for kind in ("llama.cpp", "caravan")]
            if all(pair):
                print(f"| {file} | {n} | " + " | ".join(f"{pair[0][r]:.3g} | {pair[1][r]:.3g} | {pair[1][r] / pair[0][r]:.2f}" for r in rows) + " |")
    for file in map(os.path.basename, o.files):
        for kind in ("llama.cpp", "caravan"):
            times = kept.get(f"{file} prefix:{kind} {o.given}/{o.out}")
            if times:
                print(f"{file}, {kind}: TTFT with 1,000 tokens that others had {times['second']:.3f} s, {times['second'] / times['first']:.1%} of "
                      f"the first's {times['first']:.3f} s")
        for n in clients:
            alone, served = (kept.get(f"{file} {name} {o.given}/{o.out}") for name in (f"overhead:{n}", f"{n}:caravan"))
            if alone and served:
                print(f"{file}, {n} rows: served {served['decode']:.1f} tokens/s decoding, caravan bench {alone['decode']:.1f}: "
                      f"{served['decode'] / alone['decode'] - 1:+.1%}")


main()
