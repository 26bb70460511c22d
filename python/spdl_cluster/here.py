"""The functions of a job in this process, `local(functions="here")`: in the thread that waits for a batch, one call after the other."""

from __future__ import annotations

import bdb
import functools
import importlib
import os
import select
import socket
import sys
import threading
import types
from collections.abc import Callable
from typing import Any

from . import _native

#: For how long a wait for requests lasts, in milliseconds: so much later a batch that is ready is noticed.
_WAIT_MS = 1
#: What a function may raise that is meant for the program: Ctrl-C, and the end of a debugger.
_PASSED = (KeyboardInterrupt, SystemExit, GeneratorExit, bdb.BdbQuit)


class FunctionsHere:
    """The functions of one loader, and the requests to call them. The loader's decoding threads send these, and wait."""

    def __init__(self) -> None:
        self._functions: dict[str, Callable[..., Any]] = {}
        self._callers: dict[int, Any] = {}
        self._new: list[Any] = []
        self._lock = threading.Lock()
        self._is_closed = False
        self._poll = select.poll()
        self._side = self._process_side()
        #: Whether a function is being called. It may wait for nothing of its loader.
        self.is_serving = False

    def name(self, function: Callable[..., Any], name: str | None) -> str:
        """Returns the name of a function for the job: the name that it has, unless that is `None` or another function's."""
        if name is None or self._functions.get(name, function) is not function:
            name = f"here:function_{len(self._functions)}"
        self._functions[name] = function
        return name

    def connect(self, descriptor: int) -> None:
        """Takes a socket on which a decoding thread sends requests. Any thread may call it."""
        with self._lock:
            if self._is_closed:
                os.close(descriptor)
                raise RuntimeError("the loader is closed")
            self._new.append(self._side.Process(socket.socket(fileno=descriptor)))

    def serve(self) -> None:
        """Answers one request of each decoding thread that has one; waits a little if none has."""
        with self._lock:
            for caller in self._new:
                self._callers[caller.requests.fileno()] = caller
                self._poll.register(caller.requests, select.POLLIN)
            self._new.clear()
        for descriptor, _ in self._poll.poll(_WAIT_MS):
            self.is_serving = True
            try:
                goes_on = self._callers[descriptor].answer_next()
            except OSError:
                goes_on = False
            finally:
                self.is_serving = False
            if not goes_on:
                self._poll.unregister(descriptor)
                self._callers.pop(descriptor).requests.close()

    def close(self) -> None:
        """Lets all decoding threads that wait go on without an answer."""
        with self._lock:
            self._is_closed = True
            callers = [*self._callers.values(), *self._new]
            self._callers.clear()
            self._new.clear()
        for caller in callers:
            caller.requests.close()

    def _process_side(self) -> types.ModuleType:
        """Returns the code that processes of workers run, for the functions of this process."""
        side = types.ModuleType("spdl_cluster.function_process")
        exec(compile(_native.function_process(), "<process.py of spdl_cluster>", "exec"), side.__dict__)
        replaced: dict[str, Any] = {"numpy": importlib.import_module("numpy"), "find": self._find, "digest": lambda name: ""}
        side.__dict__.update(replaced)
        side.__dict__["Process"].passed = _PASSED
        return side

    def _find(self, name: str) -> Any:
        if name in self._functions:
            return self._functions[name]
        at, _, path = name.partition(":")
        return functools.reduce(getattr, path.split("."), sys.modules["__main__"] if at == "__main__" else importlib.import_module(at))
