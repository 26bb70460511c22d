"""Megatron's `.bin` and `.idx` as megatron-core's own builder writes them: read document by document, and by a job."""

from __future__ import annotations

import os
import pathlib
from typing import Any

import numpy
import pytest
import spdl_cluster
from conftest import MakeJob, ctl
from numpy.typing import NDArray

torch = pytest.importorskip("torch", reason=os.environ.get("SPDL_TEST_NO_TORCH", "torch is not installed"))
megatron = pytest.importorskip(
    "megatron.core.datasets.indexed_dataset", reason=os.environ.get("SPDL_TEST_NO_FRAMEWORKS", "megatron-core is not installed"), exc_type=ImportError
)

DTYPES = ["uint8", "int8", "int16", "int32", "int64", "float64", "float32", "uint16"]
#: The lengths of the sequences of each document.
DOCUMENTS = [[5], [1], [3, 0, 7], [0], [900], [2, 2], [64], [1, 1, 1, 1]] * 5


def sequence(number: int, length: int, dtype: str) -> NDArray[Any]:
    """Returns the tokens of a sequence: of the whole range of their type."""
    numbers = numpy.random.Generator(numpy.random.PCG64([number, length])).integers(0, 1 << 62, length)
    return numbers.astype(dtype)


def documents(dtype: str) -> list[list[NDArray[Any]]]:
    numbers = iter(range(10_000))
    return [[sequence(next(numbers), length, dtype) for length in lengths] for lengths in DOCUMENTS]


def build(prefix: pathlib.Path, dtype: str, multimodal: bool) -> None:
    """Writes the documents as Megatron does: some with their sequences one by one, some as a whole."""
    builder = megatron.IndexedDatasetBuilder(f"{prefix}.bin", dtype=numpy.dtype(dtype).type, multimodal=multimodal)
    for number, sequences in enumerate(documents(dtype)):
        modes = [(number + at) % 3 for at in range(len(sequences))]
        # torch has no numbers without a sign beyond 8 bits; the builder casts.
        tensors = [torch.from_numpy(tokens.astype("int64") if tokens.dtype.kind in "iu" else tokens) for tokens in sequences]
        if number % 2:
            builder.add_document(torch.cat(tensors), [len(tokens) for tokens in sequences], modes if multimodal else None)
        else:
            for tensor, mode in zip(tensors, modes):
                builder.add_item(tensor, mode if multimodal else 0)
            builder.end_document()
    builder.finalize(f"{prefix}.idx")


@pytest.mark.parametrize("multimodal", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_document_is_that_of_megatron(tmp_path: pathlib.Path, dtype: str, multimodal: bool) -> None:
    build(tmp_path / "web_text_document", dtype, multimodal)
    theirs = megatron.IndexedDataset(str(tmp_path / "web_text_document"), multimodal=multimodal)
    report = spdl_cluster.index(tmp_path, block_size=512)
    assert (report.records, report.shards) == (len(DOCUMENTS), 1)
    ours = spdl_cluster.open(tmp_path)
    assert ours.format == "megatron"
    for number, (record, sequences) in enumerate(zip(ours, documents(dtype), strict=True)):
        expected = numpy.concatenate(sequences)
        assert record["tokens"].dtype == numpy.dtype(dtype)
        assert numpy.array_equal(record["tokens"], expected)
        first, end = theirs.document_indices[number : number + 2]
        read = [theirs[at] for at in range(first, end)]
        assert numpy.array_equal(numpy.concatenate([one[0] if multimodal else one for one in read]), expected)
        assert record.key == f"web_text_document/{number:06}"
        assert ("modes" in record) == multimodal
        if multimodal:
            assert record["modes"].tolist() == [one[1] for one in read]
    assert '"faults":[]' in ctl("verify", tmp_path, "--json").stdout.replace(" ", "")


def test_a_merged_file_is_read_by_a_job(tmp_path: pathlib.Path, job: MakeJob) -> None:
    """As Megatron's `merge_datasets.py` does, two files become one; then a job reads all of it."""
    for part in ("a", "b"):
        build(tmp_path / part, "uint16", False)
    (tmp_path / "corpus").mkdir()
    merged = megatron.IndexedDatasetBuilder(str(tmp_path / "corpus/all.bin"), dtype=numpy.uint16)
    for part in ("a", "b"):
        merged.add_index(str(tmp_path / part))
    merged.finalize(str(tmp_path / "corpus/all.idx"))
    assert spdl_cluster.index(tmp_path / "corpus").records == 2 * len(DOCUMENTS)
    tokens = {"name": "tokens", "from": "tokens", "decode": "tensor", "dtype": "u16", "shape": [], "max_rows": 1000}
    key = {"name": "key", "from": "__key__", "decode": "text", "max_bytes": 40}
    made = {**job(dataset=tmp_path / "corpus", global_batch=8), "column": [tokens, key]}
    expected = [numpy.concatenate(sequences) for sequences in documents("uint16")] * 2
    seen = []
    with spdl_cluster.local(made, tensors="numpy") as loader:
        for batch in loader:
            for name, values in zip(batch["key"].text(), batch["tokens"]):
                seen.append(int(name.removeprefix("all/")))
                assert numpy.array_equal(values, expected[seen[-1]]), name
    assert sorted(seen) == list(range(2 * len(DOCUMENTS)))
