"""The batches of a rank as Ray Data's iterators give them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ..batch import Batch
from ..errors import SettingError
from ..loader import Loader


class DatasetShard:
    """What `ray.train.get_dataset_shard` returns for Ray Data, here for a job: each call of `iter_torch_batches` gives an epoch of this rank's
    batches. Made by `RayCluster.get_dataset_shard`.

    It can be resumed in the middle of an epoch: `state_dict()` belongs into the checkpoint of each `ray.train.report`.
    """

    def __init__(self, make: Callable[..., Loader], world: Callable[[], int]) -> None:
        """Not for callers. `make` returns the loader, with more settings, and `world` the number of its ranks."""
        self._make, self._world = make, world
        self._loader: Loader | None = None
        self._batch_size: int | None = None
        self._state: Mapping[str, Any] | str | bytes | None = None

    def iter_torch_batches(
        self,
        *,
        batch_size: int | None = None,
        device: Any = "auto",
        dtypes: Any = None,
        collate_fn: Callable[[Batch], Any] | None = None,
    ) -> Iterator[Any]:
        """Returns the batches to the end of the epoch, each a `Batch`: a dict of torch tensors by column.

        batch_size: samples of a batch of this rank. Default: the job's `global_batch` over all ranks. The first call decides it.
        device: of the tensors. Default: that of Ray Train's worker, or the CPU. The first call decides it.
        dtypes: a type of torch, or a dict of types by column, to which tensors are converted. Default: as in the job.
        collate_fn: called with each batch; what it returns is given in its place.
        """
        loader = self._open(batch_size, device)
        if batch_size is not None and batch_size != self._batch_size:
            raise SettingError(f"`batch_size` is {batch_size}, and was {self._batch_size} in the call before", "make another shard for it")
        return self._batches(loader, dtypes, collate_fn)

    @property
    def loader(self) -> Loader:
        """The loader itself."""
        return self._open(None, "auto")

    def state_dict(self) -> dict[str, Any]:
        """Returns the state after the newest batch, for `load_state_dict`; about 100 bytes."""
        return self.loader.state_dict()

    def load_state_dict(self, state: Mapping[str, Any] | str | bytes) -> None:
        """Continues from a state, at any number of workers. Call it before the first batch."""
        if self._loader is None:
            self._state = state
        else:
            self._loader.load_state_dict(state)

    def close(self) -> None:
        """Closes the loader."""
        if self._loader is not None:
            self._loader.close()

    def _open(self, batch_size: int | None, device: Any) -> Loader:
        if self._loader is None:
            settings: dict[str, Any] = {"tensors": "torch", "device": _device() if device == "auto" else device}
            if self._state is not None:
                settings["state"] = self._state
            if batch_size is not None:
                settings["global_batch"] = batch_size * self._world()
            self._batch_size = batch_size
            self._loader = self._make(**settings)
        return self._loader

    def _batches(self, loader: Loader, dtypes: Any, collate: Callable[[Batch], Any] | None) -> Iterator[Any]:
        for batch in loader:
            for name in list(batch) if dtypes is not None else ():
                dtype = dtypes.get(name) if isinstance(dtypes, Mapping) else dtypes
                if dtype is not None:
                    batch[name] = batch[name].to(dtype)
            yield batch if collate is None else collate(batch)


def _device() -> Any:
    from ray.train.torch import get_device

    try:
        return get_device()
    except RuntimeError:
        return "cpu"
