"""Measures one run of one loader from outside: its trainer's process and its servers, with all their child
processes."""

import argparse
import ctypes
import dataclasses
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

from install import Failed

PR_SET_CHILD_SUBREAPER = 36
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
# The periods of reading the processes' CPU time, which is cheap, and their memory, which is not.
CPU_EVERY_S, MEMORY_EVERY_S = 0.1, 0.5
# The most cores that other processes may use during a run. A run with more interference does not count, and is
# repeated.
OTHERS_CORES = 0.2
# How much longer than its measured time a run may take.
GRACE_S = 90


@dataclasses.dataclass(frozen=True)
class Timing:
    """How long to measure."""

    warm_s: float  # from the first batch on, not measured
    seconds: float  # after it
    step_ms: float = 0  # what a trainer does with a batch; it only sleeps


def adopt_orphans() -> None:
    """Makes this process the parent of orphaned grandchildren, so that all of them are counted."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def add_options(parser: argparse.ArgumentParser, *, repeats: int, warm: float, seconds: float, quiet: float) -> None:
    """Adds the options that programs have in common which measure loaders in rounds; the numbers are the defaults."""
    parser.add_argument("--repeats", type=int, default=repeats, help=f"rounds (default {repeats})")
    parser.add_argument("--warm", type=float, default=warm, help=f"seconds that are not measured (default {warm})")
    parser.add_argument(
        "--seconds", type=float, default=seconds, help=f"seconds measured after them (default {seconds})"
    )
    parser.add_argument("--cores", type=int, default=os.cpu_count(), help="cores that everything is pinned to")
    parser.add_argument("--quiet", type=float, default=quiet, help="waits so many seconds for a quiet machine")
    parser.add_argument("--no-build", action="store_true", help="takes our binaries and our package as they are")
    parser.add_argument("--json", action="store_true", help="the last line is a JSON object with every run")


def begin(cores: int) -> int:
    """Pins this process and its children to so many cores, and has it end all of them on SIGTERM. Returns how many cores
    they are."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    adopt_orphans()
    pinned = sorted(os.sched_getaffinity(0))[:cores]
    os.sched_setaffinity(0, pinned)
    return len(pinned)


class Tree:
    """All descendants of this process."""

    def __init__(self) -> None:
        # CPU seconds by process and its start time; a process that has ended keeps its last value.
        self.cpu: dict[tuple[int, int], float] = {}

    def processes(self) -> dict[int, tuple[int, float]]:
        """Returns start time and CPU seconds of every descendant of this process."""
        table = {}
        for entry in os.listdir("/proc"):
            if entry.isdigit():
                try:
                    # The name, in parentheses, can contain anything.
                    fields = pathlib.Path(f"/proc/{entry}/stat").read_text().rsplit(")", 1)[1].split()
                except OSError:
                    continue
                table[int(entry)] = (int(fields[1]), int(fields[19]), (int(fields[11]) + int(fields[12])) * TICK_S)
        below, found = {}, {os.getpid()}
        while found:
            found = {pid for pid, (parent, _, _) in table.items() if parent in found}
            below |= {pid: table[pid][1:] for pid in found}
        return below

    def cpu_s(self) -> float:
        """Returns the CPU seconds of all of them so far."""
        for pid, (started, seconds) in self.processes().items():
            self.cpu[pid, started] = seconds
        return sum(self.cpu.values())

    def memory(self) -> tuple[int, int]:
        """Returns the bytes of memory, with shared pages counted once in total; and the part of it that is mapped
        files."""
        total = files = 0
        for pid in self.processes():
            try:
                for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                    name, _, value = line.partition(":")
                    if name == "Pss":
                        total += int(value.split()[0]) * 1024
                    elif name == "Pss_File":
                        files += int(value.split()[0]) * 1024
            except OSError:
                continue
        return total, files

    def end(self) -> None:
        """Ends all processes that are left."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            deadline = time.monotonic() + 3
            for pid in self.processes():
                try:
                    os.kill(pid, number)
                except OSError:
                    pass
            while self.processes() and time.monotonic() < deadline:
                reap()
                time.sleep(0.02)
        reap()


def reap() -> None:
    """Collects the exit codes of children that have ended."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def measure(loader, settings, timing: Timing) -> dict:
    """Runs a loader once. Its servers are up before its trainer starts, and the clock starts with the trainer."""
    tree = Tree()
    with tempfile.TemporaryDirectory(prefix="peers-") as folder:
        folder = pathlib.Path(folder)
        with open(folder / "stderr", "w+b") as messages:
            try:
                settings, environment = loader.start_servers(settings, folder, messages)
                record = folder / "record.json"
                started_ns = time.time_ns()
                command = loader.command(settings, timing, record)
                trainer = spawn(command, messages, environment)
                samples, peak, files = watch(tree, trainer, record, started_ns, timing)
            except Failed as failed:
                raise Failed(f"{failed}: {last_words(folder)}") from None
            finally:
                tree.end()
        return figures(json.loads(record.read_text()), samples, peak, files, started_ns, settings, timing)


def spawn(command: list[str], messages, environment: dict[str, str] | None = None, **options) -> subprocess.Popen:
    """Starts a process that writes its errors to `messages`."""
    options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL} | options
    return subprocess.Popen(
        [str(part) for part in command], stderr=messages, env=os.environ | (environment or {}), **options
    )


def watch(tree: Tree, trainer: subprocess.Popen, record: pathlib.Path, started_ns: int, timing: Timing):
    """Follows a run to its end. Returns samples of CPU seconds, its own and the whole machine's, and the peak of
    memory."""
    samples, peak, files, next_memory = [(started_ns, tree.cpu_s(), machine_cpu_s())], 0, 0, 0.0
    deadline = time.monotonic() + timing.warm_s + timing.seconds + GRACE_S
    while trainer.poll() is None:
        if time.monotonic() > deadline:
            raise Failed(f"did not end within {timing.warm_s + timing.seconds + GRACE_S:.0f} s")
        samples.append((time.time_ns(), tree.cpu_s(), machine_cpu_s()))
        if time.monotonic() >= next_memory:
            total, mapped = tree.memory()
            if total > peak:
                peak, files = total, mapped
            next_memory = time.monotonic() + MEMORY_EVERY_S
        time.sleep(CPU_EVERY_S)
    if trainer.returncode or not record.exists():
        raise Failed(f"ended with exit code {trainer.returncode}")
    return samples, peak, files


def figures(record: dict, samples: list, peak: int, files: int, started_ns: int, settings, timing: Timing) -> dict:
    """Computes the results of a run."""
    times, waits = record["times"], record["waits"]
    steady = [index for index, moment in enumerate(times) if moment >= times[0] + timing.warm_s * 1e9]
    if len(steady) < 3:
        raise Failed(f"gave {len(steady)} batches in {timing.seconds:.0f} s")
    # Counted from the last batch before them, so that a pause before their first one counts too.
    first, last = max(0, steady[0] - 1), steady[-1]
    images = (last - first) * settings.batch
    used_s, all_used_s = (growth(samples, times[first], times[last], column) for column in (1, 2))
    seconds = (times[last] - times[first]) / 1e9
    waited = sorted(waits[index] / 1e6 for index in steady[1:])
    return {
        "images_per_s": images / seconds,
        "cpu_s_per_1000": used_s / images * 1000,
        "others_cores": max(0.0, all_used_s - used_s) / seconds,
        "peak_mb": peak / 1e6,
        "peak_files_mb": files / 1e6,
        "first_batch_s": (times[0] - started_ns) / 1e9,
        "wait_ms_p50": waited[len(waited) // 2],
        "wait_ms_p99": waited[min(len(waited) - 1, len(waited) * 99 // 100)],
        "wait_ms_max": waited[-1],
        "batches": len(waited),
    }


def growth(samples: list[tuple], start: int, end: int, column: int) -> float:
    """Returns how much a column grew between two moments, by linear interpolation."""

    def value(moment: int) -> float:
        for before, after in zip(samples, samples[1:]):
            if before[0] <= moment <= after[0]:
                part = (moment - before[0]) / max(1, after[0] - before[0])
                return before[column] + (after[column] - before[column]) * part
        return samples[-1][column]

    return value(end) - value(start)


def machine_cpu_s() -> float:
    """Returns the CPU seconds that the whole machine has used except this process, including the time that its host
    gave to others."""
    user, nice, system, _idle, _wait, irq, softirq, steal = map(int, open("/proc/stat").readline().split()[1:9])
    return (user + nice + system + irq + softirq + steal) * TICK_S - time.process_time()


def wait_for_quiet(limit_s: float) -> None:
    """Waits, at most `limit_s`, until no other process uses the machine."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        before, began = machine_cpu_s(), time.monotonic()
        time.sleep(1)
        if machine_cpu_s() - before < OTHERS_CORES / 2 * (time.monotonic() - began):
            return


def last_words(folder: pathlib.Path) -> str:
    """Returns the most informative line of what the processes wrote."""
    text = (folder / "stderr").read_bytes()[-20_000:].decode(errors="replace")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    telling = [line for line in lines if "Error" in line or "error" in line]
    return (telling or lines or ["no message"])[-1][:300]


def progress(text: str) -> None:
    """Prints progress for the user."""
    print(text, file=sys.stderr, flush=True)
