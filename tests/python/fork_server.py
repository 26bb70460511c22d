"""Makes copies of processes that have imported what programs need: `fork_server.py SOCKET SPENT`, where `SOCKET` is that of a listening socket.

torch takes 1 s of CPU time to import, as much again what an optimiser imports at its first step, and a framework 8 s. One process has the first two, and a
copy of it, a template, has one program's modules besides. Each program runs in a copy of a template, and is asked for by `forked.py`. The CPU time of each is a line of
the file `SPENT`, with the test that has asked, and that of imports. All ends with the standard input.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import pathlib
import runpy
import select
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any, NoReturn

#: torchrun, and what optimisers import at their first step.
OF_ALL = ["torch.distributed.run", "torch._dynamo"]
#: The longest request, in bytes.
LONGEST = 1 << 20
#: What a copy does, or a template's first act; None at the end.
Act = Callable[[], Any] | None


def import_some(modules: list[str], spent: str) -> None:
    """Imports modules, but for those that cannot be imported: the program that needs them fails by itself."""
    for name in modules:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    note(spent, time.process_time(), f"imports of {','.join(modules)} (once)")


def note(spent: str, seconds: float, name: str) -> None:
    """Adds a line, in one write: others append to the file too."""
    with open(spent, "ab", buffering=0) as file:
        file.write(f"{seconds} {name}\n".encode())


def close(*descriptors: int) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def serve(listening: socket.socket, spent: str) -> Act:
    """Hands each request to the template that has its modules. Returns what a new template does, in that process; and None at the end of the standard input."""
    templates: dict[str, socket.socket] = {}
    poll = select.poll()
    poll.register(sys.stdin, select.POLLHUP)
    poll.register(listening, select.POLLIN)
    while True:
        if sys.stdin.fileno() in dict(poll.poll()):
            for template in templates.values():
                template.close()
            for _ in templates:
                os.wait()
            return None
        asking = listening.accept()[0]
        message, descriptors, *_ = socket.recv_fds(asking, LONGEST, 3)
        if not message:
            asking.close()
            continue
        modules = json.loads(message)["modules"]
        if modules not in templates:
            if not templates:
                import_some(OF_ALL, spent)
            templates[modules], requests = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            if os.fork() == 0:
                for held in (listening, asking, *templates.values()):
                    held.close()
                close(*descriptors)
                return functools.partial(be_template, requests, modules, spent)
            requests.close()
        socket.send_fds(templates[modules], [message], [asking.fileno(), *descriptors])
        asking.close()
        close(*descriptors)


class Copies:
    """The programs of a template that run: each with the connection of who has asked for it."""

    def __init__(self, spent: str) -> None:
        self.poll = select.poll()
        self._spent = spent
        #: By a descriptor of the process: its number, who has asked, and for which test.
        self._running: dict[int, tuple[int, socket.socket, str]] = {}

    def begin(self, request: dict[str, Any], asking: socket.socket) -> bool:
        """Makes a copy. Returns whether this is the copy."""
        pid = os.fork()
        if pid == 0:
            for held in (asking, *(other for _, other, _ in self._running.values())):
                held.close()
            close(*self._running)
            return True
        process = os.pidfd_open(pid)
        self._running[process] = (pid, asking, request["environment"].get("PYTEST_CURRENT_TEST", ""))
        self.poll.register(process, select.POLLIN)
        self.poll.register(asking, select.POLLIN)
        return False

    def act(self, descriptor: int) -> None:
        """Tells who has asked for a program of its end, or kills a program where who has asked wants that or has ended."""
        if descriptor in self._running:
            self._end(descriptor)
            return
        for pid, asking, _ in self._running.values():
            if asking.fileno() == descriptor:
                if not asking.recv(64):
                    self.poll.unregister(descriptor)
                kill(pid)

    def _end(self, process: int) -> None:
        pid, asking, test = self._running.pop(process)
        _, status, usage = os.wait4(pid, 0)
        note(self._spent, usage.ru_utime + usage.ru_stime, test)
        self.poll.unregister(process)
        with contextlib.suppress(KeyError):
            self.poll.unregister(asking)
        with contextlib.suppress(OSError):
            asking.send(str(os.waitstatus_to_exitcode(status)).encode())
        asking.close()
        os.close(process)

    def end(self) -> None:
        """Kills all of them."""
        for process, (pid, _, _) in list(self._running.items()):
            kill(pid)
            self._end(process)


def be_template(requests: socket.socket, modules: str, spent: str) -> Act:
    """Imports modules and makes copies, and returns in each what it does."""
    if modules:
        import_some(modules.split(","), spent)
    # Copies leave alone what is there now, so that less memory is copied.
    gc.freeze()
    copies = Copies(spent)
    copies.poll.register(requests, select.POLLIN)
    while True:
        # One at a time: what another asks for may close what is asked for in the next.
        descriptor = copies.poll.poll()[0][0]
        if descriptor != requests.fileno():
            copies.act(descriptor)
            continue
        message, descriptors, *_ = socket.recv_fds(requests, LONGEST, 4)
        if not message:
            copies.end()
            return None
        asking, *streams = descriptors
        request = json.loads(message)
        if copies.begin(request, socket.socket(fileno=asking)):
            requests.close()
            return functools.partial(be_program, request, streams)
        close(*streams)


def kill(pid: int) -> None:
    """Kills a program, and its ranks where these are in sessions of their own, with SIGKILL."""
    children = pathlib.Path(f"/proc/{pid}/task").glob("*/children")
    ranks = [int(rank) for text in children for rank in text.read_text().split()]
    # A copy that has only begun is in no group of its own.
    os.kill(pid, signal.SIGKILL)
    for group in (pid, *ranks):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)


def be_program(request: dict[str, Any], streams: list[int]) -> None:
    """Runs the program that was asked for."""
    os.setsid()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    close(*streams)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    tempfile.tempdir = None
    sys.path[1:1] = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    if request["launcher"] == "python":
        run_as_python_does(*request["arguments"])
        return
    run: Any = importlib.import_module("torch.distributed.run")
    run.run_script_path = be_rank
    run.main(["--run-path", "--start-method=fork", *request["arguments"]])


def run_as_python_does(program: str, *arguments: str) -> None:
    """Runs a program as `python -u` does: modules are first looked for in its folder."""
    sys.argv[:] = [program, *arguments]
    sys.path[0] = os.path.dirname(os.path.abspath(program))
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    runpy.run_path(program, run_name="__main__")


def be_rank(program: str, *arguments: str) -> None:
    """Runs a program of torchrun's. What it registers with `atexit` is called."""
    # What torchrun has registered is for its own end.
    atexit._clear()
    try:
        run_as_python_does(program, *arguments)
    finally:
        atexit._run_exitfuncs()


def main(listening: str, spent: str) -> NoReturn:
    act: Act = functools.partial(serve, socket.socket(fileno=int(listening)), spent)
    # A copy leaves what its original does, so that it ends as a program of its own.
    while act is not None:
        act = act()
    sys.exit()


if __name__ == "__main__":
    main(*sys.argv[1:])
