"""Checks with torch and a GPU that the Python package's tensors are correct. Skipped, with the reason, if one of them
is missing.

usage: torch_check.py [DEVICE]

Needs `spdl_cluster` installed, and torch with CUDA.
"""

from __future__ import annotations

import pathlib
import sys
import tempfile
from typing import Any

DEVICE = sys.argv[1] if len(sys.argv) > 1 else "cuda:0"


def missing() -> str | None:
    """Returns why nothing can be checked here, or `None`."""
    try:
        import torch
    except ImportError as error:
        return f"torch cannot be imported: {error}"
    if not torch.cuda.is_available():
        return "torch finds no CUDA device"
    try:
        import spdl_cluster  # noqa: F401
    except ImportError as error:
        return f"spdl_cluster is not installed: {error}"
    return None


def job(dataset: pathlib.Path, size: int) -> dict[str, Any]:
    """Returns a job with pictures, labels, and the pictures' files."""
    image = {"name": "image", "from": "jpg", "decode": "image", "ops": [{"random_resized_crop": {"size": size}}]}
    label = {"name": "label", "from": "cls", "decode": "int"}
    raw = {"name": "raw", "from": "jpg", "decode": "bytes", "max_bytes": 400_000}
    return {"name": "gpu", "dataset": dataset, "seed": 3, "global_batch": 32, "column": [image, label, raw]}


def on_host(made: dict[str, Any], **settings: Any) -> list[dict[str, Any]]:
    """Returns copies of all batches of an epoch."""
    import spdl_cluster

    batches = []
    with spdl_cluster.local(made, tensors="torch", **settings) as loader:
        for batch in loader:
            columns = {"image": batch["image"].clone(), "label": batch["label"].clone(), "ids": batch.ids.clone()}
            batches.append({**columns, "raw": batch["raw"].values.clone(), "position": batch.position})
            del batch
    return batches


def same(made: dict[str, Any]) -> str:
    """Checks that every column has the same bytes as on the host, on the right device."""
    import spdl_cluster
    import torch

    expected = on_host(made)
    with spdl_cluster.local(made, tensors="torch", device=torch.device(DEVICE)) as loader:
        for batch, wanted in zip(loader, expected, strict=True):
            assert batch.position == wanted["position"]
            pairs = [(batch["image"], "image"), (batch["label"], "label"), (batch["raw"].values, "raw"), (batch.ids, "ids")]
            for tensor, name in pairs:
                assert tensor.device == torch.device(loader.device), tensor.device
                assert torch.equal(tensor.cpu(), wanted[name]), name
            del batch, tensor, pairs
    return f"{len(expected)} batches, every byte"


def normalised(made: dict[str, Any]) -> str:
    """Checks that pictures that are normalised on the device equal those normalised on the host, to the bit."""
    import spdl_cluster
    import torch

    for dtype, layout in (("f16", "channels_last"), ("bf16", "nchw"), ("f32", "channels_last")):
        by = spdl_cluster.Normalise(
            (0.485, 0.456, 0.406), (0.229, 0.224, 0.225), dtype=dtype, layout=layout, flip=0.5  # type: ignore[arg-type]
        )
        options = spdl_cluster.DeviceOptions(normalise={"image": by})
        expected = on_host(made, device="cpu", device_options=options)
        with spdl_cluster.local(made, tensors="torch", device=DEVICE, device_options=options) as loader:
            for batch, wanted in zip(loader, expected, strict=True):
                image = batch["image"]
                if layout == "channels_last":
                    assert image.is_contiguous(memory_format=torch.channels_last)
                assert torch.equal(image.cpu(), wanted["image"]), (dtype, layout)
                del batch, image
    return "3 types, to the bit"


def torn(made: dict[str, Any]) -> str:
    """Checks that batches stay intact when they are dropped while kernels that read them are queued, on the current
    stream and on another one, with two buffers."""
    import spdl_cluster
    import torch

    expected, copies = on_host(made), []
    own, other = torch.cuda.Stream(DEVICE), torch.cuda.Stream(DEVICE)
    options = spdl_cluster.DeviceOptions(buffers=2)
    with (
        torch.cuda.stream(own),
        spdl_cluster.local(made, tensors="torch", device=DEVICE, device_options=options) as loader,
    ):
        for batch in loader:
            torch.cuda._sleep(20_000_000)
            mine = batch["image"].clone()
            batch.wait_on(other)
            with torch.cuda.stream(other):
                torch.cuda._sleep(40_000_000)
                theirs = batch["image"].clone()
            copies.append((mine, theirs))
            del batch
    torch.cuda.synchronize(DEVICE)
    for pair, wanted in zip(copies, expected, strict=True):
        assert all(torch.equal(copy.cpu(), wanted["image"]) for copy in pair)
    return f"{len(copies)} batches on 2 streams, 2 buffers"


def names(made: dict[str, Any]) -> str:
    """Checks that `cuda` is torch's current device, and that a missing device is an error."""
    import spdl_cluster
    import torch

    with torch.cuda.device(DEVICE), spdl_cluster.local(made, device="cuda") as loader:
        assert loader.device == f"cuda:{torch.cuda.current_device()}"
    devices = torch.cuda.device_count()
    try:
        spdl_cluster.local(made, device=devices)
    except spdl_cluster.DeviceError as error:
        return str(error)
    raise AssertionError(f"there is no device {devices}")


def main() -> None:
    """Runs every check."""
    reason = missing()
    if reason:
        print(f"skipped: torch on a GPU: {reason}")
        return
    from spdl_cluster.demo import pack_pictures

    with tempfile.TemporaryDirectory() as folder:
        dataset = pathlib.Path(folder, "dataset")
        pack_pictures(dataset, 640, seed=1)
        for check in (same, normalised, torn, names):
            print(f"ok     torch: {check.__name__:<27} {check(job(dataset, 224))}", flush=True)


if __name__ == "__main__":
    main()
