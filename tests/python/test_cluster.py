"""Loaders of a cluster: both transports, several ranks, and a coordinator's refusals."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any

import pytest
import spdl_cluster
from conftest import Cluster, MakeJob, add, at_once, ctl_json


@pytest.mark.parametrize("transport", ["local", "quic"])
def test_both_transports_give_what_the_loader_in_process_gives(job: MakeJob, cluster: Cluster, transport: str) -> None:
    made = job(name=f"same-{transport}")
    name = cluster.submit(made)
    with spdl_cluster.local(made) as loader:
        expected = [(batch.position, batch.content_digest()) for batch in loader]
        receipt = loader.receipt
    with cluster.connect(0, 1, job=name, transport=transport) as loader:
        assert [(batch.position, batch.content_digest()) for batch in loader] == expected
        assert loader.receipt == receipt
        assert loader.stats()["serving"]["transport"] == transport


def test_ranks_share_an_epoch_and_resume_at_another_world_size(
    job: MakeJob, cluster: Cluster, job_file: Callable[[dict[str, Any]], pathlib.Path]
) -> None:
    made = job(name="elastic", epochs=2)
    name = cluster.submit(made)
    receipts = []

    def pull(rank: int, world: int, state: dict[str, Any] | None, steps: int) -> dict[str, Any]:
        with cluster.connect(rank, world, job=name) as loader:
            if state is not None:
                loader.load_state_dict(state)
            while steps and loader.next() is not None:
                steps -= 1
            receipts.append(loader.receipt)
            return loader.state_dict()

    def pull_all(world: int, state: dict[str, Any] | None, steps: int) -> dict[str, Any]:
        states = at_once(world, lambda rank: pull(rank, world, state, steps))
        assert all(state == states[0] for state in states)
        return states[0]

    state = pull_all(2, None, 5)
    assert (state["epoch"], state["offset"]) == (0, 120)
    state = pull_all(3, state, 4)
    assert (state["epoch"], state["offset"]) == (1, 24)
    pull_all(1, state, 1000)
    audited = [argument for receipt in receipts for argument in ("--receipt", receipt)]
    assert ctl_json("audit", job_file(made), *audited)["equal"]
    assert len(receipts) == 6 and add(receipts) != add(receipts[:5])


def test_a_state_that_comes_after_joining_is_refused_with_the_remedy(job: MakeJob, cluster: Cluster) -> None:
    name = cluster.submit(job(name="late"))
    with cluster.connect(0, 2, job=name) as loader:
        state = loader.state_dict()
        loader.load_state_dict(state)
        with pytest.raises(spdl_cluster.StateError, match="has joined its session at 0:0") as error:
            loader.load_state_dict({**state, "offset": 48})
        assert "state=" in (error.value.hint or "")


def test_a_rank_gets_the_coordinator_s_diagnosis(job: MakeJob, cluster: Cluster) -> None:
    name = cluster.submit(job(name="diagnosed", epochs=1_000_000))
    with cluster.connect(0, 1, job=name) as loader:
        found = None
        while found is None or not found.samples_per_s:
            loader.next()
            found = loader.diagnose()
        assert found.limit is not None and found.terms
        assert ("worker `" in found.verdict or "sets the pace" in found.verdict) and found.what_if().samples_per_s > 0
        assert loader.stats()["windows"] and loader.metrics()["samples"] > 0


def test_refusals_of_a_coordinator_are_different_errors(job: MakeJob, cluster: Cluster, tmp_path: pathlib.Path) -> None:
    name = cluster.submit(job(name="refused"))
    with pytest.raises(spdl_cluster.RefusedError, match="job `nobody` is unknown") as refused:
        cluster.connect(0, 1, job="nobody").position
    assert "spdl-ctl job submit" in (refused.value.hint or "")
    other = spdl_cluster.local(job(seed=99)).state_dict()
    with pytest.raises(spdl_cluster.StateError, match="fingerprint"):
        cluster.connect(0, 1, job=name, state=other).position
    with pytest.raises(spdl_cluster.ConnectError, match="certificates in") as certificates:
        spdl_cluster.connect(0, 1, job=name, coordinators=cluster.coordinators, certs=tmp_path).position
    assert isinstance(certificates.value, ConnectionError)
    with pytest.raises(spdl_cluster.ConnectError, match="no coordinator let rank 0 join"):
        certs = cluster.folder / "certs/client"
        spdl_cluster.connect(0, 1, job=name, coordinators="127.0.0.1:9", certs=certs, timeout=0.5).position


def test_what_is_not_given_comes_from_the_environment(
    job: MakeJob, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    # There may be a cluster of `spdl-ctl dev up` on this machine.
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/nowhere")
    with pytest.raises(spdl_cluster.SettingError, match="SPDL_COORD"):
        spdl_cluster.connect(0, 1)
    name = cluster.submit(job(name="environment"))
    variables = {"SPDL_COORD": cluster.coordinators, "SPDL_JOB": name, "SPDL_CERTS": str(cluster.folder / "certs/client")}
    for variable, value in {**variables, "RANK": "1", "WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(variable, value)
    with spdl_cluster.connect() as loader:
        assert (loader.job, loader.rank, loader.world) == (name, 1, 2)
        assert next(iter(loader)).samples == 12
