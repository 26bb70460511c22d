"""Log lines of the native half, in Python's `logging`: loggers below `spdl_cluster`."""

from __future__ import annotations

import atexit
import logging

from ._native import set_log_level, start_log, stop_log

_LOGGER = logging.getLogger("spdl_cluster")


def _deliver(level: int, name: str, text: str) -> None:
    """Called by a thread of the native half for each line."""
    logging.getLogger(name).log(level, "%s", text)


def follow() -> None:
    """Has the native half make the lines that `logging` shows as it is set up just now, and no others."""
    set_log_level(min(_LOGGER.getEffectiveLevel(), 255))


# Registered before what closes loaders, so that it comes after it.
atexit.register(stop_log)
start_log(_deliver)
follow()
