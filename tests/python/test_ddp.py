"""Real DistributedDataParallel training under torchrun with gloo: killed in the middle and resumed at other world sizes."""

from __future__ import annotations

import collections
import fcntl
import json
import os
import pathlib
import select
import signal
import subprocess
import time
from collections.abc import Callable
from typing import Any

import launcher
import pytest
from conftest import LIMIT_S, PICTURES, Cluster, MakeJob
from torchrun import COMMAND, finish, kill, torchrun

torch = pytest.importorskip("torch", reason=os.environ.get("SPDL_TEST_NO_TORCH", "torch is not installed"))

ended_launchers = launcher.ended_launchers
EXAMPLE = pathlib.Path(__file__).parents[2] / "python/examples/train_ddp.py"


def steps(text: str) -> list[dict[str, Any]]:
    """Returns the steps in a trace, without a last line that a kill has cut off."""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


class Gate:
    """A pipe for the trace of rank 0. It holds a page: a rank that is a page ahead of the reader blocks, and so can be killed
    in the middle."""

    PAGE = 4096

    def __init__(self, path: pathlib.Path) -> None:
        os.mkfifo(path)
        # O_NONBLOCK: do not wait for the writer. The rank can then open the pipe without waiting too.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, self.PAGE)
        self.pipe = os.fdopen(descriptor, "rb", buffering=0)
        self.text = b""

    def pass_steps(self, process: subprocess.Popen[str], count: int) -> None:
        """Reads until the trace has `count` steps."""
        deadline = time.monotonic() + LIMIT_S
        while self.text.count(b"\n") < count:
            if select.select([self.pipe], [], [], 0.2)[0]:
                self.text += self.pipe.read(256) or b""
            assert process.poll() is None and time.monotonic() < deadline, process.communicate()

    def rest(self) -> str:
        """Returns the whole trace. Reads to the end of the rank, which is a little later than torchrun's."""
        deadline = time.monotonic() + LIMIT_S
        while time.monotonic() < deadline:
            select.select([self.pipe], [], [], 0.2)
            text = self.pipe.read(self.PAGE)
            if text == b"":
                break
            self.text += text or b""
        else:
            raise AssertionError("rank 0 outlives torchrun")
        self.pipe.close()
        return self.text.decode()


@pytest.mark.drawn(1, group="launches of the example")
def test_the_example_of_the_readme_trains_on_the_demos_data_and_leaves_nothing(temporary: pathlib.Path) -> None:
    output = finish(torchrun(EXAMPLE, 2, "--demo", "--pictures", 96, TMPDIR=str(temporary))).splitlines()
    assert launcher.left(temporary) == []
    assert output[-1].startswith("saw 192 samples in 2 epochs on 2 ranks, 0 of them twice; "), output
    # Each epoch ends with the whole validation set.
    for epoch, line in enumerate(output[-3:-1]):
        assert line.startswith(f"epoch {epoch}: ") and " of 32 validation samples are right" in line, output


def launch(job: pathlib.Path, temporary: pathlib.Path, *arguments: object) -> subprocess.Popen[str]:
    """Starts the example on two ranks, under the launcher."""
    command = ("--job", job, "--", *COMMAND, "--nproc-per-node=2", EXAMPLE, *arguments)
    return launcher.run(*command, temporary=temporary, options=launcher.BUDGET, OMP_NUM_THREADS="1")


@pytest.mark.drawn(1, group="launches of the example")
def test_the_launcher_gives_the_example_all_that_it_needs(
    job: MakeJob, job_file: Callable[[dict[str, Any]], pathlib.Path], temporary: pathlib.Path
) -> None:
    train = job_file(job(name="launched", epochs=2, epoch_end="exact"))
    output, _ = launcher.finish(launch(train, temporary))
    assert output.splitlines()[-1].startswith(f"saw {2 * PICTURES} samples in 2 epochs on 2 ranks, 0 of them twice; "), output
    assert launcher.left(temporary) == []


@pytest.mark.drawn(1, group="launches of the example")
def test_nothing_of_a_training_is_left_when_its_launcher_is_killed(
    job: MakeJob, job_file: Callable[[dict[str, Any]], pathlib.Path], tmp_path: pathlib.Path, temporary: pathlib.Path
) -> None:
    train = job_file(job(name="launched", global_batch=6, epochs=6, epoch_end="exact"))
    gate = Gate(tmp_path / "0-of-2.jsonl")
    process = launch(train, temporary, "--trace", tmp_path)
    gate.pass_steps(process, 10)
    tree = launcher.Tree(process.pid)
    assert len(tree.pids) >= 8, "two of the launcher, two servers, the probe, torchrun and two ranks"
    os.kill(process.pid, signal.SIGKILL)
    tree.wait_for_end()
    assert process.wait(timeout=LIMIT_S) == -signal.SIGKILL
    assert launcher.left(temporary) == []


@pytest.mark.drawn(1, group="trainings on pictures")
def test_training_killed_in_the_middle_goes_on_at_any_world_size(
    job: MakeJob, cluster: Cluster, tmp_path: pathlib.Path
) -> None:
    # More than 200 steps; a page of the trace holds about 40.
    name = cluster.submit(job(name="ddp", global_batch=6, epochs=6, epoch_end="exact"))
    checkpoint = tmp_path / "checkpoint.pt"
    certs = str(cluster.folder / "certs/client")
    variables = {"SPDL_COORD": cluster.coordinators, "SPDL_JOB": name, "SPDL_CERTS": certs}
    trained: collections.Counter[tuple[int, int]] = collections.Counter()
    start, worlds = [0, 0], set()
    # Two ranks that are killed, one rank that is killed, and three ranks that run to the end.
    for launch, world in enumerate([2, 1, 3]):
        traces = tmp_path / f"trace-{launch}"
        traces.mkdir()
        gate = Gate(traces / f"0-of-{world}.jsonl") if world < 3 else None
        process = torchrun(EXAMPLE, world, "--checkpoint", checkpoint, "--every", 2, "--trace", traces, **variables)
        if gate:
            try:
                gate.pass_steps(process, 10)
            finally:
                kill(process)
            texts = [gate.rest(), *((traces / f"{rank}-of-{world}.jsonl").read_text() for rank in range(1, world))]
        else:
            assert f"on {world} ranks, 0 of them twice" in finish(process)
            texts = [trace.read_text() for trace in traces.iterdir()]
        saved = torch.load(checkpoint, weights_only=True)["loader"]
        reached = [saved["epoch"], saved["offset"]]
        assert start < reached
        assert (reached < [6, 0]) == (gate is not None)
        for step in (step for text in texts for step in steps(text)):
            assert step["from"] >= start
            # The next launch trains the steps after the checkpoint again.
            if step["next"] <= reached:
                trained.update((epoch, sample) for epoch, sample in step["seen"])
                worlds.add(world)
        start = reached
    assert worlds == {1, 2, 3}
    assert trained == {(epoch, sample): 1 for epoch in range(6) for sample in range(PICTURES)}
