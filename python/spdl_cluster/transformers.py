"""What Hugging Face's `Trainer`, and TRL's on top of it, need of a loader: a callback that has it go on where a checkpoint was made, and of a
job with `sequence` the model's arguments, and the number of labels of a step."""

from __future__ import annotations

from itertools import islice
from typing import Any

import torch

try:
    import transformers
except ImportError as error:
    raise ImportError("`spdl_cluster.transformers` needs transformers, which cannot be imported: `pip install transformers`") from error

from .batch import Batch
from .errors import SettingError
from .loader import Loader
from .packed import check_labels


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


def collate(batch: Batch) -> dict[str, Any]:
    """Returns the arguments of a causal model for a batch of sequences, of a job with `sequence` whose labels have `shifted = false`: those
    that `DataCollatorWithFlattening` returns, with a row for each sequence.

    `input_ids`, `labels` and `position_ids` are int64, `[rows, seq_len]`, and copies. Where documents end, kernels of attention know by
    `cu_seq_lens_q` and `_k` (int32) with `max_length_q` and `_k` (Python's numbers), models with a state by `seq_idx` (int32), and all others
    by `position_ids`, as there are no `attention_mask` and no cache.

    Raises `SettingError` if the job lacks a column, or, of a batch on the host, if its labels are shifted.
    """
    [micro] = batch.packed()
    if not micro.labels.is_cuda:
        check_labels(micro, "a model of transformers", shifted=False)
    # Copies: a trainer keeps all batches of a step.
    places = {"input_ids": micro.tokens, "labels": micro.labels, "position_ids": micro.positions}
    given = {name: column.to(torch.int64, copy=True) for name, column in places.items()}
    bounds = {"cu_seq_lens_q": micro.cu_seqlens, "cu_seq_lens_k": micro.cu_seqlens, "max_length_q": micro.max_seqlen, "max_length_k": micro.max_seqlen}
    return {**given, **bounds, "seq_idx": micro.segment_ids, "use_cache": False}


class PackedTrainer:
    """Has a `Trainer`, or one of TRL, train on sequences: `class OurTrainer(PackedTrainer, Trainer)`, whose `get_train_dataloader` returns a
    loader.

    The number of labels that the loss of a step is divided by is the plan's, `batch.global_loss_tokens`: no rank asks another, and none
    waits for its device.
    """

    def get_batch_samples(self: Any, epoch_iterator: Any, num_batches: int, device: Any) -> tuple[list[Any], Any]:
        """Returns the model's arguments for each batch of a step, and the number of labels of the step on all ranks."""
        batches = list(islice(epoch_iterator, num_batches))
        for batch in batches:
            if not isinstance(batch, Batch):
                raise SettingError(f"`PackedTrainer` takes batches of a loader, and this one is a `{type(batch).__name__}`", "have `get_train_dataloader` return the loader")
        labels = None
        if batches and (self.model_accepts_loss_kwargs or self.compute_loss_func is not None):
            labels = torch.tensor(max(1, sum(batch.global_loss_tokens for batch in batches)), device=device)
            if not self.args.average_tokens_across_devices:
                # Gradients are averaged over the ranks, and the loss is not multiplied by their number.
                labels = labels / self.args.world_size
        return [collate(batch) for batch in batches], labels

    def prediction_step(self, model: Any, inputs: Any, *arguments: Any, **others: Any) -> Any:
        """Evaluates a batch, of a loader or of a dataset."""
        given = collate(inputs) if isinstance(inputs, Batch) else inputs
        return super().prediction_step(model, given, *arguments, **others)  # type: ignore[misc]
