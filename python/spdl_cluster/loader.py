"""The loader: batches for one rank of a training job."""

from __future__ import annotations

import json
import operator
import warnings
from collections.abc import Mapping
from types import TracebackType
from typing import Any, NamedTuple, NoReturn

from . import insight, misuse, sheet
from .batch import Batch, Position, of_native
from .delivery import Delivery
from .epoch import Epoch
from .errors import FinishedError, SettingError, StateError, UsageError


class Start(NamedTuple):
    """Where a loader started, and why there."""

    position: Position
    #: `"beginning"`; `"resume"`: the position that all ranks of the run's last session had reached; `"given"`: set by
    #: the launch or a state.
    how: str
    #: The reason as a sentence.
    reason: str


class Loader(Delivery):
    """The batches of one rank, in the job's order. Made by `connect` or `local`.

    A `for` over it gives one epoch, or the rest of one after a resume or a `break`; the next `for` gives the next
    epoch. After the last epoch another `for` raises `FinishedError`, unless the loader repeats: then epoch follows epoch without an
    end. A loader of an evaluation repeats, and gives the whole dataset at every `for`, even if the loop before ended early; its
    receipt then covers only the newest loop.
    Position, state and receipt cover the batches that the caller has received, never those that were only prefetched.

    It is opened at its first use; until then `load_state_dict` sets where it begins. It belongs to the process that
    made it, cannot be pickled, and may be used by several threads, one at a time.
    """

    def __iter__(self) -> Epoch:
        """Returns the batches from here to the end of the epoch."""
        return Epoch(self)

    def __len__(self) -> int:
        """Returns the batches of a whole epoch. If epochs share a batch (`epoch_end = "continuous"`), an epoch can have
        one fewer."""
        return self._native.facts.steps

    def next(self) -> Batch | None:
        """Returns the next batch, across the ends of epochs; `None` after the last epoch."""
        self._ranks.check()
        native = self._native.next()
        self._is_fresh = self._has_state = False
        return None if native is None else of_native(native, *(self._makers or self._choose()))

    @property
    def position(self) -> Position:
        """The position in the stream where the next batch begins."""
        return Position._of(self._native.position)

    @property
    def epoch(self) -> int:
        """The epoch that the next `for` begins with or continues; `epochs` when all are delivered."""
        return self._native.epoch

    @property
    def epochs(self) -> int:
        """The number of epochs that have batches. While a cluster trains, other weights of sources can move the end of a job with
        `when_done = "stop"`, and with it this number: `while loader.epoch < loader.epochs:` is right at all times. If the end comes earlier than
        this number said before, a `for` for which there is no epoch any more has no batches, and warns."""
        epochs = self._native.facts.epochs
        self._told_epochs = max(self._told_epochs, epochs)
        return epochs

    @property
    def steps_left(self) -> int:
        """The number of batches to the end of the last epoch."""
        return self._native.steps_left

    @property
    def repeat(self) -> bool:
        """Whether there is always another `for`: of an evaluation, or as `repeat=` said."""
        return self._native.facts.is_evaluation if self._repeat is None else self._repeat

    @property
    def rank(self) -> int:
        """This rank."""
        return self._ranks().rank

    @property
    def world(self) -> int:
        """The number of ranks."""
        return self._ranks().world

    @property
    def device(self) -> str:
        """The device of the tensors: `cpu` or `cuda:N`."""
        return self._native.device

    @property
    def global_batch(self) -> int:
        """The samples of one step over all ranks."""
        return self._native.facts.global_batch

    @property
    def samples(self) -> int:
        """The samples that an epoch delivers, over all ranks: all, but for those that `epoch_end = "drop"` leaves out. If epochs share a
        batch (`continuous`), each has as many on average."""
        facts = self._native.facts
        return facts.samples - (facts.samples % facts.global_batch if facts.epoch_end == "drop" else 0)

    @property
    def classes(self) -> list[str] | None:
        """The names of the classes that the numbers in batches mean, in their order: those of a column with `classes`, or else the dataset's; `None` if
        neither lists any. Of a cluster, the coordinator says them: `ConnectError` if none answers. It opens
        nothing."""
        return self._native.classes

    @property
    def sources(self) -> dict[str, range]:
        """The ids of the samples of each source of the job, by its name; empty if the job has one dataset. `batch.ids` are in one of them each:
        `ids = loader.sources["code"]; of_code = (batch.ids >= ids.start) & (batch.ids < ids.stop)`."""
        return {name: range(first, end) for name, first, end in self._native.facts.sources}

    @property
    def class_to_idx(self) -> dict[str, int] | None:
        """The number of each class by its name, as torchvision's datasets have it; `None` where `classes` is."""
        names = self.classes
        return None if names is None else {name: number for number, name in enumerate(names)}

    @property
    def job(self) -> str:
        """The job's name."""
        return self._native.facts.job

    @property
    def run(self) -> str:
        """The run's name, which distinguishes this training from others with the same job. By default the job's
        name."""
        return self._native.run

    @property
    def start(self) -> Start:
        """Where the loader started, and whether that was the beginning, a resume, or a given position."""
        start = self._native.start
        return Start(Position._of(start.position), start.how, start.reason)

    @property
    def receipt(self) -> str:
        """The receipt, 32 hexadecimal digits: a digest of which samples were delivered at which positions of
        the stream. The receipts of all ranks add up to the plan's: `spdl-ctl audit`."""
        return self._native.receipt

    def repeat_batches(self, count: int) -> Loader:
        """Measures the trainer alone: the loader keeps the next `count` batches, and then gives these again and again, up to the end of each epoch as it
        would have come. It asks its worker for nothing more, and copies nothing, so that a loop over it shows how fast the program is with a loader that
        costs nothing. Returns the loader.

        Nothing of what comes again counts in `position`, in the receipt, or in what the coordinator knows of the run; `stats()` has its number as
        `repeated_batches`, and `state_dict()` gives states that no loader takes. A warning in the log says that batches repeat.

        count: at most as many as the loader has `slots`, or `buffers` on a device, where the batches stay. What a program changes in them stays changed.

        Raises `SettingError` if there is no room for so many, at the first batch where the loader is not open yet.
        """
        self._native.repeat_batches(operator.index(count))
        self._repeats = True
        return self

    def stats(self) -> insight.LoaderStats:
        """Returns statistics since the loader was opened: batches, samples, bytes, seconds waited and their
        distribution, and which worker serves it; with `local` also those of each stage of the pipeline. `windows` has
        what happened in the last 1, 10 and 60 seconds."""
        stats: insight.LoaderStats = json.loads(self._native.stats())
        return stats

    def report(self) -> insight.RunReport:
        """Returns what this loader came to so far, plain values for a file of JSON: its rate and waits since the first batch, what a sample cost, the share of bad
        samples, and what limits it. `spdl-ctl compare` shows two of them side by side, and fails where the second one is worse than allowed. Call it before
        the loader is closed.

        Of a cluster, CPU times are those of this process alone; `spdl-ctl run show` has the workers'.
        """
        report: insight.RunReport = json.loads(self._native.report())
        return report

    def metrics(self, prefix: str = "") -> dict[str, float]:
        """Returns numbers for a logger, as `wandb.log(loader.metrics("loader/"))` takes them: the totals of batches,
        samples and bad samples, the seconds waited, and the rates of the last ten seconds once there are some."""
        return insight.metrics(self.stats(), prefix)

    def diagnose(self) -> insight.Diagnosis | None:
        """Returns what limited this rank in the last seconds, and what would help: the diagnosis that `spdl-ctl status`
        shows or, with `local`, that of the pipeline in this process. `None` while there is no history of some seconds.

        Another thread may call it while the program waits for a batch. Raises `ConnectError` if no coordinator
        answers within some seconds; the loader goes on.
        """
        native = self._native.diagnose()
        return None if native is None else insight.Diagnosis(native)

    def state_dict(self, after: Batch | None = None) -> dict[str, Any]:
        """Returns the state: the position where the next batch begins, and the job it belongs to; about 100 bytes,
        plain values. It is the same on every rank after the same step, and valid for any world size and batch size.

        after: a batch of this loader. The state is then the one right after this batch, for programs whose later stages
            have already taken more batches.

        Once `repeat_batches` has given a batch again, the state says so, and no loader can be given it.
        """
        if after is None or self._job_state is None or self._repeats:
            self._job_state = json.loads(self._native.state())
        state = dict(self._job_state)
        if after is not None and "repeated_batches" not in state:
            state["epoch"], state["offset"] = after.next_position
        return state

    def load_state_dict(self, state: Mapping[str, Any] | str | bytes) -> None:
        """Continues from a state, in the middle of an epoch too. If a cluster's session has other ranks, call it before
        the loader is first used.

        Raises `StateError` if the state cannot be read or comes too late; a state of another job is refused when the
        loader is opened.
        """
        self._native.load_state(state_text(state))
        self._is_fresh = self._has_state = True

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch that the next `for` begins, or goes on with if the loader is in it. Frameworks call it before each of
        their epochs, as they do for a DataLoader's sampler, so that the loader is where a trainer is that has resumed; other programs need
        it only to go back.

        It does nothing for an evaluation that repeats, nor where `start=` or `SPDL_START` says where to start.
        """
        epoch = operator.index(epoch)
        if epoch < 0:
            raise SettingError(f"epoch {epoch} is below 0")
        if self._has_start or self._begins_again or epoch == self.epoch:
            return
        if self._has_state:
            warnings.warn(
                f"job `{self.job}` goes on at {epoch}:0, where the trainer is, and not at {self.position}, where the loaded state was saved; load "
                "both from one checkpoint",
                stacklevel=2,
            )
        self._go_to(epoch, 0)

    def sheet(self, samples: int = 16) -> sheet.Sheet:
        """Draws the batch that comes first, as `show` does, with the names of classes where they are known; the loader then begins with this batch. Call
        it before the first batch, or after a state was loaded.

        Raises `UsageError` if batches have come: draw these with `spdl_cluster.show(batch)`.
        """
        if not self._is_fresh:
            raise UsageError("`sheet` draws the batch that a loader begins with, and this one has begun", "`spdl_cluster.show(batch)` draws any batch")
        start, has_state = self.position, self._has_state
        batch = self.next()
        if batch is None:
            raise FinishedError(f"job `{self.job}` is finished, and has no batch to draw")
        drawn = sheet.show(batch, classes=self.classes, samples=samples)
        del batch
        self._native.go_to(*start)
        self._is_fresh, self._has_state = True, has_state
        return drawn

    @property
    def sampler(self) -> Loader:
        """The loader itself, for programs that call `loader.sampler.set_epoch(epoch)`."""
        return self

    #: Frameworks read it of whatever has a `sampler`.
    batch_sampler: None = None

    def _go_to(self, epoch: int, offset: int) -> None:
        """Goes to a position, or to the end if there is no such epoch."""
        epochs = self._native.facts.epochs
        self._native.go_to(min(epoch, epochs), offset if epoch < epochs else 0)
        self._is_fresh, self._has_state = True, False

    def close(self) -> None:
        """Closes the loader, within a second or two. Batches that were delivered stay valid."""
        self._close()

    def __enter__(self) -> Loader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        # Printing a loader must not open it, join a session or decide its rank.
        ranks = self._ranks.decided
        who = "rank not decided yet" if ranks is None else f"rank {ranks.rank} of {ranks.world}"
        return f"<spdl_cluster.Loader of job `{self._native.job_name}`: {who}, {self._native.position_text}>"

    def __next__(self) -> NoReturn:
        misuse.no_iterator()

    def __getitem__(self, index: object) -> NoReturn:
        misuse.no_dataset()

    def __getattr__(self, name: str) -> NoReturn:
        misuse.no_such_attribute(name)

    def __reduce__(self) -> str:
        self._native.__reduce__()
        raise AssertionError("a native loader refuses to be pickled")


def state_text(state: Mapping[str, Any] | str | bytes) -> str:
    """Returns a state as the text that the native half reads."""
    if isinstance(state, bytes):
        return state.decode(errors="replace")
    if isinstance(state, str):
        return state
    try:
        return json.dumps(dict(state))
    except (TypeError, ValueError) as error:
        raise StateError(f"state cannot be read: {error}") from error
