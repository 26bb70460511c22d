"""The native half of the package."""

import os
from collections.abc import Callable, Iterable, Sequence

from typing import Any, final

from typing_extensions import CapsuleType

from .device import DeviceOptions
from .environment import RankOfWorld
from .functions import Program
from .here import FunctionsHere
from .pipeline.running import NativeSource, NativeStage

__all__ = [
    "ColumnType",
    "DiagnosisTerm",
    "DlpackColumn",
    "LoaderFacts",
    "LoaderStart",
    "LoopTasks",
    "NativeArray",
    "NativeBatch",
    "NativeDataset",
    "NativeDiagnosis",
    "NativeLoader",
    "NativeOp",
    "NativePipeline",
    "NativeWriter",
    "PipelineStageStats",
    "Prediction",
    "Reply",
    "SlabMemory",
    "StreamPosition",
    "Transform",
    "__version__",
    "dev_cluster",
    "frame_child",
    "function_process",
    "image_folder",
    "index",
    "job_text",
    "merge_parts",
    "pack",
    "pack_pictures",
    "pack_tokens",
    "set_log_level",
    "sheet_png",
    "start_log",
    "stop_log",
    "suggest",
]

__version__: str

@final
class StreamPosition:
    """A position in the job's stream."""

    @property
    def epoch(self) -> int: ...
    @property
    def offset(self) -> int: ...

@final
class LoaderStart:
    """Where a loader started, and why there."""

    @property
    def position(self) -> StreamPosition: ...
    @property
    def how(self) -> str: ...
    @property
    def reason(self) -> str: ...

@final
class ColumnType:
    """The name of a column, its kind and the type of its elements."""

    @property
    def name(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def dtype(self) -> str: ...

@final
class LoaderFacts:
    """What does not change during a loader's life, but for the end of the stream, which other weights of sources can move."""

    @property
    def job(self) -> str: ...
    @property
    def samples(self) -> int: ...
    @property
    def epochs(self) -> int: ...
    @property
    def global_batch(self) -> int: ...
    @property
    def steps(self) -> int: ...
    @property
    def is_evaluation(self) -> bool: ...
    @property
    def is_in_order(self) -> bool: ...
    @property
    def epoch_end(self) -> str: ...
    @property
    def seq_len(self) -> int | None: ...
    @property
    def sources(self) -> list[tuple[str, int, int]]: ...
    @property
    def columns(self) -> list[ColumnType]: ...

@final
class SlabMemory:
    """The memory that all batches of a loader lie in."""

    @property
    def address(self) -> int: ...
    @property
    def bytes(self) -> int: ...

@final
class DiagnosisTerm:
    """The rate that a resource allows a rank."""

    @property
    def limit(self) -> str: ...
    @property
    def samples_per_s(self) -> float: ...

@final
class Prediction:
    """What a rank would get under a change."""

    @property
    def samples_per_s(self) -> float: ...
    @property
    def waiting(self) -> float: ...

@final
class NativeDiagnosis:
    """The diagnosis of a rank."""

    @property
    def limit(self) -> str | None: ...
    @property
    def next(self) -> DiagnosisTerm | None: ...
    @property
    def verdict(self) -> str: ...
    @property
    def samples_per_s(self) -> float: ...
    @property
    def waiting(self) -> float: ...
    @property
    def terms(self) -> list[DiagnosisTerm]: ...
    def what_if(
        self,
        *,
        workers: float,
        cores: float,
        call: float,
        requests: float,
        ahead: float,
        latency: float,
        bandwidth: float,
        fetched: float,
        memory_bytes: float,
        network: float,
        slots: float,
        step: float,
    ) -> Prediction: ...

@final
class NativeDataset:
    """The records of a dataset."""

    @staticmethod
    def open(url: str) -> NativeDataset: ...
    @property
    def url(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def format(self) -> str: ...
    @property
    def fingerprint(self) -> str: ...
    @property
    def samples(self) -> int: ...
    @property
    def classes(self) -> list[str]: ...
    def record(self, sample: int) -> tuple[str, int, list[tuple[str, str, bool, list[bytes | None]]]]: ...
    def find(self, key: str) -> int | None: ...

@final
class NativeLoader:
    """The loader of one rank: its batches, in order. It is opened at the first use, so that a state can be set before."""

    @staticmethod
    def connect(
        ranks: Callable[[], RankOfWorld],
        *,
        job: str | None,
        run: str | None,
        start: str | None,
        takeover: bool | None,
        launch: str | None,
        epochs: int | None,
        endless: bool,
        coordinators: str | None,
        certs: str | os.PathLike[str] | None,
        transport: str | None,
        slots: int | None,
        timeout: float | None,
        member: tuple[int, int] | None,
        socket: str | None,
        node: str | None,
        global_batch: int | None,
        log_every: float | None,
        device: str,
        device_options: DeviceOptions,
    ) -> NativeLoader: ...
    @staticmethod
    def local(
        job: dict[str, Any] | str | os.PathLike[str],
        ranks: Callable[[], RankOfWorld],
        *,
        start: str | None,
        epochs: int | None,
        endless: bool,
        slots: int | None,
        timeout: float | None,
        global_batch: int | None,
        seed: int | None,
        sharers: int,
        cores: float | None,
        memory_bytes: int | None,
        cache_dir: str | None,
        cache_bytes: int | None,
        requests: int | None,
        read_ahead: int | None,
        transform_timeout: float | None,
        program: Program | None,
        here: FunctionsHere | None,
        log_every: float | None,
        device: str,
        device_options: DeviceOptions,
    ) -> NativeLoader: ...
    def next(self) -> NativeBatch | None: ...
    def go_to(self, epoch: int, offset: int) -> None: ...
    def repeat_batches(self, count: int) -> None: ...
    def drain(self, count: int) -> int: ...
    def state(self) -> str: ...
    def load_state(self, state: str) -> None: ...
    def stats(self) -> str: ...
    def report(self) -> str: ...
    def diagnose(self) -> NativeDiagnosis | None: ...
    def close(self) -> None: ...
    def __reduce__(self) -> Any: ...
    @property
    def start(self) -> LoaderStart: ...
    @property
    def run(self) -> str: ...
    @property
    def position(self) -> StreamPosition: ...
    @property
    def epoch(self) -> int: ...
    @property
    def receipt(self) -> str: ...
    @property
    def steps_left(self) -> int: ...
    @property
    def facts(self) -> LoaderFacts: ...
    @property
    def classes(self) -> list[str] | None: ...
    @property
    def has_class_numbers(self) -> bool: ...
    @property
    def device(self) -> str: ...
    @property
    def job_name(self) -> str: ...
    @property
    def position_text(self) -> str: ...
    @property
    def is_forked(self) -> bool: ...
    @property
    def is_closed(self) -> bool: ...

@final
class NativeBatch:
    """One batch, in its slot or on a device."""

    def fill(
        self,
        target: dict[str, Any],
        convert: Callable[[Any], Any],
        convert_ragged: Callable[[DlpackColumn, DlpackColumn, bytes], Any],
        capsules: bool,
        only: frozenset[str] | None,
    ) -> None: ...
    def wait_on(self, stream: int) -> None: ...
    def sequences(self) -> tuple[list[list[int]], list[int] | None] | None: ...
    def global_lengths(self) -> list[list[int]] | None: ...
    @property
    def global_loss_tokens(self) -> int | None: ...
    @property
    def ends_epoch(self) -> bool: ...
    @property
    def samples(self) -> int: ...
    @property
    def position(self) -> StreamPosition: ...
    @property
    def next_position(self) -> StreamPosition: ...
    @property
    def ids(self) -> DlpackColumn: ...
    @property
    def epochs(self) -> DlpackColumn: ...
    @property
    def offsets(self) -> DlpackColumn: ...
    @property
    def flags(self) -> DlpackColumn: ...
    @staticmethod
    def flag_bits() -> dict[str, int]: ...
    @property
    def slab(self) -> SlabMemory: ...
    @property
    def slot(self) -> int: ...
    def receipt(self) -> str: ...
    def content_digest(self) -> str: ...

@final
class DlpackColumn:
    """One column of a batch, or one field of its entries, as a DLPack tensor that shares the batch's memory."""

    @property
    def dtype(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    def bits(self) -> DlpackColumn: ...
    def data_ptr(self) -> int: ...
    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> CapsuleType: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...

@final
class NativeArray:
    """An array as a DLPack exporter."""

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> CapsuleType: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...

@final
class NativeOp:
    """An operation that runs without Python. It can be called, too."""

    @staticmethod
    def download(max_bytes: int) -> NativeOp: ...
    @staticmethod
    def decode_image(
        size: Sequence[int] | None,
        *,
        crops_centre: bool,
        dtype: str,
        channels_first: bool,
        normalise: tuple[Sequence[float], Sequence[float]] | None,
    ) -> NativeOp: ...
    @staticmethod
    def decode_tensor(array: str | None, max_bytes: int) -> NativeOp: ...
    @staticmethod
    def resize(size: Sequence[int], *, crops_centre: bool) -> NativeOp: ...
    @staticmethod
    def normalise(
        *, dtype: str, channels_first: bool, normalise: tuple[Sequence[float], Sequence[float]] | None
    ) -> NativeOp: ...
    @staticmethod
    def collate() -> NativeOp: ...
    def __call__(self, item: Any) -> Any: ...

@final
class Reply:
    """Where an operation that answers later puts its result. Only the first answer counts."""

    def done(self, result: Any) -> None: ...
    def done_many(self, results: list[Any]) -> None: ...
    def failed(self, exception: BaseException) -> None: ...

@final
class Transform:
    """The operations of an `image` column of a job, on arrays; `transform` makes it."""

    def __new__(cls, ops: Sequence[Any], seed: int) -> Transform: ...
    def __call__(self, image: Any, /, *, epoch: int = 0, id: int = 0) -> Any: ...

@final
class LoopTasks:
    """Tasks of a pipeline that the thread of an event loop runs. Whenever `fileno` is readable, that thread calls `run`."""

    def __new__(cls) -> LoopTasks: ...
    def fileno(self) -> int: ...
    def run(self) -> None: ...
    def close(self) -> None: ...

@final
class PipelineStageStats:
    """What a stage of a pipeline in this process has done."""

    @property
    def name(self) -> str: ...
    @property
    def items(self) -> int: ...
    @property
    def failures(self) -> int: ...
    @property
    def busy_s(self) -> float: ...
    @property
    def input_wait_s(self) -> float: ...
    @property
    def output_wait_s(self) -> float: ...
    @property
    def p50_s(self) -> float: ...
    @property
    def p99_s(self) -> float: ...
    @property
    def queued(self) -> int: ...

@final
class NativePipeline:
    """A running pipeline. Dropping it stops it and waits for nothing."""

    @staticmethod
    def start(source: NativeSource, stages: Sequence[NativeStage], buffer: int, threads: int) -> NativePipeline: ...
    def next(self, timeout: float | None) -> Any: ...
    def position(self) -> StreamPosition | None: ...
    def stats(self) -> list[PipelineStageStats]: ...
    def set_concurrency(self, stage: str, concurrency: int) -> None: ...
    def drain(self) -> None: ...
    def begin_stop(self) -> None: ...
    def wait_stopped(self, timeout: float | None) -> None: ...

@final
class NativeWriter:
    """A dataset that is written sample by sample."""

    def __new__(
        cls,
        dataset: str,
        *,
        name: str | None,
        classes: Sequence[str],
        shard_size: int | str,
        records_per_shard: int | None,
        block_size: int | str,
        crop_ready: bool,
        scalable: bool,
        force: bool,
    ) -> NativeWriter: ...
    @property
    def count(self) -> int: ...
    @property
    def is_forked(self) -> bool: ...
    def write(self, key: str | None, fields: Sequence[tuple[str, bytes]]) -> None: ...
    def finish(self) -> str: ...
    def abort(self) -> None: ...

def start_log(deliver: Callable[[int, str, str], None]) -> None: ...
def set_log_level(level: int) -> None: ...
def stop_log() -> None: ...
def frame_child() -> None: ...
def function_process() -> str: ...
def job_text(job: Any, name: str | None = None) -> str: ...
def dev_cluster(role: str) -> tuple[str, str, str, list[str], dict[str, str]] | None: ...
def image_folder(folder: str | os.PathLike[str], salt: str) -> tuple[str, list[tuple[str, int]], int]: ...
def suggest(dataset: str, *, size: int, batch: int | None, validation: bool, training: str | None) -> tuple[dict[str, Any], list[tuple[str, str]]]: ...
def pack(
    source: list[str],
    dataset: str,
    *,
    name: str | None,
    fields: str | None,
    annotations: str | os.PathLike[str] | None,
    annotations_beside: bool,
    classes: tuple[str, list[str]] | None,
    all_splits: bool,
    seed: int,
    no_shuffle: bool,
    shard_size: int | str,
    records_per_shard: int | None,
    block_size: int | str,
    crop_ready: bool,
    scalable: bool,
    gop: int | None,
    force: bool,
    exist_ok: bool,
    part: str | None,
    on_progress: Callable[[int, int, int, int | None, int | None], object] | None,
) -> str: ...
def pack_tokens(
    source: str,
    dataset: str,
    *,
    vocab: int,
    from_field: str,
    eos: int | None,
    name: str | None,
    seed: int,
    no_shuffle: bool,
    shard_size: int | str,
    records_per_shard: int | None,
    block_size: int | str,
    force: bool,
    exist_ok: bool,
    part: str | None,
    on_progress: Callable[[int, int, int, int | None, int | None], object] | None,
) -> str: ...
def index(
    dataset: list[str],
    *,
    format: str | None,
    table: str | os.PathLike[str] | None,
    frames: bool,
    out: str | None,
    shards: Sequence[str] | None,
    split: str | None,
    all_splits: bool,
    name: str | None,
    boxes: str | None,
    key_ends_at: str | None,
    dtype: str | None,
    end_token: int | None,
    classes: tuple[str, list[str]] | None,
    block_size: int | str | None,
    skip_bad_shards: int,
    force: bool,
    discard_metadata: bool,
    on_progress: Callable[[int, int, int, int | None, int | None], object] | None,
) -> str: ...
def merge_parts(dataset: str) -> str: ...
def pack_pictures(folder: str | os.PathLike[str], count: int, seed: int = 0) -> int: ...

def sheet_png(columns: list[tuple[str, list[int], list[int] | None, str, bytes]], most: int, classes: list[str]) -> bytes: ...
