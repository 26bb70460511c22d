"""The processes that a launcher starts, and those that they leave behind."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
from collections.abc import Callable, Iterable, Mapping
from typing import IO

from ..program import Outcome
from .events import Events
from .linux import SignalInfo, children, die_with_parent

#: Signals that are for the trainer. Platforms send them to every process of a job.
_TRAINERS = (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)

#: How long processes are waited for that nothing but the kernel keeps, as where storage hangs.
_KILL_S = 10.0


class Process:
    """A child of the launcher."""

    def __init__(self, popen: subprocess.Popen[bytes], on_end: Callable[[Process], None] | None) -> None:
        self._popen, self._on_end = popen, on_end
        self.pid = popen.pid
        self.stdout: IO[bytes] | None = popen.stdout

    @property
    def status(self) -> int | None:
        """Its exit code, or minus the signal that ended it; `None` while it is alive."""
        return self._popen.returncode

    @property
    def has_ended(self) -> bool:
        """Whether it has ended."""
        return self.status is not None

    def signal(self, number: int) -> None:
        """Sends it a signal, if it is alive."""
        # Nobody else waits for children, so that its number cannot be that of another process.
        if not self.has_ended:
            os.kill(self.pid, number)

    def reap(self) -> None:
        """Takes its status, when it is known to have ended."""
        self._popen.poll()
        if self._on_end is not None:
            self._on_end(self)


class Processes:
    """All children of a launcher."""

    def __init__(
        self,
        mask: set[signal.Signals | int],
        on_signal: Callable[[SignalInfo], None],
        forked: Mapping[int, Callable[[int], None]] | None = None,
    ) -> None:
        """Starts programs with the signals in `mask` blocked. `forked` has functions that take the status of other children."""
        self._mask, self._parent = mask, os.getpid()
        self._known: dict[int, Process] = {}
        self._forked = dict(forked or {})
        self.events = Events(on_signal, self._reap)

    def start(
        self,
        command: list[str],
        environment: Mapping[str, str],
        on_end: Callable[[Process], None] | None = None,
        stdin: int | None = None,
        stdout: int | None = None,
    ) -> Process:
        """Starts a program in this process's group, with its terminal unless other files are given."""

        def prepare() -> None:
            die_with_parent(self._parent, signal.SIGTERM)
            signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)

        return self._add(subprocess.Popen(command, env=environment, stdin=stdin, stdout=stdout, preexec_fn=prepare), on_end)

    def start_server(
        self,
        command: list[str],
        environment: Mapping[str, str],
        output: IO[bytes] | int,
        log: IO[bytes],
        on_end: Callable[[Process], None] | None = None,
    ) -> Process:
        """Starts a program without a terminal, so that Ctrl-C is not for it."""

        def prepare() -> None:
            die_with_parent(self._parent, signal.SIGTERM)
            for number in _TRAINERS:
                signal.signal(number, signal.SIG_IGN)
            signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)

        popen = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=log,
            start_new_session=True,
            preexec_fn=prepare,
        )
        return self._add(popen, on_end)

    def run(self, command: list[str], environment: Mapping[str, str], folder: pathlib.Path, limit_s: float) -> Outcome:
        """Runs a program to its end, which is a kill after `limit_s` seconds. What it writes goes through files in `folder`."""
        output, errors = folder / "output", folder / "errors"
        with open(output, "wb") as out, open(errors, "wb") as err:
            process = self.start_server(command, environment, out, err)
        if not self.events.wait(lambda: process.has_ended, limit_s):
            self.stop([process], 0.0)
            return Outcome(None, "", "")
        texts = [path.read_text(errors="replace") for path in (output, errors)]
        return Outcome(process.status, *texts)

    def stop(self, processes: Iterable[Process], grace_s: float) -> None:
        """Ends processes: with SIGTERM, and those that are there after a while with SIGKILL."""
        processes = list(processes)
        for number, limit_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, _KILL_S)):
            for process in processes:
                process.signal(number)
            if self.events.wait(lambda: all(process.has_ended for process in processes), limit_s):
                return

    def end_orphans(self, grace_s: float) -> None:
        """Ends the children that this launcher did not start: their parents have ended. Ends those too that they leave."""
        for number, limit_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, _KILL_S)):
            signalled: set[int] = set()

            def all_have_ended() -> bool:
                orphans = self._orphans()
                # A process that has ended and is not reaped yet takes signals, so that this never finds nobody.
                for child in orphans - signalled:
                    os.kill(child, number)
                signalled.intersection_update(orphans)
                signalled.update(orphans)
                return not orphans

            if self.events.wait(all_have_ended, limit_s):
                return

    def _orphans(self) -> set[int]:
        self._reap()
        return {child for child in children() if child not in self._known and child not in self._forked}

    def _add(self, popen: subprocess.Popen[bytes], on_end: Callable[[Process], None] | None) -> Process:
        process = self._known[popen.pid] = Process(popen, on_end)
        return process

    def _reap(self) -> None:
        """Takes the status of every child that has ended."""
        while True:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if ended is None:
                return
            process = self._known.pop(ended.si_pid, None)
            if process is not None:
                process.reap()
                continue
            _, status = os.waitpid(ended.si_pid, 0)
            if (on_end := self._forked.pop(ended.si_pid, None)) is not None:
                on_end(os.waitstatus_to_exitcode(status))
