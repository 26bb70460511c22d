"""Writes ArrayRecord files with Google's package `array_record`, or compares what `spdl-ctl unpack` made of them with what that
package and the parser of Protocol Buffers give.

usage: array_record.py examples PICTURES OUT OPTIONS | array_record.py whole SAMPLES OUT OPTIONS
       array_record.py compare DATASET UNPACKED | array_record.py golden TFRECORD OUT

OPTIONS are those of `ArrayRecordWriter`. `compare` prints one JSON object: the number of samples and of values that are the same.
`golden` wrote the files in `shard/tests/golden`: `TFRECORD` is `tf.tfrecord` there.
"""

import importlib
import json
import pathlib
import struct
import sys
from collections.abc import Iterable, Iterator

# This file has the package's name.
sys.path.pop(0)

import numpy  # noqa: E402

array_record = importlib.import_module("array_record.python.array_record_module")

FILES = 3
# Numbers of the records of `whole` that have several MB.
LARGE = (4, 11)


def write_file(path: pathlib.Path, options: str, records: Iterable[bytes]) -> None:
    writer = array_record.ArrayRecordWriter(str(path), options)
    for record in records:
        writer.write(record)
    writer.close()


def read_file(path: pathlib.Path) -> list[bytes]:
    reader = array_record.ArrayRecordReader(str(path))
    records = reader.read_all() if reader.num_records() else []
    reader.close()
    return records


def write(out: str, options: str, records: list[bytes]) -> None:
    folder = pathlib.Path(out)
    folder.mkdir()
    for n in range(FILES):
        write_file(folder / f"train.array_record-{n:05}-of-{FILES:05}", options, records[n::FILES])
    print("{}")


def examples(pictures: str, out: str, options: str) -> None:
    writer = importlib.import_module("tfrecord.writer")

    def example(number: int, path: pathlib.Path) -> bytes:
        random = numpy.random.default_rng(number)
        return writer.TFRecordWriter.serialize_tf_example(
            {
                "image/encoded": (path.read_bytes(), "byte"),
                "image/filename": (f"Nümber {number}".encode(), "byte"),
                "image/class/label": (number * 3 - 5, "int"),
                "extremes": ([-(2**63), 2**63 - 1, 0, -1], "int"),
                "boxes": ([float(side) for side in random.random(4 * (number % 3))], "float"),
                "embedding": ([float(side) for side in random.standard_normal(6)], "float"),
                "raw": (random.bytes(number * 37 % 5000), "byte"),
                "frames": ([path.read_bytes()] * (number % 4), "byte"),
            }
        )

    paths = sorted(pathlib.Path(pictures).rglob("*.jpg"))
    write(out, options, [example(number, path) for number, path in enumerate(paths)])


def whole(samples: str, out: str, options: str) -> None:
    def record(number: int) -> bytes:
        random = numpy.random.default_rng(number)
        half = random.bytes(3_000_000 if number in LARGE else number * 97 % 900)
        return half + bytes(len(half))

    write(out, options, [record(number) for number in range(int(samples))])


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
    for path in sorted(pathlib.Path(dataset).glob("*.array_record-?????-of-?????")):
        for number, record in enumerate(read_file(path)):
            samples += 1
            stem = pathlib.Path(unpacked) / path.name / f"{number:06}"
            ours = stem.with_suffix(".record")
            if ours.exists():
                if ours.read_bytes() != record:
                    sys.exit(f"{ours} is not the record")
                values += 1
                continue
            example_pb2 = importlib.import_module("tfrecord.example_pb2")
            for name, feature in example_pb2.Example.FromString(record).features.feature.items():
                ours = stem.with_suffix(f".{name.replace('/', '.')}")
                if not same(ours, feature):
                    sys.exit(f"{ours} is not {feature}")
                values += 1
    print(json.dumps({"samples": samples, "values": values}))


def records_of(tfrecord: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(tfrecord):
        (length,) = struct.unpack_from("<Q", tfrecord, at)
        yield tfrecord[at + 12 : at + 12 + length]
        at += length + 16


def golden(tfrecord: str, out: str) -> None:
    def record(number: int, length: int) -> bytes:
        return bytes((number * 31 + at * 7) & 255 for at in range(length))

    small = [record(number, 0 if number == 3 else number * 37 % 500) for number in range(24)]
    # Incompressible but for its period, and longer than two of Riegeli's blocks.
    long = [*small[:5], record(5, 150_000), *small[6:]]
    files = {
        "single": ("group_size:1", small),
        "plain": ("group_size:7,uncompressed", long),
        "zstd": ("group_size:7", long),
        "brotli": ("group_size:7,brotli", small),
        "snappy": ("group_size:7,snappy", small),
        "padded": ("group_size:7,pad_to_block_boundary:true", small),
        "transposed": ("group_size:7,transpose:true", small),
        "examples": ("group_size:3", list(records_of(pathlib.Path(tfrecord).read_bytes()))),
        "empty": ("", []),
    }
    for name, (options, records) in files.items():
        write_file(pathlib.Path(out) / f"{name}.array_record", options, records)
    print("{}")


if __name__ == "__main__":
    commands = {"examples": examples, "whole": whole, "compare": compare, "golden": golden}
    if len(sys.argv) < 2 or sys.argv[1] not in commands:
        sys.exit(__doc__)
    commands[sys.argv[1]](*sys.argv[2:])
