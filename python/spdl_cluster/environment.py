"""The only file of this package that reads the environment. The native half reads the `SPDL_*` variables, and for the
device `cuda` the launcher's."""

from __future__ import annotations

import json
import logging
import os
import sys
from typing import Any, NamedTuple

from . import _native
from .errors import SettingError

_LOGGER = logging.getLogger("spdl_cluster")

#: Variables with a process's rank and the number of ranks, used where torch has no process group. torchrun and mpirun
#: are started by SLURM, never the other way round, so the variables of an inner launcher come before those of an outer
#: one.
_TORCHRUN = ("RANK", "WORLD_SIZE")
_MPI = (("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("PMI_RANK", "PMI_SIZE"))
#: What `spdl-run` tells its command: the launcher's number, and how many launchers the training has. They count where the
#: command starts no ranks of its own.
_LAUNCHERS = ("SPDL_LAUNCHER", "SPDL_LAUNCHERS")
_HINT = "give both `rank=` and `world=`, or let one launcher set both for every process"


class RankOfWorld(NamedTuple):
    """The data-parallel rank of a process, and the number of ranks."""

    rank: int
    world: int


class Ranks:
    """The rank and the world of this process: given by the caller, or decided at the first call.

    Two given numbers are taken as they are: a trainer with model-parallel groups knows its data-parallel rank better
    than any launcher. Otherwise the first of these that exists gives both: the process group of torch.distributed,
    `RANK` and `WORLD_SIZE`, the variables of MPI, those of SLURM, the number of the `spdl-run` that started it; without
    any of them it is rank 0 of 1. A source that is incomplete, or that contradicts a given number or the process group,
    is an error: two ranks with the same number would load the same samples.
    """

    def __init__(self, rank: int | None, world: int | None) -> None:
        self._given = (rank, world)
        self._decided: RankOfWorld | None = None
        self._source = ""
        if rank is not None and world is not None:
            self._decided = _checked(rank, world, "the loader was given")

    def __call__(self) -> RankOfWorld:
        """Returns rank and world; decides them at the first call."""
        if self._decided is None:
            rank, world, source = _process_group() or _variables() or (0, 1, "no launcher, so that it is the only one:")
            for name, given, theirs in zip(("rank", "world"), self._given, (rank, world)):
                if given is not None and given != theirs:
                    problem = f"`{name}` is given as {given}, and {source} rank {rank} of {world}"
                    raise SettingError(problem, "give both `rank=` and `world=`, or neither")
            self._decided, self._source = _checked(rank, world, source), source
        return self._decided

    @property
    def decided(self) -> RankOfWorld | None:
        """Rank and world, or `None` if they are not decided yet."""
        return self._decided

    def check(self) -> None:
        """Raises an error if a process group was made after the loader's first use and gives another rank or world."""
        if self._decided is None or not self._source:
            return
        group = _process_group()
        if group is not None and group[:2] != self._decided:
            (rank, world), (theirs, of, source) = self._decided, group
            raise SettingError(
                f"the loader is rank {rank} of {world}, as it was when it was first used, and {source} rank {theirs} of {of}",
                "use the loader (its length and epochs too) only once the process group is there, or give `rank=` and `world=`",
            )


def _checked(rank: int, world: int, source: str) -> RankOfWorld:
    if not 0 <= rank < world:
        raise SettingError(f"rank {rank} is not below world {world}: {source} that", "ranks are 0 to world - 1")
    return RankOfWorld(rank, world)


def _process_group() -> tuple[int, int, str] | None:
    """Returns rank and world of torch.distributed's default group, if there is one; `RANK` and `WORLD_SIZE` must not
    contradict it."""
    torch = sys.modules.get("torch")
    distributed = getattr(torch, "distributed", None)
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    found = (int(distributed.get_rank()), int(distributed.get_world_size()))
    for name, theirs in zip(_TORCHRUN, found):
        number = _number(name)
        if number is not None and number != theirs:
            raise SettingError(
                f"variable `{name}` is {number}, and the process group of torch.distributed has rank {found[0]} of {found[1]}",
                "give both `rank=` and `world=`, or start every process with both variables as the group has them",
            )
    return (*found, "the process group of torch.distributed has")


def _variables() -> tuple[int, int, str] | None:
    """Returns rank and world from the launcher's variables, if there are any."""
    for names in (_TORCHRUN, *_MPI):
        if pair := _pair(*names):
            return (*pair, f"variables `{names[0]}` and `{names[1]}` give")
    if slurm := _slurm():
        return slurm
    if launcher := _pair(*_LAUNCHERS):
        return (*launcher, f"variables `{_LAUNCHERS[0]}` and `{_LAUNCHERS[1]}` of `spdl-run` give")
    return None


def _slurm() -> tuple[int, int, str] | None:
    """Returns rank and world from SLURM's variables. In a batch script, which is not a task of `srun`, they describe
    the whole job."""
    ranks = "SLURM_PROCID"
    # `srun` may start fewer tasks than the job has.
    worlds = "SLURM_STEP_NUM_TASKS" if _number("SLURM_STEP_NUM_TASKS") is not None else "SLURM_NTASKS"
    is_step = any(os.environ.get(name) for name in ("SLURM_STEP_ID", "SLURM_STEPID", "SLURM_STEP_NUM_TASKS"))
    rank, world = _number(ranks), _number(worlds)
    if os.environ.get("SLURM_JOB_ID") and not is_step and rank in (None, 0):
        if world is not None and world > 1:
            raise SettingError(
                f"variable `{worlds}` is {world}, and `srun` did not start this process: there is no `SLURM_STEP_ID`",
                f"start the {world} ranks with `srun`, or give both `rank=` and `world=`: rank=0, world=1 for one process alone",
            )
        return None
    found = _pair(ranks, worlds)
    return None if found is None else (*found, f"variables `{ranks}` and `{worlds}` give")


def _pair(ranks: str, worlds: str) -> tuple[int, int] | None:
    """Returns both numbers or neither. A single rank needs no number."""
    rank, world = _number(ranks), _number(worlds)
    if rank is None and world in (None, 1):
        return None if world is None else (0, 1)
    if rank is None:
        raise SettingError(f"variable `{worlds}` is {world} and `{ranks}` is not set: which rank is this?", _HINT)
    if world is None:
        raise SettingError(f"variable `{ranks}` is {rank} and `{worlds}` is not set: of how many ranks?", _HINT)
    return rank, world


def refuse_function_process() -> None:
    """Raises an error in a process that calls a program's functions: it imports the program to find them, and must not
    load anything."""
    if os.environ.get("SPDL_CALLS_FUNCTIONS"):
        raise SettingError(
            "the program makes a loader when it is imported, and processes that call its functions import it",
            'put what trains under `if __name__ == "__main__":`, or the functions into a module of their own',
        )


class ClusterPlace(NamedTuple):
    """Where a cluster is, and its jobs."""

    #: `HOST:PORT` of the coordinators; `None` if the variables say it.
    coordinators: str | None
    #: The folder with the certificates; `None` if the variables say it.
    certs: str | None
    #: The only job, if there is one.
    job: str | None
    #: The names of the jobs that were submitted from files, by the paths of these.
    files: dict[str, str]

    def job_name(self, job: str | os.PathLike[str] | None) -> str | None:
        """Returns the name of the job that was submitted from this file, given as there or by the file's name alone; otherwise `job` itself, which
        is then a job's name."""
        if job is None:
            return None if os.environ.get("SPDL_JOB") else self.job
        given = os.fspath(job)
        for path in (given, os.path.abspath(given)):
            if path in self.files:
                return self.files[path]
        names = {name for path, name in self.files.items() if os.path.basename(path) == os.path.basename(given)}
        return names.pop() if len(names) == 1 else given


def cluster(coordinators: str | None, certs: str | os.PathLike[str] | None, role: str = "client") -> ClusterPlace:
    """Returns where the cluster is: as given, or as the variables say it; without both it is that of `spdl-ctl dev up` here, with
    its certificates of this role."""
    certs = None if certs is None else os.fspath(certs)
    is_named = coordinators is not None or certs is not None or any(os.environ.get(name) for name in ("SPDL_COORD", "SPDL_CERTS"))
    found = None if is_named else _native.dev_cluster(role)
    if found is None:
        return ClusterPlace(coordinators, certs, None, _job_files())
    text, coordinators, certs, jobs, files = found
    if os.environ.get("LOCAL_RANK", "0") == "0":
        _LOGGER.warning("no setting names a cluster, so this is %s", text)
    return ClusterPlace(coordinators, certs, jobs[0] if len(jobs) == 1 else None, files)


def _job_files() -> dict[str, str]:
    """Returns the jobs that `spdl-run` or `spdl-ctl dev` has submitted, by the paths of their files."""
    files = os.environ.get("SPDL_JOB_FILES")
    try:
        return dict(json.loads(files)) if files else {}
    except (TypeError, ValueError):
        problem = f"variable `SPDL_JOB_FILES` is `{files}`, which neither `spdl-run` nor `spdl-ctl dev` has set"
        raise SettingError(problem, "unset it") from None


def has_start() -> bool:
    """Returns whether the environment says where to start."""
    return bool(os.environ.get("SPDL_START", "").strip())


def cache_folder() -> str:
    """Returns the folder for what can be made again: `spdl-cluster` in `XDG_CACHE_HOME` or in `~/.cache`."""
    caches = os.environ.get("XDG_CACHE_HOME", "")
    return os.path.join(caches if os.path.isabs(caches) else os.path.expanduser("~/.cache"), "spdl-cluster")


def local_world() -> int:
    """Returns the number of ranks on this node: `LOCAL_WORLD_SIZE` as torchrun sets it, or 1."""
    return max(1, _number("LOCAL_WORLD_SIZE") or 1)


def device_name(device: Any) -> str:
    """Returns `cpu`, `cuda:N` or `cuda` for a device that is given as a text, a number, or a `torch.device`; imports no
    torch.

    `cuda` without a number is torch's current device if the program already uses CUDA with torch: then the model is
    there, too. Otherwise the native half chooses the device by the variables of the launcher, and refuses where several
    ranks would get the same one.
    """
    if device is None:
        return "cpu"
    if isinstance(device, int) and not isinstance(device, bool):
        return f"cuda:{device}"
    name = str(device)
    if name != "cuda":
        return "cpu" if name == "cpu:0" else name
    torch = sys.modules.get("torch")
    # `torch.cuda.set_device` initialises CUDA, too.
    if torch is not None and torch.cuda.is_initialized():
        return f"cuda:{torch.cuda.current_device()}"
    return name


def _number(name: str) -> int | None:
    text = os.environ.get(name, "").strip()
    if not text:
        return None
    try:
        return int(text)
    except ValueError:
        raise SettingError(f"variable `{name}` is `{text}`, not a whole number") from None
