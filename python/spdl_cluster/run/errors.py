"""Why a launch ends before its command does."""

from __future__ import annotations

from ..errors import SpdlError


class LaunchError(SpdlError, RuntimeError):
    """Something that the command needs cannot be had."""


class Stopped(Exception):
    """A signal asks the launcher to end."""

    def __init__(self, number: int) -> None:
        super().__init__(f"signal {number}")
        self.number = number
