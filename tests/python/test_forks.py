"""A program in a copy of a process that has imported torch runs, ends and is killed as one of its own."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess

import pytest
from conftest import needs, wait_for_the_end_of
from torchrun import finish, kill, torchrun

needs("torch", os.environ.get("SPDL_TEST_NO_TORCH"))

SHOWS = """
import atexit, beside, os, sys, tempfile
assert __name__ == "__main__" and "torch" in sys.modules
atexit.register(print, "at its end")
print(sys.argv[1:], os.environ["NAME"], os.getcwd(), tempfile.gettempdir(), os.environ.get("RANK"))
"""
WAITS = """
import os, signal
print(os.getpid(), flush=True)
signal.pause()
"""


def written(folder: pathlib.Path, code: str) -> pathlib.Path:
    """Writes a program, and a module beside it."""
    (folder / "beside.py").touch()
    (folder / "program.py").write_text(code)
    return folder / "program.py"


def waiting(folder: pathlib.Path, world: int) -> tuple[subprocess.Popen[str], list[int]]:
    """Starts a program that waits, and returns its processes."""
    process = torchrun(written(folder, WAITS), world)
    assert process.stdout is not None
    return process, [int(process.stdout.readline()) for _ in range(max(world, 1))]


@pytest.mark.parametrize("world", [0, 1])
def test_a_copy_has_what_it_was_started_with(world: int, tmp_path: pathlib.Path, temporary: pathlib.Path, request: pytest.FixtureRequest) -> None:
    program = written(tmp_path, SHOWS)
    output = finish(torchrun(program, world, "--a", "b c", folder=tmp_path, NAME="of mine", TMPDIR=str(temporary)))
    rank = "0" if world else None
    assert output.splitlines() == [f"['--a', 'b c'] of mine {tmp_path} {temporary} {rank}", "at its end"]
    spent = pathlib.Path(os.environ["SPDL_TEST_FORK_SERVER"]).with_name("spent").read_text().splitlines()
    assert sum(line.endswith(f" {request.node.nodeid} (call)") for line in spent) == 1


@pytest.mark.parametrize(("code", "ends"), [("raise SystemExit(3)", 3), ("1 / 0", 1), ("import os; os.kill(os.getpid(), 9)", -signal.SIGKILL)])
def test_a_copy_ends_as_its_program_does(code: str, ends: int, tmp_path: pathlib.Path) -> None:
    process = torchrun(written(tmp_path, code), 0)
    _, errors = process.communicate()
    assert process.returncode == ends and ("ZeroDivisionError" in errors) == (ends == 1), errors


@pytest.mark.parametrize("world", [0, 2])
def test_nothing_of_a_copy_is_left_when_it_is_killed(world: int, tmp_path: pathlib.Path) -> None:
    process, copies = waiting(tmp_path, world)
    kill(process)
    assert process.returncode == -signal.SIGKILL
    for copy in copies:
        wait_for_the_end_of(copy)


def test_a_copy_ends_with_the_process_that_has_asked_for_it(tmp_path: pathlib.Path) -> None:
    process, copies = waiting(tmp_path, 0)
    process.kill()
    wait_for_the_end_of(*copies)
    assert process.wait() == -signal.SIGKILL
