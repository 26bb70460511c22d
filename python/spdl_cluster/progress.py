"""The progress of work on a dataset: a bar of `tqdm` in terminals and notebooks, or lines on standard error."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

#: What is called with shards, records, bytes, all records and all bytes, of which those that are not known are `None`.
Show = Callable[[int, int, int, "int | None", "int | None"], object]

#: Time between two lines.
_LINE_S = 5.0


@contextlib.contextmanager
def shown(label: str, is_wanted: bool) -> Iterator[Show | None]:
    """Gives what shows the progress of some work; `None` if it is not wanted."""
    if not is_wanted:
        yield None
        return
    try:
        from tqdm.auto import tqdm
    except ImportError:
        yield _Lines(label).show
        return
    bar = tqdm(desc=label, unit_scale=True)
    try:
        yield lambda *progress: _move(bar, *progress)
    finally:
        bar.close()


def _move(bar: Any, _shards: int, records: int, size: int, all_records: int | None, all_bytes: int | None) -> None:
    is_by_bytes = all_records is None and all_bytes is not None
    bar.unit = "B" if is_by_bytes else " records"
    bar.total = all_bytes if is_by_bytes else all_records
    bar.n = size if is_by_bytes else records
    bar.refresh()


class _Lines:
    """A line now and then."""

    def __init__(self, label: str) -> None:
        self._label, self._last, self._is_over = label, time.monotonic(), False

    def show(self, _shards: int, records: int, size: int, all_records: int | None, all_bytes: int | None) -> None:
        is_by_bytes = all_records is None and all_bytes is not None
        done, total = (size, all_bytes) if is_by_bytes else (records, all_records)
        is_end = total is not None and done >= total
        is_due = is_end or time.monotonic() - self._last >= _LINE_S
        if self._is_over or not is_due:
            return
        self._last, self._is_over = time.monotonic(), is_end
        share = f" ({100 * done // total} %)" if total else ""
        what = "bytes" if is_by_bytes else "records"
        # Work does not fail because nobody reads how far it is.
        with contextlib.suppress(OSError):
            print(f"{self._label}: {done} {what}{share}", file=sys.stderr, flush=True)
