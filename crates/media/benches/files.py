#!/usr/bin/env python3
"""Measures `soundfile` as `files.rs` measures this crate: the least CPU time of several rounds, for whole files and for two seconds of
their middle. Needs soundfile.

usage: files.py FILE...
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import soundfile

ROUNDS, REPEATS, PART_SECONDS = 30, 20, 2


def least(decode: Callable[[], object]) -> float:
    """Returns the least CPU time of a call, in milliseconds."""
    times = []
    for _ in range(ROUNDS):
        start = time.thread_time()
        for _ in range(REPEATS):
            decode()
        times.append((time.thread_time() - start) / REPEATS)
    return 1000 * min(times)


def main(paths: list[str]) -> None:
    for path in paths:
        info = soundfile.info(path)
        part = min(PART_SECONDS * info.samplerate, info.frames)
        start = (info.frames - part) // 2
        whole = least(lambda: soundfile.read(path, dtype="float32"))
        middle = least(lambda: soundfile.read(path, dtype="float32", start=start, frames=part))
        print(f"{path}: whole {whole:.3f} ms, {PART_SECONDS} s of it {middle:.3f} ms")


if __name__ == "__main__":
    if not sys.argv[1:]:
        sys.exit(__doc__)
    main(sys.argv[1:])
