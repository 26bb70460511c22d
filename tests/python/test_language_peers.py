"""Batches of sequences beside those that the programs of other projects make of the same documents: Megatron-core's `GPTDataset`,
transformers' `DataCollatorWithFlattening` and torchtitan's dataset of texts, each as its project publishes it."""

from __future__ import annotations

import pathlib
from typing import Any

import numpy
import pytest
import spdl_cluster
from conftest import FRAMEWORKS_HERE, ctl
from test_language import EOS, PAGE, SMALLER, Tokens, documents, module, the_job, write_megatron
from test_recipes import ABSENT, ROOT, Recipe, needs_torch

pytestmark = FRAMEWORKS_HERE

#: Tokens of a sequence.
SEQ_LEN = 512


@pytest.fixture
def page(tmp_path: pathlib.Path, temporary: pathlib.Path) -> Recipe:
    """Writes the files of the page, and returns it."""
    needs_torch()
    (tmp_path / "tokens").mkdir()
    return Recipe(PAGE, tmp_path, temporary, SMALLER, {})


def write(tmp_path: pathlib.Path, of_corpus: list[Tokens]) -> None:
    """Makes the page's dataset of one file with these documents."""
    write_megatron(tmp_path / "tokens", "all", of_corpus)
    ctl("index", tmp_path / "tokens")


def order_of_pool(seed: int, epoch: int, count: int) -> list[int]:
    """Returns the documents of the first pool in the order of `chunk`, as docs/spec/sequences.md defines it."""
    order = module(ROOT / "tests/order/order.py")
    key = order.key(seed, 8, epoch, 0)
    return [order.permute(key, count, place) for place in range(count)]


def gpt_dataset(prefix: pathlib.Path, order: list[int], is_apart: bool, seq_len: int = SEQ_LEN) -> Any:
    """Returns Megatron's dataset of the documents in this order, with its sequences in order. With `is_apart`, positions begin at 0 behind
    each end of a document, and nothing is learned there."""
    gpt = pytest.importorskip("megatron.core.datasets.gpt_dataset", reason=ABSENT, exc_type=ImportError)
    from megatron.core.datasets import helpers
    from megatron.core.datasets.indexed_dataset import IndexedDataset
    from megatron.core.datasets.utils import Split
    from megatron.core.tokenizers.text.libraries.null_tokenizer import NullTokenizer

    apart = {"reset_position_ids": is_apart, "reset_attention_mask": is_apart, "eod_mask_loss": is_apart}
    tokenizer = NullTokenizer(EOS)
    assert tokenizer.eod == EOS
    config = gpt.GPTDatasetConfig(
        random_seed=1, sequence_length=seq_len, tokenizer=tokenizer, path_to_cache=str(prefix.parent / "cache"), create_attention_mask=False, **apart
    )
    stored = IndexedDataset(str(prefix))
    numbers = numpy.arange(len(stored.sequence_lengths), dtype=numpy.int32)
    made = gpt.GPTDataset(stored, str(prefix), numbers, None, Split.train, config)
    # It shuffles documents with NumPy's generator, and sequences among all of an epoch.
    made.document_index = numpy.array(order, numpy.int32)
    total = int(stored.sequence_lengths.sum())
    made.sample_index = helpers.build_sample_idx(stored.sequence_lengths, made.document_index, seq_len, 1, total, True, True)
    made.shuffle_index = numpy.arange(len(made.sample_index) - 1)
    return made


@pytest.mark.parametrize("is_apart", [False, True])
def test_chunks_are_the_samples_of_megatrons_gpt_dataset(is_apart: bool, page: Recipe, tmp_path: pathlib.Path) -> None:
    pytest.importorskip("megatron.core.datasets.gpt_dataset", reason=ABSENT, exc_type=ImportError)
    import torch

    # As with `--append-eod`: Megatron's `GPTDataset` adds nothing, and an empty document stays so.
    of_corpus = [numpy.append(tokens, numpy.uint16(EOS)) if len(tokens) else tokens for tokens in documents()]
    write(tmp_path, of_corpus)
    job = the_job(tmp_path, sequence={"seq_len": SEQ_LEN, "method": "chunk", "cross_documents": not is_apart}, global_batch=1, epochs=2)
    del job["sequence"]["eos"]
    rows = []
    shapes = module(tmp_path / "shapes.py")
    with spdl_cluster.local(job, tensors="torch") as loader:
        for _ in range(2):
            rows += [{name: column[0].clone() for name, column in shapes.megatron(batch).items()} for batch in loader]
    sequences = (sum(map(len, of_corpus)) - 1) // SEQ_LEN
    assert len(rows) == 2 * sequences
    for epoch in range(2):
        order = order_of_pool(job["seed"], epoch, len(of_corpus))
        theirs = gpt_dataset(tmp_path / "tokens/all", order, is_apart)
        assert len(theirs) == sequences
        places = {theirs[number]["tokens"].numpy().tobytes(): number for number in range(sequences)}
        of_epoch = rows[epoch * sequences :][:sequences]
        assert sorted(places[row["tokens"].numpy().tobytes()] for row in of_epoch) == list(range(sequences)), "each once"
        for row in of_epoch:
            sample = theirs[places[row["tokens"].numpy().tobytes()]]
            assert sorted(row) == sorted(sample)
            learned = sample["loss_mask"] > 0
            assert bool(learned.all()) == (not is_apart or EOS not in row["tokens"])
            for name, column in row.items():
                assert column.dtype == sample[name].dtype, name
                # Where nothing is learned, the label is 0 in ours, and in theirs a token of the next document.
                same = learned if name == "labels" else torch.ones_like(learned)
                assert torch.equal(column[same], sample[name][same]), name


def test_packed_rows_are_those_of_transformers_flattening_collator(page: Recipe, tmp_path: pathlib.Path) -> None:
    transformers = pytest.importorskip("transformers", reason=ABSENT)
    import torch

    # Most documents have multiples of 40 tokens, so that some rows are full.
    of_corpus, seq_len = documents(), 13 * 40
    write(tmp_path, of_corpus)
    job = the_job(tmp_path, sequence={"seq_len": seq_len, "align": 1, "long": "drop"}, global_batch=4)
    del job["sequence"]["eos"]
    [labels] = [column for column in job["column"] if column["decode"] == "labels"]
    labels["shifted"] = False
    whole = {tokens.astype("int32").tobytes(): tokens.tolist() for tokens in of_corpus}
    collate = transformers.DataCollatorWithFlattening(return_flash_attn_kwargs=True, return_seq_idx=True, return_tensors="pt")
    several, full = 0, []
    shapes = module(tmp_path / "shapes.py")
    with spdl_cluster.local(job, tensors="torch") as loader:
        for batch in loader:
            given = shapes.transformers(batch)
            for row, micro in enumerate(batch.packed(rows=1)):
                lengths = batch["document_lengths"][row].tolist()
                if not lengths:
                    continue
                used, several = sum(lengths), several + (len(lengths) > 1)
                parts = torch.split(batch["tokens"][row][:used], lengths)
                of_row = [{"input_ids": whole[part.numpy().tobytes()]} for part in parts]
                theirs = collate(of_row)
                for name in ("input_ids", "labels", "position_ids"):
                    assert theirs[name].dtype == given[name].dtype
                    assert torch.equal(theirs[name][0], given[name][row][:used]), name
                assert torch.equal(theirs["seq_idx"][0], batch["document_ids"][row][:used])
                # What is behind the documents is a segment of its own.
                assert (given["labels"][row][used:] == -100).all()
                assert theirs["cu_seq_lens_q"].dtype == micro.cu_seqlens.dtype == torch.int32
                assert theirs["cu_seq_lens_q"].tolist() == theirs["cu_seq_lens_k"].tolist() == micro.cu_seqlens.tolist()[: len(lengths) + 1]
                assert micro.max_seqlen == max(theirs["max_length_q"], seq_len - used)
                if used == seq_len:
                    full.append((of_row, {name: column[row].clone() for name, column in given.items() if name != "use_cache"}))
    assert several > 5 and full, "rows of several documents, and some without padding"
    # A micro-batch of several rows is what the collator makes of all their documents.
    theirs = collate([document for of_row, _ in full for document in of_row])
    for name in ("input_ids", "labels", "position_ids"):
        assert torch.equal(theirs[name][0], torch.cat([columns[name] for _, columns in full])), name


def test_packed_rows_are_those_of_torchtitans_texts(page: Recipe, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """torchtitan stores n - 1 places of a document of n tokens: ours has one more, at which nothing is learned."""
    texts = pytest.importorskip("torchtitan.hf_datasets.text_datasets", reason=ABSENT, exc_type=ImportError)
    import datasets
    import torch
    from torchtitan.components.tokenizer import BaseTokenizer

    class Bytes(BaseTokenizer):
        """Bytes are ids, and documents have an end."""

        def encode(self, text: str, add_bos: bool, add_eos: bool) -> list[int]:
            return [*text.encode("latin-1"), *([EOS] if add_eos else [])]

        def decode(self, ids: list[int]) -> str:
            return bytes(ids).decode("latin-1")

        def get_vocab_size(self) -> int:
            return EOS + 1

    # Without the empty one: theirs has an end without a beginning.
    of_corpus = [tokens for tokens in documents() if len(tokens)]
    write(tmp_path, of_corpus)
    whole = {numpy.append(tokens, EOS).astype("int32").tobytes(): bytes(tokens.astype("uint8")).decode("latin-1") for tokens in of_corpus}
    job = the_job(tmp_path, sequence={"seq_len": SEQ_LEN, "align": 1, "long": "drop"}, global_batch=4)
    several = 0
    shapes = module(tmp_path / "shapes.py")
    with spdl_cluster.local(job, tensors="torch") as loader:
        for batch in loader:
            inputs, labels = shapes.torchtitan(batch)
            for row in range(len(batch["tokens"])):
                lengths = batch["document_lengths"][row].tolist()
                if not lengths:
                    continue
                of_row = slice(row * SEQ_LEN, row * SEQ_LEN + sum(lengths))
                parts = torch.split(inputs["input"][of_row], lengths)
                of_documents = {"text": [whole[part.numpy().tobytes()] for part in parts]}
                config = texts.DatasetConfig(
                    path="", loader=lambda _: datasets.Dataset.from_dict(of_documents), sample_processor=lambda sample: sample["text"]
                )
                monkeypatch.setitem(texts.DATASETS, "row", config)
                places = sum(lengths) - len(lengths)
                [(theirs, their_labels)] = texts.HuggingFaceTextDataset("row", None, Bytes(), seq_len=places)
                learned = labels[of_row] != -100
                assert int(learned.sum()) == places and not learned[torch.tensor(lengths).cumsum(0) - 1].any()
                assert torch.equal(theirs["input"], inputs["input"][of_row][learned].long())
                assert torch.equal(theirs["positions"], inputs["positions"][of_row][learned].long())
                assert torch.equal(their_labels, labels[of_row][learned])
                several += len(lengths) > 1
    assert several > 5, "rows of several documents"
