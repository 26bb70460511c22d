"""Programs whose driver is the stand-in. `test_device.py` runs each program in a separate process.

usage: device_programs.py PROGRAM JOB.json [CLUSTER.json]
"""

from __future__ import annotations

import gc
import json
import os
import sys
import warnings
from typing import Any

import spdl_cluster
from spdl_cluster import DeviceOptions, Normalise
from stand_in import Driver, Taken, digest

Job = dict[str, Any]
HALF = Normalise(mean=(0.5, 0.25, 0.0), std=(0.5, 0.25, 1.0), dtype="f16", layout="channels_last", flip=0.5, seed=3)


def on_host(job: Job, **settings: Any) -> list[tuple[Any, str, dict[str, bytes]]]:
    """Returns the position, digest and columns of each batch of an epoch."""
    with spdl_cluster.local(job, tensors="numpy", **settings) as loader:
        return [
            (batch.position, batch.content_digest(), {name: batch[name].tobytes() for name in ("image", "label")})
            for batch in loader
        ]


def arrays(job: Job) -> None:
    """Capsules name the device and address of their tensors, which have the host's bytes; on two devices at once."""
    driver, expected = Driver(), on_host(job)
    streams = [driver.stream(device) for device in (0, 1)]
    loaders = [spdl_cluster.local(job, tensors="dlpack", device=f"cuda:{device}") for device in (0, 1)]
    for step, batches in enumerate(zip(*loaders, strict=True)):
        position, content, columns = expected[step]
        for device, (batch, stream, loader) in enumerate(zip(batches, streams, loaders)):
            assert batch.position == position and loader.position == batch.next_position
            for version in (None, (1, 1)):
                for name, dtype, shape in (("image", (1, 8, 1), (24, 32, 32, 3)), ("label", (0, 64, 1), (24,))):
                    column = batch[name]
                    assert column.__dlpack_device__() == (2, device)
                    taken = Taken(column.__dlpack__(stream=stream, max_version=version))
                    array = taken.array
                    assert (array.device, array.dtype, array.shape) == ((2, device), dtype, shape)
                    assert array.address == column.data_ptr()
                    assert array.strides == ((3072, 96, 3, 1) if name == "image" else (1,))
                    assert driver.read(stream, array.address, array.size) == columns[name]
                    taken.let_go()
            raw = batch["raw"]
            taken = Taken(raw.offsets.__dlpack__(stream=stream))
            assert (taken.array.shape, taken.array.device) == ((25,), (2, device))
            assert driver.read(stream, taken.array.address, taken.array.size) == bytes(raw.host_offsets)
            assert (len(raw), raw.values.shape) == (24, (raw.host_offsets[-1],))
            taken.let_go()
            ids = Taken(batch.ids.__dlpack__(stream=stream))
            assert (ids.array.shape, ids.array.strides, ids.array.device) == ((24,), (4,), (2, device))
            ids.let_go()
            assert batch.content_digest() == content
            for gone in ("slab", "slot"):
                try:
                    getattr(batch, gone)
                except AttributeError as error:
                    assert f"copied to `cuda:{device}`" in str(error)
                else:
                    raise AssertionError(gone)
            del column, raw, taken, ids, batch
        # The state covers only delivered batches, not those that the loader has copied ahead.
        for loader in loaders:
            state = loader.state_dict()
            assert (state["epoch"], state["offset"]) == (0, 24 * (step + 1))
            assert loader.stats()["batches"] == step + 1
        del batches, loader
    assert [loader.device for loader in loaders] == ["cuda:0", "cuda:1"]
    with spdl_cluster.local(job, tensors="numpy") as plain:
        for batch in plain:
            del batch
        assert {loader.receipt for loader in loaders} == {plain.receipt}
    for loader in loaders:
        loader.close()
    del loaders, loader
    gc.collect()
    for device, stream in enumerate(streams):
        driver.end(stream, device)
    report = driver.check_clean()
    assert report["unlocked_copies"] == 0, report


def streams(job: Job) -> None:
    """The consumer's stream waits for the batch, and the reuse of the batch's memory waits for the consumer's stream, also
    after the batch is dropped."""
    driver, expected = Driver(), on_host(job)
    own, other = driver.stream(0), driver.stream(0)
    loader = spdl_cluster.local(job, tensors="dlpack", device="cuda:0", device_options=DeviceOptions(buffers=2))
    seen = []
    for step, batch in enumerate(loader):
        column = batch["image"]
        # In turn: DLPack's `stream`, the batch's `wait_on`, and a second stream that the consumer gives to the batch.
        if step % 3 == 0:
            taken = Taken(column.__dlpack__(stream=own))
        else:
            batch.wait_on(own)
            taken = Taken(column.__dlpack__(stream=-1))
        seen.append((step, driver.put_digest(own, taken.array.address, taken.array.size)))
        if step % 3 == 2:
            batch.wait_on(type("Stream", (), {"cuda_stream": other}))
            batch.wait_on(type("Stream", (), {"__cuda_stream__": lambda self: (0, other)})())
            seen.append((step, driver.put_digest(other, taken.array.address, taken.array.size)))
        del batch, column
        taken.let_go()
    driver.synchronise(own)
    driver.synchronise(other)
    for step, value in seen:
        assert value.value == digest(expected[step][2]["image"]), step
    loader.load_state_dict({**loader.state_dict(), "epoch": 0, "offset": 0})
    column = next(iter(loader))["label"]
    for stream in (0, -2, 1 << 70):
        try:
            column.__dlpack__(stream=stream)
        except (BufferError, OverflowError):
            pass
        else:
            raise AssertionError(stream)
    for known in (None, 1, 2):
        column.__dlpack__(stream=known)
    for wrong in ({"dl_device": (1, 0)}, {"dl_device": (2, 1)}, {"copy": True}):
        try:
            column.__dlpack__(**wrong)
        except BufferError:
            pass
        else:
            raise AssertionError(wrong)
    loader.close()
    # A capsule outlives its loader; its memory is freed at the end.
    value = column.__dlpack__(stream=own)
    del loader, column
    driver.wait_for(lambda report: bool(report["allocations"] == 1))
    del value
    for stream in (own, other):
        driver.end(stream, 0)
    driver.check_clean()


def exhaust_slots(job: Job) -> None:
    """A loop that keeps all buffers gets a warning and then an error, and continues when it releases one."""
    driver = Driver()
    with spdl_cluster.local(
        job, tensors="dlpack", device="cuda:0", timeout=1.6, device_options=DeviceOptions(buffers=3)
    ) as loader:
        kept: list[Any] = []
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            try:
                for batch in loader:
                    kept.append(batch["label"])
                    del batch
            except spdl_cluster.LoaderTimeout as error:
                assert "holds 3 batches, and there are 3 device buffers" in str(error), error
            else:
                raise AssertionError("no timeout")
        assert [warning.category for warning in seen] == [spdl_cluster.SlotsExhaustedWarning]
        assert "all 3 batches that the loader has device buffers for" in str(seen[0].message)
        assert seen[0].filename == __file__
        kept.clear()
        assert next(iter(loader)).position == (0, 72)
    del loader
    gc.collect()
    driver.check_clean()


def normalise(job: Job) -> None:
    """Pictures are normalised to the same bits on the device and on the host, as the options define."""
    import numpy

    driver = Driver()
    stream = driver.stream(0)
    plain = Normalise(mean=HALF.mean, std=HALF.std)
    for by in (HALF, plain):
        options = DeviceOptions(normalise={"image": by})
        there = spdl_cluster.local(job, tensors="dlpack", device="cuda:0", device_options=options)
        here = spdl_cluster.local(job, tensors="numpy", device="cpu", device_options=options)
        raw = spdl_cluster.local(job, tensors="numpy")
        mirrored = 0
        for _, device, host, bytes_of in zip(range(2), there, here, raw):
            taken = Taken(device["image"].__dlpack__(stream=stream))
            array, image = taken.array, host["image"]
            assert array.shape == image.shape == (24, 3, 32, 32)
            assert array.strides == tuple(stride // image.itemsize for stride in image.strides)
            assert array.strides == ((3072, 1024, 32, 1) if by is plain else (3072, 1, 96, 3))
            assert array.dtype == ((2, 32, 1) if by is plain else (2, 16, 1))
            assert driver.read(stream, array.address, array.size) == (image if by is plain else image.transpose(0, 2, 3, 1)).tobytes()
            # Normalised pictures are outside the batch's slot, all other tensors inside.
            start, size = host.slab
            assert start <= host["label"].ctypes.data < start + size and not start <= image.ctypes.data < start + size
            assert host.content_digest() == bytes_of.content_digest() == device.content_digest()
            exact = (bytes_of["image"] / 255.0 - numpy.array(by.mean)) / numpy.array(by.std)
            for made, value in zip(image.transpose(0, 2, 3, 1), exact):
                is_mirrored = not numpy.allclose(made, value, atol=4e-3)
                mirrored += is_mirrored
                assert numpy.allclose(made[:, ::-1] if is_mirrored else made, value, atol=4e-3)
            taken.let_go()
            del device, host, image, taken, bytes_of, made
        assert mirrored == 0 if by is plain else 5 < mirrored < 43, mirrored
        del there, here, raw
    gc.collect()
    driver.end(stream, 0)
    driver.check_clean()


def fork(job: Job) -> None:
    """A forked child cannot use the device, and releases none of its parent's resources."""
    loader = spdl_cluster.local(job, tensors="dlpack", device="cuda:0")
    epoch = iter(loader)
    batch = next(epoch)
    column, content = batch["image"], batch.content_digest()
    child = os.fork()
    if child == 0:
        refused = 0
        for use in (lambda: column.__dlpack__(), lambda: batch.wait_on(1), batch.content_digest, lambda: next(epoch)):
            try:
                use()
            except spdl_cluster.ForkedError:
                refused += 1
        del batch, column, epoch, loader
        sys.exit(refused)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 4
    assert batch.content_digest() == content
    assert sum(1 for _ in epoch) == 7


def opens(job: Job) -> None:
    """Opens a loader for `DEVICE`, uses it, and prints its device or the error."""
    device: Any = os.environ.get("DEVICE", "cuda")
    given = [int(os.environ[name]) for name in ("GIVEN_RANK", "GIVEN_WORLD") if name in os.environ]
    loader: spdl_cluster.Loader | None = None
    try:
        loader = spdl_cluster.local(job, *given, tensors="dlpack", device=int(device) if device.isdigit() else device)
        print("made", loader.device, flush=True)
        for batch in loader:
            del batch
        print("done")
    except spdl_cluster.SpdlError as error:
        kinds = [kind.__name__ for kind in type(error).__mro__]
        print(json.dumps({"kinds": kinds, "text": str(error), "hint": error.hint}))
    loader = None
    gc.collect()
    if "CHECK" in os.environ:
        Driver().check_clean()


def cluster(job: Job, served: dict[str, Any]) -> None:
    """Batches of a cluster's worker reach the device over both transports."""
    driver, expected = Driver(), on_host(job)
    start = spdl_cluster.local(job).state_dict()
    for transport in ("local", "quic"):
        where = {**served, "transport": transport, "device": "cuda:0"}
        with spdl_cluster.connect(0, 1, **where, state=start, tensors="dlpack") as loader:
            seen = [(batch.position, batch.content_digest()) for batch in loader]
            assert seen == [each[:2] for each in expected]
            assert loader.stats()["serving"]["transport"] == transport
    del loader
    gc.collect()
    assert driver.check_clean()["unlocked_copies"] == 0


def torch(job: Job) -> None:
    """torch's tensors use the stand-in's memory. torch's CUDA runtime is absent; patches answer in its place."""
    import torch
    from unittest.mock import patch

    driver, expected = Driver(), on_host(job)
    own, other = driver.stream(1), driver.stream(1)
    current = [own]
    stream = lambda device: type("Stream", (), {"cuda_stream": current[0]})  # noqa: E731
    # torch's own `[]` asks the runtime for the current device first; `narrow` does not.
    cut = lambda tensor, rows: tensor.narrow(0, rows.start, rows.stop - rows.start)  # noqa: E731
    options = DeviceOptions(buffers=2, normalise={"image": HALF})
    with (
        patch("torch.cuda.is_available", lambda: True),
        patch("torch.cuda._lazy_init", lambda: None),
        patch("torch.cuda.current_stream", stream),
        spdl_cluster.local(job, tensors="torch", device=torch.device("cuda", 1), device_options=options) as loader,
    ):
        seen = []
        for step, batch in enumerate(loader):
            image, label = batch["image"], batch["label"]
            assert (image.device, image.dtype) == (torch.device("cuda", 1), torch.float16)
            assert image.shape == (24, 3, 32, 32) and image.is_contiguous(memory_format=torch.channels_last)
            assert label.device == image.device and label.dtype == torch.int64
            current[0] = other if step % 2 else own
            # The label is used on the stream that was current when the batch was delivered; ids on the stream current at their use.
            seen.append((step, driver.put_digest(own if step == 0 or step % 2 else other, label.data_ptr(), 24 * 8)))
            assert batch.ids.device == image.device
            raw = batch["raw"]
            assert raw.values.device == raw.offsets.device == image.device
            # Samples are cut out of the values alone: no offset is read back from the device.
            with patch.object(torch.Tensor, "__getitem__", cut):
                rows = [*raw, raw[-1], raw[torch.tensor(3)]]
            begins = [row.data_ptr() - raw.values.data_ptr() for row in rows]
            ends = [begin + len(row) for begin, row in zip(begins, rows)]
            assert [*begins[:24], ends[23]] == list(raw.host_offsets) and ends[23] == len(raw.values)
            assert begins[24:] == [begins[23], begins[3]] and ends[24:] == [ends[23], ends[3]]
            del batch, image, label, raw, rows
        assert len(seen) == len(expected)
        driver.synchronise(own)
        driver.synchronise(other)
        for step, value in seen:
            assert value.value == digest(expected[step][2]["label"]), step
    del loader
    gc.collect()
    for each in (own, other):
        driver.end(each, 1)
    driver.check_clean()


def packed(job: Job) -> None:
    """Micro-batches of sequences on a device are views of its memory, with what is known on the host; no call waits for the device."""
    import torch
    from unittest.mock import patch

    with spdl_cluster.local(job, tensors="numpy") as loader:
        expected = [
            [(m.segment_lengths, m.max_seqlen, m.loss_tokens, m.cu_seqlens.tolist(), m.tokens.tobytes()) for m in batch.packed(2)] for batch in loader
        ]
    driver = Driver()
    own = driver.stream(0)
    #: What is copied from page-locked memory.
    locked: list[Any] = []

    def lock(tensor: torch.Tensor) -> torch.Tensor:
        assert tensor.device.type == "cpu"
        locked.append(tensor)
        return tensor

    def copy(tensor: torch.Tensor, device: torch.device, non_blocking: bool = False) -> torch.Tensor:
        assert tensor is locked[-1] and device.type == "cuda" and non_blocking
        return tensor

    def cut(tensor: torch.Tensor, key: Any) -> torch.Tensor:
        """Does what torch's own `[]` does, which asks the runtime for the current device first."""
        for axis, part in enumerate(key if isinstance(key, tuple) else (key,)):
            begin, end, step = part.indices(tensor.shape[axis])
            shape, strides = list(tensor.shape), list(tensor.stride())
            shape[axis], at = len(range(begin, end, step)), tensor.storage_offset() + begin * strides[axis]
            strides[axis] *= step
            tensor = tensor.as_strided(shape, strides, at)
        return tensor

    def waits() -> dict[str, int]:
        calls = driver.report()["calls"]
        return {name: calls.get(name, 0) for name in ("cuStreamSynchronize", "cuCtxSynchronize", "cuMemcpyDtoH_v2", "cuMemcpyDtoHAsync_v2")}

    with (
        patch("torch.cuda.is_available", lambda: True),
        patch("torch.cuda._lazy_init", lambda: None),
        patch("torch.cuda.current_stream", lambda device: type("Stream", (), {"cuda_stream": own})),
        spdl_cluster.local(job, tensors="torch", device="cuda:0") as loader,
    ):
        for batch, wanted in zip(loader, expected, strict=True):
            before = waits()
            with patch.object(torch.Tensor, "__getitem__", cut):
                micros = list(batch.packed(2))
                halves = [micro.cp_slice(1, 2, "headtail").tokens for micro in micros]
            with patch.object(torch.Tensor, "pin_memory", lock), patch.object(torch.Tensor, "to", copy):
                seen = [(m.segment_lengths, m.max_seqlen, m.loss_tokens, m.cu_seqlens.tolist()) for m in micros]
            assert waits() == before and len(locked) == len(micros)
            assert seen == [each[:4] for each in wanted]
            for number, (micro, half) in enumerate(zip(micros, halves)):
                tokens = micro.tokens
                assert tokens.device == torch.device("cuda", 0) and tokens.data_ptr() == batch["text"].data_ptr() + number * 2 * 64 * 4
                assert driver.read(own, tokens.data_ptr(), tokens.nbytes) == wanted[number][4]
                # The second and the third quarter of each sequence.
                assert half.shape == (2, 2, 16) and half.stride() == (64, 16, 1) and half.data_ptr() == tokens.data_ptr() + 16 * 4
            locked.clear()
            del batch, micros, micro, tokens, halves, half
    del loader
    gc.collect()
    driver.end(own, 0)
    driver.check_clean()


if __name__ == "__main__":
    program, *files = sys.argv[1:]
    globals()[program](*(json.loads(open(file).read()) for file in files))
