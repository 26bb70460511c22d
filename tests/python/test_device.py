"""Batches on a GPU, with a stand-in for its driver. Each program is a separate process with its own settings of the stand-in.

`SPDL_TEST_CUDA_STAND_IN` is the path of the stand-in; `cargo test` sets it.
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from conftest import LIMIT_S, Cluster, MakeJob

PROGRAMS = pathlib.Path(__file__).with_name("device_programs.py")
RAW = {"name": "raw", "from": "jpg", "decode": "bytes", "max_bytes": 400_000}

RunProgram = Callable[..., str]


@pytest.fixture
def run_program(job: MakeJob, tmp_path: pathlib.Path) -> RunProgram:
    """Returns a function that runs a program, with `settings` for the stand-in, and returns its output."""

    def run_program(program: str, settings: str = "", driver: str | None = None, served: Any = None, **variables: str) -> str:
        library = os.environ["SPDL_TEST_CUDA_STAND_IN"] if driver is None else driver
        home = tmp_path / "driver"
        home.mkdir(exist_ok=True)
        for name in ("libcuda.so", "libcuda.so.1"):
            (home / name).unlink(missing_ok=True)
            (home / name).symlink_to(library)
        files = []
        for name, content in (("job", job(RAW, name=f"device-{program}")), ("served", served)):
            if content is not None:
                files.append(tmp_path / f"{name}.json")
                files[-1].write_text(json.dumps(content, default=str))
        behaviour = {"LD_LIBRARY_PATH": str(home), "CUDA_STAND_IN": settings, **variables}
        done = subprocess.run(
            [sys.executable, PROGRAMS, program, *files],
            env={**os.environ, **behaviour},
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
        )
        assert done.returncode == 0, f"{done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    return run_program


def test_capsules_name_the_device_of_tensors_which_hold_the_hosts_bytes(run_program: RunProgram) -> None:
    run_program("arrays", "devices=2,seed=1")


def test_streams_wait_for_batches_and_buffers_for_streams(run_program: RunProgram) -> None:
    run_program("streams", "delay_us=3000,seed=2")


def test_a_loop_that_keeps_device_buffers_is_warned_and_goes_on(run_program: RunProgram) -> None:
    run_program("exhaust_slots", "seed=3")


def test_pictures_are_normalised_to_the_same_bits_on_device_and_host(run_program: RunProgram) -> None:
    run_program("normalise", "delay_us=0")


def test_a_forked_child_cannot_use_the_device_and_the_parent_goes_on(run_program: RunProgram) -> None:
    run_program("fork", "delay_us=0")


def test_batches_of_a_cluster_come_to_the_device_over_both_transports(run_program: RunProgram, job: MakeJob, cluster: Cluster) -> None:
    name = cluster.submit(job(RAW, name="device-cluster"))
    certs = cluster.folder / "certs/client"
    run_program("cluster", "seed=4", served={"coordinators": cluster.coordinators, "certs": certs, "job": name})


def test_torch_has_tensors_of_the_device_on_its_current_stream(run_program: RunProgram) -> None:
    pytest.importorskip("torch", reason=os.environ.get("SPDL_TEST_NO_TORCH", "torch is not installed"))
    run_program("torch", "devices=2,delay_us=3000,seed=5")


@pytest.mark.parametrize(
    ("device", "settings", "local_rank", "where"),
    [
        ("cuda", "devices=3", "", "cuda:0"),
        ("cuda", "devices=3", "2", "cuda:2"),
        # A process that sees only its own device.
        ("cuda", "devices=1", "2", "cuda:0"),
        ("cuda:1", "devices=3", "2", "cuda:1"),
        ("1", "devices=3", "", "cuda:1"),
        ("cpu", "devices=0", "", "cpu"),
    ],
)
def test_a_device_has_many_names(run_program: RunProgram, device: str, settings: str, local_rank: str, where: str) -> None:
    output = run_program("opens", f"{settings},delay_us=0", DEVICE=device, LOCAL_RANK=local_rank)
    assert output.split("\n") == [f"made {where}", "done", ""]


@pytest.mark.parametrize(
    ("settings", "variables", "kind", "says", "hint"),
    [
        # First the errors that are known at once, then those at the opening or use of the loader.
        ("devices=2", {"DEVICE": "cuda:2"}, "DeviceError", "`cuda:2` does not exist: the driver shows 2 devices", "from 0"),
        ("devices=2", {"LOCAL_RANK": "4"}, "DeviceError", "`cuda:4` does not exist", "LOCAL_RANK"),
        ("devices=0", {}, "DeviceError", "the driver shows 0 devices", "CUDA_VISIBLE_DEVICES"),
        ("", {"DEVICE": "mps"}, "SettingError", "device `mps` is none; there are `cpu`, `cuda` and `cuda:N`", None),
        ("fail=cuDevicePrimaryCtxRetain@1:2", {}, "DeviceMemoryError", "CUDA_ERROR_OUT_OF_MEMORY", None),
        ("memory=300000", {}, "DeviceMemoryError", "bytes for a batch: ", "lower the number of device buffers"),
        ("fail=cuMemcpyHtoDAsync_v2@3:719", {}, "DeviceError", "is lost: `cuMemcpyHtoDAsync`", "start the process again"),
        ("lose_at_copy=2", {}, "DeviceError", "is lost", "start the process again"),
        ("fail=cuStreamWaitEvent@2:1", {}, "DeviceError", "`cuStreamWaitEvent` returned CUDA_ERROR_INVALID_VALUE", None),
    ],
)
def test_each_kind_of_failure_has_its_error_with_the_remedy(
    run_program: RunProgram, settings: str, variables: dict[str, str], kind: str, says: str, hint: str | None
) -> None:
    *made, told, _ = run_program("opens", settings, **variables).split("\n")
    error = json.loads(told)
    assert error["kinds"][0] == kind and "SpdlError" in error["kinds"]
    assert says in error["text"] and (hint or "") in (error["hint"] or ""), error
    # Errors of the device itself are raised when the loader is made.
    assert bool(made) == any(late in settings for late in ("memory", "HtoD", "lose_at", "WaitEvent"))


def test_a_loader_that_fails_gives_back_what_it_took(run_program: RunProgram) -> None:
    output = run_program("opens", "fail=cuMemAlloc_v2@3:2", CHECK="1")
    assert "MemoryError" in output


def test_the_error_on_a_machine_without_a_driver_names_what_to_install(run_program: RunProgram) -> None:
    told = run_program("opens", driver="/nowhere/libcuda.so").split("\n")[0]
    if told.startswith("made") or "the driver shows" in told:
        pytest.skip("this machine has a driver")
    error = json.loads(told)
    assert error["kinds"][:2] == ["DeviceError", "SpdlError"]
    assert "needs the NVIDIA driver, and `libcuda.so.1` cannot be loaded" in error["text"]
    assert "install the NVIDIA driver" in error["hint"]
