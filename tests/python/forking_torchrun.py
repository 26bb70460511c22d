"""torchrun whose ranks begin as copies of it, with what they import: `forking_torchrun.py MODULE,... OPTION... PROGRAM ARGUMENT...`.

A framework takes 8 s of CPU time to import, and so each rank of a test; for torchrun itself, torch takes 2 s. The ranks are processes of their own as with torchrun's other
ways to start them, but do not run what a program registers with `atexit`.
"""

from __future__ import annotations

import importlib
import sys

from torch.distributed import run

if __name__ == "__main__":
    for name in filter(None, sys.argv[1].split(",")):
        importlib.import_module(name)
    run.main(["--standalone", "--run-path", "--start-method=fork", *sys.argv[2:]])
