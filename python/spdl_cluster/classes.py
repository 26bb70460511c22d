"""Compares the lists of classes of a process's loaders, so that a number means one class in all of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ._native import NativeLoader
from .errors import SettingError, SpdlError

#: The most names of a list that an error shows.
_SHOWN = 10


def check(loader: NativeLoader, others: Iterable[NativeLoader]) -> None:
    """Raises an error if a class number means one class in `loader` and another one in one of the others. A list that is the beginning of
    the other is fine: the numbers that both have mean the same."""
    if not loader.has_class_numbers or (names := loader.classes) is None:
        return
    for other in others:
        if not other.has_class_numbers:
            continue
        try:
            theirs = other.classes
        except SpdlError:
            # It says so when it is used.
            continue
        if theirs is not None:
            _compare(loader.job_name, names, other.job_name, theirs)


def _compare(job: str, names: Sequence[str], other: str, theirs: Sequence[str]) -> None:
    number = next((number for number, (ours, name) in enumerate(zip(names, theirs)) if ours != name), None)
    if number is None:
        return
    raise SettingError(
        f"class {number} is `{names[number]}` for job `{job}` and `{theirs[number]}` for job `{other}`: the classes of one are {_listed(names, number)}; "
        f"those of the other {_listed(theirs, number)}",
        "make the datasets with one list of classes: `classes_from=` (`--classes-from`) takes that of another dataset; a loader whose classes are of "
        "another task is made with `own_classes=True`",
    )


def _listed(names: Sequence[str], number: int) -> str:
    """Returns the names round number `number`, and how many there are."""
    first = max(0, min(number - _SHOWN // 2, len(names) - _SHOWN))
    shown = ", ".join(f"{first + at} `{name}`" for at, name in enumerate(names[first : first + _SHOWN]))
    return shown if len(names) <= _SHOWN else f"{shown} (of {len(names)})"
