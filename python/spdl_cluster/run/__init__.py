"""`spdl-run`, also `python -m spdl_cluster.run`: runs a training with all that its loaders need, and leaves nothing.

    spdl-run --job train.toml -- torchrun --nproc-per-node 2 train.py

It starts a coordinator and a worker, submits the job and runs the command, in which `spdl_cluster.connect()` needs no settings. With
a launcher on each of several nodes, the first starts the coordinator and each starts a worker.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Sequence

from ..errors import SpdlError
from .arguments import Options, read
from .console import Console
from .exchange import Exchange
from .folders import PrivateFolder, exchange_folder
from .guard import guarded
from .launch import Launch
from .place import Place, place_of, with_options

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs a launcher and ends this process with its command's exit code."""
    options = read(arguments)
    try:
        place = with_options(place_of(os.environ), options.index, options.count, options.launch)
    except SpdlError as error:
        Console(0, 1, options.is_quiet).error(error)
        sys.exit(1)
    sys.exit(_run(options, place))


def _run(options: Options, place: Place) -> int:
    console = Console(place.index, place.count, options.is_quiet)
    if shutil.which(options.command[0]) is None:
        console.error(f"command `{options.command[0]}` was not found")
        return 127
    try:
        exchange = Exchange(exchange_folder(place, options.shared)) if place.count > 1 else None
        if exchange is not None and place.is_first:
            exchange.claim()
        private = PrivateFolder()
    except SpdlError as error:
        console.error(error)
        return 1
    own = os.getpid()

    def clean() -> None:
        private.remove()
        if exchange is not None and place.is_first:
            exchange.remove()

    def work(mask: set[signal.Signals | int], guard: int) -> int:
        try:
            return Launch(options, place, private.path, exchange, mask, guard).run()
        except SpdlError as error:
            console.error(error)
            return 1
        finally:
            if os.getppid() != own:
                clean()

    return guarded(work, clean)
