"""The loader: epochs, positions, states, receipts and errors."""

from __future__ import annotations

import logging
import os
import pathlib
import pickle
import threading
import time
import typing
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import spdl_cluster
from conftest import LIMIT_S, PICTURES, MakeJob, add, ctl_json
from spdl_cluster import insight, opening

JobFile = Callable[[dict[str, Any]], pathlib.Path]


def ids(loader: spdl_cluster.Loader) -> list[int]:
    """Returns copies of the ids of one `for`."""
    return [sample for batch in loader for sample in batch.ids.tolist()]


def test_a_for_is_an_epoch_and_the_next_one_the_next(job: MakeJob) -> None:
    steps = PICTURES // 24
    with spdl_cluster.local(job(epochs=2)) as loader:
        assert (len(loader), loader.epochs, loader.samples, loader.global_batch) == (steps, 2, 24 * steps, 24)
        epochs = []
        for epoch in range(loader.epochs):
            assert loader.epoch == epoch
            epochs.append(ids(loader))
        assert loader.epoch == 2
        assert loader.steps_left == 0
        with pytest.raises(spdl_cluster.FinishedError):
            ids(loader)
        assert loader.next() is None
    assert [len(epoch) for epoch in epochs] == [24 * steps] * 2
    assert [len(set(epoch)) for epoch in epochs] == [24 * steps] * 2
    assert epochs[0] != epochs[1]


@pytest.mark.parametrize("epoch_end", ["exact", "pad", "continuous", "partial"])
def test_every_sample_comes_once_an_epoch_however_epochs_end(job: MakeJob, epoch_end: str) -> None:
    with spdl_cluster.local(job(epochs=3, epoch_end=epoch_end)) as loader:
        epochs = []
        for _ in range(loader.epochs):
            entries = [(batch.epochs.tolist(), batch.ids.tolist(), batch.valid.tolist()) for batch in loader]
            epochs.append([(e, i) for batch in entries for e, i, valid in zip(*batch) if valid])
            assert abs(len(entries) - len(loader)) <= (1 if epoch_end == "continuous" else 0)
    seen = [entry for epoch in epochs for entry in epoch]
    assert len(set(seen)) == len(seen)
    # 600 samples are exactly 25 batches.
    assert len(seen) == 3 * PICTURES
    if epoch_end != "continuous":
        assert [{e for e, _ in epoch} for epoch in epochs] == [{0}, {1}, {2}]


def test_a_break_goes_on_where_it_was(job: MakeJob) -> None:
    with spdl_cluster.local(job()) as loader:
        whole = ids(loader)
    with spdl_cluster.local(job()) as loader:
        first = next(iter(loader))
        start = first.ids.tolist()
        assert first.position == (0, 0)
        assert first.next_position == loader.position == (0, 24)
        del first
        assert start + ids(loader) == whole


def test_a_state_is_what_was_handed_over_and_resumes_at_any_world_size(job: MakeJob) -> None:
    with spdl_cluster.local(job()) as loader:
        whole = ids(loader)
    with spdl_cluster.local(job(), slots=6) as loader:
        before = []
        for step, batch in enumerate(loader):
            before += batch.ids.tolist()
            if step == 2:
                break
        # Batches that are prefetched but not delivered do not count.
        state = loader.state_dict()
        assert (state["epoch"], state["offset"]) == (0, 72)
        assert before == whole[:72]
    rest: list[int] = []
    for rank in range(3):
        with spdl_cluster.local(job(), rank, 3, state=state) as loader:
            assert loader.state_dict() == state
            rest += ids(loader)
    assert sorted(before + rest) == sorted(whole)


def test_a_state_after_a_batch_does_not_count_what_was_taken_since(job: MakeJob) -> None:
    with spdl_cluster.local(job(), tensors="numpy") as loader:
        epoch = iter(loader)
        first, second = next(epoch), next(epoch)
        third = next(epoch).ids.tolist()
        state = loader.state_dict(after=second)
        assert loader.state_dict() != state == {**loader.state_dict(after=first), "offset": 48}
    with spdl_cluster.local(job(), state=state) as loader:
        assert next(iter(loader)).ids.tolist() == third


def test_a_state_can_be_loaded_before_and_after_the_first_use(job: MakeJob) -> None:
    with spdl_cluster.local(job()) as loader:
        first = next(iter(loader)).ids.tolist()
        state = loader.state_dict()
        second = next(iter(loader)).ids.tolist()
        loader.load_state_dict(state)
        assert next(iter(loader)).ids.tolist() == second
    with spdl_cluster.local(job()) as loader:
        loader.load_state_dict(state)
        assert loader.state_dict() == state
        assert next(iter(loader)).ids.tolist() == second != first


def test_wrong_states_are_refused_by_name(job: MakeJob) -> None:
    with spdl_cluster.local(job()) as loader:
        good = loader.state_dict()
        for bad, message in [
            ({**good, "spdl_state": 9}, "version 9"),
            ({**good, "extra": 1}, "extra"),
            ({**good, "epoch": -1}, "-1"),
            ({}, "spdl_state"),
            ("nonsense", "cannot be read"),
            (b"\xff\xfe", "cannot be read"),
            ({"epoch": object()}, "cannot be read"),
        ]:
            with pytest.raises(spdl_cluster.StateError, match=message) as error:
                loader.load_state_dict(bad)  # type: ignore[arg-type]
            assert isinstance(error.value, ValueError)
        assert loader.state_dict() == good
    with pytest.raises(spdl_cluster.StateError, match="fingerprint") as error:
        spdl_cluster.local(job(seed=6), state=good).position
    assert "checkpoint is of another" in (error.value.hint or "")


@pytest.mark.parametrize("keys", [{}, {"global_batch": 66, "epoch_end": "partial"}], ids=["drop", "partial"])
def test_receipts_and_digests_are_those_of_the_plan_and_of_replay(keys: dict[str, Any], job: MakeJob, job_file: JobFile) -> None:
    made = job({"name": "raw", "from": "jpg", "decode": "bytes", "max_bytes": 400_000}, epochs=2, **keys)
    path = job_file(made)
    receipts, digests = [], []
    for rank in range(3):
        with spdl_cluster.local(made, rank, 3) as loader:
            for _ in range(2):
                digests += [batch.content_digest() for batch in loader]
            receipts.append(loader.receipt)
    audited = [argument for receipt in receipts for argument in ("--receipt", receipt)]
    assert ctl_json("audit", path, *audited)["equal"]
    replayed = ctl_json("replay", path, "--all")
    assert (replayed["receipt"], replayed["content_digest"]) == (add(receipts), add(digests))


def test_a_dict_and_a_job_file_are_the_same_job(job: MakeJob, job_file: JobFile) -> None:
    with spdl_cluster.local(job()) as loader:
        by_dict = loader.state_dict()
    for path in (job_file(job()), str(job_file(job()))):
        with spdl_cluster.local(path) as loader:
            assert loader.state_dict() == by_dict
            assert loader.job == "test"


def test_settings_that_make_no_sense_are_named(job: MakeJob, tmp_path: pathlib.Path) -> None:
    def refuses(message: str, kind: type[Exception] = spdl_cluster.SettingError, **settings: Any) -> None:
        with pytest.raises(kind, match=message):
            loader = spdl_cluster.local(**{"job": job(), **settings})
            loader.position

    refuses("rank 2 is not below world 2", rank=2, world=2)
    refuses("world 25 is more than the global batch of 24", rank=0, world=25)
    refuses("`timeout` is 0", timeout=0)
    refuses("`tensors` is 'cupy'", tensors="cupy")
    refuses("device `tpu` is none; there are", device="tpu")
    refuses("`buffers` is 1, not in 2..=64", device_options=spdl_cluster.DeviceOptions(buffers=1))
    for message, by in (
        ("`mean` of column `image` is .*, not three numbers", {"mean": (0.5,)}),
        ("`dtype` of column `image` is \"f64\"", {"dtype": "f64"}),
        ("`layout` of column `image` is \"nhwc\"", {"layout": "nhwc"}),
        ("std of zero", {"std": (1, 0, 1)}),
        ("probability 1.5", {"flip": 1.5}),
    ):
        normalise: Any = {"image": spdl_cluster.Normalise(**{"mean": (0, 0, 0), "std": (1, 1, 1), **by})}  # type: ignore[arg-type]
        refuses(message, device_options=spdl_cluster.DeviceOptions(normalise=normalise))
    by_name = {"label": spdl_cluster.Normalise((0, 0, 0), (1, 1, 1))}
    refuses("needs U8 .* in column `label`", device_options=spdl_cluster.DeviceOptions(normalise=by_name))
    refuses("there is no key `lable`", job=job(lable=1))
    refuses("job.column.2.from is a `object`", job=job({"name": "x", "from": object()}))
    refuses("job is a `int`|expected str", Exception, job=3)
    refuses("nowhere.toml", job=tmp_path / "nowhere.toml")
    refuses("nothing-here", spdl_cluster.DataError, job=job(dataset=tmp_path / "nothing-here"))
    assert issubclass(spdl_cluster.SettingError, ValueError)


def test_rank_and_world_come_from_the_environment(job: MakeJob, monkeypatch: pytest.MonkeyPatch) -> None:
    # The launcher's number is the last to count.
    monkeypatch.setenv("SPDL_LAUNCHER", "2")
    monkeypatch.setenv("SPDL_LAUNCHERS", "3")
    assert (spdl_cluster.local(job()).rank, spdl_cluster.local(job()).world) == (2, 3)
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with spdl_cluster.local(job()) as loader:
        assert (loader.rank, loader.world) == (1, 2)
        assert next(iter(loader)).samples == 12
    monkeypatch.setenv("WORLD_SIZE", "two")
    with pytest.raises(spdl_cluster.SettingError, match="`WORLD_SIZE` is `two`"):
        spdl_cluster.local(job()).position


def test_a_loader_is_not_pickled_and_a_batch_is_copied(job: MakeJob) -> None:
    with spdl_cluster.local(job(), tensors="numpy") as loader:
        with pytest.raises(spdl_cluster.SpdlError, match="cannot be pickled"):
            pickle.dumps(loader)
        batch = next(iter(loader))
        copy = pickle.loads(pickle.dumps(batch))
        assert type(copy) is dict
        assert all(numpy.array_equal(copy[name], batch[name]) for name in batch)
        moved = type(batch)({name: tensor + 1 for name, tensor in batch.items()})
        assert moved["label"].tolist() == [label + 1 for label in batch["label"].tolist()]
        with pytest.raises(AttributeError, match="only a batch that comes from a loader"):
            moved.position


def test_a_closed_loader_raises_and_its_batches_stay(job: MakeJob) -> None:
    loader = spdl_cluster.local(job(), tensors="numpy")
    batch = next(iter(loader))
    digest, label = batch.content_digest(), batch["label"]
    loader.close()
    loader.close()
    with pytest.raises(spdl_cluster.ClosedError, match="closed"):
        next(iter(loader))
    assert batch.content_digest() == digest
    del batch
    assert len(label.tolist()) == 24


def test_stats_count_what_was_delivered(job: MakeJob) -> None:
    with spdl_cluster.local(job()) as loader:
        delivered = len(ids(loader))
        stats = loader.stats()
    assert (stats["batches"], stats["samples"]) == (len(loader_steps := range(PICTURES // 24)), delivered)
    assert stats["bytes"] > delivered * 32 * 32 * 3
    assert stats["serving"]["transport"] == "in_process"
    decoded = {stage["name"]: stage["items"] for stage in stats["stages"]}
    assert decoded["hand-over"] == len(loader_steps)
    assert decoded["decode"] >= delivered


def test_requests_in_flight_and_read_ahead_are_pinned_by_a_number(job: MakeJob) -> None:
    with spdl_cluster.local(job(), requests=7, read_ahead=3) as loader:
        ids(loader)
        units = {stage["name"]: stage["units"] for stage in loader.stats()["stages"]}
    assert units["fetch"] == 7
    with pytest.raises(spdl_cluster.SettingError, match="`requests`: 0 is not 1 to 512"):
        spdl_cluster.local(job(), requests=0)
    with pytest.raises(spdl_cluster.SettingError, match="`read_ahead`: 513 is not 1 to 512"):
        spdl_cluster.local(job(), read_ahead=513)


def test_local_loaders_share_a_cache_on_disk_that_outlives_them(job: MakeJob, tmp_path: pathlib.Path) -> None:
    def fetched(loader: spdl_cluster.Loader) -> int:
        return {stage["name"]: stage["bytes"] for stage in loader.stats()["stages"]}["fetch"]

    with spdl_cluster.local(job(), cache_dir=tmp_path / "cache", cache_bytes=1 << 30) as loader:
        whole = ids(loader)
        # Blocks are written behind the batches.
        deadline = time.monotonic() + LIMIT_S
        while sum(path.stat().st_size for path in (tmp_path / "cache").glob("blk-*") if path.suffix != ".tmp") < 0.95 * fetched(loader):
            assert time.monotonic() < deadline, os.listdir(tmp_path / "cache")
            time.sleep(0.05)
        with spdl_cluster.local(job(), cache_dir=tmp_path / "cache") as other:
            assert ids(other) == whole
            # It reads the shards' indexes.
            assert 0 < fetched(other) < fetched(loader) / 10
            assert other.receipt == loader.receipt
    with pytest.raises(spdl_cluster.SettingError, match="`cache_bytes`: it is the size of `cache_dir`"):
        spdl_cluster.local(job(), cache_bytes=1)


def diagnosed(loader: spdl_cluster.Loader) -> spdl_cluster.Diagnosis:
    """Takes batches until a diagnosis covers some of them."""
    while True:
        loader.next()
        found = loader.diagnose()
        if found is not None and found.samples_per_s > 0:
            return found


def test_a_loader_diagnoses_itself_and_predicts_changes(job: MakeJob) -> None:
    with spdl_cluster.local(job(epochs=1_000_000), cores=0.2) as loader:
        found = diagnosed(loader)
        assert found.limit in typing.get_args(insight.Limit)
        assert found.verdict == str(found) and found.verdict in repr(found) and "rank 0" in found.verdict
        assert [term.samples_per_s for term in found.terms] == sorted(term.samples_per_s for term in found.terms)
        assert 0 <= found.waiting <= 1 and found.next in [*found.terms, None]
        same, more = found.what_if(), found.what_if(cores=0.2)
        rounding = 1 + 1e-9
        assert 0 < same.samples_per_s <= found.terms[0].samples_per_s * rounding
        assert more.samples_per_s >= same.samples_per_s / rounding
        assert found.what_if(step=1000).waiting <= same.waiting + 1e-6
        assert found.what_if(workers=2).samples_per_s == same.samples_per_s, "a rank has one worker"
        with pytest.raises(spdl_cluster.SettingError, match="`step` is -1, not a factor"):
            found.what_if(step=-1)
    with pytest.raises(spdl_cluster.ClosedError):
        loader.diagnose()


@pytest.mark.filterwarnings("ignore::spdl_cluster.SlotsExhaustedWarning")
def test_a_diagnosis_does_not_wait_for_a_batch_that_another_thread_waits_for(job: MakeJob) -> None:
    with spdl_cluster.local(job(epochs=1_000_000), slots=1, timeout=LIMIT_S) as loader:
        held = loader.next()
        taken: list[spdl_cluster.Batch | None] = []
        waiting = threading.Thread(target=lambda: taken.append(loader.next()))
        waiting.start()
        while waiting.is_alive() and loader.diagnose() is None:
            pass
        answered_meanwhile = waiting.is_alive()
        # What it waits for is the slot of this one.
        del held
        waiting.join(LIMIT_S)
    assert answered_meanwhile and taken and taken[0] is not None


def test_metrics_are_flat_numbers(job: MakeJob) -> None:
    with spdl_cluster.local(job(epochs=1_000_000)) as loader:
        while not loader.stats()["windows"]:
            loader.next()
        stats, metrics = loader.stats(), loader.metrics("loader/")
    assert [window["window_ms"] for window in stats["windows"]] == [1_000, 10_000, 60_000]
    assert {stage["name"] for window in stats["windows"] for stage in window["stages"]} >= {"decode", "hand-over"}
    assert metrics["loader/samples"] >= stats["samples"] > 0 and 0 <= metrics["loader/waiting"] <= 1
    assert all(type(value) is float and name.startswith("loader/") for name, value in metrics.items())


def test_a_line_is_logged_for_each_interval(job: MakeJob, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(spdl_cluster.SettingError, match="`log_every` is 0, not a number of seconds above 0"):
        spdl_cluster.local(job(), log_every=0)
    with caplog.at_level(logging.INFO, logger="spdl_cluster"):
        with spdl_cluster.local(job(name="logged", epochs=1_000_000), log_every=0.05) as loader:
            def lines_of_interval() -> list[logging.LogRecord]:
                return [record for record in caplog.records if "job `logged`: " in record.getMessage() and " samples/s; " in record.getMessage()]

            loggers = set(logging.Logger.manager.loggerDict)
            while not lines_of_interval():
                loader.next()
            [name] = {record.name for record in lines_of_interval()}
            assert name.startswith("spdl_cluster.") and set(logging.Logger.manager.loggerDict) == loggers, "what goes through them is not disturbed"
            own = logging.getLogger(name)
            own.addHandler(caplog.handler)
            caplog.clear()
            while len(lines_of_interval()) < 2:
                loader.next()
            own.removeHandler(caplog.handler)
    first, second, *_ = lines_of_interval()
    assert first is second, "a logger that the program has gets its lines, and those above it do"


def test_a_relative_dataset_is_relative_to_its_job_file(job: MakeJob, dataset: pathlib.Path, job_file: JobFile) -> None:
    path = job_file(job())
    text = path.read_text()
    assert str(dataset) in text
    beside = path.parent / "dataset"
    beside.symlink_to(dataset)
    path.write_text(text.replace(str(dataset), "dataset"))
    with spdl_cluster.local(path) as loader:
        assert loader.samples == PICTURES // 24 * 24


def test_cores_that_make_no_sense_are_refused_or_explained(job: MakeJob) -> None:
    with pytest.raises(spdl_cluster.SettingError, match="`cores` is 0: give a number of cores above 0"):
        spdl_cluster.local(job(), cores=0).next()
    with pytest.warns(UserWarning, match="cores=100000 is more than the .* a share of them is"):
        spdl_cluster.local(job(), cores=100_000)


def test_a_batch_that_the_samples_never_fill_is_refused(job: MakeJob) -> None:
    for loader in (spdl_cluster.local(job(global_batch=PICTURES + 1)), spdl_cluster.local(job(), global_batch=PICTURES + 1)):
        with pytest.raises(spdl_cluster.SettingError, match="never fill it"):
            loader.next()


def test_cores_are_a_number_or_a_share_of_the_node(job: MakeJob, monkeypatch: pytest.MonkeyPatch) -> None:
    there = len(os.sched_getaffinity(0))
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert opening._core_count("50%") == there / 4
    assert opening._core_count(" 12.5 % ") == there / 16
    with spdl_cluster.local(job(), cores="100%") as loader:
        assert loader.next() is not None
    for wrong in ("0%", "101%", "40", "many", "-1%"):
        with pytest.raises(spdl_cluster.SettingError, match=f"`cores` is '{wrong}', neither a number nor a share"):
            spdl_cluster.local(job(), cores=wrong)


def test_a_for_gives_tuples_of_the_columns_that_are_asked_for(job: MakeJob) -> None:
    with spdl_cluster.local(job(), tensors="numpy", tuples=("label", "image")) as loader, spdl_cluster.local(job(), tensors="numpy") as batches:
        count = 0
        for (label, image), batch in zip(loader, batches, strict=True):
            assert numpy.array_equal(label, batch["label"]) and numpy.array_equal(image, batch["image"])
            count += 1
        assert count == len(loader)
    with spdl_cluster.local(job(), tensors="numpy", tuples=["label"]) as loader:
        whole = loader.next()
        assert whole is not None and whole.samples == len(whole["label"])
    for names, hint in ((["imag"], "did you mean `image`"), (["x"], "its columns are `image`, `label`")):
        with spdl_cluster.local(job(), tuples=names) as loader, pytest.raises(spdl_cluster.SettingError, match=hint):
            next(iter(loader))
    with pytest.raises(spdl_cluster.SettingError, match="`tuples` is the text `label`, not the names of columns"):
        spdl_cluster.local(job(), tuples="label")


def test_a_seed_of_a_run_is_as_that_of_a_job(job: MakeJob) -> None:
    def found(made: dict[str, Any], seed: int | None) -> tuple[list[int], dict[str, Any]]:
        with spdl_cluster.local(made, seed=seed) as loader:
            return ids(loader), loader.state_dict()

    of_job, state = found(job(seed=9), None)
    assert found(job(), 9) == (of_job, state)
    assert found(job(), None)[0] != of_job
    assert ids(spdl_cluster.local(job(epochs=2), seed=9, state=found(job(epochs=2), 9)[1])) != of_job
    with spdl_cluster.local(job(), state=state) as loader, pytest.raises(spdl_cluster.StateError):
        loader.next()
    with pytest.raises(OverflowError):
        spdl_cluster.local(job(), seed=-1)
