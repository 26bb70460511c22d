"""Exceptions. All are `SpdlError`s; each also derives from the built-in exception that fits it best."""

from __future__ import annotations


class SpdlError(Exception):
    """The base class of this package's exceptions. `hint` is what to do about it, or `None` if that is not known."""

    hint: str | None

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message if hint is None else f"{message}\nhint: {hint}")
        self.hint = hint


class SettingError(SpdlError, ValueError):
    """A setting, a job or a rank is missing or makes no sense."""


class UsageError(SpdlError, TypeError, AttributeError):
    """The program used a feature of a DataLoader that a loader does not have; the hint names the replacement."""


class StateError(SpdlError, ValueError):
    """A state cannot be read, belongs to another job, or comes too late."""


class ConnectError(SpdlError, ConnectionError):
    """No coordinator let this rank join: wrong address, wrong certificates, or no coordinator running."""


class RefusedError(SpdlError, RuntimeError):
    """The coordinator refuses this rank, or no longer accepts it: an unknown job, another world, a newer session."""


class DataError(SpdlError, RuntimeError):
    """The dataset cannot be read, or not decoded as the job requires."""


class DeviceError(SpdlError, RuntimeError):
    """A GPU cannot be used: no driver, no such device, or a failing device."""


class DeviceMemoryError(DeviceError, MemoryError):
    """A GPU has too little memory for the loader's buffers."""


class LoaderTimeout(SpdlError, TimeoutError):
    """No batch came in time; the text names the process that waits, and what it waits for. The next call continues to
    wait for the same batch."""


class FinishedError(SpdlError, RuntimeError):
    """All epochs were delivered, and the caller asked the loader for another one."""


class ClosedError(SpdlError, RuntimeError):
    """The loader was closed, or an error ended it."""


class ForkedError(SpdlError, RuntimeError):
    """A loader was used in a fork of the process that made it."""


class PipelineFailure(SpdlError, RuntimeError):
    """An operation or the source of a pipeline failed; the cause is its exception."""

    #: Name of the stage that failed.
    stage: str


class PipelineTimeout(SpdlError, TimeoutError):
    """No item of a pipeline came in time, or it did not stop in time; the text names the stage that the others wait for.
    The next call waits on."""


class SlotsExhaustedWarning(UserWarning):
    """The caller holds every batch that there are slots for, and waits for another one."""
