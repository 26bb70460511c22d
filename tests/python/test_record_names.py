"""The names of records: `__key__` and `__shard__` as columns, for functions, and in what `plan` and `replay` write."""

from __future__ import annotations

import io
import json
import pathlib
import struct
import tarfile
from typing import Any

import mds
import numpy
import pytest
import spdl_cluster
from conftest import MakeJob, ctl

SAMPLES = 12

#: Keys and shards, by the sample's number.
Names = dict[int, tuple[str, str]]


def write_tar(folder: pathlib.Path) -> Names:
    """Writes WebDataset's shards, with dots and a folder in the names."""
    names = {}
    for shard in range(2):
        with tarfile.open(folder / f"part-{shard}.tar", "w") as tar:
            for number in range(shard * 6, shard * 6 + 6):
                content = str(number).encode()
                member = tarfile.TarInfo(f"a.b/c{number}.n.txt")
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
                names[number] = (f"a.b/c{number}", f"part-{shard}.tar")
    return names


def write_files(folder: pathlib.Path) -> Names:
    """Writes loose pictures, each with its number beside it."""
    names = {}
    for number in range(SAMPLES):
        place = folder / f"day {number % 3}"
        place.mkdir(exist_ok=True)
        (place / f"p{number}.ppm").write_bytes(b"P6\n1 1\n255\n" + bytes([number, 0, 0]))
        (place / f"p{number}.n.txt").write_bytes(str(number).encode())
        names[number] = (f"day {number % 3}/p{number}", "files-000000")
    return names


def write_mds(folder: pathlib.Path, **field: list[bytes]) -> Names:
    """Writes a shard of MosaicML's, with one more field of text if one is given."""
    samples = []
    for number in range(SAMPLES):
        values = [str(number).encode(), *(content[number] for content in field.values())]
        samples.append(struct.pack(f"<{len(values)}I", *map(len, values)) + b"".join(values))
    mds.write_shard(folder, dict.fromkeys(["n", *field], ("str", None)), samples)
    return {number: (f"shard.00000/{number:06}", "shard.00000.mds") for number in range(SAMPLES)}


def masked_crc32c(content: bytes) -> bytes:
    crc = 0xFFFFFFFF
    for byte in content:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def delimited(number: int, content: bytes) -> bytes:
    """Encodes a short field of a protobuf message."""
    return bytes([number << 3 | 2, len(content)]) + content


def write_tfrecord(folder: pathlib.Path) -> Names:
    """Writes TensorFlow's examples."""
    file = b""
    for number in range(SAMPLES):
        value = delimited(1, delimited(1, str(number).encode()))
        example = delimited(1, delimited(1, delimited(1, b"n") + delimited(2, value)))
        length = struct.pack("<Q", len(example))
        file += length + masked_crc32c(length) + example + masked_crc32c(example)
    (folder / "some.tfrecord").write_bytes(file)
    return {number: (f"some.tfrecord/{number:06}", "some.tfrecord") for number in range(SAMPLES)}


def write_parquet(folder: pathlib.Path) -> Names:
    """Writes a table with two row groups."""
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    (folder / "of day").mkdir()
    table = pyarrow.table({"n": [str(number) for number in range(SAMPLES)]})
    parquet.write_table(table, folder / "of day" / "t.parquet", row_group_size=6)
    return {number: (f"of day/t/{number:06}", "of day/t.parquet") for number in range(SAMPLES)}


WRITERS = [write_tar, write_files, write_mds, write_tfrecord, write_parquet]
KEY = {"name": "key", "from": "__key__", "decode": "text"}
SHARD = {"name": "shard", "from": "__shard__", "decode": "bytes"}
NUMBER = {"name": "number", "from": "n|n.txt", "decode": "int"}


def on(folder: pathlib.Path, job: MakeJob, *columns: dict[str, Any], **keys: Any) -> dict[str, Any]:
    """Returns a job with these columns alone."""
    return {**job(dataset=folder, global_batch=SAMPLES, **keys), "column": list(columns)}


def names_of(loader: spdl_cluster.Loader) -> Names:
    return {
        number: (key, shard)
        for batch in loader
        for number, key, shard in zip(batch["number"].tolist(), batch["key"].text(), batch["shard"].text())
    }


@pytest.mark.parametrize("write", WRITERS)
def test_a_records_key_and_shard_are_columns_in_every_format(job: MakeJob, tmp_path: pathlib.Path, write: Any) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    names = write(folder)
    ctl("index", folder)
    with spdl_cluster.local(on(folder, job, NUMBER, KEY, SHARD, bad_samples="fail")) as loader:
        assert names_of(loader) == names
    with spdl_cluster.local(on(folder, job, KEY, bad_samples="fail")) as loader:
        assert sorted(key for batch in loader for key in batch["key"].text()) == sorted(key for key, _ in names.values())


def test_a_field_of_the_records_that_has_the_name_is_the_field(job: MakeJob, tmp_path: pathlib.Path) -> None:
    write_mds(tmp_path, __key__=[f"own {number}".encode() for number in range(SAMPLES)])
    ctl("index", tmp_path)
    with spdl_cluster.local(on(tmp_path, job, NUMBER, KEY, SHARD, bad_samples="fail")) as loader:
        assert names_of(loader) == {number: (f"own {number}", "shard.00000.mds") for number in range(SAMPLES)}


def test_functions_get_the_name_and_plan_and_replay_write_it(job: MakeJob, job_file: Any, tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    names = write_tar(folder)
    ctl("index", folder)
    returns: list[dict[str, Any]] = [{"name": name, "dtype": "i64", "shape": []} for name in ("length", "last")]
    function = {"call": "user_functions:name_facts", "fields": ["__key__", "__shard__"], "returns": returns}
    with spdl_cluster.local(on(folder, job, NUMBER, function=[function], bad_samples="fail")) as loader:
        for batch in loader:
            assert batch["length"].tolist() == [len(names[number][0]) for number in batch["number"].tolist()]
            assert batch["last"].tolist() == [ord("r")] * SAMPLES
    path = job_file(on(folder, job, NUMBER, KEY, SHARD))
    (line,) = ctl("plan", path, "--ids", "--keys").stdout.splitlines()
    planned = [(record["key"], record["shard"]) for record in json.loads(line)["records"]]
    ctl("replay", path, "--out", tmp_path / "replayed")
    (described,) = (tmp_path / "replayed").rglob("batch.json")
    entries = json.loads(described.read_text())["entries"]
    numbers = numpy.load(described.parent / "number.npy").tolist()
    assert planned == [(entry["key"], entry["shard"]) for entry in entries] == [names[number] for number in numbers]


def test_a_view_calls_the_key_by_the_same_name(job: MakeJob, tmp_path: pathlib.Path) -> None:
    write_tar(tmp_path)
    ctl("index", tmp_path)
    made = on(tmp_path, job, KEY, view={"where": "__key__ in ['a.b/c3', 'a.b/c7']"}, epoch_end="exact", epochs=1)
    with spdl_cluster.local(made) as loader:
        assert sorted(key for batch in loader for key in batch["key"].text() if key) == ["a.b/c3", "a.b/c7"]
