"""A plugin of pytest with one server for all of its processes, which makes copies of processes that have imported torch; `fork_server.py` tells why."""

from __future__ import annotations

import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator

import pytest

#: The server, and its folder.
SERVER = pytest.StashKey[tuple[subprocess.Popen[bytes], pathlib.Path]]()


def pytest_configure(config: pytest.Config) -> None:
    """Starts the server in pytest's main process. It imports nothing until a test needs it."""
    if hasattr(config, "workerinput"):
        return
    folder = pathlib.Path(tempfile.mkdtemp(prefix="t-"))
    path = os.environ["SPDL_TEST_FORK_SERVER"] = str(folder / "socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening, open(folder / "errors", "wb") as errors:
        listening.bind(path)
        listening.listen()
        program = [sys.executable, str(pathlib.Path(__file__).with_name("fork_server.py")), str(listening.fileno()), str(folder / "spent")]
        # Modules read these when they are imported.
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
        server = subprocess.Popen(
            program, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=errors, pass_fds=[listening.fileno()], start_new_session=True, env=environment
        )
    config.stash[SERVER] = (server, folder)


def spent(config: pytest.Config) -> Iterator[tuple[str, float]]:
    """Yields the CPU time in seconds of each program that was such a copy, with the name of its test, and of what was imported: these are the server's processes,
    and not the test's."""
    lines = (config.stash[SERVER][1] / "spent") if SERVER in config.stash else pathlib.Path()
    for line in lines.read_text().splitlines() if lines.is_file() else []:
        seconds, _, test = line.partition(" ")
        # pytest adds whether it is set up or called, and the server that modules are imported once.
        yield test.rpartition(" (")[0], float(seconds)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Ends the server, and prints what it has written to its standard error if it has failed."""
    if SERVER not in config.stash:
        return
    server, folder = config.stash[SERVER]
    assert server.stdin is not None
    server.stdin.close()
    if server.wait() != 0:
        config.get_terminal_writer().write((folder / "errors").read_text(errors="replace"))
    shutil.rmtree(folder, ignore_errors=True)
