"""The one place where this package reads the environment; the `SPDL_*` variables are read by the client itself."""

from __future__ import annotations

import os

from .errors import SettingError


def rank_and_world(rank: int | None, world: int | None) -> tuple[int, int]:
    """Rank and world as given, or from `RANK` and `WORLD_SIZE` as torchrun sets them, or 0 of 1."""
    rank = _number("RANK", 0) if rank is None else rank
    world = _number("WORLD_SIZE", 1) if world is None else world
    if not 0 <= rank < world:
        raise SettingError(f"rank {rank} is not below world {world}", "ranks are 0 to world - 1")
    return rank, world


def local_world() -> int:
    """Ranks on this node, from `LOCAL_WORLD_SIZE` as torchrun sets it, or 1."""
    return max(1, _number("LOCAL_WORLD_SIZE", 1))


def _number(name: str, default: int) -> int:
    text = os.environ.get(name, "").strip()
    if not text:
        return default
    try:
        return int(text)
    except ValueError:
        raise SettingError(f"variable `{name}` is `{text}`, not a whole number") from None
