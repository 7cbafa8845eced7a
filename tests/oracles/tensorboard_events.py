"""Event files as TensorBoard's own code makes them: tests/data/train/events.bin, with every wall_time 0.

    python3 -m venv venv && venv/bin/pip install tensorboard
    venv/bin/python tests/oracles/tensorboard_events.py            writes the file
    venv/bin/python tests/oracles/tensorboard_events.py RUN        prints what TensorBoard reads in a run
"""
import pathlib
import sys

from tensorboard.backend.event_processing import event_accumulator, event_file_loader
from tensorboard.compat.proto import event_pb2, summary_pb2, tensor_pb2, tensor_shape_pb2, types_pb2
from tensorboard.summary.writer.record_writer import RecordWriter


def scalars(step, **numbers):
    event = event_pb2.Event(wall_time=0, step=step)
    for tag, number in numbers.items():
        event.summary.value.add(tag=tag.replace("__", "/"), simple_value=number)
    return event


def text(step, tag, lines):
    tensor = tensor_pb2.TensorProto(
        dtype=types_pb2.DT_STRING,
        tensor_shape=tensor_shape_pb2.TensorShapeProto(
            dim=[tensor_shape_pb2.TensorShapeProto.Dim(size=1)]),
        string_val=["".join("    " + line for line in lines.splitlines(True)).encode()])
    metadata = summary_pb2.SummaryMetadata(
        plugin_data=summary_pb2.SummaryMetadata.PluginData(plugin_name="text"))
    value = summary_pb2.Summary.Value(tag=tag, tensor=tensor, metadata=metadata)
    return event_pb2.Event(wall_time=0, step=step, summary=summary_pb2.Summary(value=[value]))


def events():
    yield event_pb2.Event(wall_time=0, file_version="brain.Event:2")
    yield event_pb2.Event(wall_time=0, step=301, session_log=event_pb2.SessionLog(
        status=event_pb2.SessionLog.START))
    yield scalars(301, train__loss=2.5, train__lr=0.0003, train__grad_norm=1.25,
                  speed__tokens_per_second=9120.5, speed__mfu=0.41, speed__seconds=0.898)
    yield scalars(100000, train__loss=float("nan"), train__lr=0, train__grad_norm=float("inf"),
                  speed__tokens_per_second=1e6, speed__mfu=1, speed__seconds=0.001,
                  validation__loss=1.5)
    yield text(100000, "sample", "Once upon a time\nthere was a cárávan.")


def write():
    path = pathlib.Path(__file__).parent.parent / "data" / "train" / "events.bin"
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "wb") as file:
        writer = RecordWriter(file)
        for event in events():
            # Explicit zeros: a proto3 message leaves them out, ours are written.
            writer.write(b"\x09" + bytes(8) +
                         (b"" if event.step else b"\x10\x00") + event.SerializeToString())
    print(path, path.stat().st_size)


def show(run):
    accumulator = event_accumulator.EventAccumulator(run, size_guidance={"scalars": 0, "tensors": 0})
    accumulator.Reload()
    for tag in accumulator.Tags()["scalars"]:
        points = accumulator.Scalars(tag)
        steps = [point.step for point in points]
        print(f"{tag}: {len(points)} points, steps {steps[0]}..{steps[-1]}, "
              f"{'ascending' if steps == sorted(set(steps)) else 'NOT ASCENDING'}, "
              f"last {points[-1].value}")
    for tag in accumulator.Tags()["tensors"]:
        for point in accumulator.Tensors(tag):
            print(f"{tag} at {point.step}: {point.tensor_proto.string_val[0].decode()!r}")


if len(sys.argv) > 1:
    show(sys.argv[1])
else:
    write()
