"""Makes a virtual environment with the packages named, once, and prints the path of its Python.

usage: venv.py FOLDER REQUIREMENT... | venv.py FOLDER -r FILE

An environment lives in FOLDER under a hash of the requirements and of this Python's version, and is used again by whoever
asks for the same. Needs nothing beyond Python 3 with `venv` and a package index that pip can reach.
"""

import fcntl
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys


def main(folder: str, *requirements: str) -> None:
    parts = [sys.version, *requirements]
    if requirements[0] == "-r":
        parts.append(pathlib.Path(requirements[1]).read_text())
    name = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
    home = pathlib.Path(folder).resolve()
    home.mkdir(parents=True, exist_ok=True)
    venv, done = home / name, home / name / "complete"
    # The lock is on the folder itself: it ends with the process, whatever becomes of it.
    fcntl.flock(os.open(home, os.O_RDONLY | os.O_DIRECTORY), fcntl.LOCK_EX)
    if not done.exists():
        shutil.rmtree(venv, ignore_errors=True)
        run(sys.executable, "-m", "venv", str(venv))
        run(str(venv / "bin/python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *requirements)
        done.touch()
    print(venv / "bin/python")


def run(*command: str) -> None:
    """Runs a command; what it prints goes to standard error, because standard output is for the path."""
    subprocess.run(command, check=True, stdout=sys.stderr)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
