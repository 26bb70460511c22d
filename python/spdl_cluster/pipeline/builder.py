"""The builder of pipelines."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, overload

from ..errors import SettingError
from .defs import (
    Aggregate,
    Aggregator,
    Disaggregate,
    OutputOrder,
    PathVariants,
    Pipe,
    PipelineConfig,
    SinkConfig,
    SourceConfig,
    StageConfig,
)
from .running import Pipeline, build_pipeline

if TYPE_CHECKING:
    from concurrent.futures import Executor
    from fractions import Fraction

T_co = TypeVar("T_co", covariant=True)
S = TypeVar("S")
U = TypeVar("U")
U_co = TypeVar("U_co", covariant=True)


class _Lookup(Protocol[U_co]):
    """A dict, a list, or anything else with items."""

    def __getitem__(self, key: Any, /) -> U_co: ...


class PipelineBuilder(Generic[T_co]):
    """Builds a `Pipeline`: `add_source`, any number of stages, `add_sink`, `build`. Each method returns the builder, which
    knows the type of the items so far."""

    def __init__(self: PipelineBuilder[Any]) -> None:
        self._source: SourceConfig[Any] | None = None
        self._pipes: list[StageConfig] = []
        self._sink: SinkConfig[Any] | None = None

    def add_source(
        self, source: Iterable[S] | AsyncIterable[S], *, continuous: bool = False
    ) -> PipelineBuilder[S]:
        """Sets where the items come from: an iterable, which runs on a thread of its own and may block; an asynchronous one,
        which runs on an event loop; or a `Loader`, whose batches from its position to the end of its epoch are the items.

        continuous: iterate the source again for each epoch. An iterator of the pipeline ends with its epoch, when the stages
            have begun with the next one; the next iterator gives it.
        """
        if self._source is not None:
            raise SettingError("the pipeline has a source already", "use one `add_source` for each builder")
        self._source = SourceConfig(source, continuous)
        return self._now()

    @overload
    def pipe(
        self,
        op: Callable[[T_co], AsyncIterator[U]],
        /,
        *,
        concurrency: int = 1,
        name: str | None = None,
        output_order: OutputOrder | None = None,
        max_failures: int | Fraction | None = None,
    ) -> PipelineBuilder[U]: ...
    @overload
    def pipe(
        self,
        op: Callable[[T_co], Awaitable[U | None]],
        /,
        *,
        concurrency: int = 1,
        name: str | None = None,
        output_order: OutputOrder | None = None,
        max_failures: int | Fraction | None = None,
    ) -> PipelineBuilder[U]: ...
    @overload
    def pipe(
        self,
        op: Callable[[T_co], Iterator[U]],
        /,
        *,
        concurrency: int = 1,
        executor: Executor | None = None,
        name: str | None = None,
        output_order: OutputOrder | None = None,
        max_failures: int | Fraction | None = None,
    ) -> PipelineBuilder[U]: ...
    @overload
    def pipe(
        self,
        op: Callable[[T_co], U | None] | _Lookup[U],
        /,
        *,
        concurrency: int = 1,
        executor: Executor | None = None,
        name: str | None = None,
        output_order: OutputOrder | None = None,
        max_failures: int | Fraction | None = None,
    ) -> PipelineBuilder[U]: ...
    def pipe(
        self,
        op: Any,
        /,
        *,
        concurrency: int = 1,
        executor: Executor | None = None,
        name: str | None = None,
        output_order: OutputOrder | None = None,
        max_failures: int | Fraction | None = None,
    ) -> PipelineBuilder[Any]:
        """Applies `op` to each item. Results that are `None` are left out.

        op: a function or callable of one item; a generator function, which makes many items of one; either of them as
            `async def`; a dict, a list or the like, in which each item is looked up; or an operation of
            `spdl_cluster.ops`, which runs without Python.
        concurrency: items that the stage works on at a time. Functions and generators share the pipeline's threads.
        executor: the user's own threads or processes, in which a function runs instead. A generator's results are then
            passed on when it has ended.
        name: name of the stage in errors and statistics. Default: the function's.
        output_order: `"completion"`, or `"input"` for the order of the stage's items, in which a slow item holds up those
            behind it. Default: `"input"` if the source is a loader, otherwise `"completion"`.
        max_failures: failed items that the stage leaves out; with one more, the pipeline fails. -1: any number. A `Fraction`:
            the share of its items that may fail, from its first 100 items on. Default: that of `build`.
        """
        self._pipes.append(
            Pipe(
                op,
                concurrency=concurrency,
                executor=executor,
                name=name,
                output_order=output_order,
                max_failures=max_failures,
            )
        )
        return self._now()

    @overload
    def aggregate(self, input: int, /, *, drop_last: bool = False) -> PipelineBuilder[list[T_co]]: ...
    @overload
    def aggregate(self, input: Aggregator, /, *, drop_last: bool = False) -> PipelineBuilder[Any]: ...
    def aggregate(self, input: int | Aggregator, /, *, drop_last: bool = False) -> PipelineBuilder[Any]:
        """Collects items into lists of `input`, or as an `Aggregator` does. The last list may be shorter; with `drop_last` it
        is left out then, and an `Aggregator` is not asked for what is left."""
        self._pipes.append(Aggregate(input, drop_last=drop_last))
        return self._now()

    def disaggregate(self: PipelineBuilder[Iterable[S]]) -> PipelineBuilder[S]:
        """Splits lists, or any iterables, into their items."""
        self._pipes.append(Disaggregate())
        return self._now()

    def path_variants(
        self,
        router: Callable[[T_co], int],
        paths: Sequence[Sequence[StageConfig]],
        name: str | None = None,
        *,
        output_order: OutputOrder | None = None,
    ) -> PipelineBuilder[Any]:
        """Routes each item to one of several paths of stages, and merges their results.

        router: returns the number of the path for an item, from 0. Where it returns another number or raises, the item has
            failed.
        paths: for each path its stages, made by `Pipe`, `Aggregate`, `Disaggregate` and `PathVariants` of
            `spdl_cluster.pipeline.defs`. A path without stages passes its items on.
        name: name of the router in errors and statistics. Default: the function's.
        output_order: `"completion"`, or `"input"` for the order of the items; the stages of the paths must then keep it, too,
            and do so unless they say otherwise. Default: that of `pipe`.
        """
        self._pipes.append(PathVariants(router, paths, name, output_order=output_order))
        return self._now()

    def add_sink(self, buffer_size: int = 3) -> PipelineBuilder[T_co]:
        """Ends the stages with a buffer of `buffer_size` items that are ready before the loop takes them. More take more
        memory."""
        if self._sink is not None:
            raise SettingError("the pipeline has a sink already", "use one `add_sink` for each builder")
        self._sink = SinkConfig(buffer_size)
        return self._now()

    def get_config(self) -> PipelineConfig[T_co]:
        """Returns what was collected, for `build_pipeline`."""
        if self._source is None:
            raise SettingError("the pipeline has no source", "call `add_source` first")
        if self._sink is None:
            raise SettingError("the pipeline has no sink", "call `add_sink` before `build`")
        return PipelineConfig(self._source, list(self._pipes), self._sink)

    def build(
        self,
        *,
        num_threads: int,
        max_failures: int | Fraction = 0,
        report_stats_interval: float = -1,
        use_thread_output_queue: bool = False,
    ) -> Pipeline[T_co]:
        """Returns the pipeline, which starts at its first use, at `start` or in `auto_stop`.

        num_threads: threads that the functions and generators of all stages share.
        max_failures: failed items that each stage leaves out; with one more, the pipeline fails. -1: any number. A `Fraction`:
            the share of a stage's items that may fail, from its first 100 items on.
        report_stats_interval: seconds between lines with the statistics of all stages in the log `spdl_cluster.pipeline`.
            Default: none.
        use_thread_output_queue: changes nothing: the loop always takes its items without an event loop, which is what SPDL
            does with it.
        """
        return build_pipeline(
            self.get_config(),
            num_threads=num_threads,
            max_failures=max_failures,
            report_stats_interval=report_stats_interval,
            use_thread_output_queue=use_thread_output_queue,
        )

    def _now(self) -> PipelineBuilder[Any]:
        """Returns this builder, with the type that its items have from here on."""
        return self
