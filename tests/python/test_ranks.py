"""The rank and world that a loader finds under each launcher: no two ranks load the same samples."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import types
from typing import Any

import pytest
import spdl_cluster
from conftest import LAUNCHERS, LIMIT_S, PICTURES, MakeJob, run_python

PRINT_IDS = """
    import json, sys, spdl_cluster
    with spdl_cluster.local(json.load(open(sys.argv[1])), cores=1) as loader:
        ids = [sample for batch in loader for sample in batch.ids.tolist()]
        print(json.dumps([loader.rank, loader.world, ids]))
"""


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in LAUNCHERS:
        monkeypatch.delenv(name)


@pytest.fixture
def job_json(job: MakeJob, tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "job.json"
    path.write_text(json.dumps(job(), default=str))
    return path


def check_shares(reports: list[Any], world: int) -> None:
    """Asserts that no two ranks have the same sample and that all together have the epoch's."""
    assert sorted(rank for rank, _, _ in reports) == list(range(world))
    assert {of for _, of, _ in reports} == {world}
    everything = [sample for _, _, ids in reports for sample in ids]
    assert len(everything) == len(set(everything)) == PICTURES // 24 * 24


def decided(job: dict[str, Any], rank: int | None = None, world: int | None = None) -> tuple[int, int]:
    with spdl_cluster.local(job, rank, world) as loader:
        return loader.rank, loader.world


def group(monkeypatch: pytest.MonkeyPatch, rank: int, world: int) -> None:
    """Patches torch so that the package sees a process group."""
    distributed = types.SimpleNamespace(
        is_available=lambda: True, is_initialized=lambda: True, get_rank=lambda: rank, get_world_size=lambda: world
    )
    cuda = types.SimpleNamespace(is_initialized=lambda: False)
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(distributed=distributed, cuda=cuda))


@pytest.mark.parametrize(
    ("rank", "world"),
    [
        ("RANK", "WORLD_SIZE"),
        ("SLURM_PROCID", "SLURM_NTASKS"),
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
        ("PMI_RANK", "PMI_SIZE"),
    ],
)
def test_the_variables_of_every_launcher_give_each_rank_its_share(job_json: pathlib.Path, rank: str, world: str) -> None:
    ranks = [run_python(PRINT_IDS, job_json, **{rank: str(number), world: "2"}) for number in range(2)]
    check_shares([json.loads(process.communicate(timeout=LIMIT_S)[0]) for process in ranks], 2)


def test_ranks_of_mp_spawn_with_a_process_group_load_different_samples(job_json: pathlib.Path, tmp_path: pathlib.Path) -> None:
    pytest.importorskip("torch", reason=os.environ.get("SPDL_TEST_NO_TORCH", "torch is not installed"))
    program = tmp_path / "train.py"
    # As in PyTorch's tutorial of DistributedDataParallel; the loader is made before the process group.
    program.write_text(
        """
import json, os, sys
import torch.distributed as dist, torch.multiprocessing as mp
import spdl_cluster

def train(rank, world, path):
    with spdl_cluster.local(json.load(open(path)), cores=1, tensors="numpy") as loader:
        os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "localhost", "0"
        dist.init_process_group("gloo", rank=rank, world_size=world, init_method=f"file://{path}.meeting")
        ids = [sample for batch in loader for sample in batch.ids.tolist()]
        reports = [None] * world
        dist.all_gather_object(reports, [loader.rank, loader.world, ids], group=dist.new_group())
        if rank == 0:
            print(json.dumps(reports))
    dist.destroy_process_group()

if __name__ == "__main__":
    mp.spawn(train, args=(2, sys.argv[1]), nprocs=2)
"""
    )
    done = subprocess.run([sys.executable, program, job_json], capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 0, done.stderr
    check_shares(json.loads(done.stdout.splitlines()[-1]), 2)


@pytest.mark.parametrize(
    ("variables", "names"),
    [
        ({"WORLD_SIZE": "4", "LOCAL_RANK": "3"}, "`WORLD_SIZE` is 4 and `RANK` is not set"),
        ({"RANK": "1"}, "`RANK` is 1 and `WORLD_SIZE` is not set"),
        ({"SLURM_PROCID": "1"}, "`SLURM_PROCID` is 1 and `SLURM_NTASKS` is not set"),
        ({"SLURM_NTASKS": "4"}, "`SLURM_NTASKS` is 4 and `SLURM_PROCID` is not set"),
        ({"OMPI_COMM_WORLD_RANK": "2"}, "`OMPI_COMM_WORLD_RANK` is 2 and `OMPI_COMM_WORLD_SIZE` is not set"),
        ({"RANK": "2", "WORLD_SIZE": "2"}, "rank 2 is not below world 2: variables `RANK` and `WORLD_SIZE` give"),
        ({"SLURM_JOB_ID": "7", "SLURM_PROCID": "0", "SLURM_NTASKS": "4"}, "`SLURM_NTASKS` is 4, and `srun` did not start"),
    ],
)
def test_half_of_a_launchers_variables_is_an_error_that_names_both(
    job: MakeJob, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], names: str
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with spdl_cluster.local(job()) as loader:
        with pytest.raises(spdl_cluster.SettingError, match=names) as error:
            next(iter(loader))
        assert "`rank=` and `world=`" in (error.value.hint or "") or "0 to world - 1" in (error.value.hint or "")


def test_a_batch_script_of_slurm_without_tasks_is_a_world_of_one(job: MakeJob, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"SLURM_JOB_ID": "7", "SLURM_PROCID": "0"}.items():
        monkeypatch.setenv(name, value)
    assert decided(job()) == (0, 1)
    # The Slurm step has two of the job's four tasks.
    for name, value in {"SLURM_STEP_ID": "0", "SLURM_PROCID": "1", "SLURM_NTASKS": "4", "SLURM_STEP_NUM_TASKS": "2"}.items():
        monkeypatch.setenv(name, value)
    assert decided(job()) == (1, 2)


def test_an_inner_launcher_comes_before_an_outer_one(job: MakeJob, monkeypatch: pytest.MonkeyPatch) -> None:
    assert decided(job()) == (0, 1)
    for pair, reports in (
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "2", "SLURM_STEP_ID": "0"}, (0, 2)),
        ({"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "5"}, (2, 5)),
        ({"RANK": "3", "WORLD_SIZE": "6"}, (3, 6)),
    ):
        for name, value in pair.items():
            monkeypatch.setenv(name, value)
        assert decided(job()) == reports
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name)
    group(monkeypatch, 1, 4)
    assert decided(job()) == (1, 4)


def test_variables_that_contradict_the_process_group_are_an_error_and_a_given_pair_is_none(
    job: MakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    group(monkeypatch, 1, 2)
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert decided(job()) == (1, 2)
    monkeypatch.setenv("RANK", "0")
    with pytest.raises(spdl_cluster.SettingError, match=r"`RANK` is 0, and the process group .* has rank 1 of 2"):
        decided(job())
    assert decided(job(), 0, 1) == (0, 1)
    monkeypatch.delenv("RANK")
    with pytest.raises(spdl_cluster.SettingError, match=r"`rank` is given as 0, and the process group .* has rank 1 of 2"):
        decided(job(), rank=0)
    assert decided(job(), world=2) == (1, 2)


def test_a_loader_that_was_used_before_the_process_group_was_made_raises(
    job: MakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    with spdl_cluster.local(job()) as loader:
        assert len(loader) == PICTURES // 24
        group(monkeypatch, 0, 2)
        with pytest.raises(spdl_cluster.SettingError, match=r"the loader is rank 0 of 1, .* has rank 0 of 2"):
            next(iter(loader))
