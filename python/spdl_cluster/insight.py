"""What a loader did, and what limits it."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypedDict

from ._native import NativeDiagnosis

#: What limits a rank. `docs/guide/tuning.md` has a section on each.
Limit = Literal[
    "trainer",
    "cpu",
    "function",
    "store_latency",
    "store_bandwidth",
    "store_errors",
    "slow_object",
    "cold_cache",
    "bad_samples",
    "uneven_samples",
    "network",
    "hand_over",
    "no_worker",
    "silent",
    "superseded",
]


class Serving(TypedDict):
    """Which worker serves a loader."""

    #: `"local"`, `"quic"`, or `"in_process"`; `None` before the first batch.
    transport: str | None
    #: The worker's name.
    home: str | None


class StageStats(TypedDict):
    """The totals of a stage since it started. Times are in nanoseconds, over all units of the stage."""

    name: str
    items: int
    bytes: int
    failures: int
    busy_ns: int
    input_wait_ns: int
    output_wait_ns: int
    throttled_ns: int
    cpu_ns: int
    units: int
    queue_depth: int
    p50_ns: int
    p90_ns: int
    p99_ns: int


class StageRate(TypedDict):
    """What a stage did in a window. `busy`, the waits and `throttled` are the mean number of units in that state."""

    name: str
    items_per_s: float
    bytes_per_s: float
    failures_per_s: float
    busy: float
    input_wait: float
    output_wait: float
    throttled: float
    cpu: float


class LoaderWindow(TypedDict):
    """What a loader did in the last second, ten seconds or minute."""

    #: 1000, 10000 or 60000.
    window_ms: int
    #: The actual length: shorter while the loader has not run for longer.
    seconds: float
    batches_per_s: float
    samples_per_s: float
    bytes_per_s: float
    #: The fraction of the time in which the program waited for a batch.
    waiting: float
    stages: list[StageRate]


class LoaderStats(TypedDict):
    """The statistics of a loader since it was opened."""

    batches: int
    #: Those of `batches` that `repeat_batches` gave again. `samples`, `bytes` and the rates have them, and nothing else.
    repeated_batches: int
    samples: int
    #: Samples that stand in for a bad one.
    substituted: int
    #: Bad samples whose entry is zero.
    masked: int
    bytes: int
    elapsed_s: float
    first_batch_s: float | None
    #: Seconds that the program has waited, the wait in progress included.
    waited_s: float
    waited_since_first_s: float
    wait_ms_p50: float
    wait_ms_p99: float
    serving: Serving
    #: The stages that run in this process.
    stages: list[StageStats]
    #: The last 1, 10 and 60 seconds; empty before the second batch.
    windows: list[LoaderWindow]


class RunReport(TypedDict):
    """What a run came to, as `spdl-ctl compare` reads it."""

    #: The version of the report.
    spdl_report: int
    #: `"loader"`, or `"coordinator"` in those of `spdl-ctl run show`.
    reported_by: str
    job: str
    run: str
    #: Fingerprint of the dataset and the view of it.
    dataset: str
    #: Fingerprint of each column.
    columns: dict[str, str]
    world: int
    global_batch: int
    batches: int
    repeated_batches: int
    #: Seconds since the first batch.
    seconds: float
    #: `None` before the second batch, as the next two.
    batches_per_s: float | None
    #: Of all ranks, as if all were as fast as this one.
    samples_per_s: float | None
    #: The fraction of that time in which the program waited for batches.
    waiting: float | None
    bytes_per_sample: float | None
    #: Seconds of CPU time for each sample, by stage.
    cpu_s_per_sample: dict[str, float]
    #: The fraction of the samples that were bad.
    bad_fraction: float
    #: What limited it in the last seconds, and the same in a sentence; `None` after a short run.
    limit: Limit | None
    verdict: str | None


class Term(NamedTuple):
    """The rate that a resource allows a rank."""

    limit: Limit
    samples_per_s: float


class Prediction(NamedTuple):
    """What a rank would get under a change."""

    samples_per_s: float
    #: The fraction of its time that the program would wait for batches.
    waiting: float


class Diagnosis:
    """What limited a rank in the last seconds, and what would help."""

    __slots__ = ("_native",)

    def __init__(self, native: NativeDiagnosis) -> None:
        """Not for callers: use `Loader.diagnose`."""
        self._native = native

    @property
    def limit(self) -> Limit | None:
        """What the rank has too little of; `None` if no sample came, and nothing that was measured explains it."""
        return self._native.limit  # type: ignore[return-value]

    @property
    def next(self) -> Term | None:
        """What limits next. It bounds what any remedy gives."""
        following = self._native.next
        return None if following is None else Term(following.limit, following.samples_per_s)  # type: ignore[arg-type]

    @property
    def verdict(self) -> str:
        """What limits the rank and what would help how much, in a sentence."""
        return self._native.verdict

    @property
    def samples_per_s(self) -> float:
        """The samples per second that this rank took."""
        return self._native.samples_per_s

    @property
    def waiting(self) -> float:
        """The fraction of its time that the program waited for batches."""
        return self._native.waiting

    @property
    def terms(self) -> list[Term]:
        """The rate that each resource allows, the smallest first; empty if no sample came."""
        return [Term(term.limit, term.samples_per_s) for term in self._native.terms]  # type: ignore[arg-type]

    def what_if(
        self,
        *,
        workers: float = 1,
        cores: float = 0,
        call: float = 1,
        requests: float = 1,
        ahead: float = 1,
        latency: float = 1,
        bandwidth: float = 1,
        fetched: float = 1,
        memory_bytes: float = 0,
        network: float = 1,
        slots: float = 1,
        step: float = 1,
    ) -> Prediction:
        """Predicts the rate and the wait with other resources than those that were measured.

        cores: cores that the worker gets in addition; negative to take some away.
        memory_bytes: bytes that the worker's cache may hold in addition; negative to take some away. All others are factors:
        workers: of the number of workers, over which the job's ranks are spread; each rank has one.
        call: of the time of a call of the job's functions.
        requests: of the requests in flight.
        ahead: of the batches that are read ahead.
        latency, bandwidth: of the store's time until the first byte, and of its bytes per second.
        fetched: of the bytes that come from the store and not from a cache: 0 for a cache that holds all.
        network: of the network's bytes per second, for a worker on another node.
        slots: of the number of slots.
        step: of the time of a training step.
        """
        predicted = self._native.what_if(
            workers=workers,
            cores=cores,
            call=call,
            requests=requests,
            ahead=ahead,
            latency=latency,
            bandwidth=bandwidth,
            fetched=fetched,
            memory_bytes=memory_bytes,
            network=network,
            slots=slots,
            step=step,
        )
        return Prediction(predicted.samples_per_s, predicted.waiting)

    def __str__(self) -> str:
        return self.verdict

    def __repr__(self) -> str:
        return f"<spdl_cluster.Diagnosis: {self.verdict}>"


#: The window that `metrics` takes its rates from: the last ten seconds.
_METRICS_WINDOW_MS = 10_000


def metrics(stats: LoaderStats, prefix: str) -> dict[str, float]:
    """Returns statistics as a flat dict of numbers."""
    flat = {
        "batches": float(stats["batches"]),
        "samples": float(stats["samples"]),
        "bad_samples": float(stats["substituted"] + stats["masked"]),
        "waited_s": stats["waited_s"],
        "wait_ms_p50": stats["wait_ms_p50"],
        "wait_ms_p99": stats["wait_ms_p99"],
    }
    if stats["repeated_batches"]:
        flat["repeated_batches"] = float(stats["repeated_batches"])
    for window in stats["windows"]:
        if window["window_ms"] == _METRICS_WINDOW_MS:
            flat["batches_per_s"] = window["batches_per_s"]
            flat["samples_per_s"] = window["samples_per_s"]
            flat["bytes_per_s"] = window["bytes_per_s"]
            flat["waiting"] = window["waiting"]
    return {prefix + name: value for name, value in flat.items()}
