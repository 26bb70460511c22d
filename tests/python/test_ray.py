"""Training with Ray Train on a real Ray cluster: several raylets on this machine, one of which is killed."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from conftest import LIMIT_S, LazyModule, MakeJob, ctl, ctl_json, files, needs
from spdl_cluster.run.errors import LaunchError

# Ray runs its workers at the lowest priority but a few, so that on a busy machine they get no time.
os.environ.setdefault("RAY_worker_niceness", "0")
needs("ray", os.environ.get("SPDL_TEST_NO_FRAMEWORKS"))
needs("torch", os.environ.get("SPDL_TEST_NO_TORCH"))

ray: Any = LazyModule("ray")
torch: Any = LazyModule("torch")
if TYPE_CHECKING:
    import spdl_cluster.ray as of_ray
else:
    of_ray = LazyModule("spdl_cluster.ray")

#: Raylets of two clusters on one machine would take each other's time, and those that are late count as lost. A test takes two minutes.
pytestmark = [pytest.mark.xdist_group("ray"), pytest.mark.drawn(1, group="tests of Ray")]

EPOCHS = 2
#: Steps after each of which a checkpoint is reported, and the step after which a training waits.
EVERY, STOP = 6, 8
#: Ray takes a node for dead a second after its raylet was killed, and not because it answers late on a busy machine.
SOON_DEAD = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 500, "health_check_failure_threshold": 2, "health_check_timeout_ms": 30000}
#: The object store of each node.
STORE_BYTES = 80 << 20


class Raylets:
    """A Ray cluster on this machine."""

    def __init__(self, count: int) -> None:
        from ray.cluster_utils import Cluster

        head = {"num_cpus": 3, "object_store_memory": STORE_BYTES, "include_dashboard": False, "_system_config": SOON_DEAD}
        self.cluster = Cluster(initialize_head=True, head_node_args=head)
        self.others = [self.cluster.add_node(num_cpus=3, object_store_memory=STORE_BYTES) for _ in range(count - 1)]
        ray.init(address=self.cluster.address, log_to_driver=False)

    def stop(self) -> None:
        ray.shutdown()
        self.cluster.shutdown()


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[pathlib.Path]:
    """The folder for temporary files of all processes of Ray. It has a short name, as Ray's sockets need it."""
    with tempfile.TemporaryDirectory(prefix="ray-") as folder:
        monkeypatch.setenv("TMPDIR", folder)
        monkeypatch.setenv("PYTHONPATH", os.path.dirname(__file__))
        monkeypatch.setattr(tempfile, "tempdir", None)
        yield pathlib.Path(folder)


@pytest.fixture
def raylets(temporary: pathlib.Path, request: pytest.FixtureRequest) -> Iterator[Raylets]:
    """As many raylets as the test's parameter is."""
    raylets = Raylets(request.param)
    yield raylets
    raylets.stop()


def train(config: dict[str, Any]) -> None:
    """Trains a rank of Ray Train, and reports a checkpoint after every sixth step. Before the tenth step it waits for the file `waits`, if there is one."""
    shard = config["cluster"].get_dataset_shard("train")
    context = ray.train.get_context()
    rank, world = context.get_world_rank(), context.get_world_size()
    checkpoint = ray.train.get_checkpoint()
    if checkpoint is not None:
        with checkpoint.as_directory() as saved:
            shard.load_state_dict(json.loads(pathlib.Path(saved, "state.json").read_text()))
    assert (shard.loader.rank, shard.loader.world) == (rank, world)
    trace = open(pathlib.Path(config["folder"], f"{time.time_ns()}-{rank}-of-{world}.jsonl"), "w")
    print(json.dumps({"start": list(shard.loader.start.position), "node": ray.get_runtime_context().get_node_id()}), file=trace, flush=True)
    step = 0
    for _ in range(shard.loader.epoch, EPOCHS):
        for batch in shard.iter_torch_batches(dtypes={"image": torch.float32}):
            step += 1
            mean = batch["image"].mean()
            torch.distributed.all_reduce(mean)
            line = {"samples": batch.samples, "next": list(batch.next_position), "receipt": shard.loader.receipt}
            print(json.dumps(line), file=trace, flush=True)
            while step == STOP and config["waits"] and not os.path.exists(config["waits"]):
                time.sleep(0.05)
            if step % EVERY == 0:
                with tempfile.TemporaryDirectory() as folder:
                    pathlib.Path(folder, "state.json").write_text(json.dumps(shard.state_dict()))
                    ray.train.report({}, checkpoint=ray.train.Checkpoint.from_directory(folder) if rank == 0 else None)


class Training:
    """A run of Ray Train on two ranks."""

    def __init__(self, cluster: of_ray.RayCluster, folder: pathlib.Path, waits: pathlib.Path | None = None) -> None:
        from ray.train.torch import TorchConfig, TorchTrainer

        self.traces = folder / "traces"
        self.traces.mkdir()
        self._storage = folder / "storage"
        self._waits = waits
        config = {"cluster": cluster, "folder": str(self.traces), "waits": str(waits or "")}
        self._trainer = TorchTrainer(
            train,
            train_loop_config=config,
            torch_config=TorchConfig(backend="gloo"),
            scaling_config=ray.train.ScalingConfig(num_workers=2, resources_per_worker={"CPU": 2}, placement_strategy="SPREAD"),
            run_config=ray.train.RunConfig(storage_path=str(self._storage), failure_config=ray.train.FailureConfig(max_failures=2)),
        )

    def run(self) -> list[list[list[dict[str, Any]]]]:
        """Trains to the end. Returns the lines that each rank of each launch has written."""
        self._trainer.fit()
        return self.launches()

    def launches(self) -> list[list[list[dict[str, Any]]]]:
        """Returns the lines of each rank of each launch so far."""
        texts = [path.read_text().splitlines(keepends=True) for path in sorted(self.traces.iterdir())]
        ranks = [[json.loads(line) for line in lines if line.endswith("\n")] for lines in texts]
        return [ranks[at : at + 2] for at in range(0, len(ranks), 2)]

    def wait_for_checkpoint(self) -> list[list[dict[str, Any]]]:
        """Waits until both ranks of the first launch wait and Ray knows of a checkpoint, and returns their lines."""
        deadline = time.monotonic() + LIMIT_S
        while True:
            found = self.launches()
            has_steps = found and len(found[0]) == 2 and min(map(len, found[0])) > STOP
            if has_steps and any(self._storage.glob("*/checkpoint_manager_snapshot.json")):
                return found[0]
            if time.monotonic() > deadline:
                if self._waits is not None:
                    # Otherwise the ranks wait for ever.
                    self._waits.touch()
                raise AssertionError(found)
            time.sleep(0.1)


def processes(folder: pathlib.Path) -> list[int]:
    """Returns the servers whose files are in this folder."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = path.read_bytes()
        except OSError:
            continue
        if b"--die-with-parent" in command and os.fsencode(folder) in command:
            found.append(int(path.parent.name))
    return found


def left(folder: pathlib.Path) -> list[str]:
    return [name for name in os.listdir(folder) if name.startswith("spdl")]


@pytest.mark.parametrize("raylets", [2], indirect=True)
def test_two_nodes_train_every_sample_once_although_servers_are_killed(
    raylets: Raylets, job: MakeJob, job_file: Callable[[dict[str, Any]], pathlib.Path], temporary: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    made, go = job_file(job(name="train", epochs=EPOCHS, epoch_end="exact")), tmp_path / "go"
    with pytest.raises(LaunchError, match=r"has not found 4 free CPUs on each of 2 nodes within 1 s; the nodes have 3, 3 CPUs"):
        of_ray.start([made], cores=4, timeout=1.0)
    with pytest.raises(LaunchError, match=r"job `none` was not accepted: .*dataset"):
        of_ray.start([job(name="none", dataset=tmp_path / "none")], cores=1, memory="256MiB")
    with pytest.raises(LaunchError, match=r"worker-\w+ ended with exit code 2; it wrote:\n(.|\n)*--no-such-flag"):
        of_ray.start([made], cores=1, worker_arguments=["--no-such-flag"])
    assert left(temporary) == [] and processes(temporary) == []
    with of_ray.start([made], cores=1, memory="256MiB") as cluster:
        assert cluster.jobs == ["train"]
        # Not in Ray Train, so that rank and world are those that are given.
        apart = cluster.get_dataset_shard(rank=1, world=2, run="apart")
        assert len(next(iter(apart.iter_torch_batches(batch_size=6, device="cpu")))["label"]) == 6
        apart.close()
        assert "SPDL_LAUNCH_ID" not in os.environ, "what connects to another cluster is of another launch"
        servers = processes(temporary)
        assert len(servers) == 3, "a coordinator and two workers"
        training = Training(cluster, tmp_path, go)

        def kill_servers() -> None:
            training.wait_for_checkpoint()
            for pid in servers:
                os.kill(pid, signal.SIGKILL)
            go.touch()

        with ThreadPoolExecutor(1) as threads:
            killed = threads.submit(kill_servers)
            [ranks] = training.run()
            killed.result()
        assert [rank[0]["start"] for rank in ranks] == [[0, 0], [0, 0]]
        assert len({rank[0]["node"] for rank in ranks}) == 2
        audited = [word for rank in ranks for word in ("--receipt", rank[-1]["receipt"])]
        assert ctl_json("audit", made, *audited)["equal"]
        again = processes(temporary)
        assert len(again) == 3 and not set(again) & set(servers)
    assert left(temporary) == [] and processes(temporary) == []


@pytest.mark.parametrize("raylets", [2], indirect=True)
def test_the_example_packs_a_dataset_in_tasks(raylets: Raylets, tmp_path: pathlib.Path) -> None:
    source, parts, whole = tmp_path / "pictures", tmp_path / "parts", tmp_path / "whole"
    ctl("pictures", source, "--count", 60, "--seed", 3, "--quiet")
    options = ("--name", "set", "--records-per-shard", "3", "--crop-ready")
    program = pathlib.Path(__file__).parents[2] / "python/examples/pack_with_ray.py"
    # A part that is there already, as after a run that was killed.
    ctl("pack", source, parts, "--part", "1/4", *options)
    command = [sys.executable, program, source, parts, "--parts", "4", "--cpus", "3", *options]
    environment = {**os.environ, "RAY_ADDRESS": raylets.cluster.address}
    done = subprocess.run([*map(str, command)], env=environment, capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "part 1 of 4: 5 shards, 5 of them packed before" in done.stdout, done.stdout
    ctl("pack", source, whole, *options)
    assert files(parts) == files(whole)
    texts, tokens = tmp_path / "texts.jsonl", [tmp_path / "tokens-in-parts", tmp_path / "tokens"]
    texts.write_text("".join(json.dumps({"text": f"text {number} " * 40}) + "\n" for number in range(200)))
    tokenizer = pathlib.Path(__file__).parents[2] / "crates/text/tests/data/tokenizer.json"
    of_text = ("--name", "set", "--tokenizer", tokenizer, "--unit-size", "8KiB", "--shard-size", "16KiB")
    command = [sys.executable, program, texts, tokens[0], "--parts", "3", "--cpus", "2", "--tokenize", *of_text]
    done = subprocess.run([*map(str, command)], env=environment, capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 0, done.stdout + done.stderr
    ctl("tokenize", texts, tokens[1], *of_text)
    assert files(tokens[0]) == files(tokens[1])


@pytest.mark.parametrize("raylets", [3], indirect=True)
def test_a_lost_node_loses_no_sample_and_repeats_none(
    raylets: Raylets, job: MakeJob, job_file: Callable[[dict[str, Any]], pathlib.Path], temporary: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    made = job(name="train", epochs=EPOCHS, epoch_end="exact")
    with of_ray.start([made], cores=1, memory="256MiB") as cluster:
        training = Training(cluster, tmp_path, tmp_path / "never")

        def kill_node() -> str:
            nodes = {rank[0]["node"] for rank in training.wait_for_checkpoint()}
            lost = next(node for node in raylets.others if node.node_id in nodes)
            (tmp_path / "never").touch()
            raylets.cluster.remove_node(lost, allow_graceful=False)
            return str(lost.node_id)

        with ThreadPoolExecutor(1) as threads:
            killed = threads.submit(kill_node)
            first, *_, last = training.run()
            lost = killed.result()
    start = last[0][0]["start"]
    assert start == last[1][0]["start"] and start > [0, 0], "the newest checkpoint"
    # Steps after the checkpoint are trained again; the receipts before it and after it add up to the plan's.
    saved = [next(line["receipt"] for line in rank[1:] if line["next"] == start) for rank in first]
    audited = [word for receipt in [*saved, *(rank[-1]["receipt"] for rank in last)] for word in ("--receipt", receipt)]
    assert ctl_json("audit", job_file(made), *audited)["equal"]
    assert all(lost.startswith(name.rpartition("-")[2]) for name in left(temporary)), "what was on the lost node is its own"
