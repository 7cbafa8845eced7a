"""The Python package as it is installed, held to the program and to itself: python_package.py CARAVAN MODEL TEXT.

MODEL is a small model of random weights with a tokenizer and a chat template that knows tools; TEXT is something to learn.
"""
import gc
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import threading
import unittest

import caravan

PROGRAM, MODEL, TEXT = sys.argv[1:4]
try:
    import numpy
except ImportError:
    numpy = None

TOOL = {"type": "function", "function": {"name": "look_up", "description": "looks up", "parameters": {
    "type": "object", "properties": {"word": {"type": "string"}}}}}
CALL = '<tool_call>\n{"name": "look_up", "arguments": {"word": "sea"}}\n</tool_call>'


class Models(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.llm = caravan.LLM(MODEL, context=512, dtype="f32", threads=2, slots=3)

    @classmethod
    def tearDownClass(cls):
        cls.llm.close()

    def test_generates_what_the_program_generates(self):
        said = subprocess.run([PROGRAM, "generate", "-m", MODEL, "-p", "the sea", "-n", "12", "--temperature", "0",
                               "--dtype", "f32"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=True)
        done = self.llm.generate("the sea", max_tokens=12)
        self.assertEqual(done.text.rstrip("\n"), said.stdout.decode("utf-8", "replace").rstrip("\n"))
        self.assertEqual(done.prompt_tokens, len(self.llm.encode("the sea", bos=True)))
        self.assertIn(done.finish_reason, ("stop", "length"))

    def test_streams_what_comes_at_once(self):
        whole = self.llm.generate("the sea", max_tokens=20, ignore_eos=True)
        stream = self.llm.generate("the sea", max_tokens=20, ignore_eos=True, stream=True)
        self.assertEqual("".join(stream), whole.text)
        self.assertEqual(stream.result.tokens, whole.tokens)
        self.assertEqual(len(whole.tokens), 20)

    def test_prompts_at_once_are_prompts_alone(self):
        prompts = ["the sea", "a", "one more", "and another", "the last"]
        together = self.llm.generate(prompts, max_tokens=10)
        self.assertEqual([t.tokens for t in together], [self.llm.generate(p, max_tokens=10).tokens for p in prompts])
        streams = self.llm.generate(prompts[:2], max_tokens=10, stream=True)
        pieces = ["", ""]
        for a, b in zip(*streams):
            pieces[0] += a
            pieces[1] += b
        for i, rest in enumerate(streams):
            pieces[i] += "".join(rest)
        for p, s in zip(streams, together):
            self.assertEqual(p.result.tokens, s.tokens)

    def test_threads_share_a_model(self):
        expected = self.llm.generate("the sea", max_tokens=16).tokens
        found = [None] * 4

        def work(i):
            found[i] = self.llm.generate("the sea", max_tokens=16).tokens

        threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(found, [expected] * 4)

    def test_a_seed_makes_a_text(self):
        a, b = (self.llm.generate("the", max_tokens=16, temperature=1.5, seed=7) for _ in range(2))
        self.assertEqual(a.tokens, b.tokens)
        c = self.llm.generate("the", max_tokens=16, temperature=1.5, seed=8)
        self.assertNotEqual(a.tokens, c.tokens)

    def test_a_text_ends_before_a_stop_text(self):
        whole = self.llm.generate("the sea", max_tokens=30, ignore_eos=True).text
        stop = whole[8:11]
        stream = self.llm.generate("the sea", max_tokens=30, ignore_eos=True, stop=["no such text", stop], stream=True)
        self.assertEqual("".join(stream), whole[:whole.index(stop)])
        self.assertEqual(stream.result.finish_reason, "stop")

    def test_logprobs_are_those_of_the_model(self):
        done = self.llm.generate("the sea", max_tokens=6, ignore_eos=True, logprobs=3)
        prompt = self.llm.encode("the sea", bos=True)
        scored = self.llm.score(done.tokens, context=prompt)
        self.assertTrue(scored.is_greedy)
        self.assertEqual([p.token for p in done.logprobs], done.tokens)
        for place, logprob in zip(done.logprobs, scored.logprobs[len(prompt):]):
            self.assertAlmostEqual(place.logprob, logprob, 4)
            self.assertEqual((place.rank, place.top[0][0], len(place.top)), (1, place.token, 3))
        self.assertAlmostEqual(scored.logprob, sum(p.logprob for p in done.logprobs), 3)

    def test_scores_either_way(self):
        fast, exact = self.llm.score("sea", context="the "), self.llm.score("sea", context="the ", top=2)
        self.assertEqual(fast.tokens, exact.tokens)
        self.assertAlmostEqual(fast.logprob, exact.logprob, 4)
        self.assertEqual(fast.argmax[:-1], exact.argmax)
        self.assertLess(fast.logprob, 0)
        self.assertGreater(fast.perplexity, 1)

    def test_embeddings_have_length_one(self):
        one, two = self.llm.embed(["the sea", "a hill"])
        self.assertEqual(len(one), self.llm.width)
        self.assertAlmostEqual(math.fsum(float(x) ** 2 for x in one), 1, 4)
        self.assertEqual(list(one), list(self.llm.embed("the sea")))
        self.assertNotEqual(list(one), list(two))

    def test_text_comes_back_from_ids(self):
        text = "caf\u00e9 \u4f60\u597d \U0001f600!"
        self.assertEqual(self.llm.decode(self.llm.encode(text)), text)
        self.assertEqual(self.llm.encode(text, bos=True)[0], self.llm.bos)

    def test_a_schema_is_fulfilled(self):
        schema = {"type": "object", "properties": {"a": {"enum": [1, 2]}, "b": {"type": "boolean"}},
                  "required": ["a", "b"], "additionalProperties": False}
        found = self.llm.generate("JSON: ", schema=schema, max_tokens=100, temperature=1, seed=1).json()
        self.assertEqual(set(found), {"a", "b"})
        self.assertIn(found["a"], (1, 2))
        self.assertIn(self.llm.chat("yes or no?", choices=["yes", "no"]).content, ("yes", "no"))
        self.assertRegex(self.llm.generate("", regex="[a-c]{3}", max_tokens=10).text, "^[a-c]{3}$")
        self.assertEqual(self.llm.generate("x", grammar='root ::= "ab" "c"', max_tokens=9).text, "abc")
        with self.assertRaisesRegex(caravan.CaravanError, "type"):
            self.llm.generate("x", schema={"type": "nothing"})
        with self.assertRaisesRegex(caravan.CaravanError, "one constraint"):
            self.llm.generate("x", schema={}, regex="a")

    def test_chats(self):
        messages = [{"role": "user", "content": "Hello"}]
        answer = self.llm.chat(messages, max_tokens=12)
        stream = self.llm.chat(messages, max_tokens=12, stream=True)
        self.assertEqual("".join(stream), answer.content)
        self.assertEqual(stream.result.message, answer.message)
        self.assertEqual(answer.message["role"], "assistant")
        again = self.llm.chat([*messages, answer.message, {"role": "user", "content": "More"}], max_tokens=4)
        self.assertGreater(again.prompt_tokens, answer.prompt_tokens)
        self.assertGreater(again.reused_tokens, 0)

    def test_calls_tools(self):
        prompt = self.llm.decode(self.llm.encode_chat("Look it up", tools=[TOOL]), special=True)
        self.assertIn("look_up", prompt)
        stream = self.llm.chat("Look it up", tools=[TOOL], choices=[CALL], stream=True)
        self.assertEqual("".join(stream), "")
        answer = stream.result
        self.assertEqual(answer.finish_reason, "tool_calls")
        (call,) = answer.tool_calls
        self.assertEqual(call["function"], {"name": "look_up", "arguments": {"word": "sea"}})
        after = self.llm.encode_chat([{"role": "user", "content": "Look it up"}, answer.message,
                                      {"role": "tool", "content": "wet", "tool_call_id": call["id"]}], tools=[TOOL])
        self.assertIn("wet", self.llm.decode(after))

    def test_calls_that_must_be_made_can_be_read(self):
        count = {"type": "function", "function": {"name": "count", "parameters": {
            "type": "object", "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 1}}, "required": ["n"]}}}
        find = {"type": "function", "function": {"name": "find", "parameters": {
            "type": "object", "properties": {"word": {"enum": ["sea", "hill"]}}, "required": ["word"]}}}
        for seed in range(3):
            answer = self.llm.chat("Look it up", tools=[find, count], tool_choice="required", temperature=1, seed=seed)
            self.assertEqual((answer.finish_reason, answer.content), ("tool_calls", ""))
            for call in answer.tool_calls:
                function = call["function"]
                if function["name"] == "count":
                    self.assertIn(function["arguments"]["n"], range(2))
                else:
                    self.assertEqual(function["name"], "find")
                    self.assertIn(function["arguments"]["word"], ("sea", "hill"))
            self.assertTrue(answer.tool_calls)
            self.assertEqual(len({call["id"] for call in answer.tool_calls}), len(answer.tool_calls))
        named = {"type": "function", "function": {"name": "count"}}
        stream = self.llm.chat("Hi", tools=[find, count], tool_choice=named, temperature=1, seed=5, stream=True)
        self.assertEqual("".join(stream), "")
        (call,) = stream.result.tool_calls
        self.assertEqual(call["function"]["name"], "count")
        self.assertIn(json.dumps(call["function"]["arguments"]["n"]), self.llm.decode(stream.result.tokens))
        one = self.llm.chat("Hi", tools=[count], tool_choice="required", parallel_tool_calls=False)
        self.assertEqual(len(one.tool_calls), 1)
        self.assertEqual(one.tokens, self.llm.chat("Hi", tools=[count], tool_choice=named).tokens)
        short = self.llm.chat("Hi", tools=[count], tool_choice="required", max_tokens=1)
        self.assertEqual((short.finish_reason, short.tool_calls), ("length", []))
        self.assertEqual(self.llm.chat("Hi", tools=[TOOL], tool_choice="none", max_tokens=4).tokens,
                         self.llm.chat("Hi", max_tokens=4).tokens)
        for options, says in (({"tool_choice": "required"}, "no tools"), ({"tool_choice": "maybe", "tools": [TOOL]}, "give"),
                              ({"tool_choice": {"type": "function", "function": {"name": "fly"}}, "tools": [TOOL]},
                               "unknown tool \"fly\""),
                              ({"tool_choice": "required", "tools": [TOOL], "regex": "a"}, "no other constraint"),
                              ({"tool_choice": "required", "tools": [{"type": "x"}]}, "tool 0 is not")):
            with self.assertRaisesRegex(caravan.CaravanError, says):
                self.llm.chat("Hi", **options)

    def test_ctrl_c_ends_a_text_and_nothing_else(self):
        before = self.llm.generate("the sea", max_tokens=8).tokens
        for endless in (lambda: [self.llm.generate("the", max_tokens=400, ignore_eos=True) for _ in range(10000)],
                        lambda: [self.llm.score(list(range(1, 400))) for _ in range(100000)]):
            timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
            timer.start()
            with self.assertRaises(KeyboardInterrupt):
                endless()
            timer.join()
        self.assertEqual(self.llm.generate("the sea", max_tokens=8).tokens, before)

    def test_streams_that_are_left_free_their_slots(self):
        for _ in range(8):
            stream = self.llm.generate("the", max_tokens=400, ignore_eos=True, stream=True)
            next(stream)
            del stream
        gc.collect()
        with self.llm.generate("the", max_tokens=400, ignore_eos=True, stream=True) as stream:
            next(stream)
        self.assertEqual(stream.result.finish_reason, "cancelled")
        self.llm.generate("the", max_tokens=400, ignore_eos=True, stream=True).close()
        self.llm.generate("the", max_tokens=2)
        self.assertEqual(self.llm._running, {})

    def test_what_is_wrong_is_said(self):
        with self.assertRaisesRegex(caravan.CaravanError, "no/such-model.*caravan pull no/such-model") as caught:
            caravan.LLM("no/such-model")
        self.assertEqual(caught.exception.code, -2)
        with self.assertRaisesRegex(caravan.CaravanError, "f16"):
            caravan.LLM(MODEL, dtype="f16")
        with self.assertRaisesRegex(caravan.CaravanError, "context"):
            self.llm.generate([1] * 600)
        with self.assertRaisesRegex(caravan.CaravanError, "nothing to score"):
            self.llm.score([])
        closed = caravan.LLM(MODEL, context=64)
        stream = closed.generate("the", stream=True, max_tokens=60, ignore_eos=True)
        next(stream)
        closed.close()
        closed.close()
        with self.assertRaisesRegex(caravan.CaravanError, "was closed"):
            closed.generate("a")
        with self.assertRaisesRegex(caravan.CaravanError, "was closed"):
            list(stream)


def mlp():
    g = caravan.Graph("mlp")
    x, y = g.parameter("x", (8, 3)), g.parameter("y", (8,))
    w1, w2 = g.parameter("w1", (3, 6)), g.parameter("w2", (6,))
    h = (x @ w1).tanh().mark("data", "model")
    loss = ((h @ w2 - y) ** 2).mean()
    for w, dw in zip((w1, w2), g.gradient(loss, [w1, w2])):
        g.output(w - 0.1 * dw, into=w)
    g.output(loss)
    return g


def numbers(rows, columns=None):
    if columns is None:
        return [math.sin(3 * i) for i in range(rows)]
    return [[math.cos(2 * r + 5 * c) / 2 for c in range(columns)] for r in range(rows)]


def flat(a):
    return [float(x) for x in (a.reshape(-1) if numpy else memoryview(a).cast("B").cast("f"))]


def scalar(a):
    return float(a.tolist())


class Graphs(unittest.TestCase):
    def test_a_network_learns_the_same_on_any_mesh(self):
        results = []
        for spec in ("", "data=2,model=2", "data=3,model=1"):
            step = caravan.Mesh(spec, threads=1).compile(mlp())
            w1, w2, losses = numbers(3, 6), numbers(6), []
            for _ in range(5):
                w1, w2, loss = step(numbers(8, 3), numbers(8), w1=w1, w2=w2)
                losses.append(scalar(loss))
            self.assertEqual(sorted(losses, reverse=True), losses)
            results.append(losses + flat(w1))
        for other in results[1:]:
            for a, b in zip(results[0], other):
                self.assertAlmostEqual(a, b, 5)

    def test_arrays_stay_on_the_devices(self):
        mesh = caravan.Mesh("data=2,model=2", threads=1)
        w1, w2 = mesh.array(), mesh.array()
        with self.assertRaisesRegex(caravan.CaravanError, "type is not known"):
            w1.write(numbers(3, 6))
        step, plain = mesh.compile(mlp(), {"w1": w1, "w2": w2}), caravan.Mesh(threads=1).compile(mlp())
        w1.write(numbers(3, 6))
        w2.write(numbers(6))
        by_hand = [numbers(3, 6), numbers(6)]
        for _ in range(3):
            none, also, loss = step(numbers(8, 3), numbers(8))
            by_hand = plain(numbers(8, 3), numbers(8), *by_hand[:2])
            self.assertIsNone(none or also)
            self.assertAlmostEqual(scalar(loss), scalar(by_hand[2]), 5)
        for a, b in zip(flat(w1.read()), flat(by_hand[0])):
            self.assertAlmostEqual(a, b, 5)

    def test_inputs_are_not_changed_and_outputs_outlive_all(self):
        w1 = numbers(3, 6)
        data = numpy.array(w1, numpy.float32) if numpy else w1
        mesh = caravan.Mesh(threads=1)
        step = mesh.compile(mlp())
        del mesh
        out, _, _ = step(numbers(8, 3), numbers(8), data, numbers(6))
        before = flat(out)
        self.assertEqual(data.tolist() if numpy else data, numpy.array(w1, numpy.float32).tolist() if numpy else w1)
        del step
        gc.collect()
        self.assertEqual(flat(out), before)
        self.assertNotEqual(before, [x for row in w1 for x in row])

    def test_operations_mean_what_they_say(self):
        g = caravan.Graph("ops")
        x = g.parameter("x", (2, 3))
        outs = {
            "x + [1, 2, 3]": ([[1 + 1, 2 + 2, 3 + 3], [4 + 1, 5 + 2, 6 + 3]], x + g.constant([1.0, 2.0, 3.0])),
            "1 - x / 2": ([[.5, 0, -.5], [-1, -1.5, -2]], 1 - x / 2),
            "x[1, ::2]": ([4, 6], x[1, ::2]),
            "x[..., None, 1:]": ([[[2, 3]], [[5, 6]]], x[..., None, 1:]),
            "x.T": ([[1, 4], [2, 5], [3, 6]], x.T),
            "x.reshape(-1, 2)": ([[1, 2], [3, 4], [5, 6]], x.reshape(-1, 2)),
            "sum(1)": ([6, 15], x.sum(1)),
            "mean": (3.5, x.mean()),
            "max keepdims": ([[4, 5, 6]], x.max(0, keepdims=True)),
            "cumsum": ([[1, 3, 6], [4, 9, 15]], x.cumsum()),
            "argmax": ([2, 2], x.argmax()),
            "where": ([[0, 0, 3], [4, 5, 6]], caravan.where(x > 2.5, x, 0)),
            "clamp": ([[2, 2, 3], [4, 5, 5]], x.clamp(2, 5)),
            "concatenate": ([[1, 2, 3, 1, 2, 3], [4, 5, 6, 4, 5, 6]], caravan.concatenate([x, x], 1)),
            "pad": ([[9, 1, 2, 3], [9, 4, 5, 6]], x.pad((0, 1), (0, 0), 9)),
            "reverse": ([[3, 2, 1], [6, 5, 4]], x.reverse(1)),
            "sort": ([[3, 2, 1], [6, 5, 4]], x.sort(descending=True)),
            "take": ([[4, 5, 6], [1, 2, 3], [4, 5, 6]], x.take(g.constant([1, 0, 1]))),
            "einsum": ([14, 77], caravan.einsum("ab,ab->a", x, x)),
            "matmul": ([[14, 32], [32, 77]], x @ x.T),
            "vector": ([6, 15], x @ g.full((3,), 1)),
            "bool": ([[False, True, False], [False, False, False]], x.equal(2)),
            "integers": ([[1, 2, 3], [4, 5, 6]], x.astype("i32")),
            "bf16": ([[1, 2, 3], [4, 5, 6]], x.astype("bf16").astype("f32")),
            "cross entropy": ([math.log(1 + math.exp(-1) + math.exp(-2))] * 2,
                              caravan.softmax_cross_entropy(x, g.constant([2, 2]))[0]),
            "softmax": ([1, 1], x.softmax().sum(1)),
            "iota": ([[0, 1, 2], [0, 1, 2]], g.iota((2, 3), 1)),
            "power": ([[1, 4, 9], [16, 25, 36]], x ** 2),
            "maximum": ([[3, 3, 3], [4, 5, 6]], caravan.maximum(x, 3)),
        }
        for _, value in outs.values():
            g.output(value)
        program = caravan.Mesh(threads=1).compile(g)
        for (name, (expected, _)), found in zip(outs.items(), program([[1, 2, 3], [4, 5, 6]])):
            found, expected = found.tolist(), json.loads(json.dumps(expected))
            with self.subTest(name):
                self.close(found, expected)

    def close(self, a, b):
        if isinstance(b, list):
            self.assertEqual(len(a), len(b))
            for x, y in zip(a, b):
                self.close(x, y)
        else:
            self.assertAlmostEqual(float(a), float(b), 5)

    def test_text_comes_and_goes(self):
        text = str(mlp())
        again = caravan.Graph.parse(text)
        self.assertEqual(str(again), text)
        self.assertEqual(list(again.parameters), ["x", "y", "w1", "w2"])
        self.assertEqual(again.parameters["w1"].shape, (3, 6))
        self.assertEqual([v.shape for v in again.outputs], [(3, 6), (6,), ()])
        self.assertIn("stablehlo.tanh", again.stablehlo())
        self.assertIn("all_reduce", str(again.partition("data=2,model=2")))
        with self.assertRaisesRegex(caravan.CaravanError, "bad.graph:1"):
            caravan.Graph.parse("nothing", "bad.graph")

    def test_a_mistake_is_told_where_it_was_made(self):
        g = caravan.Graph()
        x = g.parameter("x", (2, 3))
        with self.assertRaisesRegex(caravan.CaravanError, r"python_package\.py:\d+: .*einsum"):
            caravan.einsum("ab,cb->ac", x, g.full((4, 4), 1))
        for wrong, says in ((lambda: x + g.full((4,), 1), "broadcast"), (lambda: x.reshape(5), "reshape"),
                            (lambda: x.sum(2), "axis 2"), (lambda: x.mark("a"), "as many axes"),
                            (lambda: g.parameter("y", (1,), "f33"), "f33"), (lambda: x[5], "index 5")):
            g = caravan.Graph()
            x = g.parameter("x", (2, 3))
            with self.assertRaisesRegex(caravan.CaravanError, says):
                wrong()
        program = caravan.Mesh(threads=1).compile(mlp())
        for args, named, says in (((), {}, "'x' is not given"), (([1], [2], [3], [4], [5]), {}, "5 inputs"),
                                  ((), {"z": 1}, "no input 'z'"), (([1.0],), {}, "")):
            with self.assertRaisesRegex(caravan.CaravanError, says):
                program(*args, **named)
        with self.assertRaisesRegex(caravan.CaravanError, "mesh"):
            caravan.Mesh("data=0")

    @unittest.skipUnless(numpy, "numpy is not installed")
    def test_arrays_of_numpy_of_every_dtype(self):
        for dtype, kind in (("f64", "float64"), ("f32", "float32"), ("f16", "float16"), ("bf16", "float32"),
                            ("i32", "int32"), ("u32", "uint32"), ("i8", "int8"), ("i1", "bool")):
            g = caravan.Graph()
            x = g.parameter("x", (3, 4), dtype)
            g.output(x.T)
            given = (numpy.arange(12).reshape(4, 3).T % 7).astype(kind)
            with self.subTest(dtype):
                numpy.testing.assert_array_equal(caravan.Mesh(threads=1).compile(g)(given).astype(kind), given.T)
        with self.assertRaisesRegex(caravan.CaravanError, "shape"):
            caravan.Mesh(threads=1).compile(g)(numpy.zeros((4, 3), bool))
        g = caravan.Graph()
        g.output(g.parameter("x", (2,), "i32") * 2)
        with self.assertRaisesRegex(caravan.CaravanError, "float64"):
            caravan.Mesh(threads=1).compile(g)(numpy.zeros(2))


class Training(unittest.TestCase):
    def test_trains_and_goes_on(self):
        steps = []
        with tempfile.TemporaryDirectory() as folder:
            run = os.path.join(folder, "RUN")
            options = {"data": [TEXT], "tokenizer": os.path.join(MODEL, "tokenizer.json"), "preset": "tiny", "steps": 3,
                       "seq": 32, "batch": 2, "threads": 1, "out": run}
            done = caravan.train(options, on_step=steps.append)
            self.assertEqual([s.step for s in steps], [1, 2, 3])
            self.assertTrue(done.finished)
            self.assertEqual(steps[-1].loss, done.loss)
            with caravan.LLM(run, context=64) as llm:
                self.assertEqual(len(llm.generate("a", max_tokens=3, ignore_eos=True).tokens), 3)
            with self.assertRaises(caravan.CaravanError):
                caravan.train(options)
            self.assertEqual(caravan.resume(run, {"steps": 4}).step, 4)
            with self.assertRaisesRegex(ZeroDivisionError, "division"):
                caravan.resume(run, {"steps": 6}, on_step=lambda s: 1 // 0)
        with self.assertRaisesRegex(caravan.CaravanError, "nonsense"):
            caravan.train({"nonsense": 1})


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
