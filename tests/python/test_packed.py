"""Micro-batches of sequences (`batch.packed`): the views, the bounds of documents, what is learned, and the parts of ranks of
context parallelism; compared with plain loops over the documents."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy
import pytest
import spdl_cluster
from conftest import LAUNCHERS, LIMIT_S, RanksInTurn
from numpy.typing import NDArray
from spdl_cluster import MicroBatch, SettingError
from spdl_cluster.packed import CpSlicing, Packing
from spdl_cluster.tensors import Kind

SEQ_LEN = 64
DOCUMENTS = 60
EOS = 7
#: Of the columns' kinds the names, which say nothing of them, and the type.
COLUMNS = {
    "labels": {"name": "targets", "dtype": "i64"},
    "positions": {"name": "places", "dtype": "i32"},
    "document_ids": {"name": "numbers", "dtype": "i32"},
    "loss_mask": {"name": "learned", "dtype": "f32"},
    "document_lengths": {"name": "cuts", "dtype": "i32"},
}
TOKENS = {"name": "text", "from": "ids", "decode": "tokens"}
BEST_FIT_1 = {"align": 1}
BEST_FIT_16 = {"align": 16}
CHUNK = {"method": "chunk", "cross_documents": False}
ONE_TEXT = {"method": "chunk"}
METHODS = pytest.mark.parametrize("method", [BEST_FIT_1, BEST_FIT_16, CHUNK, ONE_TEXT], ids=["best_fit-1", "best_fit-16", "chunk", "one_text"])


def ids(document: int) -> NDArray[numpy.int32]:
    """Returns the tokens of a document: each says which document it is of, and its place there. Some are longer than a sequence."""
    length = document * 29 % 57 + 1 if document % 9 else 150 + document
    return numpy.arange(length, dtype=numpy.int32) + 1000 * (document + 1)


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Writes a dataset of the documents, and returns its folder."""
    folder = tmp_path_factory.mktemp("texts") / "texts"
    with spdl_cluster.Writer(folder, block_size=4096) as writer:
        for document in range(DOCUMENTS):
            writer.write({"ids": ids(document)}, key=f"{document:04}")
    return folder


#: A batch of five is not divided evenly among ranks of three.
UNEVEN = pytest.mark.filterwarnings("ignore:.*in parts of")


def make(texts: pathlib.Path, method: dict[str, Any], *leave_out: str, **keys: Any) -> dict[str, Any]:
    """Makes a job with a column of each kind but some."""
    columns = [{**column, "decode": kind, "follows": "text"} for kind, column in COLUMNS.items() if kind not in leave_out]
    sequence = {"seq_len": SEQ_LEN, "pool_tokens": 1200, "eos": EOS, "pad": 3, **method}
    return {"name": "packed", "dataset": texts, "seed": 5, "global_batch": 5, "epoch_end": "exact", "sequence": sequence, **keys, "column": [*columns, TOKENS]}


def split(micro: MicroBatch) -> list[tuple[int, int]]:
    """Returns the begin and the end of each segment."""
    cuts = micro.cu_seqlens.tolist()
    return list(zip(cuts, cuts[1:]))


@pytest.mark.parametrize("rows", [1, 2, None])
@METHODS
def test_micro_batches_are_views_with_the_bounds_of_their_documents(texts: pathlib.Path, method: dict[str, Any], rows: int | None) -> None:
    seen: list[int] = []
    with spdl_cluster.local(make(texts, method), tensors="numpy") as loader:
        for batch in loader:
            micros = list(batch.packed(rows))
            assert [micro.rows for micro in micros] == ([5] if rows is None else [1] * 5 if rows == 1 else [2, 2, 1])
            first = 0
            for micro in micros:
                for kind in ("tokens", "labels", "positions", "document_ids", "loss_mask"):
                    column = batch["text" if kind == "tokens" else COLUMNS[kind]["name"]]
                    view = getattr(micro, kind)
                    assert view.shape == (micro.rows, SEQ_LEN) and numpy.shares_memory(view, column)
                    assert numpy.array_equal(view, column[first : first + micro.rows])
                assert micro.cu_seqlens.dtype == numpy.int32 and type(micro.max_seqlen) is int and type(micro.loss_tokens) is int
                # A segment begins wherever a position is 0, in padding too.
                begins = [at for at, place in enumerate(micro.positions.reshape(-1).tolist()) if place == 0]
                assert micro.cu_seqlens.tolist() == [*begins, micro.rows * SEQ_LEN]
                assert micro.segment_lengths == [end - begin for begin, end in split(micro)]
                assert micro.max_seqlen == max(micro.segment_lengths)
                assert micro.loss_tokens == sum(label != -100 for label in micro.labels.reshape(-1).tolist())
                assert micro.loss_tokens == int(micro.loss_mask.sum())
                tokens, numbers = micro.tokens.reshape(-1).tolist(), micro.document_ids.reshape(-1).tolist()
                for at, (token, label) in enumerate(zip(tokens, micro.labels.reshape(-1).tolist())):
                    if token >= 1000:
                        assert label == (token + 1 if token % 1000 + 1 < len(ids(token // 1000 - 1)) else EOS)
                    elif token == EOS and method is ONE_TEXT:
                        assert label == tokens[at + 1] if (at + 1) % SEQ_LEN else label >= 1000
                    else:
                        assert label == -100
                for begin, end in split(micro) if method is not ONE_TEXT else []:
                    assert len(set(numbers[begin:end])) == 1
                    of_segment = [token for token in tokens[begin:end] if token not in (EOS, 3)]
                    # The tokens of one document, one after the other.
                    assert of_segment == list(range(of_segment[0], of_segment[0] + len(of_segment))) if of_segment else True
                    assert bool(of_segment or EOS in tokens[begin:end]) == (numbers[begin] >= 0)
                seen += [token for token in tokens if token >= 1000]
                first += micro.rows
    every = [token for document in range(DOCUMENTS) for token in ids(document).tolist()]
    assert len(seen) == len(set(seen))
    assert set(seen) <= set(every) if "method" in method else set(seen) == set(every)


@pytest.mark.parametrize("rows", [1, 2, None])
@pytest.mark.parametrize("method", [BEST_FIT_1, BEST_FIT_16], ids=["1", "16"])
def test_the_loss_of_an_epoch_is_that_of_its_documents_one_by_one(texts: pathlib.Path, method: dict[str, Any], rows: int | None) -> None:
    torch = pytest.importorskip("torch", reason=os.environ.get("SPDL_TEST_NO_TORCH", "torch is not installed"))
    cross_entropy = torch.nn.functional.cross_entropy
    table = torch.randn(64, 64, generator=torch.Generator().manual_seed(3), dtype=torch.float64)

    def loss(tokens: Any, labels: Any) -> Any:
        """Returns the sum of the losses of a model that knows a token and nothing else."""
        return cross_entropy(table[tokens.view(-1).long() % 64], torch.where(labels == -100, labels, labels % 64).view(-1), reduction="sum")

    packed, learned = 0.0, 0
    with spdl_cluster.local(make(texts, method), tensors="torch") as loader:
        for batch in loader:
            for micro in batch.packed(rows):
                assert micro.cu_seqlens.dtype == torch.int32 and micro.tokens.data_ptr() >= batch["text"].data_ptr()
                packed += float(loss(micro.tokens, micro.labels))
                learned += micro.loss_tokens
                # A mean over what is learned, as a trainer takes it of each micro-batch.
                mean = cross_entropy(table[micro.tokens.view(-1).long() % 64], torch.where(micro.labels == -100, micro.labels, micro.labels % 64).view(-1))
                assert micro.loss_tokens == 0 or torch.allclose(mean, loss(micro.tokens, micro.labels) / micro.loss_tokens)
    documents = [torch.tensor([*ids(document).tolist(), EOS]) for document in range(DOCUMENTS)]
    alone = sum(float(loss(document[:-1], document[1:])) for document in documents)
    assert learned == sum(len(document) - 1 for document in documents)
    assert abs(packed - alone) < 1e-9 * alone


def parts(method: CpSlicing, micro: MicroBatch, rank: int, ranks: int) -> list[int]:
    """Returns the places of a rank in the flat micro-batch, by a plain loop."""
    if method == "document":
        spans = split(micro)
    else:
        spans = [(row * SEQ_LEN, (row + 1) * SEQ_LEN) for row in range(micro.rows)]
    found: list[int] = []
    for begin, end in spans:
        if method == "contiguous":
            size = (end - begin) // ranks
            found += range(begin + rank * size, begin + (rank + 1) * size)
        else:
            size = (end - begin) // (2 * ranks)
            for chunk in (rank, 2 * ranks - 1 - rank):
                found += range(begin + chunk * size, begin + (chunk + 1) * size)
    return found


@pytest.mark.parametrize("tensors", ["numpy", "torch"])
@pytest.mark.parametrize("rows", [1, 2, None])
@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
def test_ranks_of_context_parallelism_get_their_chunks(texts: pathlib.Path, ranks: int, rows: int | None, tensors: Kind) -> None:
    if tensors == "torch":
        pytest.importorskip("torch", reason=os.environ.get("SPDL_TEST_NO_TORCH", "torch is not installed"))
    with spdl_cluster.local(make(texts, BEST_FIT_16), tensors=tensors) as loader:
        for batch in loader:
            for micro in batch.packed(rows):
                slicings: list[CpSlicing] = ["headtail", "contiguous", "document"]
                for slicing in slicings:
                    every = []
                    for rank in range(ranks):
                        places, part = parts(slicing, micro, rank, ranks), micro.cp_slice(rank, ranks, slicing)
                        every += places
                        for kind in ("tokens", "labels", "positions", "document_ids", "loss_mask"):
                            whole, view = numpy.asarray(getattr(micro, kind)), numpy.asarray(getattr(part, kind))
                            assert view.reshape(-1).tolist() == whole.reshape(-1)[places].tolist()
                            assert view.shape == {
                                "headtail": (micro.rows, 2, SEQ_LEN // ranks // 2),
                                "contiguous": (micro.rows, SEQ_LEN // ranks),
                                "document": (micro.rows * SEQ_LEN // ranks,),
                            }[slicing]
                            assert slicing == "document" or numpy.shares_memory(view, whole)
                    assert sorted(every) == list(range(micro.rows * SEQ_LEN))


@pytest.mark.parametrize(("seq_len", "method", "ranks"), [(64, BEST_FIT_1, 2), (72, BEST_FIT_16, 8)])
def test_a_document_that_does_not_divide_is_named(texts: pathlib.Path, seq_len: int, method: dict[str, Any], ranks: int) -> None:
    named, chunks = set(), 2 * ranks
    with spdl_cluster.local(make(texts, {**method, "seq_len": seq_len}), tensors="numpy") as loader:
        for batch in loader:
            for number, (micro, cuts) in enumerate(zip(batch.packed(1), batch["cuts"], strict=True)):
                lengths = cuts.tolist()
                odd = [(at, length) for at, length in enumerate([*lengths, seq_len - sum(lengths)]) if length % chunks]
                if not odd:
                    micro.cp_slice(1, ranks, "document")
                    continue
                at, length = odd[0]
                what = f"document {at} of" if at < len(lengths) else "the padding behind the documents of"
                named.add(what.split()[0])
                text = f"{what} sequence {number} of the batch has {length} places, which do not divide into {chunks} equal chunks for {ranks} ranks"
                with pytest.raises(SettingError, match=text):
                    micro.cp_slice(1, ranks, "document")
    assert named == ({"document"} if seq_len == 64 else {"document", "the"})


def test_a_part_of_a_sequence_that_there_is_not_is_refused(texts: pathlib.Path) -> None:
    with spdl_cluster.local(make(texts, BEST_FIT_1), tensors="numpy") as loader:
        micro = next(next(iter(loader)).packed())
        with pytest.raises(SettingError, match="`seq_len` of job `packed` is 64, which does not divide into 6 equal chunks for 3 ranks"):
            micro.cp_slice(0, 3, "headtail")
        with pytest.raises(SettingError, match="rank 2 of 2 is none"):
            micro.cp_slice(2, 2, "headtail")
        with pytest.raises(SettingError, match='`slicing` is \'zigzag\', not "headtail"'):
            micro.cp_slice(0, 2, "zigzag")  # type: ignore[arg-type]


def test_of_two_columns_of_a_kind_the_first_counts(texts: pathlib.Path) -> None:
    made = make(texts, {**BEST_FIT_16, "eos_in_loss": False})
    unshifted = {"name": "unshifted", "decode": "labels", "follows": "text", "shifted": False}
    for name, columns in (("targets", [*made["column"], unshifted]), ("unshifted", [unshifted, *made["column"]])):
        with spdl_cluster.local({**made, "column": columns}, tensors="numpy") as loader:
            for batch in loader:
                for number, micro in enumerate(batch.packed(1)):
                    assert numpy.array_equal(micro.labels[0], batch[name][number])
                    assert micro.loss_tokens == (batch[name][number] != -100).sum()
                assert not numpy.array_equal(batch["targets"], batch["unshifted"])


def test_what_the_job_lacks_is_named(texts: pathlib.Path) -> None:
    plain = {"name": "plain", "dataset": texts, "global_batch": 4, "column": [TOKENS]}
    with spdl_cluster.local(plain, tensors="numpy") as loader:
        with pytest.raises(SettingError, match="job `plain` has no `sequence`, so that its samples are no sequences") as refused:
            next(iter(loader)).packed()
        assert "`sequence = { seq_len = 8192 }`" in str(refused.value.hint)
    with spdl_cluster.local(make(texts, CHUNK, "document_lengths"), tensors="numpy") as loader:
        with pytest.raises(SettingError, match="no column of `document_lengths`") as refused:
            next(iter(loader)).packed()
        assert 'decode = "document_lengths", follows = "tokens"' in str(refused.value.hint)
    with spdl_cluster.local(make(texts, CHUNK, "labels", "positions"), tensors="numpy") as loader:
        batch = next(iter(loader))
        with pytest.raises(SettingError, match="`rows` of `packed` is 0"):
            batch.packed(rows=0)
        micro = next(batch.packed(rows=2))
        assert micro.max_seqlen <= SEQ_LEN and micro.tokens.shape == (2, SEQ_LEN) and "2 sequences of 64" in repr(micro)
        for kind in ("labels", "positions"):
            with pytest.raises(AttributeError, match=f"job `packed` has no column of `{kind}`; add {{ name = "):
                getattr(micro, kind)
        assert getattr(micro.cp_slice(0, 2, "headtail"), "positions", None) is None
        with pytest.raises(AttributeError, match="no column of `labels`, of which `loss_tokens` is the number"):
            micro.loss_tokens
    with spdl_cluster.local(make(texts, CHUNK), tensors="dlpack") as loader, pytest.raises(SettingError, match="neither torch's nor numpy's"):
        next(iter(loader)).packed()
    with pytest.raises(AttributeError, match="only a batch that comes from a loader has .* `packed`"):
        spdl_cluster.Batch({}).packed()


def test_the_bounds_of_documents_are_padded_to_a_fixed_number(texts: pathlib.Path) -> None:
    limit, rows = 3, 2
    length = rows * (limit + 1) + 1
    with spdl_cluster.local(make(texts, {"align": 16, "max_documents": limit}), tensors="numpy") as loader:
        numbers = set()
        for batch in loader:
            for micro, padded in zip(batch.packed(rows), batch.packed(rows, pad_to=length), strict=True):
                cuts = micro.cu_seqlens.tolist()
                numbers.add(len(cuts))
                assert padded.cu_seqlens.dtype == numpy.int32 and padded.cu_seqlens.shape == (length,)
                assert padded.cu_seqlens.tolist() == cuts + [micro.rows * SEQ_LEN] * (length - len(cuts))
                assert (padded.segment_lengths, padded.max_seqlen) == (micro.segment_lengths, micro.max_seqlen)
        assert len(numbers) > 1 and max(numbers) <= length
        most = max(len(micro.segment_lengths) for micro in batch.packed(1))
        next(batch.packed(rows, pad_to=rows * most + 1))
        with pytest.raises(SettingError, match=f"`pad_to` of `packed` is {most}, and sequences .* segments, which take {most + 1} elements") as refused:
            list(batch.packed(1, pad_to=most))
        assert "`max_documents = n` in the job's `sequence`, rows * (n + 1) + 1" in str(refused.value.hint)


def test_entries_without_a_sequence_are_padding(texts: pathlib.Path) -> None:
    with spdl_cluster.local(make(texts, BEST_FIT_16, global_batch=32), tensors="numpy") as loader:
        *_, last = loader
        empty = [not is_valid for is_valid in last.valid.tolist()]
        assert any(empty) and not all(empty)
        for micro, is_empty in zip(last.packed(1), empty, strict=True):
            assert (micro.loss_tokens == 0) == is_empty
            assert not is_empty or (micro.segment_lengths == [SEQ_LEN] and set(micro.labels.reshape(-1).tolist()) == {-100})


def assert_each_rank_knows_all_labels(made: dict[str, Any]) -> int:
    """Asserts that one rank, and three, know how many labels all ranks learn in a step. Returns the number of steps."""
    learned: dict[int, Counter[spdl_cluster.Position]] = {1: Counter(), 3: Counter()}
    for world, of_world in learned.items():
        for loader, batch in RanksInTurn(made, world):
            of_world[batch.position] += sum(micro.loss_tokens for micro in batch.packed())
            assert batch.global_loss_tokens == learned[1][batch.position], f"rank {loader.rank} of {world} at {batch.position}"
    assert learned[1] == learned[3]
    return len(learned[1])


def assert_each_rank_knows_all_lengths(made: dict[str, Any], lengths: str, tensors: Kind) -> dict[spdl_cluster.Position, list[list[int]]]:
    """Asserts that one rank, and three, know the lengths of the documents of all ranks, and returns those of each step. `lengths` is the column of them."""
    alone: dict[spdl_cluster.Position, list[list[int]]] = {}
    for world in (1, 3):
        for loader, batch in RanksInTurn(made, world, tensors=tensors):
            if world == 1:
                alone[batch.position] = [one.tolist() for one in batch[lengths]]
            assert batch.global_lengths == alone[batch.position], f"rank {loader.rank} of {world} at {batch.position}"
            assert tensors != "torch" or batch.to("cpu").global_lengths == batch.global_lengths
    return alone


@UNEVEN
@pytest.mark.parametrize("end", ["exact", "pad", "partial"])
@METHODS
def test_each_rank_knows_how_many_labels_all_ranks_learn(texts: pathlib.Path, method: dict[str, Any], end: str) -> None:
    for shifted, sequence in ((True, {}), (False, {}), (True, {"eos_in_loss": False, "bos": 9}), (False, {"eos_in_loss": False, "bos": 9})):
        made = make(texts, {**method, **sequence}, "loss_mask", epoch_end=end)
        for column in made["column"]:
            column.update({"shifted": shifted} if column["decode"] == "labels" else {})
        assert assert_each_rank_knows_all_labels(made) > 5


@UNEVEN
@pytest.mark.parametrize("end", ["exact", "pad", "partial"])
@METHODS
def test_each_rank_knows_the_lengths_of_all_documents(texts: pathlib.Path, method: dict[str, Any], end: str) -> None:
    pytest.importorskip("torch", reason=os.environ.get("SPDL_TEST_NO_TORCH", "torch is not installed"))
    made = make(texts, method, epoch_end=end)
    made["column"].append({"name": "all", "decode": "global_lengths", "follows": "text"})
    alone = assert_each_rank_knows_all_lengths(made, "cuts", "torch")
    assert len(alone) > 5 and len({len(lengths) for lengths in alone.values()}) == (2 if end == "partial" else 1)


def test_without_labels_nobody_knows_what_is_learned(texts: pathlib.Path) -> None:
    with spdl_cluster.local(make(texts, BEST_FIT_1, "labels"), tensors="numpy") as loader:
        for batch in loader:
            assert batch.global_loss_tokens == int(batch["learned"].sum())
    with spdl_cluster.local(make(texts, BEST_FIT_1, "labels", "loss_mask"), tensors="numpy") as loader:
        with pytest.raises(SettingError, match="job `packed` has no column of `labels`, of which `global_loss_tokens` is the number"):
            _ = next(iter(loader)).global_loss_tokens
        with pytest.raises(SettingError, match="job `packed` has no column of `global_lengths`"):
            _ = next(iter(loader)).global_lengths


def test_a_copy_of_a_batch_and_labels_of_32_bits_are_packed_alike(texts: pathlib.Path) -> None:
    pytest.importorskip("torch", reason=os.environ.get("SPDL_TEST_NO_TORCH", "torch is not installed"))
    made = make(texts, BEST_FIT_16)
    short = {**made, "column": [{**column, "dtype": "i32"} if column["decode"] == "labels" else column for column in made["column"]]}

    def seen(micros: Iterator[MicroBatch]) -> list[Any]:
        return [(m.cu_seqlens.tolist(), m.max_seqlen, m.loss_tokens, m.labels.tolist(), m.tokens.tolist()) for m in micros]

    with spdl_cluster.local(made, tensors="torch") as first, spdl_cluster.local(short, tensors="torch") as second:
        for batch, other in zip(first, second, strict=True):
            expected = seen(batch.packed(2))
            assert seen(batch.to("cpu").packed(2)) == seen(batch.to("cpu").to("cpu").packed(2)) == expected
            assert seen(other.packed(2)) == expected
            assert batch.global_loss_tokens == batch.to("cpu").global_loss_tokens == sum(m.loss_tokens for m in batch.packed())
            # What Accelerate's ranks exchange is counted again, row by row.
            for loader, each in ((first, batch), (second, other)):
                rows = {name: list(column) for name, column in each.items()}
                assert Packing.of(loader._native.facts).count(rows) == each._source().sequences()


def test_micro_batches_on_a_gpu_wait_for_nothing(texts: pathlib.Path, tmp_path: pathlib.Path) -> None:
    pytest.importorskip("torch", reason=os.environ.get("SPDL_TEST_NO_TORCH", "torch is not installed"))
    for name in ("libcuda.so", "libcuda.so.1"):
        (tmp_path / name).symlink_to(os.environ["SPDL_TEST_CUDA_STAND_IN"])
    (tmp_path / "job.json").write_text(json.dumps(make(texts, BEST_FIT_16, global_batch=4), default=str))
    done = subprocess.run(
        [sys.executable, pathlib.Path(__file__).with_name("device_programs.py"), "packed", tmp_path / "job.json"],
        env={
            **{name: value for name, value in os.environ.items() if name not in LAUNCHERS},
            "LD_LIBRARY_PATH": str(tmp_path),
            "CUDA_STAND_IN": "delay_us=3000,seed=6",
        },
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert done.returncode == 0, f"{done.returncode}\n{done.stdout}\n{done.stderr}"
