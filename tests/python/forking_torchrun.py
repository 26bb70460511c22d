"""torchrun whose ranks begin as copies of it, with what they import: `forking_torchrun.py MODULE,... OPTION... PROGRAM ARGUMENT...`.

A framework takes 8 s of CPU time to import, and so each rank of a test; torch takes 1 s, and as much again what an optimiser imports at its first step. The ranks
are processes of their own as with torchrun's other ways to start them.
"""

from __future__ import annotations

import atexit
import importlib
import os
import runpy
import sys

from torch.distributed import run


def run_as_python_does(program: str, *arguments: str) -> None:
    """Runs a program as `python -u` does: modules are first looked for in its folder, and what it registers with `atexit` is called."""
    sys.argv[:] = [program, *arguments]
    sys.path[0] = os.path.dirname(os.path.abspath(program))
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    # What torchrun has registered is for its own end.
    atexit._clear()
    try:
        runpy.run_path(program, run_name="__main__")
    finally:
        atexit._run_exitfuncs()


if __name__ == "__main__":
    for name in filter(None, ["torch._dynamo", *sys.argv[1].split(",")]):
        importlib.import_module(name)
    run.run_script_path = run_as_python_does
    run.main(["--run-path", "--start-method=fork", *sys.argv[2:]])
