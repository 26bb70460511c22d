"""Writes TFRecord files with the package `tfrecord`, or compares what `spdl-ctl unpack` made of them with what the parser of
Protocol Buffers gives.

usage: tfrecord.py write PICTURES OUT COMPRESSION | tfrecord.py compare DATASET UNPACKED

COMPRESSION is empty, `gzip` or `zlib`. `compare` prints one JSON object: the number of samples and of values that are the same.
"""

import gzip
import importlib
import json
import pathlib
import struct
import sys
import zlib
from collections.abc import Iterator

# This file has the package's name.
sys.path.pop(0)

import numpy  # noqa: E402

writer = importlib.import_module("tfrecord.writer")
example_pb2 = importlib.import_module("tfrecord.example_pb2")

FILES = 3


def write(pictures: str, out: str, compression: str) -> None:
    folder = pathlib.Path(out)
    folder.mkdir()
    writers = [writer.TFRecordWriter(str(folder / f"train.tfrecord-{n:05}-of-{FILES:05}")) for n in range(FILES)]
    for number, path in enumerate(sorted(pathlib.Path(pictures).rglob("*.jpg"))):
        random = numpy.random.default_rng(number)
        example = {
            "image/encoded": (path.read_bytes(), "byte"),
            "image/filename": (f"Nümber {number}".encode(), "byte"),
            "image/class/label": (number * 3 - 5, "int"),
            "extremes": ([-(2**63), 2**63 - 1, 0, -1], "int"),
            "boxes": ([float(side) for side in random.random(4 * (number % 3))], "float"),
            "embedding": ([float(side) for side in random.standard_normal(6)], "float"),
            "raw": (random.bytes(number * 37 % 5000), "byte"),
            "frames": ([path.read_bytes()] * (number % 4), "byte"),
        }
        if number % 4 == 0:
            example["sometimes"] = ([number], "int")
        writers[number % FILES].write(example)
    for each in writers:
        each.close()
    compress = {"": None, "gzip": gzip.compress, "zlib": zlib.compress}[compression]
    for path in folder.iterdir():
        if compress:
            path.write_bytes(compress(path.read_bytes()))
    print("{}")


def records(file: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(file):
        (length,) = struct.unpack_from("<Q", file, at)
        yield file[at + 12 : at + 12 + length]
        at += length + 16


def plain(file: bytes) -> bytes:
    if file.startswith(b"\x1f\x8b\x08"):
        return gzip.decompress(file)
    return zlib.decompress(file) if file.startswith(b"\x78\x9c") else file


def same(path: pathlib.Path, feature: "example_pb2.Feature") -> bool:
    kind = feature.WhichOneof("kind")
    if kind == "bytes_list":
        strings = list(feature.bytes_list.value)
        paths = [path] if len(strings) == 1 else [path.with_name(f"{path.name}.{n}") for n in range(len(strings))]
        found = len(list(path.parent.glob(f"{path.name}*")))
        return found == len(strings) and [path.read_bytes() for path in paths] == strings
    values = feature.int64_list.value if kind == "int64_list" else feature.float_list.value
    theirs = numpy.array(values, "int64" if kind == "int64_list" else "float32")
    array = numpy.load(path, allow_pickle=False)
    return (array.dtype, array.shape) == (theirs.dtype, theirs.shape) and array.tobytes() == theirs.tobytes()


def compare(dataset: str, unpacked: str) -> None:
    samples, values = 0, 0
    for path in sorted(pathlib.Path(dataset).glob("*.tfrecord-?????-of-?????")):
        for number, record in enumerate(records(plain(path.read_bytes()))):
            example = example_pb2.Example.FromString(record)
            for name, feature in example.features.feature.items():
                ours = pathlib.Path(unpacked) / f"{path.name}/{number:06}.{name.replace('/', '.')}"
                if not same(ours, feature):
                    sys.exit(f"{ours} is not {feature}")
                values += 1
            samples += 1
    print(json.dumps({"samples": samples, "values": values}))


if __name__ == "__main__":
    commands = {"write": write, "compare": compare}
    if len(sys.argv) < 2 or sys.argv[1] not in commands:
        sys.exit(__doc__)
    commands[sys.argv[1]](*sys.argv[2:])
