"""Megatron's `.bin` and `.idx` as megatron-core's own builder writes them: read document by document, and by a job. And as `pack` writes
them: the same bytes."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import spdl_cluster
from conftest import FRAMEWORKS_HERE, LazyModule, MakeJob, ctl
from numpy.typing import NDArray
from test_language import EOS, FORMATS, Tokens, with_an_end, write_megatron

torch = pytest.importorskip("torch", reason=os.environ.get("SPDL_TEST_NO_TORCH", "torch is not installed"))
megatron: Any = LazyModule("megatron.core.datasets.indexed_dataset", os.environ.get("SPDL_TEST_NO_FRAMEWORKS", "megatron-core is not installed"))
pytestmark = FRAMEWORKS_HERE

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


def in_megatron(folder: pathlib.Path, of_corpus: list[Tokens]) -> list[str]:
    write_megatron(folder, "a", of_corpus[:40])
    write_megatron(folder, "b", of_corpus[40:])
    return []


def texts(highest: int) -> list[Tokens]:
    """Returns documents with ids up to this one; some are empty."""
    return [numpy.arange(number * 37 % 150, dtype="uint16") * 7 % (highest + 1) for number in range(120)]


def builders_files(prefix: pathlib.Path, of_corpus: list[list[int]], vocab: int) -> tuple[bytes, bytes]:
    """Returns what Megatron's builder writes of these documents."""
    builder = megatron.IndexedDatasetBuilder(f"{prefix}.bin", dtype=megatron.DType.optimal_dtype(vocab))
    for tokens in of_corpus:
        builder.add_document(torch.tensor(tokens, dtype=torch.int64), [len(tokens)])
    builder.finalize(f"{prefix}.idx")
    return pathlib.Path(f"{prefix}.bin").read_bytes(), pathlib.Path(f"{prefix}.idx").read_bytes()


@pytest.mark.parametrize("vocab", [257, 65_499, 65_500])
@pytest.mark.parametrize(("write", "field"), [*FORMATS, (in_megatron, "tokens")], ids=lambda case: getattr(case, "__name__", None))
def test_what_pack_writes_has_the_bytes_of_megatrons_builder(
    write: Callable[[pathlib.Path, list[Tokens]], list[str]], field: str, vocab: int, tmp_path: pathlib.Path
) -> None:
    of_corpus = texts(255)
    (tmp_path / "source").mkdir()
    ctl("index", tmp_path / "source", *write(tmp_path / "source", of_corpus))
    wanted = ["--from", field] if field == "npy" else []
    expected = [[*tokens.tolist(), *([EOS] if write is with_an_end else [])] for tokens in of_corpus]
    ctl("pack", tmp_path / "source", tmp_path / "set", "--to", "megatron", "--vocab", vocab, "--no-shuffle", *wanted)
    bin_and_idx = builders_files(tmp_path / "theirs", expected, vocab)
    assert tuple((tmp_path / f"set/shard-000000.{suffix}").read_bytes() for suffix in ("bin", "idx")) == bin_and_idx
    assert [record["tokens"].tolist() for record in spdl_cluster.open(tmp_path / "set")] == expected


def test_shuffled_pairs_are_read_by_megatron_and_written_again(tmp_path: pathlib.Path) -> None:
    of_corpus = texts(60_000)
    (tmp_path / "source").mkdir()
    in_megatron(tmp_path / "source", of_corpus)
    ctl("index", tmp_path / "source")
    orders = []
    for seed in (0, 1):
        folder = tmp_path / f"set-{seed}"
        ctl("pack", tmp_path / "source", folder, "--to", "megatron", "--vocab", 60_001, "--shard-size", "4KiB", "--seed", seed)
        found: list[list[int]] = []
        for file in sorted(folder.glob("*.bin")):
            pair = megatron.IndexedDataset(str(file.with_suffix("")))
            assert file.stat().st_size <= 4096 and pair.index.dtype == numpy.uint16
            # NumPy maps no empty file, and a document may be one.
            of_pair = [pair[number].tolist() for number in range(len(pair))]
            assert builders_files(tmp_path / "again", of_pair, 60_001) == (file.read_bytes(), file.with_suffix(".idx").read_bytes())
            found += of_pair
        assert [record["tokens"].tolist() for record in spdl_cluster.open(folder)] == found
        orders.append(found)
    assert sorted(orders[0]) == sorted(orders[1]) == sorted(tokens.tolist() for tokens in of_corpus)
    assert orders[0] != orders[1]
