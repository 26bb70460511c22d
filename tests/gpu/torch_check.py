"""Checks of the Python package's tensors on a GPU, with torch, CuPy and JAX. Each step is a process of its own.

usage: torch_check.py STEP [--device cuda:0] [--scratch DIR]

The last line of a step is its report, a line of JSON with `outcome` and `words`. A step whose modules cannot be used here is
skipped with the reason.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import pathlib
import signal
import tempfile
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

# JAX takes three quarters of the device's memory otherwise.
os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"

#: Cycles that a stream sleeps before it reads a batch that is dropped by then: 20 ms at 2 GHz.
SLEEP_CYCLES = 40_000_000
#: What is still alive when the process ends.
ALIVE: list[Any] = []


class Scene(NamedTuple):
    """What a step works with."""

    device: str
    job: dict[str, Any]


def usable_torch() -> None:
    """Fails if torch cannot be used."""
    import torch

    if not torch.cuda.is_available():
        raise RuntimeError("torch finds no CUDA device")


def usable_jax() -> None:
    """Fails if JAX cannot be used."""
    importlib.import_module("jax").devices("gpu")


def usable_cupy() -> None:
    """Fails if CuPy cannot be used."""
    importlib.import_module("cupy").zeros(1).sum().item()


def usable_package() -> None:
    """Fails if the package cannot be used."""
    try:
        import spdl_cluster  # noqa: F401
    except ImportError as error:
        raise RuntimeError(f"{error}; `tests/gpu/run --build DIR` makes its wheel") from None


USABLE: dict[str, Callable[[], None]] = {
    "spdl_cluster": usable_package,
    "torch": usable_torch,
    "cupy": usable_cupy,
    "jax": usable_jax,
}


def missing(module: str) -> str | None:
    """Returns why a module cannot be used here, or `None`."""
    try:
        USABLE[module]()
    except Exception as error:  # What a module raises when it finds no GPU depends on the module.
        words = (str(error).splitlines() or [type(error).__name__])[0]
        return f"Python's `{module}` cannot be used: {words}"
    return None


def make_job(scratch: pathlib.Path, size: int = 224) -> dict[str, Any]:
    """Returns a job with pictures, labels, and the pictures' files. The first step packs its pictures."""
    from spdl_cluster.demo import pack_pictures

    dataset = scratch / "dataset"
    if not dataset.exists():
        # Under another name until it is complete: this process may be killed meanwhile.
        partial = pathlib.Path(tempfile.mkdtemp(dir=scratch)) / "dataset"
        pack_pictures(partial, 640, seed=1)
        partial.rename(dataset)
    image = {"name": "image", "from": "jpg", "decode": "image", "ops": [{"random_resized_crop": {"size": size}}]}
    label = {"name": "label", "from": "cls", "decode": "int"}
    raw = {"name": "raw", "from": "jpg", "decode": "bytes", "max_bytes": 400_000}
    return {"name": "gpu", "dataset": dataset, "seed": 3, "global_batch": 32, "column": [image, label, raw]}


def on_host(job: dict[str, Any], **settings: Any) -> list[dict[str, Any]]:
    """Returns copies of all batches of an epoch, as torch's tensors."""
    import spdl_cluster

    batches = []
    with spdl_cluster.local(job, tensors="torch", **settings) as loader:
        for batch in loader:
            columns = {"image": batch["image"].clone(), "label": batch["label"].clone(), "ids": batch.ids.clone()}
            batches.append({**columns, "raw": batch["raw"].values.clone(), "position": batch.position})
            del batch
    return batches


def equality(scene: Scene) -> str:
    """Checks that every column has the same bytes as on the host, on the right device."""
    import spdl_cluster
    import torch

    expected = on_host(scene.job)
    with spdl_cluster.local(scene.job, tensors="torch", device=torch.device(scene.device)) as loader:
        for batch, wanted in zip(loader, expected, strict=True):
            assert batch.position == wanted["position"]
            pairs = [(batch["image"], "image"), (batch["label"], "label"), (batch["raw"].values, "raw"), (batch.ids, "ids")]
            for tensor, name in pairs:
                assert tensor.device == torch.device(loader.device), tensor.device
                assert torch.equal(tensor.cpu(), wanted[name]), name
            # In this mode torch raises an error where it would wait for the device.
            torch.cuda.set_sync_debug_mode("error")
            rows = list(batch["raw"])
            torch.cuda.set_sync_debug_mode("default")
            assert torch.equal(torch.cat(rows).cpu(), wanted["raw"])
            del batch, tensor, pairs, rows
    return f"{len(expected)} batches, every byte; ragged samples are found without a wait"


def normalised(scene: Scene) -> str:
    """Checks that pictures that are normalised on the device equal those normalised on the host, to the bit."""
    import spdl_cluster
    import torch

    for dtype, layout in (("f16", "channels_last"), ("bf16", "nchw"), ("f32", "channels_last")):
        by = spdl_cluster.Normalise(
            (0.485, 0.456, 0.406), (0.229, 0.224, 0.225), dtype=dtype, layout=layout, flip=0.5  # type: ignore[arg-type]
        )
        options = spdl_cluster.DeviceOptions(normalise={"image": by})
        expected = on_host(scene.job, device="cpu", device_options=options)
        with spdl_cluster.local(scene.job, tensors="torch", device=scene.device, device_options=options) as loader:
            for batch, wanted in zip(loader, expected, strict=True):
                image = batch["image"]
                if layout == "channels_last":
                    assert image.is_contiguous(memory_format=torch.channels_last)
                assert torch.equal(image.cpu(), wanted["image"]), (dtype, layout)
                del batch, image
    return "3 types, to the bit"


def device_names(scene: Scene) -> str:
    """Checks that `cuda` is torch's current device, and that a missing device is an error."""
    import spdl_cluster
    import torch

    with torch.cuda.device(scene.device), spdl_cluster.local(scene.job, device="cuda") as loader:
        assert loader.device == f"cuda:{torch.cuda.current_device()}"
    devices = torch.cuda.device_count()
    try:
        spdl_cluster.local(scene.job, device=devices)
    except spdl_cluster.DeviceError as error:
        return str(error)
    raise AssertionError(f"there is no device {devices}")


def stream_of(kind: str, device: str) -> Any:
    """Returns a stream of this kind."""
    import torch

    if kind == "default":
        return torch.cuda.default_stream(device)
    per_thread = 2
    return torch.cuda.ExternalStream(per_thread, device=device) if kind == "per-thread" else torch.cuda.Stream(device)


def torn(kind: str) -> Callable[[Scene], str]:
    """Returns a check that batches stay intact when they are dropped before kernels on a stream of this kind read them.
    A control that overwrites them at once must tear them."""

    def check(scene: Scene) -> str:
        import spdl_cluster
        import torch

        expected, stream, other = on_host(scene.job), stream_of(kind, scene.device), torch.cuda.Stream(scene.device)
        options = spdl_cluster.DeviceOptions(buffers=2)
        # The first use of a kernel loads it, which waits for the device: then nothing would be overwritten in time.
        like = expected[0]["image"].to(scene.device)
        with torch.cuda.stream(stream):
            torch.cuda._sleep(1)
            like.clone()
        with torch.cuda.stream(other):
            like.fill_(0)
        torch.cuda.synchronize(scene.device)
        for overwrites in (True, False):
            copies = []
            with (
                torch.cuda.stream(stream),
                spdl_cluster.local(scene.job, tensors="torch", device=scene.device, device_options=options) as loader,
            ):
                for batch in loader:
                    image = batch["image"]
                    batch.wait_on(other)
                    torch.cuda._sleep(SLEEP_CYCLES)
                    copies.append(image.clone())
                    if overwrites:
                        with torch.cuda.stream(other):
                            image.fill_(238)
                    del batch, image
            torch.cuda.synchronize(scene.device)
            whole = [torch.equal(copy.cpu(), wanted["image"]) for copy, wanted in zip(copies, expected, strict=True)]
            if overwrites:
                assert not any(whole), f"the control did not tear {sum(whole)} of {len(whole)} batches"
            else:
                assert all(whole), f"{whole.count(False)} of {len(whole)} batches were torn"
        return f"{len(expected)} batches whole, 2 buffers; the control tore all"

    return check


def graph(mode: str) -> Callable[[Scene], str]:
    """Returns a check that a capture in this mode and a loader do not disturb each other, and that a graph reads the
    batches that are copied to its input."""

    def check(scene: Scene) -> str:
        import spdl_cluster
        import torch

        expected = [int(wanted["image"].to(torch.int64).sum()) for wanted in on_host(scene.job)]
        with torch.cuda.device(scene.device), spdl_cluster.local(scene.job, tensors="torch", device=scene.device) as loader:
            batches = iter(loader)
            still = next(batches)["image"].clone()
            side = torch.cuda.Stream(scene.device)
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                still.to(torch.int64).sum()
            torch.cuda.current_stream().wait_stream(side)
            captured, taken = torch.cuda.CUDAGraph(), []

            def take() -> None:
                with torch.cuda.stream(side):
                    for _ in range(4):
                        next(batches)
                        taken.append(True)

            # The batches of another thread come, and are dropped, while this one captures.
            thread = threading.Thread(target=take)
            with torch.cuda.graph(captured, capture_error_mode=mode):
                total = still.to(torch.int64).sum()
                thread.start()
                thread.join()
            assert len(taken) == 4, "the loader gave no batch during the capture"
            totals = []
            for batch in batches:
                still.copy_(batch["image"])
                del batch
                captured.replay()
                totals.append(total.clone())
            assert [int(each) for each in totals] == expected[5:], "the graph saw other bytes"
        return f"4 batches during the capture, then {len(totals)} through the graph"

    return check


def exit_with_batches(scene: Scene) -> str:
    """Leaves a loader and batches alive, with a busy stream, when the process ends."""
    import spdl_cluster
    import torch

    loader = spdl_cluster.local(scene.job, tensors="torch", device=scene.device)
    batches = iter(loader)
    held = [next(batches) for _ in range(2)]
    torch.cuda._sleep(SLEEP_CYCLES)
    ALIVE.extend([loader, batches, held, held[0]["image"] + 1])
    return "the process ended with 2 batches held and a busy stream"


def interrupt(scene: Scene) -> str:
    """Checks that SIGINT ends a wait for a batch, and that the loader goes on."""
    import spdl_cluster
    import torch

    # Python leaves the signal ignored where a shell started it in the background.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    expected = on_host(scene.job)
    options = spdl_cluster.DeviceOptions(buffers=2)
    with spdl_cluster.local(scene.job, tensors="torch", device=scene.device, device_options=options) as loader:
        batches = iter(loader)
        held = [next(batches), next(batches)]
        waiting = threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT))
        waiting.start()
        try:
            next(batches)
        except KeyboardInterrupt:
            pass
        else:
            raise AssertionError("a third batch came into two buffers")
        held.clear()
        batch = next(batches)
        assert batch.position == expected[2]["position"], "SIGINT lost a batch"
        assert torch.equal(batch["image"].cpu(), expected[2]["image"])
        del batch
    return "SIGINT ended the wait, and the next batch came whole"


def dlpack(name: str, convert: Callable[[Any, Any], Any]) -> Callable[[Scene], str]:
    """Returns a check that the arrays that another library makes of DLPack capsules have the host's bytes. `convert` gets
    the library and a column, and returns the column's bytes on the host."""

    def check(scene: Scene) -> str:
        import spdl_cluster

        with spdl_cluster.local(scene.job, tensors="numpy") as loader:
            expected = [batch["image"].tobytes() for batch in loader]
        library = importlib.import_module(name)
        with spdl_cluster.local(scene.job, tensors="dlpack", device=scene.device) as loader:
            for at, batch in enumerate(loader):
                assert convert(library, batch["image"]) == expected[at], f"batch {at}"
                del batch
        return f"{len(expected)} batches, every byte"

    return check


def bytes_of_jax(jax: Any, column: Any) -> bytes:
    """Returns the bytes of a column that JAX has as an array."""
    array = importlib.import_module("jax.dlpack").from_dlpack(column)
    return bytes(jax.device_get(array).tobytes())


class Step(NamedTuple):
    """A step: the module that it needs besides the package, and its check."""

    module: str
    check: Callable[[Scene], str]


STEPS: dict[str, Step] = {
    "torch-equality": Step("torch", equality),
    "torch-normalised": Step("torch", normalised),
    "torch-device-names": Step("torch", device_names),
    "torch-torn-side": Step("torch", torn("side")),
    "torch-torn-default": Step("torch", torn("default")),
    "torch-torn-per-thread": Step("torch", torn("per-thread")),
    "torch-graph-global": Step("torch", graph("global")),
    "torch-graph-thread-local": Step("torch", graph("thread_local")),
    "torch-exit": Step("torch", exit_with_batches),
    "torch-interrupt": Step("torch", interrupt),
    "dlpack-torch": Step("torch", dlpack("torch", lambda torch, column: torch.from_dlpack(column).cpu().numpy().tobytes())),
    "dlpack-cupy": Step("cupy", dlpack("cupy", lambda cupy, column: cupy.asnumpy(cupy.from_dlpack(column)).tobytes())),
    "dlpack-jax": Step("jax", dlpack("jax", bytes_of_jax)),
}


def report(outcome: str, words: str) -> None:
    """Prints the report of a step."""
    print(json.dumps({"outcome": outcome, "words": words}), flush=True)


def main() -> None:
    """Runs a step."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("step", choices=[*STEPS])
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--scratch", type=pathlib.Path, help="a folder for the dataset of all steps")
    args = parser.parse_args()
    step = STEPS[args.step]
    for module in (step.module, "spdl_cluster"):
        if reason := missing(module):
            report("skipped", reason)
            return
    scratch = args.scratch or pathlib.Path(tempfile.mkdtemp())
    report("ok", step.check(Scene(args.device, make_job(scratch))))


if __name__ == "__main__":
    main()
