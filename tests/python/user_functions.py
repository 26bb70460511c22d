"""Functions like a user's, which jobs name in `transform`."""

from __future__ import annotations

import os
import signal
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
