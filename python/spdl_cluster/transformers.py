"""A callback for Hugging Face's `Trainer`, which has a loader go on where a checkpoint was made."""

from __future__ import annotations

from typing import Any

import transformers

from .errors import SettingError
from .loader import Loader


class ResumeLoader(transformers.TrainerCallback):
    """Has a `Trainer` that resumes go on with the batch after the last one that it trained on.

    For a trainer whose `get_train_dataloader` returns a loader. In the middle of an epoch it needs `ignore_data_skip=True` in the trainer's
    arguments, because the loader goes to the batch itself; `Trainer` can only skip batches of a DataLoader.
    """

    def on_train_begin(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        """Moves the loader to where the trainer's state is."""
        loader = others.get("train_dataloader")
        if not isinstance(loader, Loader):
            return
        if loader._native.facts.epoch_end == "continuous":
            raise SettingError(
                f"epochs of job `{loader.job}` differ in their steps, and `Trainer` counts as many in each",
                'set `epoch_end = "drop"` or `"pad"` in the job',
            )
        # As `Trainer` counts: the last update of an epoch may have fewer batches.
        steps = args.gradient_accumulation_steps
        epoch, update = divmod(state.global_step, max(1, -(-len(loader) // steps)))
        if update and not args.ignore_data_skip:
            raise SettingError(
                f"the checkpoint is of the middle of epoch {epoch}, and `Trainer` would skip the batches before it, which a loader does itself",
                "give `ignore_data_skip=True` to `TrainingArguments`",
            )
        loader.set_epoch(epoch)
        if update:
            loader._go_to(epoch, update * steps * loader.global_batch)
