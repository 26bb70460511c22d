"""Pipelines of the user's own steps: the documented listing, kinds of operations, order, failures, timeouts and stopping."""

from __future__ import annotations

import asyncio
import gc
import math
import os
import pathlib
import signal
import sys
import threading
import time
import traceback
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from typing import Any

import pytest
import spdl_cluster
from conftest import LIMIT_S, Cluster, MakeJob, run_python
from spdl_cluster.pipeline import Pipeline, PipelineBuilder, PipelineFailure, PipelineTimeout

#: A wait for something that must not come.
SHORT_S = 0.05


def threads() -> set[str]:
    """Returns the names of this process's threads, the native ones too."""
    tasks = pathlib.Path("/proc/self/task").iterdir()
    return {path.joinpath("comm").read_text().strip() for path in tasks if path.exists()}


def taken(builder: PipelineBuilder[Any], num_threads: int = 4, **settings: Any) -> list[Any]:
    """Builds the pipeline, and returns all of its items."""
    pipeline = builder.add_sink(3).build(num_threads=num_threads, **settings)
    with pipeline.auto_stop(timeout=LIMIT_S):
        return list(pipeline.get_iterator(timeout=LIMIT_S))


def double(item: int) -> int:
    return 2 * item


def up_to(item: int) -> Iterator[int]:
    yield from range(item)


async def double_later(item: int) -> int:
    await asyncio.sleep(0)
    return 2 * item


async def up_to_later(item: int) -> AsyncIterator[int]:
    for number in range(item):
        await asyncio.sleep(0)
        yield number


class Adder:
    """A callable with state."""

    def __init__(self, term: int) -> None:
        self.term = term

    def __call__(self, item: int) -> int:
        return item + self.term


class Dataset:
    """Names of files that exist nowhere, for the listing."""

    def __iter__(self) -> Iterator[str]:
        return (f"sample-{number}" for number in range(100))


async def download(names: list[str]) -> list[bytes]:
    await asyncio.sleep(0)
    return [name.encode() for name in names]


def preprocess(data: bytes) -> int:
    return int(data.decode().removeprefix("sample-"))


def collate(samples: list[int]) -> tuple[int, ...]:
    return tuple(samples)


def gpu_transfer(batch: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    return {"batch": batch}


def test_the_documented_listing_runs_word_for_word() -> None:
    batches = []
    pipeline = (
        PipelineBuilder()
        .add_source(Dataset())
        .aggregate(8)
        .pipe(download, concurrency=4)
        .disaggregate()
        .pipe(preprocess, concurrency=8)
        .aggregate(32)
        .pipe(collate)
        .pipe(gpu_transfer)
        .add_sink(3)
        .build(num_threads=8)
    )
    with pipeline.auto_stop():
        for batch in pipeline.get_iterator(timeout=LIMIT_S):
            batches.append(batch["batch"])
    assert [len(batch) for batch in batches] == [32, 32, 32, 4]
    assert sorted(number for batch in batches for number in batch) == list(range(100))
    names = [stage.name for stage in pipeline.stats()]
    assert names == ["source", "aggregate", "download", "disaggregate", "preprocess", "aggregate-2", "collate", "gpu_transfer", "sink"]
    items = {stage.name: stage.items for stage in pipeline.stats()}
    assert (items["source"], items["aggregate"], items["preprocess"], items["sink"]) == (100, 13, 100, 4)


@pytest.mark.parametrize("order", ["input", "completion"])
@pytest.mark.parametrize(
    ("op", "expected"),
    [
        (double, [0, 2, 4, 6, 8]),
        (Adder(3), [3, 4, 5, 6, 7]),
        (Adder(3).__call__, [3, 4, 5, 6, 7]),
        (lambda item: item if item % 2 else None, [1, 3]),
        (up_to, [0, 0, 1, 0, 1, 2, 0, 1, 2, 3]),
        (double_later, [0, 2, 4, 6, 8]),
        (up_to_later, [0, 0, 1, 0, 1, 2, 0, 1, 2, 3]),
        ({number: str(number) for number in range(5)}, ["0", "1", "2", "3", "4"]),
        ("abcde", ["a", "b", "c", "d", "e"]),
    ],
    ids=["function", "callable", "method", "filter", "generator", "async", "async generator", "dict", "sequence"],
)
def test_operations_of_every_kind(op: Any, expected: list[Any], order: Any) -> None:
    found = taken(PipelineBuilder().add_source(range(5)).pipe(op, concurrency=3, output_order=order))
    assert (found if order == "input" else sorted(found)) == (expected if order == "input" else sorted(expected))


@pytest.mark.parametrize("pool", [ThreadPoolExecutor, ProcessPoolExecutor])
def test_operations_run_in_the_users_executor(pool: Any) -> None:
    with pool(2) as executor:
        found = taken(PipelineBuilder().add_source(range(5)).pipe(double, executor=executor, concurrency=2))
        assert sorted(found) == [0, 2, 4, 6, 8]
        assert taken(PipelineBuilder().add_source(range(4)).pipe(up_to, executor=executor)) == [0, 0, 1, 0, 1, 2]
        with pytest.raises(PipelineFailure, match="stage `double` failed: TypeError"):
            taken(PipelineBuilder().add_source([None]).pipe(double, executor=executor))  # type: ignore[arg-type]


def test_lists_are_made_and_taken_apart() -> None:
    assert taken(PipelineBuilder().add_source(range(10)).aggregate(3).aggregate(2)) == [[[0, 1, 2], [3, 4, 5]], [[6, 7, 8], [9]]]
    assert taken(PipelineBuilder().add_source(range(10)).aggregate(3, drop_last=True)) == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
    assert taken(PipelineBuilder().add_source(range(10)).aggregate(4).disaggregate().aggregate(10)) == [list(range(10))]
    assert taken(PipelineBuilder().add_source([(1, 2), "ab", []]).disaggregate()) == [1, 2, "a", "b"]


def test_an_asynchronous_source_is_iterated_and_closed() -> None:
    closed = threading.Event()

    async def source() -> AsyncIterator[int]:
        try:
            for number in range(1_000_000):
                await asyncio.sleep(0)
                yield number
        finally:
            closed.set()

    pipeline = PipelineBuilder().add_source(source()).pipe(double).add_sink(1).build(num_threads=1)
    with pipeline.auto_stop(timeout=LIMIT_S):
        items = pipeline.get_iterator(timeout=LIMIT_S)
        assert [next(items) for _ in range(3)] == [0, 2, 4]
    assert closed.wait(LIMIT_S)


def test_input_order_and_order_of_completion() -> None:
    for order, expected in (("input", [0, 1, 2]), ("completion", [2, 1, 0])):
        gates = [threading.Event() for _ in range(3)]
        gates[2].set()

        def wait(item: int) -> int:
            assert gates[item].wait(LIMIT_S)
            return item

        def release(item: int) -> int:
            # Only the order of completion lets item 2 come here while the others wait.
            gates[max(item - 1, 0)].set()
            return item

        if order == "input":
            for gate in gates:
                gate.set()
        builder = PipelineBuilder().add_source(range(3)).pipe(wait, concurrency=3, output_order=order)  # type: ignore[call-overload]
        assert taken(builder.pipe(release)) == expected


def refuse_threes(item: int) -> int:
    if item % 3 == 0:
        raise ValueError(f"no {item}, please")
    return item


async def refuse_threes_later(item: int) -> int:
    return refuse_threes(item)


def refuse_threes_in_turn(item: int) -> Iterator[int]:
    yield refuse_threes(item)


@pytest.mark.parametrize("op", [refuse_threes, refuse_threes_later, refuse_threes_in_turn])
def test_a_failure_ends_the_pipeline_with_the_stage_and_the_users_traceback(op: Any) -> None:
    pipeline = PipelineBuilder().add_source(range(1, 9)).pipe(op, name="threes").add_sink(3).build(num_threads=2)
    with pipeline.auto_stop(timeout=LIMIT_S):
        assert (pipeline.get_item(timeout=LIMIT_S), pipeline.get_item(timeout=LIMIT_S)) == (1, 2)
        for _ in range(2):
            with pytest.raises(PipelineFailure, match="stage `threes` failed: ValueError: no 3, please") as raised:
                pipeline.get_item(timeout=LIMIT_S)
            assert raised.value.stage == "threes"
            cause = raised.value.__cause__
            assert isinstance(cause, ValueError)
            assert "refuse_threes" in [frame.name for frame in traceback.extract_tb(cause.__traceback__)]


@pytest.mark.parametrize("op", [refuse_threes, refuse_threes_later, refuse_threes_in_turn])
def test_failures_are_left_out_up_to_a_limit(op: Any) -> None:
    pipeline = PipelineBuilder().add_source(range(9)).pipe(op, name="threes", max_failures=3).add_sink(3).build(num_threads=2)
    with pipeline.auto_stop(timeout=LIMIT_S):
        assert list(pipeline.get_iterator(timeout=LIMIT_S)) == [1, 2, 4, 5, 7, 8]
        assert {stage.name: stage.failures for stage in pipeline.stats()}["threes"] == 3
    assert taken(PipelineBuilder().add_source(range(9)).pipe(op), max_failures=-1) == [1, 2, 4, 5, 7, 8]
    with pytest.raises(PipelineFailure, match="more than 2 items failed in stage `threes`.*no 6, please") as raised:
        taken(PipelineBuilder().add_source(range(9)).pipe(op, name="threes"), max_failures=2)
    assert raised.value.stage == "threes"
    assert isinstance(raised.value.__cause__, ValueError)


def test_a_source_that_fails_ends_the_pipeline_behind_its_items() -> None:
    def source() -> Iterator[int]:
        yield 1
        raise OSError("the disk is gone")

    pipeline = PipelineBuilder().add_source(source()).pipe(double).add_sink(1).build(num_threads=1)
    with pipeline.auto_stop(timeout=LIMIT_S):
        assert pipeline.get_item(timeout=LIMIT_S) == 2
        with pytest.raises(PipelineFailure, match="stage `source` failed: OSError: the disk is gone") as raised:
            pipeline.get_item(timeout=LIMIT_S)
        assert (raised.value.stage, type(raised.value.__cause__)) == ("source", OSError)


def test_a_timeout_names_the_stage_that_the_others_wait_for() -> None:
    gate = threading.Event()

    def wait(item: int) -> int:
        assert gate.wait(LIMIT_S)
        return item

    pipeline = PipelineBuilder().add_source([1]).pipe(double).pipe(wait).add_sink(1).build(num_threads=2)
    with pipeline.auto_stop(timeout=LIMIT_S):
        # Until the item has come to `wait`, another stage may be named.
        while True:
            with pytest.raises(PipelineTimeout) as raised:
                pipeline.get_item(timeout=SHORT_S)
            if "`wait`" in str(raised.value):
                break
        assert str(raised.value) == "no item within 0.05 s: stage `wait` is working on 1 item"
        threading.Timer(SHORT_S, gate.set).start()
        assert pipeline.get_item(timeout=math.inf) == 2
        with pytest.raises(EOFError):
            pipeline.get_item(timeout=LIMIT_S)


def test_stopping_in_the_middle_leaves_nothing_running() -> None:
    before = threads()

    def forever() -> Iterator[int]:
        number = 0
        while True:
            yield (number := number + 1)

    builder = PipelineBuilder().add_source(forever()).pipe(double, concurrency=3).pipe(double_later, concurrency=3)
    pipeline = builder.pipe(up_to_later, concurrency=2).aggregate(2).add_sink(2).build(num_threads=3)
    with pipeline.auto_stop(timeout=LIMIT_S):
        next(pipeline.get_iterator(timeout=LIMIT_S))
        assert threads() > before
    # The system shows a thread for a moment after it was joined.
    until = time.monotonic() + LIMIT_S
    while threads() != before:
        assert time.monotonic() < until, threads()
    with pytest.raises(EOFError):
        pipeline.get_item()


def test_a_stop_that_takes_too_long_says_so_and_can_be_repeated() -> None:
    gate, entered = threading.Event(), threading.Event()

    def wait(item: int) -> int:
        entered.set()
        assert gate.wait(LIMIT_S)
        return item

    pipeline = PipelineBuilder().add_source([1]).pipe(wait).add_sink(1).build(num_threads=1)
    pipeline.start()
    assert entered.wait(LIMIT_S)
    with pytest.raises(PipelineTimeout, match="has not stopped within 0.05 s: an operation or the source has not returned"):
        pipeline.stop(timeout=SHORT_S)
    gate.set()
    pipeline.stop(timeout=LIMIT_S)


def test_a_pipeline_that_is_dropped_lets_go_of_everything() -> None:
    gone = threading.Event()

    class Marker:
        def __del__(self) -> None:
            gone.set()

        def __call__(self, item: int) -> int:
            return item

    pipeline: Pipeline[int] = PipelineBuilder().add_source(range(1_000_000)).pipe(Marker()).add_sink(1).build(num_threads=1)
    assert pipeline.get_item(timeout=LIMIT_S) == 0
    del pipeline
    gc.collect()
    assert gone.wait(LIMIT_S)


def test_ctrl_c_ends_a_wait_and_the_program() -> None:
    program = run_python(
        """
        import os, signal, sys, threading
        from spdl_cluster.pipeline import PipelineBuilder

        # Python leaves the signal ignored where a shell started the tests in the background.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        is_about_to_wait, gate = threading.Event(), threading.Event()
        def wait(item):
            is_about_to_wait.wait()
            print("waiting", flush=True)
            gate.wait()
        pipeline = PipelineBuilder().add_source([1]).pipe(wait).add_sink(1).build(num_threads=1)
        try:
            with pipeline.auto_stop():
                try:
                    is_about_to_wait.set()
                    pipeline.get_item()
                except KeyboardInterrupt:
                    print("interrupted", flush=True)
                    gate.set()
                    raise
        except KeyboardInterrupt:
            print("stopped", flush=True)
        """
    )
    assert program.stdout is not None
    assert program.stdout.readline() == "waiting\n"
    program.send_signal(signal.SIGINT)
    output, errors = program.communicate(timeout=LIMIT_S)
    assert (output, program.returncode) == ("interrupted\nstopped\n", 0), errors


def test_a_program_that_forgets_its_pipeline_ends() -> None:
    program = run_python(
        """
        import itertools
        from spdl_cluster.pipeline import PipelineBuilder

        async def same(item):
            return item
        pipeline = PipelineBuilder().add_source(itertools.count()).pipe(same).pipe(str).add_sink(1).build(num_threads=2)
        print(pipeline.get_item())
        """
    )
    output, errors = program.communicate(timeout=LIMIT_S)
    assert (output, errors, program.returncode) == ("0\n", "", 0)


def test_what_cannot_be_built_says_why() -> None:
    cases: list[tuple[Callable[[], object], str]] = [
        (lambda: PipelineBuilder().add_sink(1).build(num_threads=1), "has no source"),
        (lambda: PipelineBuilder().add_source([1]).build(num_threads=1), "has no sink"),
        (lambda: PipelineBuilder().add_source([1]).add_source([2]), "has a source already"),
        (lambda: PipelineBuilder().add_source(5), "can be iterated neither"),  # type: ignore[arg-type]
        (lambda: PipelineBuilder().add_source([1]).pipe(double, concurrency=0), "`concurrency` is 0"),
        (lambda: PipelineBuilder().add_source([1]).aggregate(0), "`num_items` is 0"),
        (lambda: PipelineBuilder().add_source([1]).pipe(5), "neither be called nor looked up"),  # type: ignore[call-overload]
    ]
    for build, problem in cases:
        with pytest.raises(spdl_cluster.SettingError, match=problem):
            build()
    pipeline = PipelineBuilder().add_source([1]).add_sink(1).build(num_threads=1)
    with pytest.raises(spdl_cluster.UsageError, match="is not a loader"):
        pipeline.state_dict()
    with pipeline.auto_stop():
        with pytest.raises(spdl_cluster.UsageError, match="has started already"):
            pipeline.start()


def test_a_forked_child_is_told_that_the_pipeline_is_its_parents() -> None:
    pipeline = PipelineBuilder().add_source(range(3)).pipe(double).add_sink(1).build(num_threads=1)
    with pipeline.auto_stop(timeout=LIMIT_S):
        assert pipeline.get_item(timeout=LIMIT_S) == 0
        child = os.fork()
        if child == 0:
            try:
                pipeline.get_item(timeout=LIMIT_S)
            except spdl_cluster.ForkedError:
                os._exit(7)
            os._exit(1)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 7
        assert pipeline.get_item(timeout=LIMIT_S) == 2


def ids(batch: spdl_cluster.Batch) -> list[int]:
    return [int(number) for number in batch.ids]


def test_a_loader_is_a_source_whose_state_is_what_was_taken(job: MakeJob) -> None:
    with spdl_cluster.local(job(epochs=1), slots=8) as loader:
        whole = [number for batch in loader for number in ids(batch)]
    seen: list[int] = []
    with spdl_cluster.local(job(epochs=1), slots=12) as loader:
        builder = PipelineBuilder().add_source(loader).pipe(ids, concurrency=3).aggregate(2).add_sink(1)
        pipeline = builder.build(num_threads=3)
        fresh = pipeline.state_dict()
        with pipeline.auto_stop(timeout=LIMIT_S):
            assert pipeline.state_dict() == fresh
            for _ in range(2):
                seen += sum(pipeline.get_item(timeout=LIMIT_S), [])
            state = pipeline.state_dict()
        assert pipeline.state_dict() == state
    assert seen == whole[: len(seen)] and len(seen) == 4 * 24
    with spdl_cluster.local(job(epochs=1), slots=8, state=state) as loader:
        rest = PipelineBuilder().add_source(loader).pipe(ids).disaggregate().add_sink(1).build(num_threads=1)
        with rest.auto_stop(timeout=LIMIT_S):
            seen += rest.get_iterator(timeout=LIMIT_S)
            assert rest.state_dict() == loader.state_dict()
    assert seen == whole


def test_the_state_waits_for_a_batch_that_was_overtaken_or_failed(job: MakeJob) -> None:
    gate = threading.Event()
    first: list[int] = []

    def overtaken(batch: spdl_cluster.Batch) -> list[int]:
        if batch.position == (0, 0):
            assert gate.wait(LIMIT_S)
        return ids(batch)

    with spdl_cluster.local(job(epochs=1), slots=12) as loader:
        builder = PipelineBuilder().add_source(loader).pipe(overtaken, concurrency=2, output_order="completion")
        pipeline = builder.add_sink(1).build(num_threads=2)
        with pipeline.auto_stop(timeout=LIMIT_S):
            start = pipeline.state_dict()
            pipeline.get_item(timeout=LIMIT_S)
            pipeline.get_item(timeout=LIMIT_S)
            assert pipeline.state_dict() == start
            gate.set()
            for first in pipeline.get_iterator(timeout=LIMIT_S):
                pass
            assert first and pipeline.state_dict() == loader.state_dict()


def test_the_clusters_loader_is_a_source(cluster: Cluster, job: MakeJob) -> None:
    name = cluster.submit(job(name="pipeline", epochs=1))
    with cluster.connect(0, 1, job=name) as loader:
        pipeline = PipelineBuilder().add_source(loader).pipe(ids, concurrency=2).add_sink(1).build(num_threads=2)
        with pipeline.auto_stop(timeout=LIMIT_S):
            found = [number for batch in pipeline.get_iterator(timeout=LIMIT_S) for number in batch]
            assert pipeline.state_dict() == loader.state_dict()
        assert len(found) == len(set(found)) == len(loader) * 24


@pytest.mark.skipif(sys.version_info < (3, 14), reason="this Python has no pool of subinterpreters")
def test_operations_run_in_subinterpreters() -> None:
    from concurrent.futures import InterpreterPoolExecutor  # type: ignore[attr-defined, unused-ignore]

    with InterpreterPoolExecutor(2) as executor:
        found = taken(PipelineBuilder().add_source(range(-3, 3)).pipe(abs, executor=executor, concurrency=2))
    assert sorted(found) == [0, 1, 1, 2, 2, 3]
