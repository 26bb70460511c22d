"""Log lines of the native half, in Python's `logging`: loggers below `spdl_cluster`."""

from __future__ import annotations

import atexit
import logging

from ._native import set_log_level, start_log, stop_log

_LOGGER = logging.getLogger("spdl_cluster")


def _deliver(level: int, name: str, text: str) -> None:
    """Logs one line; a thread of the native half calls it for each line."""
    logging.getLogger(name).log(level, "%s", text)


def follow() -> None:
    """Sets the native half to the level that `logging` has now, so that it formats no line that would not be shown."""
    set_log_level(min(_LOGGER.getEffectiveLevel(), 255))


# Registered before the function that closes loaders, so that it runs after it.
atexit.register(stop_log)
start_log(_deliver)
follow()
