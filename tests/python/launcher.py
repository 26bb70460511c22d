"""Launches with `spdl-run`, and what is left of them."""

from __future__ import annotations

import os
import pathlib
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from conftest import LAUNCHERS, LIMIT_S

#: What a launcher of these tests gives its worker.
BUDGET = ("--cores", "1", "--memory", "256MiB")
_started: list[subprocess.Popen[str]] = []


def run(*arguments: object, temporary: pathlib.Path, options: tuple[str, ...] = BUDGET, **variables: str) -> subprocess.Popen[str]:
    """Starts a launcher with a folder for temporary files, in a process group of its own."""
    environment = {name: value for name, value in os.environ.items() if name not in LAUNCHERS}
    launcher = subprocess.Popen(
        [sys.executable, "-m", "spdl_cluster.run", *options, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**environment, "TMPDIR": str(temporary), **variables},
        start_new_session=True,
    )
    _started.append(launcher)
    return launcher


@pytest.fixture(autouse=True)
def ended_launchers() -> Iterator[None]:
    """Ends the launchers that a test has left running because it failed."""
    yield
    for launcher in _started:
        if launcher.poll() is None:
            os.killpg(launcher.pid, signal.SIGKILL)
            launcher.wait()
    _started.clear()


def finish(launcher: subprocess.Popen[str], code: int = 0) -> tuple[str, str]:
    """Waits for a launcher's end, asserts its exit code, and returns what was written."""
    try:
        output, errors = launcher.communicate(timeout=LIMIT_S)
    finally:
        launcher.kill()
    assert launcher.returncode == code, f"{launcher.returncode}\n{output}\n{errors}"
    return output, errors


def read_line(launcher: subprocess.Popen[str]) -> str:
    """Returns the next line that a launcher's command prints."""
    assert launcher.stdout is not None
    assert select.select([launcher.stdout], [], [], LIMIT_S)[0], "no line in time"
    line = launcher.stdout.readline()
    if not line:
        raise AssertionError(finish(launcher))
    return line.rstrip("\n")


def left(temporary: pathlib.Path) -> list[str]:
    """Returns what launchers have left in a folder for temporary files. torch leaves some of its own there."""
    return [name for name in os.listdir(temporary) if "spdl" in name]


def descendants(pid: int) -> list[int]:
    """Returns a process's children, and theirs."""
    children = [int(child) for task in pathlib.Path(f"/proc/{pid}/task").glob("*/children") for child in task.read_text().split()]
    return children + [further for child in children for further in descendants(child)]


def named(pids: list[int], word: str) -> int:
    """Returns the one process with this word in its command line."""
    [found] = [pid for pid in pids if word in pathlib.Path(f"/proc/{pid}/cmdline").read_text().split("\0")]
    return found


class Tree:
    """A launcher's processes as they were at a moment."""

    def __init__(self, launcher: int) -> None:
        self.pids = [launcher, *descendants(launcher)]
        self._descriptors = {pid: os.pidfd_open(pid) for pid in self.pids}

    def wait_for_end(self) -> None:
        """Waits until all of them have ended."""
        deadline = time.monotonic() + LIMIT_S
        for pid, descriptor in self._descriptors.items():
            ended = select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))[0]
            os.close(descriptor)
            if not ended:
                line = pathlib.Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
                os.kill(pid, signal.SIGKILL)
                raise AssertionError(f"process {pid} is left: {line}")
