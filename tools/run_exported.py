"""run_exported.py FOLDER N ID [ID ...]: runs what `caravan export MODEL FOLDER --to stablehlo` wrote with JAX alone, and
prints the N tokens that are likeliest to follow, one after another. docs/ACCELERATORS.md shows it."""
import json, sys
import jax, numpy as np
from jax._src.lib import xla_client as xla
folder, n, prompt = sys.argv[1], int(sys.argv[2]), [int(x) for x in sys.argv[3:]]
modules = json.load(open(folder + "/signature.json"))["modules"]
raw, device, state = open(folder + "/model.safetensors", "rb").read(), jax.devices()[0], {}
end, types = 8 + int.from_bytes(raw[:8], "little"), {"F32": "float32", "BF16": "bfloat16", "F16": "float16", "I8": "int8"}
header = json.loads(raw[8:end])
def tensor(name):
    first, last = header[name]["data_offsets"]
    return np.frombuffer(raw[end + first : end + last], jax.numpy.dtype(types[header[name]["dtype"]]))
def load(name):
    code = open(f"{folder}/{modules[name]['file']}").read()
    return device.client.compile_and_load(code, xla.DeviceList((device,)), xla.CompileOptions()), modules[name]
def take(i, given):  # an input: given, a weight, or what begins as 0 and stays
    dtype = jax.numpy.dtype(i["dtype"])
    if i["name"] in given:
        return jax.device_put(np.array(given[i["name"]], dtype).reshape(i["shape"]), device)
    if i["name"] not in state:
        data = tensor(i["tensor"]).astype(dtype).reshape(i["shape"]) if "tensor" in i else np.zeros(i["shape"], dtype)
        state[i["name"]] = jax.device_put(data, device)
    return state[i["name"]]
def run(program, **given):
    executable, module = program
    out = executable.execute([take(i, given) for i in module["inputs"]])
    for value, o in zip(out, module["outputs"]):
        if "into" in o:  # a cache, in the place of its input
            state[module["inputs"][o["into"]]["name"]] = value
    return next(int(np.asarray(v)[0]) for v, o in zip(out, module["outputs"]) if o["role"] == "next")
size = max(int(m[8:]) for m in modules if m.startswith("prefill_"))
prefill, decode = load(f"prefill_{size}"), load("decode")
for at in range(0, len(prompt), size):
    part = prompt[at : at + size]
    ids = [run(prefill, tokens=part + [0] * (size - len(part)), start=[at], length=[len(part)])]
while len(ids) < n:
    ids.append(run(decode, tokens=ids[-1:], start=[len(prompt) + len(ids) - 1], length=[1]))
print(*ids)
