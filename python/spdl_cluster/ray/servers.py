"""What runs on the nodes: an actor for the coordinator, and one for each worker. Each has a server as its child. The two end
together, and then Ray starts the actor again, with the folder that it had on this node."""

from __future__ import annotations

import ipaddress
import json
import os
import pathlib
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import ray

from .. import program
from ..errors import RefusedError
from ..run import certificates
from ..run.address import own_address, with_port
from ..run.console import tail
from ..run.errors import LaunchError
from ..run.folders import KEPT_S, PrivateFolder

#: What a server gets to end, and for one call of `spdl-ctl`. A job is read from its dataset's store when it is submitted.
_GRACE_S, _CALL_S = 4.0, 120.0
#: Before an actor ends whose server has ended, so that Ray does not start a server again and again at once.
_PAUSE_S = 1.0
#: Of a server, only warnings and errors reach the driver's output; `SPDL_LOG` chooses other ones.
_LOG = "warn"
_READY = "ready.json"
#: Letters of a node's id that are enough to tell it from others.
_ID = 12
#: The folder of a client's certificate in a private folder.
CLIENT = "certs/client"


class Server:
    """A server process."""

    def __init__(self, name: str, arguments: Sequence[str], variables: Mapping[str, str], log: pathlib.Path, limit_s: float) -> None:
        """Starts it and waits until it is ready."""
        command = [program.path(), "--die-with-parent", *arguments]
        with open(log, "ab") as errors:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, env={"SPDL_LOG": _LOG, **os.environ, **variables}
            )
        assert self._process.stdout is not None
        is_ready = bool(select.select([self._process.stdout], [], [], limit_s)[0])
        line = self._process.stdout.readline() if is_ready else b""
        if not line:
            self._process.kill()
            problem = f"ended with exit code {self._process.wait()}" if is_ready else f"was not ready after {limit_s:g} s"
            raise LaunchError(f"{name} {problem}; it wrote:\n{tail(log)}")
        #: What it reported when it was ready.
        self.ready: dict[str, Any] = json.loads(line)
        self._is_kept = True
        threading.Thread(target=self._watch, args=(name, log), daemon=True).start()

    def stop(self) -> None:
        """Ends it."""
        self._is_kept = False
        self._process.terminate()
        try:
            self._process.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _watch(self, name: str, log: pathlib.Path) -> None:
        status = self._process.wait()
        if self._is_kept:
            what = f"exit code {status}" if status >= 0 else f"signal {-status}"
            _end_again(f"{name} ended with {what}, and is started again; its last lines:\n{tail(log)}")


class _ServerActor:
    """An actor with a server as its child, and their folder."""

    def __init__(self, folder: str) -> None:
        self._folder = PrivateFolder(folder)
        self._folder.keep()
        _repeat(KEPT_S / 3, self._folder.keep)
        self._server: Server | None = None
        #: Why there is no server.
        self._failure: LaunchError | None = None
        try:
            self._start()
        except LaunchError as error:
            if ray.get_runtime_context().was_current_actor_reconstructed:
                _end_again(str(error))
            self._failure = error

    def _start(self) -> None:
        """Starts the server."""
        raise NotImplementedError

    def _check(self) -> None:
        """Raises the error for which there is no server."""
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """Ends the server and removes the folder."""
        if self._server is not None:
            self._server.stop()
        self._folder.remove()


class CoordinatorActor(_ServerActor):
    """The coordinator, with the certificates of all."""

    def __init__(self, launch: str, arguments: Sequence[str], http: str, limit_s: float) -> None:
        self._arguments, self._http, self._limit_s = arguments, http, limit_s
        super().__init__(launch)

    def _start(self) -> None:
        folder = self._folder.path
        ca = certificates.issue(self._call, folder)
        host, listen = _addresses()
        before = folder / _READY
        # Started again, it has the addresses that all know.
        known = json.loads(before.read_text()) if before.exists() else {"quic": listen, "http": self._http}
        where = ["--listen", known["quic"], "--http", known["http"], "--state", str(folder / "state"), "--ca", str(ca)]
        self._server = Server("the coordinator", ["coord", *where, *self._arguments], {}, folder / "coordinator.log", self._limit_s)
        ready = self._server.ready
        before.write_text(json.dumps(ready))
        self._address, self._page = with_port(host, int(ready["quic"].rsplit(":", 1)[1])), str(ready["http"])
        _repeat(certificates.RENEW_S, lambda: certificates.issue(self._call, folder))

    def addresses(self) -> tuple[str, str, str]:
        """Returns `HOST:PORT` of the coordinator, the address of its page, and the folder of an administrator's certificate on its node."""
        self._check()
        return self._address, self._page, str(self._folder.path / "certs/admin")

    def certificates(self) -> dict[str, dict[str, str]]:
        """Returns the certificates of workers and clients."""
        self._check()
        return certificates.texts(self._folder.path)

    def submit(self, shown: str, text: str) -> str:
        """Submits a job and returns its name."""
        self._check()
        path = self._folder.path / "job.toml"
        path.write_text(text)
        try:
            return program.submit(self._call, path, "--coord", self._address, "--certs", self._folder.path / "certs/admin")
        except RefusedError as error:
            raise LaunchError(f"job `{shown}` was not accepted: {error}") from None

    def _call(self, *arguments: object) -> program.Outcome:
        return program.run("--die-with-parent", *arguments, limit_s=_CALL_S)


class WorkerActor(_ServerActor):
    """The worker of a node."""

    def __init__(self, launch: str, arguments: Sequence[str], has_functions: bool, limit_s: float) -> None:
        self._launch, self._arguments, self._has_functions, self._limit_s = launch, arguments, has_functions, limit_s
        self._node: str = ray.get_runtime_context().get_node_id()
        super().__init__(folder_name(launch, self._node))

    def _start(self) -> None:
        folder = self._folder.path
        keep_certificates(self._launch, folder, self._limit_s)
        coordinator, _, _ = ray.get(ray.get_actor(self._launch).addresses.remote(), timeout=self._limit_s)
        _, listen = _addresses()
        name = f"worker-{self._node[:_ID]}"
        command = ["worker", "--name", name, "--coord", coordinator, "--listen", listen, "--certs", str(folder / "certs/worker")]
        command += ["--socket", str(folder / "worker.sock"), *(["--python", sys.executable] if self._has_functions else [])]
        self._server = Server(name, [*command, *self._arguments], {"SPDL_NODE": self._node}, folder / "worker.log", self._limit_s)

    def node(self) -> str:
        """Returns the id of its node, when its worker is ready."""
        self._check()
        return self._node


def folder_name(launch: str, node: str) -> str:
    """Returns the name of the private folder of a node's worker."""
    return f"{launch}-{node[:_ID]}"


def _addresses() -> tuple[str, str]:
    """Returns the address at which other nodes reach this one, and where a server listens."""
    host = own_address(ray.util.get_node_ip_address(), None)
    return host, with_port(host, 0) if ipaddress.ip_address(host).is_loopback else "0.0.0.0:0"


def _end_again(reason: str) -> NoReturn:
    """Ends this actor, which Ray then starts again."""
    print(reason, file=sys.stderr, flush=True)
    time.sleep(_PAUSE_S)
    os._exit(1)


def _repeat(pause_s: float, work: Callable[[], object]) -> None:
    """Does some work again and again in this process, after a pause each time. An error is printed, and does not end it."""

    def run() -> None:
        while True:
            time.sleep(pause_s)
            try:
                work()
            except Exception as error:  # Ray has many.
                print(error, file=sys.stderr, flush=True)

    threading.Thread(target=run, daemon=True).start()


def keep_certificates(launch: str, folder: pathlib.Path, limit_s: float) -> None:
    """Writes the certificates of a worker and of clients into a folder, and again when the coordinator's actor has made them anew."""

    def write() -> None:
        certificates.write(folder, ray.get(ray.get_actor(launch).certificates.remote(), timeout=limit_s))

    write()
    _repeat(certificates.RENEW_S, write)
