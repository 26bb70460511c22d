"""The five steps of training from the cloud, as one pipeline: download, load and preprocess, batch, preprocess the batch,
transfer to the GPU.

    python python/examples/pipeline_five_steps.py

Serves pictures with a local HTTP server and reads them by their URLs; then does the same with a loader in front, and continues
from the middle of it. Uses a GPU if there is one.
"""

from __future__ import annotations

import functools
import http.server
import pathlib
import tarfile
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import spdl_cluster
import spdl_cluster.demo
import torch
from spdl_cluster import ops
from spdl_cluster.pipeline import Pipeline, PipelineBuilder

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
MEAN, STD = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
JOB = {
    "name": "five-steps",
    "global_batch": 32,
    "epochs": 1,
    "column": [{"name": "image", "from": "jpg", "decode": "image", "ops": [{"resize": {"size": [64, 64]}}]}],
}


def preprocess(images: Any) -> torch.Tensor:
    """Makes normalised numbers of a batch's bytes, channels first."""
    values = torch.as_tensor(images).float() / 255
    return ((values - MEAN) / STD).permute(0, 3, 1, 2).contiguous()


def of_urls(urls: list[str]) -> Pipeline[torch.Tensor]:
    """Builds the five steps over loose URLs. The first three run without Python's lock."""
    return (
        PipelineBuilder()
        .add_source(urls)
        .pipe(ops.download, concurrency=16)
        .pipe(ops.decode_image((64, 64), crop="centre"), concurrency=4)
        .aggregate(32)
        .pipe(ops.collate)
        .pipe(preprocess)
        .pipe(ops.to_device(DEVICE))
        .add_sink(3)
        .build(num_threads=4)
    )


def of_loader(loader: spdl_cluster.Loader) -> Pipeline[torch.Tensor]:
    """Builds the last two steps behind a loader, which does the first three: `connect` has the cluster do them."""
    return (
        PipelineBuilder()
        .add_source(loader)
        .pipe(lambda batch: preprocess(batch["image"]), name="preprocess")
        .pipe(ops.to_device(DEVICE))
        .add_sink(1)
        .build(num_threads=2)
    )


@contextmanager
def served(folder: pathlib.Path) -> Iterator[str]:
    """Serves a folder on loopback; gives its URL."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


def main() -> None:
    """Runs both pipelines, and prints what came out."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        spdl_cluster.demo.pack_pictures(folder / "dataset", 192)
        for shard in (folder / "dataset").glob("**/*.tar"):
            with tarfile.open(shard) as archive:
                for member in archive:
                    if member.name.endswith(".jpg"):
                        pictures = folder / "pictures"
                        pictures.mkdir(exist_ok=True)
                        data = archive.extractfile(member)
                        assert data is not None
                        (pictures / pathlib.Path(member.name).name).write_bytes(data.read())

        with served(folder / "pictures") as url:
            pipeline = of_urls([f"{url}/{path.name}" for path in sorted((folder / "pictures").iterdir())])
            with pipeline.auto_stop():
                batches = [tuple(batch.shape) for batch in pipeline.get_iterator(timeout=30)]
        print(f"from URLs: {sum(shape[0] for shape in batches)} pictures in {len(batches)} batches on {DEVICE}")

        seen = 0
        with spdl_cluster.local({**JOB, "dataset": folder / "dataset"}, slots=8) as loader:
            pipeline = of_loader(loader)
            with pipeline.auto_stop():
                for _ in range(3):
                    seen += len(pipeline.get_item(timeout=30))
                state = pipeline.state_dict()
        with spdl_cluster.local({**JOB, "dataset": folder / "dataset"}, slots=8, state=state) as loader:
            pipeline = of_loader(loader)
            with pipeline.auto_stop():
                seen += sum(len(batch) for batch in pipeline.get_iterator(timeout=30))
        print(f"from a loader: {seen} pictures, continued after 96 of them")


if __name__ == "__main__":
    main()
