"""The one place where this package reads the environment; the `SPDL_*` variables are read by the client itself."""

from __future__ import annotations

import os
import sys
from typing import Any

from ._native import count_cuda_devices
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


def device_name(device: Any) -> str:
    """`cpu` or `cuda:N` of what names a device: a text, a number, or a `torch.device`, which needs no torch to be read.

    `cuda` without a number is torch's current device where the program uses CUDA with torch already. Else it is number `LOCAL_RANK` as torchrun sets
    it, where the process sees several devices; else the first.
    """
    if device is None:
        return "cpu"
    if isinstance(device, int) and not isinstance(device, bool):
        return f"cuda:{device}"
    name = str(device)
    if name != "cuda":
        return "cpu" if name == "cpu:0" else name
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return f"cuda:{torch.cuda.current_device()}"
    local_rank = _number("LOCAL_RANK", 0)
    # Each process may have been given a device of its own (CUDA_VISIBLE_DEVICES).
    return f"cuda:{local_rank}" if local_rank and count_cuda_devices() != 1 else "cuda:0"


def _number(name: str, default: int) -> int:
    text = os.environ.get(name, "").strip()
    if not text:
        return default
    try:
        return int(text)
    except ValueError:
        raise SettingError(f"variable `{name}` is `{text}`, not a whole number") from None
