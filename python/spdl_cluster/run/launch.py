"""One launcher at work: the node's servers, the command, and the end of both."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import signal
import time
from collections.abc import Iterator, Mapping
from typing import Any

from ..errors import SpdlError
from . import certificates
from .arguments import Options
from .cluster import NodeCluster
from .console import Console
from .errors import LaunchError, Stopped
from .events import Timer
from .exchange import Exchange, First, Others
from .group import GroupProbe
from .guard import GRACE_S
from .linux import SignalInfo, is_pending
from .place import Place
from .processes import Process, Processes

#: How often the shared folder is looked at while something is waited for, and otherwise.
_LOOK_S, _IDLE_LOOK_S = 0.25, 5.0
#: A launcher on another node that has written nothing for so long is gone. NFS shows what others write within 60 s.
_SILENCE_S = 150.0
#: For the other nodes to learn why there is no training: after an error, and after a signal.
_FAREWELL_S, _SHORT_FAREWELL_S = 15.0, 2.0
#: A signal to all processes of a job reaches the launcher, the command and the probe within this time, also on a busy machine.
_TOGETHER_S = 1.0
#: The launcher's outer process is waited for so long while it has not handed on such a signal.
_LATE_S = 30.0
#: How often a wait is reported.
_REPORT_S = 30.0
_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


class Launch:
    """Runs one launcher's command with the servers of its node."""

    def __init__(
        self, options: Options, place: Place, folder: pathlib.Path, exchange: Exchange | None, mask: set[signal.Signals | int], guard: int
    ) -> None:
        """`folder` is private to this launcher. `guard` can be read when the outer process is gone."""
        self._options, self._place, self._folder = options, place, folder
        self._console = Console(place.index, place.count, options.is_quiet)
        self._processes = Processes(mask, self._handle_signal)
        self._events = self._processes.events
        self._guard = guard
        self._events.watch(guard, self._handle_guards_end)
        self._cluster = NodeCluster(options, place, folder, self._processes, self._console)
        self._exchange = exchange
        self._others = Others(exchange, place.count) if exchange and place.is_first else None
        #: What the other launchers are answered; `None` until there is something to say.
        self._answer: dict[str, Any] | None = None
        self._look: Timer | None = None
        self._first = First(exchange, place.index) if exchange and not place.is_first else None
        #: The certificates that this launcher has got from the first.
        self._certificates: dict[str, dict[str, str]] = {}
        self._command: Process | None = None
        self._is_closing = False
        self._probe = GroupProbe(self._processes)
        #: Signals for which it is not decided yet whether the command has got them.
        self._forwards: dict[int, Timer] = {}
        #: The fault of the shared folder that was reported last.
        self._fault = ""

    def run(self) -> int:
        """Runs the command and returns its exit code, or 128 and the number of the signal that ended it."""
        try:
            environment = self._prepare_first() if self._place.is_first else self._prepare_other()
            code = self._run_command(environment)
            if code == 0:
                self._wait_for_others()
            return code
        except SpdlError as error:
            self._console.error(error)
            self._tell_others(f"launcher 0 failed: {error}", _FAREWELL_S)
            return 1
        except Stopped as stopped:
            self._tell_others("launcher 0 was stopped", _SHORT_FAREWELL_S)
            return 128 + stopped.number
        finally:
            self._close()

    # What is there before the command.

    def _prepare_first(self) -> dict[str, str]:
        """Starts the coordinator and this node's worker, and submits the jobs. Returns the variables for the command."""
        self._serve_others()
        if not self._options.jobs and self._options.state is None:
            raise LaunchError("there is no job", "name a job file with `--job`")
        coordinator = self._cluster.start_coordinator()
        jobs = {str(path): self._cluster.submit(path, coordinator) for path in self._options.jobs}
        self._cluster.start_worker(coordinator)
        launch = self._place.launch or self._folder.name
        self._answer = {"coordinator": coordinator, "jobs": jobs, "launch": launch, "certificates": certificates.texts(self._folder)}
        self._events.after(certificates.RENEW_S, self._renew)
        return self._environment(coordinator, jobs, launch)

    def _renew(self) -> None:
        """Makes certificates anew, for as long as the launch takes."""
        self._events.after(certificates.RENEW_S, self._renew)
        try:
            self._cluster.renew_certificates()
        except LaunchError as error:
            self._console.error(error)
            return
        if self._answer is not None and "certificates" in self._answer:
            self._answer = {**self._answer, "certificates": certificates.texts(self._folder)}

    def _prepare_other(self) -> dict[str, str]:
        """Waits for the first launcher and starts this node's worker. Returns the variables for the command."""
        assert self._first is not None and self._exchange is not None
        first = self._first
        found: dict[str, Any] = {}

        def has_answer() -> bool:
            found.update(first.answer() or {})
            return bool(found)

        self._look_at_first(_LOOK_S)
        limit_s, waited_s = self._options.nodes_timeout_s, 0.0
        where = f"launcher 0{f' on `{self._place.head}`' if self._place.head else ''}, through `{self._exchange.folder}`"
        while not has_answer():
            if waited_s >= limit_s:
                raise LaunchError(
                    f"{where} has not answered within {limit_s:g} s",
                    "start it with the same `--launch-id` and `--shared`; `--nodes-timeout` sets how long is waited",
                )
            self._console.info(f"waiting for {where}")
            pause_s = min(_REPORT_S, limit_s - waited_s)
            self._events.wait(has_answer, pause_s)
            waited_s += pause_s
        if "error" in found:
            raise LaunchError(str(found["error"]))
        self._certificates = found["certificates"]
        certificates.write(self._folder, self._certificates)
        self._look_at_first(_IDLE_LOOK_S)
        if self._place.has_worker:
            self._cluster.start_worker(found["coordinator"])
        return self._environment(found["coordinator"], found["jobs"], found["launch"])

    def _environment(self, coordinator: str, jobs: Mapping[str, str], launch: str) -> dict[str, str]:
        """Returns the variables of the command: what `spdl_cluster.connect` reads."""
        environment = dict(os.environ)
        environment["SPDL_COORD"] = coordinator
        environment["SPDL_CERTS"] = str(self._folder / "certs/client")
        environment["SPDL_JOB_FILES"] = json.dumps(jobs)
        environment["SPDL_LAUNCHER"], environment["SPDL_LAUNCHERS"] = str(self._place.index), str(self._place.count)
        environment.setdefault("SPDL_LAUNCH_ID", launch)
        if len(jobs) == 1:
            environment["SPDL_JOB"] = next(iter(jobs.values()))
        if self._place.node:
            environment.setdefault("SPDL_NODE", self._place.node)
        return environment

    # The command, and what comes after it.

    def _run_command(self, environment: Mapping[str, str]) -> int:
        self._probe.start()
        try:
            command = self._command = self._processes.start(self._options.command, environment)
        except OSError as error:
            self._console.error(f"`{self._options.command[0]}` cannot be started: {error.strerror}")
            return 127 if isinstance(error, FileNotFoundError) else 126
        self._events.wait(lambda: command.has_ended)
        self._command = None
        self._probe.stop()
        status = command.status
        assert status is not None
        if status != 0:
            what = f"exit code {status}" if status > 0 else f"signal {-status}"
            self._console.info(f"`{self._options.command[0]}` ended with {what}")
        self._processes.end_orphans(GRACE_S)
        return status if status >= 0 else 128 - status

    def _wait_for_others(self) -> None:
        """Keeps this node's servers until no other node needs them."""
        if self._others is not None:
            others = self._others
            if not others.alive(_SILENCE_S):
                return
            self._serve_others(_LOOK_S)
            while not self._events.wait(lambda: not others.alive(_SILENCE_S), _REPORT_S):
                self._console.info(f"waiting for the commands of launchers {', '.join(map(str, others.alive(_SILENCE_S)))}")
        elif self._first is not None:
            first = self._first
            first.end()
            if self._place.has_worker:
                self._look_at_first(_LOOK_S)
                self._events.wait(lambda: first.is_gone(_SILENCE_S))

    def _tell_others(self, error: str, limit_s: float) -> None:
        """Tells the launchers that wait for this one why there is nothing to wait for."""
        if self._others is None or (self._answer is not None and "error" not in self._answer):
            return
        others, self._answer = self._others, {"error": error}
        self._is_closing = True
        self._serve_others(_LOOK_S)
        self._events.wait(lambda: not others.missing and not others.alive(_SILENCE_S), limit_s)

    def _close(self) -> None:
        """Ends all processes, and says so to the other launchers."""
        self._is_closing = True
        if self._command is not None:
            self._processes.stop([self._command], GRACE_S)
            self._command = None
        self._probe.stop()
        self._processes.end_orphans(GRACE_S)
        self._cluster.stop()
        if self._first is not None:
            with contextlib.suppress(LaunchError):
                self._first.end()
        if self._others is not None and self._exchange is not None:
            self._exchange.remove()

    # The other launchers.

    def _serve_others(self, interval_s: float | None = None) -> None:
        """Answers the other launchers from here on."""
        if self._others is None:
            return
        if self._look is not None:
            self._look.cancel()
        others = self._others
        with self._tolerated_faults():
            others.look()
            if self._answer is not None:
                others.answer(self._answer)
        is_busy = others.missing or self._answer is None
        pause_s = interval_s or (_LOOK_S if is_busy else _IDLE_LOOK_S)
        self._look = self._events.after(pause_s, lambda: self._serve_others(interval_s))

    def _look_at_first(self, interval_s: float) -> None:
        """Shows the first launcher that this one is there, and takes over renewed certificates, from here on."""
        assert self._first is not None
        if self._look is not None:
            self._look.cancel()
        with self._tolerated_faults():
            self._first.look()
            answer = self._first.answer() if self._certificates else None
            if answer is not None and answer.get("certificates") not in (None, self._certificates):
                self._certificates = answer["certificates"]
                certificates.write(self._folder, self._certificates)
        self._look = self._events.after(interval_s, lambda: self._look_at_first(interval_s))

    @contextlib.contextmanager
    def _tolerated_faults(self) -> Iterator[None]:
        """Reports a fault of the shared folder that comes while the command runs, which needs the folder no more."""
        try:
            yield
        except LaunchError as error:
            if self._command is None:
                raise
            if str(error) != self._fault:
                self._console.error(error)
            self._fault = str(error)

    # Signals.

    def _handle_signal(self, info: SignalInfo) -> None:
        if self._is_closing:
            return
        if self._command is None:
            if info.number in _ENDING:
                raise Stopped(info.number)
        elif info.number not in self._forwards:
            self._forward_later(info.number, time.monotonic() - _TOGETHER_S)

    def _forward_later(self, number: int, since: float) -> None:
        self._forwards[number] = self._events.after(_TOGETHER_S, lambda: self._forward(number, since))

    def _forward(self, number: int, since: float) -> None:
        """Sends a signal to the command, unless whoever sent it did so."""
        if is_pending(number, os.getppid()) and time.monotonic() - since < _LATE_S:
            self._forward_later(number, since)
            return
        del self._forwards[number]
        if self._command is not None and not self._probe.was_hit(number, since):
            self._command.signal(number)

    def _handle_guards_end(self) -> None:
        self._events.forget(self._guard)
        if not self._is_closing:
            raise Stopped(signal.SIGKILL)
