"""The statistics of a pipeline's stages."""

from __future__ import annotations

from dataclasses import dataclass, replace

from .._native import PipelineStageStats


@dataclass(frozen=True)
class StageStats:
    """What a stage has done since the pipeline started."""

    name: str
    #: Results, without failures.
    items: int
    failures: int
    #: Seconds of work, summed over the items that the stage works on at a time.
    busy_s: float
    #: Seconds without an item to work on, and with a result that the next stage did not take, summed likewise.
    input_wait_s: float
    output_wait_s: float
    #: The time for an item: its median, and the limit that one item in a hundred exceeds.
    p50_s: float
    p99_s: float
    #: Items that wait in front of the stage now.
    queued: int

    @classmethod
    def _of(cls, stats: PipelineStageStats) -> StageStats:
        return cls(
            stats.name,
            stats.items,
            stats.failures,
            stats.busy_s,
            stats.input_wait_s,
            stats.output_wait_s,
            stats.p50_s,
            stats.p99_s,
            stats.queued,
        )


def added(earlier: list[StageStats], now: list[StageStats]) -> list[StageStats]:
    """Returns the sums over earlier epochs and this one, of stages in the same order; either may be empty."""
    if not earlier or not now:
        return earlier or now
    return [
        replace(
            stage,
            items=stage.items + before.items,
            failures=stage.failures + before.failures,
            busy_s=stage.busy_s + before.busy_s,
            input_wait_s=stage.input_wait_s + before.input_wait_s,
            output_wait_s=stage.output_wait_s + before.output_wait_s,
        )
        for before, stage in zip(earlier, now, strict=True)
    ]
