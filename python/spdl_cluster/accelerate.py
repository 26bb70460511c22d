"""Tells Accelerate which loop a program is in, where that ends, and how many samples of its last batch count.

Accelerate's own dataloaders do the same. `gather_for_metrics` then leaves out what fills up the last batch, gradients that accumulate
are applied at the end of an epoch, and Hugging Face's `Trainer`, which runs on Accelerate, counts every sample once.

Accelerate gathers tensors of one size. Where the ranks of an evaluation have shares of two sizes in the short last batch, they exchange
them, so that all shares have one size and what fills them up comes last.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

from ._native import LoaderFacts, NativeBatch
from .batch import Batch, Dealt, Position, Ragged
from .errors import SettingError
from .packed import Packing

#: What a batch has of each entry beside the columns, under keys that no column has.
_ENTRY = {name: ("entry", name) for name in ("ids", "epochs", "offsets", "flags")}


def gradient_state() -> Any:
    """Returns Accelerate's record of the loops that a program is in; `None` if the program has made no `Accelerator`."""
    state = sys.modules.get("accelerate.state")
    return state.GradientState() if state is not None and state.is_initialized() else None


def is_uneven(facts: LoaderFacts, world: int) -> bool:
    """Returns whether ranks have shares of two sizes in the short last batch, or some of them none."""
    return facts.epoch_end == "partial" and facts.samples % facts.global_batch % world != 0


def check(facts: LoaderFacts, world: int) -> None:
    """Raises an error where a last batch is dealt in shares of two sizes, and the ranks cannot exchange them: Accelerate would wait for
    ever or fail at the end of the loop."""
    if is_uneven(facts, world) and not (facts.is_evaluation and _ranks_of_torch() == world):
        raise SettingError(
            f"the last batch of job `{facts.job}` has {facts.samples % facts.global_batch} samples, of which {world} ranks get shares of two sizes, and "
            "Accelerate gathers tensors of one size",
            'set `epoch_end = "pad"` in the job: the last batch is filled up with the first samples, and `gather_for_metrics` leaves them out',
        )


def _ranks_of_torch() -> int:
    """Returns the number of ranks in torch's process group, 0 without one."""
    import torch.distributed as distributed

    return distributed.get_world_size() if distributed.is_available() and distributed.is_initialized() else 0


def remainder(facts: LoaderFacts, offset: int) -> int:
    """Returns what Accelerate calls the remainder of a batch at this offset: the number of samples that count among what is gathered of
    all ranks, where the others come last; 0 if all count, and -1 if they are not the last."""
    left = facts.samples - offset
    return 0 if left >= facts.global_batch else left if facts.is_evaluation else -1


@dataclass(frozen=True)
class _Rows:
    """The samples of a column, on the host."""

    rows: list[Any]
    is_ragged: bool


def deal_evenly(batch: Batch | None, facts: LoaderFacts, rank: int, world: int, device: str, next_position: Position) -> Batch:
    """Returns this rank's share of the last batch, as large as those of the others: the samples of all ranks in their order, and after them
    the last one again, which is marked as padding. All ranks call it at once.

    batch: the rank's share as the loader gave it; `None` if it has none.
    """
    import torch.distributed as distributed

    own: dict[Any, _Rows] = {}
    if batch is not None:
        own = {name: _Rows(_rows(column), isinstance(column, Ragged)) for name, column in batch.items()}
        own |= {key: _Rows(_rows(getattr(batch, name)), False) for name, key in _ENTRY.items()}
    gathered: list[Any] = [None] * world
    distributed.all_gather_object(gathered, (rank, own))
    shares = [share for _, share in sorted(gathered, key=lambda part: part[0]) if share]
    samples = facts.samples % facts.global_batch
    size = -(-samples // world)
    first = rank * size
    dealt: dict[Any, list[Any]] = {}
    for name in shares[0]:
        rows = [row for share in shares for row in share[name].rows]
        dealt[name] = [rows[min(entry, samples - 1)] for entry in range(size * world)]
    mine = {name: rows[first : first + size] for name, rows in dealt.items()}
    columns = {name: _column(rows, shares[0][name].is_ragged, device) for name, rows in mine.items()}
    entries = {name: columns.pop(key) for name, key in _ENTRY.items()}
    entries["flags"][max(0, samples - first) :] |= NativeBatch.flag_bits()["padding"]
    position = Position(next_position.epoch - 1, facts.samples - samples)
    packing = Packing.of(facts)
    # With those that come again, as each rank learns them.
    learned = packing.loss_tokens(dealt)
    loss_tokens = None if learned is None else sum(learned)
    made = Dealt(position, next_position, size, **entries, counted=packing.count(mine), lengths=packing.lengths(dealt), global_loss_tokens=loss_tokens)
    return made.batch(columns, device, packing)


def _rows(column: Any) -> list[Any]:
    """Returns copies of the samples of a column on the host. A copy, since a view would take all of its memory along."""
    return [row.cpu().clone() for row in column]


def _column(rows: list[Any], is_ragged: bool, device: str) -> Any:
    """Makes a column of samples, on the device of the loader."""
    import torch

    if not is_ragged:
        return torch.stack(rows).to(device)
    offsets = torch.tensor([0, *(len(row) for row in rows)]).cumsum(0)
    return Ragged(torch.cat(rows).to(device), offsets.to(device))
