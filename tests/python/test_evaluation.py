"""Repeated loops over a loader: an evaluation gives the whole dataset in each `for`; a finished loader raises an error."""

from __future__ import annotations

import pathlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import spdl_cluster
from conftest import LIMIT_S, PICTURES, Cluster, MakeJob, ctl_json

EVALUATION = {"shuffle": False, "epoch_end": "exact"}
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

    threads = [threading.Thread(target=evaluate, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_S)
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
        assert "`repeat=True`" in (error.value.hint or "") and "`epochs`" in (error.value.hint or "")
    assert training.next() is None
    finished = training.state_dict()
    training.close()
    with pytest.raises(spdl_cluster.FinishedError):
        ids(loader({"name": "finished", "epochs": 2}, state=finished))


def test_any_job_of_one_epoch_repeats_with_the_option(job: MakeJob) -> None:
    with spdl_cluster.local(job(), repeat=True) as loader:
        first = ids(loader)
        take(loader, 1)
        assert ids(loader) == first
    with spdl_cluster.local(job(**EVALUATION), repeat=False) as loader:
        assert ids(loader) == EVERYTHING
        with pytest.raises(spdl_cluster.FinishedError):
            ids(loader)
    with spdl_cluster.local(job(**EVALUATION, epochs=2)) as loader:
        assert not loader.repeat
    with spdl_cluster.local(job(epochs=2), repeat=True) as loader:
        with pytest.raises(spdl_cluster.SettingError, match="`repeat` is for a job of one epoch, and job `test` has 2"):
            ids(loader)


def test_an_evaluation_goes_on_from_a_state_and_then_begins_again(job: MakeJob) -> None:
    with spdl_cluster.local(job(**EVALUATION)) as loader:
        take(loader, 2)
        state = loader.state_dict()
        ids(loader)
        finished = loader.state_dict()
    for start, first in ((state, EVERYTHING[48:]), (finished, EVERYTHING)):
        with spdl_cluster.local(job(**EVALUATION), state=start) as loader:
            assert [ids(loader), ids(loader)] == [first, EVERYTHING]


def test_an_older_loop_over_an_evaluation_that_has_begun_again_raises(job: MakeJob) -> None:
    with spdl_cluster.local(job(**EVALUATION)) as loader:
        older = iter(loader)
        next(older)
        assert next(iter(loader)).position == (0, 0)
        with pytest.raises(spdl_cluster.UsageError, match="a newer `for` over this loader"):
            next(older)
