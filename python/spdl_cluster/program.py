"""Finds the program `spdl-ctl` that was installed with this package, and runs it."""

from __future__ import annotations

import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from typing import NamedTuple

from .errors import RefusedError, SettingError

NAME = "spdl-ctl"


class Outcome(NamedTuple):
    """What a program did that ran to its end."""

    #: Its exit code, or minus the signal that ended it; `None` if it was killed because it took too long.
    status: int | None
    output: str
    errors: str

    def checked(self) -> str:
        """Returns the last line of the output; raises the error of a program that failed."""
        if self.status == 0:
            return self.output.strip().rpartition("\n")[2]
        if self.status is None:
            raise RefusedError(f"`{NAME}` has not ended in time")
        problem, _, hint = self.errors.strip().removeprefix("error: ").partition("\nhint: ")
        raise RefusedError(problem or f"`{NAME}` ended with {self.status}", hint or None)


def run(*arguments: object, limit_s: float | None = None) -> Outcome:
    """Runs `spdl-ctl` to its end, which is a kill after `limit_s` seconds."""
    command = [path(), *map(str, arguments)]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=limit_s)
    except subprocess.TimeoutExpired:
        return Outcome(None, "", "")
    return Outcome(done.returncode, done.stdout, done.stderr)


def submit(call: Callable[..., Outcome], job: str | os.PathLike[str], *where: object) -> str:
    """Submits a job file with `call`, which runs `spdl-ctl`, and returns the job's name. The source of its functions is found with this Python.

    where: the options that say where the cluster is, if variables do not.
    """
    name: str = json.loads(call("job", "submit", job, "--python", sys.executable, *where, "--json").checked())["name"]
    return name


def path() -> str:
    """Returns the path of `spdl-ctl`: the one of this package, or else one on `PATH`."""
    for candidate in _installed():
        if os.access(candidate, os.X_OK):
            return candidate
    found = shutil.which(NAME)
    if found is None:
        raise SettingError(
            f"program `{NAME}` is neither installed with this package nor on `PATH`",
            "`pip install` brings it; beside an extension that maturin alone has built, put one on `PATH`",
        )
    return found


def _installed() -> Iterator[str]:
    """Yields where the program can be: where the installer has recorded it, and where this Python's programs are."""
    try:
        files = importlib.metadata.distribution("spdl-cluster").files or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    for file in files:
        if file.name == NAME:
            yield os.path.realpath(os.fspath(file.locate()))
    yield os.path.join(sysconfig.get_path("scripts"), NAME)
