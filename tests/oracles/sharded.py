#!/usr/bin/env python3
"""What XLA's own partitioner makes of our marked graphs: the results that tests/test_shard_oracle.c reads.

Needs what stablehlo.py needs. For each graph tests/data/sharded/NAME.txt, whose first line says its mesh,
it prints the whole graph with `caravan opt --emit stablehlo`, adds the mesh and the marks in the sdy dialect, and for the outputs the shardings that `caravan opt --passes propagate` finds, so that both
begin and end alike. XLA compiles that for 8 host devices with its partitioner, Shardy, and runs it. Stored in
tests/data/sharded/NAME.json:

    {"mesh": "data=4,model=2",
     "bytes": 12345.0,               that each device sends, by the rules of src/shard/reshard.h
     "collectives": {"all-reduce": 5, ...},
     "outputs": [{"type": "f32[16,8,64]", "data": "0000803f..."}, ...]}      whole, hexadecimal

Our own partitioned graph, with explicit collectives, is run by XLA too, and must give the same to 1e-5.

Inputs are a function of their numbers, see `inputs`. Usage: sharded.py [NAME ...], by default all graphs.
"""

import json
import os
import pathlib
import re
import subprocess
import sys

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import numpy as np
from jax._src.lib import xla_client

import stablehlo

DATA = stablehlo.DATA / "sharded"
SIZES = {"f64": 8, "f32": 4, "bf16": 2, "f16": 2, "s32": 4, "u32": 4, "pred": 1, "s8": 1, "u8": 1}


def inputs(p, shape, dtype):
    """Floats in [-1/4, 1/4), integers in 0 … 7."""
    k = np.arange(int(np.prod(shape)), dtype=np.int64)
    if dtype == "f32":
        x = stablehlo.inputs(p, 0, shape, dtype).reshape(-1) / 8
    else:
        x = k * 7 % 8
    return x.reshape(shape).astype(stablehlo.DTYPES[dtype])


def caravan(*arguments):
    program = os.environ.get("CARAVAN", str(stablehlo.HERE.parent.parent / "build" / "caravan"))
    done = subprocess.run([program, "opt", "--quiet", *arguments], check=True, capture_output=True, text=True)
    return done.stdout


def specs_of(text):
    """The spec of every value of a graph in text: {"x": "1:data,_"}."""
    return dict(re.findall(r"%([\w.]+): \w+\[[\d,]*\]<([^>]*)>", text))


def axes_of(dim):
    """ "data*model.1.2" -> [("data", None), ("model", (1, 2))]."""
    parts = []
    for axis in [] if dim == "_" else dim.split("*"):
        name, *sub = axis.split(".")
        parts.append((name, tuple(map(int, sub)) or None))
    return parts


def sdy(spec, rank, priority=True):
    """A spec as an attribute of Shardy's; None is replicated."""
    level, dims = "", (spec or ",".join("_" * rank)).split(",")
    if ":" in dims[0]:
        level, dims[0] = dims[0].split(":")
    written = []
    for dim in dims[:rank]:
        axes = ", ".join('"%s"%s' % (n, ":(%d)%d" % sub if sub else "") for n, sub in axes_of(dim))
        written.append("{%s}%s" % (axes, "p" + level if priority and level and axes else ""))
    return "sdy.sharding = #sdy.sharding<@mesh, [%s]>" % ", ".join(written)


def add_attribute(piece, attribute):
    """To one argument or result of a signature."""
    if piece.rstrip().endswith("}"):
        return piece.rstrip()[:-1] + ", " + attribute + "}"
    return piece + " {" + attribute + "}"


def annotate(module, mesh, names, spec_in, spec_out):
    lines = module.splitlines()
    at = next(i for i, line in enumerate(lines) if "@main" in line)
    head, results = lines[at].split(") -> (")
    start, arguments = head.split("@main(")
    arguments = re.split(r", (?=%)", arguments)
    results, tail = results.rsplit(")", 1)
    results = re.split(r", (?=tensor<)", results)
    rank = lambda piece: len(stablehlo.tensor_types(piece)[0][0])
    arguments = [add_attribute(a, sdy(spec_in.get(n), rank(a))) for a, n in zip(arguments, names)]
    results = [add_attribute(r, sdy(s, rank(r), False)) for r, s in zip(results, spec_out)]
    lines[at] = "%s@main(%s) -> (%s)%s" % (start, ", ".join(arguments), ", ".join(results), tail)
    axes = ", ".join('"%s"=%s' % tuple(axis.split("=")) for axis in mesh.split(","))
    lines.insert(at, "  sdy.mesh @mesh = <[%s]>" % axes)
    return "\n".join(lines)


def constrain(module, marks, parameters):
    """Marks in the middle of a graph: each such value is used by way of a constraint."""
    for name, spec in marks.items():
        found = re.search(r"^( *)(%%%s) = .*-> (tensor<[^>]*>)$" % re.escape(name), module, re.M)
        if name in parameters or not found:
            continue
        indent, value, kind = found.groups()
        before, after = module[: found.end()], module[found.end() :]
        after = re.sub(re.escape(value) + r"(?![\w.])", "%marked_" + name, after)
        rank = len(stablehlo.tensor_types(kind)[0][0])
        dims = sdy(spec, rank, False).removeprefix("sdy.sharding = #sdy.sharding")
        line = "\n%s%%marked_%s = sdy.sharding_constraint %s %s : %s" % (indent, name, value, dims, kind)
        module = before + line + after
    return module


def devices_of(mesh):
    return int(np.prod([int(axis.split("=")[1]) for axis in mesh.split(",")]))


def named_sharding(mesh, spec, rank):
    axes = [axis.split("=") for axis in mesh.split(",")]
    n = devices_of(mesh)
    grid = np.array(jax.devices()[:n]).reshape([int(size) for _, size in axes])
    dims = (spec or "").split(":")[-1].split(",") if spec else []
    assert "." not in (spec or ""), "parts of axes are not put into jax's names"
    partition = [tuple(name for name, _ in axes_of(dim)) or None for dim in dims[:rank]]
    return jax.sharding.NamedSharding(
        jax.sharding.Mesh(grid, [name for name, _ in axes]), jax.sharding.PartitionSpec(*partition)
    )


def group_size(line):
    """{{0,1},{2,3}}, [4,2]<=[8], or mesh['a'=4,'b'=2] {'a'}, perhaps with parts of axes, 'a':(1)2."""
    found = re.search(r"replica_groups=\{\{([\d,]*)\}", line)
    if found:
        return len(found.group(1).split(","))
    found = re.search(r"replica_groups=\[(\d+),(\d+)\]", line)
    if found:
        return int(found.group(2))
    found = re.search(r"replica_groups=mesh\[([^\]]*)\][^{]*\{([^}]*)\}", line)
    if not found:
        assert "collective-permute" in line, line
        return 1
    sizes = dict(re.findall(r"'(\w+)'=(\d+)", found.group(1)))
    n = 1
    for name, part in re.findall(r"'(\w+)'(?::\(\d+\)(\d+))?", found.group(2)):
        n *= int(part or sizes[name])
    return n


def moved(hlo):
    """Bytes that each device sends, and how many collectives there are of each kind."""
    total, count = 0.0, {}
    kinds = "all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute"
    pattern = r"^ *(?:ROOT )?%[\w.-]+ = (.*?) (" + kinds + r")(?:-start)?\("
    for line in hlo.splitlines():
        found = re.search(pattern, line)
        if not found:
            continue
        kind = found.group(2)
        size = sum(
            SIZES[dtype] * int(np.prod([int(d) for d in dims.split(",") if d]))
            for dtype, dims in re.findall(r"(\w+)\[([\d,]*)\]", found.group(1))
            if dtype in SIZES
        )
        n = group_size(line)
        factor = {
            "all-reduce": 2 * (n - 1) / n,
            "all-gather": (n - 1) / n,
            "reduce-scatter": n - 1,
            "all-to-all": (n - 1) / n,
            "collective-permute": 1,
        }[kind]
        total += size * factor
        count[kind] = count.get(kind, 0) + 1
    return total, count


def run(module, mesh, names, spec_in):
    n = devices_of(mesh)
    signature = next(line for line in module.splitlines() if "@main" in line)
    arguments, results = (stablehlo.tensor_types(part) for part in signature.split(") -> ("))
    options = xla_client.CompileOptions()
    build = options.executable_build_options
    options.num_replicas = build.num_replicas = 1
    options.num_partitions = build.num_partitions = n
    build.use_spmd_partitioning = True
    build.use_shardy_partitioner = True
    options.device_assignment = xla_client.DeviceAssignment.create(np.arange(n).reshape(1, n))
    devices = jax.devices()[:n]
    executable = devices[0].client.compile_and_load(module, xla_client.DeviceList(tuple(devices)), options)
    arrays = [
        jax.device_put(inputs(p, shape, dtype), named_sharding(mesh, spec_in.get(name), len(shape)))
        for p, ((shape, dtype), name) in enumerate(zip(arguments, names))
    ]
    shards = executable.execute_sharded(arrays).disassemble_into_single_device_arrays()
    return executable.hlo_modules()[0].to_string(), results, shards


def run_local(path, mesh, names, global_types, spec):
    """The graph that our partitioner makes for a device, with its collectives, run by XLA on all devices."""
    n = devices_of(mesh)
    module = caravan(
        "--mesh", mesh, "--passes", "partition", "--emit", "stablehlo", "--devices", str(n), str(path)
    )
    options = xla_client.CompileOptions()
    options.num_replicas = options.executable_build_options.num_replicas = n
    options.device_assignment = xla_client.DeviceAssignment.create(np.arange(n).reshape(n, 1))
    devices = jax.devices()[:n]
    executable = devices[0].client.compile_and_load(module, xla_client.DeviceList(tuple(devices)), options)
    arrays = []
    for p, ((shape, dtype), name) in enumerate(zip(global_types, names)):
        value = inputs(p, shape, dtype)
        sharding = named_sharding(mesh, spec.get(name), len(shape))
        index = sharding.addressable_devices_indices_map(tuple(shape))
        parts = [jax.device_put(value[index[device]], device) for device in devices]
        # To jax it is replicated; in truth each device has its part.
        alike = jax.sharding.NamedSharding(
            jax.sharding.Mesh(np.array(devices), ("device",)), jax.sharding.PartitionSpec()
        )
        arrays.append(jax.make_array_from_single_device_arrays(parts[0].shape, alike, parts))
    return executable.execute_sharded(arrays).disassemble_into_single_device_arrays()


def whole(shape, sharding, parts):
    out = np.zeros(shape, parts[0].dtype)
    index = sharding.addressable_devices_indices_map(tuple(shape))
    for device, part in zip(jax.devices(), parts):
        if device in index:
            out[index[device]] = part
    return out


def main():
    names = sys.argv[1:] or sorted(path.stem for path in DATA.glob("*.txt"))
    for name in names:
        path = DATA / (name + ".txt")
        text = path.read_text()
        mesh = text.splitlines()[0].removeprefix("// mesh ")
        propagated = caravan("--mesh", mesh, "--passes", "propagate", str(path))
        spec = specs_of(propagated)
        marks = specs_of(text)
        parameters = re.findall(r"%([\w.]+): [^\n]* = parameter ", propagated)
        returned = re.findall(r"%([\w.]+)( into %([\w.]+))?", propagated.split("\n  return ")[1])
        spec_out = [spec.get(into or value) for value, _, into in returned]
        spec_in = {p: marks.get(p) or spec.get(p) for p in parameters}
        module = caravan("--emit", "stablehlo", str(path))
        n = devices_of(mesh)
        module = module.replace("mhlo.num_partitions = 1 ", "mhlo.num_partitions = %d " % n)
        module = annotate(module, mesh, parameters, spec_in, spec_out)
        module = constrain(module, marks, parameters)
        hlo, types, shards = run(module, mesh, parameters, spec_in)
        total, count = moved(hlo)
        signature = next(line for line in module.splitlines() if "@main" in line)
        given = stablehlo.tensor_types(signature.split(") -> (")[0])
        ours = run_local(path, mesh, parameters, given, spec)
        outputs, worst = [], 0.0
        for (shape, dtype), parts, own, s in zip(types, shards, ours, spec_out):
            sharding = named_sharding(mesh, s, len(shape))
            value = whole(shape, sharding, [np.asarray(part) for part in parts])
            other = whole(shape, sharding, [np.asarray(part) for part in own])
            worst = max(worst, float(np.max(np.abs(value - other)) / max(np.max(np.abs(value)), 1e-30)))
            outputs.append(
                {"type": "%s[%s]" % (dtype, ",".join(map(str, shape))), "data": stablehlo.packed(value).hex()}
            )
        assert worst <= 1e-5, "%s: our partitioned graph gives results that differ by %g" % (name, worst)
        stored = {"mesh": mesh, "bytes": total, "collectives": count, "outputs": outputs}
        with open(DATA / (name + ".json"), "w") as file:
            json.dump(stored, file, indent=0)
            file.write("\n")
        print(name, len(outputs), "outputs,", total, "bytes,", count, "; ours by XLA differs by %.1e" % worst)


if __name__ == "__main__":
    main()
