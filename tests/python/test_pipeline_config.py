"""Pipelines as descriptions, epochs of a continuous source, aggregators, shares of failures, and what changes while one runs."""

from __future__ import annotations

import logging
import threading
from collections.abc import AsyncIterator, Iterator
from fractions import Fraction
from typing import Any

import pytest
import spdl_cluster
from conftest import LIMIT_S, MakeJob
from spdl_cluster.pipeline import Pipeline, PipelineBuilder, PipelineFailure, build_pipeline
from spdl_cluster.pipeline.defs import (
    Aggregate,
    Aggregator,
    Disaggregate,
    Pipe,
    PipelineConfig,
    SinkConfig,
    SourceConfig,
)


def taken(builder: PipelineBuilder[Any], **settings: Any) -> list[Any]:
    """Builds the pipeline, and returns all of its items."""
    pipeline = builder.add_sink(3).build(num_threads=4, **settings)
    with pipeline.auto_stop(timeout=LIMIT_S):
        return list(pipeline.get_iterator(timeout=LIMIT_S))


def epochs(pipeline: Pipeline[Any], count: int) -> list[list[Any]]:
    return [list(pipeline.get_iterator(timeout=LIMIT_S)) for _ in range(count)]


def double(item: int) -> int:
    return 2 * item


class Numbers:
    """Gives other numbers in each epoch."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.epoch = -1

    def __iter__(self) -> Iterator[int]:
        self.epoch += 1
        return iter(range(100 * self.epoch, 100 * self.epoch + self.count))


class LaterNumbers(Numbers):
    """The same, asynchronously."""

    async def __aiter__(self) -> AsyncIterator[int]:
        for number in super().__iter__():
            yield number

    __iter__ = None  # type: ignore[assignment]


class Budget(Aggregator):
    """Closes a list before its sum would exceed a limit."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.items: list[int] = []

    def accumulate(self, item: int) -> list[int] | None:
        if self.items and sum(self.items) + item > self.limit:
            full, self.items = self.items, [item]
            return full
        self.items.append(item)
        return None

    def flush(self) -> list[int] | None:
        rest, self.items = self.items, []
        return rest or None


def test_a_description_builds_the_same_pipeline_again_and_again() -> None:
    config: PipelineConfig[list[int]] = PipelineConfig(
        src=SourceConfig(range(7)),
        pipes=[Pipe(double, concurrency=2, output_order="input"), Aggregate(3), Disaggregate(), Pipe(double), Aggregate(4)],
        sink=SinkConfig(2),
    )
    for _ in range(2):
        pipeline = build_pipeline(config, num_threads=2)
        with pipeline.auto_stop(timeout=LIMIT_S):
            assert epochs(pipeline, 1) == [[[0, 4, 8, 12], [16, 20, 24]]]
        names = [stage.name for stage in pipeline.stats()]
        assert names == ["source", "double", "aggregate", "disaggregate", "double-2", "aggregate-2", "sink"]
    builder = PipelineBuilder().add_source(range(7)).pipe(double).aggregate(3, drop_last=True).disaggregate().add_sink(2)
    same: PipelineConfig[int] = PipelineConfig(SourceConfig(range(7)), [Pipe(double), Aggregate(3, drop_last=True), Disaggregate()], SinkConfig(2))
    assert builder.get_config() == same


@pytest.mark.parametrize("source", [Numbers, LaterNumbers])
def test_a_continuous_source_gives_an_epoch_to_each_iterator(source: type[Numbers]) -> None:
    builder = PipelineBuilder().add_source(source(5), continuous=True).pipe(double, concurrency=3, output_order="input")
    pipeline = builder.aggregate(2).add_sink(1).build(num_threads=2)
    with pipeline.auto_stop(timeout=LIMIT_S):
        first = pipeline.get_iterator(timeout=LIMIT_S)
        assert list(first) == [[0, 2], [4, 6], [8]]
        assert list(first) == []
        assert epochs(pipeline, 2) == [[[200, 202], [204, 206], [208]], [[400, 402], [404, 406], [408]]]
        # The fourth epoch has begun.
        assert {stage.name: stage.items for stage in pipeline.stats()}["double"] >= 15
        assert pipeline.get_item(timeout=LIMIT_S) == [600, 602]


def test_a_continuous_source_that_fails_in_a_later_epoch_fails_there() -> None:
    class Once:
        def __init__(self) -> None:
            self.has_begun = False

        def __iter__(self) -> Iterator[int]:
            if self.has_begun:
                raise OSError("the disk is gone")
            self.has_begun = True
            return iter([1, 2])

    pipeline = PipelineBuilder().add_source(Once(), continuous=True).add_sink(1).build(num_threads=1)
    with pipeline.auto_stop(timeout=LIMIT_S):
        assert epochs(pipeline, 1) == [[1, 2]]
        with pytest.raises(OSError, match="the disk is gone"):
            epochs(pipeline, 1)


def test_epochs_of_a_loader_have_its_state(job: MakeJob) -> None:
    def ids(batch: spdl_cluster.Batch) -> list[int]:
        return [int(number) for number in batch.ids]

    def seen(batch: spdl_cluster.Batch) -> tuple[Any, list[int]]:
        return batch.next_position, ids(batch)

    with spdl_cluster.local(job(epochs=3), slots=8) as loader:
        expected = [[seen(batch) for batch in loader] for _ in range(3)]
    with spdl_cluster.local(job(epochs=3), slots=8) as loader:
        builder = PipelineBuilder().add_source(loader, continuous=True).pipe(seen, concurrency=2)
        pipeline = builder.add_sink(1).build(num_threads=2)
        with pipeline.auto_stop(timeout=LIMIT_S):
            assert epochs(pipeline, 1) == expected[:1]
            second = pipeline.get_iterator(timeout=LIMIT_S)
            for next_position in (expected[0][-1][0], expected[1][0][0], expected[1][1][0]):
                # Whatever of the second epoch is in the stages.
                state = pipeline.state_dict()
                assert (state["epoch"], state["offset"]) == next_position
                next(second)
            assert [*second] == expected[1][3:]
            assert epochs(pipeline, 1) == expected[2:]


def test_an_aggregator_decides_what_belongs_together() -> None:
    source = [3, 4, 5, 1, 1, 9, 2]
    assert taken(PipelineBuilder().add_source(source).aggregate(Budget(8))) == [[3, 4], [5, 1, 1], [9], [2]]
    assert taken(PipelineBuilder().add_source(source).aggregate(Budget(8), drop_last=True)) == [[3, 4], [5, 1, 1], [9]]
    sums = PipelineBuilder().add_source(source).aggregate(2).aggregate(1).pipe(lambda lists: sum(lists[0]))
    assert taken(sums.aggregate(Budget(8))) == [[7], [6], [10], [2]]
    builder = PipelineBuilder().add_source([5, 5], continuous=True).aggregate(Budget(8), drop_last=True)
    pipeline = builder.add_sink(1).build(num_threads=1)
    with pipeline.auto_stop(timeout=LIMIT_S):
        # Nothing of an epoch is left for the next.
        assert epochs(pipeline, 3) == [[[5]], [[5]], [[5]]]


def test_an_aggregator_that_fails_names_its_stage() -> None:
    with pytest.raises(PipelineFailure, match="stage `aggregate` failed: TypeError") as raised:
        taken(PipelineBuilder().add_source([1, "2"]).aggregate(Budget(8)))
    assert raised.value.stage == "aggregate"


def test_the_state_covers_what_an_aggregator_may_have_kept_another_time(job: MakeJob) -> None:
    class Pairs(Aggregator):
        """Gives a pair when the first batch of the next comes."""

        def __init__(self) -> None:
            self.kept: list[Any] = []

        def accumulate(self, batch: spdl_cluster.Batch) -> list[Any] | None:
            self.kept.append(batch.position)
            if len(self.kept) < 3:
                return None
            pair, self.kept = self.kept[:2], self.kept[2:]
            return pair

        def flush(self) -> list[Any] | None:
            return self.kept

    with spdl_cluster.local(job(epochs=1), slots=8) as loader:
        pipeline = PipelineBuilder().add_source(loader).aggregate(Pairs()).add_sink(1).build(num_threads=1)
        with pipeline.auto_stop(timeout=LIMIT_S):
            assert pipeline.get_item(timeout=LIMIT_S) == [(0, 0), (0, 24)]
            assert pipeline.state_dict()["offset"] == 48
            for _ in pipeline.get_iterator(timeout=LIMIT_S):
                pass
            assert pipeline.state_dict() == loader.state_dict()


def refuse_fifths(item: int) -> int:
    if item % 5 == 0:
        raise ValueError(f"no {item}, please")
    return item


async def refuse_fifths_later(item: int) -> int:
    return refuse_fifths(item)


def refuse_fifths_in_turn(item: int) -> Iterator[int]:
    yield refuse_fifths(item)


@pytest.mark.parametrize("op", [refuse_fifths, refuse_fifths_later, refuse_fifths_in_turn])
def test_a_share_of_the_items_may_fail(op: Any) -> None:
    assert len(taken(PipelineBuilder().add_source(range(1000)).pipe(op, max_failures=Fraction(1, 4)))) == 800
    # Of fewer than 100 items, all may fail.
    assert taken(PipelineBuilder().add_source([0] * 99).pipe(op), max_failures=Fraction(1, 1000)) == []
    failing = PipelineBuilder().add_source(range(1000)).pipe(op, name="fifths").add_sink(3)
    pipeline = failing.build(num_threads=1, max_failures=Fraction(1, 10))
    with pipeline.auto_stop(timeout=LIMIT_S):
        found: list[int] = []
        with pytest.raises(PipelineFailure, match="items failed, more than its `max_failures` of 1/10; the last: stage `fifths` failed") as raised:
            found.extend(pipeline.get_iterator(timeout=LIMIT_S))
        assert raised.value.stage == "fifths"
        assert isinstance(raised.value.__cause__, ValueError)


def test_the_concurrency_of_a_stage_changes_while_it_runs() -> None:
    inside, both = threading.Semaphore(0), threading.Barrier(2)

    def meet(item: int) -> int:
        inside.release()
        both.wait(LIMIT_S)
        return item

    pipeline = PipelineBuilder().add_source(range(4)).pipe(meet).add_sink(4).build(num_threads=2)
    with pytest.raises(spdl_cluster.SettingError, match="the pipeline has no operation `meat`\nhint: its operations are: `meet`"):
        pipeline.set_concurrency("meat", 2)
    with pytest.raises(spdl_cluster.SettingError, match="`concurrency` is 0"):
        pipeline.set_concurrency("meet", 0)
    with pipeline.auto_stop(timeout=LIMIT_S):
        # One item at a time would wait for a second one for ever.
        assert inside.acquire(timeout=LIMIT_S)
        pipeline.set_concurrency("meet", 2)
        assert sorted(pipeline.get_iterator(timeout=LIMIT_S)) == [0, 1, 2, 3]
    early = PipelineBuilder().add_source(range(4)).pipe(meet).add_sink(4).build(num_threads=2)
    early.set_concurrency("meet", 2)
    with early.auto_stop(timeout=LIMIT_S):
        assert sorted(early.get_iterator(timeout=LIMIT_S)) == [0, 1, 2, 3]


@pytest.mark.parametrize("continuous", [False, True])
def test_a_drained_pipeline_gives_what_its_source_gave_and_ends(continuous: bool) -> None:
    given: list[int] = []

    class Source:
        def __iter__(self) -> Iterator[int]:
            number = 0
            while True:
                number += 1
                given.append(number)
                yield number

    pipeline = PipelineBuilder().add_source(Source(), continuous=continuous).pipe(double).add_sink(3).build(num_threads=1)
    with pytest.raises(spdl_cluster.UsageError, match="has not started"):
        pipeline.drain()
    with pipeline.auto_stop(timeout=LIMIT_S):
        found = [pipeline.get_item(timeout=LIMIT_S)]
        pipeline.drain()
        found += pipeline.get_iterator(timeout=LIMIT_S)
        assert found == [2 * number for number in given]
        assert epochs(pipeline, 1) == [[]]


def test_statistics_are_logged_at_an_interval(caplog: pytest.LogCaptureFixture) -> None:
    logged = threading.Event()

    class Watch(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.getMessage().startswith("stage sink: 1 items, 0 failures"):
                logged.set()

    logger, watch = logging.getLogger("spdl_cluster.pipeline"), Watch()
    logger.addHandler(watch)
    try:
        with caplog.at_level("INFO", logger.name):
            builder = PipelineBuilder().add_source(range(2)).add_sink(1)
            pipeline = builder.build(num_threads=1, report_stats_interval=0.01, use_thread_output_queue=True)
            with pipeline.auto_stop(timeout=LIMIT_S):
                assert pipeline.get_item(timeout=LIMIT_S) == 0
                assert logged.wait(LIMIT_S)
    finally:
        logger.removeHandler(watch)
    assert "spdl-stats" not in [thread.name for thread in threading.enumerate()]


def test_what_makes_no_sense_is_refused() -> None:
    numbers = (number for number in range(3))
    for make, problem in (
        (lambda: SourceConfig(numbers, continuous=True), "iterated only once"),
        (lambda: SourceConfig(5), "can be iterated neither"),  # type: ignore[arg-type]
        (lambda: SinkConfig(0), "`buffer_size` is 0"),
        (lambda: Aggregate(0), "`num_items` is 0"),
        (lambda: Pipe(double, concurrency=0), "`concurrency` is 0"),
        (lambda: Pipe(double, max_failures=Fraction(3, 2)), "not a share above 0 and up to 1"),
        (lambda: Pipe(double, max_failures=0.1), "neither a whole number nor a `Fraction`"),  # type: ignore[arg-type]
    ):
        with pytest.raises(spdl_cluster.SettingError, match=problem):
            make()
