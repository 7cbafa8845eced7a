"""run_exported.py FOLDER N ID [ID ...]: runs what `caravan export MODEL FOLDER --to stablehlo` wrote with JAX alone, and
prints the N tokens that are likeliest to follow, one after another. docs/ACCELERATORS.md shows it."""
import glob, json, sys
import jax, numpy as np
from jax._src.lib import xla_client as xla
folder, weight, state, device = sys.argv[1], {}, {}, jax.devices()[0]
modules = json.load(open(folder + "/signature.json"))["modules"]
types = {"F32": "float32", "BF16": "bfloat16", "F16": "float16", "I8": "int8"}
for path in glob.glob(folder + "/*.safetensors"):
    raw = np.memmap(path, np.uint8, "r")
    end = 8 + int.from_bytes(raw[:8].tobytes(), "little")
    for name, t in json.loads(raw[8:end].tobytes()).items():
        if name != "__metadata__":
            first, last = t["data_offsets"]
            weight[name] = raw[end + first : end + last].view(jax.numpy.dtype(types[t["dtype"]]))
def load(name):
    code = open(f"{folder}/{modules[name]['file']}").read()
    return device.client.compile_and_load(code, xla.DeviceList((device,)), xla.CompileOptions()), modules[name]
def take(i, given):  # an input: given, a weight, or what begins as 0 and stays
    dtype, name = jax.numpy.dtype(i["dtype"]), i["name"]
    if name not in given and name in state:
        return state[name]
    data = given[name] if name in given else weight[i["tensor"]] if "tensor" in i else np.zeros(i["shape"])
    if dtype == jax.numpy.int4:  # two in a byte
        data = np.stack([data << 4 >> 4, data >> 4], -1)
    array = jax.device_put(np.asarray(data).astype(dtype).reshape(i["shape"]), device)
    if name not in given:
        state[name] = array
    return array
def run(program, **given):
    executable, module = program
    out = executable.execute([take(i, given) for i in module["inputs"]])
    for value, o in zip(out, module["outputs"]):
        if "into" in o:  # a cache, in the place of its input
            state[module["inputs"][o["into"]]["name"]] = value
    return {o["role"]: np.asarray(value) for value, o in zip(out, module["outputs"]) if "into" not in o}
if __name__ == "__main__":
    n, prompt = int(sys.argv[2]), [int(x) for x in sys.argv[3:]]
    size = max(int(m[8:]) for m in modules if m.startswith("prefill_"))
    prefill, decode = load(f"prefill_{size}"), load("decode")
    for at in range(0, len(prompt), size):
        part = prompt[at : at + size]
        ids = [int(run(prefill, tokens=part + [0] * (size - len(part)), start=[at], length=[len(part)])["next"][0])]
    while len(ids) < n:
        ids.append(int(run(decode, tokens=ids[-1:], start=[len(prompt) + len(ids) - 1], length=[1])["next"][0]))
    print(*ids)
