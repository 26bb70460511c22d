"""The coordinator and the worker of a node: started, watched, and started again when they end by themselves."""

from __future__ import annotations

import collections
import json
import os
import pathlib
import subprocess
import time
from collections.abc import Callable, Mapping
from typing import Any

from .console import Console, tail
from .errors import LaunchError
from .events import Timer
from .processes import Process, Processes

#: A server that ends by itself so often within so many seconds is not started again.
_ENDS, _WITHIN_S = 5, 60.0
#: The pause before it is started again, after one, two, three ... ends.
_PAUSES_S = (0.1, 0.5, 2.0, 5.0)
#: A line that is longer is none of a server's.
_LINE_BYTES = 64 << 10


class Server:
    """One server process after another, with one name and one log."""

    def __init__(
        self,
        name: str,
        command: Callable[[dict[str, Any] | None], list[str]],
        environment: Mapping[str, str],
        log: pathlib.Path,
        processes: Processes,
        console: Console,
    ) -> None:
        """`command` returns the command line for what the process before has reported, `None` for the first."""
        self.name, self.log = name, log
        #: What the newest process has reported when it was ready.
        self.ready: dict[str, Any] | None = None
        self._command, self._environment = command, environment
        self._processes, self._console = processes, console
        self._process: Process | None = None
        self._is_ready = False
        self._line = b""
        self._ends: collections.deque[float] = collections.deque(maxlen=_ENDS)
        self._is_kept = False
        self._pending: Timer | None = None

    def start(self, limit_s: float) -> dict[str, Any]:
        """Starts the server and returns what it reports when it is ready. It is then kept alive until `stop`."""
        self._spawn()
        process = self._process
        assert process is not None
        in_time = self._processes.events.wait(lambda: self._is_ready or process.has_ended, limit_s)
        if not self._is_ready or self.ready is None:
            problem = f"ended with {_status(process)}" if in_time else f"was not ready after {limit_s:g} s"
            raise LaunchError(f"{self.name} {problem}; it wrote:\n{tail(self.log)}")
        self._is_kept = True
        return self.ready

    def stop(self, grace_s: float) -> None:
        """Ends the server, with SIGKILL if it does not end by itself in time."""
        self._is_kept = False
        if self._pending is not None:
            self._pending.cancel()
        if self._process is not None:
            self._processes.stop([self._process], grace_s)

    def _spawn(self) -> None:
        self._is_ready, self._line = False, b""
        with open(self.log, "ab") as log:
            command = self._command(self.ready)
            process = self._processes.start_server(command, self._environment, subprocess.PIPE, log, self._handle_end)
        self._process = process
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        self._processes.events.watch(process.stdout.fileno(), self._read_line)

    def _spawn_again(self) -> None:
        try:
            self._spawn()
        except OSError as error:
            self._is_kept = False
            self._console.error(f"{self.name} cannot be started again: {error}")

    def _read_line(self) -> None:
        assert self._process is not None and self._process.stdout is not None
        stdout = self._process.stdout
        data = stdout.read(4096)
        if data is None:
            return
        if not data or len(self._line) > _LINE_BYTES:
            self._processes.events.forget(stdout.fileno())
            stdout.close()
            return
        self._line += data
        if not self._is_ready and b"\n" in self._line:
            self.ready = json.loads(self._line.split(b"\n", 1)[0])
            self._is_ready = True

    def _handle_end(self, process: Process) -> None:
        if process.stdout is not None and not process.stdout.closed:
            self._processes.events.forget(process.stdout.fileno())
            process.stdout.close()
        if not self._is_kept:
            return
        now = time.monotonic()
        self._ends.append(now)
        what = f"{self.name} ended with {_status(process)}"
        if len(self._ends) == _ENDS and now - self._ends[0] < _WITHIN_S:
            self._is_kept = False
            self._console.error(f"{what}, for the {_ENDS}th time in a minute, and is not started again; its last lines:\n{tail(self.log)}")
            return
        recent = sum(now - end < _WITHIN_S for end in self._ends)
        self._pending = self._processes.events.after(_PAUSES_S[min(recent, len(_PAUSES_S)) - 1], self._spawn_again)
        self._console.error(f"{what}, and is started again; its last lines:\n{tail(self.log)}")


def _status(process: Process) -> str:
    status = process.status
    assert status is not None
    return f"exit code {status}" if status >= 0 else f"signal {-status}"
