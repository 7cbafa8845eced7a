#!/usr/bin/env python3
"""What XLA computes from our StableHLO modules: the results that tests/test_stablehlo.c compares with.

Needs jaxlib, jax, ml_dtypes and numpy, and the program: $CARAVAN, by default build/caravan. For each graph
tests/data/graphs/NAME.txt it runs `caravan opt --emit stablehlo`, compiles the module with XLA's CPU client,
runs it on made-up inputs, and writes tests/data/stablehlo/NAME.json:

    {"devices": 8,
     "outputs": [{"type": "f32[2,3]", "data": ["0000803f...", ...]}, ...]}    hexadecimal, one per device

Inputs are not stored: element k of parameter p on device d is a function of these numbers, see `inputs`, and
the test has the same function. Usage: stablehlo.py [NAME ...], by default all graphs.
"""

import json
import os
import pathlib
import subprocess
import sys

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import ml_dtypes
import numpy as np
from jax._src.lib import xla_client

jax.config.update("jax_enable_x64", True)

HERE = pathlib.Path(__file__).resolve().parent
DATA = HERE.parent / "data"
DTYPES = {
    "f64": np.float64,
    "f32": np.float32,
    "bf16": ml_dtypes.bfloat16,
    "f16": np.float16,
    "i32": np.int32,
    "ui32": np.uint32,
    "i8": np.int8,
    "i4": ml_dtypes.int4,
    "i1": np.bool_,
}


def mix(z):
    """SplitMix64's finishing function of an array of uint64."""
    z = z * np.uint64(0x9E3779B97F4A7C15) + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def inputs(p, d, shape, dtype):
    """Floats are multiples of 1/64 in [-2, 2), which every type holds; integers are small."""
    n = int(np.prod(shape))
    r = mix(np.arange(n, dtype=np.uint64) + np.uint64((p << 40) + (d << 32))) >> np.uint64(56)
    r = r.astype(np.int64)
    if dtype in ("f64", "f32", "bf16", "f16"):
        x = (r - 128) / 64
    elif dtype == "i1":
        x = r % 2
    elif dtype == "i4":
        x = r % 16 - 8
    elif dtype == "ui32":
        x = r % 12
    else:
        x = r % 12 - 3
    return x.reshape(shape).astype(DTYPES[dtype])


def tensor_types(text):
    """ "tensor<2x3xf32>" -> ((2, 3), "f32"), for every tensor type in the text."""
    types = []
    for piece in text.split("tensor<")[1:]:
        *dims, dtype = piece[: piece.index(">")].split("x")
        types.append((tuple(map(int, dims)), dtype))
    return types


def run(module):
    signature = next(line for line in module.splitlines() if "@main" in line)
    arguments, results = (tensor_types(part) for part in signature.split(") -> ("))
    n = int(module.split("mhlo.num_replicas = ")[1].split()[0])
    options = xla_client.CompileOptions()
    options.num_replicas = options.executable_build_options.num_replicas = n
    options.device_assignment = xla_client.DeviceAssignment.create(np.arange(n).reshape(n, 1))
    devices = jax.devices()[:n]
    executable = devices[0].client.compile_and_load(module, xla_client.DeviceList(tuple(devices)), options)
    # To jax the arguments are replicated; in truth each device has its own.
    mesh = jax.sharding.Mesh(np.array(devices), ("device",))
    arrays = [
        jax.make_array_from_single_device_arrays(
            shape,
            jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec()),
            [jax.device_put(inputs(p, d, shape, dtype), device) for d, device in enumerate(devices)],
        )
        for p, (shape, dtype) in enumerate(arguments)
    ]
    out = executable.execute_sharded(arrays)
    shards = out.disassemble_into_single_device_arrays()
    return n, results, [[np.asarray(part) for part in parts] for parts in shards]


def packed(x):
    """The bytes as Caravan keeps them: four-bit integers two to a byte, the even index low."""
    if x.dtype != ml_dtypes.int4:
        return np.ascontiguousarray(x).tobytes()
    nibbles = x.reshape(-1).astype(np.int8).view(np.uint8) & 15
    nibbles = np.append(nibbles, np.zeros(len(nibbles) % 2, np.uint8))
    return (nibbles[0::2] | nibbles[1::2] << 4).tobytes()


def main():
    program = os.environ.get("CARAVAN", str(HERE.parent.parent / "build" / "caravan"))
    names = sys.argv[1:] or sorted(path.stem for path in (DATA / "graphs").glob("*.txt"))
    (DATA / "stablehlo").mkdir(exist_ok=True)
    for name in names:
        path = DATA / "graphs" / (name + ".txt")
        module = subprocess.run(
            [program, "opt", "--emit", "stablehlo", str(path)], check=True, capture_output=True, text=True
        ).stdout
        n, types, outputs = run(module)
        stored = {
            "devices": n,
            "outputs": [
                {
                    "type": "%s[%s]" % (dtype.replace("ui", "u"), ",".join(map(str, shape))),
                    "data": [packed(part).hex() for part in parts],
                }
                for (shape, dtype), parts in zip(types, outputs)
            ],
        }
        with open(DATA / "stablehlo" / (name + ".json"), "w") as file:
            json.dump(stored, file, indent=0)
            file.write("\n")
        print(name, len(types), "outputs on", n, "devices")


if __name__ == "__main__":
    main()
