"""Launches one after another and at the same time, as in a notebook: where they start, and which are refused."""

from __future__ import annotations

import re
from typing import Any

import pytest
import spdl_cluster
from conftest import PICTURES, Cluster, MakeJob


def take(loader: spdl_cluster.Loader, steps: int) -> list[int]:
    """Returns copies of the ids of a number of batches."""
    batches = (loader.next() for _ in range(steps))
    return [sample for batch in batches if batch is not None for sample in batch.ids.tolist()]


def test_a_second_connect_begins_at_the_beginning_unless_it_resumes(job: MakeJob, cluster: Cluster) -> None:
    name = cluster.submit(job(name="again", epochs=2))
    with cluster.connect(0, 1, job=name) as loader:
        first = take(loader, 2)
        assert (loader.start.position, loader.start.how, loader.run) == ((0, 0), "beginning", name)
    with cluster.connect(0, 1, job=name) as loader:
        assert take(loader, 2) == first
    with cluster.connect(0, 1, job=name, start="resume") as loader:
        assert (loader.start.position, loader.start.how) == ((0, 48), "resume")
        assert re.fullmatch(r"at 0:48, where all ranks of session \d+ had got to", loader.start.reason)
        assert not set(first) & set(take(loader, 2))


def test_a_start_is_an_epoch_a_position_or_a_state_in_its_range(job: MakeJob, cluster: Cluster) -> None:
    made = job(name="start", epochs=2)
    name = cluster.submit(made)

    def local(start: Any) -> spdl_cluster.Loader:
        return spdl_cluster.local(made, start=start)

    def connected(start: Any) -> spdl_cluster.Loader:
        return cluster.connect(0, 1, job=name, start=start)

    state = spdl_cluster.local(made, start="1:48").state_dict()
    for make in (local, connected):
        for start, position in [(1, (1, 0)), ("1:48", (1, 48)), (spdl_cluster.Position(0, 24), (0, 24)), (state, (1, 48))]:
            with make(start) as loader:
                assert (loader.start.position, loader.position, loader.start.how) == (position, position, "given")
        for start, message in [
            (2, "start 2:0 of job `start`: epoch 2 is past the end: there are 2, from 0 to 1"),
            ("0:9999", f"offset 9999 is past the end of an epoch: it has {PICTURES} samples"),
            ("1:190", "no batch of 24 is left there"),
            ("end", "is `end`, not `beginning`, `resume`, an epoch"),
            (-1, "is `-1`"),
            (True, "`start` is True"),
        ]:
            with pytest.raises(spdl_cluster.SettingError, match=re.escape(message)):
                make(start).position
    with pytest.raises(spdl_cluster.SettingError, match="keeps no position to go on from"):
        local("resume").position
    with pytest.raises(spdl_cluster.SettingError, match="both given"):
        spdl_cluster.local(made, start=1, state=state)


def test_a_finished_run_is_not_resumed_but_prolonged(job: MakeJob, cluster: Cluster) -> None:
    name = cluster.submit(job(name="over"))
    with cluster.connect(0, 1, job=name) as loader:
        whole = take(loader, 1000)
    with pytest.raises(spdl_cluster.RefusedError, match="job `over` is finished") as finished:
        cluster.connect(0, 1, job=name, start="resume").position
    assert "epochs=" in (finished.value.hint or "")
    with cluster.connect(0, 1, job=name, start="resume", epochs=2) as loader:
        assert (loader.start.position, loader.epoch, loader.epochs) == ((0, len(whole)), 1, 2)
        assert len(take(loader, 1000)) == len(whole)


def test_a_notebook_does_not_end_a_training_and_a_run_of_its_own_goes_beside_it(
    job: MakeJob, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("SPDL_LAUNCH_ID", "TORCHELASTIC_RUN_ID", "SLURM_JOB_ID"):
        monkeypatch.delenv(variable, raising=False)
    name = cluster.submit(job(name="busy", epochs=1000))
    with cluster.connect(0, 1, job=name) as training:
        take(training, 1)
        with pytest.raises(spdl_cluster.RefusedError, match=r"job `busy` is in use: session \d+ is held by rank 0 of 1 \(process \d+ on") as refused:
            cluster.connect(0, 1, job=name).position
        assert "takeover=True" in (refused.value.hint or "")
        with cluster.connect(0, 1, job=name, run="look") as look:
            assert (look.run, look.job) == ("look", name)
            take(look, 3)
            take(training, 3)
        assert training.position == (0, 96)
        with cluster.connect(0, 1, job=name, takeover=True) as other:
            take(other, 1)
            with pytest.raises(spdl_cluster.RefusedError, match=r"session \d+ of job `busy` was superseded"):
                take(training, 1_000_000)
        with cluster.connect(0, 1, job=name, takeover=True, launch="nightly") as other:
            take(other, 1)
            with cluster.connect(0, 1, job=name, launch="nightly") as again:
                take(again, 1)
    with pytest.raises(spdl_cluster.SettingError, match="`SPDL_RUN` is `a b`"):
        cluster.connect(0, 1, job=name, run="a b")
