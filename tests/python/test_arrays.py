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


WEATHER = ["sun", "rain", "snow"]


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


def rows(record: int) -> NDArray[Any]:
    """Returns an array whose number of rows is the record's own; some have none."""
    return numpy.arange(record, record + 4 * (record % 7), dtype="f4").reshape(-1, 2, 2)


def tokens(record: int) -> NDArray[Any]:
    return numpy.arange(record % 5, dtype="<u2") + record


def caption(record: int) -> str:
    return "é\N{SNOWMAN}a" * (record % 4)


def fields(record: int) -> dict[str, bytes]:
    """Returns the fields of a record: each type as `.npy`, some more of them in other forms, and the record's number."""
    files = {f"{dtype}.npy": saved(array(record, dtype)) for dtype in TYPES}
    files["turned.npy"] = saved(numpy.asfortranarray(array(record, "i32").astype(">i4")))
    files["raw"] = array(record, "u16").astype("<u2").tobytes()
    archive = io.BytesIO()
    numpy.savez_compressed(archive, left=array(record, "f32"), right=array(record, "bool"))
    files["npz"] = archive.getvalue()
    files["rows.npy"], files["tokens"] = saved(rows(record)), tokens(record).tobytes()
    files["caption"], files["weather"] = caption(record).encode(), WEATHER[record % 3].encode()
    return {**files, "number": str(record).encode(), "score": f"{record / 7}\n".encode()}


def column(name: str, source: str, dtype: str, **keys: Any) -> dict[str, Any]:
    return {"name": name, "from": source, "decode": "tensor", "dtype": dtype, "shape": SHAPE, **keys}


COLUMNS = [
    *(column(dtype, f"{dtype}.npy", dtype) for dtype in TYPES),
    column("turned", "turned.npy", "i32"),
    column("raw", "raw", "u16", encoding="raw"),
    column("left", "npz", "f32", array="left"),
    column("right", "npz", "bool", array="right"),
]
RAGGED = [
    column("rows", "rows.npy", "f32", shape=[2, 2], max_rows=6),
    column("tokens", "tokens", "u16", shape=[], max_rows=4, encoding="raw"),
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


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_arrays_that_differ_in_their_number_of_rows_are_ragged_columns(array_job: MakeJob, kind: str) -> None:
    torch = pytest.importorskip("torch") if kind == "torch" else None
    with spdl_cluster.local(array_job(*RAGGED), tensors=kind) as loader:  # type: ignore[arg-type]
        for batch in loader:
            records = batch["number"].tolist()
            for name, made in (("rows", rows), ("tokens", tokens)):
                ragged, expected = batch[name], [made(record) for record in records]
                assert ragged.lengths.tolist() == [len(array) for array in expected]
                assert tuple(ragged.values.shape) == (sum(map(len, expected)), *expected[0].shape[1:])
                for values, array in zip(ragged, expected):
                    assert str(values.dtype).removeprefix("torch.") == str(array.dtype)
                    assert numpy.array_equal(numpy.asarray(values), array)
            if torch is not None:
                nested = torch.nested.nested_tensor_from_jagged(batch["rows"].values, batch["rows"].offsets)
                assert [tensor.tolist() for tensor in nested.unbind()] == [rows(record).tolist() for record in records]


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_text_names_and_fractions(array_job: MakeJob, kind: str) -> None:
    if kind == "torch":
        pytest.importorskip("torch")
    columns = [
        {"name": "caption", "from": "caption", "decode": "text", "max_bytes": 20},
        {"name": "weather", "from": "weather", "decode": "category", "names": WEATHER},
        {"name": "score", "from": "score", "decode": "float", "dtype": "f64"},
    ]
    with spdl_cluster.local(array_job(*columns), tensors=kind) as loader:  # type: ignore[arg-type]
        for batch in loader:
            records = batch["number"].tolist()
            assert batch["caption"].text() == [caption(record) for record in records]
            assert batch["weather"].tolist() == [record % 3 for record in records]
            assert batch["score"].tolist() == [record / 7 for record in records]


def test_functions_get_arrays_of_any_number_of_rows(array_job: MakeJob) -> None:
    columns = [
        {**RAGGED[0], "transform": "user_functions:total", "returns": {"shape": []}},
        {**RAGGED[1], "transform": "user_functions:padded", "returns": {"shape": [4]}},
    ]
    with spdl_cluster.local(array_job(*columns), tensors="numpy") as loader:
        for batch in loader:
            for at, record in enumerate(batch["number"].tolist()):
                assert batch["rows"][at] == rows(record).sum()
                assert batch["tokens"][at].tolist() == [*tokens(record).tolist(), *[0] * (4 - record % 5)]


def test_replay_writes_each_array_of_a_ragged_column(array_job: MakeJob, job_file: Any, tmp_path: pathlib.Path) -> None:
    ctl("replay", job_file(array_job(*RAGGED)), "--out", tmp_path / "replayed")
    (folder,) = (path.parent for path in (tmp_path / "replayed").rglob("batch.json"))
    for at, record in enumerate(numpy.load(folder / "number.npy").tolist()):
        for name, made in (("rows", rows), ("tokens", tokens)):
            written = numpy.load(folder / f"{name}-{at:05}.npy")
            assert (written.dtype, written.shape) == (made(record).dtype, made(record).shape)
            assert numpy.array_equal(written, made(record))


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (column("c", "f64.npy", "f32"), r"field `f64.npy` does not decode: it holds f64 \[3, 5\], and the column expects f32 \[3, 5\]"),
        (column("c", "i8.npy", "i8", shape=[15]), r"it holds i8 \[3, 5\], and the column expects i8 \[15\]"),
        (column("c", "raw", "f64", encoding="raw"), r"it is 30 bytes, and the column expects 120: f64 \[3, 5\]"),
        (column("c", "rows.npy", "f32", shape=[2, 2], max_rows=1), r"it holds f32 \[[2-6], 2, 2\], and the column expects f32 \[up to 1, 2, 2\]"),
        (column("c", "npz", "f32"), "it has 2 arrays: `left`, `right`; name one with `array`"),
    ],
    ids=["type", "shape", "length", "rows", "name"],
)
def test_another_array_than_the_job_gives_is_a_bad_sample_that_names_both(array_job: MakeJob, wrong: dict[str, Any], text: str) -> None:
    with spdl_cluster.local(array_job(wrong, bad_samples="fail")) as loader:
        with pytest.raises(spdl_cluster.DataError, match=text):
            next(iter(loader))
