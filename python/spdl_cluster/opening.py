"""Makes loaders: of a cluster, or with their pipeline in this process."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from . import environment, log, misuse, tensors
from . import device as devices
from ._native import NativeLoader
from .device import DeviceOptions
from .errors import SettingError
from .functions import AnyJob, plain, program
from .here import FunctionsHere
from .loader import Loader, state_text

#: Seconds that a wait for a batch may take where functions are called in this process, which may stop at a breakpoint: years.
_NO_LIMIT_S = 1e9

#: Where to start: a word, an epoch, `"EPOCH:OFFSET"`, a `Position`, or a state.
StartFrom = Literal["beginning", "resume"] | str | bytes | int | tuple[int, int] | Mapping[str, Any]


@misuse.explained
def connect(
    rank: int | None = None,
    world: int | None = None,
    *,
    job: AnyJob | None = None,
    run: str | None = None,
    start: StartFrom | None = None,
    takeover: bool | None = None,
    launch: str | None = None,
    epochs: int | None = None,
    coordinators: str | None = None,
    certs: str | os.PathLike[str] | None = None,
    state: Mapping[str, Any] | str | bytes | None = None,
    timeout: float | None = None,
    member: tuple[int, int] | None = None,
    columns: Sequence[str] | None = None,
    slots: int | None = None,
    transport: str | None = None,
    global_batch: int | None = None,
    repeat: bool | None = None,
    tensors: tensors.Kind = "auto",
    tuples: Sequence[str] | None = None,
    log_every: float | None = None,
    device: Any = None,
    device_options: DeviceOptions | None = None,
    socket: str | None = None,
    node: str | None = None,
) -> Loader:
    """Returns the loader of `rank` of `world`, served by a cluster of workers. Settings that are not given come from
    the environment.

    rank, world: this rank and the number of data-parallel ranks. By default those of torch's process group when the
        loader is first used; without one, `RANK` and `WORLD_SIZE` as torchrun sets them, MPI's variables, or SLURM's;
        otherwise 0 of 1. Give both or neither.
    job: name of the job; under `spdl-run` and of the cluster of `spdl-ctl dev up` also the job's file. A dict with the keys of a job file, or an object of a dataclass, is submitted
        first, as by `submit`, which does nothing if the same job is there. Default `SPDL_JOB`, or the only job of the cluster of `spdl-ctl dev up`.
    run: name of this training. Sessions and positions belong to the run, and several runs with the same job can go on
        at once. Default `SPDL_RUN`, or the job's name.
    start: `"beginning"`; `"resume"`, the position that all ranks of the run's last session had reached; an epoch;
        `"EPOCH:OFFSET"`; or a state. The same on all ranks. Default `SPDL_START`, or `"beginning"`. `Loader.start`
        returns which it was.
    takeover: whether to end a live launch of the run. If false, the coordinator refuses to start a run whose ranks are
        alive; a restart of the same launch needs no takeover. The same on all ranks. Default `SPDL_TAKEOVER`, or `False`.
    launch: an id that all ranks of a launch share, across restarts too, and no other launch has. Default `SPDL_LAUNCH_ID`,
        or torchrun's or SLURM's id.
    epochs: number of epochs of the run from this launch on. Default `SPDL_EPOCHS`, or as many as the run had, or else
        the job has.
    coordinators: `HOST:PORT` of the coordinator, or of all of them, separated by commas. Default `SPDL_COORD`.
    certs: folder with a client's `ca.pem`, `cert.pem` and `key.pem`. Default `SPDL_CERTS`. If neither an argument nor a variable names a cluster, it is
        that of `spdl-ctl dev up` on this machine; a warning in the log says so.
    state: where to start, as `state_dict` returned it: the same as `start=`.
    timeout: seconds that joining, or waiting for a batch, may take. Default `SPDL_TIMEOUT_S`, or 300. A longer one
        reports a permanent fault later.
    member: this process's number in the group that shares the rank, such as that of tensor parallelism, and the number of members: `(tp_rank, tp_size)`. The
        processes of a group are on one node, give the same `rank` and `world`, and get the same batches in the same memory, which none may change.
        Default `SPDL_MEMBER`, or `(0, 1)`: the rank is this process's alone.
    columns: the columns that a batch has, where this process needs no others. Default: all of the job.
    slots: batches that can be filled, waiting or held by the caller. Default `SPDL_SLOTS`, or 4. More take more memory
        in the worker's slab.
    transport: `auto`, `local` or `quic`. Default `SPDL_TRANSPORT`, or `auto`.
    global_batch: samples of one step over all ranks, if it differs from the job's.
    repeat: whether there is always another `for`. With a job that shuffles, it is the next epoch, in another order and with other crops, however many
        the job has. With an evaluation, it is the whole dataset from its first batch. Default: true for an evaluation, a job of one epoch with
        `shuffle = false` in which every sample comes (`epoch_end` is `partial`, its default there, `exact` or `pad`).
    tensors: `"torch"`, `"numpy"`, `"dlpack"`, or `"auto"`: torch if the program has imported it when the first batch
        comes, else numpy.
    tuples: columns that a `for` gives as a tuple in place of a batch: with `tuples=("image", "label")`, `for image, label in loader`.
        `loader.next()` gives the batch. Default: none.
    log_every: seconds after each of which a line goes to a logger below `spdl_cluster`, at level INFO: the samples per
        second and what limits them. Default: none.
    device: where tensors are: `None` or `"cpu"`, `"cuda:1"`, 1, a `torch.device`. `"cuda"` is torch's current device if
        the program already uses CUDA; otherwise the only device that this process sees; otherwise the one with this
        rank's number on its node, as torchrun, mpirun or `srun` sets it. Without such a number, several ranks are
        refused, and a single one gets the first device.
    device_options: buffers on the device, and how pictures are normalised there.
    socket, node: for containers: path of the worker's socket as this process sees it, and name of this node. Default
        `SPDL_SOCKET`, `SPDL_NODE`.

    Settings are checked and the device is opened at once. At its first use the loader joins the session and allocates
    memory on the device.
    """
    named = None if job is None else plain(job)
    if member is not None and member[1] > 1 and (rank is None or world is None):
        raise SettingError(
            f"`member` is {member}, and `rank` and `world` are not both given", "give the data-parallel ones, the same in all processes of the group"
        )
    ranks = environment.Ranks(rank, world)
    place = environment.cluster(coordinators, certs)
    if isinstance(named, dict):
        # Imported only here: what runs programs takes as long to import as all else that `local` needs.
        from .control import submit

        name: str | None = submit(named, coordinators=place.coordinators, certs=place.certs)
    else:
        name = place.job_name(named)
    native = NativeLoader.connect(
        ranks,
        job=name,
        run=run,
        start=_start_text(start, state),
        takeover=takeover,
        launch=launch,
        epochs=epochs,
        endless=bool(repeat),
        coordinators=place.coordinators,
        certs=place.certs,
        transport=transport,
        slots=slots,
        timeout=timeout,
        member=member,
        socket=socket,
        node=node,
        global_batch=global_batch,
        log_every=log_every,
        device=environment.device_name(device),
        device_options=devices.checked(device_options),
    )
    return _made(native, ranks, tensors, repeat, state, start is not None or environment.has_start(), tuples, columns=columns)


@misuse.explained
def local(
    job: AnyJob,
    rank: int | None = None,
    world: int | None = None,
    *,
    start: StartFrom | None = None,
    state: Mapping[str, Any] | str | bytes | None = None,
    epochs: int | None = None,
    timeout: float | None = None,
    slots: int | None = None,
    cores: float | str | None = None,
    memory_bytes: int | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
    cache_bytes: int | None = None,
    requests: int | None = None,
    read_ahead: int | None = None,
    transform_timeout: float | None = None,
    functions: Literal["processes", "here"] = "processes",
    global_batch: int | None = None,
    seed: int | None = None,
    own_classes: bool = False,
    repeat: bool | None = None,
    tensors: tensors.Kind = "auto",
    tuples: Sequence[str] | None = None,
    log_every: float | None = None,
    device: Any = None,
    device_options: DeviceOptions | None = None,
) -> Loader:
    """Returns the same loader with its pipeline in this process: no server, the same samples and bytes.

    job: path of a job file (TOML), or a dict with the same keys, in which a column's `transform` may be the function
        itself.
    rank, world: this rank and the number of data-parallel ranks, as for `connect`.
    start: where to start, as for `connect`; `"resume"` is not possible in this process, which keeps no positions.
    state: where to start, as `state_dict` returned it: the same as `start=`.
    epochs: number of epochs, if it differs from the job's.
    timeout: seconds that waiting for a batch may take. Default 60.
    slots: batches that can be filled, waiting or held by the caller. Default 4. More take more memory.
    cores: processor cores for decoding: a number above 0, or `"60%"` of those of this node, shared by the ranks on it
        (`LOCAL_WORLD_SIZE`). Default `"40%"`. More cores make the trainer's own work on the CPU slower.
    memory_bytes: bytes for slots and cached data. Default 1 GiB. More leave less for the trainer.
    cache_dir: folder that caches data of a remote store. Ranks and workers of a node can share one, and it outlives them.
        Default: none, data is not cached on disk.
    cache_bytes: the most bytes of that folder, with what others cache there. Default 64 GiB. More fill the disk.
    requests: the most requests to stores in flight, 1 to 512. Default: tuned by what is measured.
    read_ahead: steps whose data is fetched ahead, 1 to 512. Default: tuned by what is measured.
    transform_timeout: seconds that a function of the job (`transform`) may take for a sample; a sample that takes
        longer is a bad one. Default 30. With a longer one, a function that hangs delays its batch longer.
    functions: where the functions of the job are called. `"here"` is in this process, in the thread that waits for a batch and one after the other: for
        `breakpoint()`, lambdas, closures and functions of notebook cells. It is slower, and knows no time limits. Default: in processes of their own.
    seed: the seed of this run, if it differs from the job's. A state belongs to the seed that it was saved with.
    own_classes: whether the classes of this loader have nothing to do with those of the process's other loaders. If not, and a class number means
        one class here and another one there, the first batch of either is a `SettingError` that shows both lists. Only loaders of `local` with columns
        of class numbers are compared.
    global_batch, repeat, tensors, tuples, log_every, device, device_options: as for `connect`.
    """
    if functions not in ("processes", "here"):
        raise SettingError(f"`functions` is {functions!r}", 'functions are called in `"processes"` or `"here"`')
    ranks = environment.Ranks(rank, world)
    calls_here = FunctionsHere() if functions == "here" else None
    native = NativeLoader.local(
        plain(job, calls_here),
        ranks,
        start=_start_text(start, state),
        epochs=epochs,
        endless=bool(repeat),
        slots=slots,
        timeout=_NO_LIMIT_S if timeout is None and calls_here is not None else timeout,
        global_batch=global_batch,
        seed=seed,
        sharers=environment.local_world(),
        cores=_core_count(cores),
        memory_bytes=memory_bytes,
        cache_dir=None if cache_dir is None else os.fspath(cache_dir),
        cache_bytes=cache_bytes,
        requests=requests,
        read_ahead=read_ahead,
        transform_timeout=transform_timeout,
        program=program(),
        here=calls_here,
        log_every=log_every,
        device=environment.device_name(device),
        device_options=devices.checked(device_options),
    )
    return _made(native, ranks, tensors, repeat, state, start is not None, tuples, own_classes)


def _core_count(cores: float | str | None) -> float | None:
    """Returns the number of cores for this rank."""
    there = len(os.sched_getaffinity(0))
    if isinstance(cores, str):
        share = re.fullmatch(r"(\d+(?:\.\d+)?) ?%", cores.strip())
        if share is None or not 0 < float(share[1]) <= 100:
            raise SettingError(f"`cores` is {cores!r}, neither a number nor a share of the node's cores", 'give `cores=4`, or `cores="40%"`')
        return there * float(share[1]) / 100 / environment.local_world()
    if cores is not None and cores > there:
        warnings.warn(f'cores={cores} is more than the {there} of this machine; a share of them is `cores="40%"`', stacklevel=4)
    return cores


def _made(
    native: NativeLoader,
    ranks: environment.Ranks,
    kind: tensors.Kind,
    repeat: bool | None,
    state: Mapping[str, Any] | str | bytes | None,
    has_start: bool,
    tuples: Sequence[str] | None,
    own_classes: bool = False,
    columns: Sequence[str] | None = None,
) -> Loader:
    environment.refuse_function_process()
    log.follow()
    for setting, names in (("tuples", tuples), ("columns", columns)):
        if isinstance(names, str):
            raise SettingError(f"`{setting}` is the text `{names}`, not the names of columns", f"one column is `({names!r},)`")
    for name in tuples or () if columns is not None else ():
        if name not in (columns or ()):
            raise SettingError(f"`tuples` has `{name}`, which is not among `columns`")
    only = None if columns is None else frozenset(columns)
    loader = Loader(native, ranks, kind, repeat, has_start, None if tuples is None else tuple(tuples), own_classes, only)
    if kind != "auto":
        # A kind that the caller named must be available: raise the error now rather than at the first batch.
        tensors.choose(kind, loader.device)
    if state is not None:
        loader.load_state_dict(state)
    return loader


def _start_text(start: StartFrom | None, state: Mapping[str, Any] | str | bytes | None) -> str | None:
    """Returns a start as the text that the native half reads. A state is loaded when the loader is made."""
    if start is not None and state is not None:
        raise SettingError("`start` and `state` are both given, and both set where to start", "leave one of them out")
    if start is None or isinstance(start, str):
        return start
    if isinstance(start, tuple) and len(start) == 2:
        return f"{start[0]}:{start[1]}"
    if isinstance(start, int) and not isinstance(start, bool):
        return str(start)
    if isinstance(start, (bytes, Mapping)):
        return state_text(start)
    raise SettingError(
        f"`start` is {start!r}, which is not a position in the job", "give \"beginning\", \"resume\", an epoch, \"EPOCH:OFFSET\" or a state"
    )
