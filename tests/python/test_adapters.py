"""Trainings in torchtitan, Hugging Face's `Trainer`, TRL and Megatron-core on sequences of a job: the losses are those of each project's own loader with the
same documents in the same order, and they resume as if nothing had been."""

from __future__ import annotations

import functools
import importlib
import json
import os
import pathlib
import sys
import types
from typing import Any

import numpy
import pytest
import spdl_cluster
import torchrun
from conftest import FRAMEWORKS_HERE, Cluster, ctl, needs, write_job
from spdl_cluster import SettingError
from test_language import EOS, Tokens, write_megatron
from test_recipes import ABSENT

torch = pytest.importorskip("torch", reason=os.environ.get("SPDL_TEST_NO_TORCH", "torch is not installed"))

HERE = pathlib.Path(__file__).parent
#: What programs import; torchtitan's changes torch before it imports more.
IMPORTS = {"torchtitan_program.py": "datasets,torch.distributed.fsdp", "trainer_program.py": "datasets,transformers.trainer", "megatron_program.py": ""}
#: Places of a sequence, of two documents with their ends.
SEQ_LEN = 96


def paired(rows: int) -> list[Tokens]:
    """Returns documents of which each sequence has two and no padding, whatever packs them: a text of few letters, so that there is something to learn."""
    drawn = numpy.random.default_rng(11)
    lengths = [length for first in drawn.integers(8, SEQ_LEN - 8, rows) for length in (int(first), SEQ_LEN - int(first))]
    return [numpy.cumsum(drawn.integers(0, 3, length - 1)).astype("uint16") % 26 + 97 for length in lengths]


def uneven(count: int) -> list[Tokens]:
    """Returns documents that leave padding, and some that are longer than a sequence."""
    drawn = numpy.random.default_rng(12)
    return [drawn.integers(97, 123, length).astype("uint16") for length in drawn.integers(5, 130, count)]


def a_job(folder: pathlib.Path, of_corpus: list[Tokens], rows: int, *, labels: dict[str, Any] | None = None, **keys: Any) -> dict[str, Any]:
    """Writes these documents, and returns a job with batches of `rows` sequences of them."""
    (folder / "tokens").mkdir()
    write_megatron(folder / "tokens", "all", of_corpus)
    ctl("index", folder / "tokens")
    following = [{"name": kind, "decode": kind, "follows": "tokens"} for kind in ("positions", "document_lengths")]
    tokens = {"name": "tokens", "from": "tokens", "decode": "tokens", "vocab": EOS + 1}
    columns = [tokens, {"name": "labels", "decode": "labels", "follows": "tokens", **(labels or {})}, *following]
    plain = {"name": "text", "dataset": folder / "tokens", "seed": 3, "global_batch": rows, "epoch_end": "exact"}
    return {**plain, "sequence": {"seq_len": SEQ_LEN, "align": 1, "eos": EOS}, **keys, "column": columns}


def in_order(job: dict[str, Any], steps: int | None = None) -> list[list[int]]:
    """Returns the documents of the first steps, with their ends, in the job's order."""
    found: list[list[int]] = []
    with spdl_cluster.local(job, tensors="torch") as loader:
        for _, batch in zip(range(steps or len(loader)), loader):
            for tokens, lengths in zip(batch["tokens"], batch["document_lengths"]):
                found += [part.tolist() for part in tokens.split(lengths.tolist())]
    return found


def run(program: str, *arguments: object, world: int = 0) -> list[Any]:
    """Runs a program, on ranks of torchrun or alone, and returns what each line of its output has."""
    alone = {} if world else {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    output = torchrun.finish(torchrun.torchrun(HERE / program, world, *arguments, imports=IMPORTS[program], folder=None, **alone))
    return [json.loads(line) for line in output.splitlines() if line.startswith('{"')]


def assert_trained(losses: list[float], steps: int) -> None:
    """Asserts that a training of so many steps has learned something."""
    assert len(losses) == steps and losses[-1] < losses[0] - 0.5, losses


@pytest.mark.drawn(1, group="trainings on tokens")
def test_torchtitan_has_the_losses_of_its_own_loader_and_resumes_exactly(tmp_path: pathlib.Path) -> None:
    needs("torchtitan", ABSENT)
    job = a_job(tmp_path, paired(60), 2)
    texts = ["".join(map(chr, ids[:-1])) for ids in in_order(job)]
    (tmp_path / "texts.json").write_text(json.dumps(texts))
    sizes = {"rows": 2, "steps": 20}
    # Its own loader has no place for the last token of a document.
    own = {**sizes, "texts": str(tmp_path / "texts.json"), "seq_len": SEQ_LEN - 2}
    ours = {**sizes, "job": str(write_job(job, tmp_path / "job.toml")), "seq_len": SEQ_LEN}
    stopped = {**ours, "every": 5, "stop": 10}
    trainings = run("torchtitan_program.py", tmp_path, *map(json.dumps, (own, ours, stopped, {**ours, "every": 5})))
    theirs, whole, before, after = [training["losses"] for training in trainings]
    assert_trained(theirs, 20)
    assert whole == pytest.approx(theirs, rel=1e-4)
    assert before == whole[:10] and after == whole[10:]



def build(job: pathlib.Path, **settings: Any) -> Any:
    """Returns torchtitan's dataloader of a job as its trainer makes it."""
    adapter = pytest.importorskip("spdl_cluster.torchtitan", reason=ABSENT, exc_type=ImportError)
    return adapter.DataLoader.Config(job=str(job)).build(tokenizer=None, **{"dp_world_size": 1, "dp_rank": 0, **settings})


@FRAMEWORKS_HERE
def test_batches_of_torchtitan_are_rows_in_0_3_and_flat_after_it(tmp_path: pathlib.Path) -> None:
    job = a_job(tmp_path, uneven(50), 4)
    path = write_job(job, tmp_path / "job.toml")
    of_rank = {"dp_world_size": 2, "dp_rank": 1}
    rows = list(build(path, **of_rank, seq_len=SEQ_LEN, local_batch_size=2, snapshot_every_n_steps=None))
    flat = list(build(path, **of_rank, max_context_length=SEQ_LEN, num_tokens_per_batch=2 * SEQ_LEN))
    with spdl_cluster.local(job, rank=1, world=2, tensors="torch") as loader:
        for (given, labels), (flat_given, flat_labels), batch in zip(rows, flat, loader, strict=True):
            assert sorted(given) == ["input", "positions"]
            for ours, flattened, expected in (
                (given["input"], flat_given["input"], batch["tokens"]),
                (given["positions"], flat_given["positions"], batch["positions"]),
                (labels, flat_labels, batch["labels"]),
            ):
                assert ours.dtype == flattened.dtype == torch.int64
                assert torch.equal(ours, expected.long()) and torch.equal(flattened, expected.long().flatten())


@FRAMEWORKS_HERE
def test_a_job_that_does_not_fit_torchtitan_is_refused_with_what_to_do(tmp_path: pathlib.Path) -> None:
    job = a_job(tmp_path, uneven(50), 4)
    sizes = {"seq_len": SEQ_LEN, "local_batch_size": 2}

    def refused(changes: dict[str, Any], **settings: Any) -> Any:
        with pytest.raises(SettingError) as error:
            next(iter(build(write_job({**job, **changes}, tmp_path / "job.toml"), **settings)))
        return str(error.value)

    assert f"`seq_len` of job `text` is {SEQ_LEN}, and torchtitan's sequences have 64 tokens" in refused({}, **{**sizes, "seq_len": 64})
    assert "no number of sequences of `max_context_length`, 96" in refused({}, max_context_length=SEQ_LEN, num_tokens_per_batch=100)
    assert 'set `epoch_end = "exact"`' in refused({"epoch_end": "partial", "shuffle": False}, **sizes)
    [tokens, labels, *others] = job["column"]
    unshifted = [tokens, {**labels, "shifted": False}, *others]
    assert "the ids at their places, and torchtitan takes the next ids\nhint: in the job's column of labels, leave" in refused({"column": unshifted}, **sizes)


@FRAMEWORKS_HERE
def test_a_state_of_torchtitan_is_that_of_every_rank_and_an_empty_one_the_beginning(tmp_path: pathlib.Path) -> None:
    path = write_job(a_job(tmp_path, uneven(50), 4), tmp_path / "job.toml")
    ranks = [build(path, dp_world_size=2, dp_rank=rank, seq_len=SEQ_LEN, local_batch_size=2) for rank in range(2)]
    fresh = ranks[0].state_dict()
    for rank in ranks:
        next(iter(rank))
    assert ranks[0].state_dict() == ranks[1].state_dict() != fresh
    alone = build(path, seq_len=SEQ_LEN, local_batch_size=1)
    whole = [labels for _, labels in build(path, seq_len=SEQ_LEN, local_batch_size=1)]
    alone.load_state_dict(ranks[0].state_dict())
    # A checkpoint asks for the keys of the state that it loads, and may save before the first batch.
    assert alone.state_dict() == ranks[0].state_dict()
    assert torch.equal(torch.stack([labels for _, labels in alone]), torch.stack(whole[4:]))
    again = build(path, seq_len=SEQ_LEN, local_batch_size=1)
    again.load_state_dict(fresh)
    again.load_state_dict({})
    assert torch.equal(torch.stack([labels for _, labels in again]), torch.stack(whole))


@FRAMEWORKS_HERE
def test_a_cluster_gives_torchtitan_the_same_and_resumes(cluster: Cluster, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    adapter = pytest.importorskip("spdl_cluster.torchtitan", reason=ABSENT, exc_type=ImportError)
    job = a_job(tmp_path, uneven(50), 4, name="titan")
    name = cluster.submit(job)
    monkeypatch.setenv("SPDL_COORD", str(cluster.coordinators))
    monkeypatch.setenv("SPDL_CERTS", str(cluster.folder / "certs/client"))
    sizes = {"dp_world_size": 1, "dp_rank": 0, "tokenizer": None, "seq_len": SEQ_LEN, "local_batch_size": 2}
    whole = [labels for _, labels in build(write_job(job, tmp_path / "job.toml"), seq_len=SEQ_LEN, local_batch_size=2)]

    def part(state: Any, steps: int) -> tuple[list[Any], Any]:
        # With a run of its own each time, as a launch has.
        monkeypatch.setenv("SPDL_RUN", f"titan-{steps}")
        served = adapter.DataLoader.Config(job=name, cluster=True).build(**sizes)
        # As a checkpoint that is loaded does.
        served.state_dict()
        served.load_state_dict(state)
        found = [labels for _, (_, labels) in zip(range(steps), served)]
        state = served.state_dict()
        served.close()
        return found, state

    first, state = part({}, 5)
    rest, _ = part(state, len(whole) - 5)
    assert torch.equal(torch.stack([*first, *rest]), torch.stack(whole))


def packed_corpus(folder: pathlib.Path, rows: int, steps: int) -> tuple[pathlib.Path, pathlib.Path]:
    """Writes a job for a model that shifts labels itself, and the documents of so many steps as lists of ids; returns their paths."""
    job = a_job(folder, paired(rows * steps), rows, labels={"shifted": False})
    (folder / "documents.json").write_text(json.dumps(in_order(job, steps)))
    return write_job(job, folder / "job.toml"), folder / "documents.json"


@pytest.mark.drawn(1, group="trainings on tokens")
@pytest.mark.parametrize("is_trl", [False, True], ids=["trainer", "trl"])
def test_trainer_has_the_losses_of_its_own_collator_and_resumes_exactly(is_trl: bool, tmp_path: pathlib.Path) -> None:
    for needed in ("transformers", *(["trl"] if is_trl else [])):
        needs(needed, ABSENT)
    job, documents = packed_corpus(tmp_path, 2, 40)
    steps = {"steps": 20, "accumulate": 2, "trl": is_trl}
    own = {**steps, "documents": str(documents), "batch": 4, "evaluate": True}
    ours = {**steps, "job": str(job)}
    trainings = [own, {**ours, "evaluate": True}, {**ours, "name": "stopped", "every": 5, "stop": 10}, {**ours, "name": "stopped", "every": 5, "resume": True}]
    theirs, whole, before, after = run("trainer_program.py", tmp_path, *map(json.dumps, trainings))
    assert_trained(theirs["losses"], 20)
    assert whole["losses"] == pytest.approx(theirs["losses"], rel=1e-4)
    assert whole["evaluated"] == pytest.approx(theirs["evaluated"], rel=1e-4)
    assert before["losses"] == whole["losses"][:10] and after["losses"] == whole["losses"]


@pytest.mark.drawn(1, group="trainings on tokens")
def test_megatrons_model_has_the_losses_of_its_own_dataset_and_resumes_exactly(tmp_path: pathlib.Path) -> None:
    needs("megatron.core.datasets.gpt_dataset", ABSENT)
    from test_language_peers import order_of_pool

    # As Megatron reads them: with their ends, cut wherever a sequence ends.
    of_corpus = [numpy.append(tokens, numpy.uint16(EOS)) for tokens in paired(90)]
    job = a_job(tmp_path, of_corpus, 4, sequence={"seq_len": SEQ_LEN, "method": "chunk"}, epoch_end="drop", epochs=1)
    order = order_of_pool(job["seed"], 0, len(of_corpus))
    text = numpy.concatenate([of_corpus[document] for document in order]).tolist()
    with spdl_cluster.local(job, tensors="torch") as loader:
        rows = [row.tolist() for batch in loader for row in batch["tokens"]]
    starts = {tuple(text[at : at + SEQ_LEN]): at // SEQ_LEN for at in range(0, len(text), SEQ_LEN)}
    sizes = {"rows": 2, "micro_batches": 2, "seq_len": SEQ_LEN, "steps": 20}
    own = {**sizes, "prefix": str(tmp_path / "tokens/all"), "documents": order, "samples": [starts[tuple(row)] for row in rows]}
    ours = {**sizes, "job": str(write_job(job, tmp_path / "job.toml"))}
    theirs, whole, after = run("megatron_program.py", *map(json.dumps, (own, ours, {**ours, "after": 10})))
    assert_trained(theirs["losses"], 20)
    assert whole == theirs
    # A new model on what is left.
    assert after["seen"] == whole["seen"][20:] and after["losses"][0] > whole["losses"][10]



@FRAMEWORKS_HERE
def test_the_arguments_of_a_model_are_those_of_transformers_flattening_collator(tmp_path: pathlib.Path) -> None:
    transformers = pytest.importorskip("transformers", reason=ABSENT)
    from spdl_cluster.transformers import collate

    job = a_job(tmp_path, paired(12), 3, labels={"shifted": False})
    theirs = transformers.DataCollatorWithFlattening(return_flash_attn_kwargs=True, return_seq_idx=True, return_tensors="pt")
    steps = 0
    with spdl_cluster.local(job, tensors="torch") as loader:
        for batch in loader:
            parts = [part for tokens, lengths in zip(batch["tokens"], batch["document_lengths"]) for part in tokens.split(lengths.tolist())]
            given, expected = collate(batch), theirs([{"input_ids": part.tolist()} for part in parts])
            assert given.pop("use_cache") is False and sorted(given) == sorted(expected)
            # Theirs are one row, in which documents are counted on.
            assert torch.equal(given.pop("seq_idx").flatten(), expected.pop("seq_idx")[0] % 2)
            for name, value in expected.items():
                ours = given[name]
                assert ours == value if isinstance(value, int) else torch.equal(ours.flatten(), value.flatten()) and ours.dtype == value.dtype, name
            steps += 1
    assert steps == 4
    with spdl_cluster.local({**job, "column": [{**column, "shifted": True} if column["name"] == "labels" else column for column in job["column"]]}, tensors="torch") as loader:
        with pytest.raises(SettingError, match="labels of job `text` are the next ids, and a model of transformers takes the ids at their places") as refused:
            collate(next(iter(loader)))
        assert "set `shifted = false`" in str(refused.value.hint)


def test_padding_is_a_document_of_its_own_for_a_model_with_a_state(tmp_path: pathlib.Path) -> None:
    with spdl_cluster.local(a_job(tmp_path, uneven(50), 4), tensors="torch") as loader:
        for batch in loader:
            for micro in batch.packed(2):
                counted = [[number for number, length in enumerate(lengths) for _ in range(length)] for lengths in micro.row_lengths]
                assert micro.segment_ids.dtype == torch.int32 and micro.segment_ids.tolist() == counted


@FRAMEWORKS_HERE
def test_bounds_of_documents_are_those_that_megatron_takes(tmp_path: pathlib.Path) -> None:
    pytest.importorskip("megatron.core.packed_seq_params", reason=ABSENT, exc_type=ImportError)
    from spdl_cluster.megatron import batches, get_batch

    job = a_job(tmp_path, uneven(50), 4)
    with spdl_cluster.local(job, tensors="torch") as loader, spdl_cluster.local(job, tensors="torch") as other:
        for batch, pair in zip(batches(loader, 2, packed=True), (micro for batch in other for micro in batch.packed(2)), strict=True):
            assert batch["loss_mask"].sum() == pair.loss_tokens and batch["labels"].min() >= 0
            assert (batch["max_seqlen"].dtype, batch["cu_seqlens"].dtype) == (torch.int32, torch.int32)
            for bounds, longest, lengths in zip(batch["cu_seqlens"].tolist(), batch["max_seqlen"].tolist(), pair.row_lengths, strict=True):
                assert bounds[0] == 0 and longest == max(lengths)
                assert [end - begin for begin, end in zip(bounds, bounds[1:]) if end > begin] == list(lengths) and bounds[-1] == SEQ_LEN
    with spdl_cluster.local(job, tensors="torch") as loader:
        one = get_batch(batches(loader, packed=True), "cpu")
        assert one["attention_mask"] is None
        params = one["packed_seq_params"]
        assert params.qkv_format == "thd" and params.cu_seqlens_q is params.cu_seqlens_kv and params.cu_seqlens_q.dim() == 1
        assert params.max_seqlen_q == params.max_seqlen_kv == one["max_seqlen"].item()
    with spdl_cluster.local(job, tensors="torch") as loader, pytest.raises(SettingError, match="has one sequence, and this one has 2"):
        get_batch(batches(loader, 2, packed=True), "cpu")


@FRAMEWORKS_HERE
@pytest.mark.parametrize("end", ["drop", "continuous", "exact"])
def test_megatron_goes_on_after_what_it_has_consumed(end: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parallel_state = pytest.importorskip("megatron.core.parallel_state", reason=ABSENT, exc_type=ImportError)
    from spdl_cluster.megatron import provider

    monkeypatch.setattr(parallel_state, "get_data_parallel_rank", lambda: 1)
    monkeypatch.setattr(parallel_state, "get_data_parallel_world_size", lambda: 2)
    job = a_job(tmp_path, uneven(50), 4, epoch_end=end)

    def given(consumed: int, steps: int) -> list[Any]:
        sizes = {"global_batch_size": 4, "micro_batch_size": 2, "seq_length": SEQ_LEN}
        args = types.SimpleNamespace(dataloader_type="external", consumed_train_samples=consumed, **sizes)
        monkeypatch.setitem(sys.modules, "megatron.training", types.SimpleNamespace(get_args=lambda: args))
        train, valid, test = provider(functools.partial(spdl_cluster.local, job), functools.partial(spdl_cluster.local, job))([0, 0, 0])
        assert test is None and next(valid)["tokens"].shape == (2, SEQ_LEN)
        return [batch["tokens"].tolist() for _, batch in zip(range(steps), train)]

    whole = given(0, 27)
    with spdl_cluster.local(job, tensors="torch") as loader:
        assert 27 > 2 * len(loader), "it is in the third epoch"
    assert given(4 * 4, 23) == whole[4:] and given(25 * 4, 2) == whole[25:]


@FRAMEWORKS_HERE
def test_a_trainer_that_takes_other_batches_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    from spdl_cluster.megatron import provider

    args = types.SimpleNamespace(dataloader_type="single")
    with monkeypatch.context() as patched:
        patched.setitem(sys.modules, "megatron.training", types.SimpleNamespace(get_args=lambda: args))
        # Where it is not installed, the error is Python's.
        pytest.importorskip("megatron.core.parallel_state", reason=ABSENT, exc_type=ImportError)
        with pytest.raises(SettingError, match="`--dataloader-type` is `single`") as refused:
            provider(spdl_cluster.local)([0, 0, 0])
        assert "start with `--dataloader-type external`" in str(refused.value.hint)
    pytest.importorskip("transformers", reason=ABSENT)
    from spdl_cluster.transformers import PackedTrainer

    with pytest.raises(SettingError, match="takes batches of a loader, and this one is a `dict`"):
        PackedTrainer().get_batch_samples(iter([{}]), 1, "cpu")


@pytest.mark.parametrize("framework", ["torchtitan", "transformers"])
def test_a_framework_that_is_not_there_is_named(framework: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == framework]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, framework, None)
    monkeypatch.delitem(sys.modules, f"spdl_cluster.{framework}", raising=False)
    with pytest.raises(ImportError, match=f"needs {framework}, which cannot be imported: `pip install {framework}`"):
        importlib.import_module(f"spdl_cluster.{framework}")
