"""Pipelines of your own steps, in this process: a source, operations with their own concurrency, and a sink that a loop takes
from. Names and meaning are those of SPDL's `PipelineBuilder`.

    from spdl_cluster.pipeline import PipelineBuilder

    pipeline = (
        PipelineBuilder()
        .add_source(urls)
        .pipe(download, concurrency=4)
        .pipe(decode, concurrency=8)
        .aggregate(32)
        .pipe(collate)
        .add_sink(3)
        .build(num_threads=8)
    )
    with pipeline.auto_stop():
        for batch in pipeline.get_iterator(timeout=30):
            ...

Every queue is bounded, so a slow stage holds up the stages before it. The first failure ends the pipeline with
`PipelineFailure`, unless `max_failures` lets some pass.
"""

from __future__ import annotations

import atexit
import functools
import inspect
import weakref
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeVar, cast, overload

from ._native import NativeOp, NativePipeline, PipelineStageStats, Reply
from .errors import PipelineFailure, PipelineTimeout, SettingError, UsageError
from .loader import Loader
from .ops import NativeOperation

if TYPE_CHECKING:
    from .event_loop import EventLoop

__all__ = ["Pipeline", "PipelineBuilder", "PipelineFailure", "PipelineIterator", "PipelineTimeout", "StageStats"]

T_co = TypeVar("T_co", covariant=True)
S = TypeVar("S")
U = TypeVar("U")
U_co = TypeVar("U_co", covariant=True)

#: The order in which results leave a stage.
OutputOrder = Literal["completion", "input"]
#: Seconds that the end of the program waits for a pipeline that it left running.
_EXIT_TIMEOUT = 5.0

_running: weakref.WeakSet[Pipeline[Any]] = weakref.WeakSet()


class _Lookup(Protocol[U_co]):
    """A dict, a list, or anything else with items."""

    def __getitem__(self, key: Any, /) -> U_co: ...


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


@dataclass(frozen=True)
class _Stage:
    """A stage of a builder: what was asked for."""

    #: `aggregate`, `disaggregate`, `function`, `generator`, `async`, `async generator` or `native`.
    kind: str
    name: str
    op: Callable[[Any], Any] | None = None
    count: int = 1
    executor: Executor | None = None
    order: OutputOrder | None = None
    max_failures: int | None = None
    drop_last: bool = False


@dataclass(frozen=True)
class NativeStage:
    """A stage as the native half reads it."""

    kind: str
    name: str
    op: Callable[..., Any] | None
    native: NativeOp | None
    count: int
    is_ordered: bool
    max_failures: int
    drop_last: bool


class PipelineBuilder(Generic[T_co]):
    """Builds a `Pipeline`: `add_source`, any number of stages, `add_sink`, `build`. Each method returns the builder, which
    knows the type of the items so far."""

    def __init__(self: PipelineBuilder[Any]) -> None:
        self._source: Iterable[Any] | AsyncIterable[Any] | None = None
        self._stages: list[_Stage] = []
        self._buffer: int | None = None

    def add_source(self, source: Iterable[S] | AsyncIterable[S]) -> PipelineBuilder[S]:
        """Sets where the items come from: an iterable, which runs on a thread of its own and may block; an asynchronous one,
        which runs on an event loop; or a `Loader`, whose batches from its position to the end of its epoch are the items."""
        if self._source is not None:
            raise SettingError("the pipeline has a source already", "use one `add_source` for each builder")
        if not isinstance(source, (Iterable, AsyncIterable)) and not hasattr(source, "__getitem__"):
            raise SettingError(f"the source is {source!r}, which can be iterated neither by `for` nor by `async for`")
        self._source = source
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
        max_failures: int | None = None,
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
        max_failures: int | None = None,
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
        max_failures: int | None = None,
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
        max_failures: int | None = None,
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
        max_failures: int | None = None,
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
        max_failures: failed items that the stage leaves out; with one more, the pipeline fails. -1: any number. Default:
            that of `build`.
        """
        call, kind = _classified(op)
        if kind.startswith("async"):
            _event_loop()
        if executor is not None and kind not in ("function", "generator"):
            raise SettingError(f"an operation of kind `{kind}` does not run in an `executor`", "leave `executor` out")
        if output_order not in (None, "completion", "input"):
            raise SettingError(f'`output_order` is {output_order!r}, not "completion" or "input"')
        _check("concurrency", concurrency)
        self._stages.append(
            _Stage(kind, self._unused(name or _name(op)), call, concurrency, executor, output_order, max_failures)
        )
        return self._now()

    def aggregate(self, num_items: int, /, *, drop_last: bool = False) -> PipelineBuilder[list[T_co]]:
        """Collects items into lists of `num_items`. The last list may be shorter; with `drop_last` it is left out then."""
        _check("num_items", num_items)
        self._stages.append(_Stage("aggregate", self._unused("aggregate"), count=num_items, drop_last=drop_last))
        return self._now()

    def disaggregate(self: PipelineBuilder[Iterable[S]]) -> PipelineBuilder[S]:
        """Splits lists, or any iterables, into their items."""
        self._stages.append(_Stage("disaggregate", self._unused("disaggregate")))
        return self._now()

    def add_sink(self, buffer_size: int = 3) -> PipelineBuilder[T_co]:
        """Ends the stages with a buffer of `buffer_size` items that are ready before the loop takes them. More take more
        memory."""
        if self._buffer is not None:
            raise SettingError("the pipeline has a sink already", "use one `add_sink` for each builder")
        _check("buffer_size", buffer_size)
        self._buffer = buffer_size
        return self._now()

    def build(self, *, num_threads: int, max_failures: int = 0) -> Pipeline[T_co]:
        """Returns the pipeline, which starts at its first use, at `start` or in `auto_stop`.

        num_threads: threads that the functions and generators of all stages share.
        max_failures: failed items that each stage leaves out; with one more, the pipeline fails. -1: any number.
        """
        if self._source is None:
            raise SettingError("the pipeline has no source", "call `add_source` first")
        if self._buffer is None:
            raise SettingError("the pipeline has no sink", "call `add_sink` before `build`")
        _check("num_threads", num_threads)
        return Pipeline(self._source, list(self._stages), self._buffer, num_threads, max_failures)

    def _now(self) -> PipelineBuilder[Any]:
        """Returns this builder, with the type that its items have from here on."""
        return self

    def _unused(self, name: str) -> str:
        """Returns `name`, with a number if another stage has it."""
        taken = {"source", "sink", *(stage.name for stage in self._stages)}
        names = (name if number == 1 else f"{name}-{number}" for number in range(1, len(taken) + 2))
        return next(name for name in names if name not in taken)


class Pipeline(Generic[T_co]):
    """Stages that run in the background, made by `PipelineBuilder.build`. A pipeline runs once, from its source's first item
    to its last; it may be iterated by one thread at a time."""

    def __init__(
        self,
        source: Iterable[Any] | AsyncIterable[Any],
        stages: list[_Stage],
        buffer: int,
        threads: int,
        max_failures: int,
    ) -> None:
        """Not for callers: use `PipelineBuilder`."""
        self._source = source
        self._stages = stages
        self._buffer = buffer
        self._threads = threads
        self._max_failures = max_failures
        self._loader = source if isinstance(source, Loader) else None
        self._native: NativePipeline | None = None
        self._loop: EventLoop | None = None
        self._failure: PipelineFailure | None = None
        self._is_stopped = False
        #: The loader's state when the pipeline started, and the last that is known after it stopped.
        self._state: dict[str, Any] = {}
        self._stats: list[StageStats] = []

    def start(self) -> None:
        """Starts the stages. The first use does it too."""
        if self._native is not None or self._is_stopped:
            raise UsageError("the pipeline has started already", "build another one to run the stages again")
        if self._loader is not None:
            self._state = self._loader.state_dict()
        if isinstance(self._source, AsyncIterable) or any(stage.kind.startswith("async") for stage in self._stages):
            self._loop = _event_loop()()
            weakref.finalize(self, self._loop.stop, join=False)
        try:
            stages = [self._native_stage(stage) for stage in self._stages]
            source = self._source
            if isinstance(source, AsyncIterable):
                assert self._loop is not None, "an asynchronous source has an event loop"
                source = self._loop.iterate(source)
            is_loader = self._loader is not None
            self._native = NativePipeline.start(source, is_loader, stages, self._buffer, self._threads)
        except BaseException:
            if self._loop is not None:
                self._loop.stop()
            raise
        _running.add(self)

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

        Raises `EOFError` after the last item; `PipelineFailure` if an operation or the source failed, with its exception as
        the cause; and `PipelineTimeout`, with the stage that the others wait for, after which the next call waits on.
        """
        if self._failure is not None:
            raise self._failure
        if self._native is None and not self._is_stopped:
            self.start()
        if self._native is None or self._is_stopped:
            raise EOFError("the pipeline has been stopped")
        try:
            return cast(T_co, self._native.next(timeout))
        except PipelineFailure as failure:
            self._failure = failure
            raise

    def get_iterator(self, *, timeout: float | None = None) -> PipelineIterator[T_co]:
        """Returns an iterator over the items, which waits for each of them up to `timeout` seconds."""
        return PipelineIterator(self, timeout)

    def __iter__(self) -> PipelineIterator[T_co]:
        """Returns an iterator that waits as long as it takes."""
        return self.get_iterator()

    def stats(self) -> list[StageStats]:
        """Returns the statistics of all stages from source to sink; after `stop`, those of the end."""
        if self._native is None or (self._is_stopped and self._stats):
            return self._stats
        return [StageStats._of(stats) for stats in self._native.stats()]

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

    def _native_stage(self, stage: _Stage) -> NativeStage:
        kind, op = stage.kind, stage.op
        if stage.executor is not None:
            op = functools.partial(_submit, stage.executor, _all if kind == "generator" else _one, op)
            kind = "deferred"
        elif self._loop is not None and op is not None and kind.startswith("async"):
            is_generator = kind == "async generator"
            op = functools.partial(self._loop.generate if is_generator else self._loop.answer, op)
            kind = "blocking generator" if is_generator else "deferred"
        native = op._native if isinstance(op, NativeOperation) else None
        order = stage.order or ("completion" if self._loader is None else "input")
        max_failures = self._max_failures if stage.max_failures is None else stage.max_failures
        return NativeStage(kind, stage.name, op, native, stage.count, order == "input", max_failures, stage.drop_last)


class PipelineIterator(Generic[T_co]):
    """The items of a pipeline. After a timeout or Ctrl-C it can be used further."""

    def __init__(self, pipeline: Pipeline[T_co], timeout: float | None) -> None:
        self._pipeline = pipeline
        self._timeout = timeout

    def __iter__(self) -> PipelineIterator[T_co]:
        return self

    def __next__(self) -> T_co:
        try:
            return self._pipeline.get_item(timeout=self._timeout)
        except EOFError:
            raise StopIteration from None


def _event_loop() -> type[EventLoop]:
    """Returns the class. Its module imports asyncio, whose time and memory only pipelines that need it shall pay for."""
    from .event_loop import EventLoop

    return EventLoop


def _check(name: str, number: int) -> None:
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise SettingError(f"`{name}` is {number!r}, not a whole number above 0")


def _classified(op: Any) -> tuple[Callable[[Any], Any], str]:
    """Returns what is called with an item, and its kind."""
    if isinstance(op, NativeOperation):
        return op, "native"
    if not callable(op):
        if hasattr(op, "__getitem__"):
            return op.__getitem__, "function"
        raise SettingError(f"the operation is {op!r}, which can neither be called nor looked up in")
    for call in (op, getattr(op, "__call__", None)):
        if inspect.isasyncgenfunction(call):
            return op, "async generator"
        if inspect.iscoroutinefunction(call):
            return op, "async"
        if inspect.isgeneratorfunction(call):
            return op, "generator"
    return op, "function"


def _name(op: Any) -> str:
    while isinstance(op, functools.partial):
        op = op.func
    name: str = getattr(op, "__name__", type(op).__name__)
    return name


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
