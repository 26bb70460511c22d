"""An asyncio event loop on a thread of its own, for the asynchronous operations and sources of a pipeline."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from typing import Any

from ._native import LoopTasks, Reply


class EventLoop:
    """A running event loop. Its thread ends with `stop`, which cancels what runs on it."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        #: Tasks of the pipeline's engine that the loop's thread runs.
        self.tasks = LoopTasks()
        self._loop.add_reader(self.tasks.fileno(), self.tasks.run)
        self._tasks: set[asyncio.Task[Any]] = set()
        #: What is started before it is set is cancelled by `stop`; nothing is started after that.
        self._is_stopping = False
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="spdl-asyncio", daemon=True)
        self._thread.start()

    def answer(self, op: Callable[[Any], Awaitable[Any]], item: Any, reply: Reply) -> None:
        """Awaits `op(item)` on the loop and gives its result to `reply`; returns at once. `tasks` call it, on the loop's thread."""
        if self._is_stopping:
            raise _stopping()
        self._begin(_answer(op, item, reply))

    def generate(self, op: Callable[[Any], AsyncIterable[Any]], item: Any) -> Iterator[Any]:
        """Iterates over an asynchronous generator; waits on the calling thread."""
        return self.iterate(op(item))

    def iterate(self, items: AsyncIterable[Any]) -> Iterator[Any]:
        """Iterates over an asynchronous iterable; waits on the calling thread."""
        iterator = aiter(items)
        try:
            while True:
                yield self._wait(_next(iterator))
        except StopAsyncIteration:
            return
        finally:
            close = getattr(iterator, "aclose", None)
            if close is not None:
                # When the loop ends, it closes what is open.
                with contextlib.suppress(asyncio.CancelledError):
                    self._wait(close())

    def stop(self, join: bool = True) -> None:
        """Cancels all tasks and ends the loop; with `join`, waits for its thread."""
        with self._lock:
            if not self._is_stopping:
                self._is_stopping = True
                self._loop.call_soon_threadsafe(self._begin, self._wind_up())
        if join:
            self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self.tasks.close()
        self._loop.close()

    def _start(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        """Starts a coroutine; raises `CancelledError` if the loop is stopping."""
        with self._lock:
            if not self._is_stopping:
                self._loop.call_soon_threadsafe(self._begin, coroutine)
                return
        coroutine.close()
        raise _stopping()

    def _begin(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        task = self._loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _wind_up(self) -> None:
        own = asyncio.current_task()
        while others := [task for task in self._tasks if task is not own]:
            for task in others:
                task.cancel()
            await asyncio.wait(others)
        await self._loop.shutdown_asyncgens()
        self._loop.stop()

    def _wait(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Runs a coroutine on the loop while the calling thread waits."""
        result = _Result()
        try:
            self._start(result.take(coroutine))
        except asyncio.CancelledError:
            coroutine.close()
            raise
        return result.get()


class _Result:
    """The outcome of a coroutine, for a thread that waits for it."""

    def __init__(self) -> None:
        self._is_there = threading.Event()
        self._value: Any = None
        self._error: BaseException | None = None

    async def take(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        try:
            self._value = await coroutine
        except BaseException as error:
            self._error = error
            if isinstance(error, asyncio.CancelledError):
                raise
        finally:
            self._is_there.set()

    def get(self) -> Any:
        self._is_there.wait()
        if self._error is not None:
            raise self._error
        return self._value


def _stopping() -> asyncio.CancelledError:
    return asyncio.CancelledError("the pipeline is stopping")


async def _next(iterator: AsyncIterator[Any]) -> Any:
    return await anext(iterator)


async def _answer(op: Callable[[Any], Awaitable[Any]], item: Any, reply: Reply) -> None:
    try:
        reply.done(await op(item))
    except BaseException as error:
        reply.failed(error)
        if isinstance(error, asyncio.CancelledError):
            raise
