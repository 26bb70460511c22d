"""How many commands and seconds it takes from a folder of pictures to the first batch, here and with other loaders.

usage: python benches/start/main.py [--pictures N] [--rounds N]

Needs this package (`pip install --config-settings profile=release ./python`), pytest, torch and torchvision, and what is to be measured of Ray (`ray[train]`), SLURM (Debian's slurm-wlm), mosaicml-streaming and the
pods of a JobSet (root, namespaces, and the programs of `cargo build --release --workspace --bins`); what is missing is left out. Prints, for each way, the commands after the installation and the seconds from the first command to the first batch of the
last rank: the least and the most of the rounds.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.append(str(ROOT / "tests/python"))

import slurm  # noqa: E402
from spdl_cluster import program  # noqa: E402

LIMIT_S = 120.0
#: The programs of the image that pods run.
SERVERS = ROOT / "target/release"
#: What each rank prints.
FIRST = re.compile(r"first batch of rank (\d+)")
#: Of each worker.
BUDGET = ("--cores", "1", "--memory", "512MiB")
PACK = ("spdl-ctl", "pack", "photos", "dataset", "--json")
TORCHRUN = ("python", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")


class Way(NamedTuple):
    """A way from a folder of pictures to batches."""

    loader: str
    place: str
    #: The number of commands, on one node or on each of several.
    commands: int
    #: Goes the way once, in a folder with the pictures. Returns the seconds.
    go: Callable[[pathlib.Path], float]
    #: What it needs besides torch, if that may be missing.
    needs: str | None = None


def ways() -> list[Way]:
    """Returns all ways."""
    return [
        Way("spdl-cluster", "one process", 1, in_turn(("python", "local.py"))),
        Way("spdl-cluster", "one node, two ranks", 2, in_turn(PACK, launcher("--standalone", "--nproc-per-node=2"), ranks=2)),
        Way("spdl-cluster", "one node, servers that go on", 3, with_servers_that_go_on),
        Way("spdl-cluster", "two nodes", 2, on_two_nodes),
        Way("spdl-cluster", "SLURM, two nodes", 2, under_slurm, "slurm"),
        Way("spdl-cluster", "Ray, two ranks", 2, under_ray, "ray"),
        Way("spdl-cluster", "Kubernetes, a JobSet's pods", 3, in_pods, "pods"),
        Way("PyTorch DataLoader", "one process", 1, in_turn(("python", "data_loader.py"))),
        Way("PyTorch DataLoader", "one node, two ranks", 1, in_turn((*TORCHRUN, "data_loader.py"), ranks=2)),
        Way("MosaicML Streaming", "one process", 2, in_turn(("python", "convert.py"), ("python", "mosaic.py")), "streaming"),
        Way("MosaicML Streaming", "one node, two ranks", 2, in_turn(("python", "convert.py"), (*TORCHRUN, "mosaic.py"), ranks=2), "streaming"),
    ]


def launcher(*torchrun: str) -> tuple[str, ...]:
    return ("spdl-run", *BUDGET, "--job", "train.toml", "--", "torchrun", *torchrun, "train.py")


def in_turn(*commands: tuple[str, ...], ranks: int = 1) -> Callable[[pathlib.Path], float]:
    """Returns what runs commands one after another, of which the last one trains."""

    def go(folder: pathlib.Path) -> float:
        begin = time.monotonic()
        for command in commands[:-1]:
            read(start(folder, *command))
        return first_batch([start(folder, *commands[-1])], ranks) - begin

    return go


def with_servers_that_go_on(folder: pathlib.Path) -> float:
    """Trains with the servers of `spdl-ctl dev up`, whose variables a shell reads."""
    begin = time.monotonic()
    read(start(folder, *PACK))
    home = {"XDG_RUNTIME_DIR": str(folder)}
    try:
        servers = " ".join(("spdl-ctl dev up train.toml", *BUDGET))
        return first_batch([start(folder, "sh", "-c", f'eval "$({servers})" && python train.py', **home)], 1) - begin
    finally:
        read(start(folder, "spdl-ctl", "dev", "down", **home))


def on_two_nodes(folder: pathlib.Path) -> float:
    """Trains with a launcher for each of two nodes, which are this machine."""
    begin = time.monotonic()
    read(start(folder, *PACK))
    nodes = ("--nodes", "2", "--launch-id", folder.name, "--shared", str(folder), "--address", "127.0.0.1")
    commands = (
        ("spdl-run", *BUDGET, *nodes, "--node-rank", str(node), "--job", "train.toml", "--", "python", "train.py") for node in range(2)
    )
    launchers = [start(folder, *command, RANK=str(node), WORLD_SIZE="2") for node, command in enumerate(commands)]
    return first_batch(launchers, 2) - begin


def under_slurm(folder: pathlib.Path) -> float:
    """Trains with the batch script of the examples, on a cluster that is there."""
    home = folder / "slurm"
    home.mkdir()
    cluster = slurm.Slurm(home)
    try:
        begin = time.monotonic()
        read(start(folder, *PACK))
        variables = {"SPDL_SHARED": str(folder), "GPUS_PER_NODE": "1", "SPDL_WORKER_CORES": BUDGET[1], "SPDL_WORKER_MEMORY": BUDGET[3]}
        output = folder / "output"
        script = ROOT / "examples/slurm/train.sbatch"
        path = f"{programs()}{os.pathsep}{slurm.PATH}"
        command = ("sbatch", f"--output={output}", str(script), "train.toml", "train.py")
        read(start(folder, *command, **{**cluster.environment, **variables, "PATH": path}))
        while not output.exists() or len(set(FIRST.findall(output.read_text()))) < 2:
            if time.monotonic() > begin + LIMIT_S:
                raise RuntimeError(output.read_text() if output.exists() else "SLURM has not started the job")
            time.sleep(0.02)
        seconds = time.monotonic() - begin
        cluster.wait_for_jobs()
        return seconds
    finally:
        cluster.stop()


def under_ray(folder: pathlib.Path) -> float:
    """Trains with Ray Train, on a cluster of two nodes that is there."""
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 2, "object_store_memory": 80 << 20, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        cluster.add_node(num_cpus=2, object_store_memory=80 << 20)
        begin = time.monotonic()
        read(start(folder, *PACK))
        return first_batch([start(folder, "python", "with_ray.py", RAY_ADDRESS=cluster.address)], 2) - begin
    finally:
        cluster.shutdown()


def in_pods(folder: pathlib.Path) -> float:
    """Trains with the pods of the JobSet, which are processes of this machine."""
    script = (sys.executable, str(ROOT / "k8s/kubelet.py"), str(SERVERS), str(folder / "photos"))
    [(_, seconds)] = read(start(folder, *script))
    return float(seconds)


def programs() -> str:
    """Returns the folders of this Python's programs and of this package's."""
    return f"{pathlib.Path(sys.executable).parent}{os.pathsep}{pathlib.Path(program.path()).parent}"


def start(folder: pathlib.Path, *command: str, **variables: str) -> subprocess.Popen[str]:
    """Starts a command."""
    environment = {**os.environ, "PATH": f"{programs()}{os.pathsep}{os.environ['PATH']}", "OMP_NUM_THREADS": "1", **variables}
    return subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def read(process: subprocess.Popen[str]) -> list[tuple[float, str]]:
    """Runs a command to its end. Returns its lines, and when they came."""
    assert process.stdout is not None
    lines = [(time.monotonic(), line) for line in process.stdout]
    if process.wait() != 0:
        raise RuntimeError(f"{process.args} ended with {process.returncode}\n{''.join(line for _, line in lines)}")
    return lines


def first_batch(processes: list[subprocess.Popen[str]], ranks: int) -> float:
    """Returns when the last rank had its first batch, after the end of all processes."""
    with ThreadPoolExecutor(len(processes)) as threads:
        lines = [line for found in threads.map(read, processes) for line in found]
    moments: dict[str, float] = {}
    for moment, line in sorted(lines):
        for rank in FIRST.findall(line):
            moments.setdefault(rank, moment)
    if len(moments) != ranks:
        raise RuntimeError(f"{len(moments)} of {ranks} ranks had a batch\n{''.join(line for _, line in lines)}")
    return max(moments.values())


@contextlib.contextmanager
def fresh(photos: pathlib.Path) -> Iterator[pathlib.Path]:
    """Makes a folder with the pictures and the scripts, and nothing else."""
    with tempfile.TemporaryDirectory(prefix="start-") as folder:
        home = pathlib.Path(folder)
        (home / "photos").symlink_to(photos)
        for script in (HERE / "ways").iterdir():
            shutil.copy(script, home)
        yield home


def is_there(needs: str | None) -> bool:
    """Returns whether what a way needs is installed."""
    match needs:
        case None:
            return True
        case "slurm":
            return slurm.missing() is None
        case "pods":
            return os.getuid() == 0 and (SERVERS / "spdl-coord").exists()
        case _:
            return importlib.util.find_spec(needs) is not None


def main() -> None:
    """Measures all ways, and prints the table of docs/guide/start.md."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pictures", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="photos-") as photos:
        subprocess.run([program.path(), "pictures", photos, "--count", str(arguments.pictures)], check=True, stdout=subprocess.DEVNULL)
        print("| loader | where | commands | seconds |\n|---|---|---|---|")
        for way in ways():
            if not is_there(way.needs):
                print(f"{way.loader}, {way.place}: left out, `{way.needs}` is not installed", file=sys.stderr)
                continue
            seconds = []
            for _ in range(arguments.rounds):
                with fresh(pathlib.Path(photos)) as folder:
                    seconds.append(way.go(folder))
            print(f"| {way.loader} | {way.place} | {way.commands} | {min(seconds):.1f} to {max(seconds):.1f} |", flush=True)


if __name__ == "__main__":
    main()
