"""System calls that Python's standard library has no functions for."""

from __future__ import annotations

import ctypes
import os
import signal
import struct
from collections.abc import Iterable
from typing import NamedTuple

_libc = ctypes.CDLL(None, use_errno=True)
_SET_PARENT_DEATH_SIGNAL = 1
_SET_CHILD_SUBREAPER = 36
_SIGSET_BYTES = 128
_INFO_BYTES = 128


class SignalInfo(NamedTuple):
    """A signal that has arrived."""

    number: int
    #: Process that sent it; 0 for the kernel, as at Ctrl-C in a terminal.
    sender: int


def signal_descriptor(numbers: Iterable[int]) -> int:
    """Returns a descriptor from which signals can be read that this process has blocked."""
    mask = sum(1 << (number - 1) for number in numbers).to_bytes(_SIGSET_BYTES, "little")
    descriptor: int = _libc.signalfd(-1, mask, os.O_CLOEXEC | os.O_NONBLOCK)
    if descriptor < 0:
        raise _error("signalfd")
    return descriptor


def read_signals(descriptor: int) -> list[SignalInfo]:
    """Returns the signals that have arrived."""
    try:
        data = os.read(descriptor, 64 * _INFO_BYTES)
    except BlockingIOError:
        return []
    infos = (struct.unpack_from("=IiiI", data, at) for at in range(0, len(data), _INFO_BYTES))
    return [SignalInfo(number, sender) for number, _, _, sender in infos]


def is_pending(number: int, pid: int) -> bool:
    """Returns whether a process was sent a signal that it has not read yet."""
    try:
        with open(f"/proc/{pid}/status") as file:
            masks = [int(line.split()[1], 16) for line in file if line.startswith(("SigPnd:", "ShdPnd:"))]
    except OSError:
        return False
    return any(mask >> (number - 1) & 1 for mask in masks)


def adopt_orphans() -> None:
    """Makes this process the parent of its descendants whose parents end."""
    _prctl(_SET_CHILD_SUBREAPER, 1)


def die_with_parent(parent: int, number: signal.Signals) -> None:
    """Sends this process a signal when its parent ends. Called in a child before its program starts."""
    _prctl(_SET_PARENT_DEATH_SIGNAL, number)
    if os.getppid() != parent:
        os._exit(128 + number)


def children() -> list[int]:
    """Returns the children of this process, which has one thread."""
    own = os.getpid()
    with open(f"/proc/self/task/{own}/children") as file:
        return [int(child) for child in file.read().split()]


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        raise _error("prctl")


def _error(call: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, f"{call}: {os.strerror(number)}")
