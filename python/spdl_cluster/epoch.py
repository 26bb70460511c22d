"""A `for` over a loader: its batches up to the end of an epoch."""

from __future__ import annotations

from typing import Any, cast

from . import accelerate
from .batch import Batch, Position, of_native
from .delivery import Delivery
from .errors import UsageError


class Epoch:
    """The batches from a loader's position to the end of its epoch. After a timeout or Ctrl-C it can be used
    further."""

    __slots__ = ("_loader", "_loop", "_has_batch", "_is_over", "_accelerate", "_lacks_share", "end_of_dataloader", "remainder", "__weakref__")

    #: For Accelerate: whether the newest batch is the last one, and how many of its samples count.
    end_of_dataloader: bool
    remainder: int

    def __init__(self, loader: Delivery) -> None:
        self._loader = loader
        self._loop = 0
        self._has_batch = False
        self._is_over = False
        self._accelerate: Any = None
        #: Whether the other ranks have one more batch, of which they give this rank a part.
        self._lacks_share = False
        self.end_of_dataloader = False
        self.remainder = -1

    def __iter__(self) -> Epoch:
        return self

    def __next__(self) -> Batch:
        if self._is_over:
            raise self._end()
        loader = self._loader
        if not self._loop:
            self._loop = loader._begin()
            self._accelerate = accelerate.gradient_state()
            if self._accelerate is not None:
                accelerate.check(loader._native.facts, loader._ranks().world)
                self._accelerate._add_dataloader(self)
        elif loader._loops != self._loop and loader._begins_again:
            raise UsageError(
                "a newer `for` over this loader has begun the dataset again, so that this one has no batches any more",
                "make two loaders where two loops are to go on side by side",
            )
        if self._lacks_share:
            self._is_over = self.end_of_dataloader = True
            return self._given(self._dealt(None))
        native = loader._native.next() if self._has_batch else loader._first()
        if native is None:
            self._is_over = True
            raise self._end()
        self._has_batch = True
        self._is_over = self.end_of_dataloader = native.ends_epoch
        if self._is_over:
            loader._warn_of_masked()
        batch = of_native(native, *(loader._makers or loader._choose()))
        if self._accelerate is None or loader._repeats:
            return self._given(batch)
        facts, offset = loader._native.facts, native.position.offset
        self.remainder = accelerate.remainder(facts, offset)
        if not accelerate.is_uneven(facts, loader._ranks().world):
            return self._given(batch)
        if facts.samples - offset < facts.global_batch:
            return self._given(self._dealt(batch))
        # Its epoch is over, and the last samples of the dataset are not in it.
        self._lacks_share = self._is_over
        self._is_over = self.end_of_dataloader = False
        return self._given(batch)

    def _given(self, batch: Batch) -> Batch:
        """Returns what the loop gets: the batch, or a tuple of its columns."""
        names = self._loader._tuples
        if names is None:
            return batch
        # Who asks for tuples unpacks them, and a type checker lets a batch be unpacked.
        return cast(Batch, tuple(batch[name] for name in names))

    def _dealt(self, batch: Batch | None) -> Batch:
        """Returns this rank's share of the last batch, as large as those of the others."""
        native, (rank, world) = self._loader._native, self._loader._ranks()
        facts = native.facts
        self.remainder = facts.samples % facts.global_batch
        return accelerate.deal_evenly(batch, facts, rank, world, native.device, Position._of(native.position))

    def _end(self) -> StopIteration:
        if self._accelerate is not None:
            self._accelerate._remove_dataloader(self)
            self._accelerate = None
        return StopIteration()
