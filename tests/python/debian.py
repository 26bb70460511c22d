"""Files of Debian's packages, without root."""

from __future__ import annotations

import pathlib
import subprocess
import sys
import tempfile

import pytest
import venv

#: cargo's target folder, in which the environment of the tests is.
TARGET = pathlib.Path(sys.prefix).parents[1]


def package(name: str) -> pathlib.Path:
    """Returns the folder with the files of a package, which is downloaded and unpacked once. Skips the test where it cannot be had."""
    unpacked = TARGET / "debian" / name
    unpacked.parent.mkdir(exist_ok=True)
    with venv.locked(unpacked.parent):
        if not unpacked.exists():
            with tempfile.TemporaryDirectory(dir=unpacked.parent) as folder:
                work = pathlib.Path(folder)
                try:
                    run(work, "apt-get", "download", "--quiet", name)
                    [file] = work.glob("*.deb")
                    run(work, "dpkg-deb", "-x", file, "unpacked")
                except (OSError, subprocess.CalledProcessError) as error:
                    pytest.skip(f"there is no package `{name}` to be had: {error} {getattr(error, 'stderr', '')}")
                (work / "unpacked").rename(unpacked)
    return unpacked


def run(folder: pathlib.Path, *command: object) -> None:
    subprocess.run(list(map(str, command)), cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True)
