"""Tells Accelerate which loop a program is in, where that ends, and how many samples of its last batch count.

Accelerate's own dataloaders do the same. `gather_for_metrics` then leaves out what fills up the last batch, gradients that accumulate
are applied at the end of an epoch, and Hugging Face's `Trainer`, which runs on Accelerate, counts every sample once.
"""

from __future__ import annotations

import sys
from typing import Any

from ._native import LoaderFacts
from .errors import SettingError


def gradient_state() -> Any:
    """Returns Accelerate's record of the loops that a program is in; `None` if the program has made no `Accelerator`."""
    state = sys.modules.get("accelerate.state")
    return state.GradientState() if state is not None and state.is_initialized() else None


def check(facts: LoaderFacts, world: int) -> None:
    """Raises an error where a last batch is dealt in shares of two sizes: Accelerate gathers tensors of one size, and would wait for
    ever or fail at the end of the loop."""
    last = facts.samples % facts.global_batch
    if facts.epoch_end == "partial" and last % world:
        raise SettingError(
            f"the last batch of job `{facts.job}` has {last} samples, of which {world} ranks get shares of two sizes, and Accelerate gathers "
            "tensors of one size",
            'set `epoch_end = "pad"` in the job: the last batch is filled up with the first samples, and `gather_for_metrics` leaves them out',
        )


def remainder(facts: LoaderFacts, offset: int) -> int:
    """Returns what Accelerate calls the remainder of a batch at this offset: the number of samples that count among what is gathered of
    all ranks, where the others come last; 0 if all count, and -1 if they are not the last."""
    left = facts.samples - offset
    return 0 if left >= facts.global_batch else left if facts.is_evaluation else -1
