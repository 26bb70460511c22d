"""Functions like a user's, which jobs name in `transform`."""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import sys
import time
from typing import Any

import numpy
from numpy.typing import NDArray

Image = NDArray[numpy.uint8]

constant = 7


def jitter(image: Image, rng: numpy.random.Generator) -> Image:
    """Adds noise to a picture, in place."""
    image //= 2
    image += rng.integers(0, 100, image.shape, dtype=numpy.uint8)
    return image


def means(image: Image, rng: numpy.random.Generator) -> NDArray[numpy.float32]:
    """Returns the mean of each channel."""
    return numpy.asarray(image.mean(axis=(0, 1)), numpy.float32)


def draws(text: bytes, rng: numpy.random.Generator) -> NDArray[numpy.int64]:
    """Returns the generator's first three numbers."""
    assert isinstance(text, bytes)
    return rng.integers(0, 1 << 60, 3)


def twice(text: bytes, rng: numpy.random.Generator) -> bytes:
    """Returns bytes of another length."""
    return text + text


def turned_over(values: NDArray[Any], rng: numpy.random.Generator) -> NDArray[Any]:
    """Returns an array with its rows in the opposite order."""
    return values[::-1]


def total(rows: NDArray[Any], rng: numpy.random.Generator) -> NDArray[Any]:
    """Returns the sum of an array."""
    rows += 0  # The array is the function's own.
    return numpy.asarray(rows.sum(), rows.dtype)


def padded(tokens: NDArray[Any], rng: numpy.random.Generator) -> NDArray[Any]:
    """Returns four tokens."""
    return numpy.pad(tokens, (0, 4 - len(tokens)))


def shifted(label: numpy.int64, rng: numpy.random.Generator) -> int:
    """Returns a number."""
    return int(label) + 100


def process(label: numpy.int64, rng: numpy.random.Generator) -> int:
    """Returns the id of the process that calls it."""
    return os.getpid()


def shifted_by(label: numpy.int64, rng: numpy.random.Generator, by: int, scale: float = 1.0) -> int:
    """Returns a number that depends on arguments of the job."""
    return int(scale * label) + by


def described(record: dict[str, Any], rng: numpy.random.Generator) -> dict[str, Any] | None:
    """Returns columns of several kinds from a picture as it is stored, its class, and columns that are decoded."""
    assert list(record) == ["jpg", "cls", "image", "label"]
    if record["label"] == 3:
        return None
    label = int(record["cls"])
    record["image"] //= 2
    return {
        "size": len(record["jpg"]),
        "image": record["image"],
        "rows": numpy.full((label % 4, 2), label, numpy.int16),
        "text": record["cls"] * 2,
        "draw": rng.random(),
    }


def swapped(record: dict[str, Any], rng: numpy.random.Generator) -> dict[str, Any]:
    """Returns what it gets under the other names."""
    return {"a": record["b"], "b": record["a"]}


def same(record: dict[str, Any], rng: numpy.random.Generator) -> dict[str, Any]:
    """Returns the labels and the boxes that it gets."""
    return {name: record[name] for name in ("labels", "boxes")}


def name_facts(record: dict[str, Any], rng: numpy.random.Generator) -> dict[str, Any]:
    """Returns what it finds in the name of a sample's record."""
    return {"length": len(record["__key__"]), "last": record["__shard__"][-1]}


class Wrong:
    """Its objects return what no job declares."""

    def __init__(self, how: str) -> None:
        self.how = how

    def __call__(self, record: dict[str, Any], rng: numpy.random.Generator) -> Any:
        if record["cls"] != b"3":
            return {"number": 1}
        results: dict[str, Any] = {
            "none": None,
            "number": 7,
            "lacks": {},
            "more": {"number": 1, "other": 2},
            "type": {"number": numpy.float32(1.5)},
            "missing value": {"number": None},
        }
        return results[self.how]


class Shift:
    """Its objects return a number that depends on arguments of the job."""

    made = 0

    def __init__(self, by: int = 1, words: tuple[str, ...] = ()) -> None:
        if by < 0:
            raise ValueError(f"{by} is negative")
        self.by = by + sum(map(len, words))
        type(self).made += 1

    def __call__(self, label: numpy.int64, rng: numpy.random.Generator) -> int:
        if label == 3 and self.by == 13:
            raise ValueError("three and thirteen")
        return int(label) + self.by


class Counted(Shift):
    """Its objects return how many of them their process has made."""

    made = 0

    def __call__(self, label: numpy.int64, rng: numpy.random.Generator) -> int:
        return type(self).made


class Silent:
    """Its objects cannot be called."""


class Picky:
    """Functions that fail for a class."""

    @staticmethod
    def raises(label: numpy.int64, rng: numpy.random.Generator) -> numpy.int64:
        if label == 3:
            raise ValueError(f"class {label} is not\nliked")
        return label

    @staticmethod
    def one(label: numpy.int64, rng: numpy.random.Generator) -> numpy.int64:
        # Fails for about one sample in forty, the same ones in each run.
        if rng.random() < 0.025:
            raise ValueError("one of forty is not liked")
        return label

    @staticmethod
    def leaves(label: numpy.int64, rng: numpy.random.Generator) -> numpy.int64:
        if label == 3:
            raise SystemExit(4)
        return label

    @staticmethod
    def dies(label: numpy.int64, rng: numpy.random.Generator) -> numpy.int64:
        if label == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return label

    @staticmethod
    def hangs(label: numpy.int64, rng: numpy.random.Generator) -> numpy.int64:
        if label == 3:
            time.sleep(1000)
        return label

    @staticmethod
    def returns_a_list(label: numpy.int64, rng: numpy.random.Generator) -> Any:
        return [label, label] if label == 3 else label

    @staticmethod
    def returns_a_float(label: numpy.int64, rng: numpy.random.Generator) -> Any:
        return numpy.float32(label) if label == 3 else label


def dies_once(label: numpy.int64, rng: numpy.random.Generator) -> numpy.int64:
    """Kills its process, once only."""
    mark = os.environ["MARK_OF_DEATH"]
    if label == 3 and not os.path.exists(mark):
        os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
        os.kill(os.getpid(), signal.SIGKILL)
    return label


def sets_a_global(label: numpy.int64, rng: numpy.random.Generator) -> int:
    """Changes what a function of another job reads."""
    global constant
    constant = 0
    return os.getpid()


def reads_a_global(label: numpy.int64, rng: numpy.random.Generator) -> int:
    """Returns a number that depends on a global."""
    return int(label) + constant


def forks(rows: NDArray[Any], rng: numpy.random.Generator) -> NDArray[Any]:
    """Returns in the process that it forks, too, which has spoiled its argument."""
    if os.fork() == 0:
        rows[...] = 77
    return rows


def forks_and_raises(rows: NDArray[Any], rng: numpy.random.Generator) -> NDArray[Any]:
    """Raises in the process that it forks."""
    if os.fork() == 0:
        raise SystemExit(3)
    return rows


def answers_twice(label: numpy.int64, rng: numpy.random.Generator) -> numpy.int64:
    """Writes to the socket of its process, for a class."""
    for name in os.listdir("/proc/self/fd") if label == 3 else ():
        if os.path.exists(f"/proc/self/fd/{name}") and stat.S_ISSOCK(os.stat(int(name)).st_mode):
            with socket.socket(fileno=os.dup(int(name))) as other:
                other.send(b"K" + bytes(16))
    return label


started: list[int] = []


def starts(label: numpy.int64, rng: numpy.random.Generator) -> NDArray[numpy.int64]:
    """Starts a program and forks, once, and returns the ids of both processes."""
    if not started:
        started.append(subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"]).pid)
        forked = os.fork()
        if forked == 0:
            signal.pause()
        started.append(forked)
    return numpy.array(started, numpy.int64)


def prints(label: numpy.int64, rng: numpy.random.Generator) -> numpy.int64:
    """Prints a megabyte."""
    print("a" * ((1 << 20) - 1))
    return label
