"""The command line of `spdl-run`."""

from __future__ import annotations

import argparse
import dataclasses
import pathlib
import sys
from collections.abc import Sequence

from .._native import __version__

_DESCRIPTION = """Runs a training with everything that its loaders need: starts a coordinator on the first node and a worker on each,
makes certificates, submits the jobs, and runs the command, in which `spdl_cluster.connect()` needs no settings. When the command
ends, so does the rest."""

_EPILOG = """examples:
  spdl-run --job train.toml -- torchrun --nproc-per-node 2 train.py
  srun --ntasks-per-node=1 spdl-run --job train.toml -- torchrun --nnodes 2 ... train.py

Other nodes are found by the variables of SLURM, torchrun (PET_*), Kubeflow, SkyPilot, Ray Train, Open MPI or PMI, or by
--node-rank and --nodes. They get their certificates through a folder that all nodes share and only this user can read."""


@dataclasses.dataclass(frozen=True)
class Options:
    """What the command line says."""

    command: list[str]
    jobs: list[pathlib.Path]
    shared: pathlib.Path | None
    index: int | None
    count: int | None
    launch: str | None
    address: str | None
    cores: str | None
    memory: str | None
    cache_dir: pathlib.Path | None
    allow_transforms: bool
    worker_arguments: list[str]
    coordinator_arguments: list[str]
    state: pathlib.Path | None
    logs: pathlib.Path | None
    http: str
    start_timeout_s: float
    nodes_timeout_s: float
    is_quiet: bool


def read(arguments: Sequence[str] | None = None) -> Options:
    """Reads the command line; ends the process with a usage error if it is wrong."""
    parser = _parser()
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    # argparse would take the options of the command for its own.
    own, command = _split(arguments)
    found = parser.parse_args(own)
    command = [*found.command, *command]
    if not command:
        parser.error("no command: write it after `--`, as in `spdl-run --job train.toml -- torchrun train.py`")
    values = {**vars(found), "command": command}
    return Options(**{field.name: values[field.name] for field in dataclasses.fields(Options)})


def _split(arguments: list[str]) -> tuple[list[str], list[str]]:
    if "--" not in arguments:
        return arguments, []
    at = arguments.index("--")
    return arguments[:at], arguments[at + 1 :]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="spdl-run",
        usage="spdl-run --job JOB.toml [options] -- COMMAND [ARGUMENT ...]",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--version", action="version", version=__version__)
    add("command", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    add("--job", dest="jobs", metavar="FILE", type=pathlib.Path, action="append", default=[], help="job file; may be repeated")
    servers = parser.add_argument_group("servers")
    add = servers.add_argument
    add("--cores", metavar="N|N%", help="cores of each worker, or a share of its node's; default 40%%")
    add("--memory", metavar="SIZE", help="memory of each worker for slots and cached data; default 1GiB")
    add("--cache-dir", metavar="DIR", type=pathlib.Path, help="folder in which each worker caches data of a remote store")
    add("--allow-transforms", action="store_true", help="let workers call the Python functions that jobs name, with this Python")
    add("--worker-arg", dest="worker_arguments", metavar="ARG", action="append", default=[], help="another argument of `spdl-ctl worker`")
    add("--coord-arg", dest="coordinator_arguments", metavar="ARG", action="append", default=[], help="another of `spdl-ctl coord`")
    add("--http", metavar="ADDRESS", default="127.0.0.1:0", help="address of the coordinator's page; default: any free port of loopback")
    add("--state", metavar="DIR", type=pathlib.Path, help="keep the coordinator's state here, for launches that resume; default: drop it")
    add("--log-dir", dest="logs", metavar="DIR", type=pathlib.Path, help="keep the servers' logs here; default: drop them")
    add("--start-timeout", dest="start_timeout_s", metavar="S", type=float, default=60.0, help="for a server's start; default 60")
    add("-q", "--quiet", dest="is_quiet", action="store_true", help="print errors only")
    nodes = parser.add_argument_group("nodes")
    add = nodes.add_argument
    add("--shared", metavar="DIR", type=pathlib.Path, help="folder that all nodes share; default: SPDL_SHARED, or where SLURM's job was submitted")
    add("--node-rank", dest="index", metavar="N", type=int, help="number of this node, from 0")
    add("--nodes", dest="count", metavar="N", type=int, help="number of nodes")
    add("--launch-id", dest="launch", metavar="ID", help="name of this launch, the same on all nodes and of no other launch")
    add("--address", metavar="HOST", help="address at which the other nodes reach this one")
    add("--nodes-timeout", dest="nodes_timeout_s", metavar="S", type=float, default=600.0, help="for the first node; default 600")
    return parser
