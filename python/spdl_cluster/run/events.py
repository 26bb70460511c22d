"""The one thread of a launcher waits here: for signals, for what other processes write, and for moments in time."""

from __future__ import annotations

import heapq
import itertools
import selectors
import signal
import time
from collections.abc import Callable

from .linux import SignalInfo, read_signals, signal_descriptor

#: The signals that a launcher hands on.
FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)


def block_signals() -> set[signal.Signals | int]:
    """Blocks the signals that `Events` reads, and returns the mask before, for the programs that are started."""
    return signal.pthread_sigmask(signal.SIG_BLOCK, [*FORWARDED, signal.SIGCHLD])


class Timer:
    """A function that is called at a moment, unless it is cancelled."""

    def __init__(self, function: Callable[[], None]) -> None:
        self._function: Callable[[], None] | None = function

    def cancel(self) -> None:
        """Prevents the call."""
        self._function = None

    def fire(self) -> None:
        """Calls the function."""
        function, self._function = self._function, None
        if function is not None:
            function()


class Events:
    """Signals, descriptors and timers. Nothing happens outside of `wait`."""

    def __init__(self, on_signal: Callable[[SignalInfo], None], on_child: Callable[[], None]) -> None:
        """Calls `on_signal` for each signal that is handed on, and `on_child` when a child may have ended."""
        self._on_signal, self._on_child = on_signal, on_child
        self._selector = selectors.DefaultSelector()
        self._timers: list[tuple[float, int, Timer]] = []
        self._numbers = itertools.count()
        self._signals = signal_descriptor([*FORWARDED, signal.SIGCHLD])
        self.watch(self._signals, self._handle_signals)

    def watch(self, descriptor: int, function: Callable[[], None]) -> None:
        """Calls the function whenever the descriptor can be read."""
        self._selector.register(descriptor, selectors.EVENT_READ, function)

    def forget(self, descriptor: int) -> None:
        """Watches the descriptor no more."""
        self._selector.unregister(descriptor)

    def after(self, seconds: float, function: Callable[[], None]) -> Timer:
        """Calls the function once, in some seconds."""
        timer = Timer(function)
        heapq.heappush(self._timers, (time.monotonic() + seconds, next(self._numbers), timer))
        return timer

    def wait(self, until: Callable[[], bool], limit_s: float | None = None) -> bool:
        """Handles events until `until()`, or for `limit_s` seconds. Returns whether it is so."""
        deadline = None if limit_s is None else time.monotonic() + limit_s
        while not until():
            now = time.monotonic()
            if deadline is not None and now >= deadline:
                return False
            moments = [moment for moment in (deadline, self._timers[0][0] if self._timers else None) if moment is not None]
            ready = self._selector.select(max(0.0, min(moments) - now) if moments else None)
            for key, _ in ready:
                # A function before may have ended the watch, and closed the descriptor.
                if self._selector.get_map().get(key.fd) == key:
                    key.data()
            while self._timers and self._timers[0][0] <= time.monotonic():
                heapq.heappop(self._timers)[2].fire()
        return True

    def _handle_signals(self) -> None:
        for info in read_signals(self._signals):
            if info.number == signal.SIGCHLD:
                self._on_child()
            else:
                self._on_signal(info)
