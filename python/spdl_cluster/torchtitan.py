"""A dataloader for torchtitan: the batches of a job with `sequence`, as its trainer takes them.

    dataloader=spdl_cluster.torchtitan.DataLoader.Config(job="train.toml")

In torchtitan 0.3, batches are `[rows, seq_len]`, and after it they are flat: the arguments that the trainer gives say which one it is.
"""

# Without `from __future__ import annotations`: torchtitan's command line reads the types of a config.

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from .batch import Batch
from .errors import SettingError
from .loader import Loader
from .opening import connect, local
from .packed import check_labels, check_lengths

try:
    try:
        from torchtitan.components.data.loader import BaseDataLoader
    except ImportError:
        from torchtitan.components.dataloader import BaseDataLoader
except ImportError as error:
    raise ImportError("`spdl_cluster.torchtitan` needs torchtitan, which cannot be imported: `pip install torchtitan`") from error


class DataLoader(BaseDataLoader):
    """The micro-batches of one data-parallel rank: `({"input", "positions"}, labels)`, int64, on the host.

    Its state is one for all ranks, so that a checkpoint goes on with any number of them. The last epoch of a job ends at the same step on all ranks.
    """

    @dataclass(kw_only=True, slots=True)
    class Config(BaseDataLoader.Config):
        """What the trainer's config, or its command line, says of the data."""

        job: str = ""
        """Path of a job file. With `cluster`, it may be the name of a job."""

        cluster: bool = False
        """Whether workers of a cluster make the batches, as under `spdl-run`, and not this process. All ranks are then data-parallel ones."""

        infinite: bool = False
        """Whether another epoch, in another order, follows the job's last one."""

    def __init__(self, config: Config, *, dp_world_size: int, dp_rank: int, **sizes: Any) -> None:
        """Not for callers: the trainer calls it."""
        #: Whether batches are flat.
        self._is_flat = "num_tokens_per_batch" in sizes
        self._seq_len: int = sizes["max_context_length" if self._is_flat else "seq_len"]
        rows, rest = divmod(sizes["num_tokens_per_batch"], self._seq_len) if self._is_flat else (sizes["local_batch_size"], 0)
        if rest or not rows:
            raise SettingError(
                f"a batch of torchtitan has {sizes['num_tokens_per_batch']} tokens, which are no number of sequences of `max_context_length`, {self._seq_len}",
                "give the batch a multiple of it, and the job a `seq_len` of as much",
            )
        # A batch of the loader is one of the trainer on each rank, so that a state is exact after any of them.
        settings: dict[str, Any] = {"global_batch": rows * dp_world_size, "tensors": "torch", "repeat": config.infinite}
        opened = self._connect if config.cluster else local
        self.loader: Loader = opened(config.job, dp_rank, dp_world_size, **settings)
        #: The state before the first batch.
        self._start: str | None = ""

    @staticmethod
    def _connect(job: str, rank: int, world: int, **settings: Any) -> Loader:
        ranks = torch.distributed.get_world_size() if torch.distributed.is_initialized() else world
        if ranks != world:
            raise SettingError(
                f"of {ranks} ranks, {world} are data-parallel, and a cluster serves each of these to one process",
                "leave `cluster` out: each process then makes its batches, those of a model-parallel group the same",
            )
        return connect(rank, world, job=job or None, **settings)

    def __iter__(self) -> Iterator[tuple[dict[str, torch.Tensor], torch.Tensor]]:
        check_lengths(self.loader._native.facts, "torchtitan", self._seq_len)
        while self.loader.repeat or self.loader.epoch < self.loader.epochs:
            for batch in self.loader:
                yield self._shaped(batch)

    def _shaped(self, batch: Batch) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
        [micro] = batch.packed()
        if self._start is not None:
            check_labels(micro, "torchtitan", shifted=True)
            self._start = None
        # Copies: the trainer keeps all micro-batches of a step.
        columns = [column.to(torch.int64, copy=True) for column in (micro.tokens, micro.positions, micro.labels)]
        tokens, positions, labels = [column.flatten() for column in columns] if self._is_flat else columns
        return {"input": tokens, "positions": positions}, labels

    def state_dict(self) -> dict[str, Any]:
        """Returns where the next batch begins: the same on all ranks."""
        # Checkpoints ask for it before they load, when the loader must not be opened yet.
        return {"spdl_cluster": json.dumps(self.loader.state_dict()) if self._start is None else self._start}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Continues from a state, with any number of ranks; an empty one is the beginning."""
        if state := state_dict.get("spdl_cluster"):
            self.loader.load_state_dict(state)
            self._start = state

    def close(self) -> None:
        """Closes the loader."""
        self.loader.close()
