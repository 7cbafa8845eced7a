"""python_ranks.py MODEL TEXT OUT: what a model, a graph and a run of training give on a mesh, printed by process 0, is the same in
one process as in several (tests/python.sh). What all of them print, drawn without a seed, is the same in each. OUT is "fail":
process 1 raises an exception, which ends all."""
import sys

import caravan

model, text, out = sys.argv[1:]
llm = caravan.LLM(model, mesh="data=2", slots=2, threads=1)
if out == "fail" and caravan.rank() == 1:
    raise ValueError("as it should")
said = [llm.generate("Once upon a time", max_tokens=12, temperature=0.9, seed=3).tokens,
        [c.tokens for c in llm.generate(["Hello", "A long way from home"], max_tokens=8)],
        llm.score("It was a dark night").logprob]
unseeded = llm.generate("Hello", max_tokens=12, temperature=2.0).tokens

g = caravan.Graph("product")
x, w = g.parameter("x", (4, 3)).mark("data", None), g.parameter("w", (3, 2))
g.output(caravan.einsum("ik,kj->ij", x, w))
y = caravan.Mesh("data=2", threads=1).compile(g)([[i, i + 1, i + 2] for i in range(4)], [[1, 0.5], [0.25, 2], [1, 3]])
said.append(y.tolist())

losses = []
caravan.train({"data": [text], "preset": "tiny", "tokenizer": model, "steps": 3, "batch": 2, "seq": 32, "threads": 1,
               "mesh": "data=2", "out": out}, on_step=lambda s: losses.append(s.loss))
said.append(losses)
if caravan.rank() == 0:
    print(said)
print("drawn:", unseeded, losses)  # by all
