"""A pipeline as a description that can be stored, compared and built several times: what `PipelineBuilder` collects. Names and
meaning are those of `spdl.pipeline.defs`.

    from spdl_cluster.pipeline import build_pipeline
    from spdl_cluster.pipeline.defs import Aggregate, Pipe, PipelineConfig, SinkConfig, SourceConfig

    config = PipelineConfig(
        src=SourceConfig(urls),
        pipes=[Pipe(download, concurrency=4), Aggregate(32), Pipe(collate)],
        sink=SinkConfig(3),
    )
    pipeline = build_pipeline(config, num_threads=8)
"""

from __future__ import annotations

import functools
import inspect
from abc import ABC, abstractmethod
from collections.abc import AsyncIterable, Callable, Iterable, Sequence
from dataclasses import dataclass
from numbers import Rational
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, TypeVar

from ..errors import SettingError
from ..ops import NativeOperation

if TYPE_CHECKING:
    from concurrent.futures import Executor
    from fractions import Fraction

    from ..event_loop import EventLoop

__all__ = [
    "Aggregate",
    "AggregateConfig",
    "Aggregator",
    "Disaggregate",
    "DisaggregateConfig",
    "Merge",
    "MergeConfig",
    "OutputOrder",
    "PathVariants",
    "PathVariantsConfig",
    "Pipe",
    "PipeConfig",
    "PipelineConfig",
    "SinkConfig",
    "SourceConfig",
    "StageConfig",
]

T = TypeVar("T")
U_co = TypeVar("U_co", covariant=True)

#: The order in which results leave a stage.
OutputOrder = Literal["completion", "input"]


@dataclass(frozen=True)
class SourceConfig(Generic[T]):
    """Where the items come from; see `PipelineBuilder.add_source`."""

    source: Iterable[T] | AsyncIterable[T]
    #: Whether the source is iterated again for each epoch.
    continuous: bool = False

    def __post_init__(self) -> None:
        source = self.source
        if not isinstance(source, (Iterable, AsyncIterable)) and not hasattr(source, "__getitem__"):
            raise SettingError(f"the source is {source!r}, which can be iterated neither by `for` nor by `async for`")
        if self.continuous and (inspect.isgenerator(source) or inspect.isasyncgen(source)):
            raise SettingError(
                f"the source is {source!r}, which can be iterated only once, and `continuous` asks for epochs",
                "give an object whose `__iter__` begins again, such as a list or one with a generator as `__iter__`",
            )


@dataclass(frozen=True)
class SinkConfig(Generic[T]):
    """The buffer at the end; see `PipelineBuilder.add_sink`."""

    buffer_size: int

    def __post_init__(self) -> None:
        check("buffer_size", self.buffer_size)


@dataclass(frozen=True)
class PipeConfig(Generic[T, U_co]):
    """An operation on each item. Use `Pipe` to make one."""

    name: str
    #: What is called with an item.
    op: Callable[[Any], Any]
    #: `function`, `generator`, `async`, `async generator` or `native`.
    kind: str
    concurrency: int = 1
    executor: Executor | None = None
    output_order: OutputOrder | None = None
    max_failures: int | Fraction | None = None


@dataclass(frozen=True)
class AggregateConfig(Generic[T]):
    """Collects items into lists. Use `Aggregate` to make one."""

    name: str
    #: The length of the lists, or what collects the items.
    op: int | Aggregator
    drop_last: bool = False


@dataclass(frozen=True)
class DisaggregateConfig(Generic[T]):
    """Splits lists into their items. Use `Disaggregate` to make one."""

    name: str


@dataclass(frozen=True)
class PathVariantsConfig(Generic[T]):
    """Routes each item to one of several paths, and merges their results. Use `PathVariants` to make one."""

    name: str
    #: Returns the number of the path for an item.
    router: Callable[[Any], int]
    paths: tuple[tuple[StageConfig, ...], ...]
    output_order: OutputOrder | None = None


#: A stage between source and sink.
StageConfig: TypeAlias = "PipeConfig[Any, Any] | AggregateConfig[Any] | DisaggregateConfig[Any] | PathVariantsConfig[Any]"


@dataclass(frozen=True)
class MergeConfig:
    """Takes the results of several pipelines as the items of another. Use `Merge` to make one."""

    pipeline_configs: tuple[PipelineConfig[Any], ...]


@dataclass(frozen=True)
class PipelineConfig(Generic[U_co]):
    """A whole pipeline, for `build_pipeline`."""

    src: SourceConfig[Any] | MergeConfig
    pipes: Sequence[StageConfig]
    sink: SinkConfig[Any]


class Aggregator(ABC):
    """What collects items in a way of its own, for `Aggregate` and `PipelineBuilder.aggregate`: batches of a number of tokens,
    groups by length. It is called by one thread at a time, with the items in their order."""

    @abstractmethod
    def accumulate(self, item: Any) -> Any | None:
        """Takes an item. Returns a result, or `None` until there is one."""

    @abstractmethod
    def flush(self) -> Any | None:
        """Returns what is left when the items end, or `None`. It is not called with `drop_last`; between the epochs of a
        continuous source it is called then too, and what it returns is left out."""


def Pipe(
    op: Any,
    /,
    *,
    concurrency: int = 1,
    executor: Executor | None = None,
    name: str | None = None,
    output_order: OutputOrder | None = None,
    max_failures: int | Fraction | None = None,
) -> PipeConfig[Any, Any]:
    """Returns a stage that applies `op` to each item; its arguments are those of `PipelineBuilder.pipe`."""
    call, kind = _classified(op)
    if kind.startswith("async"):
        event_loop()
    if executor is not None and kind not in ("function", "generator"):
        raise SettingError(f"an operation of kind `{kind}` does not run in an `executor`", "leave `executor` out")
    check_order(output_order)
    check("concurrency", concurrency)
    if max_failures is not None:
        check_failures(max_failures)
    return PipeConfig(name or _name(op), call, kind, concurrency, executor, output_order, max_failures)


def Aggregate(input: int | Aggregator, /, *, drop_last: bool = False) -> AggregateConfig[Any]:
    """Returns a stage that collects items; its arguments are those of `PipelineBuilder.aggregate`."""
    if not isinstance(input, Aggregator):
        check("num_items", input)
    return AggregateConfig("aggregate", input, drop_last)


def Disaggregate() -> DisaggregateConfig[Any]:
    """Returns a stage that splits lists, or any iterables, into their items."""
    return DisaggregateConfig("disaggregate")


def PathVariants(
    router: Callable[[Any], int],
    paths: Sequence[Sequence[StageConfig]],
    name: str | None = None,
    *,
    output_order: OutputOrder | None = None,
) -> PathVariantsConfig[Any]:
    """Returns a stage that routes items to paths; its arguments are those of `PipelineBuilder.path_variants`."""
    if _classified(router)[1] != "function":
        raise SettingError(
            f"the router is {router!r}, not a function of an item", "let a `pipe` before it await what decides, and route on that"
        )
    if not paths:
        raise SettingError("`paths` is empty", "give at least one path, which may be an empty list")
    stages = (PipeConfig, AggregateConfig, DisaggregateConfig, PathVariantsConfig)
    for stage in (stage for path in paths for stage in path):
        if not isinstance(stage, stages):
            raise SettingError(
                f"{stage!r} is no stage of a path", "use `Pipe`, `Aggregate`, `Disaggregate` and `PathVariants`"
            )
    check_order(output_order)
    return PathVariantsConfig(name or _name(router), router, tuple(map(tuple, paths)), output_order)


def Merge(pipeline_configs: Sequence[PipelineConfig[Any]], op: None = None) -> MergeConfig:
    """Returns what takes the place of a `SourceConfig` in a `PipelineConfig`: the results of all pipelines, as they become
    available; where several have some, they take turns. The buffers of their sinks count for nothing.

    op: SPDL's operation on the queues of the pipelines. There are no such queues here, so it must be `None`.
    """
    if op is not None:
        raise SettingError("`op` of `Merge` is given, and no operation can merge here", "leave `op` out")
    if not pipeline_configs:
        raise SettingError("`pipeline_configs` is empty", "give at least one pipeline to merge")
    for src in (config.src for config in pipeline_configs):
        if isinstance(src, SourceConfig) and src.continuous:
            raise SettingError("a source that is merged with others is continuous", "leave `continuous` out")
    return MergeConfig(tuple(pipeline_configs))


def check_order(output_order: OutputOrder | None) -> None:
    """Raises `SettingError` if `output_order` is none."""
    if output_order not in (None, "completion", "input"):
        raise SettingError(f'`output_order` is {output_order!r}, not "completion" or "input"')


def check(name: str, number: int) -> None:
    """Raises `SettingError` if `number` is no whole number above 0."""
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise SettingError(f"`{name}` is {number!r}, not a whole number above 0")


def check_failures(limit: int | Fraction) -> None:
    """Raises `SettingError` if `limit` is neither a number of failures nor a share of them."""
    if isinstance(limit, Rational) and not isinstance(limit, int) and not 0 < limit <= 1:
        raise SettingError(f"`max_failures` is {limit!r}, not a share above 0 and up to 1")
    if isinstance(limit, bool) or not isinstance(limit, Rational):
        raise SettingError(
            f"`max_failures` is {limit!r}, neither a whole number nor a `Fraction`", "-1 lets any number of items fail"
        )


def event_loop() -> type[EventLoop]:
    """Returns the class. Its module imports asyncio, whose time and memory only pipelines that need it shall pay for."""
    from ..event_loop import EventLoop

    return EventLoop


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
