"""The log of the statistics of a pipeline's stages."""

from __future__ import annotations

import logging
import threading
import weakref
from typing import Protocol

from .stats import StageStats

_LOGGER = logging.getLogger("spdl_cluster.pipeline")


class _HasStats(Protocol):
    def stats(self) -> list[StageStats]: ...


class StatsLog:
    """Logs the statistics of a pipeline at an interval, on a thread of its own."""

    def __init__(self, pipeline: _HasStats, interval_s: float) -> None:
        self._is_over = threading.Event()
        arguments = (weakref.ref(pipeline), interval_s, self._is_over)
        self._thread = threading.Thread(target=_log, args=arguments, name="spdl-stats", daemon=True)
        weakref.finalize(pipeline, self._is_over.set)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._is_over.set()
        self._thread.join()


def _log(pipeline: weakref.ref[_HasStats], interval_s: float, is_over: threading.Event) -> None:
    while not is_over.wait(interval_s):
        running = pipeline()
        if running is None:
            return
        for stage in running.stats():
            _LOGGER.info(
                "stage %s: %d items, %d failures, %d queued; %.1f s at work, %.1f s waiting for input, %.1f s for output",
                stage.name,
                stage.items,
                stage.failures,
                stage.queued,
                stage.busy_s,
                stage.input_wait_s,
                stage.output_wait_s,
            )
        del running
