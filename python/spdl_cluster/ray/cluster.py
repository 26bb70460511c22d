"""The servers of a launch in a Ray cluster, and the loaders of Ray's processes."""

from __future__ import annotations

import atexit
import logging
import math
import os
import secrets
import weakref
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

import ray
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy

from .. import environment, functions
from ..errors import SettingError
from ..functions import AnyJob
from ..loader import Loader
from ..opening import connect
from ..run.errors import LaunchError
from ..run.folders import PrivateFolder, private_path
from .servers import CLIENT, CoordinatorActor, WorkerActor, folder_name, keep_certificates
from .shard import DatasetShard

_logger = logging.getLogger(__name__)
#: The share of a node's CPUs that its worker gets by default: that of the worker itself.
_SHARE = 0.4
#: For servers that end, and for the coordinator's actor to answer.
_STOP_S, _CALL_S = 10.0, 60.0

#: The folders with certificates that this process has made, by launch. They are removed when it ends, or else by the next launch on its node.
_folders: dict[str, PrivateFolder] = {}


class RayCluster:
    """A coordinator and workers that Ray keeps up, and the jobs that they serve. Made by `start`.

    It can be used in every process of the Ray cluster: a function of Ray Train may refer to it. What `start` returned ends the servers, when it
    is closed or when its program ends.
    """

    def __init__(self, launch: str, address: str, jobs: Mapping[str, str]) -> None:
        """Not for callers: use `start`."""
        #: Also the name of the coordinator's actor.
        self._launch, self._jobs = launch, dict(jobs)
        #: `HOST:PORT` of the coordinator.
        self.address = address
        self._end: weakref.finalize[[Sequence[Any], Any], RayCluster] | None = None

    @property
    def jobs(self) -> list[str]:
        """The names of the jobs."""
        return list(self._jobs.values())

    def connect(self, job: AnyJob | None = None, rank: int | None = None, world: int | None = None, **settings: Any) -> Loader:
        """Returns the loader of a rank, in a process of Ray.

        job: the name, the file or the dict of one of the jobs; by default the only one.
        rank, world: by default those of Ray Train's worker, and otherwise as for `spdl_cluster.connect`.
        settings: further settings of `spdl_cluster.connect`.
        """
        found = _of_ray_train()
        rank, world = _ranks(found, rank, world)
        # Ray Train starts its workers again after a failure. They belong to the same launch, and so take over.
        if not os.environ.get("SPDL_LAUNCH_ID"):
            settings.setdefault("launch", self._launch if found is None else f"{self._launch}-{found.get_experiment_name()}")
        node = settings.pop("node", None) or ray.get_runtime_context().get_node_id()
        return connect(rank, world, job=self._name(job), coordinators=self.address, certs=self._certificates(), node=node, **settings)

    def get_dataset_shard(self, job: AnyJob | None = None, **settings: Any) -> DatasetShard:
        """Returns the batches of a rank with the method of Ray Data's iterators, `iter_torch_batches`. Takes what `connect` takes."""

        def world() -> int:
            return environment.Ranks(*_ranks(_of_ray_train(), settings.get("rank"), settings.get("world")))().world

        return DatasetShard(lambda **more: self.connect(job, **{**settings, **more}), world)

    def close(self) -> None:
        """Ends the servers and removes what they have left; in other processes it does nothing."""
        if self._end is not None:
            self._end()

    def __enter__(self) -> RayCluster:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()

    def __reduce__(self) -> tuple[type[RayCluster], tuple[Any, ...]]:
        return RayCluster, (self._launch, self.address, self._jobs)

    def __repr__(self) -> str:
        return f"<spdl_cluster.ray.RayCluster on {self.address} with jobs {', '.join(self.jobs)}>"

    def _name(self, job: AnyJob | None) -> str:
        if job is None:
            if len(self._jobs) != 1:
                raise SettingError(f"there are {len(self._jobs)} jobs: {', '.join(self.jobs)}", "name one of them")
            return self.jobs[0]
        given = _shown(job)
        of_file = {name for shown, name in self._jobs.items() if given in (shown, os.path.basename(shown))}
        found = {given} & set(self.jobs) or of_file
        if len(found) != 1:
            raise SettingError(f"`{given}` is none of the jobs {', '.join(self.jobs)}", "give a job's name, or its file as `start` got it")
        return found.pop()

    def _certificates(self) -> str:
        """Returns a folder with a client's certificate: that of this node's worker, or else one of this process."""
        of_worker = private_path(folder_name(self._launch, ray.get_runtime_context().get_node_id())) / CLIENT
        if os.access(of_worker / "key.pem", os.R_OK):
            return str(of_worker)
        if self._launch not in _folders:
            folder = _folders[self._launch] = PrivateFolder()
            atexit.register(folder.remove)
            keep_certificates(self._launch, folder.path, _CALL_S)
        return str(_folders[self._launch].path / CLIENT)


def start(
    jobs: Sequence[AnyJob],
    *,
    nodes: int | None = None,
    cores: int | None = None,
    memory: str | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
    allow_transforms: bool = False,
    worker_arguments: Sequence[str] = (),
    coordinator_arguments: Sequence[str] = (),
    http: str = "127.0.0.1:0",
    timeout: float = 60.0,
) -> RayCluster:
    """Starts a coordinator on the head of a Ray cluster and a worker on each node, and submits the jobs.

    jobs: paths of job files, or dicts with the same keys.
    nodes: the number of nodes that get a worker. Default: all that have CPUs.
    cores: CPUs that Ray reserves on each of these nodes for the worker, which uses as many. Default: 40 % of those of the smallest node, at least one.
    memory: memory of each worker for slots and cached data, such as `"8GiB"`. Default 1 GiB.
    cache_dir: folder in which each worker caches data of a remote store.
    allow_transforms: let workers call the Python functions that jobs name, with the Python of Ray's processes.
    worker_arguments, coordinator_arguments: further arguments of `spdl-ctl worker` and `spdl-ctl coord`.
    http: address of the coordinator's page on the head. Default: any free port of loopback.
    timeout: seconds in which Ray has to have the CPUs, and then each server to be ready.

    If a node is lost, its ranks are served by the other workers; a node that takes its place gets a worker. A server that ends by itself is started again.
    The certificates travel as arguments of Ray's calls, which Ray encrypts only if it is set up for TLS.

    Raises `LaunchError` if Ray has not enough free CPUs, a server does not start, or a job is not accepted.
    """
    texts = {_shown(job): functions.job_text(job) for job in jobs}
    if not texts:
        raise SettingError("there is no job", "give one job file at least")
    if not ray.is_initialized():
        ray.init()
    there = [node for node in ray.nodes() if node["Alive"]]
    sizes = sorted((node["Resources"].get("CPU", 0.0) for node in there), reverse=True)
    count = nodes if nodes is not None else sum(size >= 1 for size in sizes)
    if not 1 <= count <= len(there):
        raise SettingError(f"{count} nodes are to have a worker, of {len(there)} of the Ray cluster, {sum(size >= 1 for size in sizes)} with CPUs", "set `nodes`")
    share = cores if cores is not None else max(1, math.floor(_SHARE * sizes[count - 1]))
    options = ["--cores", str(share)]
    for flag, value in (("--memory", memory), ("--cache-dir", cache_dir)):
        options += [flag, os.fspath(value)] if value is not None else []

    group = placement_group([{"CPU": share}] * count, strategy="STRICT_SPREAD")
    launch = f"ray-{secrets.token_hex(6)}"
    actors: list[Any] = []
    try:
        if not group.wait(timeout):
            raise LaunchError(
                f"Ray has not found {share} free CPUs on each of {count} nodes within {timeout:g} s; the nodes have {', '.join(f'{size:g}' for size in sizes)} CPUs",
                "give fewer `cores` or `nodes`, or start before the trainers",
            )
        head = next((node["NodeID"] for node in there if "node:__internal_head__" in node["Resources"]), there[0]["NodeID"])
        on_head = NodeAffinitySchedulingStrategy(node_id=head, soft=False)
        keep: dict[str, Any] = {"max_restarts": -1, "max_task_retries": -1, "num_gpus": 0}
        coordinator = ray.remote(CoordinatorActor).options(name=launch, num_cpus=0, scheduling_strategy=on_head, **keep).remote(
            launch, list(coordinator_arguments), http, timeout
        )
        actors.append(coordinator)
        address, page, admin = _get(coordinator.addresses.remote(), 2 * timeout)
        names = {shown: _get(coordinator.submit.remote(shown, text), 2 * timeout + 120.0) for shown, text in texts.items()}
        for bundle in range(count):
            place = PlacementGroupSchedulingStrategy(placement_group=group, placement_group_bundle_index=bundle)
            worker = ray.remote(WorkerActor).options(num_cpus=share, scheduling_strategy=place, **keep).remote(
                launch, [*options, *worker_arguments], allow_transforms, timeout
            )
            actors.append(worker)
        for worker in actors[1:]:
            _get(worker.node.remote(), 3 * timeout)
    except BaseException:
        _stop(actors, group)
        raise
    _logger.info("coordinator on %s, its page on http://%s; the state, on the head: spdl-ctl status --coord %s --certs %s", address, page, address, admin)
    cluster = RayCluster(launch, address, names)
    cluster._end = weakref.finalize(cluster, _stop, actors, group)
    return cluster


def _shown(job: AnyJob) -> str:
    plain = functions.plain(job)
    return str(plain.get("name", "job")) if isinstance(plain, dict) else os.fspath(plain)


def _get(call: Any, limit_s: float) -> Any:
    """Returns the result of an actor's call; the error of a server as it is, and not as Ray's with a trace."""
    try:
        return ray.get(call, timeout=limit_s)
    except ray.exceptions.GetTimeoutError:
        raise LaunchError(f"a server has not answered within {limit_s:g} s") from None
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, LaunchError):
            raise error.cause from None
        raise
    except ray.exceptions.ActorDiedError as error:
        raise LaunchError(f"a server could not be started: {error}") from None


def _stop(actors: Sequence[Any], group: Any) -> None:
    """Ends the servers: the workers first."""
    if not ray.is_initialized():
        return
    for some in (actors[1:], actors[:1]):
        if calls := [actor.stop.remote() for actor in some]:
            ray.wait(calls, num_returns=len(calls), timeout=_STOP_S)
        for actor in some:
            ray.kill(actor)
    remove_placement_group(group)


def _ranks(found: Any, rank: int | None, world: int | None) -> tuple[int | None, int | None]:
    """Returns the given rank and world, or those of the context of Ray Train's worker, if neither is given."""
    if found is not None and rank is None and world is None:
        return found.get_world_rank(), found.get_world_size()
    return rank, world


def _of_ray_train() -> Any:
    """Returns the context of Ray Train's worker if this process is one."""
    from ray.train import get_context

    try:
        context = get_context()
        return context if context.get_world_size() is not None else None
    except (RuntimeError, AttributeError):
        return None
