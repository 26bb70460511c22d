"""Columns of arrays: `.npy` and `.npz` files and raw elements, from a tar or a folder into a batch."""

from __future__ import annotations

import io
import pathlib
import tarfile
from typing import Any

import numpy
import pytest
import spdl_cluster
from conftest import MakeJob, ctl
from numpy.typing import NDArray

RECORDS = 48
SHAPE = [3, 5]
#: The types of columns, and NumPy's names for them.
TYPES = {"u8": "u1", "u16": "u2", "u32": "u4", "u64": "u8", "i8": "i1", "i16": "i2", "i32": "i4", "i64": "i8"}
TYPES |= {"f16": "f2", "f32": "f4", "f64": "f8", "bool": "?"}


def array(record: int, dtype: str) -> NDArray[Any]:
    """Returns an array of the record: numbers from the whole range of its type."""
    numbers = numpy.random.Generator(numpy.random.PCG64([record, len(dtype)])).integers(-(1 << 63), (1 << 63) - 1, SHAPE)
    if dtype.startswith("f"):
        return (numbers / (1 << 48)).astype(TYPES[dtype])
    return numbers > 0 if dtype == "bool" else numbers.astype(TYPES[dtype])


def saved(values: NDArray[Any]) -> bytes:
    file = io.BytesIO()
    numpy.save(file, values)
    return file.getvalue()


def fields(record: int) -> dict[str, bytes]:
    """Returns the fields of a record: each type as `.npy`, some more of them in other forms, and the record's number."""
    files = {f"{dtype}.npy": saved(array(record, dtype)) for dtype in TYPES}
    files["turned.npy"] = saved(numpy.asfortranarray(array(record, "i32").astype(">i4")))
    files["raw"] = array(record, "u16").astype("<u2").tobytes()
    archive = io.BytesIO()
    numpy.savez_compressed(archive, left=array(record, "f32"), right=array(record, "bool"))
    files["npz"] = archive.getvalue()
    return {**files, "number": str(record).encode()}


def column(name: str, source: str, dtype: str, **keys: Any) -> dict[str, Any]:
    return {"name": name, "from": source, "decode": "tensor", "dtype": dtype, "shape": SHAPE, **keys}


COLUMNS = [
    *(column(dtype, f"{dtype}.npy", dtype) for dtype in TYPES),
    column("turned", "turned.npy", "i32"),
    column("raw", "raw", "u16", encoding="raw"),
    column("left", "npz", "f32", array="left"),
    column("right", "npz", "bool", array="right"),
]
#: The type whose array a column holds.
HELD = {**{dtype: dtype for dtype in TYPES}, "turned": "i32", "raw": "u16", "left": "f32", "right": "bool"}


@pytest.fixture(scope="module", params=["tar", "folder"])
def arrays(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Writes the records into a tar, or as loose files, and indexes them."""
    folder = tmp_path_factory.mktemp(f"arrays-{request.param}")
    files = {f"{record:04}.{name}": content for record in range(RECORDS) for name, content in fields(record).items()}
    if request.param == "tar":
        with tarfile.open(folder / "0000.tar", "w") as tar:
            for name, content in files.items():
                member = tarfile.TarInfo(name)
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
        ctl("index", folder, "--json")
    else:
        for name, content in files.items():
            (folder / name).write_bytes(content)
        ctl("index", folder, "--format", "files", "--json")
    return folder


@pytest.fixture
def array_job(arrays: pathlib.Path, job: MakeJob) -> MakeJob:
    """Returns a function that makes a job with these columns and the record's number."""
    number = {"name": "number", "from": "number", "decode": "int"}
    return lambda *columns, **keys: {**job(dataset=arrays, **keys), "column": [number, *columns]}


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_arrays_that_numpy_saved_arrive_with_their_types_shapes_and_values(array_job: MakeJob, kind: str) -> None:
    if kind == "torch":
        pytest.importorskip("torch")
    seen = set()
    with spdl_cluster.local(array_job(*COLUMNS), tensors=kind) as loader:  # type: ignore[arg-type]
        for batch in loader:
            seen |= set(batch["number"].tolist())
            for name, dtype in HELD.items():
                tensor = batch[name]
                expected = numpy.stack([array(record, dtype) for record in batch["number"].tolist()])
                assert str(tensor.dtype).removeprefix("torch.") == str(expected.dtype)
                assert tuple(tensor.shape) == (24, *SHAPE)
                assert numpy.asarray(tensor).tobytes() == expected.tobytes(), name
    assert seen == set(range(RECORDS))


def test_functions_get_and_return_arrays_of_every_type(array_job: MakeJob) -> None:
    columns = [{**column, "transform": "user_functions:turned_over"} for column in COLUMNS]
    with spdl_cluster.local(array_job(*columns), tensors="numpy") as loader:
        batch = next(iter(loader))
        for name, dtype in HELD.items():
            for values, record in zip(batch[name], batch["number"].tolist()):
                assert numpy.array_equal(values, array(record, dtype)[::-1]), name


def test_replay_writes_arrays_that_numpy_loads(array_job: MakeJob, job_file: Any, tmp_path: pathlib.Path) -> None:
    made = array_job(*COLUMNS)
    ctl("replay", job_file(made), "--out", tmp_path / "replayed")
    (folder,) = (path.parent for path in (tmp_path / "replayed").rglob("batch.json"))
    records = numpy.load(folder / "number.npy").tolist()
    for name, dtype in HELD.items():
        expected = numpy.stack([array(record, dtype) for record in records])
        written = numpy.load(folder / f"{name}.npy")
        assert (written.dtype, written.tobytes()) == (expected.dtype, expected.tobytes()), name


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (column("c", "f64.npy", "f32"), r"field `f64.npy` does not decode: it holds f64 \[3, 5\], and the column wants f32 \[3, 5\]"),
        (column("c", "i8.npy", "i8", shape=[15]), r"it holds i8 \[3, 5\], and the column wants i8 \[15\]"),
        (column("c", "raw", "f64", encoding="raw"), r"it is 30 bytes, and the column wants 120: f64 \[3, 5\]"),
        (column("c", "npz", "f32"), "it has 2 arrays: `left`, `right`; name one with `array`"),
    ],
    ids=["type", "shape", "length", "name"],
)
def test_another_array_than_the_job_gives_is_a_bad_sample_that_names_both(array_job: MakeJob, wrong: dict[str, Any], told: str) -> None:
    with spdl_cluster.local(array_job(wrong, bad_samples="fail")) as loader:
        with pytest.raises(spdl_cluster.DataError, match=told):
            next(iter(loader))
