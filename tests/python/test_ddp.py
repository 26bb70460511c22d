"""Real DistributedDataParallel training under torchrun, on gloo: killed in the middle, resumed at other world sizes."""

from __future__ import annotations

import collections
import fcntl
import json
import os
import pathlib
import select
import signal
import subprocess
import sys
import time
from typing import Any

import pytest
from conftest import LIMIT_S, PICTURES, Cluster, MakeJob

torch = pytest.importorskip("torch", reason=os.environ.get("SPDL_TEST_NO_TORCH", "torch is not installed"))

EXAMPLE = pathlib.Path(__file__).parents[2] / "python/examples/train_ddp.py"


def torchrun(world: int, *arguments: object, **variables: str) -> subprocess.Popen[str]:
    """Starts the example on `world` ranks, in a process group of its own."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={world}"]
    return subprocess.Popen(
        [*command, str(EXAMPLE), *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", **variables},
        start_new_session=True,
    )


def finish(process: subprocess.Popen[str]) -> str:
    """Waits for its end, which has to be a good one; gives what it printed."""
    try:
        output, errors = process.communicate(timeout=LIMIT_S)
    finally:
        kill(process)
    assert process.returncode == 0, f"{output}\n{errors}"
    return output


def kill(process: subprocess.Popen[str]) -> None:
    """`kill -9` for torchrun and all its ranks, which are in sessions of their own."""
    children = pathlib.Path(f"/proc/{process.pid}/task").glob("*/children")
    ranks = [int(rank) for text in children for rank in text.read_text().split()]
    for group in (process.pid, *ranks):
        try:
            os.killpg(group, signal.SIGKILL)
        except ProcessLookupError:
            pass
    process.wait()


def steps(text: str) -> list[dict[str, Any]]:
    """The steps in a trace; a line that a kill cut off is none."""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


class Gate:
    """A pipe for the trace of rank 0: a rank that has traced a page more than was read waits, so it can be killed in the middle."""

    PAGE = 4096

    def __init__(self, path: pathlib.Path) -> None:
        os.mkfifo(path)
        # Without waiting for the rank, which then opens it without waiting for us.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, self.PAGE)
        self.pipe = os.fdopen(descriptor, "rb", buffering=0)
        self.text = b""

    def pass_steps(self, process: subprocess.Popen[str], count: int) -> None:
        """Reads so many steps."""
        deadline = time.monotonic() + LIMIT_S
        while self.text.count(b"\n") < count:
            if select.select([self.pipe], [], [], 0.2)[0]:
                self.text += self.pipe.read(256) or b""
            assert process.poll() is None and time.monotonic() < deadline, process.communicate()

    def rest(self) -> str:
        """All that was traced: up to the end of the rank, which comes a little after that of torchrun."""
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


def test_the_example_of_the_readme_trains_on_the_demos_data() -> None:
    said = finish(torchrun(2, "--demo", "--pictures", 96)).splitlines()
    assert said[-1].startswith("saw 192 samples in 2 epochs on 2 ranks, 0 of them twice; "), said
    # The whole validation set after each epoch.
    for epoch, line in enumerate(said[-3:-1]):
        assert line.startswith(f"epoch {epoch}: ") and " of 32 validation samples are right" in line, said


def test_training_killed_in_the_middle_goes_on_at_any_world_size(
    job: MakeJob, cluster: Cluster, tmp_path: pathlib.Path
) -> None:
    # 200 steps and more, of which a page holds some 40.
    name = cluster.submit(job(name="ddp", global_batch=6, epochs=6, epoch_end="exact"))
    checkpoint = tmp_path / "checkpoint.pt"
    certs = str(cluster.folder / "certs/client")
    variables = {"SPDL_COORD": cluster.coordinators, "SPDL_JOB": name, "SPDL_CERTS": certs}
    trained: collections.Counter[tuple[int, int]] = collections.Counter()
    start, worlds = [0, 0], set()
    # Two ranks, killed; one rank, killed; three ranks, to the end.
    for launch, world in enumerate([2, 1, 3]):
        traces = tmp_path / f"trace-{launch}"
        traces.mkdir()
        gate = Gate(traces / f"0-of-{world}.jsonl") if world < 3 else None
        process = torchrun(world, "--checkpoint", checkpoint, "--every", 2, "--trace", traces, **variables)
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
            # What came after the checkpoint is trained again by the next launch.
            if step["next"] <= reached:
                trained.update((epoch, sample) for epoch, sample in step["seen"])
                worlds.add(world)
        start = reached
    assert worlds == {1, 2, 3}
    assert trained == {(epoch, sample): 1 for epoch in range(6) for sample in range(PICTURES)}
