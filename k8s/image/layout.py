"""Writes an image in the layout of the OCI: https://github.com/opencontainers/image-spec/blob/main/image-layout.md.

The same image makes the same bytes: entries are sorted, and no time but that of `SOURCE_DATE_EPOCH`, or else 1970, is written.
"""

from __future__ import annotations

import dataclasses
import datetime
import gzip
import hashlib
import io
import json
import os
import pathlib
import platform
import shutil
import tarfile
import tempfile
from typing import Any, BinaryIO

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
CONFIG = "application/vnd.oci.image.config.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"


@dataclasses.dataclass(frozen=True)
class Entry:
    """A file or folder of a layer."""

    path: str
    mode: int
    owner: int = 0
    #: The file that has the bytes, or the bytes; a folder has neither.
    source: pathlib.Path | None = None
    content: bytes | None = None

    @classmethod
    def folder(cls, path: str, *, mode: int = 0o755, owner: int = 0) -> Entry:
        return cls(path, mode, owner)

    @classmethod
    def text(cls, path: str, text: str) -> Entry:
        return cls(path, 0o644, content=text.encode())

    @classmethod
    def file(cls, path: str, source: pathlib.Path, *, mode: int | None = None) -> Entry:
        """A file as it is, without the bits that would let it gain rights."""
        return cls(path, source.stat().st_mode & 0o755 if mode is None else mode, source=source)


@dataclasses.dataclass(frozen=True)
class Image:
    """What an image consists of."""

    name: str
    user: int
    #: The layers from the bottom, each with what its history calls it.
    layers: list[tuple[str, list[Entry]]]


def write_archive(archive: pathlib.Path, image: Image, *, level: int = 6) -> None:
    """Writes the archive. `level` is gzip's."""
    # Only a complete archive gets the name.
    unfinished = archive.with_name(archive.name + ".part")
    with tempfile.TemporaryDirectory() as folder, tarfile.open(unfinished, "w", format=tarfile.USTAR_FORMAT) as tar:
        layers, uncompressed = [], []
        for number, (_, entries) in enumerate(image.layers):
            compressed = pathlib.Path(folder, f"{number}.tar.gz")
            uncompressed.append(_write_layer(compressed, entries, level))
            layers.append(_add_blob(tar, LAYER, compressed.open("rb")))
        config = _add_blob(tar, CONFIG, _json(_config(image, uncompressed)))
        manifest = _add_blob(tar, MANIFEST, _json({"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": layers}))
        manifest["annotations"] = {"org.opencontainers.image.ref.name": image.name}
        _add(tar, "index.json", _json({"schemaVersion": 2, "mediaType": INDEX, "manifests": [manifest]}))
        _add(tar, "oci-layout", _json({"imageLayoutVersion": "1.0.0"}))
    unfinished.replace(archive)


def _write_layer(path: pathlib.Path, entries: list[Entry], level: int) -> str:
    """Writes a compressed layer, and returns the digest of what it is without compression."""
    with tempfile.TemporaryFile() as plain:
        with tarfile.open(fileobj=plain, mode="w", format=tarfile.USTAR_FORMAT) as tar:
            for entry in sorted(_with_parents(entries), key=lambda entry: entry.path):
                _add_entry(tar, entry)
        digest = _digest(plain)
        with path.open("wb") as file, gzip.GzipFile("", "wb", level, file, mtime=0) as compressed:
            shutil.copyfileobj(plain, compressed)
    return digest


def _with_parents(entries: list[Entry]) -> list[Entry]:
    """Adds the folders that the entries are in."""
    own = {entry.path: entry for entry in entries}
    parents = {str(parent) for path in own for parent in pathlib.PurePosixPath(path).parents if str(parent) != "."}
    return [*own.values(), *(Entry.folder(parent) for parent in parents - own.keys())]


def _add_entry(tar: tarfile.TarFile, entry: Entry) -> None:
    info = tarfile.TarInfo(entry.path)
    info.mode, info.uid, info.gid, info.mtime = entry.mode, entry.owner, entry.owner, _seconds()
    if entry.source is not None:
        info.size = entry.source.stat().st_size
        with entry.source.open("rb") as file:
            tar.addfile(info, file)
    elif entry.content is not None:
        info.size = len(entry.content)
        tar.addfile(info, io.BytesIO(entry.content))
    else:
        info.type = tarfile.DIRTYPE
        tar.addfile(info)


def _config(image: Image, uncompressed: list[str]) -> dict[str, Any]:
    created = datetime.datetime.fromtimestamp(_seconds(), datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "architecture": ARCHITECTURES[platform.machine()],
        "os": "linux",
        "created": created,
        "config": {
            "User": f"{image.user}:{image.user}",
            "Env": ["PATH=/usr/local/bin:/usr/bin"],
            "Cmd": ["spdl-ctl", "--help"],
            # Coordinator: 7400/udp and 7401/tcp. Worker: 7402/udp and 7403/tcp.
            "ExposedPorts": {"7400/udp": {}, "7401/tcp": {}, "7402/udp": {}, "7403/tcp": {}},
        },
        "rootfs": {"type": "layers", "diff_ids": uncompressed},
        "history": [{"created": created, "created_by": f"build.py: {name}"} for name, _ in image.layers],
    }


def _add_blob(tar: tarfile.TarFile, media_type: str, file: BinaryIO) -> dict[str, Any]:
    """Adds a blob, closes its file, and returns its descriptor."""
    digest = _digest(file)
    size = _add(tar, f"blobs/{digest.replace(':', '/')}", file)
    return {"mediaType": media_type, "digest": digest, "size": size}


def _add(tar: tarfile.TarFile, path: str, file: BinaryIO) -> int:
    with file:
        info = tarfile.TarInfo(path)
        info.mode, info.mtime, info.size = 0o644, _seconds(), file.seek(0, io.SEEK_END)
        file.seek(0)
        tar.addfile(info, file)
    return info.size


def _digest(file: BinaryIO) -> str:
    """Returns the digest of a whole file, which is then at its start."""
    file.seek(0)
    sha = hashlib.sha256()
    while chunk := file.read(1 << 20):
        sha.update(chunk)
    file.seek(0)
    return f"sha256:{sha.hexdigest()}"


def _json(value: dict[str, Any]) -> BinaryIO:
    return io.BytesIO(json.dumps(value, separators=(",", ":"), sort_keys=True).encode())


def _seconds() -> int:
    return int(os.environ.get("SOURCE_DATE_EPOCH", "0"))
