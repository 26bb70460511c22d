"""Reads an archive of `build.py` as a container runtime does."""

import json
import pathlib
import tarfile
from typing import IO, Any


def unpack(archive: pathlib.Path, root: pathlib.Path) -> tuple[dict[str, Any], list[tarfile.TarInfo]]:
    """Writes what all layers have into a folder, and returns the configuration and the entries of the layers."""
    entries: list[tarfile.TarInfo] = []
    with tarfile.open(archive) as tar:
        index = json.load(_file(tar, "index.json"))
        manifest = json.load(_blob(tar, index["manifests"][0]))
        for layer in manifest["layers"]:
            with tarfile.open(fileobj=_blob(tar, layer), mode="r:gz") as files:
                entries += files.getmembers()
                files.extractall(root)
        return json.load(_blob(tar, manifest["config"])), entries


def _blob(tar: tarfile.TarFile, descriptor: dict[str, Any]) -> IO[bytes]:
    return _file(tar, "blobs/" + descriptor["digest"].replace(":", "/"))


def _file(tar: tarfile.TarFile, path: str) -> IO[bytes]:
    file = tar.extractfile(path)
    assert file is not None, path
    return file
