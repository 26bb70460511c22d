"""Datasets of arrays of random numbers for `benches/peers/run --au`, and our loader of them."""

import dataclasses
import json
import math
import pathlib

import loaders
from data import Data, Settings


@dataclasses.dataclass(frozen=True)
class Arrays:
    """The samples of a dataset."""

    #: Type and shape of each column that is read, and how many more there are, of the last one's.
    columns: dict[str, tuple[str, tuple[int, ...]]]
    #: Samples of a file, and number of files.
    samples: int
    files: int
    unread: int = 0
    #: Samples of a row group of Parquet.
    group: int = 0

    def column(self, name: str, samples: int, random):
        """Returns random values of a column, one row for each sample."""
        kind, shape = self.columns[name] if name in self.columns else list(self.columns.values())[-1]
        count = samples * math.prod(shape)
        if kind == "float32":
            values = random.standard_normal(count, "float32")
        else:
            values = random.integers(0, 256 if kind == "uint8" else 1 << 20, count, kind)
        return values.reshape(samples, *shape)

    @property
    def names(self) -> list[str]:
        """Names of all columns."""
        return [*self.columns, *(f"unread{number}" for number in range(self.unread))]


ARRAYS = {
    "unet3d": Arrays({"x": ("uint8", (9_162_500,))}, 1, 200),
    "cosmoflow": Arrays({"x": ("uint8", (2_828_486,)), "y": ("float32", (4,))}, 1, 512),
    "flux": Arrays(
        {"text": ("float32", (524_288,)), "pooled": ("float32", (768,)), "latent": ("float32", (16_152,))}, 120, 8, group=30
    ),
    "dlrm": Arrays(
        {f"c{number}": ("int32", ()) for number in range(26)} | {f"d{number}": ("float32", ()) for number in range(14)},
        301_056, 4, unread=160, group=6144,
    ),
}  # fmt: skip
#: Types of our job file.
TYPES = {"uint8": "u8", "int32": "i32", "float32": "f32"}


def arrays_of(data: Data) -> Arrays:
    """Returns what lies in this folder."""
    return ARRAYS[data.home.name.removeprefix("au-")]


def files(data: Data, kind: str) -> list[str]:
    return sorted(map(str, data.format(kind).glob(f"*.{kind}")))


class OurArrays(loaders.Ours):
    """Our loader, of the files that a peer has written."""

    def __init__(self, writer: str, venvs: pathlib.Path, data: Data, memory_bytes: int) -> None:
        super().__init__("cluster", venvs, data, False)
        self.writer, self.format = writer, loaders.Peer(writer, venvs, data).format
        self.title, self.memory_bytes = "spdl-cluster, worker and local queue", memory_bytes

    def columns(self, settings: Settings) -> str:
        raw = {"encoding": "raw"} if self.format == "tfrecord" else {}
        tables = []
        for name, (kind, shape) in arrays_of(self.data).columns.items():
            # A file is a sample with one field, which has the name of its ending.
            column = {"name": name, "from": "npz" if self.format == "npz" else name, "decode": "tensor"}
            column |= {"dtype": TYPES[kind], "shape": list(shape)} | (raw if kind == "uint8" else {})
            lines = [f"{key} = {json.dumps(value)}" for key, value in column.items()]
            tables.append("\n".join(["[[column]]", *lines, ""]))
        return "\n".join(tables)

    def check(self, settings: Settings) -> list:
        (name, (_, shape)), *_ = arrays_of(self.data).columns.items()
        return ["--array", name, "--elements", math.prod(shape)]
