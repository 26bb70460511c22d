"""The loaders that are compared, with the interface that `measure` uses: a peer in its environment, and our own."""

import importlib
import json
import pathlib
import shutil
import subprocess
import sys

import install
import measure
from data import Data, Settings
from install import Failed

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
BINARIES = ROOT / "target/release"
# The commit that the binaries were built from.
COMMIT = BINARIES / "peers-trainer.commit"
# Memory for slots and cached blocks of our pipeline. The default is 1 GiB; this is what the demo's data needs to run at
# full speed. Pages of Parquet hold several pictures, so that it takes more, and blocks of few pages, to keep those that
# are in use.
MEMORY_BYTES = 128 << 20
PAGES_MEMORY_BYTES = 256 << 20
INDEX_OPTIONS = {"parquet": ["--block-size", "1MiB"], "npz": ["--format", "files"]}
# Pictures in a shard when objects are slow.
SMALL_SHARD = 20
# How `spdl-ctl pack` stores the pictures, unless as they are.
PACKED = {"ready": "crop-ready", "scalable": "scalable"}
# Formats of others that ours reads where they lie: the peer that writes the files, and the field with the pictures.
FORMATS = {"parquet": ("parquet_hf", "image.bytes"), "mds": ("streaming", "image"), "tfrecord": ("tfdata", "image")}


class Peer:
    """Another project's loader."""

    def __init__(self, name: str, venvs: pathlib.Path, data: Data) -> None:
        self.name, self.data = name, data
        self.module = importlib.import_module(f"peer.{name}")
        self.title, self.slow, self.format = self.module.TITLE, self.module.SLOW, self.module.FORMAT
        self.venvs = venvs

    def install(self) -> dict[str, str]:
        """Installs the peer and returns the versions of its packages."""
        module = self.module
        environment = getattr(module, "ENVIRONMENT", self.name if module.REQUIREMENTS else module.LAYER)
        hook = getattr(module, "prepare_environment", None)
        if environment == module.LAYER:
            self.python = install.environment(self.venvs, module.LAYER, tuple(install.LAYERS[module.LAYER]))
        else:
            bare = getattr(module, "BARE", ())
            requirements = tuple(module.REQUIREMENTS)
            self.python = install.environment(self.venvs, environment, requirements, module.LAYER, hook, bare)
        return install.versions(self.python, module.PACKAGES)

    def prepare(self) -> None:
        """Writes the peer's data in its format, once."""

        def write(folder: pathlib.Path) -> None:
            with open(self.data.home / f"{self.name}.log", "w+b") as messages:
                done = measure.spawn(self.worker("prepare"), messages).wait()
            if done:
                raise Failed(f"cannot write its format: see {self.data.home / f'{self.name}.log'}")

        once(self.data, self.format, write)

    def worker(self, what: str, *options) -> list:
        return [self.python, HERE / "worker.py", self.name, what, self.data.home, *options]

    def start_servers(self, settings: Settings, folder: pathlib.Path, messages) -> tuple[Settings, dict[str, str]]:
        if not hasattr(self.module, "serve"):
            return settings, {}
        address = first_line(self.worker("serve", "--settings", settings.text()), messages)
        return Settings(**(vars(settings) | {"address": address})), {}

    def command(self, settings: Settings, timing, record: pathlib.Path) -> list:
        options = [
            "--warm-s",
            timing.warm_s,
            "--seconds",
            timing.seconds,
            "--step-ms",
            timing.step_ms,
            "--record",
            record,
        ]
        return self.worker("take", "--settings", settings.text(), *options)


class Ours:
    """This project's loader: in the trainer's process, or with a coordinator and a worker and the trainer on the local
    queue; over shards with the original pictures, over crop-ready or scalable ones, or over the files of another format."""

    def __init__(self, name: str, venvs: pathlib.Path, data: Data, slow_objects: bool) -> None:
        self.name, self.venvs, self.data = name, venvs, data
        where, _, what = name.partition("_")
        self.remote = where == "cluster"
        self.writer, self.image = FORMATS.get(what, (None, "jpg"))
        self.memory_bytes = PAGES_MEMORY_BYTES if what == "parquet" else MEMORY_BYTES
        self.slow = "" if self.writer else f"a shard of {SMALL_SHARD} pictures"
        self.packed = PACKED.get(what, "plain")
        kind = {"parquet": "Parquet", "mds": "MDS"}.get(what, "TFRecord") if self.writer else f"{self.packed} shards"
        self.title = f"spdl-cluster, {kind}, {'worker and local queue' if self.remote else 'in process'}"
        # There have to be several slow objects, in a store that can be delayed.
        self.small_shards = slow_objects
        if self.writer:
            self.format = what
        else:
            self.format = self.packed + ("-small-shards" if slow_objects else "")

    def install(self) -> dict[str, str]:
        version = subprocess.run(
            [BINARIES / "spdl-ctl", "--version"], check=True, capture_output=True, text=True
        ).stdout
        commit = COMMIT.read_text() if COMMIT.exists() else ""
        return {"spdl-cluster": f"{version.split()[-1]} {commit}".strip()}

    def prepare(self) -> None:
        if self.writer:
            peer = Peer(self.writer, self.venvs, self.data)
            peer.install()
            peer.prepare()
            command = [BINARIES / "spdl-ctl", "index", self.data.format(self.format), "--out", self.dataset, "--force"]
            run([*command, *INDEX_OPTIONS.get(self.format, [])])
            return
        options = [] if self.packed == "plain" else [f"--{self.packed}"]
        options += ["--records-per-shard", SMALL_SHARD] if self.small_shards else []
        once(
            self.data,
            self.format,
            lambda folder: run([BINARIES / "spdl-ctl", "pack", self.data.pictures, folder, "--json", *options]),
        )

    @property
    def dataset(self) -> pathlib.Path:
        """The folder with the manifest."""
        return self.data.format(f"{self.format}-manifest" if self.writer else self.format)

    def job(self, folder: pathlib.Path, settings: Settings) -> pathlib.Path:
        """Writes the job file. Epochs continue within a batch, and there are more of them than a run can finish."""
        path = folder / "peers.toml"
        path.write_text(f"""name = "peers"
dataset = {json.dumps(settings.address or str(self.dataset))}
seed = 17
global_batch = {settings.batch}
epochs = 100000
epoch_end = "continuous"

{self.columns(settings)}""")
        return path

    def columns(self, settings: Settings) -> str:
        """Returns the job's columns: pictures with labels."""
        size = settings.size
        crop = f"{{ random_resized_crop = {{ size = {size} }} }}, {{ random_flip = {{}} }}"
        operations = f"{{ resize = [{size}, {size}] }}" if settings.whole else crop
        return f"""[[column]]
name = "image"
from = {json.dumps(self.image)}
decode = "image"
ops = [{operations}]

[[column]]
name = "label"
from = {json.dumps("label" if self.writer else "cls")}
decode = "int"
"""

    def check(self, settings: Settings) -> list:
        """Returns the trainer's options that say what a batch has to be."""
        return ["--size", settings.size]

    def start_servers(self, settings: Settings, folder: pathlib.Path, messages) -> tuple[Settings, dict[str, str]]:
        if self.small_shards:
            store = [sys.executable, HERE / "storage.py", self.data.format(self.format), settings.slow_ms]
            settings = Settings(**(vars(settings) | {"address": first_line(store, messages)}))
        self.job_file = self.job(folder, settings)
        if not self.remote:
            return settings, {}
        state, certs = folder / "state", folder / "certs"
        command = [BINARIES / "spdl-coord", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--state", state]
        coordinator = json.loads(first_line(command, messages))["quic"]
        for role in ("worker", "client", "admin"):
            run(
                [
                    BINARIES / "spdl-ctl",
                    "cert",
                    "--ca",
                    state / "ca",
                    "--role",
                    role,
                    "--name",
                    "peers",
                    "--out",
                    certs / role,
                ]
            )
        command = [
            BINARIES / "spdl-worker",
            "--coord",
            coordinator,
            "--certs",
            certs / "worker",
            "--listen",
            "127.0.0.1:0",
        ]
        command += ["--socket", folder / "worker.sock", "--cores", settings.cores, "--memory", self.memory_bytes]
        first_line(command, messages)
        run([BINARIES / "spdl-ctl", "job", "submit", self.job_file, "--coord", coordinator, "--certs", certs / "admin"])
        client = {"SPDL_COORD": coordinator, "SPDL_JOB": "peers", "SPDL_CERTS": str(certs / "client")}
        return settings, client | {"SPDL_TRANSPORT": "local"}

    def command(self, settings: Settings, timing, record: pathlib.Path) -> list:
        command = [
            BINARIES / "peers-trainer",
            "--record",
            record,
            "--warm-s",
            timing.warm_s,
            "--seconds",
            timing.seconds,
        ]
        command += ["--step-ms", timing.step_ms, "--batch", settings.batch, *self.check(settings)]
        if self.remote:
            return [*command, "cluster"]
        return [*command, "local", self.job_file, "--cores", settings.cores, "--memory-bytes", self.memory_bytes]


OURS = ["cluster", "cluster_ready", "cluster_scalable", "local", "local_ready", "local_scalable", *(f"cluster_{name}" for name in FORMATS)]
SHARED = ("__init__", "parquet", "pictures_torch")
PEERS = sorted(path.stem for path in (HERE / "peer").glob("*.py") if path.stem not in SHARED)


def build() -> None:
    """Builds our binaries."""
    command = [
        "cargo",
        "build",
        "--release",
        "--locked",
        "--quiet",
        "--bins",
        "--workspace",
    ]
    run(command, cwd=ROOT)
    described = subprocess.run(["git", "-C", ROOT, "describe", "--always", "--dirty"], capture_output=True, text=True)
    COMMIT.write_text(described.stdout.strip())


def once(data: Data, name: str, write) -> None:
    """Makes a folder with `write(folder)`, unless it exists and is complete."""
    folder, done = data.format(name), data.home / f"{name}.complete"
    if not done.exists():
        measure.progress(f"writing {folder}")
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        write(folder)
        done.touch()


def first_line(command: list, messages) -> str:
    """Starts a server and returns the line that it prints once it serves."""
    server = measure.spawn(command, messages, stdout=subprocess.PIPE, text=True)
    line = server.stdout.readline().strip()
    if not line:
        raise Failed(f"{pathlib.Path(command[0]).name} does not start")
    return line


def run(command: list, **options) -> None:
    """Runs a command to its end without output."""
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    done = subprocess.run([str(part) for part in command], **quiet, **options)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise Failed(f"{pathlib.Path(command[0]).name} fails: {last}")
