"""The loader: batches for one rank of a training job."""

from __future__ import annotations

import atexit
import json
import os
import warnings
import weakref
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Literal, NamedTuple, NoReturn

from . import environment, functions, log, misuse, tensors
from . import device as devices
from ._native import Batch as Slot
from ._native import Feed
from .batch import Batch, Position, of_slot
from .device import DeviceOptions
from .errors import FinishedError, SettingError, StateError, UsageError

_open: weakref.WeakSet[Loader] = weakref.WeakSet()


#: Where to start: a word, an epoch, `"EPOCH:OFFSET"`, a `Position`, or a state.
StartFrom = Literal["beginning", "resume"] | str | bytes | int | tuple[int, int] | Mapping[str, Any]


class Start(NamedTuple):
    """Where a loader started, and why there."""

    position: Position
    #: `"beginning"`; `"resume"`: where all ranks of the run's last session had got to; `"given"`: as the launch or its state said.
    how: str
    #: The same in words.
    reason: str


class Loader:
    """The batches of one rank, in the job's order. Made by `connect` or `local`.

    A `for` over it is one epoch, or the rest of it after a resume or a `break`; the next `for` is the next epoch. After the last epoch
    another `for` raises `FinishedError`. One that repeats, as for an evaluation, gives the whole dataset at every `for`, whatever came of the one
    before; its receipt is that of the newest. What a loader says of itself (position, state, receipt) is about the batches that it has handed to the
    caller, never about what was prefetched.

    It is opened when it is first used; until then `load_state_dict` sets where it begins. It belongs to the process that made it, cannot be
    pickled, and may be used by several threads, one at a time.
    """

    def __init__(self, feed: Feed, ranks: environment.Ranks, kind: tensors.Kind, repeat: bool | None) -> None:
        """Not for callers: see `connect` and `local`."""
        self._feed = feed
        self._ranks = ranks
        self._kind = kind
        #: Whether every `for` is the whole dataset; `None` as the job has it.
        self._repeat = repeat
        #: Loops that have begun; of a loader that repeats, only the newest goes on.
        self._loops = 0
        #: Nothing was handed over since it was made, or given a state.
        self._is_fresh = True
        self._tensors: tensors.Tensors | None = None
        #: A state of the job, whatever its position.
        self._job_state: dict[str, Any] | None = None
        _open.add(self)

    def __iter__(self) -> Epoch:
        """The batches from here to the end of the epoch."""
        return Epoch(self)

    def __len__(self) -> int:
        """Batches of a whole epoch. Where epochs share a batch (`epoch_end = "continuous"`), it can be one fewer."""
        return self._feed.facts[4]

    def next(self) -> Batch | None:
        """The next batch, over the ends of epochs; `None` after the last epoch."""
        self._ranks.check()
        slot = self._feed.next()
        self._is_fresh = False
        return None if slot is None else of_slot(slot, self._tensors or self._choose())

    @property
    def position(self) -> Position:
        """Where in the stream the next batch begins."""
        return Position(*self._feed.position)

    @property
    def epoch(self) -> int:
        """The epoch that the next `for` begins with or goes on in; `epochs` when all are delivered."""
        return self._feed.epoch

    @property
    def epochs(self) -> int:
        """Epochs of the job."""
        return self._feed.facts[2]

    @property
    def steps_left(self) -> int:
        """Batches to the end of the last epoch."""
        return self._feed.steps_left

    @property
    def repeat(self) -> bool:
        """Whether every `for` is the whole dataset."""
        if self._repeat is None:
            self._repeat = self._feed.is_evaluation
        elif self._repeat and self.epochs != 1:
            raise SettingError(f"`repeat` is for a job of one epoch, and job `{self.job}` has {self.epochs}", "leave it out")
        return self._repeat

    @property
    def rank(self) -> int:
        """This rank."""
        return self._ranks()[0]

    @property
    def world(self) -> int:
        """Number of ranks."""
        return self._ranks()[1]

    @property
    def device(self) -> str:
        """Where tensors are: `cpu` or `cuda:N`."""
        return self._feed.device

    @property
    def global_batch(self) -> int:
        """Samples of one step over all ranks."""
        return self._feed.facts[3]

    @property
    def samples(self) -> int:
        """Samples of an epoch, over all ranks."""
        return self._feed.facts[1]

    @property
    def job(self) -> str:
        """The job's name."""
        return self._feed.facts[0]

    @property
    def run(self) -> str:
        """The run's name: of this training, among those with the job. That of the job, unless another was given."""
        return self._feed.run

    @property
    def start(self) -> Start:
        """Where it started, and whether that is the beginning, a resume, or what was given."""
        epoch, offset, how, reason = self._feed.start
        return Start(Position(epoch, offset), how, reason)

    @property
    def receipt(self) -> str:
        """Digest of which samples were handed over where in the stream, 32 hexadecimal digits. Those of all ranks add up to the plan's:
        `spdl-ctl audit`."""
        return self._feed.receipt

    def stats(self) -> dict[str, Any]:
        """Figures since the loader was opened: batches, samples, bytes, seconds waited and how they are spread, and by whom it is served;
        with `local` also what each stage of the pipeline did. `verdict` says in words whether trainer or loader sets the pace."""
        figures: dict[str, Any] = json.loads(self._feed.stats())
        return figures

    def state_dict(self, after: Batch | None = None) -> dict[str, Any]:
        """Where the next batch begins, and the job it is a position of: about 100 bytes, plain values. The same on every rank after the same
        step, and good for any world size and batch size.

        after: a batch of this loader, for the state right after it, where stages behind the loader have taken further ones ahead.
        """
        if after is None or self._job_state is None:
            self._job_state = json.loads(self._feed.state())
        state = dict(self._job_state)
        if after is not None:
            state["epoch"], state["offset"] = after.next_position
        return state

    def load_state_dict(self, state: Mapping[str, Any] | str | bytes) -> None:
        """Goes on from a state, in the middle of an epoch too. With other ranks in a cluster's session, before the loader is first used.

        Raises `StateError` where it is no state, or comes too late; a state of another job is refused when the loader is opened.
        """
        self._feed.load_state(_state_text(state))
        self._is_fresh = True

    def close(self) -> None:
        """Says goodbye, within a second or two. Batches that were handed over stay valid."""
        self._feed.close()
        _open.discard(self)

    def __enter__(self) -> Loader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        # Nothing is opened, joined or decided by looking at it.
        job, position = self._feed.glance
        ranks = self._ranks.decided
        who = "rank not decided yet" if ranks is None else f"rank {ranks[0]} of {ranks[1]}"
        return f"<spdl_cluster.Loader of {job}: {who}, {position}>"

    def __next__(self) -> NoReturn:
        misuse.no_iterator()

    def __getitem__(self, index: object) -> NoReturn:
        misuse.no_dataset()

    def __getattr__(self, name: str) -> NoReturn:
        misuse.no_such_attribute(name)

    def __reduce__(self) -> str:
        self._feed.__reduce__()
        raise AssertionError("a feed refuses to be pickled")

    def _choose(self) -> tensors.Tensors:
        self._tensors = tensors.choose(self._kind, self.device, self._feed.columns)
        self._job_state = json.loads(self._feed.state())
        return self._tensors

    def _begin(self) -> int:
        """A `for` asks for its first batch; its number."""
        self._ranks.check()
        self._loops += 1
        if self.repeat and not self._is_fresh:
            self._feed.restart()
        return self._loops

    def _first(self) -> Slot:
        """The first batch of a `for`, which there has to be."""
        slot = self._feed.next()
        if slot is None and self.repeat:
            # It was made from a state at its end.
            self._feed.restart()
            slot = self._feed.next()
        if slot is None:
            epochs = "its epoch is" if self.epochs == 1 else f"all {self.epochs} epochs are"
            raise FinishedError(
                f"job `{self.job}` is finished: {epochs} delivered up to {self.position}, and there is no batch for another `for`",
                "for an evaluation make the loader with `repeat=True`, which `shuffle = false` with `epoch_end = \"exact\"` implies; to train longer, "
                "a job with more `epochs`; to go back, a loader with a `state=`",
            )
        self._is_fresh = False
        return slot


class Epoch:
    """The batches from a loader's position to the end of its epoch. After a timeout or Ctrl-C it can be used further."""

    __slots__ = ("_loader", "_loop", "_has_batch", "_is_over")

    def __init__(self, loader: Loader) -> None:
        self._loader = loader
        self._loop = 0
        self._has_batch = False
        self._is_over = False

    def __iter__(self) -> Epoch:
        return self

    def __next__(self) -> Batch:
        if self._is_over:
            raise StopIteration
        loader = self._loader
        if not self._loop:
            self._loop = loader._begin()
        elif loader._loops != self._loop and loader.repeat:
            raise UsageError(
                "a newer `for` over this loader has begun the dataset again, so that this one has no batches any more",
                "make two loaders where two loops are to go on side by side",
            )
        slot = loader._feed.next() if self._has_batch else loader._first()
        if slot is None:
            self._is_over = True
            raise StopIteration
        self._has_batch = True
        self._is_over = slot.ends_epoch
        return of_slot(slot, loader._tensors or loader._choose())


@misuse.explained
def connect(
    rank: int | None = None,
    world: int | None = None,
    *,
    job: str | None = None,
    run: str | None = None,
    start: StartFrom | None = None,
    takeover: bool | None = None,
    epochs: int | None = None,
    coordinators: str | None = None,
    certs: str | os.PathLike[str] | None = None,
    state: Mapping[str, Any] | str | bytes | None = None,
    timeout: float | None = None,
    slots: int | None = None,
    transport: str | None = None,
    global_batch: int | None = None,
    repeat: bool | None = None,
    tensors: tensors.Kind = "auto",
    device: Any = None,
    device_options: DeviceOptions | None = None,
    socket: str | None = None,
    node: str | None = None,
) -> Loader:
    """The batches of `rank` of `world`, from a cluster of workers. What is not given comes from the environment.

    rank, world: this rank and the number of data-parallel ranks. Without them, what torch's process group says when the loader is first used, or
        else `RANK` and `WORLD_SIZE` as torchrun sets them, MPI's variables, or SLURM's; else 0 of 1. Give both or neither.
    job: name of the job. `SPDL_JOB`.
    run: name of this training among those with the job. Sessions and positions are the run's, and runs live side by side. `SPDL_RUN`, the job's
        name.
    start: `"beginning"`; `"resume"`, where all ranks of the run's last session had got to; an epoch; `"EPOCH:OFFSET"`; or a state. `SPDL_START`,
        `"beginning"`. The same on all ranks. `Loader.start` tells which it was.
    takeover: whether whoever holds the run is ended. Without, a run whose ranks are alive is refused; a restart of the same launch, known by
        torchrun's or SLURM's id or `SPDL_LAUNCH_ID`, needs none. The same on all ranks. `SPDL_TAKEOVER`, `False`.
    epochs: epochs of the run from this launch on. `SPDL_EPOCHS`, as many as the run had, or else the job.
    coordinators: `HOST:PORT` of the coordinator, or of all of them, separated by commas. `SPDL_COORD`.
    certs: folder with a client's `ca.pem`, `cert.pem` and `key.pem`. `SPDL_CERTS`.
    state: where to start, as `state_dict` gave it: the same as `start=`.
    timeout: seconds that joining, or waiting for a batch, may take. `SPDL_TIMEOUT_S`, 300. Raised, a fault that does not heal is told later.
    slots: batches that are filled, waiting or in the caller's hands. `SPDL_SLOTS`, 4. Raised, the worker's slab takes more memory.
    transport: `auto`, `local` or `quic`. `SPDL_TRANSPORT`, `auto`.
    global_batch: samples of one step over all ranks, where it differs from the job's.
    repeat: whether every `for` is the whole dataset, from its first batch: for an evaluation, of a job of one epoch. Default: where the job has
        `shuffle = false` and `epoch_end = "exact"`.
    tensors: `"torch"`, `"numpy"`, `"dlpack"`, or `"auto"`: torch where the program has imported it when the first batch comes, else numpy.
    device: where tensors are: `None` or `"cpu"`, `"cuda:1"`, 1, a `torch.device`. `"cuda"` is torch's current device where the program uses CUDA
        already, else number `LOCAL_RANK`, as torchrun sets it, of several, else the first.
    device_options: buffers on the device, and what becomes of pictures there.
    socket, node: for containers; path of the worker's socket as this process sees it, and name of this node. `SPDL_SOCKET`, `SPDL_NODE`.

    Settings are checked and the device is opened at once; the session is joined, and memory on the device taken, when the loader is first used.
    """
    ranks = environment.Ranks(rank, world)
    feed = Feed.connect(
        ranks,
        job=job,
        run=run,
        start=_start_text(start, state),
        takeover=takeover,
        epochs=epochs,
        coordinators=coordinators,
        certs=None if certs is None else os.fspath(certs),
        transport=transport,
        slots=slots,
        timeout=timeout,
        socket=socket,
        node=node,
        global_batch=global_batch,
        target=devices.written(environment.device_name(device), device_options),
    )
    return _made(feed, ranks, tensors, repeat, state)


@misuse.explained
def local(
    job: Mapping[str, Any] | str | os.PathLike[str],
    rank: int | None = None,
    world: int | None = None,
    *,
    start: StartFrom | None = None,
    state: Mapping[str, Any] | str | bytes | None = None,
    epochs: int | None = None,
    timeout: float | None = None,
    slots: int | None = None,
    cores: float | None = None,
    memory_bytes: int | None = None,
    transform_timeout: float | None = None,
    global_batch: int | None = None,
    repeat: bool | None = None,
    tensors: tensors.Kind = "auto",
    device: Any = None,
    device_options: DeviceOptions | None = None,
) -> Loader:
    """The same loader with its pipeline in this process: no server, the same samples and bytes.

    job: path of a job file (TOML), or a dict with the same keys, in which a column's `transform` may be the function itself.
    rank, world: this rank and the number of data-parallel ranks, as `connect` has them.
    start: where to start, as `connect` has it; `"resume"` is not for a loader in this process, which keeps no positions.
    state: where to start, as `state_dict` gave it: the same as `start=`.
    epochs: epochs, where they differ from the job's.
    timeout: seconds that waiting for a batch may take. Default 60.
    slots: batches that are filled, waiting or in the caller's hands. Default 4. Raised, more memory is used.
    cores: processor cores for decoding, a number above 0 and no percentage. Default 40 % of the node's, shared by the ranks on it
        (`LOCAL_WORLD_SIZE`). Raised, the trainer's own work on the CPU gets slower.
    memory_bytes: bytes for slots and cached data. Default 1 GiB. Raised, less is left for the trainer.
    transform_timeout: seconds that a function of the job's (`transform`) may take for a sample, which is a bad one then. Default 30. Raised, one
        that hangs holds its batch up for longer.
    global_batch, repeat, tensors, device, device_options: as `connect` has them.
    """
    if cores is not None and cores > (there := len(os.sched_getaffinity(0))):
        warnings.warn(f"cores={cores} is more than the {there} of this machine; it is a number of cores, not percent", stacklevel=3)
    ranks = environment.Ranks(rank, world)
    feed = Feed.local(
        functions.named(job) if isinstance(job, Mapping) else os.fspath(job),
        ranks,
        start=_start_text(start, state),
        epochs=epochs,
        slots=slots,
        timeout=timeout,
        global_batch=global_batch,
        sharers=environment.local_world(),
        cores=cores,
        memory_bytes=memory_bytes,
        transform_timeout=transform_timeout,
        program=functions.program(),
        target=devices.written(environment.device_name(device), device_options),
    )
    return _made(feed, ranks, tensors, repeat, state)


def _made(
    feed: Feed,
    ranks: environment.Ranks,
    kind: tensors.Kind,
    repeat: bool | None,
    state: Mapping[str, Any] | str | bytes | None,
) -> Loader:
    environment.refuse_function_process()
    log.follow()
    loader = Loader(feed, ranks, kind, repeat)
    if kind != "auto":
        # What was asked for by name is there, or the caller hears at once that it is not.
        tensors.choose(kind, loader.device)
    if state is not None:
        loader.load_state_dict(state)
    return loader


def _start_text(start: StartFrom | None, state: Mapping[str, Any] | str | bytes | None) -> str | None:
    """A start as the native half reads it. A state is loaded when the loader is made."""
    if start is not None and state is not None:
        raise SettingError("`start` and `state` are both given, and both say where to start", "leave one of them out")
    if start is None or isinstance(start, str):
        return start
    if isinstance(start, tuple) and len(start) == 2:
        return f"{start[0]}:{start[1]}"
    if isinstance(start, int) and not isinstance(start, bool):
        return str(start)
    if isinstance(start, (bytes, Mapping)):
        return _state_text(start)
    raise SettingError(
        f"`start` is {start!r}, which is no place in the job", "give \"beginning\", \"resume\", an epoch, \"EPOCH:OFFSET\" or a state"
    )


def _state_text(state: Mapping[str, Any] | str | bytes) -> str:
    if isinstance(state, bytes):
        return state.decode(errors="replace")
    if isinstance(state, str):
        return state
    try:
        return json.dumps(dict(state))
    except (TypeError, ValueError) as error:
        raise StateError(f"state cannot be read: {error}") from error


@atexit.register
def _close_all() -> None:
    """A loader that is left open says goodbye, so that nobody has to notice that it is gone."""
    for loader in list(_open):
        if not loader._feed.belongs_elsewhere:
            loader.close()
