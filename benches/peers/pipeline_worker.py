"""Runs one pipeline of one package and prints what it measured as a line of JSON.

usage: pipeline_worker.py PACKAGE CASE [--started-ns N] [--threads N] [--seconds S] [--pictures FOLDER]

PACKAGE is `spdl_cluster` or `spdl`. CASE is `KIND-STAGES-CONCURRENCY` for stages that return what they get, with the
KIND `function` or `async`; or `decode`, for JPEGs in memory to batches of arrays.
"""

import time

FIRST_NS = time.time_ns()

import argparse  # noqa: E402
import importlib  # noqa: E402
import itertools  # noqa: E402
import json  # noqa: E402
import os  # noqa: E402
import pathlib  # noqa: E402
import resource  # noqa: E402
import tarfile  # noqa: E402

BATCH, SIZE, BUFFER = 32, 224, 3
TIMEOUT_S = 60
#: The part of the measured time that passes before the count begins.
WARM = 0.25
#: How long threads that have ended may take to leave the system's list.
THREADS_END_S = 1.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("package", choices=["spdl_cluster", "spdl"])
    parser.add_argument("case")
    parser.add_argument("--started-ns", type=int, default=FIRST_NS, help="when the process was started")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--pictures", type=pathlib.Path)
    args = parser.parse_args()
    # What the case needs beside the package does not count as the package's.
    jpegs = read_pictures(args.pictures) if args.case == "decode" else []
    bare_mb, begun = memory_mb(), time.perf_counter()
    builder = importlib.import_module(f"{args.package}.pipeline").PipelineBuilder
    import_s, imported_mb = time.perf_counter() - begun, memory_mb()
    threads = thread_count()

    if args.case == "decode":
        stages, check = decoding(args.package, builder().add_source(itertools.cycle(jpegs))), check_batch
    else:
        kind, count, concurrency = args.case.split("-")
        source = builder().add_source(itertools.count())
        stages, check = empty(source, kind, int(count), int(concurrency)), check_number
    stages.add_sink(BUFFER)
    begun = time.perf_counter()
    pipeline = stages.build(num_threads=args.threads)
    with pipeline.auto_stop():
        items = iter(pipeline.get_iterator(timeout=TIMEOUT_S))
        check(next(items))
        first_s, first_ns = time.perf_counter() - begun, time.time_ns()
        taken = take(items, args.seconds)
        stopping = time.perf_counter()
    stop_s = time.perf_counter() - stopping
    per_item = BATCH if args.case == "decode" else 1
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    figures = {
        "items_per_s": taken["items"] * per_item / taken["seconds"],
        "cpu_ms_per_1000": taken["cpu_s"] * 1e6 / taken["items"] / per_item,
        "import_ms": import_s * 1e3,
        "import_mb": imported_mb - bare_mb,
        "peak_mb": peak_mb - bare_mb,
        "first_item_ms": first_s * 1e3,
        "start_to_first_item_ms": (first_ns - args.started_ns) / 1e6,
        "stop_ms": stop_s * 1e3,
        "threads_left": threads_above(threads),
    }
    print(json.dumps(figures))


def same(item):
    return item


async def same_later(item):
    return item


def empty(builder, kind: str, count: int, concurrency: int):
    """Adds stages without work."""
    op = {"function": same, "async": same_later}[kind]
    for _ in range(count):
        builder = builder.pipe(op, concurrency=concurrency)
    return builder


def decoding(package: str, builder):
    """Adds the stages that make batches of JPEGs, two pictures at a time."""
    if package == "spdl_cluster":
        from spdl_cluster import ops

        return builder.pipe(ops.decode_image(SIZE), concurrency=2).aggregate(BATCH).pipe(ops.collate)
    import spdl.io

    # Bilinear scaling in FFmpeg antialiases, and takes less than the bicubic one that is its default.
    filters = f"scale={SIZE}:{SIZE}:flags=bilinear,format=rgb24"

    def decode(jpeg: bytes):
        return spdl.io.decode_packets(spdl.io.demux_image(jpeg), filter_desc=filters)

    def collate(frames):
        return spdl.io.to_numpy(spdl.io.convert_frames(frames))

    return builder.pipe(decode, concurrency=2).aggregate(BATCH).pipe(collate)


def take(items, seconds: float) -> dict[str, float]:
    """Takes items for some time. Returns how many came after the first part of it, and in what time."""
    begun = time.perf_counter()
    warm, end = begun + WARM * seconds, begun + seconds
    for _ in items:
        since = time.perf_counter()
        if since >= warm:
            break
    cpu, count = time.process_time(), 0
    for _ in items:
        count += 1
        now = time.perf_counter()
        if now >= end:
            break
    return {"items": count, "seconds": now - since, "cpu_s": time.process_time() - cpu}


def check_number(number) -> None:
    assert isinstance(number, int), f"an item is {number!r}"


def check_batch(batch) -> None:
    assert (batch.shape, str(batch.dtype)) == ((BATCH, SIZE, SIZE, 3), "uint8"), f"{batch.shape} of {batch.dtype}"
    assert 1 < batch.mean() < 254, "a batch of one colour"


def read_pictures(folder: pathlib.Path) -> list[bytes]:
    """Reads the pictures of a dataset that `spdl_cluster.demo.pack_pictures` has written. Both packages make arrays of
    numpy of them, so numpy is imported too."""
    importlib.import_module("numpy")
    jpegs = []
    for shard in sorted(folder.glob("*.tar")):
        with tarfile.open(shard) as archive:
            jpegs += [archive.extractfile(member).read() for member in archive if member.name.endswith(".jpg")]
    assert jpegs, f"there are no pictures in {folder}"
    return jpegs


def memory_mb() -> float:
    """Returns the resident memory now."""
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


def thread_count() -> int:
    return len(os.listdir("/proc/self/task"))


def threads_above(count: int) -> int:
    """Returns how many more threads there are than `count`, once those that end have ended."""
    deadline = time.monotonic() + THREADS_END_S
    while thread_count() > count and time.monotonic() < deadline:
        time.sleep(0.01)
    return max(0, thread_count() - count)


if __name__ == "__main__":
    main()
