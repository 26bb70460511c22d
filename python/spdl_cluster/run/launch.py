"""One launcher at work: the node's servers, the command, and the end of both."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import sys
import time
from collections.abc import Mapping
from typing import Any

from .. import program
from ..errors import SpdlError
from . import certificates
from .address import own_address, with_port
from .arguments import Options
from .console import Console
from .errors import LaunchError, Stopped
from .events import Timer
from .exchange import Exchange, First, Others
from .group import GroupProbe
from .guard import GRACE_S
from .linux import SignalInfo
from .place import Place
from .processes import Outcome, Process, Processes
from .servers import Server

#: What a server gets to end.
_SERVER_GRACE_S = 4.0
#: How often the shared folder is looked at while something is waited for, and otherwise.
_LOOK_S, _IDLE_LOOK_S = 0.25, 5.0
#: A launcher on another node that has written nothing for so long is gone. NFS shows what others write within 60 s.
_SILENCE_S = 150.0
#: For the other nodes to learn why there is no training.
_FAREWELL_S = 15.0
#: For one call of `spdl-ctl`. A job is read from its dataset's store when it is submitted.
_CALL_S = 120.0
#: A signal to all processes of a job reaches the launcher, the command and the probe within this time.
_TOGETHER_S = 0.2
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
        self._program = program.path()
        self._exchange = exchange
        self._others = Others(exchange, place.count) if exchange and place.is_first else None
        #: What the other launchers are answered; `None` until there is something to say.
        self._answer: dict[str, Any] | None = None
        self._look: Timer | None = None
        self._first = First(exchange, place.index) if exchange and not place.is_first else None
        #: The certificates that this launcher has got from the first.
        self._certificates: dict[str, dict[str, str]] = {}
        self._servers: list[Server] = []
        self._command: Process | None = None
        self._is_closing = False
        self._probe = GroupProbe(self._processes)
        #: Signals for which it is not decided yet whether the command has got them.
        self._forwards: dict[int, Timer] = {}
        #: Servers take what else they are told by `SPDL_*` variables.
        self._servers_environment = {**os.environ, **({"SPDL_NODE": place.node} if place.node else {})}
        for name in ("SPDL_COORD_CA", "SPDL_COORD_CERTS"):
            self._servers_environment.pop(name, None)

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
            self._tell_others("launcher 0 was stopped", _FAREWELL_S)
            return 128 + stopped.number
        finally:
            self._close()

    # What is there before the command.

    def _prepare_first(self) -> dict[str, str]:
        """Starts the coordinator and this node's worker, and submits the jobs. Returns the variables for the command."""
        self._serve_others()
        if not self._options.jobs and self._options.state is None:
            raise LaunchError("there is no job", "name a job file with `--job`")
        ca = certificates.issue(self._ctl, self._folder)
        ready = self._start_coordinator(ca)
        port = int(ready["quic"].rsplit(":", 1)[1])
        host = "127.0.0.1" if self._is_one_node else own_address(self._options.address, self._place.head)
        coordinator = with_port(host, port)
        jobs = {str(path): self._submit(path, coordinator) for path in self._options.jobs}
        self._console.info(
            f"coordinator on {coordinator}, its page on http://{ready['http']}; the state: "
            f"spdl-ctl status --coord {coordinator} --certs {self._folder / 'certs/admin'}"
        )
        self._start_worker(coordinator)
        self._answer = {"coordinator": coordinator, "jobs": jobs, "launch": self._launch, "certificates": certificates.texts(self._folder)}
        self._events.after(certificates.RENEW_S, self._renew)
        return self._environment(coordinator, jobs, self._launch)

    def _renew(self) -> None:
        """Makes certificates anew, for as long as the launch takes."""
        self._events.after(certificates.RENEW_S, self._renew)
        try:
            certificates.issue(self._ctl, self._folder)
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
        while not self._events.wait(has_answer, min(_REPORT_S, limit_s - waited_s)):
            waited_s += min(_REPORT_S, limit_s - waited_s)
            if waited_s >= limit_s:
                raise LaunchError(
                    f"{where} has not answered within {limit_s:g} s",
                    "start it with the same `--launch-id` and `--shared`; `--nodes-timeout` sets how long is waited",
                )
            self._console.info(f"waiting for {where}")
        if "error" in found:
            raise LaunchError(str(found["error"]))
        self._certificates = found["certificates"]
        certificates.write(self._folder, self._certificates)
        self._look_at_first(_IDLE_LOOK_S)
        if self._place.has_worker:
            self._start_worker(found["coordinator"])
        return self._environment(found["coordinator"], found["jobs"], found["launch"])

    @property
    def _is_one_node(self) -> bool:
        return self._place.count == 1 or self._place.is_one_node

    @property
    def _listen(self) -> str:
        return "127.0.0.1:0" if self._is_one_node else "0.0.0.0:0"

    @property
    def _launch(self) -> str:
        return self._place.launch or self._folder.name

    def _start_coordinator(self, ca: pathlib.Path) -> dict[str, Any]:
        options = self._options
        state = options.state.absolute() if options.state else self._folder / "state"

        def command(before: dict[str, Any] | None) -> list[str]:
            # Started again, it has the address that all know.
            quic, http = (before["quic"], before["http"]) if before else (self._listen, options.http)
            where = ["--listen", quic, "--http", http, "--state", str(state), "--ca", str(ca)]
            return [self._program, "--die-with-parent", "coord", *where, *options.coordinator_arguments]

        return self._start_server("coordinator", command)

    def _start_worker(self, coordinator: str) -> None:
        options, name = self._options, f"worker-{self._place.index}"
        command = [self._program, "--die-with-parent", "worker", "--name", name, "--coord", coordinator, "--listen", self._listen]
        command += ["--certs", str(self._folder / "certs/worker"), "--socket", str(self._folder / "worker.sock")]
        for flag, value in (("--cores", options.cores), ("--memory", options.memory), ("--cache-dir", options.cache_dir)):
            command += [flag, str(value)] if value is not None else []
        command += ["--python", sys.executable] if options.allow_transforms else []
        self._start_server(name, lambda _: [*command, *options.worker_arguments])

    def _start_server(self, name: str, command: Any) -> dict[str, Any]:
        logs = self._options.logs or self._folder / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        server = Server(name, command, self._servers_environment, logs / f"{name}.log", self._processes, self._console)
        self._servers.append(server)
        return server.start(self._options.start_timeout_s)

    def _submit(self, path: pathlib.Path, coordinator: str) -> str:
        """Submits a job file and returns the job's name."""
        done = self._ctl("job", "submit", path, "--coord", coordinator, "--certs", self._folder / "certs/admin", "--json")
        if done.status is None:
            raise LaunchError(f"job file `{path}` could not be submitted within {_CALL_S:g} s")
        if done.status != 0:
            raise LaunchError(f"job file `{path}` was not accepted:\n{done.errors.strip()}")
        name: str = json.loads(done.output.splitlines()[-1])["name"]
        return name

    def _ctl(self, *arguments: object) -> Outcome:
        command = [self._program, "--die-with-parent", *map(str, arguments)]
        return self._processes.run(command, self._servers_environment, self._folder, _CALL_S)

    def _environment(self, coordinator: str, jobs: Mapping[str, str], launch: str) -> dict[str, str]:
        """Returns the variables of the command: what `spdl_cluster.connect` reads."""
        environment = dict(os.environ)
        environment["SPDL_COORD"] = coordinator
        environment["SPDL_CERTS"] = str(self._folder / "certs/client")
        environment["SPDL_JOB_FILES"] = json.dumps(jobs)
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
            what = f"exit code {status}" if status > 0 else signal.Signals(-status).name
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
        for server in reversed(self._servers):
            server.stop(_SERVER_GRACE_S)
        if self._first is not None:
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
        others.look()
        if self._answer is not None:
            others.answer(self._answer)
        is_busy = others.missing or self._answer is None
        pause_s = interval_s or (_LOOK_S if is_busy else _IDLE_LOOK_S)
        self._look = self._events.after(pause_s, lambda: self._serve_others(interval_s))

    def _look_at_first(self, interval_s: float) -> None:
        """Shows the first launcher that this one is there, from here on."""
        assert self._first is not None
        if self._look is not None:
            self._look.cancel()
        self._first.look()
        answer = self._first.answer() if self._certificates else None
        if answer is not None and answer.get("certificates") not in (None, self._certificates):
            self._certificates = answer["certificates"]
            certificates.write(self._folder, self._certificates)
        self._look = self._events.after(interval_s, lambda: self._look_at_first(interval_s))

    # Signals.

    def _handle_signal(self, info: SignalInfo) -> None:
        if self._is_closing:
            return
        if self._command is None:
            if info.number in _ENDING:
                raise Stopped(info.number)
        elif info.number not in self._forwards:
            since = time.monotonic() - _TOGETHER_S
            self._forwards[info.number] = self._events.after(_TOGETHER_S, lambda: self._forward(info.number, since))

    def _forward(self, number: int, since: float) -> None:
        """Sends a signal to the command, unless whoever sent it did so."""
        del self._forwards[number]
        if self._command is not None and not self._probe.was_hit(number, since):
            self._command.signal(number)

    def _handle_guards_end(self) -> None:
        self._events.forget(self._guard)
        if not self._is_closing:
            raise Stopped(signal.SIGKILL)
