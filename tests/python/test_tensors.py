"""Tensors share the memory that samples were decoded into, and hold its slot as long as they are alive."""

from __future__ import annotations

import gc
import os
import re
import subprocess
import weakref
from typing import Any

import numpy
import pytest
import spdl_cluster
from conftest import LIMIT_S, Cluster, MakeJob, run_python

RAW = {"name": "raw", "from": "jpg", "decode": "bytes", "max_bytes": 400_000}


def half(name: str, dtype: str) -> dict[str, Any]:
    """Returns a column of normalised pictures."""
    ops = [{"resize": {"size": 24}}, {"center_crop": {"size": 16}}]
    return {"name": name, "from": "jpg", "decode": "image", "dtype": dtype, "layout": "nchw", "ops": ops}


def test_tensors_of_the_local_queue_lie_in_the_workers_slab(job: MakeJob, cluster: Cluster) -> None:
    torch = pytest.importorskip("torch")
    name = cluster.submit(job(RAW, name="slab"))
    with cluster.connect(0, 1, job=name, transport="local", tensors="torch") as loader:
        for batch in loader:
            start, size = batch.slab
            for tensor in (batch["image"], batch["label"], batch["raw"].values, batch["raw"].offsets, batch.ids):
                assert isinstance(tensor, torch.Tensor)
                bytes_of = (tensor.numel() - 1) * tensor.stride(-1) * tensor.element_size() + tensor.element_size()
                assert start <= tensor.data_ptr() <= tensor.data_ptr() + bytes_of <= start + size
        assert loader.stats()["serving"]["transport"] == "local"
        # The kernel's map shows that this memory is the sealed file which the worker passed over its socket.
        with open("/proc/self/maps") as maps:
            mapped = {int(line.split("-")[0], 16): line for line in maps}
        assert "/memfd:spdl-slab" in mapped[start]


@pytest.mark.parametrize("kind", ["torch", "numpy"])
def test_tensors_have_the_bytes_of_the_batch(job: MakeJob, kind: str) -> None:
    made = job(RAW, half("f32", "f32"), half("f16", "f16"))
    if kind == "torch":
        pytest.importorskip("torch")
    with spdl_cluster.local(made, tensors=kind) as loader, spdl_cluster.local(made, tensors="dlpack") as plain:  # type: ignore[arg-type]
        for batch, columns in zip(loader, plain):
            assert list(batch) == list(columns) == ["image", "label", "raw", "f32", "f16"]
            assert batch.content_digest() == columns.content_digest()
            for name, tensor in batch.items():
                column = columns[name]
                if name == "raw":
                    tensor, column = tensor.values, column.values
                theirs = numpy.from_dlpack(column)
                assert tuple(tensor.shape) == column.shape == theirs.shape
                assert numpy.array_equal(numpy.asarray(tensor), theirs)
            assert [bytes(sample[:2].tolist()) for sample in batch["raw"]] == [b"\xff\xd8"] * 24


def test_bf16_is_torchs_own_and_numpys_with_a_package(job: MakeJob) -> None:
    torch = pytest.importorskip("torch")
    made = job(half("f32", "f32"), half("bf16", "bf16"))
    with spdl_cluster.local(made, tensors="torch") as loader:
        batch = next(iter(loader))
        assert batch["bf16"].dtype is torch.bfloat16
        assert torch.equal(batch["bf16"], batch["f32"].to(torch.bfloat16))
        bits = batch["bf16"].view(torch.int16).numpy().copy()
    ml_dtypes = pytest.importorskip("ml_dtypes")
    with spdl_cluster.local(made, tensors="numpy") as loader:
        array = next(iter(loader))["bf16"]
        assert array.dtype == ml_dtypes.bfloat16
        assert numpy.array_equal(array.view(numpy.int16), bits)


def test_bf16_without_that_package_is_refused_by_name(job: MakeJob) -> None:
    code = """
        import sys
        sys.modules["ml_dtypes"] = None
        import json, spdl_cluster
        try:
            next(iter(spdl_cluster.local(json.loads(sys.argv[1]), tensors="numpy")))
        except spdl_cluster.SettingError as error:
            print(error)
    """
    import json

    process = run_python(code, json.dumps(job(half("half", "bf16")), default=str))
    output, errors = process.communicate(timeout=LIMIT_S)
    assert "`half` is bf16" in output and "ml_dtypes" in output, errors


def test_nothing_imports_torch_unasked_and_numpy_is_enough(job: MakeJob) -> None:
    code = """
        import json, sys
        sys.modules["torch"] = None     # importing it fails from here on
        import spdl_cluster
        del sys.modules["torch"]
        with spdl_cluster.local(json.loads(sys.argv[1])) as loader:
            batch = next(iter(loader))
            print(type(batch["image"]).__module__, "torch" in sys.modules)
    """
    import json

    process = run_python(code, json.dumps(job(), default=str))
    output, errors = process.communicate(timeout=LIMIT_S)
    assert output.split() == ["numpy", "False"], errors


def test_a_ragged_column_is_cut_at_its_offsets(job: MakeJob) -> None:
    with spdl_cluster.local(job(RAW), tensors="numpy") as loader:
        raw = next(iter(loader))["raw"]
        assert len(raw) == 24
        assert [len(sample) for sample in raw] == raw.lengths.tolist()
        assert sum(raw.lengths.tolist()) == len(raw.values)
        assert numpy.array_equal(raw[-1], raw[23])
        assert raw[0].tobytes() + raw[1].tobytes() == raw.values[: raw.offsets[2]].tobytes()
        for wrong in (24, -25):
            with pytest.raises(IndexError, match=f"sample {wrong} of 24"):
                raw[wrong]


def test_a_slot_goes_back_when_the_last_tensor_dies(job: MakeJob) -> None:
    with spdl_cluster.local(job(), tensors="numpy", slots=2) as loader:
        epoch = iter(loader)
        first = next(epoch)
        label, kept = first["label"], first["label"].tolist()
        slot = first.slot
        gone = weakref.ref(first["image"])
        del first
        gc.collect()
        assert gone() is None
        # One tensor holds its slot: all following batches use the other slot, and the held one is not overwritten.
        slots = []
        for batch in epoch:
            slots.append(batch.slot)
            del batch
        assert set(slots) == {1 - slot}
        assert label.tolist() == kept


def test_a_slot_that_went_back_is_used_again(job: MakeJob) -> None:
    with spdl_cluster.local(job(), tensors="numpy", slots=2) as loader:
        slots = {batch.slot for batch in loader}
    assert slots == {0, 1}


def test_tensors_may_be_changed_in_place_and_the_next_batch_is_whole(job: MakeJob) -> None:
    made = job(epochs=2)
    with spdl_cluster.local(made) as loader:
        expected = [batch.content_digest() for _ in range(2) for batch in loader]
    with spdl_cluster.local(made, tensors="numpy", slots=2) as loader:
        digests = []
        for _ in range(2):
            for batch in loader:
                digests.append(batch.content_digest())
                batch["image"][:] = 255
                batch["label"][:] = -1
    assert digests == expected


def test_an_exporter_refuses_what_it_cannot_do(job: MakeJob) -> None:
    with spdl_cluster.local(job(), tensors="dlpack") as loader:
        batch = next(iter(loader))
        with pytest.raises(spdl_cluster.SettingError, match="`valid` is computed by torch or numpy.*\n*.*pip install numpy"):
            _ = batch.valid
        column = batch["image"]
        assert (column.dtype, column.shape) == ("u8", (24, 32, 32, 3))
        assert column.__dlpack_device__() == (1, 0)
        for wrong in ({"stream": 1}, {"copy": True}, {"dl_device": (2, 0)}):
            with pytest.raises(BufferError):
                column.__dlpack__(**wrong)
        for version, name in ((None, "dltensor"), ((0, 8), "dltensor"), ((1, 0), "dltensor_versioned")):
            # A capsule that is not consumed releases what it holds.
            assert re.search(f'"{name}"', repr(column.__dlpack__(max_version=version)))


def test_a_tensor_outlives_the_loader_and_the_interpreter_ends_well(job: MakeJob) -> None:
    code = """
        import json, sys, spdl_cluster
        loader = spdl_cluster.local(json.loads(sys.argv[1]), tensors="numpy")
        tensors = [batch["image"] for batch, _ in zip(loader, range(3))]
        del loader
        print(sum(int(tensor.sum()) > 0 for tensor in tensors))
    """
    import json

    process = run_python(code, json.dumps(job(), default=str))
    output, errors = process.communicate(timeout=LIMIT_S)
    assert (process.returncode, output.strip()) == (0, "3"), errors
    assert isinstance(process, subprocess.Popen)


def test_a_batch_that_is_copied_to_a_device_keeps_what_it_knows(job: MakeJob) -> None:
    torch = pytest.importorskip("torch", reason=os.environ.get("SPDL_TEST_NO_TORCH", "torch is not installed"))
    with spdl_cluster.local(job(), tensors="torch") as loader:
        batch = loader.next()
        assert batch is not None
        there = batch.to("meta", non_blocking=True)
        assert type(there) is spdl_cluster.Batch and list(there) == list(batch)
        assert {str(column.device) for column in there.values()} == {"meta"} == {str(there.ids.device), str(there.valid.device)}
        same = batch.to(torch.device("cpu"))
        assert all(torch.equal(same[name], column) and same[name].data_ptr() == column.data_ptr() for name, column in batch.items())
        assert same.ids.tolist() == batch.ids.tolist() and same.valid.all()
        assert (same.position, same.next_position, same.samples) == (batch.position, batch.next_position, batch.samples)
        # Its entries are copies, and it can be copied again.
        assert same.to("cpu").epochs.tolist() == batch.epochs.tolist()
    with spdl_cluster.local(job(), tensors="numpy") as loader, pytest.raises(spdl_cluster.SettingError, match="is no tensor of torch"):
        next(iter(loader)).to("cpu")
