"""Exceptions. All are `SpdlError`s; each is also the built-in exception that fits it best."""

from __future__ import annotations


class SpdlError(Exception):
    """Anything that goes wrong in this package. `hint` says what to do about it, where that is known."""

    hint: str | None

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message if hint is None else f"{message}\nhint: {hint}")
        self.hint = hint


class SettingError(SpdlError, ValueError):
    """A setting, a job or a rank that is missing or makes no sense."""


class UsageError(SpdlError, TypeError, AttributeError):
    """Something that a DataLoader has and a loader has not; the hint says what there is instead."""


class StateError(SpdlError, ValueError):
    """A state that cannot be read, is of another job, or comes too late."""


class ConnectError(SpdlError, ConnectionError):
    """No coordinator let this rank join: wrong address, wrong certificates, or nobody there."""


class RefusedError(SpdlError, RuntimeError):
    """The coordinator does not let this rank take part, or not any longer: an unknown job, another world, a newer session."""


class DataError(SpdlError, RuntimeError):
    """The dataset cannot be read or decoded as the job wants it."""


class DeviceError(SpdlError, RuntimeError):
    """A GPU cannot be used: no driver, no such device, or one that fails."""


class DeviceMemoryError(DeviceError, MemoryError):
    """A GPU's memory does not suffice for the loader's buffers."""


class LoaderTimeout(SpdlError, TimeoutError):
    """No batch came in time; the text says who waits for what. The next call goes on waiting for the same batch."""


class FinishedError(SpdlError, RuntimeError):
    """All epochs were delivered, and the loader was asked for another one."""


class ClosedError(SpdlError, RuntimeError):
    """The loader was closed, or an error ended it."""


class ForkedError(SpdlError, RuntimeError):
    """A loader was used in a process that was forked from the one that made it."""


class HoardingWarning(UserWarning):
    """The caller keeps every batch that there are slots for, and waits for another one."""
