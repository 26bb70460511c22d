"""The batches of a job with `sequence` as Megatron-LM takes them, and what gives them to its trainer.

    # in pretrain_gpt.py, which is started with `--dataloader-type external --no-create-attention-mask-in-dataloader`
    train_valid_test_datasets_provider = spdl_cluster.megatron.provider(functools.partial(spdl_cluster.local, "train.toml"))
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import torch

from .errors import SettingError
from .loader import Loader
from .packed import MicroBatch, check_labels, check_lengths

if TYPE_CHECKING:
    from megatron.core.packed_seq_params import PackedSeqParams

#: What opens the loader of a rank: `connect` or `local` with a job, to which rank, world and settings are added.
Opener = Callable[..., Loader]


def batches(loader: Loader, micro_batch_size: int = 1, *, packed: bool = False) -> Iterator[dict[str, Any]]:
    """Yields the micro-batches of a loader, with the keys of those of `GPTDataset`: `tokens`, `labels` and `position_ids` (int64), and `loss_mask`
    (float32), `[micro_batch_size, seq_len]`. A loader that repeats has no end of them.

    packed: whether attention stays within documents: `cu_seqlens` has where each document begins and the last one ends (int32, `[micro_batch_size,
        most documents + 1]`, its end repeated), and `max_seqlen` (int32, `[micro_batch_size]`) the length of the longest one. Megatron 0.16
        packs with a `micro_batch_size` of 1, later ones with `--dataloader-inter-document-masking`.

    Raises `SettingError` if the job lacks a column, or if its labels are not shifted.
    """
    is_first = True
    while loader.repeat or loader.epoch < loader.epochs:
        for batch in loader:
            for micro in batch.packed(rows=micro_batch_size):
                if is_first:
                    check_labels(micro, "Megatron", shifted=True)
                    is_first = False
                yield _shaped(micro, packed)


def _shaped(micro: MicroBatch, packed: bool) -> dict[str, Any]:
    labels = micro.labels
    # Copies: a pipeline has several micro-batches under way.
    given = {"tokens": micro.tokens.to(torch.int64, copy=True), "position_ids": micro.positions.to(torch.int64, copy=True)}
    given |= {"labels": labels.clamp(min=0).long(), "loss_mask": (labels != -100).float()}
    if packed:
        rows = [[0, *accumulate(lengths)] for lengths in micro.row_lengths]
        most = max(map(len, rows))
        given["cu_seqlens"] = torch.tensor([row + row[-1:] * (most - len(row)) for row in rows], dtype=torch.int32)
        given["max_seqlen"] = torch.tensor([max(lengths) for lengths in micro.row_lengths], dtype=torch.int32)
    return given


def get_batch(data_iterator: Iterator[dict[str, Any]], device: Any = None) -> dict[str, Any]:
    """Returns the next of `batches` on a device, with what a model of Megatron-core takes beside it: `attention_mask`, which is `None`, and
    `packed_seq_params`, which is `None` unless they are packed. For loops in which each process makes its own batches."""
    batch = next(data_iterator)
    bounds = packed_seq_params(batch) if "cu_seqlens" in batch else None
    if bounds is not None:
        bounds.cu_seqlens_q = bounds.cu_seqlens_kv = bounds.cu_seqlens_q.to(device, non_blocking=True)
    given = {name: value.to(device, non_blocking=True) for name, value in batch.items()}
    return {**given, "attention_mask": None, "packed_seq_params": bounds}


def packed_seq_params(batch: dict[str, Any]) -> PackedSeqParams:
    """Returns the bounds of the documents of a packed micro-batch of one sequence, as Transformer Engine takes them. On the host, it waits for
    nothing."""
    from megatron.core.packed_seq_params import PackedSeqParams

    bounds, longest = batch["cu_seqlens"], int(batch["max_seqlen"].max())
    if len(bounds) != 1:
        raise SettingError(f"a packed micro-batch of Megatron has one sequence, and this one has {len(bounds)}", "set `micro_batch_size` to 1")
    return PackedSeqParams(qkv_format="thd", cu_seqlens_q=bounds[0], cu_seqlens_kv=bounds[0], max_seqlen_q=longest, max_seqlen_kv=longest)


def provider(train: Opener, valid: Opener | None = None, test: Opener | None = None, *, packed: bool = False) -> Callable[..., tuple[Any, Any, Any]]:
    """Returns a `train_valid_test_datasets_provider` for `pretrain`, of the loaders that these open: at their first batch, and so only where Megatron
    reads any. With `connect`, that has to be one process of each data-parallel rank, and no two stages of a pipeline.

    The training goes on after `consumed_train_samples` of Megatron's checkpoint, on any number of ranks, and has no end, as Megatron counts
    steps. Where the global batch changes, jobs of several epochs need `epoch_end = "continuous"`.

    packed: as for `batches`.
    """

    def train_valid_test_datasets_provider(train_val_test_num_samples: Any, vp_stage: int | None = None) -> tuple[Any, Any, Any]:
        from megatron.core import parallel_state
        from megatron.training import get_args

        args = get_args()
        if args.dataloader_type != "external":
            raise SettingError(f"`--dataloader-type` is `{args.dataloader_type}`, and a loader brings its own batches", "start with `--dataloader-type external`")
        place = {"rank": parallel_state.get_data_parallel_rank(), "world": parallel_state.get_data_parallel_world_size()}

        def opened(opener: Opener, consumed: int) -> Iterator[dict[str, Any]]:
            loader = opener(**place, global_batch=args.global_batch_size, tensors="torch", repeat=True)
            facts = loader._native.facts
            check_lengths(facts, "Megatron", args.seq_length)
            if consumed:
                loader._go_to(*divmod(consumed, facts.samples if facts.epoch_end == "continuous" else facts.steps * args.global_batch_size))
            yield from batches(loader, args.micro_batch_size, packed=packed)

        return opened(train, args.consumed_train_samples), valid and opened(valid, 0), test and opened(test, 0)

    return train_valid_test_datasets_provider
