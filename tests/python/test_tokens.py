"""Ids of tokens in rows of any length, from Parquet and from MDS: batches, the suggested job, and what is wrong with an id."""

from __future__ import annotations

import pathlib
import struct
from collections.abc import Callable
from typing import Any

import mds
import numpy
import pytest
import spdl_cluster
from conftest import MakeJob, ctl_json
from numpy.typing import NDArray

SAMPLES = 48
VOCAB = 50_257


def ids(sample: int) -> NDArray[numpy.int64]:
    """Returns the ids of a text: none of some texts, and hundreds of others."""
    random = numpy.random.Generator(numpy.random.PCG64(sample))
    return random.integers(0, VOCAB, sample * 37 % 500 if sample % 8 else 0)


def in_parquet(folder: pathlib.Path, dtype: str) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    parquet = pytest.importorskip("pyarrow.parquet")
    lists = pyarrow.array([ids(sample).astype(dtype) for sample in range(SAMPLES)], pyarrow.list_(pyarrow.from_numpy_dtype(dtype)))
    parquet.write_table(pyarrow.table({"number": list(range(SAMPLES)), "input_ids": lists}), folder / "part.parquet", row_group_size=10)


def in_mds(folder: pathlib.Path, dtype: str) -> None:
    """Writes arrays whose type the column has, as MosaicML's tools do for language models; one byte says that a shape of one side of four bytes follows."""

    def encoded(sample: int) -> bytes:
        array = struct.pack("<BI", 1 << 2 | 2, len(ids(sample))) + ids(sample).astype(dtype).tobytes()
        return struct.pack("<I", len(array)) + struct.pack("<q", sample) + array

    mds.write_shard(folder, {"number": ("int", 8), "input_ids": (f"ndarray:{dtype}", None)}, [encoded(sample) for sample in range(SAMPLES)])


@pytest.fixture(params=[(in_parquet, "uint16"), (in_parquet, "int32"), (in_parquet, "int64"), (in_mds, "uint16"), (in_mds, "int64")], ids=lambda param: f"{param[0].__name__}-{param[1]}")
def texts(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> pathlib.Path:
    write: tuple[Callable[[pathlib.Path, str], None], str] = request.param
    write[0](tmp_path, write[1])
    ctl_json("index", tmp_path)
    return tmp_path


@pytest.fixture
def token_job(texts: pathlib.Path, job: MakeJob) -> MakeJob:
    """Returns a function that makes a job with the number of a sample and its tokens."""
    number = {"name": "number", "from": "number", "decode": "int"}

    def make(**keys: Any) -> dict[str, Any]:
        return {**job(dataset=texts), "column": [number, {"name": "tokens", "from": "tokens|input_ids", "decode": "tokens", **keys}]}

    return make


@pytest.mark.parametrize("dtype", ["i32", "i64"])
def test_batches_have_the_ids_of_each_text(token_job: MakeJob, dtype: str) -> None:
    seen = set()
    with spdl_cluster.local(token_job(vocab=VOCAB, dtype=dtype), tensors="numpy") as loader:
        for batch in loader:
            samples, tokens = batch["number"].tolist(), batch["tokens"]
            seen |= set(samples)
            assert tokens.values.dtype == dtype.replace("i", "int")
            assert tokens.lengths.tolist() == [len(ids(sample)) for sample in samples]
            for row, sample in zip(tokens, samples):
                assert numpy.array_equal(row, ids(sample))
    assert seen == set(range(SAMPLES))


def test_the_suggested_job_has_a_column_of_tokens(texts: pathlib.Path) -> None:
    suggested = spdl_cluster.suggest(texts)
    [column] = [column for column in suggested["column"] if column["from"] == "input_ids"]
    assert column == {"name": "input_ids", "from": "input_ids", "decode": "tokens"}
    with spdl_cluster.local(suggested, tensors="numpy") as loader:
        batch = next(iter(loader))
        assert all(len(row) == len(ids(sample)) for row, sample in zip(batch["input_ids"], batch["number"].tolist()))


def test_the_suggested_job_of_tokens_alone_packs_them(tmp_path: pathlib.Path) -> None:
    with spdl_cluster.Writer(tmp_path / "texts") as writer:
        for sample in range(SAMPLES):
            writer.write({"input_ids": ids(sample)}, key=f"{sample:04}")
    suggested = spdl_cluster.suggest(tmp_path / "texts")
    assert {column["name"]: column["decode"] for column in suggested["column"]} == {
        "tokens": "tokens", "labels": "labels", "positions": "positions", "document_lengths": "document_lengths"
    }  # fmt: skip
    sequence = suggested["sequence"]
    assert sequence is not None
    with spdl_cluster.local(suggested, tensors="numpy") as loader:
        batch = next(iter(loader))
        assert batch["tokens"].shape == batch["labels"].shape == (suggested["global_batch"], sequence["seq_len"])
        assert all(micro.loss_tokens > 0 for micro in batch.packed(1))


def test_an_id_beyond_the_vocabulary_is_a_bad_sample_that_names_it(token_job: MakeJob) -> None:
    largest = max(int(ids(sample).max(initial=0)) for sample in range(SAMPLES))
    [sample] = [sample for sample in range(SAMPLES) if largest in ids(sample)]
    place = ids(sample).tolist().index(largest)
    wrong = {**token_job(vocab=largest), "bad_samples": "fail"}
    text = f"field `input_ids` has id {largest} at place {place}, from 0; `vocab` is {largest}, so ids are from 0 to {largest - 1}"
    with spdl_cluster.local(wrong) as loader, pytest.raises(spdl_cluster.DataError, match=text):
        for _ in loader:
            pass
    masked = {**token_job(vocab=largest), "bad_samples": "mask", "max_bad_fraction": 1}
    with spdl_cluster.local(masked, tensors="numpy") as loader:
        for batch in loader:
            for number, row, valid in zip(batch["number"].tolist(), batch["tokens"], batch.valid.tolist()):
                assert valid or len(row) == 0
                assert not valid or (number != sample and len(row) == len(ids(number)))
