"""What a loop over a loader goes by: where its batches come from, what makes them, and where it begins."""

from __future__ import annotations

import atexit
import difflib
import json
import warnings
import weakref
from typing import Any

from . import classes, environment, tensors
from ._native import NativeBatch, NativeLoader
from .batch import Position
from .errors import FinishedError, SettingError
from .packed import Packing

_open: weakref.WeakSet[Delivery] = weakref.WeakSet()


class Delivery:
    """The batches of one rank as loops get them; a `Loader` is one with what callers use."""

    def __init__(
        self,
        native: NativeLoader,
        ranks: environment.Ranks,
        kind: tensors.Kind,
        repeat: bool | None,
        has_start: bool = False,
        tuples: tuple[str, ...] | None = None,
        own_classes: bool = False,
        columns: frozenset[str] | None = None,
    ) -> None:
        """Not for callers: use `connect` or `local`."""
        self._native = native
        self._ranks = ranks
        self._kind = kind
        #: The columns that a `for` gives in place of a batch.
        self._tuples = tuples
        #: The columns that a batch has; `None` for all.
        self._columns = columns
        #: Whether its classes have nothing to do with those of other loaders.
        self._own_classes = own_classes
        #: Whether there is always another `for`; `None` if the job decides.
        self._repeat = repeat
        #: Whether the launch says where to start: then `set_epoch` does not.
        self._has_start = has_start
        #: The masked samples of the passes before.
        self._masked = 0
        #: Whether a state was loaded, and no batch came since.
        self._has_state = False
        #: The largest number of epochs that the program was told, less those without batches that it has begun since.
        self._told_epochs = 0
        #: The number of loops that have begun; on a loader that repeats, only the newest one can continue.
        self._loops = 0
        #: Whether no batch was delivered since the loader was made or loaded a state.
        self._is_fresh = True
        #: What makes batches, once there was one.
        self._makers: tuple[tensors.Tensors, Packing, frozenset[str] | None] | None = None
        #: Whether it gives its next batches again and again.
        self._repeats = False
        #: A state of the job at any position, for `state_dict(after=...)`.
        self._job_state: dict[str, Any] | None = None
        _open.add(self)

    @property
    def _begins_again(self) -> bool:
        """Whether every `for` gives the whole dataset from its first batch: it repeats, and all epochs are alike."""
        facts = self._native.facts
        return facts.is_in_order and (facts.is_evaluation if self._repeat is None else self._repeat)

    def _choose(self) -> tuple[tensors.Tensors, Packing, frozenset[str] | None]:
        facts, (rank, world) = self._native.facts, self._ranks()
        columns = [column.name for column in facts.columns]
        for setting, names in (("tuples", self._tuples or ()), ("columns", sorted(self._columns or ()))):
            for name in names:
                if name not in columns:
                    meant = difflib.get_close_matches(name, columns, 1)
                    hint = f"did you mean `{meant[0]}`?" if meant else f"its columns are {', '.join(f'`{column}`' for column in columns)}"
                    raise SettingError(f"`{setting}` has `{name}`, and job `{facts.job}` has no such column", hint)
        if not self._own_classes:
            classes.check(self._native, [other._native for other in list(_open) if other is not self and not other._own_classes])
        self._makers = tensors.choose(self._kind, self._native.device, facts.columns), Packing.of(facts), self._columns
        if facts.global_batch % world and not facts.is_in_order and rank == 0:
            fewer = facts.global_batch // world
            warnings.warn(
                f"job `{facts.job}`: {world} ranks share batches of {facts.global_batch} samples in parts of {fewer} and {fewer + 1}, and a mean over "
                f"ranks weighs their samples unevenly; `global_batch={fewer * world}` gives all ranks {fewer}",
                stacklevel=4,
            )
        self._job_state = json.loads(self._native.state())
        return self._makers

    def _warn_of_masked(self) -> None:
        """Warns at the end of a pass of an evaluation, whose samples come once each, of those that are missing in it."""
        facts = self._native.facts
        if not facts.is_in_order:
            return
        masked, before = json.loads(self._native.stats())["masked"], self._masked
        self._masked = masked
        if masked > before:
            warnings.warn(
                f"job `{facts.job}`: {masked - before} of the samples of this pass on rank {self._ranks().rank} are bad, and zeros in their place: `batch.valid` is "
                "false for them, so leave them out of what you count; the log has what is wrong with them",
                stacklevel=3,
            )

    def _begin(self) -> int:
        """Begins a `for`, at its first batch; returns the number of the loop."""
        self._ranks.check()
        self._loops += 1
        if self._begins_again and not self._is_fresh:
            self._native.go_to(0, 0)
        return self._loops

    def _first(self) -> NativeBatch | None:
        """Returns the first batch of a `for`; raises `FinishedError` if there is none, and returns `None` if there was one to be when the
        program asked for `epochs`."""
        native = self._native.next()
        if native is None and self._begins_again:
            # The loader was made from a state at its end.
            self._native.go_to(0, 0)
            native = self._native.next()
        if native is None:
            count, job, position = self._native.facts.epochs, self._native.facts.job, Position._of(self._native.position)
            if count < self._told_epochs:
                self._told_epochs -= 1
                warnings.warn(
                    f"job `{job}` has ended at {position}, in epoch {count - 1}: other weights of its sources have moved its end since "
                    "`loader.epochs` was read, and this `for` has no batches",
                    stacklevel=3,
                )
                return None
            epochs = "its epoch is" if count == 1 else f"all {count} epochs are"
            raise FinishedError(
                f"job `{job}` is finished: {epochs} delivered up to {position}, and another `for` has no batches",
                "make the loader with `epochs=10`, or with `repeat=True`, with which every `for` is one more epoch, in another order and with other crops; to "
                "go back, `loader.set_epoch(0)`",
            )
        self._is_fresh = self._has_state = False
        return native

    def _close(self) -> None:
        """Closes the loader."""
        self._native.close()
        _open.discard(self)


@atexit.register
def _close_all() -> None:
    """Closes loaders that the program left open, so that workers and the coordinator need not wait for a timeout."""
    for loader in list(_open):
        if not loader._native.is_forked:
            loader._close()
