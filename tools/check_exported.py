"""check_exported.py FOLDER ID [ID ...]: of a folder with --score and --train, by JAX alone: the log-probability of each token
but the first; then the loss of ten steps of AdamW on these tokens. tools/export_jax.sh holds them to Caravan's."""
import sys
from run_exported import load, modules, run

ids = [int(x) for x in sys.argv[2:]]


def shape(module, name):
    return next(i["shape"] for i in modules[module]["inputs"] if i["name"] == name)


def filled(part, size, rest=0):
    return part + [rest] * (size - len(part))


size = max(int(m[6:]) for m in modules if m.startswith("score_"))
score, logprob = load(f"score_{size}"), []
for at in range(0, len(ids) - 1, size):
    part, after = ids[at : at + size], ids[at + 1 : at + size + 1]
    out = run(score, tokens=filled(part, size), targets=filled(after, size), start=[at], length=[len(part)])
    logprob += [float(x) for x in out["logprob"][0][: len(after)]]
print(*logprob)

train, losses = load("train"), []
seq, lr = shape("train", "tokens")[1], 1e-3
first, after = filled(ids[:-1][:seq], seq), filled(ids[1:][:seq], seq, -1)
for step in range(1, 11):
    report = run(train, tokens=first, targets=after, starts=[0] * seq, lr=lr,
                 correction1=lr / (1 - 0.9**step), correction2=(1 - 0.95**step) ** -0.5)["report"]
    losses.append(float(report[0] / report[1]))
print(*losses)
