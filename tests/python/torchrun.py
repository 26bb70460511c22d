"""Programs under torchrun."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys

from conftest import LIMIT_S


#: torchrun on this machine.
COMMAND = (sys.executable, "-m", "torch.distributed.run", "--standalone")
#: torchrun whose ranks have what it has imported.
FORKING = (sys.executable, str(pathlib.Path(__file__).with_name("forking_torchrun.py")))


def torchrun(program: pathlib.Path, world: int, *arguments: object, imports: str | None = None, **variables: str) -> subprocess.Popen[str]:
    """Starts a program on `world` ranks, in a new process group. With `imports`, modules with commas between them, these are imported once for all
    ranks."""
    command = COMMAND if imports is None else (*FORKING, imports, "--standalone")
    return subprocess.Popen(
        [*command, f"--nproc-per-node={world}", str(program), *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", **variables},
        start_new_session=True,
    )


def finish(process: subprocess.Popen[str]) -> str:
    """Waits for the end, asserts success, and returns the output."""
    try:
        output, errors = process.communicate(timeout=LIMIT_S)
    finally:
        kill(process)
    assert process.returncode == 0, f"{output}\n{errors}"
    return output


def kill(process: subprocess.Popen[str]) -> None:
    """Kills torchrun and all its ranks, which are in separate sessions, with SIGKILL."""
    children = pathlib.Path(f"/proc/{process.pid}/task").glob("*/children")
    ranks = [int(rank) for text in children for rank in text.read_text().split()]
    for group in (process.pid, *ranks):
        try:
            os.killpg(group, signal.SIGKILL)
        except ProcessLookupError:
            pass
    process.wait()
