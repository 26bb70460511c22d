"""Datasets of MosaicML's, written in a few lines."""

from __future__ import annotations

import json
import pathlib
import struct
from collections.abc import Mapping

import numpy

SHARD = "shard.00000.mds"


def write_shard(folder: pathlib.Path, columns: Mapping[str, tuple[str, int | None]], samples: list[bytes]) -> None:
    """Writes these samples as a dataset of one shard. `columns` has the encoding and, if it is fixed, the size of each."""
    ends = 4 * (len(samples) + 2) + numpy.cumsum([0, *map(len, samples)])
    shard = struct.pack("<I", len(samples)) + ends.astype("<u4").tobytes() + b"".join(samples)
    (folder / SHARD).write_bytes(shard)
    facts = {
        "format": "mds",
        "version": 2,
        "samples": len(samples),
        "hashes": [],
        "compression": None,
        "size_limit": None,
        "column_names": list(columns),
        "column_encodings": [encoding for encoding, _ in columns.values()],
        "column_sizes": [size for _, size in columns.values()],
        "raw_data": {"basename": SHARD, "bytes": len(shard), "hashes": {}},
        "zip_data": None,
    }
    (folder / "index.json").write_text(json.dumps({"version": 2, "shards": [facts]}))
