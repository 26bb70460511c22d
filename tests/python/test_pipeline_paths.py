"""Pipelines that are not one chain: items that are routed to paths, and pipelines that are merged."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
import spdl_cluster
from conftest import LIMIT_S, MakeJob
from spdl_cluster.pipeline import Pipeline, PipelineBuilder, PipelineFailure, build_pipeline
from spdl_cluster.pipeline.defs import (
    Aggregate,
    Disaggregate,
    Merge,
    MergeConfig,
    PathVariants,
    Pipe,
    PipelineConfig,
    SinkConfig,
    SourceConfig,
)


def all_of(pipeline: Pipeline[Any]) -> list[Any]:
    with pipeline.auto_stop(timeout=LIMIT_S):
        return list(pipeline.get_iterator(timeout=LIMIT_S))


def taken(builder: PipelineBuilder[Any], **settings: Any) -> list[Any]:
    """Builds the pipeline, and returns all of its items."""
    return all_of(builder.add_sink(3).build(num_threads=4, **settings))


def parity(item: int) -> int:
    return item % 2


def negative(item: int) -> int:
    return -item


async def negative_later(item: int) -> int:
    return -item


def test_each_item_takes_the_path_that_the_router_returns() -> None:
    cache = {0: "zero", 2: "two"}

    def cache_router(item: int) -> int:
        return 0 if item in cache else 1

    builder = (
        PipelineBuilder()
        .add_source(range(4))
        .path_variants(router=cache_router, paths=[[Pipe(cache)], [Pipe(str), Pipe(lambda text: text * 2)]])
    )
    assert sorted(taken(builder)) == ["11", "33", "two", "zero"]


def test_paths_hold_all_kinds_of_stages_and_nest() -> None:
    nested = PathVariants(lambda item: item % 3, [[], [Pipe(negative_later, concurrency=2)], [Pipe(negative)]], "thirds")
    paths: list[list[Any]] = [[Aggregate(2), Disaggregate(), Pipe(lambda item: None if item == 4 else item)], [nested]]
    builder = PipelineBuilder().add_source(range(12)).path_variants(parity, paths)
    assert set(taken(builder)) == {0, 2, 6, 8, 10, -1, 3, -5, -7, 9, -11}


@pytest.mark.parametrize("order", ["input", "completion"])
def test_results_leave_in_the_order_of_the_items_where_that_is_asked_for(order: Any) -> None:
    """The first item waits until the path beside its own has given all that there is room for."""
    others = threading.Event()

    def wait(item: int) -> int:
        if item == 0:
            assert others.wait(LIMIT_S)
        return item

    def tell(item: int) -> int:
        if item == 3:
            others.set()
        return item

    builder = PipelineBuilder().add_source(range(20))
    items = taken(builder.path_variants(parity, [[Pipe(wait)], [Pipe(tell)]], output_order=order))
    assert (items == list(range(20))) == (order == "input")
    assert sorted(items) == list(range(20))


def test_lists_that_end_a_path_are_items() -> None:
    paths = [[Aggregate(2), Aggregate(2)], [Aggregate(3, drop_last=True)]]
    builder = PipelineBuilder().add_source(range(10)).path_variants(parity, paths, output_order="input").pipe(str)
    assert taken(builder) == ["[1, 3, 5]", "[[0, 2], [4, 6]]", "[[8]]"]


@pytest.mark.parametrize("number", [2, -1, "one", None])
def test_a_router_that_returns_no_path_fails_its_item(number: Any) -> None:
    def router(item: int) -> Any:
        return number if item == 1 else 0

    def build(**settings: Any) -> list[Any]:
        return taken(PipelineBuilder().add_source(range(3)).path_variants(router, [[], []]), **settings)

    with pytest.raises(PipelineFailure) as failure:
        build()
    assert f"stage `router` failed: ValueError: the router returned {number!r}, not the number of one of 2 paths" == str(
        failure.value
    )
    assert build(max_failures=1) == [0, 2]


def test_statistics_name_the_stages_of_paths_and_concurrency_can_be_set() -> None:
    paths = [[Pipe(negative)], [Pipe(negative)]]
    pipeline = PipelineBuilder().add_source(range(8)).path_variants(parity, paths).add_sink(2).build(num_threads=2)
    pipeline.set_concurrency("negative-2", 3)
    assert sorted(all_of(pipeline)) == list(range(-7, 1))
    assert [(stage.name, stage.items) for stage in pipeline.stats()] == [
        ("source", 8),
        ("parity", 8),
        ("negative", 4),
        ("negative-2", 4),
        ("sink", 8),
    ]


async def from_100() -> AsyncIterator[int]:
    for item in range(100, 104):
        yield item


def test_the_results_of_several_pipelines_are_the_items_of_another() -> None:
    """SPDL's example of merging, with its names."""
    first: PipelineConfig[Any] = PipelineConfig(SourceConfig(range(5)), [Pipe(negative), Aggregate(2)], SinkConfig(3))
    second: PipelineConfig[Any] = PipelineConfig(SourceConfig(from_100()), [Pipe(lambda item: [item])], SinkConfig(3))
    inner: PipelineConfig[Any] = PipelineConfig(Merge([second]), [], SinkConfig(1))
    merged: PipelineConfig[Any] = PipelineConfig(src=Merge([first, inner]), pipes=[Disaggregate(), Pipe(negative)], sink=SinkConfig(2))
    pipeline = build_pipeline(merged, num_threads=2)
    assert sorted(all_of(pipeline)) == sorted([*range(5), *range(-103, -99)])
    names = [stage.name for stage in pipeline.stats()]
    assert names == ["source", "negative", "aggregate", "source-2", "<lambda>", "disaggregate", "negative-2", "sink"]


def test_a_source_that_fails_among_others_fails_the_pipeline_behind_its_items() -> None:
    def broken() -> Iterator[int]:
        yield 1
        raise OSError("no more")

    sources = (range(10, 13), broken())
    parts: list[PipelineConfig[Any]] = [PipelineConfig(SourceConfig(source), [], SinkConfig(1)) for source in sources]
    pipeline: Pipeline[Any] = build_pipeline(PipelineConfig(Merge(parts), [], SinkConfig(1)), num_threads=1)
    items: list[int] = []
    with pytest.raises(PipelineFailure, match="stage `source` failed: OSError: no more"):
        items.extend(pipeline.get_item(timeout=LIMIT_S) for _ in range(9))
    pipeline.stop(timeout=LIMIT_S)


def test_paths_behind_a_loader_keep_its_order_and_its_state(job: MakeJob) -> None:
    with spdl_cluster.local(job(epochs=1), slots=8) as loader:
        expected = [tuple(batch.next_position) for batch in loader]
    turns = iter(range(len(expected)))
    paths = [[Pipe(lambda batch: batch.next_position, concurrency=2)], [Pipe(lambda batch: batch.next_position)]]
    with spdl_cluster.local(job(epochs=1), slots=12) as loader:
        builder = PipelineBuilder().add_source(loader).path_variants(lambda _: next(turns) % 2, paths, "router")
        pipeline = builder.add_sink(2).build(num_threads=2)
        with pipeline.auto_stop(timeout=LIMIT_S):
            for position in expected:
                assert tuple(pipeline.get_item(timeout=LIMIT_S)) == position
                state = pipeline.state_dict()
                assert (state["epoch"], state["offset"]) == position


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: PathVariants(parity, []), "`paths` is empty"),
        (lambda: PathVariants(negative_later, [[]]), "not a function of an item"),  # type: ignore[arg-type]
        (lambda: PathVariants(parity, [[negative]]), "is no stage of a path"),  # type: ignore[list-item]
        (lambda: PathVariants(parity, [[]], output_order="random"), "`output_order` is 'random'"),  # type: ignore[arg-type]
        (lambda: Merge([]), "`pipeline_configs` is empty"),
        (lambda: Merge([], op=print), "leave `op` out"),  # type: ignore[arg-type, func-returns-value]
        (
            lambda: Merge([PipelineConfig(SourceConfig([1], continuous=True), [], SinkConfig(1))]),
            "leave `continuous` out",
        ),
    ],
)
def test_what_cannot_be_is_refused_with_what_to_do(make: Callable[[], Any], problem: str) -> None:
    with pytest.raises(spdl_cluster.SettingError) as refused:
        make()
    assert problem in str(refused.value)


def test_a_stage_of_a_path_that_does_not_keep_an_order_that_is_asked_for_is_refused() -> None:
    paths = [[Pipe(negative, output_order="completion")]]
    pipeline = PipelineBuilder().add_source([1]).path_variants(parity, paths, output_order="input").add_sink(1)
    with pytest.raises(spdl_cluster.SettingError, match="`negative` gives its results in the order of completion"):
        pipeline.build(num_threads=1).start()
    assert isinstance(Merge([PipelineConfig(SourceConfig([1]), [], SinkConfig(1))]), MergeConfig)
