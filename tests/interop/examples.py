"""Writes files of `tf.train.Example` with the packages `tfrecord` and `array_record`, or compares what `spdl-ctl unpack` made of
them with what these packages and the parser of Protocol Buffers give.

usage: examples.py tfrecord PICTURES OUT COMPRESSION | examples.py array_record PICTURES OUT OPTIONS
       examples.py whole SAMPLES OUT OPTIONS | examples.py compare DATASET UNPACKED | examples.py golden TFRECORD OUT

COMPRESSION is empty, `gzip` or `zlib`; OPTIONS are those of `ArrayRecordWriter`. `whole` writes ArrayRecord files of records
that are no examples. `compare` prints one JSON object: the number of samples and of values that are the same. `golden` wrote the
ArrayRecord files in `crates/dataset/tests/golden`: `TFRECORD` is `tf.tfrecord` there.
"""

import gzip
import json
import pathlib
import struct
import sys
import zlib
from collections.abc import Iterable, Iterator

import numpy
from array_record.python import array_record_module
from tfrecord import example_pb2
from tfrecord.writer import TFRecordWriter

FILES = 3
# Numbers of the records of `whole` that have several MB.
LARGE = (4, 11)


def example(number: int, path: pathlib.Path) -> dict[str, tuple]:
    random = numpy.random.default_rng(number)
    return {
        "image/encoded": (path.read_bytes(), "byte"),
        "image/filename": (f"Nümber {number}".encode(), "byte"),
        "image/class/label": (number * 3 - 5, "int"),
        "extremes": ([-(2**63), 2**63 - 1, 0, -1], "int"),
        "boxes": ([float(side) for side in random.random(4 * (number % 3))], "float"),
        "embedding": ([float(side) for side in random.standard_normal(6)], "float"),
        "raw": (random.bytes(number * 37 % 5000), "byte"),
        "frames": ([path.read_bytes()] * (number % 4), "byte"),
    }


def examples(pictures: str) -> list[dict[str, tuple]]:
    paths = sorted(pathlib.Path(pictures).rglob("*.jpg"))
    return [example(number, path) for number, path in enumerate(paths)]


def file_paths(out: str, format: str) -> list[pathlib.Path]:
    folder = pathlib.Path(out)
    folder.mkdir()
    return [folder / f"train.{format}-{n:05}-of-{FILES:05}" for n in range(FILES)]


def tfrecord(pictures: str, out: str, compression: str) -> None:
    compress = {"": bytes, "gzip": gzip.compress, "zlib": zlib.compress}[compression]
    records = examples(pictures)
    for number in range(0, len(records), 4):
        records[number]["sometimes"] = ([number], "int")
    for n, path in enumerate(file_paths(out, "tfrecord")):
        writer = TFRecordWriter(str(path))
        for record in records[n::FILES]:
            writer.write(record)
        writer.close()
        path.write_bytes(compress(path.read_bytes()))
    print("{}")


def write_array_record(path: pathlib.Path, options: str, records: Iterable[bytes]) -> None:
    writer = array_record_module.ArrayRecordWriter(str(path), options)
    for record in records:
        writer.write(record)
    writer.close()


def write_array_records(out: str, options: str, records: list[bytes]) -> None:
    for n, path in enumerate(file_paths(out, "array_record")):
        write_array_record(path, options, records[n::FILES])
    print("{}")


def array_record(pictures: str, out: str, options: str) -> None:
    write_array_records(out, options, [TFRecordWriter.serialize_tf_example(each) for each in examples(pictures)])


def whole(samples: str, out: str, options: str) -> None:
    def record(number: int) -> bytes:
        random = numpy.random.default_rng(number)
        half = random.bytes(3_000_000 if number in LARGE else number * 97 % 900)
        return half + bytes(len(half))

    write_array_records(out, options, [record(number) for number in range(int(samples))])


def records_of_tfrecord(file: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(file):
        (length,) = struct.unpack_from("<Q", file, at)
        yield file[at + 12 : at + 12 + length]
        at += length + 16


def records_of(path: pathlib.Path) -> Iterable[bytes]:
    if ".array_record" in path.name:
        reader = array_record_module.ArrayRecordReader(str(path))
        records = reader.read_all() if reader.num_records() else []
        reader.close()
        return records
    file = path.read_bytes()
    if file.startswith(b"\x1f\x8b\x08"):
        file = gzip.decompress(file)
    elif file.startswith(b"\x78\x9c"):
        file = zlib.decompress(file)
    return records_of_tfrecord(file)


def same(path: pathlib.Path, feature: example_pb2.Feature) -> bool:
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
    for path in sorted(pathlib.Path(dataset).glob("train.*-?????-of-?????")):
        for number, record in enumerate(records_of(path)):
            samples += 1
            stem = pathlib.Path(unpacked) / path.name / f"{number:06}"
            ours = stem.with_suffix(".record")
            if ours.exists():
                if ours.read_bytes() != record:
                    sys.exit(f"{ours} is not the record")
                values += 1
                continue
            for name, feature in example_pb2.Example.FromString(record).features.feature.items():
                ours = stem.with_suffix(f".{name.replace('/', '.')}")
                if not same(ours, feature):
                    sys.exit(f"{ours} is not {feature}")
                values += 1
    print(json.dumps({"samples": samples, "values": values}))


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
        "examples": ("group_size:3", list(records_of_tfrecord(pathlib.Path(tfrecord).read_bytes()))),
        "empty": ("", []),
    }
    for name, (options, records) in files.items():
        write_array_record(pathlib.Path(out) / f"{name}.array_record", options, records)
    print("{}")


if __name__ == "__main__":
    commands = {command.__name__: command for command in (tfrecord, array_record, whole, compare, golden)}
    if len(sys.argv) < 2 or sys.argv[1] not in commands:
        sys.exit(__doc__)
    commands[sys.argv[1]](*sys.argv[2:])
