"""Measures what a training waits where one sample in a hundred takes fifty times as long as the others, in this project's loader and in
others, each at a share of what its cores carry.

usage: python benches/tails.py [--kinds picture,function,object,size] [--loaders ours,torch,minato,tfdata] [--batch 32] [--cores 2]
                               [--slots N] [--load 0.85] [--steps 150] [--samples 1600] [--json]

Needs the package: `pip install --config-settings profile=release ./python`, and numpy and Pillow; torch and tensorflow-cpu for the loaders
of those names. What is slow: `picture`, PNGs of many pixels among small JPEGs; `function`, a function that waits for a service; `object`, an
object of a store that answers late; `size`, records of fifty times the bytes, through a function that reads all of them.

A step sleeps for as long as a batch takes the loader's cores, divided by `--load`. `minato` gives batches of the samples that are done first,
which is the rule of MinatoLoader; the others give all samples in their order. Each case runs in a process of its own.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import io
import itertools
import json
import multiprocessing
import os
import pathlib
import random
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
import urllib.request
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy

HERE = pathlib.Path(__file__).resolve()
sys.path += [str(HERE.parent), str(HERE.parent / "peers")]

KINDS = ("picture", "function", "object", "size")
LOADERS = {"ours": "spdl_cluster", "torch": "torch", "minato": "numpy", "tfdata": "tensorflow"}
#: One sample in `EVERY` is slow, by `SLOW` times.
EVERY, NTH, SLOW = 100, 37, 50
#: What a call of the function waits for, and the bytes of a record that it reads `PASSES` times.
SHORT_S, SMALL_BYTES, PASSES = 0.002, 16_384, 40
#: Width and height of the pictures, and of what is made of them.
SMALL, LARGE, MADE = (240, 180), (1100, 825), 160
SEED = 17
MEMORY_BYTES = 128 << 20
#: Steps that are not measured.
WARM = 10


def is_slow(number: int) -> bool:
    return number % EVERY == NTH


def name_of(kind: str, number: int) -> str:
    ending = ("png" if is_slow(number) else "jpg") if kind == "picture" else "dat"
    return f"{number:06}.{ending}"


def write(kind: str, folder: pathlib.Path, samples: int) -> None:
    """Writes the samples as files, and indexes them where they lie."""
    folder.mkdir()
    noise = random.Random(SEED)
    for number in range(samples):
        if kind == "picture":
            content = picture(noise.randrange(1 << 30), is_slow(number))
        else:
            count = SMALL_BYTES * (SLOW if kind == "size" and is_slow(number) else 1)
            content = number.to_bytes(8, "little") + noise.randbytes(count - 8)
        (folder / name_of(kind, number)).write_bytes(content)
    program = pathlib.Path(sysconfig.get_path("scripts")) / "spdl-ctl"
    subprocess.run([program, "index", folder, "--format", "files"], check=True, stdout=sys.stderr)


def picture(seed: int, is_large: bool) -> bytes:
    from PIL import Image

    coarse = numpy.random.default_rng(seed).integers(0, 256, (24, 32, 3), numpy.uint8)
    image, file = Image.fromarray(coarse).resize(LARGE if is_large else SMALL), io.BytesIO()
    image.save(file, "PNG" if is_large else "JPEG")
    return file.getvalue()


def waited(content: bytes, rng: Any) -> Any:
    """Asks a service that answers late for some samples."""
    time.sleep(SHORT_S * (SLOW if is_slow(number_of(content)) else 1))
    return made(content)


def hashed(content: bytes, rng: Any) -> Any:
    """Reads all of a record several times."""
    for _ in range(PASSES):
        hashlib.sha256(content).digest()
    return made(content)


def taken(content: bytes, rng: Any) -> Any:
    """Takes what a store gave, with as much to do for each."""
    time.sleep(SHORT_S)
    return made(content)


def decoded(content: bytes, rng: Any) -> Any:
    """Decodes a picture and makes it small."""
    from PIL import Image

    return numpy.asarray(Image.open(io.BytesIO(content)).convert("RGB").resize((MADE, MADE), Image.Resampling.BILINEAR))


def number_of(content: bytes) -> int:
    return int.from_bytes(content[:8], "little")


def made(content: bytes) -> Any:
    return numpy.frombuffer(content[:1024], numpy.uint8).copy()


FUNCTIONS: dict[str, Callable[[bytes, Any], Any]] = {
    "picture": decoded, "function": waited, "object": taken, "size": hashed,
}  # fmt: skip


class Samples:
    """The samples of a kind as the other loaders take them, by their numbers."""

    def __init__(self, kind: str, place: str, count: int) -> None:
        self.kind, self.place, self.count = kind, place, count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, number: int) -> Any:
        name = name_of(self.kind, int(number))
        if self.place.startswith("http"):
            with urllib.request.urlopen(f"{self.place}/{name}") as answer:
                content = answer.read()
        else:
            content = pathlib.Path(self.place, name).read_bytes()
        return FUNCTIONS[self.kind](content, None)


def job_of(kind: str, place: str, batch: int) -> dict[str, Any]:
    if kind == "picture":
        column = {"name": "x", "from": "jpg|png", "decode": "image", "ops": [{"resize": [MADE, MADE]}]}
    else:
        most = SMALL_BYTES * SLOW
        column = {"name": "x", "from": "dat", "decode": "bytes", "max_bytes": most, "transform": f"tails:{FUNCTIONS[kind].__name__}"}
        column["returns"] = {"dtype": "u8", "shape": [1024]}
    return {
        "name": "tails", "dataset": place, "seed": SEED, "global_batch": batch, "epochs": 100_000, "epoch_end": "continuous", "column": [column],
    }  # fmt: skip


def our_loader(samples: Samples, args: argparse.Namespace) -> Any:
    import spdl_cluster

    job = job_of(samples.kind, samples.place, args.batch)
    return spdl_cluster.local(job, cores=args.cores, memory_bytes=MEMORY_BYTES, slots=args.slots or None, tensors="numpy")


def ours(samples: Samples, args: argparse.Namespace) -> Iterator[Any]:
    loader = our_loader(samples, args)
    while True:
        yield loader.next()["x"]


def our_s(samples: Samples, args: argparse.Namespace) -> float:
    """Returns how long a sample takes a thread of ours, in seconds."""
    with our_loader(samples, args) as loader:
        for _ in range(len(samples) // args.batch):
            loader.next()
        decode = next(stage for stage in loader.stats()["stages"] if stage["name"] == "decode")
    return decode["busy_ns"] / 1e9 / decode["items"]


def torch(samples: Samples, args: argparse.Namespace) -> Iterator[Any]:
    from torch.utils.data import DataLoader

    loader = DataLoader(samples, args.batch, shuffle=True, num_workers=args.cores, drop_last=True, persistent_workers=True)
    return itertools.chain.from_iterable(itertools.repeat(loader))


_SAMPLES: Samples


def _set(samples: Samples) -> None:
    global _SAMPLES
    _SAMPLES = samples


def _get(number: int) -> Any:
    return _SAMPLES[number]


def minato(samples: Samples, args: argparse.Namespace) -> Iterator[Any]:
    """A process for each core takes one sample after the other; a batch has those that are done first."""
    room, draw = threading.Semaphore(4 * args.batch), random.Random(SEED)

    def numbers() -> Iterator[int]:
        while True:
            for number in draw.sample(range(len(samples)), len(samples)):
                room.acquire()
                yield number

    pool = multiprocessing.get_context("fork").Pool(args.cores, _set, (samples,))
    done = pool.imap_unordered(_get, numbers())
    while True:
        batch = [next(done) for _ in range(args.batch)]
        for _ in batch:
            room.release()
        yield numpy.stack(batch)


def tfdata(samples: Samples, args: argparse.Namespace) -> Iterator[Any]:
    import tensorflow as tf

    numbers = tf.data.Dataset.range(len(samples)).shuffle(len(samples), SEED).repeat()
    called = numbers.map(lambda number: tf.numpy_function(samples.__getitem__, [number], tf.uint8), num_parallel_calls=args.cores)
    return iter(called.batch(args.batch, drop_remainder=True).prefetch(tf.data.AUTOTUNE).as_numpy_iterator())


def serial_s(samples: Samples) -> float:
    """Returns what a sample takes where one is made after the other, in seconds."""
    quick = [number for number in range(len(samples)) if not is_slow(number)][: EVERY - 1]
    begun = time.perf_counter()
    for number in [*quick, NTH]:
        samples[number]
    return (time.perf_counter() - begun) / EVERY


def measured(samples: Samples, loader: str, args: argparse.Namespace) -> dict[str, Any]:
    """Returns the figures of a case, which this process has to itself."""
    sample_s = our_s(samples, args) if loader == "ours" else serial_s(samples)
    batches = {"ours": ours, "torch": torch, "minato": minato, "tfdata": tfdata}[loader](samples, args)
    step_s = args.batch * sample_s / (args.load * args.cores)
    waits, digest = [], 0
    for step in range(args.steps + WARM):
        asked = time.perf_counter()
        batch = next(batches)
        now = time.perf_counter()
        waits.append(now - asked)
        digest = zlib.crc32(numpy.ascontiguousarray(batch), digest)
        del batch
        time.sleep(max(0.0, now + step_s - time.perf_counter()))
    waits = waits[WARM:]
    epoch = max(1, len(samples) // args.batch - WARM)
    share = lambda part: sum(part) / (sum(part) + step_s * len(part)) if part else 0.0  # noqa: E731
    return {
        "step_ms": step_s * 1e3, "waiting": share(waits), "first_epoch": share(waits[:epoch]), "later": share(waits[epoch:]),
        "longest_ms": max(waits) * 1e3, "digest": f"{digest:08x}",
    }  # fmt: skip


def run(kind: str, loader: str, place: str, args: argparse.Namespace) -> dict[str, Any]:
    """Runs a case in a process of its own, and returns its figures and its largest memory."""
    import measure

    command = [sys.executable, HERE, "--one", kind, loader, place]
    for option in ("batch", "cores", "slots", "load", "steps", "samples"):
        command += [f"--{option}", getattr(args, option)]
    tree, peak = measure.Tree(), 0
    with tempfile.TemporaryFile("w+") as output:
        case = subprocess.Popen([str(part) for part in command], stdout=output)
        while case.poll() is None:
            peak = max(peak, tree.memory()[0])
            time.sleep(measure.MEMORY_EVERY_S)
        output.seek(0)
        lines = output.read().splitlines()
    if case.returncode:
        return {"kind": kind, "loader": loader, "error": f"exit code {case.returncode}"}
    return {"kind": kind, "loader": loader, **json.loads(lines[-1]), "peak_mb": peak / 1e6}


def case_of(kind: str, folder: pathlib.Path, args: argparse.Namespace) -> list[dict[str, Any]]:
    """Writes the data of a kind, and runs all loaders on it; ours twice, with another number of slots, for its digest."""
    write(kind, folder, args.samples)
    place, store = str(folder), None
    if kind == "object":
        command = [sys.executable, HERE.parent / "peers/storage.py", folder, str(round(SHORT_S * SLOW * 1e3))]
        store = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert store.stdout
        place = store.stdout.readline().strip()
    runs = []
    try:
        for loader in args.loaders:
            if importlib.util.find_spec(LOADERS[loader]) is None:
                print(f"{loader}: `{LOADERS[loader]}` is not installed", file=sys.stderr)
                continue
            runs.append(run(kind, loader, place, args))
            print(line(runs[-1]), flush=True)
            if loader == "ours" and "digest" in runs[-1]:
                other = run(kind, loader, place, argparse.Namespace(**{**vars(args), "slots": 2, "load": 50.0}))
                runs[-1]["is_equal"] = runs[-1]["digest"] == other.get("digest")
                print(f"{'':>21}  without steps and with two slots: {'the same' if runs[-1]['is_equal'] else 'OTHER'} bytes in the same order")
    finally:
        if store:
            store.kill()
    return runs


def line(run: dict[str, Any]) -> str:
    head = f"{run['kind']:>10} {run['loader']:>10}"
    if "error" in run:
        return f"{head}  {run['error']}"
    shares = " ".join(f"{100 * run[part]:6.1f} %" for part in ("waiting", "first_epoch", "later"))
    return f"{head}  {run['step_ms']:6.1f} ms {shares} {run['longest_ms']:8.0f} ms {run['peak_mb']:8.0f} MB"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kinds", default=",".join(KINDS), help="with commas between (default: all)")
    parser.add_argument("--loaders", default=",".join(LOADERS), help="with commas between (default: those that are installed)")
    parser.add_argument("--batch", type=int, default=32, help="samples of a batch (default 32)")
    parser.add_argument("--cores", type=int, default=2, help="threads or processes of a loader (default 2)")
    parser.add_argument("--slots", type=int, default=0, help="slots of ours (default: its own)")
    parser.add_argument("--load", type=float, default=0.85, help="part of the cores' time that samples take (default 0.85)")
    parser.add_argument("--steps", type=int, default=150, help="steps that are measured (default 150)")
    parser.add_argument("--samples", type=int, default=1600, help="samples of a kind (default 1600)")
    parser.add_argument("--json", action="store_true", help="the last line is a JSON object with every run")
    parser.add_argument("--one", nargs=3, metavar=("KIND", "LOADER", "PLACE"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        kind, loader, place = args.one
        print(json.dumps(measured(Samples(kind, place, args.samples), loader, args)), flush=True)
        # The end of a loader is not measured, and takes some seconds.
        for process in multiprocessing.active_children():
            process.kill()
        os._exit(0)
    args.loaders = args.loaders.split(",")
    print(f"{'kind':>10} {'loader':>10}  {'step':>9} {'waiting':>8} {'epoch 1':>8} {'later':>8} {'longest':>11} {'peak':>11}")
    with tempfile.TemporaryDirectory() as folder:
        runs = [run for kind in args.kinds.split(",") for run in case_of(kind, pathlib.Path(folder, kind), args)]
    if args.json:
        print(json.dumps({"batch": args.batch, "cores": args.cores, "load": args.load, "runs": runs}))


if __name__ == "__main__":
    main()
