"""Whether a signal went to all processes of a group or of a job, or to the launcher alone."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time

from .processes import Process, Processes

#: A process that does nothing, and that any signal ends.
_PROBE = "cat"


class GroupProbe:
    """A process beside the command. Ctrl-C in a terminal, SLURM and others send a signal to every process, so to the command too, and
    the launcher must not send it a second time. What they send ends the probe."""

    def __init__(self, processes: Processes) -> None:
        self._processes = processes
        self._process: Process | None = None
        #: When each signal has ended the probe last.
        self._ended: dict[int, float] = {}
        self._is_wanted = False

    def start(self) -> None:
        """Starts the probe. Where there is no such program, all signals count as sent to the launcher alone."""
        self._is_wanted = True
        program = shutil.which(_PROBE)
        if program is not None:
            files = {"stdin": subprocess.PIPE, "stdout": subprocess.DEVNULL}
            self._process = self._processes.start([program], os.environ, self._handle_end, **files)

    def was_hit(self, number: int, since: float) -> bool:
        """Whether this signal has ended the probe since then."""
        return self._ended.get(number, since - 1.0) >= since

    def stop(self) -> None:
        """Ends the probe."""
        self._is_wanted = False
        if self._process is not None:
            self._processes.stop([self._process], 0.0)

    def _handle_end(self, process: Process) -> None:
        if self._is_wanted and process.status is not None and process.status < 0:
            self._ended[-process.status] = time.monotonic()
            with contextlib.suppress(OSError):
                self.start()
