"""Where a launcher is among the launchers of one launch: pure functions of the environment's variables."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from ..errors import SettingError
from .hostlist import first_host

_ALONE = "give `--nodes 1` for a launch on this node alone"


@dataclasses.dataclass(frozen=True)
class Place:
    """One launcher of a launch. A launch has one for each node, or several, as `srun --ntasks-per-node=8` starts them."""

    #: Its number. The launcher with number 0 starts the coordinator.
    index: int = 0
    #: The number of launchers.
    count: int = 1
    #: Its number on its node. The launcher with number 0 there starts the node's worker.
    local_index: int = 0
    #: Whether all launchers are known to be on one node.
    is_one_node: bool = False
    #: The address of the first launcher's node, as far as the variables have it.
    head: str | None = None
    #: What all launchers of the launch, and no other, have as its name.
    launch: str | None = None
    #: The node's name, where the platform has one that differs from the host's.
    node: str | None = None
    #: A folder that all nodes share, where the user has named one.
    shared: str | None = None
    #: The folder from which the launch was submitted.
    folder: str | None = None
    #: The variables that say so, for messages.
    source: str = "no variable of a launcher"

    @property
    def is_first(self) -> bool:
        """Whether this launcher starts the coordinator."""
        return self.index == 0

    @property
    def has_worker(self) -> bool:
        """Whether this launcher starts its node's worker."""
        return self.local_index == 0


def place_of(environment: Mapping[str, str]) -> Place:
    """Returns the place that the variables of a platform give; without any, that of the only launcher.

    A program that MPI or Ray starts inside of SLURM has the variables of both. The inner ones count.
    """
    if environment.get("TORCHELASTIC_RUN_ID"):
        raise SettingError("torchrun has started this launcher", "start torchrun with the launcher: `spdl-run -- torchrun ...`")
    for find in (_indexed_nodes, _ranks, _openmpi, _pmi, _slurm):
        place = find(environment)
        if place is not None:
            return _checked(_named(place, environment))
    return _named(Place(), environment)


def with_options(place: Place, index: int | None, count: int | None, launch: str | None) -> Place:
    """Returns the place with what the command line says in place of the variables."""
    if index is not None or count is not None:
        place = dataclasses.replace(
            place,
            index=place.index if index is None else index,
            count=place.count if count is None else count,
            local_index=0 if index is not None else place.local_index,
            is_one_node=False,
            source="the command line",
        )
        if count == 1 and index is None:
            place = dataclasses.replace(place, index=0, local_index=0)
    if launch is not None:
        place = dataclasses.replace(place, launch=launch)
    return _checked(place)


def _named(place: Place, environment: Mapping[str, str]) -> Place:
    """Adds what users set themselves."""
    launch = environment.get("SPDL_LAUNCH_ID") or place.launch
    node, shared = environment.get("SPDL_NODE") or place.node, environment.get("SPDL_SHARED") or None
    return dataclasses.replace(place, launch=launch, node=node, shared=shared)


def _checked(place: Place) -> Place:
    if not 0 <= place.index < place.count:
        raise SettingError(
            f"launcher {place.index} is not one of {place.count}, and {place.source} has these numbers",
            "launchers have the numbers 0 to count - 1",
        )
    return place


def _indexed_nodes(environment: Mapping[str, str]) -> Place | None:
    """The variables of torchrun's own options, as Kubeflow sets them in each pod; those of a node's number that SkyPilot sets and
    scripts use; and the index of a pod in a Job or JobSet of Kubernetes."""
    address = "MASTER_ADDR"
    for index, count, head in (
        ("PET_NODE_RANK", "PET_NNODES", "PET_MASTER_ADDR"),
        ("SKYPILOT_NODE_RANK", "SKYPILOT_NUM_NODES", address),
        # Ray Train sets it too, beside the ranks' numbers, which count there.
        ("NODE_RANK", "NNODES", address),
        ("JOB_COMPLETION_INDEX", "NNODES", address),
    ):
        if environment.get(index) and environment.get(count):
            return Place(
                index=_number(environment, index),
                count=_number(environment, count),
                head=environment.get(head) or environment.get(address),
                launch=environment.get("PET_RDZV_ID") or environment.get("SKYPILOT_TASK_ID") or _meeting_point(environment),
                source=f"`{index}` and `{count}`",
            )
    return None


def _ranks(environment: Mapping[str, str]) -> Place | None:
    """`RANK` and `WORLD_SIZE` of each pod or process, as Kubeflow and Ray Train set them."""
    if not environment.get("RANK") or not environment.get("WORLD_SIZE"):
        return None
    return Place(
        index=_number(environment, "RANK"),
        count=_number(environment, "WORLD_SIZE"),
        local_index=_number(environment, "LOCAL_RANK") if environment.get("LOCAL_RANK") else 0,
        is_one_node=environment.get("LOCAL_WORLD_SIZE") == environment["WORLD_SIZE"],
        head=environment.get("MASTER_ADDR"),
        launch=_meeting_point(environment),
        source="`RANK` and `WORLD_SIZE`",
    )


def _openmpi(environment: Mapping[str, str]) -> Place | None:
    """The variables of Open MPI's `mpirun`."""
    if not environment.get("OMPI_COMM_WORLD_RANK"):
        return None
    return Place(
        index=_number(environment, "OMPI_COMM_WORLD_RANK"),
        count=_number(environment, "OMPI_COMM_WORLD_SIZE"),
        local_index=_number(environment, "OMPI_COMM_WORLD_LOCAL_RANK"),
        is_one_node=environment.get("OMPI_COMM_WORLD_LOCAL_SIZE") == environment["OMPI_COMM_WORLD_SIZE"],
        launch=environment.get("PMIX_NAMESPACE") or environment.get("OMPI_MCA_ess_base_jobid"),
        source="`OMPI_COMM_WORLD_RANK` and `OMPI_COMM_WORLD_SIZE`",
    )


def _pmi(environment: Mapping[str, str]) -> Place | None:
    """The variables of MPICH's and Intel's `mpirun`. Under SLURM's `srun` they are beside its own, which say more."""
    if not environment.get("PMI_RANK") or environment.get("SLURM_PROCID"):
        return None
    local = "MPI_LOCALRANKID" if environment.get("MPI_LOCALRANKID") else "PMI_LOCAL_RANK"
    count = _number(environment, "PMI_SIZE")
    return Place(
        index=_number(environment, "PMI_RANK"),
        count=count,
        local_index=_number(environment, local) if count > 1 else 0,
        source="`PMI_RANK` and `PMI_SIZE`",
    )


def _slurm(environment: Mapping[str, str]) -> Place | None:
    """The variables of a task of SLURM's `srun`, or of a batch script on one node."""
    job = environment.get("SLURM_JOB_ID")
    if not job:
        return None
    # A requeued job has the same number.
    launch = f"{job}-{environment.get('SLURM_RESTART_COUNT') or 0}"
    node, folder = environment.get("SLURMD_NODENAME"), environment.get("SLURM_SUBMIT_DIR")
    step = environment.get("SLURM_STEP_ID") or environment.get("SLURM_STEPID")
    if not step or not environment.get("SLURM_STEP_NUM_TASKS"):
        nodes = _number(environment, "SLURM_JOB_NUM_NODES") if environment.get("SLURM_JOB_NUM_NODES") else 1
        if nodes > 1:
            raise SettingError(
                f"`SLURM_JOB_NUM_NODES` is {nodes}, and `srun` did not start this launcher: there is no `SLURM_STEP_NUM_TASKS`",
                f"start one on each node with `srun --ntasks-per-node=1 spdl-run ...`, or {_ALONE}",
            )
        return Place(launch=launch, node=node, folder=folder, source="`SLURM_JOB_ID`")
    hosts = environment.get("SLURM_STEP_NODELIST") or environment.get("SLURM_JOB_NODELIST")
    return Place(
        index=_number(environment, "SLURM_PROCID"),
        count=_number(environment, "SLURM_STEP_NUM_TASKS"),
        local_index=_number(environment, "SLURM_LOCALID"),
        is_one_node=environment.get("SLURM_STEP_NUM_NODES") == "1",
        head=first_host(hosts) if hosts else None,
        launch=f"{launch}-{step}",
        node=node,
        folder=folder,
        source="`SLURM_PROCID` and `SLURM_STEP_NUM_TASKS`",
    )


def _meeting_point(environment: Mapping[str, str]) -> str | None:
    """Returns the address where the ranks meet, which differs between launches that go on at one time."""
    address, port = environment.get("MASTER_ADDR"), environment.get("MASTER_PORT")
    return f"{address}-{port}" if address and port else None


def _number(environment: Mapping[str, str], name: str) -> int:
    text = environment.get(name, "").strip()
    # torchrun takes a range of nodes, for launches that may grow.
    try:
        number = int(text)
    except ValueError:
        number = -1
    if number < 0:
        problem = f"variable `{name}` is `{text}`, not a whole number" if text else f"variable `{name}` is missing"
        raise SettingError(problem, "let the platform set it for each launcher, or give `--node-rank` and `--nodes`")
    return number
