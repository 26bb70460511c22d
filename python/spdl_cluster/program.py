"""Finds the program `spdl-ctl` that was installed with this package."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import sysconfig
from collections.abc import Iterator

from .errors import SettingError

NAME = "spdl-ctl"


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
