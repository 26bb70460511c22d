"""Builds the image of programs of this machine, for tests: the Containerfile, with Debian's buildah.

Nothing is fetched, as the Containerfile's first stage is replaced by what `files.py` collects.
"""

import dataclasses
import json
import pathlib
import subprocess
import sys
from typing import Any

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]


@dataclasses.dataclass
class Image:
    """An image in a store of its own."""

    id: str
    config: dict[str, Any]
    #: Has all files of the image.
    root: pathlib.Path


def build(binaries: pathlib.Path, folder: pathlib.Path) -> Image:
    """Builds the image. The store is below `folder`."""

    def buildah(*arguments: str | pathlib.Path) -> str:
        store = ["--storage-driver=vfs", f"--root={folder / 'store'}", f"--runroot={folder / 'run'}"]
        return subprocess.run(["buildah", *store, *arguments], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()

    files = folder / "files"
    subprocess.run([sys.executable, HERE / "files.py", binaries, files], check=True)
    options = [f"--build-context=build={files}", "--timestamp=0", "--identity-label=false"]
    image = buildah("build", "--quiet", *options, ROOT)
    config = json.loads(buildah("inspect", "--type=image", image))["OCIv1"]
    return Image(image, config, pathlib.Path(buildah("mount", buildah("from", image))))
