"""What a launcher starts on its node: the coordinator on the first one, the worker, and calls of `spdl-ctl`."""

from __future__ import annotations

import os
import pathlib
import sys
from collections.abc import Callable
from typing import Any

from .. import program
from ..errors import RefusedError
from ..program import Outcome
from . import certificates
from .address import own_address, with_port
from .arguments import Options
from .console import Console
from .errors import LaunchError
from .place import Place
from .processes import Processes
from .servers import Server

#: What a server gets to end.
_GRACE_S = 4.0
#: For one call of `spdl-ctl`. A job is read from its dataset's store when it is submitted.
_CALL_S = 120.0
#: Variables that contradict what the launcher passes to the coordinator.
_OTHER_AUTHORITY = ("SPDL_COORD_CA", "SPDL_COORD_CERTS")


class NodeCluster:
    """The servers of one node, with their certificates and logs in a private folder."""

    def __init__(self, options: Options, place: Place, folder: pathlib.Path, processes: Processes, console: Console) -> None:
        self._options, self._place, self._folder = options, place, folder
        self._processes, self._console = processes, console
        self._program = program.path()
        self._servers: list[Server] = []
        # Servers read further settings from `SPDL_*` variables.
        self._environment = {name: value for name, value in os.environ.items() if name not in _OTHER_AUTHORITY}
        if place.node:
            self._environment["SPDL_NODE"] = place.node
        is_one_node = place.count == 1 or place.is_one_node
        self._host = "127.0.0.1" if is_one_node else None
        self._listen = "127.0.0.1:0" if is_one_node else "0.0.0.0:0"

    def start_coordinator(self) -> str:
        """Makes the certificates, starts the coordinator and returns the address at which all nodes reach it."""
        host = self._host or own_address(self._options.address, self._place.head)
        ca = certificates.issue(self._call, self._folder)
        state = self._options.state.absolute() if self._options.state else self._folder / "state"

        def command(before: dict[str, Any] | None) -> list[str]:
            # Started again, it has the addresses that all know.
            quic, http = (before["quic"], before["http"]) if before else (self._listen, self._options.http)
            where = ["--listen", quic, "--http", http, "--state", str(state), "--ca", str(ca)]
            return ["coord", *where, *self._options.coordinator_arguments]

        ready = self._start("coordinator", command)
        address = with_port(host, int(ready["quic"].rsplit(":", 1)[1]))
        self._console.info(
            f"coordinator on {address}, its page on http://{ready['http']}; the state: "
            f"spdl-ctl status --coord {address} --certs {self._folder / 'certs/admin'}"
        )
        return address

    def submit(self, path: pathlib.Path, coordinator: str) -> str:
        """Submits a job file and returns the job's name."""
        try:
            return program.submit(self._call, path, "--coord", coordinator, "--certs", self._folder / "certs/admin")
        except RefusedError as error:
            raise LaunchError(f"job file `{path}` was not accepted: {error}") from None

    def start_worker(self, coordinator: str) -> None:
        """Starts the node's worker, with certificates that are in the folder."""
        options, name = self._options, f"worker-{self._place.index}"
        command = ["worker", "--name", name, "--coord", coordinator, "--listen", self._listen]
        command += ["--certs", str(self._folder / "certs/worker"), "--socket", str(self._folder / "worker.sock")]
        for flag, value in (("--cores", options.cores), ("--memory", options.memory), ("--cache-dir", options.cache_dir)):
            command += [flag, str(value)] if value is not None else []
        command += ["--python", sys.executable] if options.allow_transforms else []
        self._start(name, lambda _: [*command, *options.worker_arguments])

    def renew_certificates(self) -> None:
        """Makes all certificates anew; the servers take them over."""
        certificates.issue(self._call, self._folder)

    def stop(self) -> None:
        """Ends the servers: the worker first."""
        for server in reversed(self._servers):
            server.stop(_GRACE_S)

    def _start(self, name: str, arguments: Callable[[dict[str, Any] | None], list[str]]) -> dict[str, Any]:
        logs = self._options.logs or self._folder / "logs"
        try:
            logs.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise LaunchError(f"folder `{logs}` cannot be made: {error.strerror}", "name another one with `--log-dir`") from error
        command = [self._program, "--die-with-parent"]
        log = logs / f"{name}.log"
        server = Server(
            name, lambda before: [*command, *arguments(before)], self._environment, log, self._processes, self._console
        )
        self._servers.append(server)
        return server.start(self._options.start_timeout_s)

    def _call(self, *arguments: object) -> Outcome:
        command = [self._program, "--die-with-parent", *map(str, arguments)]
        return self._processes.run(command, self._environment, self._folder, _CALL_S)
