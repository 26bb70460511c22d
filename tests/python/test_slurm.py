"""The launcher under a real SLURM of two nodes."""

from __future__ import annotations

import collections
import json
import os
import pathlib
import re
import select
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import slurm
from conftest import LIMIT_S, PICTURES, MakeJob, ctl, ctl_json
from launcher import BUDGET, Tree, left
from test_launcher import TRAINER, WAITS, train

__all__ = ["train"]
#: The cluster is started once, and what ends a job of one cluster on a machine can end a job of the same number of another.
pytestmark = [pytest.mark.xdist_group("slurm"), pytest.mark.drawn(1, group="tests of SLURM")]

EXAMPLE = pathlib.Path(__file__).parents[2] / "examples/slurm/train.sbatch"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[slurm.Slurm]:
    """Starts SLURM's daemons."""
    yield from slurm.cluster_for_tests(tmp_path_factory.mktemp("slurm"))


class Launch:
    """One batch job, its files, and what the launchers in it may leave."""

    def __init__(self, cluster: slurm.Slurm, folder: pathlib.Path, temporary: pathlib.Path) -> None:
        self.cluster, self.output = cluster, folder / "output"
        self.temporary, self.shared = temporary, folder / "shared"
        self.shared.mkdir()
        scripts = sysconfig.get_path("scripts")
        self._variables = {
            "TMPDIR": str(self.temporary),
            "SPDL_SHARED": str(self.shared),
            "PATH": f"{scripts}{os.pathsep}{slurm.PATH}",
            "SPDL_WORKER_CORES": BUDGET[1],
            "SPDL_WORKER_MEMORY": BUDGET[3],
        }

    def submit(self, *arguments: object, **variables: str) -> str:
        """Submits a job of two nodes, and returns its number."""
        command = ["sbatch", "--parsable", "--nodes=2", f"--output={self.output}", *map(str, arguments)]
        return self.cluster.call(*command, variables={**self._variables, **variables}).strip()

    def run(self, *arguments: object, **variables: str) -> str:
        """Submits a job of two nodes, and returns its state at its end."""
        return self.cluster.end_of(self.submit(*arguments, **variables))

    def lines(self) -> list[str]:
        """Returns what the job has written."""
        return self.output.read_text().splitlines() if self.output.exists() else []

    def helpers(self) -> list[str]:
        """Returns the workers that only help others, as the coordinator knows them; none as long as there is none to ask."""
        found = re.search(r"spdl-ctl status (--coord \S+ --certs \S+)", "\n".join(self.lines()))
        if found is None or not os.path.exists(found[1].split()[-1]):
            return []
        state = ctl_json("status", *found[1].split())
        return [worker["name"] for worker in state["workers"] if (worker.get("help") or {}).get("is_helper_only")]

    def assert_nothing_is_left(self) -> None:
        """Asserts that the launchers' folders are gone."""
        assert left(self.temporary) == os.listdir(self.shared) == []


@pytest.fixture
def launch(cluster: slurm.Slurm, tmp_path: pathlib.Path, temporary: pathlib.Path) -> Launch:
    """Returns a batch job that is not submitted yet."""
    return Launch(cluster, tmp_path, temporary)


def wrap(*command: object) -> str:
    """Returns the option with a batch script that runs a command on each node."""
    words = " ".join("'" + str(word).replace("'", "'\\''") + "'" for word in command)
    return f"--wrap=exec srun --ntasks-per-node=1 --kill-on-bad-exit=1 {words}"


def test_a_job_on_two_nodes_gets_each_sample_once(launch: Launch, train: pathlib.Path) -> None:
    assert launch.run(wrap("spdl-run", "--job", train, "--", sys.executable, "-c", TRAINER)) == "COMPLETED", launch.lines()
    reports = [json.loads(line) for line in launch.lines() if line.startswith("{")]
    assert {report["home"] for report in reports} == {"worker-0", "worker-1"}, launch.lines()
    ctl("audit", train, *(part for report in reports for part in ("--receipt", report["receipt"])))
    launch.assert_nothing_is_left()


def test_the_batch_script_of_the_examples_trains(launch: Launch, train: pathlib.Path) -> None:
    pytest.importorskip("torch", reason=os.environ.get("SPDL_TEST_NO_TORCH", "torch is not installed"))
    program = EXAMPLE.parents[2] / "python/examples/train_ddp.py"
    assert launch.run(EXAMPLE, train, program, GPUS_PER_NODE="1", OMP_NUM_THREADS="1") == "COMPLETED", launch.lines()
    assert any(line.startswith("saw 400 samples in 2 epochs on 2 ranks, 0 of them twice;") for line in launch.lines()), launch.lines()
    launch.assert_nothing_is_left()


def test_nodes_of_a_heterogeneous_job_help_to_decode(
    launch: Launch, job: MakeJob, job_file: Callable[[dict[str, Any]], pathlib.Path]
) -> None:
    pytest.importorskip("torch", reason=os.environ.get("SPDL_TEST_NO_TORCH", "torch is not installed"))
    train = job_file(job(name="train", global_batch=6, epochs=400, epoch_end="exact"))
    program = EXAMPLE.parents[2] / "python/examples/train_ddp.py"
    number = launch.submit("--nodes=1", ":", "--nodes=1", EXAMPLE, train, program, GPUS_PER_NODE="1", OMP_NUM_THREADS="1")
    deadline = time.monotonic() + LIMIT_S
    try:
        while launch.helpers() != ["worker-1"]:
            assert time.monotonic() < deadline and launch.cluster.call("squeue", "--noheader"), launch.lines()
            time.sleep(0.1)
    finally:
        launch.cluster.call("scancel", number)
    launch.cluster.wait_for_jobs()
    launch.assert_nothing_is_left()


def test_the_batch_script_asks_pyxis_for_containers_with_the_folder_of_the_socket(
    launch: Launch, train: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    # Without pyxis, `srun` refuses its options, after it has made the folder on each node, and before that is removed.
    sockets = tmp_path / "sockets"
    assert launch.run(EXAMPLE, train, "train.py", CONTAINER_IMAGE="package.sqsh", SOCKET_FOLDER=str(sockets)) == "FAILED", launch.lines()
    assert any("--container-image=package.sqsh" in line for line in launch.lines()), launch.lines()
    # Both nodes are this machine: `rmdir` fails on the second, and would on the first too if there had been no folder.
    assert sum("rmdir: failed" in line for line in launch.lines()) == 1 and not sockets.exists(), launch.lines()


def test_a_job_that_is_preempted_goes_on_with_fewer_nodes_and_with_more_again(
    launch: Launch, job: MakeJob, job_file: Callable[[dict[str, Any]], pathlib.Path], tmp_path: pathlib.Path
) -> None:
    pytest.importorskip("torch", reason=os.environ.get("SPDL_TEST_NO_TORCH", "torch is not installed"))
    train = job_file(job(name="train", global_batch=6, epochs=40, epoch_end="exact"))
    traces, cluster = Traces(tmp_path / "traces"), launch.cluster
    program = EXAMPLE.parents[2] / "python/examples/train_ddp.py"
    arguments = ["--checkpoint", tmp_path / "checkpoint.pt", "--every", 1000, "--trace", traces.folder]
    number = launch.submit("--nodes=1-2", EXAMPLE, train, program, *arguments, GPUS_PER_NODE="1", OMP_NUM_THREADS="1")
    traces.wait_for_steps("0-of-2", 10)
    # A more urgent job takes the second node, and so this one is queued again; the first node is free for it.
    urgent = cluster.call("sbatch", "--parsable", "--partition=urgent", "--nodelist=n2", "--output=/dev/null", "--wrap=exec sleep 600").strip()
    traces.wait_for_steps("0-of-1", 10)
    cluster.call("scancel", urgent)
    # What SLURM does before the time is over.
    cluster.call("scancel", "--batch", "--signal=USR1", number)
    cluster.wait_for_jobs()
    assert any(" on 2 ranks, 0 of them twice;" in line for line in launch.lines()), launch.lines()
    seen = collections.Counter((epoch, sample) for step in traces.steps() for epoch, sample in step["seen"])
    assert len(seen) == 40 * PICTURES and set(seen.values()) == {1}, "each step is trained once: the notice was in time"
    ctl("audit", train, *(word for receipt in traces.receipts() for word in ("--receipt", receipt)))
    launch.assert_nothing_is_left()


class Traces:
    """What the ranks of a training write, over several launches."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        folder.mkdir()

    def steps(self, of: str = "*") -> list[dict[str, Any]]:
        """Returns the steps that some ranks have trained."""
        lines = [line for path in self.folder.glob(f"{of}.jsonl") for line in path.read_text().splitlines(keepends=True)]
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def receipts(self) -> list[str]:
        """Returns the last receipt of each rank of each launch."""
        found = []
        for path in self.folder.iterdir():
            steps = self.steps(path.stem)
            ends = [at for at, step in enumerate(steps) if at + 1 == len(steps) or steps[at + 1]["from"] != step["next"]]
            found += [steps[at]["receipt"] for at in ends]
        return found

    def wait_for_steps(self, of: str, count: int) -> None:
        """Waits until a rank has trained so many steps."""
        deadline = time.monotonic() + LIMIT_S
        while len(self.steps(of)) < count:
            assert time.monotonic() < deadline, list(self.folder.iterdir())
            time.sleep(0.05)


def test_a_job_that_is_cancelled_leaves_nothing(launch: Launch, train: pathlib.Path) -> None:
    pipe = launch.output.with_name("pids")
    os.mkfifo(pipe)
    # Opened for writing too, so that it does not end between the two commands.
    with open(os.open(pipe, os.O_RDWR), "r+b", buffering=0) as pids:
        number = launch.submit(wrap("spdl-run", "--job", train, "--", sys.executable, "-c", WAITS, pipe))
        trees = []
        for _ in slurm.NODES:
            assert select.select([pids], [], [], LIMIT_S)[0], launch.lines()
            trees.append(Tree(parent(int(pids.readline()))))
    launch.cluster.call("scancel", number)
    for tree in trees:
        assert len(tree.pids) >= 5, "two of the launcher, a worker, the command and the probe"
        tree.wait_for_end()
    # Each command has got the signal once.
    assert [line for line in launch.lines() if line == "SIGTERM"] == ["SIGTERM"] * 2, launch.lines()
    launch.assert_nothing_is_left()


def parent(pid: int) -> int:
    """Returns the parent of a process."""
    return int(pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
