"""Fixtures of the Python package's tests: a packed dataset, jobs on it, and real servers on loopback.

`SPDL_TEST_CTL` is the path of the `spdl-ctl` to use; `tests/python/run` sets it.
"""

from __future__ import annotations

import importlib.util
import json
import os
import pathlib
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import pytest
import spdl_cluster
import venv
from spdl_cluster.demo import pack_pictures
from spdl_cluster.tensors import Kind

pytest_plugins = ["forks", "cpu_times", "drawn"]
#: Time limit of each process and of each wait. Only what hangs reaches it: two ranks with torch take a minute to start on a busy machine.
LIMIT_S = 300.0
#: Time limit of each test, so that one that hangs says where.
TEST_LIMIT_S = 600
PICTURES = 200
#: The pictures of `uneven_dataset`: neither a multiple of 64 nor of 32, so that the last batch is short.
UNEVEN_PICTURES = 199

#: The variables of launchers that these tests themselves run under.
LAUNCHERS = [
    name
    for name in os.environ
    if name in ("RANK", "WORLD_SIZE", "LOCAL_RANK") or name.startswith(("SLURM_", "OMPI_", "PMI_", "MPI_", "MV2_"))
]

for name in [name for name in os.environ if name.startswith("SPDL_") and not name.startswith("SPDL_TEST_")]:
    del os.environ[name]


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Adds a skipped test to the list that CI prints, in the file that `SPDL_TEST_SKIPPED` names."""
    write_skipped(report)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """Adds a skipped file to that list."""
    write_skipped(report)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Fails where pytest-xdist would run the tests of a group side by side, as it does beside pytest 9.2."""
    alone = [item.nodeid for item in session.items if item.get_closest_marker("xdist_group") and "@" not in item.nodeid]
    if "PYTEST_XDIST_WORKER" in os.environ and alone:
        raise pytest.UsageError(f"pytest-xdist does not see that these are in a group: {', '.join(alone)}")


def write_skipped(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Writes the reason if a test or a file is skipped; pytest's main process has the reports of all others."""
    path = os.environ.get("SPDL_TEST_SKIPPED")
    if path and report.skipped and "PYTEST_XDIST_WORKER" not in os.environ:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        # One write, since other tests append to the file too.
        with open(path, "ab", buffering=0) as file:
            file.write(f"skipped: {report.nodeid}: {reason.removeprefix('Skipped: ')}\n".encode())


#: Of tests that import frameworks into pytest's own process, which takes 10 s of CPU time: one of its processes runs them.
FRAMEWORKS_HERE = pytest.mark.xdist_group("frameworks")


def needs(module: str, reason: str | None = None) -> None:
    """Skips the test where a module is not installed that only its processes import."""
    if importlib.util.find_spec(module.split(".")[0]) is None:
        pytest.skip(reason or f"{module} is not installed", allow_module_level=True)


class LazyModule:
    """A module that is imported when a test first uses it: each of pytest's processes reads all files of tests, and some modules take 5 s of CPU time.
    The test is skipped where the module is not installed."""

    def __init__(self, name: str, reason: str | None = None) -> None:
        self._name, self._reason = name, reason

    def __getattr__(self, attribute: str) -> Any:
        # pytest asks for some of these of all that a file has.
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        return getattr(pytest.importorskip(self._name, reason=self._reason, exc_type=ImportError), attribute)


def ctl(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Runs `spdl-ctl` to its end and asserts that it succeeded."""
    command = [os.environ["SPDL_TEST_CTL"], "--die-with-parent", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def ctl_json(*arguments: object) -> Any:
    """Runs `spdl-ctl` and returns the last line that it prints, as JSON."""
    return json.loads(ctl(*arguments, "--json").stdout.splitlines()[-1])


def files(folder: pathlib.Path) -> dict[str, bytes]:
    """Returns the files in a folder and in those below it, by their paths."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def run_python(code: str, *arguments: object, **variables: str) -> subprocess.Popen[str]:
    """Starts a new Python process that runs this code. Its standard input has no end until the test closes it."""
    command = [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)]
    pipe, environment = subprocess.PIPE, {**os.environ, **variables}
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=environment)


@pytest.fixture(scope="session")
def mypy_config(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Writes settings of mypy that are strict and do not follow imports of torch: checking its types would take half a minute and find no errors of ours.
    Tests that use it are in one group, so that what mypy has learned of Python's own types is kept for the next one."""
    folder = tmp_path_factory.mktemp("mypy")
    lines = ["[mypy]", "strict = True", f"cache_dir = {folder / 'cache'}"]
    lines += ["warn_unused_ignores = False", "disallow_subclassing_any = False"]
    modules = ["torch", "torchvision", "lightning", "torchmetrics", "timm", "accelerate", "transformers", "spdl", "ml_dtypes", "maturin", "ray", "tqdm", "webdataset"]
    for module in [*modules, "megatron", "torchtitan", "datasets", "trl", "tokenizers", "lhotse", "lerobot"]:
        lines += [f"[mypy-{module}.*]", "follow_imports = skip", "ignore_missing_imports = True"]
    path = folder / "mypy.ini"
    path.write_text("\n".join(lines))
    return path


@pytest.fixture(autouse=True)
def limit() -> Iterator[None]:
    """Ends a test that hangs."""

    def end(*_: object) -> None:
        raise TimeoutError(f"the test takes more than {TEST_LIMIT_S} s")

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(TEST_LIMIT_S)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def temporary() -> Iterator[pathlib.Path]:
    """Makes a folder for a program's temporary files. Its name is short: the path of a socket in it has at most 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="t-", ignore_cleanup_errors=True) as folder:
        yield pathlib.Path(folder)


def once(tmp_path_factory: pytest.TempPathFactory, name: str, make: Callable[[pathlib.Path], object]) -> pathlib.Path:
    """Makes a folder, once for all of pytest's processes."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder, new, lock = (shared / f"{name}{suffix}" for suffix in ("", ".new", ".lock"))
    lock.mkdir(exist_ok=True)
    with venv.locked(lock):
        if not folder.exists():
            shutil.rmtree(new, ignore_errors=True)
            make(new)
            new.rename(folder)
    return folder


def packed(tmp_path_factory: pytest.TempPathFactory, name: str, pictures: int, seed: int) -> pathlib.Path:
    """Packs a dataset of the demo's pictures, once for all of pytest's processes."""
    return once(tmp_path_factory, name, lambda folder: pack_pictures(folder, pictures, seed=seed))


@pytest.fixture(scope="session")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Packs the dataset of most tests."""
    return packed(tmp_path_factory, "dataset", PICTURES, seed=7)


@pytest.fixture(scope="session")
def uneven_dataset(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Packs a dataset whose last batch is short."""
    return packed(tmp_path_factory, "uneven-dataset", UNEVEN_PICTURES, seed=3)


MakeJob = Callable[..., dict[str, Any]]


@pytest.fixture
def job(dataset: pathlib.Path) -> MakeJob:
    """Returns a function that makes a job as a dict: small pictures and their class, batches of 24."""

    def make(*columns: dict[str, Any], **keys: Any) -> dict[str, Any]:
        crop = [{"random_resized_crop": {"size": 32}}, {"random_flip": {}}]
        image = {"name": "image", "from": "jpg", "decode": "image", "ops": crop}
        label = {"name": "label", "from": "cls", "decode": "int"}
        plain = {"name": "test", "dataset": dataset, "seed": 5, "global_batch": 24}
        return {**plain, **keys, "column": [image, label, *columns]}

    return make


def write_job(job: dict[str, Any], path: pathlib.Path) -> pathlib.Path:
    """Writes the job as a job file for `spdl-ctl`."""

    def value(item: Any) -> str:
        if isinstance(item, dict):
            return "{" + ", ".join(f"{key} = {value(inner)}" for key, inner in item.items()) + "}"
        if isinstance(item, list):
            return "[" + ", ".join(map(value, item)) + "]"
        return json.dumps(str(item) if isinstance(item, pathlib.Path) else item)

    path.write_text("".join(f"{key} = {value(item)}\n" for key, item in job.items()))
    return path


@pytest.fixture
def job_file(tmp_path: pathlib.Path) -> Callable[[dict[str, Any]], pathlib.Path]:
    """Returns a function that writes a job as a job file."""
    return lambda job: write_job(job, tmp_path / f"{job['name']}.toml")


class Cluster:
    """A coordinator and a worker, as processes."""

    def __init__(self, folder: pathlib.Path, *worker_options: object) -> None:
        self.folder = folder
        self.worker_options = worker_options
        self.processes: list[subprocess.Popen[str]] = []
        self.coordinators = self.start("coord", "--listen", "127.0.0.1:0", "--state", folder / "state")["quic"]
        for role in ("worker", "client", "admin"):
            out = folder / "certs" / role
            ctl("cert", "--ca", folder / "state/ca", "--role", role, "--name", "test", "--out", out)
        #: The arguments with which `spdl-ctl` asks this cluster.
        self.admin = ("--coord", self.coordinators, "--certs", folder / "certs/admin")
        self.worker = self.start_worker()

    def start(self, *arguments: object) -> Any:
        command = [os.environ["SPDL_TEST_CTL"], "--die-with-parent", *map(str, arguments), "--http", "127.0.0.1:0"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.processes.append(process)
        assert process.stdout is not None
        return json.loads(process.stdout.readline())

    def start_worker(self) -> subprocess.Popen[str]:
        certs, socket = self.folder / "certs/worker", self.folder / "worker.sock"
        budget = ("--cores", 1, "--memory", "256MiB")
        where = ("--coord", self.coordinators, "--listen", "127.0.0.1:0", "--certs", certs, "--socket", socket)
        self.http = self.start("worker", *where, *budget, *self.worker_options)["http"]
        return self.processes[-1]

    def metric(self, name: str) -> float:
        """Returns a metric without labels of the worker."""
        with urllib.request.urlopen(f"http://{self.http}/metrics", timeout=LIMIT_S) as answer:
            lines = answer.read().decode().splitlines()
        return next(float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"{name} "))

    def submit(self, job: dict[str, Any]) -> str:
        """Submits a job and returns its name."""
        path = write_job(job, self.folder / f"{job['name']}.toml")
        ctl("job", "submit", path, *self.admin)
        return str(job["name"])

    def connect(self, rank: int, world: int, **settings: Any) -> spdl_cluster.Loader:
        """Opens a loader of this cluster."""
        certs = self.folder / "certs/client"
        return spdl_cluster.connect(rank, world, coordinators=self.coordinators, certs=certs, **settings)

    def stop(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Starts a coordinator and a worker on loopback."""
    cluster = Cluster(tmp_path_factory.mktemp("cluster"))
    yield cluster
    cluster.stop()


class RanksInTurn:
    """What all ranks of a world get in this process, one rank after the other: from a state on, for a number of steps or to the end."""

    def __init__(self, job: dict[str, Any], world: int = 1, state: dict[str, Any] | None = None, steps: int = 1000, tensors: Kind = "numpy") -> None:
        self.job, self.world, self.steps, self.tensors = job, world, steps, tensors
        #: The state to begin with; then that of all ranks after their last batch.
        self.state = state
        #: The receipts of the ranks that have got all of it.
        self.receipts: list[str] = []

    def __iter__(self) -> Iterator[tuple[spdl_cluster.Loader, spdl_cluster.Batch]]:
        """Returns each batch, with its loader."""
        states = []
        for rank in range(self.world):
            with spdl_cluster.local(self.job, rank=rank, world=self.world, tensors=self.tensors) as loader:
                if self.state is not None:
                    loader.load_state_dict(self.state)
                for _ in range(self.steps):
                    if (batch := loader.next()) is None:
                        break
                    yield loader, batch
                self.receipts.append(loader.receipt)
                states.append(loader.state_dict())
        assert all(state == states[0] for state in states)
        self.state = states[0]

    @property
    def receipt(self) -> str:
        """The sum of the receipts."""
        return add(self.receipts)


Result = TypeVar("Result")


def at_once(world: int, pull: Callable[[int], Result]) -> list[Result]:
    """Calls a function for each rank of a world, all at once, and returns what the calls return."""
    with ThreadPoolExecutor(world) as threads:
        return list(threads.map(pull, range(world)))


def samples(loader: spdl_cluster.Loader) -> list[dict[str, Any]]:
    """Returns the columns of each sample of an epoch, in the order of their delivery; those of the text column `key` as text."""
    found = []
    for batch in loader:
        for number in range(len(batch.ids)):
            found.append({name: batch[name][number].copy() for name in batch if name != "key"})
            found[-1]["key"] = batch["key"].text()[number]
    return found


def wait_for_the_end_of(process: int) -> None:
    """Waits until the process has ended."""
    try:
        descriptor = os.pidfd_open(process)
    except ProcessLookupError:
        return
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    assert poll.poll(1000 * LIMIT_S), f"process {process} is still there"
    os.close(descriptor)


def add(receipts: list[str]) -> str:
    """Adds up receipts or content digests."""
    return f"{sum(int(receipt, 16) for receipt in receipts) % (1 << 128):032x}"
