"""Programs under torchrun."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

from conftest import LIMIT_S


#: torchrun on this machine.
COMMAND = (sys.executable, "-m", "torch.distributed.run", "--standalone")
#: `forked.py`: it takes `torchrun` or `python`, and modules with commas between them.
FORKED = (sys.executable, "-IS", str(pathlib.Path(__file__).with_name("forked.py")))


def torchrun(
    program: pathlib.Path, world: int, *arguments: object, imports: str = "", folder: pathlib.Path | None = None, **variables: str
) -> subprocess.Popen[str]:
    """Starts a program in a folder on `world` ranks, or without torchrun on 0, in a new process group. Modules, with commas between them, are imported once
    for all programs that have the same."""
    launcher = ["torchrun", imports, "--standalone", f"--nproc-per-node={world}"] if world else ["python", imports]
    return subprocess.Popen(
        [*FORKED, *launcher, str(program), *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
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
    """Kills a program and all its ranks with SIGKILL, if it still runs."""
    process.terminate()
    process.wait()
