"""Log lines of the native half, in Python's `logging`: loggers below `spdl_cluster`."""

from __future__ import annotations

import atexit
import logging

from ._native import set_log_level, start_log, stop_log

_LOGGER = logging.getLogger("spdl_cluster")


def _deliver(level: int, name: str, text: str) -> None:
    """Logs one line; a thread of the native half calls it for each line.

    The logger is the nearest that the program has, up to `spdl_cluster`: to make one, in this thread, would change the table of
    loggers while others go through it, as pytest does.
    """
    logger = _nearest(name)
    if logger.isEnabledFor(level):
        logger.handle(logger.makeRecord(name, level, __file__, 0, "%s", (text,), None))


def _nearest(name: str) -> logging.Logger:
    """Returns the logger of this name, or else the nearest one above it that the program has."""
    while name:
        found = logging.Logger.manager.loggerDict.get(name)
        if isinstance(found, logging.Logger):
            return found
        name = name.rpartition(".")[0]
    return _LOGGER


def follow() -> None:
    """Sets the native half to the level that `logging` has now, so that it formats no line that would not be shown."""
    set_log_level(min(_LOGGER.getEffectiveLevel(), 255))


# Registered before the function that closes loaders, so that it runs after it.
atexit.register(stop_log)
start_log(_deliver)
follow()
