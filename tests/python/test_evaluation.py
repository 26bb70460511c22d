"""Repeated loops over a loader: an evaluation gives the whole dataset in each `for`; a finished loader raises an error."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import spdl_cluster
from conftest import PICTURES, Cluster, MakeJob, at_once, ctl_json

#: Every sample once, in the dataset's order; the last batch is short.
EVALUATION = {"shuffle": False}
EVERYTHING = list(range(PICTURES))


def ids(loader: spdl_cluster.Loader) -> list[int]:
    """Returns the ids of the valid entries of one `for`."""
    return [i for batch in loader for i, valid in zip(batch.ids.tolist(), batch.valid.tolist()) if valid]


def take(loader: spdl_cluster.Loader, steps: int) -> None:
    """Runs a loop and leaves it after a number of steps."""
    for step, _ in enumerate(loader, 1):
        if step == steps:
            break


@pytest.fixture(params=["local", "cluster"])
def loader(request: pytest.FixtureRequest, job: MakeJob) -> Iterator[Callable[..., spdl_cluster.Loader]]:
    """Returns a function that makes loaders of a job, in this process or of a cluster."""
    made: list[spdl_cluster.Loader] = []
    submitted: set[str] = set()

    def make(settings: dict[str, Any], rank: int = 0, world: int = 1, **keys: Any) -> spdl_cluster.Loader:
        if request.param == "local":
            made.append(spdl_cluster.local(job(**settings), rank, world, tensors="numpy", **keys))
        else:
            cluster: Cluster = request.getfixturevalue("cluster")
            name = settings.setdefault("name", f"evaluation-{request.node.originalname}")
            if name not in submitted:
                submitted.add(cluster.submit(job(**settings)))
            made.append(cluster.connect(rank, world, job=name, tensors="numpy", **keys))
        return made[-1]

    yield make
    for loader in made:
        loader.close()


def test_an_evaluation_gives_the_whole_dataset_at_every_for_also_after_a_break(
    loader: Callable[..., spdl_cluster.Loader], job: MakeJob, tmp_path: pathlib.Path
) -> None:
    validation = loader(dict(EVALUATION))
    # Like Lightning's sanity check.
    take(validation, 2)
    assert (validation.position, validation.repeat) == ((0, 48), True)
    receipts = []
    for _ in range(3):
        assert ids(validation) == EVERYTHING
        receipts.append(validation.receipt)
    assert validation.position == (1, 0)
    take(validation, 3)
    partial = validation.receipt
    assert ids(validation) == EVERYTHING
    # The receipt is always that of one epoch of the plan, whatever loops came before.
    assert {*receipts, validation.receipt} == {receipts[0]}
    assert partial != receipts[0]
    assert validation.stats()["samples"] == 4 * PICTURES + 48 + 72
    while validation.next() is not None:
        pass
    assert ids(validation) == EVERYTHING


def test_every_rank_starts_an_evaluation_again_when_its_loop_does(
    loader: Callable[..., spdl_cluster.Loader], job: MakeJob, job_file: Callable[[dict[str, Any]], pathlib.Path]
) -> None:
    settings = dict(EVALUATION, name="evaluation-of-two")
    ranks = [loader(settings, rank, 2) for rank in range(2)]
    seen: list[list[list[int]]] = [[], []]

    def evaluate(rank: int) -> None:
        take(ranks[rank], 1 + rank)
        for _ in range(2):
            seen[rank].append(ids(ranks[rank]))

    at_once(2, evaluate)
    for one, other in zip(*seen, strict=True):
        assert sorted(one + other) == EVERYTHING
    receipts = [argument for rank in ranks for argument in ("--receipt", rank.receipt)]
    assert ctl_json("audit", job_file(job(**settings)), *receipts)["equal"]


def test_a_loader_that_is_finished_raises_when_it_is_iterated_again(loader: Callable[..., spdl_cluster.Loader]) -> None:
    training = loader({"name": "finished", "epochs": 2})
    for _ in range(training.epochs):
        take(training, 1000)
    for _ in range(2):
        with pytest.raises(spdl_cluster.FinishedError, match="job `finished` is finished: all 2 epochs are delivered") as error:
            ids(training)
        assert "`epochs=10`" in (error.value.hint or "") and "`repeat=True`" in (error.value.hint or "")
    assert training.next() is None
    finished = training.state_dict()
    training.close()
    with pytest.raises(spdl_cluster.FinishedError):
        ids(loader({"name": "finished", "epochs": 2}, state=finished))


def test_a_training_that_repeats_has_another_order_and_other_crops_in_each_pass(loader: Callable[..., spdl_cluster.Loader]) -> None:
    passes, pictures = [], []
    training = loader({"name": "endless"}, repeat=True)
    # Longer than the job, which has one epoch.
    for epoch in range(5):
        batches = [(batch.ids.tolist(), batch.position, batch.content_digest()) for batch in training]
        assert [position for _, position, _ in batches] == [(epoch, 24 * step) for step in range(8)]
        passes.append([i for own, *_ in batches for i in own])
        pictures.append([digest for *_, digest in batches])
    assert all(len(set(seen)) == training.samples == 192 for seen in passes)
    assert len({tuple(seen) for seen in passes}) == len({tuple(seen) for seen in pictures}) == 5
    take(training, 3)
    assert len(ids(training)) == 5 * 24, "the rest of the epoch"
    state = training.state_dict()
    expected = ids(training)
    training.close()
    assert ids(loader({"name": "endless"}, repeat=True, state=state)) == expected


def test_an_evaluation_repeats_or_not_as_the_option_says(job: MakeJob) -> None:
    with spdl_cluster.local(job(**EVALUATION), repeat=True) as loader:
        take(loader, 1)
        assert [ids(loader), ids(loader)] == [EVERYTHING] * 2
    with spdl_cluster.local(job(**EVALUATION), repeat=False) as loader:
        assert ids(loader) == EVERYTHING
        with pytest.raises(spdl_cluster.FinishedError):
            ids(loader)
    with spdl_cluster.local(job(**EVALUATION, epochs=2)) as loader:
        assert not loader.repeat


def test_the_next_for_begins_the_epoch_that_a_trainer_sets(loader: Callable[..., spdl_cluster.Loader]) -> None:
    settings = {"name": "followed", "epochs": 4}
    training = loader(settings)
    epochs = [ids(training) for _ in range(4)]
    training.sampler.set_epoch(2)
    assert (training.position, ids(training)) == ((2, 0), epochs[2])
    training.set_epoch(0)
    take(training, 3)
    # It is in the epoch already.
    training.set_epoch(0)
    assert ids(training) == epochs[0][72:]
    take(training, 2)
    training.set_epoch(2)
    assert ids(training) == epochs[2]
    training.set_epoch(9)
    with pytest.raises(spdl_cluster.FinishedError, match="all 4 epochs"):
        ids(training)
    with pytest.raises(spdl_cluster.SettingError, match="below 0"):
        training.set_epoch(-1)
    state = {**training.state_dict(), "epoch": 1, "offset": 0}
    training.close()
    with pytest.warns(UserWarning, match="goes on at 3:0, where the trainer is, and not at 1:0"):
        later = loader(settings, state=state)
        later.set_epoch(3)
    assert ids(later) == epochs[3]
    later.close()
    # Where the launch says where to start, the trainer does not.
    started = loader(settings, start="1:24")
    started.set_epoch(0)
    assert ids(started) == epochs[1][24:]


def test_an_evaluation_is_not_moved_by_a_trainer_s_epochs(job: MakeJob) -> None:
    with spdl_cluster.local(job(**EVALUATION)) as loader:
        for epoch in range(3):
            loader.set_epoch(epoch)
            assert ids(loader) == EVERYTHING


def test_ranks_that_do_not_share_a_batch_evenly_are_warned(job: MakeJob) -> None:
    with spdl_cluster.local(job(global_batch=64), 0, 3) as loader, pytest.warns(UserWarning, match="parts of 21 and 22.*`global_batch=63`"):
        next(iter(loader))


def test_an_evaluation_goes_on_from_a_state_and_then_begins_again(job: MakeJob) -> None:
    with spdl_cluster.local(job(**EVALUATION)) as loader:
        take(loader, 2)
        state = loader.state_dict()
        ids(loader)
        finished = loader.state_dict()
    for start, first in ((state, EVERYTHING[48:]), (finished, EVERYTHING)):
        with spdl_cluster.local(job(**EVALUATION), state=start) as loader:
            assert [ids(loader), ids(loader)] == [first, EVERYTHING]


def test_the_last_batch_of_an_evaluation_is_short_and_all_of_it_counts(loader: Callable[..., spdl_cluster.Loader], job: MakeJob) -> None:
    for world in (1, 2, 3):
        ranks = [loader({"name": "short", **EVALUATION}, rank, world) for rank in range(world)]
        batches = [list(map(summary, rank)) for rank in ranks]
        # 200 samples in batches of 24: the last has 8.
        for rank, (loaded, own) in enumerate(zip(ranks, batches)):
            assert len(loaded) == len(own) == 9
            assert own[-1][:2] == ((0, 192), (1, 0))
            share = (rank + 1) * 8 // world - rank * 8 // world
            assert own[-1][2:4] == ((share, 32, 32, 3), share)
            assert loaded.position == (1, 0) and loaded.steps_left == 0
        assert sorted(i for own in batches for *_, seen in own for i in seen) == EVERYTHING
        for loaded in ranks:
            loaded.close()


def summary(batch: spdl_cluster.Batch) -> tuple[Any, ...]:
    """Returns positions, shapes, the number of valid entries, and the ids of a batch."""
    return (batch.position, batch.next_position, batch["image"].shape, int(batch.valid.sum()), batch.ids.tolist())


def test_a_rank_without_a_share_of_the_last_batch_ends_a_step_earlier_at_the_same_position(
    loader: Callable[..., spdl_cluster.Loader], job: MakeJob, job_file: Callable[[dict[str, Any]], pathlib.Path]
) -> None:
    # 200 samples in batches of 66: the last has 2, for ranks 1 and 3 of 4.
    settings = {"name": "few", "global_batch": 66, **EVALUATION}
    ranks = [loader(settings, rank, 4) for rank in range(4)]
    for _ in range(2):
        seen = [ids(rank) for rank in ranks]
        assert sorted(i for own in seen for i in own) == EVERYTHING
        assert [len(rank) for rank in ranks] == [3, 4, 3, 4]
        assert {rank.position for rank in ranks} == {(1, 0)}
        assert {json.dumps(rank.state_dict()) for rank in ranks} == {json.dumps(ranks[0].state_dict())}
    receipts = [argument for rank in ranks for argument in ("--receipt", rank.receipt)]
    assert ctl_json("audit", job_file(job(**settings)), *receipts)["equal"]
    # A state in the middle of the epoch, before the batch that a rank has no share of.
    state = {**ranks[0].state_dict(), "epoch": 0, "offset": 198}
    for rank in ranks:
        rank.close()
    later = [loader(settings, rank, 4, state=state) for rank in range(4)]
    assert [ids(later[rank]) for rank in (1, 3)] == [[198], [199]]
    # The others have nothing left of the pass, and begin the next one.
    assert [len(ids(later[rank])) for rank in (0, 2)] == [3 * 16, 3 * 16]


def test_an_older_loop_over_an_evaluation_that_has_begun_again_raises(job: MakeJob) -> None:
    with spdl_cluster.local(job(**EVALUATION)) as loader:
        older = iter(loader)
        next(older)
        assert next(iter(loader)).position == (0, 0)
        with pytest.raises(spdl_cluster.UsageError, match="a newer `for` over this loader"):
            next(older)
