"""Makes a virtual environment with the given packages, once, and prints the path of its Python.

usage: venv.py FOLDER REQUIREMENT... | venv.py FOLDER -r FILE

An environment is stored in FOLDER under a hash of the requirements and of this Python's version, and is reused for the same
requirements. Needs only Python 3 with `venv` and a package index that pip can reach.
"""

import contextlib
import fcntl
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Iterator


def main(folder: str, *requirements: str) -> None:
    print(make(folder, *requirements) / "bin/python")


def make(folder: str, *requirements: str, sees_system: bool = False) -> pathlib.Path:
    """Makes or reuses the environment with these packages; with `sees_system`, also with this Python's own packages."""
    parts = [sys.version, *requirements, *(["sees system"] if sees_system else [])]
    if requirements[0] == "-r":
        parts.append(pathlib.Path(requirements[1]).read_text())
    name = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
    home = pathlib.Path(folder).resolve()
    home.mkdir(parents=True, exist_ok=True)
    venv, done = home / name, home / name / "complete"
    with locked(home):
        if not done.exists():
            shutil.rmtree(venv, ignore_errors=True)
            run(sys.executable, "-m", "venv", *(["--system-site-packages"] if sees_system else []), str(venv))
            pip(venv, *requirements)
            done.touch()
    return venv


@contextlib.contextmanager
def locked(folder: pathlib.Path) -> Iterator[None]:
    """Locks a folder. The lock is on the folder itself, so it ends with the process, however that ends."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        yield
    finally:
        os.close(descriptor)


def pip(venv: pathlib.Path, *arguments: str) -> None:
    """Installs packages into the environment."""
    run(str(venv / "bin/python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *arguments)


def run(*command: str) -> None:
    """Runs a command. Its output goes to standard error, because standard output is for the path."""
    subprocess.run(command, check=True, stdout=sys.stderr)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
