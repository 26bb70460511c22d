"""A pipeline that runs: its items, statistics and state, and how it stops."""

from __future__ import annotations

import atexit
import functools
import sys
import weakref
from collections.abc import AsyncIterable, Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from .._native import LoopTasks, NativeOp, NativePipeline, Reply
from ..errors import PipelineFailure, PipelineTimeout, SettingError, UsageError
from ..ops import NativeOperation
from .defs import (
    AggregateConfig,
    Aggregator,
    DisaggregateConfig,
    MergeConfig,
    OutputOrder,
    PathVariantsConfig,
    PipeConfig,
    PipelineConfig,
    SourceConfig,
    StageConfig,
    check,
    check_failures,
    event_loop,
)
from .stats import StageStats, added

if TYPE_CHECKING:
    from concurrent.futures import Executor, Future
    from fractions import Fraction

    from ..event_loop import EventLoop
    from ..loader import Loader
    from .stats_log import StatsLog

T_co = TypeVar("T_co", covariant=True)

#: Seconds that the end of the program waits for a pipeline that it left running.
_EXIT_TIMEOUT = 5.0

_running: weakref.WeakSet[Pipeline[Any]] = weakref.WeakSet()


@dataclass(frozen=True)
class NativeStage:
    """A stage as the native half reads it."""

    kind: str
    name: str
    op: Callable[..., Any] | None = None
    native: NativeOp | None = None
    tasks: LoopTasks | None = None
    #: Items at a time; for `aggregate`, items of a list.
    count: int = 1
    is_ordered: bool = True
    #: Failures that are left out, -1 for any number; or the share of items that may fail.
    max_failures: int | tuple[int, int] = 0
    drop_last: bool = False
    #: For `paths`, the stages of each.
    paths: tuple[tuple[NativeStage, ...], ...] = ()


@dataclass(frozen=True)
class NativeSource:
    """A source as the native half reads it: an iterable, or pipelines that are merged."""

    source: Any
    is_loader: bool = False
    merged: tuple[tuple[NativeSource, tuple[NativeStage, ...]], ...] = ()


def build_pipeline(
    config: PipelineConfig[T_co],
    /,
    *,
    num_threads: int,
    max_failures: int | Fraction = 0,
    report_stats_interval: float = -1,
    use_thread_output_queue: bool = False,
) -> Pipeline[T_co]:
    """Returns the pipeline that a `PipelineConfig` describes. The arguments are those of `PipelineBuilder.build`."""
    check("num_threads", num_threads)
    check_failures(max_failures)
    return Pipeline(config, num_threads, max_failures, report_stats_interval)


class Pipeline(Generic[T_co]):
    """Stages that run in the background, made by `PipelineBuilder.build` or `build_pipeline`. A pipeline runs once, from its
    source's first item to its last, or with a continuous source epoch by epoch; it may be iterated by one thread at a time."""

    def __init__(
        self, config: PipelineConfig[Any], threads: int, max_failures: int | Fraction, report_stats_interval: float
    ) -> None:
        """Not for callers: use `PipelineBuilder`."""
        self._config = _named(config, {"source", "sink"})
        source = config.src.source if isinstance(config.src, SourceConfig) else None
        self._is_continuous = isinstance(config.src, SourceConfig) and config.src.continuous
        self._threads = threads
        self._max_failures = max_failures
        self._loader = _as_loader(source)
        self._native: NativePipeline | None = None
        self._loop: EventLoop | None = None
        self._failure: BaseException | None = None
        self._is_draining = False
        self._is_stopped = False
        #: What `set_concurrency` has set.
        self._concurrency: dict[str, int] = {}
        #: The loader's state when the epoch of the pipeline began, and the last that is known after it stopped.
        self._state: dict[str, Any] = {}
        #: The statistics of earlier epochs, and in the end those of all.
        self._stats: list[StageStats] = []
        self._log = _stats_log(self, report_stats_interval) if report_stats_interval > 0 else None

    def start(self) -> None:
        """Starts the stages. The first use does it too."""
        if self._native is not None or self._is_stopped:
            raise UsageError("the pipeline has started already", "build another one to run the stages again")
        if self._loader is not None:
            self._state = self._loader.state_dict()
        sources, pipes = _parts(self._config)
        if any(isinstance(source, AsyncIterable) for source in sources) or any(
            pipe.kind.startswith("async") for pipe in pipes
        ):
            self._loop = event_loop()()
            weakref.finalize(self, self._loop.stop, join=False)
        try:
            self._native = self._begin()
        except BaseException:
            if self._loop is not None:
                self._loop.stop()
            raise
        _running.add(self)
        if self._log is not None:
            self._log.start()

    def _begin(self) -> NativePipeline:
        """Starts the stages at the beginning of the source."""
        order: OutputOrder = "completion" if self._loader is None else "input"
        stages = [self._native_stage(stage, order) for stage in self._config.pipes]
        buffer = self._config.sink.buffer_size
        return NativePipeline.start(self._native_source(self._config.src), stages, buffer, self._threads)

    def _native_source(self, src: SourceConfig[Any] | MergeConfig) -> NativeSource:
        if isinstance(src, MergeConfig):
            merged = (
                (self._native_source(config.src), tuple(self._native_stage(stage, "completion") for stage in config.pipes))
                for config in src.pipeline_configs
            )
            return NativeSource(None, merged=tuple(merged))
        source: Any = src.source
        if isinstance(source, AsyncIterable):
            assert self._loop is not None, "an asynchronous source has an event loop"
            source = self._loop.iterate(source)
        return NativeSource(source, self._loader is not None)

    def _begin_again(self) -> None:
        """Starts the stages on the next epoch of the source, when all items of this one were taken."""
        assert self._native is not None, "an epoch has ended"
        state, stats = self._position(), self.stats()
        self._native.begin_stop()
        self._state, self._stats = state, stats
        self._native.wait_stopped(None)
        try:
            self._native = self._begin()
        except Exception as error:
            self._is_stopped = True
            self._failure = error

    def drain(self) -> None:
        """Takes no more items from the source. The items that it has given still come out; then the pipeline ends."""
        if self._native is None and not self._is_stopped:
            raise UsageError("the pipeline has not started, so that there is nothing to drain", "call `start` first")
        self._is_draining = True
        if self._native is not None and not self._is_stopped:
            self._native.drain()

    def set_concurrency(self, stage: str, concurrency: int) -> None:
        """Sets the number of items that the stage of this name works on at a time, now and in later epochs. When it is
        lowered, running operations end first; when it is raised, functions and generators still share the pipeline's
        threads."""
        check("concurrency", concurrency)
        pipes = [pipe.name for pipe in _parts(self._config)[1]]
        if stage not in pipes:
            there = ", ".join(f"`{name}`" for name in pipes) or "none"
            raise SettingError(f"the pipeline has no operation `{stage}`", f"its operations are: {there}")
        self._concurrency[stage] = concurrency
        if self._native is not None and not self._is_stopped:
            self._native.set_concurrency(stage, concurrency)

    def stop(self, *, timeout: float | None = None) -> None:
        """Stops all stages and waits up to `timeout` seconds for operations that run; without one, as long as they take. What
        was not taken is dropped.

        Raises `PipelineTimeout` if they take longer; another `stop` waits on.
        """
        if self._native is None:
            self._is_stopped = True
            return
        if not self._is_stopped:
            self._is_stopped = True
            self._state, self._stats = self._position(), self.stats()
            self._native.begin_stop()
        if self._log is not None:
            self._log.stop()
        if self._loop is not None:
            self._loop.stop(join=False)
        self._native.wait_stopped(timeout)
        if self._loop is not None:
            self._loop.stop()
        _running.discard(self)

    @contextmanager
    def auto_stop(self, *, timeout: float | None = None) -> Iterator[None]:
        """Starts the pipeline, and stops it at the end of the block; `timeout` is that of `stop`."""
        self.start()
        try:
            yield
        finally:
            self.stop(timeout=timeout)

    def get_item(self, *, timeout: float | None = None) -> T_co:
        """Returns the next item, and waits for it up to `timeout` seconds.

        Raises `EOFError` after the last item, or the last of an epoch; `PipelineFailure` if an operation or the source failed,
        with its exception as the cause; and `PipelineTimeout`, with the stage that the others wait for, after which the next
        call waits on.
        """
        if self._failure is not None:
            raise self._failure
        if self._native is None and not self._is_stopped:
            self.start()
        if self._native is None or self._is_stopped:
            raise EOFError("the pipeline has been stopped")
        try:
            return cast(T_co, self._native.next(timeout))
        except EOFError:
            if self._is_continuous and not self._is_draining:
                self._begin_again()
            raise
        except PipelineFailure as failure:
            self._failure = failure
            raise

    def get_iterator(self, *, timeout: float | None = None) -> PipelineIterator[T_co]:
        """Returns an iterator over the items, or over those of an epoch if the source is continuous, which waits for each of
        them up to `timeout` seconds."""
        return PipelineIterator(self, timeout)

    def __iter__(self) -> PipelineIterator[T_co]:
        """Returns an iterator that waits as long as it takes."""
        return self.get_iterator()

    def stats(self) -> list[StageStats]:
        """Returns the statistics of all stages from source to sink; after `stop`, those of the end. Epochs add up, but for
        `p50_s` and `p99_s`, which are those of the last."""
        now = [] if self._native is None else self._native.stats()
        return added(self._stats, [StageStats._of(stats) for stats in now])

    def state_dict(self) -> dict[str, Any]:
        """Returns the loader's state after the batches that were taken out of this pipeline, whatever is still in its stages:
        of the items that the loop took, it covers all up to the first batch that is not fully taken.

        Raises `UsageError` if the source is not a loader.
        """
        if self._loader is None:
            raise UsageError(
                "the source of this pipeline is not a loader, so that it has no state", "use `connect` or `local` as the source"
            )
        if self._native is None and not self._is_stopped:
            return self._loader.state_dict()
        return self._state if self._is_stopped else self._position()

    def _position(self) -> dict[str, Any]:
        position = self._native.position() if self._native is not None else None
        if position is None:
            return dict(self._state)
        return {**self._state, "epoch": position.epoch, "offset": position.offset}

    def _native_stage(self, stage: StageConfig, default: OutputOrder) -> NativeStage:
        match stage:
            case AggregateConfig(name=name, op=int(count), drop_last=drop_last):
                return NativeStage("aggregate", name, count=count, drop_last=drop_last)
            case AggregateConfig(name=name, op=Aggregator() as aggregator, drop_last=drop_last):
                op = functools.partial(_aggregate, aggregator, drop_last, self._is_continuous)
                return NativeStage("aggregator", name, op, max_failures=_limit(self._max_failures))
            case DisaggregateConfig(name=name):
                return NativeStage("disaggregate", name)
            case PipeConfig():
                return self._native_pipe(stage, default)
            case PathVariantsConfig(name=name, router=router):
                order = stage.output_order or default
                paths = tuple(tuple(self._native_stage(inner, order) for inner in path) for path in stage.paths)
                limit = _limit(self._max_failures)
                return NativeStage("paths", name, router, is_ordered=order == "input", max_failures=limit, paths=paths)
        raise SettingError(
            f"{stage!r} is no stage of a pipeline", "use `Pipe`, `Aggregate`, `Disaggregate` and `PathVariants`"
        )

    def _native_pipe(self, pipe: PipeConfig[Any, Any], default: OutputOrder) -> NativeStage:
        kind, op, tasks = pipe.kind, pipe.op, None
        if pipe.executor is not None:
            op = functools.partial(_submit, pipe.executor, _all if kind == "generator" else _one, op)
            kind = "deferred generator" if kind == "generator" else "deferred"
        elif self._loop is not None and kind.startswith("async"):
            if kind == "async generator":
                kind, op = "blocking generator", functools.partial(self._loop.generate, op)
            else:
                kind, op, tasks = "deferred", functools.partial(self._loop.answer, op), self._loop.tasks
        native = op._native if isinstance(op, NativeOperation) else None
        order = pipe.output_order or default
        max_failures = _limit(self._max_failures if pipe.max_failures is None else pipe.max_failures)
        count = self._concurrency.get(pipe.name, pipe.concurrency)
        return NativeStage(kind, pipe.name, op, native, tasks, count, order == "input", max_failures)


def _as_loader(source: object) -> Loader | None:
    """Returns the source if it is a loader. Where there is one, its module has been imported; this imports it for no other."""
    module = sys.modules.get("spdl_cluster.loader")
    return source if module is not None and isinstance(source, module.Loader) else None


class PipelineIterator(Generic[T_co]):
    """The items of a pipeline, or of an epoch of it. After a timeout or Ctrl-C it can be used further."""

    def __init__(self, pipeline: Pipeline[T_co], timeout: float | None) -> None:
        self._pipeline = pipeline
        self._timeout = timeout
        self._is_over = False

    def __iter__(self) -> PipelineIterator[T_co]:
        return self

    def __next__(self) -> T_co:
        if self._is_over:
            raise StopIteration
        try:
            return self._pipeline.get_item(timeout=self._timeout)
        except EOFError:
            self._is_over = True
            raise StopIteration from None


def _named(config: PipelineConfig[Any], taken: set[str]) -> PipelineConfig[Any]:
    """Returns the pipeline, with a number behind each name of a stage that is `taken`."""
    src = config.src
    if isinstance(src, MergeConfig):
        src = MergeConfig(tuple(_named(merged, taken) for merged in src.pipeline_configs))
    return replace(config, src=src, pipes=_named_stages(config.pipes, taken))


def _named_stages(stages: Iterable[StageConfig], taken: set[str]) -> list[StageConfig]:
    named: list[StageConfig] = []
    for stage in stages:
        names = (stage.name if number == 1 else f"{stage.name}-{number}" for number in range(1, len(taken) + 2))
        stage = replace(stage, name=next(name for name in names if name not in taken))
        taken.add(stage.name)
        if isinstance(stage, PathVariantsConfig):
            stage = replace(stage, paths=tuple(tuple(_named_stages(path, taken)) for path in stage.paths))
        named.append(stage)
    return named


def _parts(config: PipelineConfig[Any]) -> tuple[list[Any], list[PipeConfig[Any, Any]]]:
    """Returns all sources and operations of a pipeline, of those that it merges, and of its paths."""
    sources, pipes = ([config.src.source], []) if isinstance(config.src, SourceConfig) else ([], [])
    for merged in config.src.pipeline_configs if isinstance(config.src, MergeConfig) else ():
        more_sources, more_pipes = _parts(merged)
        sources += more_sources
        pipes += more_pipes
    stages = list(config.pipes)
    while stages:
        stage = stages.pop(0)
        if isinstance(stage, PipeConfig):
            pipes.append(stage)
        if isinstance(stage, PathVariantsConfig):
            stages[:0] = [inner for path in stage.paths for inner in path]
    return sources, pipes


def _limit(max_failures: int | Fraction) -> int | tuple[int, int]:
    if isinstance(max_failures, int):
        return max_failures
    share = max_failures.limit_denominator(1 << 32)
    return share.numerator, share.denominator


def _stats_log(pipeline: Pipeline[Any], interval_s: float) -> StatsLog:
    # Its module imports logging, whose time and memory only pipelines that need it shall pay for.
    from .stats_log import StatsLog

    return StatsLog(pipeline, interval_s)


def _aggregate(aggregator: Aggregator, drop_last: bool, is_continuous: bool, /, *items: Any) -> Any:
    """Gives an item to an aggregator; without an item, asks it for what is left."""
    if items:
        return aggregator.accumulate(*items)
    rest = aggregator.flush() if not drop_last or is_continuous else None
    return None if drop_last else rest


def _submit(executor: Executor, take: Callable[[Any, Any], list[Any]], op: Any, item: Any, reply: Reply) -> None:
    """Runs `op(item)` in an executor, and gives the results to `reply`."""
    executor.submit(take, op, item).add_done_callback(functools.partial(_reply, reply))


def _reply(reply: Reply, future: Future[list[Any]]) -> None:
    try:
        reply.done_many(future.result())
    except BaseException as error:
        reply.failed(error)


def _one(op: Callable[[Any], Any], item: Any) -> list[Any]:
    return [op(item)]


def _all(op: Callable[[Any], Iterable[Any]], item: Any) -> list[Any]:
    return list(op(item))


@atexit.register
def _stop_all() -> None:
    """Stops pipelines that the program left running: their threads cannot call Python once the interpreter is gone."""
    for pipeline in list(_running):
        try:
            pipeline.stop(timeout=_EXIT_TIMEOUT)
        except PipelineTimeout:
            pass
