"""Jobs of a real cluster, from Python alone."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Callable
from typing import Any

import pytest
import spdl_cluster
from conftest import Cluster, MakeJob


@pytest.fixture
def admin(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """A cluster that the variables name, with an administrator's certificate."""
    monkeypatch.setenv("SPDL_COORD", cluster.coordinators)
    monkeypatch.setenv("SPDL_CERTS", str(cluster.folder / "certs/admin"))
    return cluster


def test_a_job_is_created_trained_and_removed(
    admin: Cluster, job: MakeJob, job_file: Callable[[dict[str, Any]], pathlib.Path]
) -> None:
    made = job(name="mine", epochs=2)
    certs = admin.folder / "certs/client"
    assert spdl_cluster.submit(made, certs=certs) == "mine"
    assert spdl_cluster.submit(job_file(made)) == "mine", "the same job again, from a file"
    with spdl_cluster.connect(0, 1, job="mine", certs=certs) as loader:
        assert sum(1 for _ in loader) == len(loader)
    [found] = [job for job in spdl_cluster.jobs() if job["name"] == "mine"]
    assert (found["samples"], found["epochs"]) == (200, 2)
    state = spdl_cluster.status()
    assert "mine" in json.dumps(state["jobs"])
    spdl_cluster.remove("mine")
    assert "mine" not in {job["name"] for job in spdl_cluster.jobs()}
    with pytest.raises(spdl_cluster.RefusedError, match="job `mine` is unknown"):
        spdl_cluster.remove("mine")


def test_a_changed_job_is_a_new_version_if_that_is_asked_for(admin: Cluster, job: MakeJob) -> None:
    assert spdl_cluster.submit(job(name="changes")) == "changes"
    with pytest.raises(spdl_cluster.RefusedError, match=r"differs in `seed` \(6, was 5\)(.|\n)*`new_version=True` creates it"):
        spdl_cluster.submit(job(name="changes", seed=6))
    for seed, name in ((6, "changes-v2"), (7, "changes-v3"), (6, "changes-v2"), (5, "changes")):
        assert spdl_cluster.submit(job(name="changes", seed=seed), new_version=True) == name


def test_what_cannot_be_done_is_said(admin: Cluster, job: MakeJob, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(spdl_cluster.RefusedError, match="no process listens"):
        spdl_cluster.jobs(coordinators="127.0.0.1:1")
    with pytest.raises(spdl_cluster.SettingError, match="seed expects a whole number"):
        spdl_cluster.submit(job(seed="much"))
    with pytest.raises(spdl_cluster.RefusedError, match=r"a client may not send RemoveJob\nhint: give the folder of an administrator's certificate"):
        spdl_cluster.remove("test", certs=admin.folder / "certs/client")
    monkeypatch.delenv("SPDL_COORD")
    with pytest.raises(spdl_cluster.SettingError, match="`SPDL_COORD`"):
        spdl_cluster.status()
